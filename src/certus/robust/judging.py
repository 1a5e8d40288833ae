"""``attack``: run an attack and count for oneself what it achieved.

The attacker is not the judge. Whatever rows an attack returns are brought back into the
ball and the box, in float64 and without slack; then the model predicts them anew, as
the user would let it, and that alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.base import generator_of
from certus.bounds import Interval, clopper_pearson
from certus.robust.attacks import PGD, DeepFool, OneStep, Worst
from certus.robust.recognise import as_target
from certus.robust.target import Array, Target, class_numbers
from certus.threat import ThreatModel

#: Attacks by name.
ATTACKS: dict[str, Any] = {
    "worst": Worst(),
    "one-step": OneStep(),
    "pgd": PGD(),
    "deepfool": DeepFool(),
}


@dataclass(frozen=True)
class Attacked:
    """What an attack achieved.

    Attributes
    ----------
    X_hat : ndarray
        Changed rows, all of them allowed; the row itself where the attack failed or
        where the model was wrong without it.
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
    """

    X_hat: Array
    right: Array
    fooled: Array
    distances: Array
    predicted: Array
    queries: int
    gradients: int

    @property
    def accuracy(self) -> float:
        """Share of rows that are predicted rightly, changed or not."""
        return float(np.mean(self.right & ~self.fooled))

    @property
    def success(self) -> float:
        """Share of the rows predicted rightly that were fooled; NaN if none was."""
        return float(np.mean(self.fooled[self.right])) if self.right.any() else np.nan

    def interval(self, delta: float = 0.05) -> Interval:
        """Where the accuracy under this attack lies for new rows."""
        wrong = len(self.right) - int(np.sum(self.right & ~self.fooled))
        return clopper_pearson(wrong, len(self.right), delta)


def attack(
    model: Any,
    X: Any,
    y: Any,
    threat: ThreatModel,
    method: Any = "pgd",
    *,
    random_state: Any = None,
) -> Attacked:
    """Change rows as far as the threat allows, so that the model gets them wrong.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        Anything that predicts classes; see :func:`as_target`.
    X, y : array-like
        Rows in raw units, and their true classes.
    threat : ThreatModel
        What is allowed.
    method : str or attack, default="pgd"
        ``"one-step"``, ``"pgd"``, ``"deepfool"``, or an object such as
        ``PGD(steps=100)``.
    random_state : int or Generator, optional
        For random starts.

    Returns
    -------
    Attacked

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.linear import LogisticRegression
    >>> from certus.robust import ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)
    >>> attack(model, X, y, ThreatModel("linf", 0.0)).accuracy == model.score(X, y)
    True
    >>> attack(model, X, y, ThreatModel("linf", 0.5)).accuracy < 0.9
    True
    """
    target, X, true = prepared(model, X, y, threat)
    before = target.labels(X)
    right = before == true
    X_hat, at = X.copy(), np.flatnonzero(right)
    asked, differentiated = target.queries, target.gradients
    if len(at) and threat.radius > 0:
        run = ATTACKS[method].run if isinstance(method, str) else method.run
        rows = target.rows(X[at])
        numbers = _like(rows, true[at])
        changed = run(target, rows, numbers, threat, generator_of(random_state))
        X_hat[at] = allowed(_plain(changed), X[at], threat)
    asked, differentiated = target.queries - asked, target.gradients - differentiated
    after = target.labels(X_hat)
    fooled = right & (after != true)
    X_hat[~fooled] = X[~fooled]
    if not threat.contains(X_hat, X).all():
        raise RuntimeError(
            "an attacked row left the ball or the box; please report it."
        )
    predicted = target.classes[np.where(fooled, after, before)]
    distances = threat.distances(X_hat.astype(np.float64), X.astype(np.float64))
    return Attacked(X_hat, right, fooled, distances, predicted, asked, differentiated)


def prepared(
    model: Any, X: Any, y: Any, threat: ThreatModel
) -> tuple[Target, Array, Array]:
    """The target, the rows as floating-point numbers, and the true class numbers."""
    if not isinstance(threat, ThreatModel):
        raise TypeError(f"threat must be a ThreatModel, got {threat!r}.")
    target = as_target(model, X)
    X = np.asarray(X)
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
    y = np.asarray(y).reshape(-1)
    if len(X) != len(y) or not len(X):
        raise ValueError(f"X and y need as many rows, and some: {len(X)} and {len(y)}.")
    if not np.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values; attacks need numbers.")
    threat.check_rows(X)
    return target, X, class_numbers(y, target.classes)


def allowed(X_hat: Array, X: Array, threat: ThreatModel) -> Array:
    """Rows of the dtype of X that the threat allows without slack, near to X_hat.

    Rounding may put a projection outside by the last digit: it is pulled back until
    it is not.
    """
    exact, kind = X.astype(np.float64), X.dtype
    wanted = np.where(np.isfinite(X_hat), X_hat, X).astype(np.float64)
    D = threat.project(wanted, exact) - exact
    shrink = 2.0 ** -(np.finfo(kind).nmant if kind.kind == "f" else 8)
    for k in range(1, 24):
        found = (exact + D).astype(kind)
        bad = ~threat.contains(found, X)
        if not bad.any():
            return found
        D[bad] *= 1 - min(1.0, shrink * 2**k)
    found[bad] = X[bad]
    return found


def _plain(X: Any) -> Array:
    return X.detach().cpu().numpy() if hasattr(X, "detach") else np.asarray(X)


def _like(rows: Any, numbers: Array) -> Any:
    """Class numbers beside the rows: a tensor for tensors."""
    if isinstance(rows, np.ndarray):
        return numbers
    import torch

    return torch.as_tensor(numbers, device=rows.device)
