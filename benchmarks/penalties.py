"""Rows of least squares with other penalties: non-negative, weighted, grouped, tasks.

Judged by the gap of ``certus.verify.check`` at the coefficients, like the lasso's rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.peers import Fit, Problem
from benchmarks.rows import LASSO_GAP, Contender, Row, ladder, ours
from certus.objectives import Group, MultiTask, NonNegative, Squared, WeightedL1

WIDTH = 10  # columns in a group


def gap_of(p: Problem, fit: Fit) -> float:
    """The verifier's number."""
    from certus.verify import check

    return float(check(fit.coef, None, p.terms, p.X, p.y, tol=LASSO_GAP).value or 0.0)


def _top(X: Any, y: Any) -> Any:
    return np.abs(X.T @ y) / len(y)


def _non_negative(scale: int) -> Problem:
    X, y = data.lasso_dense(scale)
    a = float((X.T @ y).max()) / len(y) / 20
    return Problem(X, y, (Squared(), NonNegative(a)), alpha=a, judge=gap_of)


def _levels(X: Any) -> Any:
    return np.geomspace(0.5, 2.0, X.shape[1])


def _weighted(scale: int) -> Problem:
    X, y = data.lasso_dense(scale)
    a = float((_top(X, y) / _levels(X)).max()) / 20
    terms = Squared(), WeightedL1(tuple((a * _levels(X)).tolist()))
    return Problem(X, y, terms, alpha=a, judge=gap_of)


def _grouped(ratio: float) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y = data.lasso_dense(scale)
        pull = _top(X, y).reshape(-1, WIDTH)
        a = float(np.linalg.norm(pull, axis=1).max()) / ratio
        numbers = tuple((np.arange(X.shape[1]) // WIDTH).tolist())
        return Problem(X, y, (Squared(), Group(a, numbers)), alpha=a, judge=gap_of)

    return problem


def _tasks(scale: int) -> Problem:
    X, y = data.lasso_dense(scale)
    rng = np.random.default_rng(5)
    W = np.zeros((X.shape[1], 10))
    W[rng.choice(len(W), 50, replace=False)] = rng.normal(size=(50, 10))
    Y = X @ W + rng.normal(size=(len(y), 10))
    a = float(np.linalg.norm(X.T @ Y, axis=1).max()) / len(y) / 20
    return Problem(X, Y, (Squared(), MultiTask(a)), alpha=a, judge=gap_of)


def _fit(model: Any, p: Problem) -> Fit:
    model.fit(p.X, p.y)
    certificate = getattr(model, "certificate_", None)
    seconds = None if certificate is None else float(certificate.seconds)
    return Fit(np.asarray(model.coef_), None, seconds)


def _model(library: str, kind: str) -> Any:
    """``fit(problem, tol)`` of a library; skglm's tol scales with alpha."""

    def fit(p: Problem, tol: float) -> Fit:
        options: dict[str, Any] = {"alpha": p.alpha, "fit_intercept": False}
        options["tol"] = tol * p.alpha if library == "skglm" else tol
        if library == "sklearn":
            options["max_iter"] = 100_000
            from sklearn import linear_model as home
        elif library == "skglm":
            import skglm as home
        else:
            from certus import linear_model as home
        if kind == "Lasso":
            options["positive"] = True
        elif kind == "WeightedLasso":
            options["weights"] = _levels(p.X)
        elif kind == "GroupLasso":
            options["groups"] = WIDTH
        return _fit(getattr(home, kind)(**options), p)

    return fit


def _contenders(kind: str, *others: str) -> tuple[Contender, ...]:
    rest = [Contender(name, _model(name, kind), ladder(-1, -9)) for name in others]
    return ours(_model("certus", kind), LASSO_GAP), *rest


ROWS: tuple[Row, ...] = (
    Row(
        "non-negative lasso 2,000 × 20,000, λmax/20",
        _non_negative,
        LASSO_GAP,
        _contenders("Lasso", "skglm", "sklearn"),
        (("skglm", 1.0),),
    ),
    Row(
        "weighted lasso 2,000 × 20,000, λmax/20",
        _weighted,
        LASSO_GAP,
        _contenders("WeightedLasso", "skglm"),
        (("skglm", 1.0),),
    ),
    Row(
        "group lasso 2,000 × 20,000, groups of 10, λmax/20",
        _grouped(20),
        LASSO_GAP,
        _contenders("GroupLasso", "skglm"),
        (("skglm", 1.0),),
    ),
    Row(
        "group lasso 2,000 × 20,000, groups of 10, λmax/100",
        _grouped(100),
        LASSO_GAP,
        _contenders("GroupLasso", "skglm"),
        (("skglm", 1.0),),
    ),
    Row(
        "multi-task lasso 2,000 × 20,000, 10 tasks, λmax/20",
        _tasks,
        LASSO_GAP,
        _contenders("MultiTaskLasso", "skglm", "sklearn"),
        (("best", 1.0),),
    ),
)
