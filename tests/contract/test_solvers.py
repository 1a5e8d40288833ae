"""One door for all convex solvers: ``solve(problem, start, limits) -> Solution``."""

import importlib
import inspect
import pkgutil
from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest

import certus._solvers
from certus._solvers import (
    block_newton,
    blocks,
    huber,
    lasso,
    least_squares,
    newton,
    quantile,
    svm,
    svm_descent,
    svm_hard,
    svm_sparse,
)
from certus._solvers import prox_newton as prox
from certus._solvers.blocks import BlockProblem
from certus._solvers.design import Design
from certus._solvers.interior import Kinked
from certus._solvers.lasso import QuadraticProblem
from certus._solvers.least_squares import LeastSquares
from certus._solvers.losses import HuberScale
from certus._solvers.newton import NewtonProblem, NewtonRows
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.svm_problem import SvmProblem, hinge_box
from certus._solvers.svm_problem import SVMRows as MachineRows
from certus.certificate import Status
from certus.objectives import Logistic, MultiTask, NonNegative, NoPenalty
from certus.objectives.terms import L1, L2

SOLVERS = [
    block_newton,
    blocks,
    huber,
    lasso,
    least_squares,
    newton,
    prox,
    quantile,
    svm,
    svm_descent,
    svm_hard,
    svm_sparse,
]


def test_the_list_is_complete() -> None:
    names = [m.name for m in pkgutil.iter_modules(certus._solvers.__path__)]
    homes = [importlib.import_module(f"certus._solvers.{name}") for name in names]
    own = [
        home
        for home in homes
        if getattr(getattr(home, "solve", None), "__module__", "") == home.__name__
    ]
    assert sorted(m.__name__ for m in own) == sorted(m.__name__ for m in SOLVERS)


@pytest.mark.parametrize("home", SOLVERS, ids=lambda home: home.__name__)
def test_every_solver_has_the_one_signature(home: object) -> None:
    solve = home.solve  # type: ignore[attr-defined]
    assert list(inspect.signature(solve).parameters) == ["problem", "start", "limits"]
    hints = get_type_hints(solve)
    assert hints["start"] is Start and hints["limits"] is SolverLimits
    assert issubclass(hints["return"], Solution)


def test_a_solution_has_typed_witnesses_and_no_untyped_store() -> None:
    names = [one.name for one in fields(Solution)]
    assert names == ["primal", "gap", "status", "n_iter", "dual", "direction"]


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    z = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=60)
    return X, z, np.where(z > 0, 1.0, -1.0)


def problems() -> list[tuple[object, object]]:
    X, y, label = data()
    ones, design = np.ones(60), Design(X, None, centre=False)
    numbers, labels = NewtonRows(X, y, ones, 60.0), NewtonRows(X, label, ones, 60.0)
    machine = MachineRows(X, ones, 1.0)
    kinked = quantile.KinkedRegression(numbers, Kinked(0.5, 0.5), L1(0.1), True)
    return [
        (blocks, BlockProblem(design, y[:, None], MultiTask(0.1))),
        (huber, huber.HuberProblem(numbers, HuberScale(1.35), 0.1, True)),
        (lasso, QuadraticProblem(design, y, L1(0.1))),
        (least_squares, LeastSquares(design, y[:, None], [L2(0.1)])),
        (newton, NewtonProblem(labels, Logistic(), L2(0.1), True)),
        (prox, prox.SparseProblem(labels, Logistic(), L1(0.1), True)),
        (quantile, kinked),
        (svm, SvmProblem(machine, hinge_box(label, False), L2(0.1), True)),
        (svm_sparse, svm_sparse.L1Machine(X, label, ones, 1.0, L1(0.1))),
    ]


@pytest.mark.parametrize("pair", problems(), ids=lambda pair: pair[0].__name__)
def test_every_solver_stops_on_request_and_at_its_target(pair: tuple) -> None:
    home, problem = pair
    seen: list[float] = []

    def stop(objective: float, gap: float, w: np.ndarray) -> Status:
        seen.append(gap)
        return Status.STOPPED

    if home is not least_squares:
        early = home.solve(problem, Start(), SolverLimits(1e-9, 100, stop))
        assert early.status is Status.STOPPED and seen
    found = home.solve(problem, Start(), SolverLimits(1e-8, 200))
    assert found.status is Status.SOLVED and found.gap <= 1e-8
    assert np.isfinite(found.primal).all()


def test_an_operation_that_a_penalty_lacks_is_named_before_the_first_step() -> None:
    X, y, label = data()
    ones, design = np.ones(60), Design(X, None, centre=False)
    rows = NewtonRows(X, label, ones, 60.0)
    with pytest.raises(
        NotImplementedError, match=r"blocks of coefficients. Use certus._solvers.block"
    ):
        QuadraticProblem(design, y, MultiTask(0.1))
    with pytest.raises(NotImplementedError, match=r"block descent .* missing: blocks"):
        BlockProblem(design, y[:, None], L1(0.1))
    with pytest.raises(NotImplementedError, match="needs a smooth penalty; L1"):
        NewtonProblem(rows, Logistic(), L1(0.1), True)
    with pytest.raises(NotImplementedError, match=r"proximal Newton .*missing: piece"):
        prox.SparseProblem(rows, Logistic(), MultiTask(0.1), True)
    for penalty in (NonNegative(0.1), MultiTask(0.1)):
        kinked = quantile.KinkedRegression(rows, Kinked(0.5, 0.5), penalty, True)
        with pytest.raises(NotImplementedError, match=r"interior point .* levels"):
            quantile.solve(kinked, Start(), SolverLimits(1e-6, 10))
    with pytest.raises(NotImplementedError, match="needs a smooth penalty; L1"):
        problem = LeastSquares(design, y[:, None], [L1(0.1)])
        least_squares.solve(problem, Start(), SolverLimits(1e-6, 10))
    machine = SvmProblem(MachineRows(X, ones, 1.0), hinge_box(label, True), L1(1), True)
    with pytest.raises(NotImplementedError, match="smooth penalty; L1"):
        svm.solve(machine, Start(), SolverLimits(1e-6, 10))
    assert least_squares.solve(
        LeastSquares(design, y[:, None], [NoPenalty()]), Start(), SolverLimits(1e-6, 1)
    ).method
