"""Models over blocks that other processes read, and fits that go on from their passes.

The blocks travel by address and the work by name: what a model sends with them must be
data that another process, and a checkpoint, can hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import certus
from certus.blocks import totals
from certus.cluster import KMeans
from certus.decomposition import FactorAnalysis, ProbabilisticPCA
from certus.linear_model import HuberRegressor, RidgeCV
from certus.mixture import GaussianMixture
from certus.scale import Processes, blocks

MODELS = [
    FactorAnalysis(2),
    ProbabilisticPCA(2),
    RidgeCV(),
    RidgeCV(cv=3),
    HuberRegressor(),
    KMeans(3, random_state=0),
    GaussianMixture(3, random_state=0, covariance_type="diag"),
]


def rows_for(model: Any, n: int = 600) -> Any:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n, 4)) + 4 * rng.integers(0, 3, n)[:, None]
    y = X @ [1.0, 0.0, 2.0, -1.0] + rng.normal(size=n)
    linear = type(model).__module__.startswith("certus.linear_model")
    return blocks(X, y if linear else None, rows=90)


def refuse(*args: Any) -> Any:
    raise AssertionError("a pass was made again")


def bits(model: Any) -> bytes:
    found = [value for name, value in sorted(vars(model).items()) if name[-1] == "_"]
    numbers = [x for x in found if isinstance(x, np.ndarray | np.floating | float)]
    values = [c.value for c in model.certificate_.claims if c.name != "workers_agree"]
    return b"".join(np.asarray(x).tobytes() for x in [*numbers, np.array(values)])


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_other_processes_give_the_same_bits(model: Any) -> None:
    rows = rows_for(model)
    here = clone(model).fit(rows)
    with Processes(2) as engine, certus.config_context(engine=engine):
        there = clone(model).fit(rows)
    assert bits(here) == bits(there)
    assert there.certificate_["workers_agree"].met is True


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_sums_of_every_pass_are_read_from_the_checkpoint(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, path = rows_for(model), tmp_path / "passes"
    with certus.config_context(checkpoint=path, certify="never"):
        first = clone(model).fit(rows)
        monkeypatch.setattr(totals, "tree", refuse)  # no sum is taken again
        again = clone(model).fit(rows)
    for name in vars(first):
        if isinstance(getattr(first, name), np.ndarray):
            assert np.array_equal(getattr(first, name), getattr(again, name))
