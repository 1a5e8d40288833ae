"""``attack``: run an attack and count independently what it achieved.

The attack does not judge itself. The rows that it returns are projected onto the ball
and the box, in float64 and without slack; then the model's own ``predict`` decides.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.base import check_number, generator_of
from certus.bounds import Interval, clopper_pearson
from certus.config import get_config
from certus.results import TableResult
from certus.robustness.attacks import DeepFool, OneStep, Worst
from certus.robustness.black_box import Search
from certus.robustness.boundary import Boundary
from certus.robustness.pgd import PGD
from certus.robustness.recognise import as_target, numbers_of, true_numbers
from certus.robustness.target import OutOfTime, Target
from certus.threat import ThreatModel, farthest, row_norms
from certus.typing import Array, ArrayLike, Column, Fit, MatrixLike, Places, RandomState

#: Attacks by name.
ATTACKS: dict[str, Any] = {
    "worst": Worst(),
    "one-step": OneStep(),
    "pgd": PGD(),
    "deepfool": DeepFool(),
    "search": Search(),
    "boundary": Boundary(),
}


@dataclass(frozen=True, repr=False)
class Attacked(TableResult):
    """The result of an attack.

    Attributes
    ----------
    X_hat : ndarray
        Changed rows, all of them allowed; the row itself where the attack failed or
        where the model was wrong without it.
    changes : ndarray
        x̂ − x.
    right : ndarray of bool
        Whether the model predicts the true class without any change.
    fooled : ndarray of bool
        Whether it was right and is wrong on the changed row.
    distances : ndarray
        ‖x̂ − x‖ in the norm of the threat.
    predicted : ndarray
        Classes of the changed rows.
    queries, gradients : int
        Rows for which the attack asked labels or scores, and rows differentiated.
    tried : ndarray of bool
        False for rows that were to be attacked when it was stopped; they count as not
        fooled.
    note : str
        Why no more of the model was known than was used, where that is so.
    """

    X_hat: Array
    changes: Array
    right: Array
    fooled: Array
    distances: Array
    predicted: Array
    queries: int
    gradients: int
    tried: Array
    note: str = ""

    @property
    def accuracy(self) -> float:
        """Share of rows that are predicted correctly, changed or not."""
        return float(np.mean(self.right & ~self.fooled))

    @property
    def success(self) -> float:
        """Share of the correctly predicted rows that were fooled; NaN if none was."""
        return float(np.mean(self.fooled[self.right])) if self.right.any() else np.nan

    @property
    def verdict(self) -> str:
        """What was achieved, in a sentence."""
        right, fooled = int(self.right.sum()), int(self.fooled.sum())
        clean, kept = float(np.mean(self.right)), self.accuracy
        said = (
            f"{fooled:,} of {right:,} correctly predicted rows are fooled: accuracy "
            f"{100 * kept:.1f} % ({100 * clean:.1f} % without changes)"
        )
        left = int(np.sum(~self.tried))
        return f"{said}; {left:,} rows were not tried in time" if left else said

    def __repr__(self) -> str:
        asked = f"{self.queries:,} queries and {self.gradients:,} gradients"
        note = f"\n  {self.note}" if self.note else ""
        return f"{self.verdict}\n  {asked} of single rows{note}"

    def interval(self, delta: float = 0.05) -> Interval:
        """Where the error under this attack lies for new rows."""
        wrong = len(self.right) - int(np.sum(self.right & ~self.fooled))
        return clopper_pearson(wrong, len(self.right), delta)

    def _columns(self) -> Mapping[str, Array]:
        names = ("right", "fooled", "distances", "predicted", "tried")
        return {name: getattr(self, name) for name in names}


def attack(
    model: Fit,
    X: MatrixLike,
    y: Column,
    threat: ThreatModel,
    method: Any = "auto",
    *,
    random_state: RandomState = None,
    max_time: float | None = None,
) -> Attacked:
    """Change rows as far as the threat allows, so that the model gets them wrong.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        Anything that predicts classes; see :func:`as_target`.
    X : array-like
        Rows in raw units.
    y : array-like or None
        Their true classes; None for what the model predicts itself.
    threat : ThreatModel
        What is allowed.
    method : str or attack, default="auto"
        ``"worst"``, ``"one-step"``, ``"pgd"``, ``"deepfool"``, ``"search"``,
        ``"boundary"``, or an object such as ``PGD(steps=100)``. By default the
        strongest that the model admits: the exact worst for linear models, PGD where
        there are gradients, a search where there are scores, a walk along the boundary
        where there are labels alone.
    random_state : int or Generator, optional
        Seed or generator of all random numbers. They decide random starts.
    max_time : float, optional
        Seconds after which no further rows are attacked. Ctrl-C does the same with
        ``certus.set_config(on_interrupt="return")``, and else ends the call.

    Returns
    -------
    Attacked

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.linear_model import LogisticRegression
    >>> from certus.robustness import ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)
    >>> attack(model, X, y, ThreatModel("linf", 0.0)).accuracy == model.score(X, y)
    True
    >>> attack(model, X, y, ThreatModel("linf", 0.5)).accuracy < 0.9
    True
    """
    check_number("max_time", max_time, none=True)
    deadline = math.inf if max_time is None else time.perf_counter() + max_time
    target, X, true, threat = prepared(model, X, y, threat)
    trial = _Trial(target, threat, X, true)
    chosen = chosen_attack(method, target)
    if threat.radius == 0:
        trial.before[:] = trial.after[:] = target.labels(X)
        trial.tried[:] = True
    else:
        trial.run(chosen, generator_of(random_state), deadline)
    return trial.judged()


class _Trial:
    """An attack in progress: what is predicted before and after it, by parts."""

    def __init__(
        self, target: Target, threat: ThreatModel, X: Array, true: Array
    ) -> None:
        self.target, self.threat, self.X, self.true = target, threat, X, true
        self.X_hat, self.tried = X.copy(), np.zeros(len(X), dtype=bool)
        self.before, self.after = true.copy(), true.copy()
        self.queries = self.gradients = 0
        self.stopped = False

    def run(self, chosen: Places, rng: np.random.Generator, deadline: float) -> None:
        """Attack the rows that are predicted correctly, and predict them again."""
        target, together = self.target, self.target.together
        for start in range(0, len(self.X), together):
            part = slice(start, start + together)
            numbers, rows = target.begin(self.X[part], self.true[part])
            self.before[part] = self.after[part] = numbers
            at = start + np.flatnonzero(numbers == self.true[part])
            self.tried[part] = True
            if not len(at):
                continue
            y = beside(rows, self.true[at])
            changed = self._attempt(chosen, rows, y, rng, deadline)
            if self.stopped:
                self.tried[at] = False
                continue
            X = self.X[at]
            self.X_hat[at] = allowed(_returned(changed, X), X, self.threat)
            self.after[at] = target.labels(self.X_hat[at])

    def _attempt(
        self,
        chosen: Any,
        rows: Any,
        y: Column,
        rng: np.random.Generator,
        deadline: float,
    ) -> Any:
        """The rows that the attack returns, unless it is stopped before."""
        target = self.target.lent()
        counts = target.queries, target.gradients
        target.deadline = deadline
        try:
            if not self.stopped:
                target.check_time()
                return chosen.run(target, rows, y, copy.deepcopy(self.threat), rng)
        except OutOfTime:
            self.stopped = True
        except KeyboardInterrupt:
            if get_config()["on_interrupt"] == "raise":
                raise
            self.stopped = True
        finally:
            self.queries += target.queries - counts[0]
            self.gradients += target.gradients - counts[1]
        return None

    def judged(self) -> Attacked:
        """The original rows, with those replaced that fooled the model."""
        right = self.before == self.true
        fooled = right & (self.after != self.true)
        self.X_hat[~fooled] = self.X[~fooled]
        changes = self.X_hat.astype(np.float64) - self.X
        return Attacked(
            X_hat=self.X_hat,
            changes=changes,
            right=right,
            fooled=fooled,
            distances=row_norms(changes, self.threat.norm),
            predicted=self.target.classes[np.where(fooled, self.after, self.before)],
            queries=self.queries,
            gradients=self.gradients,
            tried=self.tried,
            note=self.target.note,
        )


def relative_robustness(
    model: Fit,
    X: MatrixLike,
    y: Column = None,
    *,
    norm: float | str = "l2",
    low: ArrayLike | None = -math.inf,
    high: ArrayLike | None = math.inf,
    method: Any = "deepfool",
    random_state: RandomState = None,
) -> float:
    """ρ = mean of ‖r(x)‖/‖x‖; r(x) is the smallest change found that alters the class.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        Anything that predicts classes; see :func:`as_target`.
    X : array-like
        Rows in raw units, none of them 0.
    y : array-like, optional
        True classes: only correctly predicted rows count. By default all do, and the
        class to be altered is the predicted one.
    norm : {"l1", "l2", "linf"} or float
        Of the change and of the row.
    low, high : float or array-like
        Smallest and largest valid value of each entry.
    method : str or attack, default="deepfool"
        An attack that looks for small changes.
    random_state : int or Generator, optional
        Seed or generator of all random numbers. They serve attacks that draw.

    Returns
    -------
    float
        An upper bound of the true ρ, as the changes are found and not proved to be the
        smallest; inf if the class of some row could not be altered.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.robustness import relative_robustness
    >>> X = np.array([[1.0, 0.0], [2.0, 5.0]])
    >>> rho = relative_robustness(lambda X: X[:, 0] * 1.0, X, method="boundary")
    >>> bool(abs(rho - (1 + 2 / np.sqrt(29)) / 2) < 0.01)
    True
    """
    threat = ThreatModel(norm, math.inf, low, high)
    found = attack(model, X, y, threat, method, random_state=random_state)
    at = np.flatnonzero(found.right)
    sizes = row_norms(np.asarray(X, dtype=np.float64)[at], threat.norm)
    if not len(at) or not sizes.all():
        raise ValueError(
            "ρ divides by ‖x‖ of the correctly predicted rows: there must be at "
            "least one, and none may be 0."
        )
    if not found.fooled[at].all():
        return math.inf
    return float(np.mean(found.distances[at] / sizes))


def prepared(
    model: Fit, X: MatrixLike, y: Column, threat: ThreatModel
) -> tuple[Target, Array, Array, ThreatModel]:
    """Target, rows as floating-point numbers, true class numbers, and the threat."""
    if not isinstance(threat, ThreatModel):
        raise TypeError(
            f"threat must be a ThreatModel such as ThreatModel('linf', 0.1), got "
            f"{threat!r}."
        )
    given, X = X, numbers_of(X)
    target = as_target(model, given)
    threat.check_rows(X)
    true = target.labels(X) if y is None else true_numbers(y, len(X), target)
    return target, X, true, threat.rounded(X)


def chosen_attack(method: Any, target: Target) -> Any:
    """The attack of a name, if it can be used on this target."""
    if isinstance(method, str):
        known = {**ATTACKS, "auto": ATTACKS[_strongest(target)]}
        if method not in known:
            raise ValueError(
                f"method must be one of {', '.join(sorted(known))} or an attack such "
                f"as PGD(steps=100), got {method!r}."
            )
        method = known[method]
    if not callable(getattr(method, "run", None)) or isinstance(method, type):
        raise TypeError(
            f"an attack must have a method run(target, X, y, threat, rng); {method!r} "
            "has none."
        )
    needs = getattr(method, "needs", "labels")
    if not _admits(target)[needs]:
        name = {"formula": "scores W x + b"}.get(needs, needs)
        raise ValueError(
            f"{type(method).__name__} needs {name}, which this model does not give: "
            f"use method={_strongest(target)!r}."
        )
    return method


def _admits(target: Target) -> dict[str, bool]:
    return {
        "formula": target.formula is not None,
        "gradients": target.has_gradients,
        "scores": target.has_scores,
        "labels": True,
    }


def _strongest(target: Target) -> str:
    """The name of the strongest attack that can be used on a target."""
    names = dict(formula="worst", gradients="pgd", scores="search", labels="boundary")
    return next(names[need] for need, has in _admits(target).items() if has)


def allowed(X_hat: Array, X: Array, threat: ThreatModel) -> Array:
    """Rows of the dtype of X that the threat allows without slack, near to X_hat.

    Rounding may put a projection outside by the last digit; then it is pulled back.
    """
    exact, kind = X.astype(np.float64), X.dtype
    most = farthest(X)
    if not np.abs(X_hat).max(initial=0.0) <= most:
        near = np.clip(X_hat, np.minimum(exact, -most), np.maximum(exact, most))
        X_hat = np.where(np.isfinite(X_hat), near, exact)
    D = threat.project(X_hat, exact) - exact
    shrink = 2.0 ** -np.finfo(kind).nmant
    for k in range(1, 24):
        found = (exact + D).astype(kind)
        bad = ~threat.contains(found, X)
        if not bad.any():
            return found
        D[bad] *= 1 - min(1.0, shrink * 2**k)
    found[bad] = X[bad]
    return found


def _returned(changed: ArrayLike, X: Array) -> Array:
    """Check that an attack returned one changed row for each row."""
    try:
        found = plain(changed)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != X.shape or found.dtype.kind not in "fiu":
        raise ValueError(
            f"the attack must return changed rows of shape {X.shape}, got a "
            f"{type(changed).__name__} of shape {found.shape}."
        )
    return found.astype(np.float64)


def plain(X: MatrixLike) -> Array:
    """Tensors as NumPy arrays."""
    return X.detach().cpu().numpy() if hasattr(X, "detach") else np.asarray(X)


def beside(rows: Array, numbers: Array) -> Any:
    """Class numbers beside the rows: a tensor for tensors."""
    if isinstance(rows, np.ndarray):
        return numbers
    import torch

    return torch.as_tensor(numbers, device=rows.device)
