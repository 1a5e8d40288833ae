"""Standard errors, test statistics and intervals, where the theory behind them holds.

The inverse Fisher information at the maximum of the likelihood is the covariance; see
``certus.linear_model.likelihood``. Weights are frequencies: a weight of two is two
rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import special
from scipy.linalg import solve_triangular
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array

from certus._core.rows import known_codes, numeric_targets, row_weights
from certus._solvers.losses import constant_loss
from certus.base import Estimator, check_number
from certus.linear_model.families import (
    check_range,
    gamma_likelihood,
    mean_of,
    saturated,
    variance_of,
)
from certus.linear_model.likelihood import (
    Basis,
    FamilyLikelihood,
    SoftmaxLikelihood,
    least_squares,
    maximise,
)
from certus.linear_model.summary import Summary, count, refuse
from certus.objectives import Absolute, Binomial, Exponential, Loss, Squared, Tweedie
from certus.typing import Array, ArrayLike


def least_squares_summary(
    model: Estimator,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
) -> Summary:
    """Standard errors, t tests and intervals of an unpenalised least-squares fit.

    Parameters
    ----------
    model : estimator
        Fitted by least squares; has ``coef_`` and ``intercept_``.
    X, y : array-like
        The rows it was fitted on.
    sample_weight : array-like of shape (n_samples,), optional
        Row weights. They are frequencies: a weight of two is two rows.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The level of
        the intervals is 1 − delta.

    Returns
    -------
    Summary
        With σ² = RSS/(n − p) and Student's t on n − p degrees of freedom. Where the
        theory does not hold, ``SummaryRefused`` is raised with the reason.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> X, y = load_diabetes(return_X_y=True, scaled=False)
    >>> found = least_squares_summary(LinearRegression().fit(X, y), X, y)
    >>> found.names[:2], found.standard_errors[:2].round(3).tolist()
    (('(intercept)', 'x0'), [67.455, 0.217])
    """
    _check(model, delta)
    kind = type(model).__name__
    level = getattr(model, "alpha_", getattr(model, "alpha", 0.0))
    if np.any(np.asarray(level, dtype=float) != 0):
        _refuse_penalty(kind, f"alpha={level}", "LinearRegression")
    if getattr(model, "positive", False):
        refuse(f"{kind}(positive=True) is constrained. Fit it with positive=False.")
    X, s = _prepare(model, X, sample_weight)
    y = numeric_targets(y, len(s))
    start = _raw(model)
    if start.shape[1] > 1 or y.size != len(s):
        refuse(
            "A summary needs a single target, but this model has several. Fit one "
            "model per column of y."
        )
    rows, y, s = _used(X, y.ravel(), s)
    free, total = bool(getattr(model, "fit_intercept", True)), float(s.sum())
    p = X.shape[1] + free
    _check_size(p, total, sample_weight)
    basis = Basis.of(rows, s, free, _names(model, X.shape[1]))
    unit = float(np.abs(y).max()) or 1.0  # so that squares neither over- nor underflow
    theta = basis.coordinates(start / unit)
    theta, excess, factor, rss = least_squares(basis, y / unit, s, theta)
    if rss <= 1e-24 * total:
        refuse(
            "The residuals are zero, so there are no standard errors. Check whether "
            "a column of X contains the target."
        )
    variance = rss / (total - p)
    rounding = np.finfo(np.result_type(model.coef_, np.float32)).eps
    _check_rows(excess, max(0.01 * p * variance, rounding * total))
    errors = unit * np.sqrt(variance) * _errors(basis, factor, 1)
    top = -0.5 * total * (np.log(2 * np.pi * rss / total) + 1 + 2 * np.log(unit))
    notes = _weight_notes(sample_weight, s)
    fit = Likely(top, rss * unit * unit)
    return _table(model, basis, start, unit * theta, errors, fit, total, delta, notes)


def logistic_summary(
    model: Estimator,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
) -> Summary:
    """Standard errors, z tests and intervals of an unpenalised logistic regression.

    Parameters
    ----------
    model : estimator
        Fitted with ``C=inf``; has ``coef_``, ``intercept_`` and ``classes_``.
    X, y, sample_weight, delta : array-like, float
        As in :func:`least_squares_summary`.

    Returns
    -------
    Summary
        From the Fisher information at the maximum of the likelihood. With three
        classes or more, each against the first.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression(C=np.inf, solver="newton-cholesky")
    >>> found = logistic_summary(model.fit(X[:, :2], y), X[:, :2], y)
    >>> found.coef.round(3).tolist(), found.standard_errors.round(3).tolist()
    ([19.849, -1.057, -0.218], [1.774, 0.101, 0.037])
    """
    _check(model, delta)
    _check_unpenalised(model)
    X, s = _prepare(model, X, sample_weight)
    if np.shape(y)[:1] != s.shape:
        raise ValueError(f"y has shape {np.shape(y)} and X has {len(s)} rows.")
    classes = np.asarray(model.classes_)
    codes = known_codes(y, classes)
    rows, codes, s = _used(X, codes, s)
    present = np.bincount(codes, minlength=len(classes)) > 0
    if not present.all():
        refuse(
            f"Class {classes[~present][0]} has no rows here, so its coefficients "
            "have no estimate. Pass the rows the model was fitted on."
        )
    start, k = _raw(model), len(classes) - 1
    if start.shape[1] > 1:  # softmax scores are equal up to a shift: fix the first at 0
        start = start[:, 1:] - start[:, :1]
    free, total = bool(getattr(model, "fit_intercept", True)), float(s.sum())
    _check_size(k * (X.shape[1] + free), total, sample_weight)
    basis = Basis.of(rows, s, free, _names(model, X.shape[1]))
    likelihood = SoftmaxLikelihood(basis, codes, s, k)
    top, before = maximise(likelihood, basis.coordinates(start), rows)
    sizes = np.bincount(codes, weights=s)
    entropy = -float(sizes @ np.log(sizes / total))
    _check_rows(before - top.loss, max(0.01 * top.theta.size, 1e-4 * entropy))
    notes = _weight_notes(sample_weight, s)
    if k > 1:
        notes = (f"Each class is compared with class {classes[0]}.", *notes)
    labels = tuple(str(c) for c in classes[1:]) if k > 1 else ()
    errors = _errors(basis, np.linalg.cholesky(top.H), k)
    fit = Likely(-top.loss, 2 * top.loss)
    return _table(
        model, basis, start, top.theta, errors, fit, total, delta, notes, labels
    )


def family_summary(
    model: Estimator,
    loss: Loss,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
) -> Summary:
    """Standard errors, tests and intervals of an unpenalised generalised linear model.

    Parameters
    ----------
    model : estimator
        Fitted with ``alpha=0``; has ``coef_`` and ``intercept_``.
    loss : term
        The family: ``Squared``, ``Poisson``, ``Binomial`` or ``Exponential``.
    X, y, sample_weight, delta : array-like, float
        As in :func:`least_squares_summary`.

    Returns
    -------
    Summary
        Gaussian: as for least squares. Else z tests from the Fisher information, with
        the family's own variance; a note says so where the residuals' is another.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import PoissonRegressor
    >>> from certus.objectives import Poisson
    >>> X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([1, 3, 6, 10])
    >>> model = PoissonRegressor(alpha=0, tol=1e-10).fit(X, y)
    >>> found = family_summary(model, Poisson(), X, y)  # counts of 4 and 16
    >>> np.square(found.standard_errors).round(4).tolist()  # 1/4, and 1/4 + 1/16
    [0.25, 0.3125]
    """
    _check(model, delta)
    kind = type(model).__name__
    if model.alpha != 0:
        _refuse_penalty(kind, f"alpha={model.alpha}", "it with alpha=0")
    if isinstance(loss, Squared):
        return least_squares_summary(model, X, y, sample_weight, delta)
    if isinstance(loss, Absolute):
        refuse(
            "The likelihood of the Laplace family has a kink at every row, so it has "
            "no curvature and no standard errors. Bootstrap the rows."
        )
    X, s = _prepare(model, X, sample_weight)
    y = numeric_targets(y, len(s)).ravel()
    check_range(loss, y)
    rows, y, s = _used(X, y, s)
    free, total = bool(model.fit_intercept), float(s.sum())
    p = X.shape[1] + free
    _check_size(p, total, sample_weight)
    basis, start = Basis.of(rows, s, free, _names(model, X.shape[1])), _raw(model)
    likelihood = FamilyLikelihood(basis, loss, y, s)
    top, before = maximise(likelihood, basis.coordinates(start), rows)
    null = total * constant_loss(loss, y, s, True)
    _check_rows(before - top.loss, max(0.01 * p, 1e-4 * null))
    errors = _errors(basis, np.linalg.cholesky(likelihood.information(top)), 1)
    z = likelihood.scores(top.theta)
    ratio = _spread(loss, y, z, s, total - p)
    if _has_dispersion(model, loss):
        errors = np.sqrt(ratio) * errors
        level = float(s @ gamma_likelihood(y, z, ratio))
        if isinstance(loss, Tweedie):
            level = float("nan")
        notes: tuple[str, ...] = (f"The estimated dispersion is {ratio:.4g}.",)
    else:
        level = float(s @ saturated(loss, y)) - top.loss
        notes = _spread_notes(loss, ratio)
    notes += _weight_notes(sample_weight, s)
    fit = Likely(level, 2 * top.loss)
    return _table(model, basis, start, top.theta, errors, fit, total, delta, notes, ())


def _has_dispersion(model: Estimator, loss: Loss) -> bool:
    """Whether the variance is a multiple of the family's, to be estimated."""
    amounts = type(model).__name__ in ("GammaRegressor", "TweedieRegressor")
    return isinstance(loss, Tweedie) or (amounts and isinstance(loss, Exponential))


def _spread(loss: Loss, y: Array, z: Array, s: Array, df: float) -> float:
    """Pearson's estimate of the variance, in units of the family's."""
    return float(s @ (np.square(y - mean_of(loss, z)) / variance_of(loss, z))) / df


def _spread_notes(loss: Loss, ratio: float) -> tuple[str, ...]:
    """Notes on the family's variance, if that of the residuals differs much."""
    if isinstance(loss, Binomial) and loss.trials == 1:  # zeros and ones show none
        return ()
    if 0.5 < ratio < 2:
        return ()
    return (
        f"The residuals' variance is {ratio:.3g} times the variance of the family. "
        f"Standard errors that allow for this are {np.sqrt(ratio):.3g} times these.",
    )


class Likely(NamedTuple):
    """The log-likelihood at its maximum, and the deviance."""

    log_likelihood: float
    deviance: float


def _table(
    model: Estimator,
    basis: Basis,
    start: Array,
    theta: Array,
    errors: Array,
    fit: Likely,
    total: float,
    delta: float,
    notes: tuple[str, ...],
    classes: tuple[str, ...] | None = None,
) -> Summary:
    """Tests and intervals; Student's t unless classes are given."""
    coef = (basis.raw @ theta).T.ravel()
    df, kind = total - coef.size, "t" if classes is None else "z"
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        statistic = coef / errors
    if not np.all(np.isfinite(statistic)):
        refuse(
            "The standard errors are too large or too small for float64. Standardise "
            "the columns and fit again."
        )
    away = np.abs((start[not basis.intercept :].T.ravel() - coef) / errors).max()
    if away > 0.01:
        drift = (
            "These are the maximum-likelihood coefficients; the model's own "
            "differ by up to "
        )
        notes = (*notes, f"{drift}{away:.2g} standard errors.")
    far = -np.abs(statistic)
    if kind == "t":
        p_values, width = 2 * special.stdtr(df, far), -special.stdtrit(df, delta / 2)
    else:
        p_values, width = 2 * special.ndtr(far), -special.ndtri(delta / 2)
    p = basis.raw.shape[0]
    return Summary(
        model=type(model).__name__,
        names=basis.names * theta.shape[1],
        classes=tuple(c for c in classes or () for _ in range(p)),
        coef=coef,
        standard_errors=errors,
        statistic=statistic,
        p_values=p_values,
        conf_int=np.stack([coef - width * errors, coef + width * errors], axis=1),
        kind=kind,
        log_likelihood=float(fit.log_likelihood),
        deviance=float(fit.deviance),
        n_samples=total,
        df_resid=df,
        delta=float(delta),
        notes=notes,
    )


def _errors(basis: Basis, factor: Array, k: int) -> Array:
    """Roots of the diagonal of P H⁻¹ Pᵀ for H = LLᵀ, without squaring tiny scales."""
    P = np.kron(np.eye(k), basis.raw)
    W = solve_triangular(factor, P.T, lower=True)
    largest = np.abs(W).max(axis=0)
    return np.asarray(largest * np.linalg.norm(W / largest, axis=0))


# -- the data ---------------------------------------------------------------------


def _names(model: Estimator, d: int) -> tuple[str, ...]:
    given = getattr(model, "feature_names_in_", None)
    return tuple(f"x{j}" for j in range(d)) if given is None else tuple(map(str, given))


def _raw(model: Estimator) -> Array:
    """(intercept, coefficients) as columns: shape (d + 1, number of scores)."""
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    top = np.broadcast_to(np.ravel(model.intercept_).astype(np.float64), coef.shape[:1])
    both = np.vstack([top, coef.T])
    if not np.all(np.isfinite(both)):
        raise ValueError("The model's coefficients are not finite. Fit it again.")
    return both


def _prepare(
    model: Estimator, X: Any, sample_weight: ArrayLike | None
) -> tuple[Any, Array]:
    """Validated X and frequencies."""
    given = getattr(model, "feature_names_in_", None)
    columns = getattr(X, "columns", None)
    if given is not None and columns is not None and list(columns) != list(given):
        raise ValueError(
            "The columns of X are not those the model was fitted on. Pass the same "
            "columns in the same order."
        )
    kinds = [np.float64, np.float32]
    X = check_array(X, accept_sparse="csr", dtype=kinds, input_name="X")
    d = np.shape(model.coef_)[-1]
    if X.shape[1] != d:
        raise ValueError(f"X has {X.shape[1]} columns, but the model expects {d}.")
    return X, row_weights(sample_weight, X.shape[0])


def _used(X: Any, y: Array, s: Array) -> tuple[Any, Array, Array]:
    """Rows whose frequency is above zero."""
    used = s > 0
    return (X, y, s) if used.all() else (X[used], y[used], s[used])


def _weight_notes(sample_weight: ArrayLike | None, s: Array) -> tuple[str, ...]:
    if sample_weight is None:
        return ()
    note = "Weights count as frequencies: a weight of two means two rows."
    if np.all(s == np.round(s)):
        return (note,)
    return (
        note
        + (
            " Some are not whole numbers, so the standard errors depend on their scale."
        ),
    )


# -- refusals ---------------------------------------------------------------------


def _check(model: Estimator, delta: float) -> None:
    if not hasattr(model, "coef_"):
        raise NotFittedError(f"{type(model).__name__} is not fitted. Call fit first.")
    check_number("delta", delta, 0.0, 1.0, open_low=True)
    if delta >= 1:
        raise ValueError(f"delta must be below 1, got {delta!r}.")


def _check_unpenalised(model: Estimator) -> None:
    kind = type(model).__name__
    C = getattr(model, "C_", getattr(model, "C", None))
    if C is None:
        raise TypeError(f"{kind} has no C; pass a fitted LogisticRegression.")
    free = np.all(np.isinf(np.asarray(C, dtype=float)))
    if not free and getattr(model, "penalty", "") is not None:
        _refuse_penalty(kind, f"C={C}", f"{kind}(C=inf)")
    if getattr(model, "class_weight", None) is not None:
        refuse(
            "class_weight changes the likelihood, so its curvature gives no standard "
            "errors. Fit with class_weight=None."
        )


def _refuse_penalty(kind: str, setting: str, instead: str) -> NoReturn:
    refuse(
        f"{kind}({setting}) is penalised: its coefficients are shrunk, so the usual "
        f"standard errors do not hold. Fit {instead}, or bootstrap the rows."
    )


def _check_size(n_params: int, total: float, sample_weight: ArrayLike | None) -> None:
    if n_params >= total:
        rows = "rows" if sample_weight is None else "rows (the weights' sum)"
        refuse(
            f"{n_params} coefficients on {count(total)} {rows} leave no degrees of "
            "freedom for standard errors. Use more rows or fewer columns."
        )


def _check_rows(above: float, allowed: float) -> None:
    """``above`` is the excess of the model's loss over the minimum on these rows."""
    if above > allowed:
        refuse(
            "These are not the rows (or weights) the model was fitted on, or its fit "
            "is not solved: other coefficients are far better. Fit it on these rows."
        )
