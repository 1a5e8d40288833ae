"""Differential privacy of the tree: noise, budget, thresholds, and what is released."""

from __future__ import annotations

import copy
import datetime as dt
import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus.generative.row_tables import plain_table
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
        float(model.epsilon),
        *(model.spent_, model.columns_, model.state_, model.domains or {}),
    )


def fitted(**options: Any) -> TableSynthesizer:
    """A model whose record and arrays may be changed without harm."""
    model = TableSynthesizer(**{"epsilon": 1.0, "domains": DOMAINS} | options)
    model.fit(TABLE)
    for name in ("spent_", "columns_", "state_"):
        setattr(model, name, copy.deepcopy(getattr(model, name)))
    return model


def test_the_budget_adds_up_and_tables_follow_from_noisy_counts() -> None:
    model = fitted()
    assert math.fsum(line["epsilon"] for line in model.spent_) == pytest.approx(1.0)
    assert all(claim.met for claim in claims_of(model))
    assert model.certificate_.met and "released" in model.certificate_
    assert "δ" not in model.certificate_["privacy_budget"].detail


@pytest.mark.parametrize(
    "kind", ["range of age", "labels of sex", "counts of", "edge to", "pairs of"]
)
def test_dropped_and_repeated_steps_are_seen(kind: str) -> None:
    """What must be paid for follows from the model, not from its own record."""
    model = fitted(domains=None)
    assert all(claim.met for claim in claims_of(model))
    lines = [line for line in model.spent_ if line["what"].startswith(kind)]
    assert lines
    whole = model.spent_
    for gone in (lines, lines[:1]):
        model.spent_ = [line for line in whole if line not in gone]
        budget, _ = claims_of(model)
        assert budget.met is False and "0 times" in budget.detail
    # Twice as often for half the price each: the sum is what was asked for.
    half = lines[0] | {"epsilon": lines[0]["epsilon"] / 2}
    model.spent_ = [line for line in whole if line is not lines[0]] + [half, half]
    budget, _ = claims_of(model)
    assert budget.met is False and "2 times" in budget.detail


def test_steps_that_stand_in_for_others_are_seen() -> None:
    model = fitted(domains=None)
    whole = model.spent_
    pairs = [line for line in whole if line["what"].startswith("pairs of")]
    for what in ("counts of nothing", "counts of age"):
        others = [line | {"what": what} for line in pairs]
        model.spent_ = [line for line in whole if line not in pairs] + others
        assert claims_of(model)[0].met is False
    for mechanism in ("none", "exponential", "threshold"):
        model.spent_ = [line | {"mechanism": mechanism} for line in whole]
        assert claims_of(model)[0].met is False
    model.spent_ = [line | {"sensitivity": 0.5} for line in whole]
    assert claims_of(model)[0].met is False
    model.spent_ = [line | {"reach": 2} for line in whole]
    assert claims_of(model)[0].met is False  # labels of two rows would be shown
    model.spent_ = [line | {"epsilon": line["epsilon"] * 1.1} for line in whole]
    assert claims_of(model)[0].met is False


def test_shares_without_noise_are_seen_also_if_all_tables_fit_them() -> None:
    model = fitted()
    root = int(model.state_["order"][0])
    exact = np.bincount(
        module._codes(model.columns_[root], plain_table(TABLE).columns[root])
    )
    model.columns_[root]["shares"] = (exact + 1e-6) / (exact + 1e-6).sum()
    shares = [plan["shares"] for plan in model.columns_]
    model.state_["tables"] = module.fitted_tables(
        shares, model.state_["pair_counts"], model.state_["parents"]
    )
    budget, released = claims_of(model)
    assert budget.met and released.met is False


def moved(model: TableSynthesizer, fault: str) -> None:
    """Change one thing that is released."""
    age, sex, pay = model.columns_
    state = model.state_
    last = int(state["order"][-1])
    if fault == "table":
        state["tables"][last] = state["tables"][last][::-1].copy()
    elif fault == "root table":
        first = int(state["order"][0])
        state["tables"][first] = state["tables"][first][::-1].copy()
    elif fault == "fractions of pairs":  # not made by whole noise
        state["pair_counts"][last] = state["pair_counts"][last] + 0.5
    elif fault == "fractions":
        pay["counts"] = pay["counts"] + 0.5
    elif fault == "one count":
        pay["counts"] = pay["counts"] + np.eye(1, len(pay["counts"]), 5)[0] * 50
    elif fault == "levels":
        pay["levels"] = pay["levels"] ** 1.001
    elif fault == "knots":
        pay["knots"] = pay["knots"] + np.eye(1, len(pay["knots"]), 5)[0]
    elif fault == "missing":
        age["missing"] += 0.01
    elif fault == "digits":
        pay["digits"] = 2
    elif fault == "zone":
        pay["zone"] = "12,345 rows"
    elif fault == "ends":
        sex["ends"] = sex["ends"] ** 1.001
    elif fault == "labels":
        sex["labels"] = sex["labels"][::-1]  # an order that nobody paid for
    elif fault == "cells":
        state["cells"][last] = state["cells"][last] ** 1.001
    elif fault == "edges":
        pay["edges"] = pay["edges"] ** 1.001
    elif fault == "range":
        age["found"] = age["found"] * 0
    elif fault == "threshold":
        sex["found"] = sex["found"] * 0 + 1
    elif fault == "more":
        age["mean"] = 45.2
    elif fault == "more state":
        state["rows"] = np.arange(3)
    elif fault == "smoothing":
        state["smoothing"] = 2.5
    elif fault == "kind":
        pay["kind"] = "date"
    else:
        state["parents"] = np.zeros(3, dtype=int)


@pytest.mark.parametrize(
    "fault",
    [
        *("table", "root table", "fractions of pairs", "fractions", "one count"),
        *("levels", "knots", "missing", "digits", "zone", "ends", "labels", "cells"),
        *("edges", "range", "threshold", "more", "more state", "smoothing", "kind"),
        "parents",
    ],
)
def test_moved_numbers_are_seen(fault: str) -> None:
    model = fitted(domains=None, epsilon=10.0)
    assert all(claim.met for claim in claims_of(model))
    moved(model, fault)
    assert claims_of(model)[1].met is False


def test_given_domains_are_those_of_the_model() -> None:
    model = fitted()
    for domains in (
        DOMAINS | {"age": (0, 99)},
        DOMAINS | {"sex": ["M", "F"]},
        {name: DOMAINS[name] for name in ("age", "sex")},
    ):
        model.domains = domains
        assert not all(claim.met for claim in claims_of(model))


def test_every_kind_of_column_is_computed_again() -> None:
    n, rng = 500, np.random.default_rng(2)
    frame = pl.DataFrame(
        {
            "flag": rng.random(n) < 0.3,
            "day": [dt.date(2020, 1, 1) + dt.timedelta(int(k)) for k in range(n)],
            "time": [dt.datetime(2020, 1, 1, int(k) % 24) for k in range(n)],
            "few": [None, *rng.integers(0, 5, n - 1).tolist()],
            "none": pl.Series([None] * n, dtype=pl.String),
            "null": [None] * n,
            "unsigned": pl.Series(rng.integers(0, 9, n), dtype=pl.UInt8),
        }
    )
    for domains in (None, {"few": (0, 4), "day": (18_000, 19_000)}):
        model = TableSynthesizer(epsilon=3.0, domains=domains).fit(frame)
        assert model.certificate_.met, str(model.certificate_)
        made = model.sample(50)
        assert made.columns == frame.columns and made["none"].null_count() == 50
    single = TableSynthesizer(epsilon=0.5).fit(frame.select("few"))
    assert single.certificate_.met
    tiny = TableSynthesizer(epsilon=1e-15).fit(frame)
    assert tiny.certificate_.met and tiny.sample(5).height == 5


def test_one_row_does_not_change_the_kind_of_a_column() -> None:
    for dtype, cell in ((pl.String, "a"), (pl.Boolean, True), (pl.Date, dt.date.min)):
        kinds = set()
        for cells in ([None] * 20, [None] * 19 + [cell]):
            frame = pl.DataFrame({"x": pl.Series(cells, dtype=dtype)})
            model = TableSynthesizer(epsilon=1.0).fit(frame)
            kinds.add(model.columns_[0]["kind"])
        assert len(kinds) == 1


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
        *("comparison_", "examined_", "notes_", "n_rows_", "held_out_", "certificate_"),
    }
    kept = {"name", "dtype", "kind", "labels", "ends", "edges", "shares", "knots"}
    kept |= {"levels", "missing", "digits", "zone", "counts", "found"}
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
