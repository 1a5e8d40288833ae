"""Copy a model from its answers, attack the copy, and try the attack on the model.

    f̃ fitted to (xₙ, f(xₙ)), n = 1 … queries;  x̂ worst for f̃, tried on f

A model that is linear in its scores, or in the logarithms of its probabilities, is
recovered exactly from d + 1 queries in general position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from certus.linear_model import LogisticRegression
from certus.robustness.judging import beside, chosen_attack, plain
from certus.robustness.pgd import PGD
from certus.robustness.recognise import as_target
from certus.robustness.target import Formula, LinearTarget, Target, class_numbers
from certus.threat import ThreatModel
from certus.typing import Array, ArrayLike, Fit, MatrixLike

#: How far from 1 the sums of scores may be that are read as probabilities.
SUMS = 1e-6
#: Share of the scores by which W x + b may miss them.
FITS = 1e-5


@dataclass(frozen=True)
class Stolen:
    """A copy of a model.

    Attributes
    ----------
    model : classifier or Target
        The copy; attacks take it as they take the model itself.
    queries : int
        Rows that the model was asked about.
    source : Target
        What was copied.
    """

    model: Any
    queries: int
    source: Target

    def predict(self, X: MatrixLike) -> Array:
        """Classes as the copy predicts them."""
        target = as_target(self.model, X)
        return target.classes[target.labels(np.asarray(X))]

    def agreement(self, X: MatrixLike) -> float:
        """Share of rows on which copy and model predict the same class."""
        X = np.asarray(X)
        same = self.predict(X) == self.source.classes[self.source.labels(X)]
        return float(np.mean(same))


def steal(model: Fit, X: MatrixLike, surrogate: Any = None) -> Stolen:
    """Copy a model from its answers on some rows.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        Anything that predicts classes; see :func:`as_target`.
    X : array-like
        Rows to ask about.
    surrogate : classifier, optional
        What is fitted to the predicted labels. By default scores W x + b, if the
        model's scores or the logarithms of its probabilities are such; else a logistic
        regression.

    Returns
    -------
    Stolen

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from certus.robustness import steal
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000).fit(X, y)
    >>> questions = np.random.default_rng(0).normal(X.mean(0), 1, (5, 4))
    >>> copy = steal(model, questions)
    >>> copy.queries, copy.agreement(X)
    (5, 1.0)
    >>> bool(np.allclose(copy.model.formula.W, model.coef_))
    True
    """
    target = as_target(model, X)
    X = np.asarray(X)
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
    if not len(X) or not np.isfinite(X).all():
        raise ValueError(
            "X must hold at least one row, and all numbers must be finite."
        )
    asked = target.queries
    copy: Any = None
    if surrogate is None and target.has_scores:
        copy = _linear(target, X)
    if copy is None:
        copy = _fitted(target, X, surrogate)
    return Stolen(copy, target.queries - asked, target)


def _fitted(target: Target, X: Array, surrogate: Fit) -> Any:
    """A classifier fitted to the labels."""
    labels = target.classes[target.labels(X)]
    if len(np.unique(labels)) < 2:
        raise ValueError(
            f"the model predicts {labels[0]!r} for all {len(X)} rows: pass rows that "
            "are farther apart."
        )
    if surrogate is None:
        return LogisticRegression().fit(X.reshape(len(X), -1), labels)
    return clone(surrogate).fit(X, labels)


def _linear(target: Target, X: Array) -> LinearTarget | None:
    """Scores W x + b by least squares, if they fit; the smallest if several do."""
    z = np.asarray(plain(target.scores(target.rows(X))), dtype=np.float64)
    if (z >= 0).all() and np.allclose(z.sum(axis=1), 1, atol=SUMS):
        # Half the smallest share stands for none.
        z = np.log(np.maximum(z, z[z > 0].min() / 2))
    flat = X.reshape(len(X), -1).astype(np.float64)
    # Centred rows of like spread: the solution does not depend on units.
    middle, spread = flat.mean(axis=0), flat.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    level = z.mean(axis=0)
    scaled = (flat - middle) / spread
    W = np.linalg.lstsq(scaled, z - level)[0].T
    if np.abs(scaled @ W.T + level - z).max() > FITS * np.abs(z).max():
        return None
    W = W / spread
    b = level - W @ middle

    def predict(X: Array) -> Array:
        scores = np.asarray(X, dtype=np.float64).reshape(len(X), -1) @ W.T + b
        return target.classes[np.argmax(scores, axis=1)]

    return LinearTarget(predict, target.classes, Formula(W, b))


@dataclass(frozen=True)
class Transfer:
    """An attack on a copy, whose rows are tried on the model.

    Parameters
    ----------
    copy : Stolen, classifier, nn.Module or Target
        What is attacked in place of the model.
    method : str or attack, default=PGD(stop=False)
        An attack that the copy admits; best one that goes on beyond the boundary.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from certus.robustness import ThreatModel, Transfer, attack, steal
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RandomForestClassifier(20, random_state=0).fit(X, y)
    >>> method = Transfer(steal(model, X))
    >>> attack(model, X, y, ThreatModel("linf", 0.5), method).accuracy < 0.8
    True
    """

    copy: Any
    method: Any = field(default_factory=lambda: PGD(stop=False))

    needs = "labels"

    def run(
        self,
        target: Target,
        X: MatrixLike,
        y: ArrayLike,
        threat: ThreatModel,
        rng: np.random.Generator,
    ) -> Any:
        """Changed rows."""
        X, y = plain(X), plain(y)
        model = self.copy.model if isinstance(self.copy, Stolen) else self.copy
        copy = as_target(model, X)
        copy.deadline = target.deadline
        method = chosen_attack(self.method, copy)
        numbers = class_numbers(target.classes[y], copy.classes)
        # A class that the copy has never seen has no score to lower.
        known = np.flatnonzero(numbers >= 0)
        X_hat = X.copy()
        if len(known):
            rows = copy.rows(X[known])
            beside_rows = beside(rows, numbers[known])
            found = method.run(copy, rows, beside_rows, threat, rng)
            X_hat[known] = plain(found)
        return X_hat
