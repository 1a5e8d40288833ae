"""The criteria measured on scores: distributions, rates by bin, calibration.

Bins are fixed beforehand, so that the rows of a bin are drawn alike and its share of
positive truths has an exact interval.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from certus.bounds.intervals import check_count
from certus.fairness.cells import (
    BinError,
    Distribution,
    ExpectedError,
    GroupMetric,
    Mean,
    Share,
)
from certus.fairness.groups import (
    classes_of,
    groups_of,
    labels_of,
    same_length,
    scores_of,
    weights_of,
)
from certus.fairness.table import GroupTable, make_table
from certus.typing import Array, ArrayLike, MatrixLike

_BOUNDED = (
    "the interval of the mean score holds if the scores of new rows lie in [0, 1] too"
)
_UNBOUNDED = (
    "no interval for the mean score: scores lie outside [0, 1], so the mean of new "
    "scores has no bound"
)


def calibration(
    y_true: ArrayLike,
    scores: ArrayLike,
    sensitive: MatrixLike,
    *,
    positive: Any = None,
    bins: Any = 10,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """Check whether a score is the true probability in each group.

    ``calibration_error`` of a bin is the share of positive truths less the mean score,
    ``expected_calibration_error`` the mean of its size over bins. The criterion holds
    if the latter is within the tolerance in every group and no bin shows more.
    Calibration in each group implies sufficiency.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Truths, of two labels.
    scores : array-like of shape (n_samples,)
        Probabilities of the positive label, in [0, 1].
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several.
    positive, sample_weight, delta, tolerance
        As for :func:`independence`.
    bins : int or array of edges, default=10
        As for :func:`sufficiency`.

    Returns
    -------
    GroupTable

    Examples
    --------
    >>> from certus.fairness import calibration
    >>> table = calibration([1, 0, 1, 1], [0.9, 0.1, 0.5, 0.5], ["a", "a", "b", "b"])
    >>> {group: round(error, 12) for group, error in
    ...     table["expected_calibration_error"].items()}
    {'a': 0.1, 'b': 0.5}
    """
    truth, found = labels_of("y_true", y_true), scores_of("scores", scores)
    n = same_length(y_true=truth, scores=found)
    if found.min() < 0 or found.max() > 1:
        raise ValueError(
            f"scores lie between {found.min():.6g} and {found.max():.6g}; calibration "
            "needs probabilities in [0, 1]."
        )
    groups, w = groups_of(sensitive, n), weights_of(sample_weight, n)
    true = truth == _one_class(positive, truth)
    edges, place = _bins(bins, found)
    metrics: list[GroupMetric] = [
        ExpectedError(
            "expected_calibration_error", true, found, place, len(edges) - 1, w
        )
    ]
    for b, said in enumerate(_ranges(edges)):
        width = float(edges[b + 1] - edges[b])
        name = f"calibration_error{said}"
        metrics.append(BinError(name, true, found, place == b, width, w))
    return make_table(
        "calibration",
        metrics,
        groups,
        delta,
        tolerance,
        decisive=("expected_calibration_error",),
        edges=edges,
        weighted=w is not None,
    )


def of_scores(
    criterion: str,
    scores: Array,
    among: dict[str, Array],
    sensitive: MatrixLike,
    sample_weight: ArrayLike | None,
    delta: float,
    tolerance: float,
) -> GroupTable:
    """Distances between distributions and mean scores, among some rows or others."""
    n = len(scores)
    groups, w = groups_of(sensitive, n), weights_of(sample_weight, n)
    bounded = bool(scores.min() >= 0 and scores.max() <= 1)
    metrics: list[GroupMetric] = []
    for said, rows in among.items():
        metrics.append(Distribution(f"score_distribution{said}", scores, rows, w))
        metrics.append(Mean(f"mean_score{said}", scores, rows, w, bounded))
    return make_table(
        criterion,
        metrics,
        groups,
        delta,
        tolerance,
        # Means cannot differ by more than distributions do.
        decisive=[f"score_distribution{said}" for said in among],
        weighted=w is not None,
        notes=(_BOUNDED if bounded else _UNBOUNDED,) if w is None else (),
    )


def rates_by_score(
    truth: Array,
    y_pred: ArrayLike,
    sensitive: MatrixLike,
    positive: Any,
    bins: Any,
    sample_weight: ArrayLike | None,
    delta: float,
    tolerance: float,
) -> GroupTable:
    """Share of positive truths among the rows of each bin of the scores."""
    found = scores_of("y_pred", y_pred)
    n = same_length(y_true=truth, y_pred=found)
    groups, w = groups_of(sensitive, n), weights_of(sample_weight, n)
    true = truth == _one_class(positive, truth)
    edges, place = _bins(bins, found)
    metrics, decisive = [], []
    for b, said in enumerate(_ranges(edges)):
        metrics.append(Share(f"positive_rate{said}", true, place == b, w))
        if len(np.unique(groups.members[place == b])) > 1:
            decisive.append(metrics[-1].metric)
    left = len(metrics) - len(decisive)
    note = f"{left} of {len(metrics)} bins contain fewer than two groups"
    return make_table(
        "sufficiency",
        metrics,
        groups,
        delta,
        tolerance,
        decisive=decisive,
        edges=edges,
        weighted=w is not None,
        notes=(note,) if left else (),
    )


def _one_class(positive: Any, truth: Array) -> Any:
    classes = classes_of(positive, y_true=truth)
    if len(classes) > 1:
        raise ValueError(
            f"y_true has {len(classes)} labels, but the scores are for one label; "
            "pass positive= to name it."
        )
    return classes[0]


def _ranges(edges: Array) -> list[str]:
    """Bins by their ends, with as many digits as tell them apart."""
    for digits in range(3, 18):
        ends = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(ends)) == len(ends):
            break
    return [f"[{low}–{high}]" for low, high in pairwise(ends)]


def _bins(bins: Any, scores: Array) -> tuple[Array, Array]:
    """Edges, and the bin of each score; the last bin holds its upper end."""
    if np.ndim(bins) == 0:
        bins = check_count("bins", bins)
        if scores.min() < 0 or scores.max() > 1:
            raise ValueError(
                f"scores lie between {scores.min():.6g} and {scores.max():.6g}; pass "
                "the edges of the bins, chosen without looking at the outcomes."
            )
        edges = np.linspace(0.0, 1.0, bins + 1)
    else:
        edges = scores_of("bins", bins)
        if len(edges) < 2 or (edges[1:] <= edges[:-1]).any():
            raise ValueError("bins must hold at least two edges in ascending order.")
        if scores.min() < edges[0] or scores.max() > edges[-1]:
            raise ValueError(
                f"scores lie between {scores.min():.6g} and {scores.max():.6g}, "
                "outside the bins. Widen the first and the last bin."
            )
    place = np.searchsorted(edges[1:-1], scores, side="right")
    return edges, np.asarray(place)
