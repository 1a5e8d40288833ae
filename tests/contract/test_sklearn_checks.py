"""Every estimator passes scikit-learn's own checks, with no expected failure."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from certus.testing.instances import instances


@parametrize_with_checks(instances())
def test_scikit_learn_check(estimator, check):
    check(estimator)
