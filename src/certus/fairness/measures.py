"""The three criteria, measured on decisions: who is chosen, wrongly or rightly.

    independence   D ⊥ A        P(D = 1 | A = a) equal across groups
    separation     D ⊥ A | Y    P(D = 1 | Y = y, A = a) equal across groups
    sufficiency    Y ⊥ A | D    P(Y = 1 | D = d, A = a) equal across groups

D is the decision, Y the truth, A the sensitive attribute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.fairness.table import Array, Count, GroupTable, make_table


def independence(
    y_pred: Any,
    sensitive: Any,
    *,
    positive: Any = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """How often each group is chosen (demographic parity).

    Parameters
    ----------
    y_pred : array-like of shape (n_samples,)
        Decisions.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several: then groups are combinations of their values.
    positive : label, optional
        The decision that counts as chosen; of two, the larger by default. With more
        than two, each has its own row.
    delta : float, default=0.05
        Probability that any interval is wrong.
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
    'too few rows to say whether independence holds'
    """
    y_pred = np.asarray(y_pred)
    labels, members = groups_of(sensitive, len(y_pred))
    everyone = np.ones(len(y_pred), dtype=bool)
    counts = [
        Count(f"selection_rate{said}", y_pred == c, everyone)
        for c, said in _classes(positive, y_pred)
    ]
    return make_table("independence", counts, labels, members, delta, tolerance)


def separation(
    y_true: Any,
    y_pred: Any,
    sensitive: Any,
    *,
    positive: Any = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """How often each group is chosen among those with the same truth (equalised odds).

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Truths and decisions.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several.
    positive : label, optional
        The decision that counts as chosen.
    delta, tolerance : float, default=0.05
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
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    labels, members = groups_of(sensitive, len(y_pred))
    counts = []
    for c, said in _classes(positive, y_true, y_pred):
        chosen, true = y_pred == c, y_true == c
        counts.append(Count(f"true_positive_rate{said}", chosen, true))
        counts.append(Count(f"false_positive_rate{said}", chosen, ~true))
    return make_table("separation", counts, labels, members, delta, tolerance)


def sufficiency(
    y_true: Any,
    y_pred: Any,
    sensitive: Any,
    *,
    positive: Any = None,
    delta: float = 0.05,
    tolerance: float = 0.05,
) -> GroupTable:
    """How often a decision is right in each group (predictive parity).

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Truths and decisions.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several.
    positive : label, optional
        The decision that counts as chosen.
    delta, tolerance : float, default=0.05
        As for :func:`independence`.

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
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    labels, members = groups_of(sensitive, len(y_pred))
    counts = []
    for c, said in _classes(positive, y_true, y_pred):
        chosen, true = y_pred == c, y_true == c
        counts.append(Count(f"positive_predictive_value{said}", true, chosen))
        counts.append(Count(f"negative_predictive_value{said}", ~true, ~chosen))
    return make_table("sufficiency", counts, labels, members, delta, tolerance)


def groups_of(sensitive: Any, n: int) -> tuple[tuple[Any, ...], Array]:
    """The groups that occur, and the number of each row's group."""
    columns = np.asarray(sensitive, dtype=object)
    columns = columns.reshape(len(columns), -1)
    if len(columns) != n:
        raise ValueError(f"sensitive has {len(columns)} rows, the decisions have {n}.")
    seen: dict[Any, int] = {}
    names = [row[0] if len(row) == 1 else tuple(row) for row in columns]
    for name in sorted(set(names), key=str):
        seen[name] = len(seen)
    return tuple(seen), np.array([seen[name] for name in names], dtype=int)


def _classes(positive: Any, *labels: Array) -> list[tuple[Any, str]]:
    """Classes that get rows of their own, and what is added to a metric's name."""
    found = np.unique(np.concatenate(labels))
    if positive is not None:
        if positive not in found:
            raise ValueError(f"positive={positive!r} does not occur among the labels.")
        return [(positive, "")]
    if len(found) <= 2:
        return [(found[-1], "")]
    return [(c, f"[{c}]") for c in found]
