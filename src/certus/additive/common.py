"""What additive models share: reading columns, the fit, scores, contributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
from certus.additive import levels as choosing
from certus.additive.cells import Term, categories_of, codes_of, edges_of
from certus.additive.drawing import ShapePlots, deviations
from certus.additive.kinked import bends_of, solve_kinked
from certus.additive.layout import Additive, CellLayout, TermLevels, layout_of
from certus.additive.monotone import edge_signs, solve_monotone
from certus.additive.newton import Run, solve
from certus.additive.pairs import find_pairs
from certus.additive.tempering import temper_levels
from certus.base import Estimator, Fitted, check_choice, check_number, validate_data
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import LinearWitness
from certus.objectives import Quantile, Squared
from certus.typing import Array
from certus.verify import ScoreRange, score_range

#: Cells of all columns together, about; and ends of those of one column.
CELLS, FEWEST, MOST = 1024, 16, 128
#: Cells for each row at most, while columns have more than the fewest.
PER_ROW = 1.5
#: Cells of a model at most: the matrix of a step is dense.
LIMIT = 12_000
#: Shares of ``alpha`` in both levels of a term, times its number of cells.
SMOOTH, SHRINK = 1.0, 0.01
#: Interior point steps of each trial of strengths, at most.
STEPS = 40


class AdditiveBase(ShapePlots, Estimator):
    """Columns into cells, and scores from shapes; abstract."""

    terms_: list[tuple[int, ...]]
    bin_edges_: list[list[Array]]
    shapes_: list[Array]
    is_categorical_: Array
    intercept_: Any
    term_means_: Array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = True
        return tags

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(
            validate_data(
                self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False
            )
        )

    def _parts(self) -> list[Term]:
        pairs = zip(self.terms_, self.bin_edges_)
        return [Term(tuple(columns), tuple(axes)) for columns, axes in pairs]

    def _scores(self, X: Any) -> Array:
        """Scores (n, k)."""
        parts, b = self._each(X)
        return np.asarray(b + parts.sum(axis=1))

    def _each(self, X: Any) -> tuple[Array, Array]:
        """The value of each term for each row, (n, terms, k), and the constants."""
        X = self._rows(X)
        b = np.atleast_1d(np.asarray(self.intercept_, dtype=np.float64))
        terms = self._parts()
        w = np.concatenate([shape.reshape(-1, len(b)) for shape in self.shapes_])
        codes = codes_of(X, terms, self.is_categorical_)
        return w[codes.T], b

    def contributions(self, X: Any) -> Array:
        """What each term adds to the average score, for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to explain.

        Returns
        -------
        ndarray of shape (n_samples, n_terms) or (n_samples, n_terms, n_classes)
            The value of the term's cell minus its mean over the training rows. The
            contributions of a row and ``baseline_`` add up to its score.
        """
        found, _ = self._each(X)
        found = found - np.asarray(self.term_means_).reshape(found.shape[1:])
        return np.asarray(found[:, :, 0] if found.shape[2] == 1 else found)

    def score_range(self, low: Any, high: Any, missing: Any = False) -> ScoreRange:
        """The range of the score over all rows between ``low`` and ``high``.

        Parameters
        ----------
        low, high : float or array-like of shape (n_features,)
            Smallest and largest value of each column, both included; −inf and inf where
            a column may have any value.
        missing : bool or array-like of shape (n_features,), default=False
            Whether values of the column may also be missing.

        Returns
        -------
        ScoreRange
            Every score in the box lies between ``low`` and ``high``, rounding included;
            some rows of the box reach the scores ``least`` and ``most``. ``exact`` is
            True if the model has no pairs of columns, or if its pairs form no cycle
            (such as a-b, b-c and c-a). With several classes these are arrays with an
            entry for each class.
        """
        check_is_fitted(self)
        return score_range(self, low, high, missing)


# -- the fit ------------------------------------------------------------------------


def check_parameters(model: Any, d: int) -> None:
    """Check what both models share."""
    check_choice("penalty", model.penalty, ("quadratic", "total_variation"))
    check_number("alpha", model.alpha, open_low=True, none=True)
    check_number("max_bins", model.max_bins, 2, 65_535, integer=True, none=True)
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("max_time", model.max_time, none=True)


def monotone_signs(model: Any, categorical: Array, k: int) -> Array | None:
    """The sign of each column, or None where no column is to be monotone."""
    if model.monotonic_cst is None:
        return None
    signs, d = np.asarray(model.monotonic_cst), len(categorical)
    if signs.shape != (d,) or not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError(
            f"monotonic_cst must hold −1, 0 or 1 for each of {d} columns, got "
            f"{model.monotonic_cst!r}."
        )
    if not signs.any():
        return None
    if k > 1:
        raise NotImplementedError(
            "monotonic_cst is not available for more than two classes, because a class "
            "may become less likely while its score rises. Leave it out."
        )
    if signs[categorical].any():
        raise ValueError("monotonic_cst must be 0 for categorical columns.")
    return signs


def read_rows(model: Any, X: Any, y: Any, sample_weight: Any, **options: Any) -> Any:
    """X in float64 with its missing values, y, weights or None."""
    X, y = validate_data(
        model, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **options
    )
    if sample_weight is not None:
        sample_weight = row_weights(sample_weight, X.shape[0])
    return X, y, sample_weight


def categorical_mask(model: Any, d: int) -> Array:
    """Which columns are categorical, from indices, a mask or names."""
    given, mask = model.categorical_features, np.zeros(d, dtype=bool)
    if given is None:
        return mask
    given = np.asarray(given)
    if given.dtype == bool:
        if given.shape != (d,):
            raise ValueError(
                "categorical_features must have one entry for each of "
                f"{d} columns if it is a mask, got {given.size} entries."
            )
        return given.copy()
    if given.dtype.kind in "US" or given.dtype == object:
        names = list(getattr(model, "feature_names_in_", []))
        unknown = [name for name in given.tolist() if name not in names]
        if unknown:
            raise ValueError(
                f"categorical_features names {unknown[0]!r}, but X has no such column."
            )
        given = np.array([names.index(name) for name in given.tolist()], dtype=int)
    if given.size and (given.min() < 0 or given.max() >= d):
        raise ValueError(
            f"categorical_features must hold column numbers from 0 to {d - 1}, got "
            f"{given.tolist()}."
        )
    mask[given.astype(int)] = True
    return mask


def main_terms(
    X: Array, s: Array, categorical: Array, max_bins: int | None
) -> list[Term]:
    """A term for each column."""
    d = X.shape[1]
    fewest = min(FEWEST, max(2, 4 * CELLS // d))
    cells = min(CELLS, PER_ROW * float(s.sum()))
    most = max_bins or int(np.clip(cells // d, fewest, MOST))
    return [
        Term(
            (j,),
            (categories_of(X[:, j]) if categorical[j] else edges_of(X[:, j], s, most),),
        )
        for j in range(d)
    ]


def fixed_levels(layout: CellLayout, alpha: float) -> TermLevels:
    """The levels that follow from a given ``alpha``."""
    cells = np.diff(layout.starts).astype(float)
    return TermLevels(SMOOTH * alpha / cells, SHRINK * alpha / cells)


def fit_additive(
    model: Any, X: Array, y: Array, s: Any, loss: Any, start: Array
) -> Any:
    """Choose levels and pairs, solve, and set the attributes of ``model``.

    ``start`` are the constants of the best model without shapes.
    """
    weight = np.ones(len(X)) if s is None else s
    used = weight > 0
    rows, target, weight = X[used], y[used], weight[used]
    total = float(weight.sum())
    categorical = categorical_mask(model, X.shape[1])
    k = len(start)
    signs = monotone_signs(model, categorical, k)
    metadata = None if s is None else {"sample_weight": s}
    monitor = Monitor(model, X, y, None, model.max_time, metadata)

    def problem(terms: list[Term]) -> Additive:
        cells = sum(int(np.prod(term.shape(categorical))) for term in terms)
        if cells > LIMIT:
            raise ValueError(
                f"The shapes would have {cells:,} cells, more than {LIMIT:,}. Lower "
                "max_bins, or select columns."
            )
        layout = layout_of(terms, categorical)
        codes = codes_of(rows, terms, categorical)
        return Additive(loss, codes, target, weight / total, layout, k)

    terms = main_terms(rows, weight, categorical, model.max_bins)
    p = problem(terms)
    base = p.value(p.scores(np.zeros((p.layout.size, k)), start))
    shown: list[Any] = [terms, p]
    variation = model.penalty == "total_variation"
    dual: Array | None = None

    def on_step(objective: float, gap: float, run: Run) -> Status | None:
        def now() -> dict[str, Any]:
            return {**attributes(run, *shown), "is_categorical_": categorical}

        return monitor.step(objective, gap, now)

    def levels_of(layout: CellLayout, known: TermLevels | None) -> TermLevels:
        if model.alpha is not None:
            return fixed_levels(layout, float(model.alpha))
        return choosing.first_levels(layout, known)

    def solver(p: Additive, run: Run, base: float, tol: float, most: int) -> None:
        nonlocal dual
        columns = [term.columns for term in terms]
        asked = edge_signs(p, columns, np.zeros(len(categorical)))
        if signs is not None:
            asked = edge_signs(p, columns, signs)
        if not variation and not isinstance(loss, Quantile):
            if signs is None:
                return solve(p, run, base, tol, most)
            return solve_monotone(p, run, asked, base, tol, most)
        wide = np.repeat(asked[:, None], k, axis=1)
        bends = bends_of(p, run.levels, variation, wide)
        dual = solve_kinked(p, run, bends, variation, (base, tol, most))

    def trial(p: Additive, run: Run, base: float, tol: float, most: int) -> None:
        # Strengths are compared without signs, as they are chosen.
        if not variation and not isinstance(loss, Quantile):
            return solve(p, run, base, tol, most)
        none = np.zeros((len(p.layout.edges), k))
        bends = bends_of(p, run.levels, variation, none)
        solve_kinked(p, run, bends, variation, (base, tol, STEPS))

    run = Run(
        np.zeros((p.layout.size, k)), start.copy(), levels_of(p.layout, None), on_step
    )
    try:
        if model.alpha is None:
            choosing.choose_levels(smooth_problem(p), total, run)
        pairs = []
        if not run.status:
            about = model, smooth_problem(p), run
            pairs = find_pairs(*about, rows, weight, categorical)
        if pairs:
            terms = terms + pairs
            p = problem(terms)
            more = np.zeros((p.layout.size - len(run.w), k))
            run.w = np.vstack([run.w, more])
            run.levels = levels_of(p.layout, run.levels)
            shown[:] = [terms, p]
            if model.alpha is None:
                choosing.choose_levels(smooth_problem(p), total, run)
        if model.alpha is None:
            choosing.levels_for(p, total, run, variation)
        if run.status is None and model.alpha is None:
            temper_levels(p, run, base, trial, variation)
        if run.status is None:
            solver(p, run, base, float(model.tol), int(model.max_iter))
    except KeyboardInterrupt:
        run.status = Status.INTERRUPTED
        keep = len(run.w)
        terms = [t for t, end in zip(terms, p.layout.starts[1:]) if end <= keep]
        run.levels = TermLevels(*(level[: len(terms)] for level in run.levels))
        p = problem(terms)
    found = attributes(run, terms, p)
    for name, value in found.items():
        setattr(model, name, value)
    model.shape_std_ = deviations(p, run, total, variation)
    model.is_categorical_, model.n_iter_ = categorical, max(1, run.n_iter)
    model.history_ = monitor.history
    monitor.close(found)
    witness = None
    if dual is not None:
        slopes = np.zeros((len(X), 1))
        slopes[used, 0] = dual
        witness = LinearWitness(dual=slopes)
    evidence = Evidence("additive", witness=witness)
    return Fitted(evidence, X, y, s, run.status or Status.MAX_ITER)


def smooth_problem(p: Additive) -> Additive:
    """The problem on which levels and pairs are chosen: squares for quantiles."""
    return p._replace(loss=Squared()) if isinstance(p.loss, Quantile) else p


def attributes(run: Run, terms: list[Term], p: Additive) -> dict[str, Any]:
    """The fitted attributes at this point."""
    k, layout = len(run.b), p.layout
    shapes, means = [], np.empty((len(terms), k))
    for t, (start, end) in enumerate(zip(layout.starts, layout.starts[1:])):
        part = run.w[start:end]
        shape = layout.shapes[t] if k == 1 else (*layout.shapes[t], k)
        shapes.append(np.ascontiguousarray(part.reshape(shape)))
        mass = np.bincount(p.codes[t] - start, p.share, end - start)
        means[t] = mass @ part
    baseline = run.b + means.sum(axis=0)
    return {
        "terms_": [term.columns for term in terms],
        "bin_edges_": [
            [np.asarray(a, dtype=np.float64) for a in term.axes] for term in terms
        ],
        "shapes_": shapes,
        "intercept_": float(run.b[0]) if k == 1 else run.b.copy(),
        "smoothing_": run.levels.smoothing.copy(),
        "shrinkage_": run.levels.shrinkage.copy(),
        "term_means_": means[:, 0].copy() if k == 1 else means,
        "baseline_": float(baseline[0]) if k == 1 else baseline,
    }
