"""Differential privacy of the tree: noise, budget, thresholds, and what is released."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus.synth import TableSynthesizer
from certus.synth import private as module
from certus.verify import privacy_claims

DOMAINS = {"age": (0, 100), "sex": ["F", "M"], "pay": (0.0, 50_000.0)}


def table(n: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return pl.DataFrame(
        {
            "age": np.round(45 + 10 * a).astype(int),
            "sex": np.where(rng.random(n) < 0.4, "F", "M"),
            "pay": np.exp(a + 8),
        }
    )


TABLE = table(3000)


def claims_of(model: TableSynthesizer) -> Any:
    return privacy_claims(
        float(model.epsilon), model.spent_, model.columns_, model.state_
    )


def test_the_budget_adds_up_and_tables_follow_from_noisy_counts() -> None:
    model = TableSynthesizer(epsilon=1.0, domains=DOMAINS).fit(TABLE)
    assert math.fsum(line["epsilon"] for line in model.spent_) == pytest.approx(1.0)
    assert all(claim.met for claim in claims_of(model))
    assert model.certificate_.met and "released" in model.certificate_
    assert "δ" not in model.certificate_["privacy_budget"].detail


@pytest.mark.parametrize("fault", ["spent", "noise", "table", "missing", "fraction"])
def test_planted_faults_are_seen(fault: str) -> None:
    model = TableSynthesizer(epsilon=1.0, domains=DOMAINS).fit(TABLE)
    model.spent_, model.state_ = map(copy.deepcopy, (model.spent_, model.state_))
    if fault == "spent":
        model.spent_[0]["epsilon"] += 0.1
    elif fault == "noise":
        model.spent_[1]["mechanism"] = "none"
    elif fault == "missing":
        model.spent_.pop(0)
    elif fault == "table":
        at = int(model.state_["order"][-1])
        model.state_["tables"][at] = model.state_["tables"][at][::-1].copy()
    else:  # counts with fractions were not made by whole noise
        at = int(model.state_["order"][-1])
        model.state_["pair_counts"][at] = model.state_["pair_counts"][at] + 0.5
    budget, released = claims_of(model)
    wrong = released if fault in ("table", "fraction") else budget
    assert wrong.met is False


def test_noise_has_the_stated_distribution() -> None:
    rng, epsilon = np.random.default_rng(0), 0.7
    noise = module._noise(rng, epsilon, 200_000)
    alpha = math.exp(-epsilon)
    for k in range(-3, 4):
        p = (1 - alpha) / (1 + alpha) * alpha ** abs(k)
        assert abs(np.mean(noise == k) - p) < 5 * math.sqrt(p / 200_000)


def test_a_label_of_one_row_stays_hidden() -> None:
    rare = TABLE.with_columns(
        pl.Series("sex", ["F"] * 1500 + ["M"] * 1499 + ["only one"])
    )
    model = TableSynthesizer(epsilon=2.0).fit(rare)
    plan = next(plan for plan in model.columns_ if plan["name"] == "sex")
    assert plan["labels"] == ["F", "M"]
    assert "only one" not in set(model.sample(2000)["sex"])
    detail = model.certificate_["privacy_budget"].detail
    assert model.certificate_.met and "δ" in detail


def test_a_large_budget_learns_the_table() -> None:
    model = TableSynthesizer(epsilon=200.0, domains=DOMAINS).fit(TABLE)
    made = model.sample(5000, random_state=0)
    assert abs(made["age"].mean() - TABLE["age"].mean()) < 1
    assert np.corrcoef(made["age"], made["pay"].log())[0, 1] > 0.7
    assert abs(float((made["sex"] == "F").mean()) - 0.4) < 0.05


def test_scores_of_edges_change_by_one_row_at_most() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, (60, 3))
    plans = [{"shares": rng.dirichlet(np.ones(3))} for _ in range(3)]
    more = np.vstack([codes, rng.integers(0, 3, (1, 3))])
    before, after = (module._scores(rows, plans, len(rows)) for rows in (codes, more))
    assert max(abs(before[e] - after[e]) for e in before) <= 1 + 1e-9


def test_files_hold_nothing_else_of_the_rows(tmp_path: Any) -> None:
    marked = TABLE.with_columns(pay=TABLE["pay"] * 0 + 12345.678901)
    model = TableSynthesizer(epsilon=1.0, domains=DOMAINS).fit(marked)
    assert set(vars(model)) == {
        *model.get_params(),
        *("columns_", "state_", "spent_", "model_", "form_", "flagged_"),
        *("comparison_", "examined_", "notes_", "n_rows_", "certificate_"),
    }
    kept = {"name", "dtype", "kind", "labels", "ends", "edges", "shares", "knots"}
    kept |= {"levels", "missing", "digits", "zone"}
    assert all(set(plan) <= kept for plan in model.columns_)
    assert model.certificate_.n_samples == 0 and model.n_rows_ is None
    path = model.save(tmp_path / "m.certus")
    assert b"12345.67" not in path.read_bytes()
    assert certus.load(path).sample(5).schema == TABLE.schema


def test_changes_that_void_the_guarantee_are_refused() -> None:
    for words, options in (
        ("subtract the noise", {"random_state": 0}),
        ("needs model", {"model": "cart"}),
        ("epsilon", {"epsilon": 0.0}),
        ("is not a column", {"domains": {"agee": (0, 1)}}),
        ("low < high", {"domains": {"age": (5, 5)}}),
    ):
        with pytest.raises(ValueError, match=words):
            TableSynthesizer(**{"epsilon": 1.0, **options}).fit(TABLE)
