"""Standard errors, test statistics and intervals, where the theory behind them holds.

Both likelihoods, Gaussian and softmax, are maximised from the model's coefficients by
Newton steps on a copy; the inverse Fisher information there is the covariance. All is
done on columns Q = [1, (X − m)/c]R⁻¹, orthonormal under the row weights, so that the
scaling of the data does not matter. Weights are frequencies: a weight of two is two
rows. That a logistic maximum exists follows from the size of the last Newton step
(Bach, 2010, "Self-concordant analysis for logistic regression", proposition 2).
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import sparse, special
from scipy.linalg import cho_solve, qr, solve_triangular
from sklearn.exceptions import NotFittedError

from certus.base import check_number
from certus.terms import Logistic, Loss, Softmax
from certus.verify import data
from certus.verify.separation import separates, separating_direction

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 20  # elements of Q held at a time
_DECREMENT = 1e-12  # gᵀH⁻¹g in total log-likelihood at which polishing ends
_PROGRAMME = 1 << 20  # elements of the largest linear programme tried
_WIDTH = 80


class SummaryRefused(ValueError):
    """The theory behind standard errors does not hold for this model and data."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Coefficients with standard errors, tests and intervals; prints as a table.

    Parameters
    ----------
    model : str
        Class of the model.
    names : tuple of str
        One per row of the table: "(intercept)", then the features; repeated for every
        class but the first where there are three or more.
    classes : tuple of str
        Class each row speaks of; empty for fewer than three classes.
    coef, standard_errors, statistic, p_values : ndarray of shape (n_rows,)
        Estimates, and the two-sided test that each is zero.
    conf_int : ndarray of shape (n_rows, 2)
        Intervals of level 1 − ``alpha``.
    kind : {"t", "z"}
        Distribution of ``statistic``.
    log_likelihood : float
        At the maximum, summed over rows.
    n_samples, df_resid : float
        Rows (sum of the frequencies), and rows less coefficients.
    alpha : float
        One minus the level of the intervals.
    notes : tuple of str
        What the numbers rest on.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear import LinearRegression
    >>> X, y = load_diabetes(return_X_y=True, scaled=False)
    >>> print(LinearRegression().fit(X[:, 2:4], y).summary(X[:, 2:4], y))
    LinearRegression · 442 rows · 439 degrees of freedom · log-likelihood -2435.74
                               coef    std err        t      p       2.5%      97.5%
    (intercept)              -203.6      22.23   -9.158 <0.001     -247.3     -159.9
    x0                        8.519     0.7047   12.089 <0.001      7.134      9.904
    x1                        1.385     0.2251    6.152 <0.001     0.9423      1.827
    """

    model: str
    names: tuple[str, ...]
    classes: tuple[str, ...]
    coef: Array
    standard_errors: Array
    statistic: Array
    p_values: Array
    conf_int: Array
    kind: str
    log_likelihood: float
    n_samples: float
    df_resid: float
    alpha: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON-ready data: each column a list."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        many = (np.ndarray, tuple)
        return {
            name: np.asarray(v).tolist() if isinstance(v, many) else v
            for name, v in values.items()
        }

    @property
    def _headline(self) -> str:
        return (
            f"{self.model} · {_count(self.n_samples)} rows · {_count(self.df_resid)} "
            f"degrees of freedom · log-likelihood {self.log_likelihood:.2f}"
        )

    @property
    def _heads(self) -> tuple[str, ...]:
        low, high = 50 * self.alpha, 100 - 50 * self.alpha
        return ("coef", "std err", self.kind, "p", f"{low:.4g}%", f"{high:.4g}%")

    def _cells(self, i: int) -> tuple[str, ...]:
        low, high = self.conf_int[i]
        size = abs(self.statistic[i])
        test = f"{self.statistic[i]:{'.3f' if size < 1e3 else '.2g'}}"
        p = "<0.001" if self.p_values[i] < 5e-4 else f"{self.p_values[i]:.3f}"
        coef, error, low, high = (
            f"{v:.4g}" if len(f"{v:.4g}") < 11 else f"{v:.3g}"  # columns stay apart
            for v in (self.coef[i], self.standard_errors[i], low, high)
        )
        return coef, error, test, p, low, high

    def __str__(self) -> str:
        widths = (11, 11, 9, 7, 11, 11)

        def line(name: str, cells: tuple[str, ...]) -> str:
            name = name if len(name) <= 20 else name[:19] + "…"
            return f"{name:<20}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths))

        lines = textwrap.wrap(self._headline, _WIDTH, subsequent_indent="    ")
        lines.append(line("", self._heads))
        for i, name in enumerate(self.names):
            if self.classes and (i == 0 or self.classes[i] != self.classes[i - 1]):
                lines.append(textwrap.shorten(f"class {self.classes[i]}", _WIDTH))
            lines.append(line(name, self._cells(i)))
        for note in self.notes:
            lines += textwrap.wrap(note, _WIDTH, subsequent_indent="  ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str = "td") -> str:
            inner = (f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)
            return f'<tr style="text-align:right">{"".join(inner)}</tr>'

        prefix = [f"class {c}: " for c in self.classes] or [""] * len(self.names)
        body = [
            row((prefix[i] + name, *self._cells(i)))
            for i, name in enumerate(self.names)
        ]
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self.notes)
        return (
            '<div class="certus-summary" style="font-family:system-ui,sans-serif">'
            f"<div><strong>{html.escape(self._headline)}</strong></div>"
            f"<table>{row(('', *self._heads), 'th')}{''.join(body)}</table>"
            f"{notes}</div>"
        )


def _count(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


# -- the two summaries ------------------------------------------------------------


def least_squares_summary(
    model: Any, X: Any, y: Any, sample_weight: Any = None, alpha: float = 0.05
) -> Summary:
    """Standard errors, t tests and intervals of an unpenalised least-squares fit.

    Parameters
    ----------
    model : estimator
        Fitted by least squares; has ``coef_`` and ``intercept_``.
    X, y : array-like
        The rows it was fitted on.
    sample_weight : array-like of shape (n_samples,), optional
        Frequencies: a weight of two is two rows.
    alpha : float, default=0.05
        One minus the level of the intervals.

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
    _check(model, alpha)
    kind = type(model).__name__
    level = getattr(model, "alpha_", getattr(model, "alpha", 0.0))
    if np.any(np.asarray(level, dtype=float) != 0):
        _refuse_penalty(kind, f"alpha={level}", "LinearRegression")
    if getattr(model, "positive", False):
        _refuse(f"{kind}(positive=True) is constrained. Fit it with positive=False.")
    X, s = _prepare(model, X, sample_weight)
    y = data.numbers(y, len(s))
    start = _raw(model)
    if start.shape[1] > 1 or y.size != len(s):
        _refuse(
            "A summary speaks of one target and this model has several. Fit one model "
            "per column of y."
        )
    rows, y, s = _used(X, y.ravel(), s)
    free, total = bool(getattr(model, "fit_intercept", True)), float(s.sum())
    p = X.shape[1] + free
    _check_size(p, total, sample_weight)
    basis = _Basis.of(rows, s, free, _names(model, X.shape[1]))
    unit = float(np.abs(y).max()) or 1.0  # so that squares neither over- nor underflow
    theta = basis.coordinates(start / unit)
    theta, excess, factor, rss = _least_squares(basis, y / unit, s, theta)
    if rss <= 1e-24 * total:
        _refuse(
            "The residuals are zero, so there is no noise to take standard errors "
            "from. Look for a column of X that contains the target."
        )
    variance = rss / (total - p)
    rounding = np.finfo(np.result_type(model.coef_, np.float32)).eps
    _check_rows(excess, max(0.01 * p * variance, rounding * total))
    errors = unit * np.sqrt(variance) * _errors(basis, factor, 1)
    top = -0.5 * total * (np.log(2 * np.pi * rss / total) + 1 + 2 * np.log(unit))
    notes = _weight_notes(sample_weight, s)
    return _table(model, basis, start, unit * theta, errors, top, total, alpha, notes)


def logistic_summary(
    model: Any, X: Any, y: Any, sample_weight: Any = None, alpha: float = 0.05
) -> Summary:
    """Standard errors, z tests and intervals of an unpenalised logistic regression.

    Parameters
    ----------
    model : estimator
        Fitted with ``C=inf``; has ``coef_``, ``intercept_`` and ``classes_``.
    X, y, sample_weight, alpha : array-like, float
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
    _check(model, alpha)
    _check_unpenalised(model)
    X, s = _prepare(model, X, sample_weight)
    if np.shape(y)[:1] != s.shape:
        raise ValueError(f"y has shape {np.shape(y)} and X has {len(s)} rows.")
    classes = np.asarray(model.classes_)
    codes = data.codes(y, classes)
    rows, codes, s = _used(X, codes, s)
    present = np.bincount(codes, minlength=len(classes)) > 0
    if not present.all():
        _refuse(
            f"Class {classes[~present][0]} has no rows here, so its coefficients "
            "have no estimate. Pass the rows the model was fitted on."
        )
    start, k = _raw(model), len(classes) - 1
    if start.shape[1] > 1:  # softmax scores are equal up to a shift: fix the first at 0
        start = start[:, 1:] - start[:, :1]
    free, total = bool(getattr(model, "fit_intercept", True)), float(s.sum())
    _check_size(k * (X.shape[1] + free), total, sample_weight)
    basis = _Basis.of(rows, s, free, _names(model, X.shape[1]))
    likelihood = _Softmax(basis, codes, s, k)
    top, before = _maximise(likelihood, basis.coordinates(start), rows)
    sizes = np.bincount(codes, weights=s)
    entropy = -float(sizes @ np.log(sizes / total))
    _check_rows(before - top.loss, max(0.01 * top.theta.size, 1e-4 * entropy))
    notes = _weight_notes(sample_weight, s)
    if k > 1:
        notes = (f"Each class is set against class {classes[0]}.", *notes)
    labels = tuple(str(c) for c in classes[1:]) if k > 1 else ()
    errors = _errors(basis, np.linalg.cholesky(top.H), k)
    return _table(
        model, basis, start, top.theta, errors, -top.loss, total, alpha, notes, labels
    )


def _table(
    model: Any,
    basis: _Basis,
    start: Array,
    theta: Array,
    errors: Array,
    log_likelihood: float,
    total: float,
    alpha: float,
    notes: tuple[str, ...],
    classes: tuple[str, ...] | None = None,
) -> Summary:
    """Tests and intervals; Student's t unless told of classes."""
    coef = (basis.raw @ theta).T.ravel()
    df, kind = total - coef.size, "t" if classes is None else "z"
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        statistic = coef / errors
    if not np.all(np.isfinite(statistic)):
        _refuse(
            "The standard errors are beyond the range of double precision. Standardise "
            "the columns and fit again."
        )
    away = np.abs((start[not basis.intercept :].T.ravel() - coef) / errors).max()
    if away > 0.01:
        drift = "These are the most likely coefficients; the model's own lie up to "
        notes = (*notes, f"{drift}{away:.2g} standard errors away.")
    far = -np.abs(statistic)
    if kind == "t":
        p_values, width = 2 * special.stdtr(df, far), -special.stdtrit(df, alpha / 2)
    else:
        p_values, width = 2 * special.ndtr(far), -special.ndtri(alpha / 2)
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
        log_likelihood=float(log_likelihood),
        n_samples=total,
        df_resid=df,
        alpha=float(alpha),
        notes=notes,
    )


def _errors(basis: _Basis, factor: Array, k: int) -> Array:
    """Roots of the diagonal of P H⁻¹ Pᵀ for H = LLᵀ, without squaring tiny scales."""
    P = np.kron(np.eye(k), basis.raw)
    W = solve_triangular(factor, P.T, lower=True)
    largest = np.abs(W).max(axis=0)
    return np.asarray(largest * np.linalg.norm(W / largest, axis=0))


# -- maximising -------------------------------------------------------------------


def _least_squares(
    basis: _Basis, y: Array, s: Array, theta: Array
) -> tuple[Array, float, Array, float]:
    """Minimiser, what the start was above it, the Cholesky factor of QᵀSQ, and RSS."""
    for turn in range(3):  # one step solves; the others remove its rounding
        M, g, rss = np.zeros((len(theta), len(theta))), np.zeros(len(theta)), 0.0
        for cut, Q in basis.blocks():
            e = y[cut] - (Q @ theta)[:, 0]
            M += Q.T @ (s[cut, None] * Q)
            g += Q.T @ (s[cut] * e)
            rss += float(s[cut] @ np.square(e))
        factor = np.linalg.cholesky(M)
        step = cho_solve((factor, True), g)
        if turn == 0:
            excess = float(g @ step)
        theta = theta + step[:, None]
    return theta, excess, factor, rss


class _Point(NamedTuple):
    """Coordinates θ with the loss, its downhill gradient and its Hessian there."""

    theta: Array
    loss: float
    g: Array
    H: Array


class _Softmax(NamedTuple):
    """−log-likelihood of k scores against a first class whose score is zero."""

    basis: _Basis
    codes: Array
    s: Array
    k: int

    def at(self, theta: Array) -> _Point:
        p, k = theta.shape
        loss, g, H = 0.0, np.zeros((p, k)), np.zeros((k, p, k, p))
        rest = 1.0 - np.eye(k + 1)
        for cut, Q in self.basis.blocks():
            z = np.column_stack([np.zeros(len(Q)), Q @ theta])
            s, code, index = self.s[cut], self.codes[cut], np.arange(len(Q))
            z -= z.max(axis=1, keepdims=True)
            own = z[index, code]
            share = np.exp(z)
            size = share.sum(axis=1)
            # 1 − pᵢ as a sum of the others: exact where pᵢ is nearly one.
            others = ((share @ rest) / size[:, None])[:, 1:]
            share = (share / size[:, None])[:, 1:]
            loss += float(s @ (np.log(size) - own))
            mine = code[:, None] == np.arange(1, k + 1)
            g += Q.T @ (s[:, None] * np.where(mine, others, -share))
            for a in range(k):
                for b in range(a, k):
                    d = share[:, a] * (others[:, a] if a == b else -share[:, b])
                    H[a, :, b] += Q.T @ ((s * d)[:, None] * Q)
        for a in range(k):
            for b in range(a):
                H[a, :, b] = H[b, :, a].T
        return _Point(theta, loss, g, H.reshape(k * p, k * p))


def _maximise(likelihood: _Softmax, start: Array, X: Any) -> tuple[_Point, float]:
    """The maximum of the likelihood and the loss at ``start``; refuses if none."""
    first = likelihood.at(start)
    for begin in (first, likelihood.at(np.zeros_like(start))):
        point, done = _newton(likelihood, begin)
        if done:
            return point, first.loss
    _refuse_maximum(likelihood, point, X)


def _newton(likelihood: _Softmax, now: _Point) -> tuple[_Point, bool]:
    """Newton steps with halving until gᵀH⁻¹g is small enough and proves a maximum."""
    reach = likelihood.basis.reach * (1.0 if likelihood.k == 1 else np.sqrt(2.0))
    noise = 64 * np.finfo(float).eps * reach * float(likelihood.s.sum())  # of ‖g‖
    for _ in range(60):
        g = now.g.T.ravel()
        if not (np.isfinite(now.loss) and np.all(np.isfinite(now.H))):
            return now, False
        if now.loss < np.log(2) * likelihood.s.min():  # every row above one half
            return now, False
        try:
            step = cho_solve((np.linalg.cholesky(now.H), True), g)
        except np.linalg.LinAlgError:
            return now, False
        decrement = float(g @ step)
        if decrement <= _DECREMENT:
            least = np.sqrt(max(0.0, float(np.linalg.eigvalsh(now.H)[0])))
            if 2 * reach * (np.sqrt(decrement) * least + noise) <= least**2:
                return now, True
            if 2 * reach * noise > least**2:  # too flat to tell from no curvature
                return now, False
        move, t = step.reshape(now.theta.T.shape).T, 1.0
        trial = likelihood.at(now.theta + move)
        sure = decrement <= 1e-8 * now.loss  # the loss itself would only show rounding
        while not sure and not trial.loss <= now.loss - 1e-4 * t * decrement:
            t /= 2
            if t < 1e-9:
                return now, False
            trial = likelihood.at(now.theta + t * move)
        now = trial
    return now, False


def _refuse_maximum(likelihood: _Softmax, last: _Point, X: Any) -> NoReturn:
    """Say why Newton's method found no maximum: separable classes, if provably so."""
    basis, codes, k = likelihood.basis, likelihood.codes, likelihood.k
    raw = basis.raw @ last.theta
    if not basis.intercept:
        raw = np.vstack([np.zeros(k), raw])
    direction = np.vstack([raw[1:], raw[:1]])
    loss: Loss = Logistic() if k == 1 else Softmax(k + 1)
    y = 2 * codes - 1 if k == 1 else codes
    if k > 1:
        direction = np.column_stack([np.zeros(len(direction)), direction])
    proved = separates(X, y, likelihood.s, loss, direction)
    if not proved and X.shape[0] * X.shape[1] * k <= _PROGRAMME:
        proved = bool(separating_direction(X, y, loss, basis.intercept))
    if proved:
        _refuse(
            "The classes are separable, so the likelihood has no maximum and the "
            "coefficients no standard errors. Set a finite C, or drop the columns that "
            "give the class away."
        )
    _refuse(
        "No maximum of the likelihood was found; the classes are nearly separable or "
        "the columns nearly collinear. Standardise or drop columns, or set a finite C."
    )


# -- the data ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Basis:
    """Columns Q = [1, (X − m)/c]R⁻¹, made a block of rows at a time.

    ``raw`` takes coordinates θ to (intercept, coefficients); ``reach`` is max ‖qᵢ‖.
    """

    X: Any
    mean: Array
    scale: Array
    R: Array
    intercept: bool
    names: tuple[str, ...]
    raw: Array
    reach: float

    @classmethod
    def of(cls, X: Any, s: Array, intercept: bool, names: tuple[str, ...]) -> _Basis:
        """Decompose, or refuse where a column is a combination of the others."""
        d = X.shape[1]
        mean = data.t_dot(X, s / s.sum()) if intercept else np.zeros(d)
        high = np.max([block.max(axis=0) for _, block in _dense(X)], axis=0)
        low = np.min([block.min(axis=0) for _, block in _dense(X)], axis=0)
        scale = np.maximum(high - mean, mean - low)
        flat = high == low if intercept else scale == 0
        if flat.any():
            name = names[int(np.flatnonzero(flat)[0])]
            what = "constant, as the intercept is" if intercept else "zero throughout"
            _refuse(f"Column {name} is {what}. Drop it and fit again.")
        R = np.zeros((0, d + intercept))
        for cut, block in _dense(X):
            A = _columns(block, mean, scale, intercept)
            A = np.vstack([R, np.sqrt(s[cut])[:, None] * A])
            R = np.asarray(np.linalg.qr(A, mode="r"))
        names = ("(intercept)", *names) if intercept else names
        single = X.dtype == np.float32  # no column is known better than to 1e-7
        _check_rank(R, names, 1e-6 if single else 1e-12)
        back = np.diag(1 / scale)
        if intercept:
            top = np.concatenate([[1.0], -mean / scale])
            back = np.vstack([top, np.column_stack([np.zeros(d), back])])
        raw = solve_triangular(R, back.T, trans="T").T
        basis = cls(X, mean, scale, R, intercept, names, raw, 0.0)
        reach = max(np.linalg.norm(Q, axis=1).max() for _, Q in basis.blocks())
        object.__setattr__(basis, "reach", float(reach))
        return basis

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Rows of Q."""
        for cut, block in _dense(self.X):
            A = _columns(block, self.mean, self.scale, self.intercept)
            yield cut, solve_triangular(self.R, A.T, trans="T").T

    def coordinates(self, coef: Array) -> Array:
        """θ of (intercept, coefficients), shape (d + 1, k)."""
        inner = coef[1:] * self.scale[:, None]
        if self.intercept:
            inner = np.vstack([coef[:1] + self.mean @ coef[1:], inner])
        return np.asarray(self.R @ inner)


def _columns(block: Array, mean: Array, scale: Array, intercept: bool) -> Array:
    A = (block - mean) / scale
    return np.column_stack([np.ones(len(A)), A]) if intercept else A


def _dense(X: Any) -> Iterator[tuple[slice, Array]]:
    """Blocks of rows as dense float64."""
    n, d = X.shape
    rows = max(_BLOCK // (d + 1), 2 * d, 1)
    for i in range(0, n, rows):
        cut = slice(i, min(i + rows, n))
        block = X[cut].toarray() if sparse.issparse(X) else X[cut]
        yield cut, np.asarray(block, dtype=np.float64)


def _check_rank(R: Array, names: tuple[str, ...], least: float) -> None:
    """Refuse if a column has no more than the share ``least`` outside the others."""
    p = R.shape[1]
    if R.shape[0] < p:
        _refuse(
            f"{p} coefficients cannot be told apart on {R.shape[0]} different rows. "
            "Drop columns or penalise."
        )
    unit = R / np.linalg.norm(R, axis=0)
    T, order = qr(unit, mode="r", pivoting=True)
    low = np.flatnonzero(np.abs(np.diag(T)) <= least)
    if not low.size:
        return
    r = int(low[0])
    mix = solve_triangular(T[:r, :r], T[:r, r])
    others = [names[order[i]] for i in np.flatnonzero(np.abs(mix) > 1e-6)]
    shown = ", ".join(others[:6]) + (", ..." if len(others) > 6 else "")
    _refuse(
        f"Column {names[order[r]]} is a combination of {shown}, so their coefficients "
        "are not determined. Drop one of them and fit again."
    )


def _names(model: Any, d: int) -> tuple[str, ...]:
    given = getattr(model, "feature_names_in_", None)
    return tuple(f"x{j}" for j in range(d)) if given is None else tuple(map(str, given))


def _raw(model: Any) -> Array:
    """(intercept, coefficients) as columns: shape (d + 1, number of scores)."""
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    top = np.broadcast_to(np.ravel(model.intercept_).astype(np.float64), coef.shape[:1])
    both = np.vstack([top, coef.T])
    if not np.all(np.isfinite(both)):
        raise ValueError("The model's coefficients are not finite. Fit it again.")
    return both


def _prepare(model: Any, X: Any, sample_weight: Any) -> tuple[Any, Array]:
    """Validated X and frequencies."""
    given = getattr(model, "feature_names_in_", None)
    columns = getattr(X, "columns", None)
    if given is not None and columns is not None and list(columns) != list(given):
        raise ValueError(
            "The columns of X are not those the model was fitted on. Pass the same "
            "columns in the same order."
        )
    X = data.as_matrix(X)
    data.refuse_holes(X)
    X = X.tocsr() if sparse.issparse(X) else X
    d = np.shape(model.coef_)[-1]
    if X.shape[1] != d:
        raise ValueError(f"X has {X.shape[1]} columns and the model expects {d}.")
    return X, data.weights(sample_weight, None, np.empty(0), None, X.shape[0])


def _used(X: Any, y: Array, s: Array) -> tuple[Any, Array, Array]:
    """Rows whose frequency is above zero."""
    used = s > 0
    return (X, y, s) if used.all() else (X[used], y[used], s[used])


def _weight_notes(sample_weight: Any, s: Array) -> tuple[str, ...]:
    if sample_weight is None:
        return ()
    note = "Weights are taken as frequencies: a weight of two is two rows."
    if np.all(s == np.round(s)):
        return (note,)
    return (note + " Some are not whole; standard errors depend on their scale.",)


# -- refusals ---------------------------------------------------------------------


def _refuse(reason: str) -> NoReturn:
    raise SummaryRefused(reason)


def _check(model: Any, alpha: float) -> None:
    if not hasattr(model, "coef_"):
        raise NotFittedError(f"{type(model).__name__} is not fitted. Call fit first.")
    check_number("alpha", alpha, 0.0, 1.0, open_low=True)
    if alpha >= 1:
        raise ValueError(f"alpha must be below 1, got {alpha!r}.")


def _check_unpenalised(model: Any) -> None:
    kind = type(model).__name__
    C = getattr(model, "C_", getattr(model, "C", None))
    if C is None:
        raise TypeError(f"{kind} has no C; pass a fitted LogisticRegression.")
    free = np.all(np.isinf(np.asarray(C, dtype=float)))
    if not free and getattr(model, "penalty", "") is not None:
        _refuse_penalty(kind, f"C={C}", f"{kind}(C=inf)")
    if getattr(model, "class_weight", None) is not None:
        _refuse(
            "class_weight changes the likelihood, so its curvature gives no standard "
            "errors. Fit with class_weight=None."
        )


def _refuse_penalty(kind: str, setting: str, instead: str) -> NoReturn:
    _refuse(
        f"{kind}({setting}) is penalised: its coefficients are shrunk and the usual "
        f"standard errors do not hold. Fit {instead}, or bootstrap the rows."
    )


def _check_size(n_params: int, total: float, sample_weight: Any) -> None:
    if n_params >= total:
        rows = "rows" if sample_weight is None else "rows (the weights' sum)"
        _refuse(
            f"{n_params} coefficients on {_count(total)} {rows} leave no degrees of "
            "freedom for standard errors. Use more rows or fewer columns."
        )


def _check_rows(above: float, allowed: float) -> None:
    """``above`` is what the model's loss exceeds the least by, on the rows passed."""
    if above > allowed:
        _refuse(
            "These are not the rows (or weights) the model was fitted on, or its fit "
            "is not solved: other coefficients do far better. Fit it on these rows."
        )
