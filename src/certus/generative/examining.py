"""Examine synthetic rows, whoever made them: copies, fidelity and use, with levels.

Nothing but rows is needed: those that a generator was fitted to, others of the same
kind that it never saw, and those that it made. Two classifiers are fitted here, one
that tells synthetic from held-out rows and one for the target; every number that
follows from the rows and from their answers is computed by the verifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from certus.base import check_number, generator_of
from certus.certificate import Claim, Strength
from certus.generative.examination import ColumnDistance, Examination
from certus.generative.row_tables import align, feature_matrix
from certus.tables import guess_task
from certus.tables.errors import TableError, did_you_mean
from certus.typing import Array, RandomState
from certus.verify import sample_claims, told_apart_claim, unprovable, useful_claim

__all__ = ["examine", "examine_with"]

#: Most rows that a classifier learns from, and fewest rows of either kind.
_LEARNT_FROM, _FEWEST = 10_000, 20


def examine(
    real: Any,
    holdout: Any,
    synthetic: Any,
    *,
    target: str | None = None,
    coin: float | None = None,
    delta: float = 0.05,
    random_state: RandomState = None,
) -> Examination:
    """Say whether synthetic rows are copies, how real they look, and how useful.

    It works on the rows of any generator. Held-out rows are needed: without rows that
    the generator never saw, nobody can say which nearness to training rows is usual.

    Parameters
    ----------
    real : frame, array or path
        The rows that the generator was fitted to.
    holdout : frame, array or path
        Rows of the same distribution that it never saw, about as many.
    synthetic : frame, array or path
        The rows that it made.
    target : str, optional
        A column to predict, for ``useful``; arrays have columns ``x0, x1, …``.
    coin : float, optional
        If each row was put into ``real`` by an independent coin, its probability. Only
        then do right guesses about membership bound ε of differential privacy.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. It counts for
        each claim alone.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    Examination
        With the claims ``memorised``, ``exact_copies``, ``holdout_unseen``,
        ``membership``, ``epsilon_floor``, ``told_apart``, ``columns_agree``,
        ``pairs_agree`` and ``useful``. "Indistinguishable" and "anonymous" are refused.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import examine
    >>> rng = np.random.default_rng(0)
    >>> real, holdout, fresh = (rng.normal(size=(400, 3)) for _ in range(3))
    >>> examine(real, holdout, fresh, random_state=0).flagged
    False
    >>> copied = np.vstack([fresh[:300], real[:100]])
    >>> found = examine(real, holdout, copied, random_state=0)
    >>> found.flagged, found.copies, found.p_value < 0.001
    (True, 100, True)
    """
    seed = int(generator_of(random_state).integers(2**31))
    return examine_with(
        *(real, holdout, synthetic), target=target, coin=coin, delta=delta, seed=seed
    )


def examine_with(
    real: Any,
    holdout: Any,
    synthetic: Any,
    *,
    target: str | None,
    coin: float | None,
    delta: float,
    seed: int,
) -> Examination:
    """Examine with a seed that is known; as :func:`examine`."""
    check_number("delta", delta, 0.0, 0.5, open_low=True)
    if coin is not None and not 0 < coin < 1:
        raise ValueError(f"coin must be a probability between 0 and 1, got {coin!r}.")
    columns = align(real=real, holdout=holdout, synthetic=synthetic)
    if target is not None and target not in columns:
        hint = did_you_mean(target, list(columns))
        raise TableError(f'There is no column "{target}" to predict.{hint}')
    near, laws, single, double = sample_claims(
        columns, delta=delta, coin=coin, seed=seed
    )
    rng = np.random.default_rng(seed)
    told, auc = _told_apart(columns, delta, rng)
    useful, scores = _useful(columns, target, delta, rng)
    found = near.memorised
    excess = found.share - found.expected
    sizes = [len(part) for part in next(iter(columns.values()))]
    return Examination(
        n_real=sizes[0],
        n_holdout=sizes[1],
        n_synthetic=sizes[2],
        nearest_share=found.share,
        p_value=found.above,
        excess_low=excess - found.half,
        excess_high=excess + found.half,
        copies=near.copies,
        copy_share=near.copy_share,
        holdout_copy_share=near.holdout_copy_share,
        copy_p_value=near.copy_p,
        membership_auc=near.auc,
        membership_low=near.auc_low,
        membership_high=near.auc_high,
        told_apart_auc=auc,
        real_score=scores[0],
        synthetic_score=scores[1],
        columns=tuple(ColumnDistance(*each) for each in single),
        pairs=tuple(ColumnDistance(*each) for each in double),
        target=target,
        coin=coin,
        delta=delta,
        seed=seed,
        claims=(*near.claims, told, *laws, useful, *unprovable()),
    )


def _told_apart(
    columns: Mapping[str, tuple[Array, ...]], delta: float, rng: np.random.Generator
) -> tuple[Claim, float | None]:
    """Fit on one half of held-out and synthetic rows, and judge the other half."""
    (_, hold, made), labels = feature_matrix(columns)
    n = min(len(hold), len(made), _LEARNT_FROM) // 2
    if n < _FEWEST:
        return _refused(
            "told_apart",
            f"a classifier needs {4 * _FEWEST} held-out and synthetic rows",
            "pass more rows",
        ), None
    hold, made = (part[rng.permutation(len(part))[: 2 * n]] for part in (hold, made))
    X = np.vstack([hold[:n], made[:n]])
    y = np.repeat([1, 0], n)
    model = _learnt(True, X, y, labels, rng)
    of_hold, of_made = (model.predict_proba(part[n:])[:, 1] for part in (hold, made))
    return told_apart_claim(of_hold, of_made, delta)


def _useful(
    columns: Mapping[str, tuple[Array, ...]],
    target: str | None,
    delta: float,
    rng: np.random.Generator,
) -> tuple[Claim, tuple[float | None, float | None]]:
    """Learn the target from training rows and from as many synthetic rows."""
    others = {name: parts for name, parts in columns.items() if name != target}
    none = (None, None)
    if target is None or not others:
        return _refused("useful", "no target was named", "pass target=..."), none
    y = columns[target]
    known = [_known(part) for part in y]
    rows = [np.flatnonzero(part) for part in known]
    if any(len(part) < _FEWEST for part in rows):
        told = f"the target is known in fewer than {_FEWEST} rows of a table"
        return _refused("useful", told, "pass more rows"), none
    classify = y[0].dtype == object or guess_task(y[0][known[0]]) == "classification"
    matrices, labels = feature_matrix(others)
    most = min(len(rows[0]), len(rows[2]), _LEARNT_FROM)
    said = []
    for which in (0, 2):
        chosen = rng.permutation(rows[which])[:most]
        X, goal = matrices[which][chosen], y[which][chosen]
        said.append(_predicted(X, goal, matrices[1], classify, labels, rng))
    truth = [np.array(part.tolist(), dtype=object) if classify else part for part in y]
    claim, found = useful_claim(target, truth[0], truth[1], said[0], said[1], delta)
    return claim, (found.real_score, found.synthetic_score)


def _refused(name: str, why: str, fix: str) -> Claim:
    return Claim(name, Strength.REFUSED, detail=why, fix=fix)


def _known(values: Array) -> Array:
    if values.dtype == object:
        return np.array([cell is not None for cell in values.tolist()])
    return ~np.isnan(values)


def _predicted(
    X: Array, y: Array, new: Array, classify: bool, labels: list[int], rng: Any
) -> Array:
    """Predictions of new rows; a constant if there is nothing to learn."""
    if not classify:
        return np.asarray(_learnt(False, X, y, labels, rng).predict(new))
    levels, codes = np.unique(y.astype(object), return_inverse=True)
    if len(levels) == 1:
        return np.full(len(new), levels[0], dtype=object)
    said = _learnt(True, X, codes, labels, rng).predict(new)
    return np.asarray(levels, dtype=object)[said]


def _learnt(classify: bool, X: Array, y: Array, labels: list[int], rng: Any) -> Any:
    """A boosted model; a column without any value in these rows is a constant."""
    from sklearn import ensemble

    name = "Classifier" if classify else "Regressor"
    model = getattr(ensemble, f"HistGradientBoosting{name}")(
        max_iter=60,
        max_leaf_nodes=15,
        early_stopping=False,
        categorical_features=labels or None,
        random_state=int(rng.integers(2**31)),
    )
    return model.fit(np.where(np.isnan(X).all(axis=0), 0.0, X), y)
