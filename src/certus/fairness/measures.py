"""The criteria of fairness, measured on decisions or on scores.

    independence   R ⊥ A        who is chosen, or the scores, alike across groups
    separation     R ⊥ A | Y    alike among those with the same truth
    sufficiency    Y ⊥ A | R    the truth alike among those decided or scored alike

R is the decision or score, Y the truth, A the sensitive attribute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.fairness.cells import Share
from certus.fairness.groups import (
    are_scores,
    classes_of,
    groups_of,
    labels_of,
    same_length,
    scores_of,
    weights_of,
)
from certus.fairness.scored import of_scores, rates_by_score
from certus.fairness.table import GroupTable, make_table
from certus.typing import ArrayLike, MatrixLike


def independence(
    y_pred: ArrayLike,
    sensitive: Any,
    *,
    scores: bool | None = None,
    positive: Any = None,
    sample_weight: Any = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """Compare how often each group is chosen, or its scores (demographic parity).

    Of decisions, ``selection_rate`` is P(D = 1 | A = a). Of scores,
    ``score_distribution`` is Kolmogorov and Smirnov's distance, which bounds how far
    selection rates can differ at any threshold.

    Parameters
    ----------
    y_pred : array-like of shape (n_samples,)
        Decisions, or scores.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several: then groups are combinations of their values. Rows
        where it is missing make a group of their own.
    scores : bool, optional
        Whether ``y_pred`` holds scores; by default, if a number in it is not whole.
    positive : label, optional
        The decision that counts as chosen; of two, the larger by default. With more
        than two, each has its own row.
    sample_weight : array-like of shape (n_samples,), optional
        Row weights. No intervals are stated then.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is that all intervals hold.
    tolerance : float, default=0.05
        Differences up to it count as none.

    Returns
    -------
    GroupTable

    Examples
    --------
    >>> from certus.fairness import independence
    >>> table = independence([1, 1, 0, 0], ["a", "a", "b", "b"])
    >>> table["selection_rate"]
    {'a': 1.0, 'b': 0.0}
    >>> table.verdict
    'too few rows to say whether independence holds (about 15 needed)'
    """
    if are_scores(y_pred, scores):
        found = scores_of("y_pred", y_pred)
        everyone = {"": np.ones(len(found), dtype=bool)}
        return of_scores(
            "independence", found, everyone, sensitive, sample_weight, delta, tolerance
        )
    chosen = labels_of("y_pred", y_pred)
    n = len(chosen)
    groups, w = groups_of(sensitive, n), weights_of(sample_weight, n)
    classes = classes_of(positive, y_pred=chosen)
    metrics = [
        Share(f"selection_rate{_of(c, classes)}", chosen == c, np.ones(n, bool), w)
        for c in classes
    ]
    return make_table(
        "independence", metrics, groups, delta, tolerance, weighted=w is not None
    )


def separation(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive: MatrixLike,
    *,
    scores: bool | None = None,
    positive: Any = None,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """Compare groups among rows with the same true label (equalised odds).

    Of decisions, ``true_positive_rate`` is P(D = 1 | Y = 1, A = a) and
    ``false_positive_rate`` is P(D = 1 | Y = 0, A = a). Of scores, the distance between
    distributions within each true class.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Truths, and decisions or scores.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several.
    scores, positive, sample_weight, delta, tolerance
        As for :func:`independence`.

    Returns
    -------
    GroupTable

    Examples
    --------
    >>> from certus.fairness import separation
    >>> table = separation([1, 0, 1, 0], [1, 0, 0, 0], ["a", "a", "b", "b"])
    >>> table["true_positive_rate"]
    {'a': 1.0, 'b': 0.0}
    """
    truth = labels_of("y_true", y_true)
    if are_scores(y_pred, scores):
        found = scores_of("y_pred", y_pred)
        same_length(y_true=truth, y_pred=found)
        labels = np.unique(truth)
        classes_of(None, y_true=truth)  # too many make no classes
        among = {f"[y={c}]": truth == c for c in labels}
        return of_scores(
            "separation", found, among, sensitive, sample_weight, delta, tolerance
        )
    chosen = labels_of("y_pred", y_pred)
    n = same_length(y_true=truth, y_pred=chosen)
    groups, w = groups_of(sensitive, n), weights_of(sample_weight, n)
    classes = classes_of(positive, y_true=truth, y_pred=chosen)
    metrics = []
    for c in classes:
        metrics += [
            Share(f"true_positive_rate{_of(c, classes)}", chosen == c, truth == c, w),
            Share(f"false_positive_rate{_of(c, classes)}", chosen == c, truth != c, w),
        ]
    return make_table(
        "separation", metrics, groups, delta, tolerance, weighted=w is not None
    )


def sufficiency(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive: MatrixLike,
    *,
    scores: bool | None = None,
    positive: Any = None,
    bins: Any = 10,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """Compare how often decisions are right in each group, or what a score means there.

    Of decisions, ``positive_predictive_value`` is P(Y = 1 | D = 1, A = a) and
    ``negative_predictive_value`` is P(Y = 0 | D = 0, A = a). Of scores,
    ``positive_rate`` is P(Y = 1 | R in the bin, A = a). Groups may be scored
    differently within a bin; narrow bins keep that from looking like a gap.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Truths, and decisions or scores.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several.
    scores, positive, sample_weight, delta, tolerance
        As for :func:`independence`.
    bins : int or array of edges, default=10
        Bins of the scores: their number, for equal widths over [0, 1], or their edges.
        They must not be chosen by the outcomes.

    Returns
    -------
    GroupTable

    Examples
    --------
    >>> from certus.fairness import sufficiency
    >>> table = sufficiency([1, 0, 1, 0], [1, 1, 1, 0], ["a", "a", "b", "b"])
    >>> table["positive_predictive_value"]
    {'a': 0.5, 'b': 1.0}
    """
    truth = labels_of("y_true", y_true)
    if are_scores(y_pred, scores):
        return rates_by_score(
            truth, y_pred, sensitive, positive, bins, sample_weight, delta, tolerance
        )
    chosen = labels_of("y_pred", y_pred)
    n = same_length(y_true=truth, y_pred=chosen)
    groups, w = groups_of(sensitive, n), weights_of(sample_weight, n)
    classes = classes_of(positive, y_true=truth, y_pred=chosen)
    metrics = []
    for c in classes:
        of, true, d = _of(c, classes), truth == c, chosen == c
        metrics += [
            Share(f"positive_predictive_value{of}", true, d, w),
            Share(f"negative_predictive_value{of}", ~true, ~d, w),
        ]
    return make_table(
        "sufficiency", metrics, groups, delta, tolerance, weighted=w is not None
    )


def _of(label: Any, classes: list[Any]) -> str:
    return f"[{label}]" if len(classes) > 1 else ""
