"""Points that solve nothing, given such data or parameters that a bound could fail.

Each case was a PROVED claim that was met and false, or an error from deep inside.
"""

import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model as theirs
from sklearn import svm

import certus
from certus import linear_model as ours
from certus import svm as our_svm
from certus.certificate import Strength
from certus.objectives import Absolute, NoPenalty, Squared


def data(seed=0, n=200, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[rng.random((n, d)) < 0.3] = 0.0
    return X, X @ np.arange(1.0, d + 1) + rng.standard_normal(n)


def without_column(X, y, j):
    """Least squares that leaves column j out: far from a minimum."""
    w = np.zeros(X.shape[1])
    keep = np.arange(X.shape[1]) != j
    unit = np.abs(X[:, keep]).max(axis=0)
    w[keep] = np.linalg.lstsq(X[:, keep] / unit, y, rcond=None)[0] / unit
    return w


@pytest.mark.parametrize("like", [sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("loss", [Squared(), Absolute()])
def test_share_of_a_sparse_column_is_of_its_own_norm(like, loss):
    # A cheap bound of all norms by the largest entry of X made every share tiny: with
    # a column of 1e8 a coefficient of zero was "exact for data within 2e-9 of yours".
    X, y = data()
    X[:, 0] *= 1e8
    w = without_column(X, y, 1)
    found = certus.check(w, None, (loss, NoPenalty()), like(X), y)
    dense = certus.check(w, None, (loss, NoPenalty()), X, y)
    assert found.met is False
    assert found.value == pytest.approx(dense.value, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-120, 1e-150, 1e-161])
def test_sparse_columns_far_below_the_largest(scale):
    # Squares in the unit of the largest entry underflow, and what guards against that
    # made the norm of the small column too large, hence the share of it too small.
    X, y = data()
    X[:, 1] *= scale
    w = without_column(X, y, 1)
    found = certus.check(w, None, (Squared(), NoPenalty()), sparse.csr_matrix(X), y)
    assert found.met is not True
    assert found.value > 0.1


@pytest.mark.parametrize("intercept", [None, 0.0])
def test_sparse_entries_in_parts_that_cancel(intercept):
    # An entry stored as x + 1e7 − 1e7 is x: norms of the parts say nothing of it.
    X, y = data()
    rows, columns = np.nonzero(np.ones_like(X))
    more = columns == 1
    parts = np.full(more.sum(), 1e7)
    row = np.concatenate([rows, rows[more], rows[more]])
    column = np.concatenate([columns, columns[more], columns[more]])
    value = np.concatenate([X.ravel(), parts, -parts])
    order = np.lexsort((column, row))
    starts = np.concatenate([[0], np.cumsum(np.bincount(row))])
    S = sparse.csr_matrix((value[order], column[order], starts), shape=X.shape)
    before = S.nnz
    w = without_column(X, y, 1)
    for loss in (Squared(), Absolute()):
        found = certus.check(w, intercept, (loss, NoPenalty()), S, y)
        assert found.met is False
        assert found.value > 0.1
    assert S.nnz == before  # the caller's matrix is left as it is


def test_parts_of_small_integers_do_not_wrap():
    # 100 + 100 as int8 would be −56; scikit-learn reads 200.
    y = np.array([1.0, 2.0, 4.0])
    S = sparse.csr_matrix(
        (np.full(4, 100, np.int8), [0, 0, 0, 0], [0, 2, 3, 4]), shape=(3, 1)
    )
    X = np.array([[200.0], [100.0], [100.0]])
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    assert certus.check(w, None, (Squared(), NoPenalty()), S, y).met


@pytest.mark.filterwarnings("ignore:With alpha=0")
@pytest.mark.parametrize("library", [theirs, ours])
@pytest.mark.parametrize(
    ("name", "fitted", "changed"),
    [
        ("Lasso", {"alpha": 0.0}, {"alpha": -1.0}),
        ("Ridge", {"alpha": 0.0}, {"alpha": -1.0}),
        ("Ridge", {"alpha": 0.0}, {"alpha": float("nan")}),
        ("Lasso", {"alpha": 0.1}, {"alpha": [0.1, 9.0]}),
        ("Lasso", {"alpha": 0.1}, {"alpha": None}),
        ("ElasticNet", {"alpha": 0.1, "l1_ratio": 1.0}, {"l1_ratio": 2.0}),
        ("LogisticRegression", {}, {"C": 0.0}),
        ("LogisticRegression", {}, {"C": -1.0}),
        ("LogisticRegression", {}, {"penalty": "x"}),
    ],
)
def test_parameters_that_state_no_problem(library, name, fitted, changed):
    # A negative penalty was read as none, a list by its first number, and what cannot
    # be read ended in a TypeError of the reader.
    X, y = data()
    y = y > 0 if name == "LogisticRegression" else y
    model = getattr(library, name)(**fitted).fit(X, y).set_params(**changed)
    found = certus.certify(model, X, y)
    assert found.claims[0].strength is Strength.REFUSED
    assert found.met is not True


@pytest.mark.parametrize("library", [svm, our_svm])
def test_intercept_scaling_of_zero(library):
    # A constant column of zero has no intercept; one was judged as if it were given.
    X, y = data()
    model = library.LinearSVC(C=0.1).fit(X, y > 0)
    model.set_params(intercept_scaling=0.0)
    with pytest.raises(ValueError, match="intercept_scaling"):
        certus.certify(model, X, y > 0)


@pytest.mark.parametrize(
    "changed", [{"loss": "x"}, {"penalty": None}, {"penalty": "x"}, {"C": -1.0}]
)
def test_names_of_neither_a_loss_nor_a_penalty_are_refused(changed):
    # Any other name was judged as the default one.
    X, y = data()
    model = svm.LinearSVC().fit(X, y > 0).set_params(**changed)
    assert certus.certify(model, X, y > 0).claims[0].strength is Strength.REFUSED


def test_an_attribute_does_not_replace_a_parameter():
    # Only searches choose; elsewhere ``alpha_`` would hide the alpha that is printed.
    X, y = data()
    model = ours.Lasso(alpha=0.5).fit(X, y).set_params(alpha=0.1)
    model.alpha_ = 0.5
    assert certus.certify(model, X, y).met is not True
    model = ours.Ridge(alpha=500.0).fit(X, y).set_params(alpha=1.0)
    model.alpha_ = 500.0
    assert certus.certify(model, X, y).met is not True


@pytest.mark.parametrize("kind", [ours.LassoCV, theirs.LassoCV, ours.ElasticNetCV])
@pytest.mark.parametrize("bad", [np.nan, None, "much", True, [0.1, 0.2]])
def test_a_choice_that_is_not_a_number_is_refused(kind, bad):
    # None was judged as if there were no penalty; a word gave NumPy's own error.
    X, y = data()
    model = kind().fit(X, y)
    model.alpha_ = bad
    claim = certus.certify(model, X, y).claims[0]
    assert claim.strength is Strength.REFUSED
    assert "not a number" in claim.detail or "must be a single number" in claim.detail


def test_a_method_set_on_the_object():
    # As with a subclass: what is proved of coefficients says nothing of its answers.
    X, y = data()
    model = theirs.Ridge().fit(X, y)
    model.predict = lambda X: np.zeros(len(X))
    assert certus.certify(model, X, y).claims[0].strength is Strength.REFUSED


@pytest.mark.parametrize("name", ["coef_", "intercept_", "dual_coef_"])
def test_attributes_that_are_gone(name):
    X, y = data()
    machine = name == "dual_coef_"
    model = svm.SVR().fit(X, y) if machine else ours.Lasso().fit(X, y)
    broken = copy.copy(model)
    delattr(broken, name)
    with pytest.raises(ValueError, match=f"has no {name}"):
        certus.certify(broken, X, y)


def test_an_intercept_of_another_size():
    X, y = data()
    model = theirs.LinearRegression().fit(X, np.column_stack([y, -y]))
    model.intercept_ = np.zeros(3)
    with pytest.raises(ValueError, match="intercept_ has 3 values"):
        certus.certify(model, X, np.column_stack([y, -y]))


def test_a_machine_without_its_intercepts():
    X, y = data()
    model = svm.SVR().fit(X, y)
    model.intercept_ = np.zeros(0)
    with pytest.raises(ValueError, match="intercept_ has 0 values"):
        certus.certify(model, X, y)
