"""Figures of predictions: calibration, confusion, residuals, and which columns matter.

None of them refits. They use sealed rows where there are some, else rows predicted by
models of cross-validation that had not seen them; the caption says which.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse, stats
from sklearn.preprocessing import StandardScaler

from certus._core.rows import dense_coef
from certus.bounds import clopper_pearson
from certus.report.document import Figure
from certus.report.rows import PredictionTask, TableRows, column_names, deviation
from certus.typing import Array, MatrixLike
from certus.unwrapping import innermost, unwrap
from certus.wording import clean, number, shorten

__all__ = [
    "calibration",
    "coefficient_figure",
    "coefficients",
    "confusion",
    "importance",
    "residuals",
]

_BINS = 10
_PER_BIN = 10  # rows a bin holds at least, on average
_LABELS = 10  # drawn one by one; the others together
_POINTS = 800  # residuals drawn
_COLUMNS = 12  # bars drawn
_REPEATS = 5
_SHUFFLED = 2_000  # rows on which columns are shuffled
_FEWEST = 200  # that say something about a column
_LEVEL = 0.95  # of the intervals of single bins


def calibration(
    rows: TableRows, shares: Array, classes: Array, source: str, positive: Any = None
) -> Figure:
    """How often a label came true, against the probability it was given.

    Two labels: the probability of the positive one (default: the second), which the
    claims are about. More: that of the label predicted.
    """
    if len(classes) == 2:
        at = 0 if positive is not None and classes[0] == positive else 1
        given, came = shares[:, at], rows.y == classes[at]
        what = f"“{shorten(str(classes[at]), 24)}”"
    else:
        given, came = shares.max(axis=1), rows.y == classes[shares.argmax(axis=1)]
        what = "the predicted label"
    count = max(2, min(_BINS, rows.size // _PER_BIN))
    edges = np.quantile(given, np.linspace(0, 1, count + 1))
    place = np.searchsorted(edges[1:-1], given)  # equal values share a bin
    held = [np.flatnonzero(place == b) for b in range(count)]
    held = [index for index in held if len(index)]
    hits = np.array([int(came[index].sum()) for index in held])
    counts = np.array([len(index) for index in held])
    predicted = np.array([float(given[index].mean()) for index in held])
    limits = [clopper_pearson(int(k), int(n), 1 - _LEVEL) for k, n in zip(hits, counts)]
    low = np.array([interval.low for interval in limits])
    high = np.array([interval.high for interval in limits])
    outside = int(((predicted < low) | (predicted > high)).sum())
    away = float(np.average(np.abs(hits / counts - predicted), weights=counts))
    return Figure(
        "calibration",
        "Can the probabilities be trusted?",
        _calibration_answer(outside, len(held), away),
        f"{rows.size:,} {source}; {len(held)} bins of about equal size; bars: "
        f"{100 * _LEVEL:.0f} % Clopper–Pearson interval of each bin by itself. A claim "
        "“calibrated” has bins chosen on other rows, and so another average.",
        {
            "label": what,
            "predicted": predicted.tolist(),
            "observed": (hits / counts).tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "counts": counts.tolist(),
            "rows": rows.size,
        },
    )


def _calibration_answer(outside: int, bins: int, away: float) -> str:
    off = f"on average they are off by {number(100 * away, 2)} percentage points"
    # Of intervals that each hold with 95 %, one in twenty may miss by chance.
    chance = stats.binom.sf(outside - 1, bins, 1 - _LEVEL) if outside else 1.0
    if chance > 0.05:
        return (
            f"Yes, as far as these rows can tell: {off}, which chance alone can "
            "explain."
        )
    some = "1 bin misses" if outside == 1 else f"{outside} of {bins} bins miss"
    return f"Not exactly: {some} the diagonal by more than chance explains, and {off}."


def confusion(rows: TableRows, guess: Array, source: str) -> Figure:
    """Counts of true against predicted labels; the rarest labels are put together."""
    labels, counts = np.unique(np.concatenate([rows.y, guess]), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = labels[np.sort(order[:_LABELS])] if len(labels) > _LABELS else labels
    other = len(labels) > len(shown)
    table = np.zeros((len(shown) + other,) * 2, dtype=int)
    places = [_places(values, shown) for values in (rows.y, guess)]
    np.add.at(table, tuple(places), 1)
    names = [shorten(str(label), 24) for label in shown]
    if other:
        names.append(f"{len(labels) - len(shown)} others")
    wrong = int((rows.y != guess).sum())
    return Figure(
        "confusion",
        "Which labels are confused?",
        _confusion_answer(table, names, wrong, rows.size, other),
        f"{rows.size:,} {source}: counts, and shares of each true label.",
        {
            "labels": names,
            "counts": table.tolist(),
            "others": len(shown) if other else None,
            "rows": rows.size,
        },
    )


def _places(values: Array, shown: Array) -> Array:
    """Index of each label among those shown; one past the end for the others."""
    at = np.minimum(np.searchsorted(shown, values), len(shown) - 1)
    return np.where(shown[at] == values, at, len(shown))


def _confusion_answer(
    table: Array, names: list[str], wrong: int, count: int, other: bool
) -> str:
    if not wrong:
        return f"None: all {count:,} rows were labelled correctly."
    single = table.copy()
    np.fill_diagonal(single, 0)
    if other:  # pairs inside the others are not single pairs
        single[-1], single[:, -1] = 0, 0
    total = f"{wrong:,} of {count:,} rows {'is' if wrong == 1 else 'are'} wrong"
    if not single.any():
        return f"{total}, all among the rarest labels."
    true, said = np.unravel_index(np.argmax(single), single.shape)
    pair = f"“{names[true]}” was labelled “{names[said]}”"
    if wrong == 1:
        return f"{total}: {pair}."
    often = single[true, said]
    times = {1: "once", 2: "twice"}.get(int(often), f"{often:,} times")
    return f"{total}; the most frequent mistake: {times} {pair}."


def residuals(
    rows: TableRows,
    guess: Array,
    task: PredictionTask,
    source: str,
    rng: np.random.Generator,
) -> Figure:
    """Truth − prediction, against the prediction."""
    residual = np.asarray(rows.y, float) - guess
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    cuts = np.quantile(residual, levels)
    half, most = np.quantile(np.abs(residual), (0.5, 0.9))
    answer = (
        f"Half of the predictions are within {number(half)} of the true value, and "
        f"nine in ten within {number(most)}"
    )
    if rows.size >= 20 and np.ptp(guess) > 0 and np.ptp(np.abs(residual)) > 0:
        trend = stats.spearmanr(np.abs(residual), guess)
        if trend.pvalue < 0.01:
            way = "larger" if trend.statistic > 0 else "smaller"
            answer += f"; errors tend to be {way} where the prediction is high"
    drawn = np.arange(rows.size)
    caption = f"{rows.size:,} {source}; dashed: 5 % and 95 % of the residuals."
    if rows.size > _POINTS:
        drawn = np.sort(rng.choice(rows.size, _POINTS, replace=False))
        caption += f" {_POINTS:,} of them are drawn."
    return Figure(
        "residuals",
        "How far off are individual predictions?",
        answer + ".",
        caption,
        {
            "target": shorten(task.target) if task.target else "target",
            "predicted": guess[drawn].tolist(),
            "residual": residual[drawn].tolist(),
            "levels": list(levels),
            "quantiles": cuts.tolist(),
            "rows": rows.size,
        },
    )


# ---- which columns matter ------------------------------------------------------


def importance(
    model: Any,
    rows: TableRows,
    task: PredictionTask,
    seconds: float,
    rng: np.random.Generator,
) -> tuple[Figure | None, str]:
    """Rise of the error when a column is shuffled, or why there is no such figure."""
    if sparse.issparse(rows.X):
        return None, "the columns of a sparse matrix are not shuffled one by one"
    names = column_names(rows.X)
    start = time.perf_counter()
    deadline = start + seconds
    used = rows.sample(_SHUFFLED, rng)
    base = task.error(used.y, task.ask(model, used.X))
    need = len(names) * _REPEATS * (time.perf_counter() - start)
    if need > seconds:  # fewer rows, as far as they still say something
        used = used.sample(max(_FEWEST, int(used.size * seconds / need)), rng)
        base = task.error(used.y, task.ask(model, used.X))
    sign = task.metric.loss(1.0)
    rises: list[list[float]] = [[] for _ in names]
    for repeat in range(_REPEATS):
        for j in range(len(names)):
            if time.perf_counter() > deadline:
                break
            X = _shuffled(used.X, j, rng.permutation(used.size))
            now = task.error(used.y, task.ask(model, X))
            rises[j].append(sign * (now - base))
        if time.perf_counter() > deadline and not (repeat and rises[-1]):
            return None, f"shuffling {len(names):,} columns takes too long"
    repeats = len(rises[-1])
    values = np.array([column[:repeats] for column in rises])
    mean = values.mean(axis=1)
    sd = deviation(values)
    order = np.argsort(-mean, kind="stable")[:_COLUMNS]
    what = "" if task.measure.startswith(task.metric.label) else f", {task.measure},"
    caption = (
        f"{_change(task)}{what} when a column is shuffled; mean and "
        f"standard deviation of {repeats} shuffles on {used.size:,} {rows.kind}. "
        "Columns with the same information share their importance."
    )
    if used.size < rows.size:
        caption += (
            f" These rows are a sample, so the {task.metric.label} before shuffling "
            f"differs from that of all {rows.size:,}."
        )
    if len(names) > len(order):
        caption += f" The {len(order)} largest of {len(names):,}."
    return Figure(
        "importance",
        "Which columns matter?",
        _importance_answer([names[i] for i in order], mean, sd, order, base, task),
        caption,
        {
            "measure": task.measure,
            "metric": task.metric.label,
            "change": _change(task),
            "percent": task.percent,
            "names": [clean(names[i]) for i in order],
            "mean": mean[order].tolist(),
            "sd": sd[order].tolist(),
            "repeats": repeats,
            "columns": len(names),
            "rows": used.size,
        },
    ), ""


def _change(task: PredictionTask) -> str:
    """What happens when the model gets worse."""
    return f"{'Fall' if task.metric.more else 'Rise'} of the {task.metric.label}"


def _shuffled(X: Any, column: int, order: Array) -> Any:
    """A copy of the table with one column in another order."""
    if hasattr(X, "iloc"):
        X = X.copy(deep=False)
        X.isetitem(column, X.iloc[order, column].array)
        return X
    if hasattr(X, "with_columns"):
        name = X.columns[column]
        return X.with_columns(X[name].gather(order).alias(name))
    X = X.copy()
    X[:, column] = X[order, column]
    return X


def _importance_answer(
    names: list[str],
    mean: Array,
    sd: Array,
    order: Array,
    base: float,
    task: PredictionTask,
) -> str:
    matter = int((mean > 2 * sd).sum())
    if not matter or mean[order[0]] <= 0:
        return (
            "None on its own, it seems: shuffling any single column makes no "
            "clear difference."
        )
    moved = "lowers" if task.metric.more else "raises"
    then = base + task.metric.loss(float(mean[order[0]]))
    first = (
        f"“{shorten(names[0])}” most: shuffling it {moved} the {task.metric.label} "
        f"from {task.show(base)} to {task.show(then)}"
    )
    rest = len(mean) - matter
    if not rest:
        return first + "."
    some = "1 column makes" if rest == 1 else f"{rest:,} columns make"
    return f"{first}; {some} no clear difference."


def coefficients(model: Any, rows: TableRows) -> tuple[list[str], Array, Array] | None:
    """Columns as the model sees them, their coefficients and standard deviations.

    Sorted by the size of coefficient × deviation; over several labels, by its norm.
    """
    inner, Z = unwrap(model, rows.X)
    inner = innermost(inner)
    found = getattr(inner, "coef_", None)
    if found is None or np.ndim(found) > 2 or np.ndim(Z) != 2:
        return None
    coef = np.atleast_2d(dense_coef(found).astype(float))
    if coef.shape[1] != Z.shape[1]:
        return None
    scaler = StandardScaler(with_mean=not sparse.issparse(Z)).fit(Z)
    sd = np.sqrt(np.nan_to_num(scaler.var_))
    order = np.argsort(-_over_labels(coef) * sd, kind="stable")
    names = _encoded_names(model, rows.X, Z)
    return [names[i] for i in order], coef[:, order], sd[order]


def _over_labels(coef: Array) -> Array:
    """Size of each column of coefficients, over all labels."""
    size = np.max(np.abs(coef)) or 1.0
    return np.asarray(size * np.linalg.norm(coef / size, axis=0))


def _encoded_names(model: Any, X: MatrixLike, Z: Any) -> list[str]:
    """Names of the columns that the last estimator saw."""
    if hasattr(model, "best_estimator_"):
        return _encoded_names(model.best_estimator_, X, Z)
    step = getattr(model, "encoder_", None)
    if hasattr(model, "steps"):
        step = model[:-1] if len(model.steps) > 1 else None
    try:
        names = column_names(X) if step is None else step.get_feature_names_out()
    except (AttributeError, ValueError):
        names = []
    return list(map(str, names)) if len(names) == Z.shape[1] else column_names(Z)


def coefficient_figure(
    model: Any, rows: TableRows, task: PredictionTask
) -> Figure | None:
    """The largest coefficients, each times its column's standard deviation."""
    found = coefficients(model, rows)
    if found is None:
        return None
    names, coef, sd = found
    scaled = coef * sd
    several = len(coef) > 1
    values = _over_labels(scaled) if several else scaled[0]
    shown = min(_COLUMNS, len(names))
    zeros = int((np.abs(scaled).max(axis=0) == 0).sum())
    what = (
        "size of the change of the scores, over all labels,"
        if several
        else ("change of the score" if task.labels else f"change of {task.quoted}")
    )
    return Figure(
        "coefficients",
        "Which columns matter?",
        f"“{shorten(names[0])}” has the largest coefficient for its spread"
        + (f"; {zeros:,} of {len(names):,} coefficients are zero." if zeros else "."),
        f"Coefficient × standard deviation of its column: {what} when the column "
        f"rises by one standard deviation and the others stay the same. {rows.size:,} "
        f"{rows.kind}; the {shown} largest of {len(names):,}.",
        {
            "labels": task.labels,
            "names": [clean(name) for name in names[:shown]],
            "mean": values[:shown].tolist(),
            "rows": rows.size,
            "columns": len(names),
        },
    )
