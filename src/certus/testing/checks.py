"""Named checks for certified estimators: what must hold for each of them.

In the manner of scikit-learn's estimator checks: :func:`checks` yields small functions
that take an unfitted estimator. They ask whether the certificate is there and right,
whether it notices a changed coefficient or other data, and whether the fit respects the
symmetries of its objective (order of rows, repeated rows, storage of X).
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

import certus
from certus.certificate import Certificate, Status, Strength
from certus.typing import Array

Check = Callable[[Any], None]

__all__ = ["Check", "assert_certified", "checks", "example"]


def assert_certified(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    level: str = "quick",
    sensitive: Any = None,
) -> Certificate:
    """Fail unless a fitted model's certificate, recomputed on these data, holds.

    For your own test suite: one line after a fit says that the model is solved to its
    tolerance, whoever fitted it. Models that are promised nothing (networks, whose
    status is "undecided") fail, too: test those by their score.

    Parameters
    ----------
    model, X, y, sample_weight, level, sensitive
        As in :func:`certus.certify`.

    Returns
    -------
    Certificate
        For further questions, for example about its value.

    Raises
    ------
    AssertionError
        With the text of the certificate, which says what is missing and how to fix it.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> from certus.testing import assert_certified
    >>> X, y = load_diabetes(return_X_y=True)
    >>> assert_certified(Lasso(alpha=0.1, tol=1e-8).fit(X, y), X, y).met
    True
    >>> assert_certified(Lasso(alpha=0.1, tol=0.5).fit(X, y), X, y)
    Traceback (most recent call last):
    AssertionError: Lasso(alpha=0.1, tol=0.5) is not certified on these data...
    """
    found = certus.certify(model, X, y, sample_weight, level=level, sensitive=sensitive)
    if not found.met or any(claim.met is False for claim in found.claims):
        raise AssertionError(f"{model} is not certified on these data.\n{found}")
    return found


def example(estimator: Any, *, seed: int = 0, n: int = 60) -> tuple[Array, Array]:
    """Data an estimator can fit: three classes, counts, or a noisy linear target.

    Examples
    --------
    >>> from certus.linear_model import Ridge
    >>> from certus.testing.checks import example
    >>> X, y = example(Ridge())
    >>> X.shape, y.shape
    ((60, 4), (60,))
    """
    rng = np.random.default_rng(seed)
    if type(estimator).__module__.startswith("certus.memory"):  # few, far apart
        return np.where(rng.random((3, 64)) < 0.5, -1.0, 1.0), np.zeros(3)
    X = rng.normal(0.2, 1.0, (n, 4))
    if get_tags(estimator).input_tags.positive_only:
        X = np.abs(X)
    # A generative model that learns a distribution for each class takes labels too.
    if is_classifier(estimator) or getattr(estimator, "conditional", False):
        tags = get_tags(estimator).classifier_tags
        k = 3 if tags is None or tags.multi_class else 2
        y = np.argmax(X[:, :k] + rng.gumbel(size=(n, k)), axis=1)
        y[:k] = range(k)
        return X, y
    if get_tags(estimator).target_tags.positive_only:
        return X, 1.0 + rng.poisson(np.exp(X @ [0.5, -1.0, 0.0, 0.25] + 1))
    y = X @ [1.0, -2.0, 0.0, 0.5] + 0.7 + rng.normal(size=n)
    if not get_tags(estimator).target_tags.single_output:
        y = np.column_stack([y, X[:, 3] + rng.normal(size=n)])
    return X, y


def checks() -> Iterator[Check]:
    """Yield every check; each raises ``AssertionError`` with a sentence.

    Examples
    --------
    >>> from certus.linear_model import Ridge
    >>> from certus.testing.checks import checks
    >>> for check in checks():
    ...     check(Ridge())
    """
    yield check_certificate_is_met
    yield check_certificate_can_be_repeated
    yield check_changed_coefficient_is_refuted
    yield check_swapped_data_are_reported
    yield check_not_a_number_is_not_met
    yield check_copies_keep_the_certificate
    yield check_saved_model_is_stated_not_rechecked
    yield check_order_of_rows
    yield check_integer_weight_is_repetition
    yield check_zero_weight_is_removal
    yield check_stacked_rows
    yield check_order_of_columns
    yield check_zero_column
    yield check_single_precision
    yield check_sparse_equals_dense
    yield check_memory_order
    yield check_data_are_left_alone


def takes_weights(estimator: Any) -> bool:
    """Whether ``fit`` has a parameter ``sample_weight``."""
    return has_fit_parameter(estimator, "sample_weight")


# -- the certificate --------------------------------------------------------------


def _fit(estimator: Any, X: Any, y: Any, **options: Any) -> Any:
    return clone(estimator).fit(X, y, **options)


def _change(model: Any, how: Callable[[float], float]) -> None:
    """Change one number among those learned: coefficients, or the rows kept."""
    learned = ("coef_", "dual_coef_", "_fit_X", "label_distributions_", "shapes_")
    name = next(name for name in learned if name in vars(model))
    if name == "shapes_":  # a list of arrays, one for each term
        values = [shape.copy() for shape in model.shapes_]
        values[0].flat[-1] = how(values[0].flat[-1])
    else:
        values = getattr(model, name).copy()
        values.flat[0] = how(values.flat[0])
    setattr(model, name, values)


def check_certificate_is_met(estimator: Any) -> None:
    """``fit`` leaves a certificate of its own data that meets its target."""
    X, y = example(estimator)
    model = _fit(estimator, X, y)
    found = model.certificate_
    assert isinstance(found, Certificate), "fit must leave certificate_."
    primary = found[found.primary]
    free = primary.strength is Strength.MEASURED or primary.target is None
    fine = (Status.SOLVED, Status.UNDECIDED) if free else (Status.SOLVED,)
    assert found.status in fine, f"status is {found.status}."
    assert found.met is not False, f"not met: {found}"
    assert found.origin == "fit" and found.evidence is not None
    assert (found.n_samples, found.n_features) == X.shape
    assert found.model == type(estimator).__name__
    assert all(len(line) <= 80 for line in str(found).splitlines())


def check_certificate_can_be_repeated(estimator: Any) -> None:
    """``certify`` finds the same numbers on the same data, at both levels."""
    X, y = example(estimator)
    model = _fit(estimator, X, y)
    stated = model.certificate_
    for level in ("quick", "full"):
        found = certus.certify(model, X, y, level=level)
        assert found.origin == "certify" and found.level == level
        assert found.status is stated.status, f"{found.status} at level {level}."
        # What is drawn is drawn more often at level full.
        proved = stated[stated.primary].strength is Strength.PROVED
        if proved or level == stated.level:
            assert found.value == stated.value, "the check gives a different number."


def check_changed_coefficient_is_refuted(estimator: Any) -> None:
    """One coefficient off by a hundredth: the statement is refuted."""
    X, y = example(estimator)
    model = _fit(estimator, X, y)
    stated = model.certificate_[model.certificate_.primary]
    _change(model, lambda value: value + 0.01)
    found = certus.certify(model, X, y)
    claim = found[found.primary]
    value = claim.value or 0.0
    assert value > 1e-6, f"a change of 0.01 left a value of {value}."
    if stated.strength is Strength.PROVED:
        assert found.status is Status.REFUTED, f"status is {found.status}."
        assert found.met is False


def check_swapped_data_are_reported(estimator: Any) -> None:
    """Other data: unmet, with a note that they are not those of the fit."""
    X, y = example(estimator)
    model = _fit(estimator, X, y)
    found = certus.certify(model, *example(estimator, seed=1))
    claim = found[found.primary]
    if claim.strength is Strength.PROVED:
        assert found.met is False, "other data meet the target."
        assert any("not those of the fit" in note for note in claim.assumptions)
    assert found.status is not Status.SOLVED, f"status is {found.status}."
    assert found.status is not Status.REFUTED, "other data refute nothing."


def check_not_a_number_is_not_met(estimator: Any) -> None:
    """A NaN or infinite coefficient is never certified."""
    X, y = example(estimator)
    for bad in (np.nan, np.inf):
        model = _fit(estimator, X, y)
        _change(model, lambda _, bad=bad: bad)  # type: ignore[misc]
        found = certus.certify(model, X, y)
        assert found.met is False and found.status is not Status.SOLVED


def check_copies_keep_the_certificate(estimator: Any) -> None:
    """Copies keep the certificate and the evidence behind it."""
    X, y = example(estimator)
    model = _fit(estimator, X, y)
    for other in (copy.copy(model), copy.deepcopy(model)):
        assert other.certificate_.to_dict() == model.certificate_.to_dict()
        assert certus.certify(other, X, y).status is model.certificate_.status


def check_saved_model_is_stated_not_rechecked(estimator: Any) -> None:
    """A model read from a file says so, and can be checked again."""
    X, y = example(estimator)
    model = _fit(estimator, X, y)
    with tempfile.TemporaryDirectory() as folder:
        other = certus.load(model.save(Path(folder) / "model.certus"))
    assert other.certificate_.origin == "file"
    assert "stated, not rechecked" in str(other.certificate_).replace("\n    ", " ")
    assert other.certificate_.claims == model.certificate_.claims
    assert np.array_equal(other.predict(X), model.predict(X))
    assert certus.certify(other, X, y).value == model.certificate_.value


# -- symmetries of the objective --------------------------------------------------


def _same(a: Any, b: Any, X: Array, digits: float = 1e-5) -> None:
    """Equal predictions (probabilities, scores) to rounding and tolerance."""
    for name in ("predict_proba", "decision_function", "predict"):
        if hasattr(a, name):
            found, expected = getattr(a, name)(X), getattr(b, name)(X)
            if name == "decision_function" and hasattr(a, "predict_proba"):
                continue  # a constant added to every score means the same
            np.testing.assert_allclose(found, expected, rtol=digits, atol=digits)
            return


def _agree(a: Array, b: Array, digits: float = 1e-4) -> bool:
    """Equal labels, or numbers equal to some digits."""
    if a.dtype.kind == "f":
        return bool(np.allclose(a, b, rtol=digits, atol=digits))
    return bool(np.array_equal(a, b))


def _chooses(estimator: Any) -> bool:
    """Whether folds or the order of rows matter, so that row symmetries cannot hold."""
    return hasattr(estimator, "cv") or hasattr(estimator, "shuffle")


def check_order_of_rows(estimator: Any) -> None:
    """Permuting the rows changes nothing."""
    if _chooses(estimator):
        return
    X, y = example(estimator)
    order = np.random.default_rng(1).permutation(len(y))
    _same(_fit(estimator, X[order], y[order]), _fit(estimator, X, y), X)


def check_integer_weight_is_repetition(estimator: Any) -> None:
    """A weight of three equals three copies of the row."""
    if _chooses(estimator) or not takes_weights(estimator):
        return
    X, y = example(estimator)
    s = np.random.default_rng(2).integers(1, 4, len(y))
    repeated = _fit(estimator, np.repeat(X, s, axis=0), np.repeat(y, s, axis=0))
    weighted = _fit(estimator, X, y, sample_weight=s)
    _same(weighted, repeated, X)
    value, other = weighted.certificate_, repeated.certificate_
    assert value[value.primary].objective == other[other.primary].objective


def check_zero_weight_is_removal(estimator: Any) -> None:
    """A row of weight zero might as well be absent, whatever it holds."""
    if _chooses(estimator) or not takes_weights(estimator):
        return
    X, y = example(estimator)
    s = np.ones(len(y))
    s[::5] = 0.0
    wild = X.copy()
    wild[::5] *= 1e3
    used = s > 0
    _same(
        _fit(estimator, wild, y, sample_weight=s), _fit(estimator, X[used], y[used]), X
    )


def check_stacked_rows(estimator: Any) -> None:
    """Two copies of the data weigh as much as weights of two."""
    if _chooses(estimator) or not takes_weights(estimator):
        return
    X, y = example(estimator)
    twice = _fit(estimator, np.vstack([X, X]), np.concatenate([y, y]))
    _same(twice, _fit(estimator, X, y, sample_weight=np.full(len(y), 2.0)), X)


def check_order_of_columns(estimator: Any) -> None:
    """Permuting the columns permutes the coefficients, if any, and nothing else."""
    X, y = example(estimator)
    order = np.array([2, 0, 3, 1])
    moved, plain = _fit(estimator, X[:, order], y), _fit(estimator, X, y)
    if not hasattr(plain, "coef_"):
        assert _agree(moved.predict(X[:, order]), plain.predict(X))
        return
    np.testing.assert_allclose(
        moved.coef_, np.take(plain.coef_, order, axis=-1), rtol=1e-4, atol=1e-4
    )


def check_zero_column(estimator: Any) -> None:
    """A column of zeros gets a coefficient of zero and changes nothing else."""
    X, y = example(estimator)
    wide = np.column_stack([X, np.zeros(len(y))])
    padded, plain = _fit(estimator, wide, y), _fit(estimator, X, y)
    if not hasattr(plain, "coef_"):
        # The width of a kernel, and levels that are chosen, depend on all columns.
        chosen = hasattr(estimator, "kernel") or hasattr(plain, "smoothing_")
        assert chosen or _agree(padded.predict(wide), plain.predict(X))
        return
    assert np.abs(padded.coef_[..., -1]).max() <= 1e-9
    np.testing.assert_allclose(
        padded.coef_[..., :-1], plain.coef_, rtol=1e-4, atol=1e-4
    )


# -- storage ----------------------------------------------------------------------


def check_single_precision(estimator: Any) -> None:
    """float32 data give float32 attributes, near those of float64."""
    X, y = example(estimator)
    with warnings.catch_warnings():
        # A tolerance below the precision of the data may be out of reach.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = _fit(estimator, X.astype(np.float32), y)
    plain = _fit(estimator, X, y)
    if hasattr(plain, "coef_"):
        assert model.coef_.dtype == np.float32, f"coef_ is {model.coef_.dtype}."
        assert np.asarray(model.intercept_).dtype == np.float32
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3, atol=1e-3)
    else:
        assert _agree(model.predict(X), plain.predict(X), 1e-3)
    found = model.certificate_
    claim, value = found[found.primary], found.value
    assert value is not None
    if claim.strength in (Strength.STATISTICAL, Strength.MEASURED):
        # A risk or a loss, not a gap.
        assert abs(value - plain.certificate_.value) < 1e-3, f"the value is {value}."
        return
    # A count of mistakes is held to its own bound.
    most = claim.target if claim.name == "mistake_bound" else 1e-5
    assert value < most, f"the value is {value}."


def check_sparse_equals_dense(estimator: Any) -> None:
    """CSR and CSC, matrix and array, give what dense data give."""
    if not get_tags(estimator).input_tags.sparse:
        return
    X, y = example(estimator)
    X[np.random.default_rng(3).uniform(size=X.shape) < 0.4] = 0.0
    plain = _fit(estimator, X, y)
    for form in ("csr_matrix", "csc_matrix", "csr_array", "csc_array"):
        S = getattr(sparse, form)(X)
        model = _fit(estimator, S, y)
        assert model.certificate_.met is not False, f"{form} is not solved."
        if hasattr(plain, "coef_"):
            np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-4, atol=1e-4)
        _same(model, plain, X)
        found = certus.certify(model, S, y)
        assert found.status is model.certificate_.status


def check_memory_order(estimator: Any) -> None:
    """C, Fortran and strided storage give the same model."""
    X, y = example(estimator)
    plain = _fit(estimator, X, y)
    spread = np.repeat(X, 2, axis=0)[::2]
    for other in (np.asfortranarray(X), spread, X[::-1][::-1]):
        _same(_fit(estimator, other, y), plain, X)


def check_data_are_left_alone(estimator: Any) -> None:
    """X, y and weights are read, never written; read-only data are fine."""
    X, y = example(estimator)
    s = np.linspace(0.5, 2.0, len(y))
    weights: dict[str, Any] = {"sample_weight": s} if takes_weights(estimator) else {}
    before = (X.copy(), y.copy(), s.copy())
    for array in (X, y, s):
        array.flags.writeable = False
    model = _fit(estimator, X, y, **weights)
    certus.certify(model, X, y, **weights)
    for array, kept in zip((X, y, s), before):
        assert np.array_equal(array, kept)
