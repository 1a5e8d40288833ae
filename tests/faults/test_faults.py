"""The run of planted faults can find one: its cases, its changes and its verdicts."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from certus.certificate import Claim, Strength
from faults import cases, mutate, run

SOME = Path(run.SOURCES) / "_solvers" / "gram.py"


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_every_case_is_solved_without_a_fault(case: cases.Case) -> None:
    model = case.fit()
    value = cases.stated(model.certificate_)
    assert value is not None and case.excess(model) <= value


@pytest.mark.parametrize("case", cases.CONVEX, ids=lambda case: case.name)
def test_no_point_near_the_solution_of_a_case_is_better(case: cases.Case) -> None:
    """Else a point near it would be better."""
    model = case.fit()
    case.excess(model)
    rng = np.random.default_rng(0)
    best = np.array(model.coef_)
    for size in (1e-2, 1e-3):
        for _ in range(4):
            step = size * rng.normal(size=best.shape)
            model.coef_ = best + step
            if model.get_params().get("positive"):
                model.coef_ = np.maximum(model.coef_, 0)
            assert case.excess(model) > -1e-9


def test_changes_are_drawn_and_made() -> None:
    found = mutate.faults_of(SOME, "_solvers/gram.py", lambda line: True)
    assert len({fault.kind for fault in found}) >= 5
    before = compile(ast.parse(SOME.read_text("utf-8")), str(SOME), "exec")
    for fault in found:
        assert mutate.broken(SOME, fault.number) != before


def lying(value: float) -> Any:
    claim = Claim("duality_gap", Strength.PROVED, value, 1e-6, value <= 1e-6)
    return SimpleNamespace(claims=[claim])


@pytest.mark.parametrize(
    ("value", "excess", "verdict"),
    [
        (1e-9, 1e-10, "harmless"),
        (1e-9, 1e-7, "false proof"),
        (1e-9, np.inf, "false proof"),
        (1e-3, 1e-2, "caught"),
    ],
)
def test_verdicts(value: float, excess: float, verdict: str) -> None:
    fitted = SimpleNamespace(certificate_=lying(value))
    case = cases.CASES[0]
    stub = SimpleNamespace(
        name=case.name,
        params=case.params,
        fit=lambda: fitted,
        excess=lambda model: excess,
    )
    assert run.judge(stub)[0] == verdict


def test_one_false_proof_outweighs_everything() -> None:
    fault = mutate.Fault("_solvers/gram.py", 1, "sign", "x", 0)
    answer = [["caught", "a"], ["false proof", "b"], ["error", "c"]]
    found = run.outcome(fault, answer)
    assert (found.verdict, found.note) == ("false proof", "b")
    assert "false proof: _solvers/gram.py:1" in run.table([found], 1)
