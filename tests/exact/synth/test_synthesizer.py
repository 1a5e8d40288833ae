"""Tables in, tables out: types, gaps, atoms, conditions, imputation, and the choice."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import ks_2samp
from sklearn.datasets import load_breast_cancer, load_wine

import certus
from certus.base import UncertifiedWarning
from certus.generative.row_tables import plain_table
from certus.synth import MODELS, TableSynthesizer, networks, steps
from certus.synth.levels import decode, encode, plan_levels

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def table(n: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    sex = np.where(rng.random(n) < 0.3 + 0.3 * (a > 0), "F", "M")
    pay = np.where(rng.random(n) < 0.2, 0.0, np.round(np.exp(a + 8), 2))
    return pl.DataFrame(
        {
            "age": np.round(40 + 10 * a + 5 * (sex == "F")).astype(int),
            "sex": sex,
            "town": rng.choice(["Bath", "York", "Ely "], n, p=[0.6, 0.39, 0.01]),
            "pay": [None if u < 0.1 else v for u, v in zip(rng.random(n), pay)],
            "cap": np.minimum(2.5, rng.exponential(size=n)).round(3),
            "day": [dt.date(2020, 1, 1) + dt.timedelta(int(k)) for k in 30 * a + 99],
            "ok": rng.random(n) < 0.5,
            "name": [f"n{i}" for i in range(n)],
        }
    )


TABLE = table(1200)
#: Conditions and dependences of networks that are trained briefly say little.
QUICK = ("autoregressive", "cart", "copula", "tree")


@pytest.fixture(autouse=True)
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("_FLOW_STEPS", 30), ("_DIFFUSION_STEPS", 60)):
        monkeypatch.setattr(networks, name, most)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_types_and_special_values_are_kept(model: str) -> None:
    fitted = TableSynthesizer(model, random_state=0).fit(TABLE)
    made = fitted.sample(1000)
    assert made.schema == TABLE.schema
    assert set(made["town"]) <= {"Bath", "York", "Ely "}
    for name, value in (("pay", 0.0), ("cap", 2.5)):
        own, wanted = (
            float((part[name] == value).mean() or 0.0) for part in (made, TABLE)
        )
        assert abs(own - wanted) < 0.06, name
    gaps = made["pay"].null_count() / 1000
    assert abs(gaps - TABLE["pay"].null_count() / 1200) < 0.05
    pay = made["pay"].drop_nulls()
    assert (pay.round(2) == pay).all() and pay.min() >= 0
    assert made["cap"].max() == 2.5
    assert made["name"].to_list()[:2] == ["row 1", "row 2"] and fitted.notes_
    assert ks_2samp(made["age"], TABLE["age"]).statistic < 0.08


@pytest.mark.parametrize("model", QUICK)
def test_dependence_is_learnt(model: str) -> None:
    fitted = TableSynthesizer(model, validation_fraction=0, random_state=0).fit(TABLE)
    made = fitted.sample(3000).filter(pl.col("pay") > 0)
    r = np.corrcoef(made["age"], made["pay"].log())[0, 1]
    # 0.97 in the table; a copula has one score for gaps, zeros and amounts.
    least = {"tree": 0.7, "copula": 0.25, "cart": 0.9, "autoregressive": 0.8}
    assert r > least[model]
    assert fitted.examination_ is None
    claims = {claim.name for claim in fitted.certificate_.claims}
    assert claims == (
        {"best_tree", "tree_tables"} if model == "tree" else {"memorised"}
    )


@pytest.mark.parametrize("model", QUICK)
def test_conditions_are_met_and_change_the_distribution(model: str) -> None:
    fitted = TableSynthesizer(model, validation_fraction=0, random_state=0).fit(TABLE)
    women = fitted.sample(400, given={"sex": "F"})
    assert set(women["sex"]) == {"F"}
    old = fitted.sample(400, given={"sex": "M", "age": (55, 70)})
    assert set(old["sex"]) == {"M"} and old["age"].is_between(55, 70).all()
    rich, poor = (
        fitted.sample(400, given={"age": ages})["pay"].drop_nulls().median()
        for ages in ((50, 60), (20, 30))
    )
    assert rich > poor


def test_draws_follow_the_conditional_distribution() -> None:
    """Of a tree: the same share as among rows that are drawn and then chosen."""
    fitted = TableSynthesizer("tree", validation_fraction=0, random_state=0).fit(TABLE)
    all_rows = fitted.sample(20_000)
    chosen = all_rows.filter(pl.col("sex") == "F")
    given = fitted.sample(5_000, given={"sex": "F"})
    assert ks_2samp(chosen["age"], given["age"]).statistic < 0.03
    single = fitted.sample(500, given={"age": 44, "ok": True, "day": "2020-04-01"})
    assert set(single["age"]) == {44} and set(single["ok"]) == {True}
    assert set(single["day"]) == {dt.date(2020, 4, 1)}


@pytest.mark.parametrize("model", ["tree", "copula", "autoregressive"])
def test_gaps_are_filled_and_known_cells_stay(model: str) -> None:
    fitted = TableSynthesizer(model, validation_fraction=0, random_state=0).fit(TABLE)
    new = table(600, seed=1)
    hidden = new.with_columns(pl.lit(None, dtype=pl.Int64).alias("age"))
    filled = fitted.impute(hidden)
    assert filled.schema == new.schema and filled["age"].null_count() == 0
    assert filled["pay"].null_count() == 0
    known = new["pay"].is_not_null()
    assert filled["pay"].filter(known).equals(new["pay"].filter(known))
    rows = new["pay"].fill_null(0) > 0
    r = np.corrcoef(filled["age"].filter(rows), new["age"].filter(rows))[0, 1]
    assert r > 0.55


def test_levels_come_back_as_values() -> None:
    for column in plain_table(TABLE.drop("name")).columns:
        plan = plan_levels(column, exact=True)
        levels = encode(plan, column, np.random.default_rng(0))
        assert ((levels >= 0) & (levels <= 1)).all()
        assert decode(plan, levels).to_list() == column.values.to_list(), column.name


def test_no_number_of_a_single_row_is_stored() -> None:
    x = np.sort(np.random.default_rng(0).normal(size=500))
    (column,) = plain_table(x[:, None]).columns
    plan = plan_levels(column)
    assert not set(plan["knots"].tolist()) & set(x.tolist())
    assert x[0] < plan["knots"].min() and plan["knots"].max() < x[-1]


def test_auto_shows_the_copier_and_does_not_take_it() -> None:
    X = load_breast_cancer(as_frame=True).frame.iloc[:, [0, 1, 4, 8, 30]]
    fitted = TableSynthesizer(target="target", random_state=0).fit(X)
    rows = {row["model"]: row for row in fitted.comparison_}
    assert set(rows) == set(MODELS) and fitted.model_ != "cart"
    assert not fitted.flagged_ and not fitted.examination_.flagged
    assert rows["cart"]["nearest_share"] > rows[fitted.model_]["nearest_share"]
    assert isinstance(fitted.sample(5), pd.DataFrame)
    names = {claim.name for claim in fitted.certificate_.claims}
    assert {"memorised", "told_apart", "useful", "anonymous"} <= names
    assert fitted.examination_.coin == pytest.approx(0.7)


def test_generators_that_all_copy_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS["cart"], "baseline", False)
    for name in set(MODELS) - {"cart"}:
        monkeypatch.delitem(MODELS, name)
    monkeypatch.setitem(MODELS, "twin", MODELS["cart"])
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(900, 4)), 1) @ np.triu(np.ones((4, 4)))
    with pytest.warns(UncertifiedWarning, match="all generators copy"):
        fitted = TableSynthesizer(random_state=0).fit(X)
    assert fitted.flagged_ and fitted.certificate_.claims


def test_without_pytorch_auto_leaves_out_the_networks_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "has_torch", lambda: False)
    fitted = TableSynthesizer(random_state=0).fit(TABLE.head(300))
    assert {row["model"] for row in fitted.comparison_} == {"tree", "copula", "cart"}
    assert any("PyTorch is not installed" in note for note in fitted.notes_)


def test_a_flow_and_a_diffusion_draw_until_conditions_are_met() -> None:
    for model in ("flow", "diffusion"):
        fitted = TableSynthesizer(model, validation_fraction=0, random_state=0).fit(
            TABLE
        )
        made = fitted.sample(40, given={"sex": "F", "age": (30, 50)})
        assert set(made["sex"]) == {"F"} and made["age"].is_between(30, 50).all()
        with pytest.raises(NotImplementedError, match="autoregressive"):
            fitted.impute(TABLE)


def test_a_custom_generator_joins_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Independent:
        def __init__(self, d: int = 0) -> None:
            self.d = d

        def fit(self, U: Any, cells: Any, rng: Any) -> Independent:
            self.d = U.shape[1]
            return self

        def sample(self, n: int, rng: Any) -> Any:
            return rng.random((n, self.d))

    monkeypatch.setitem(MODELS, "independent", Independent)
    fitted = TableSynthesizer("independent", random_state=0).fit(TABLE)
    made = fitted.sample(100, given={"sex": "F"})
    assert set(made["sex"]) == {"F"} and not fitted.examination_.flagged


def test_equal_seeds_give_equal_rows_and_files_keep_them(tmp_path: Any) -> None:
    few = TABLE[:300]
    for model in MODELS:
        one, two = (TableSynthesizer(model, random_state=3).fit(few) for _ in range(2))
        assert one.sample(50).equals(two.sample(50))
        back = certus.load(one.save(tmp_path / f"{model}.certus"))
        assert back.sample(50).equals(one.sample(50))


def test_arrays_come_back_as_arrays() -> None:
    X = load_wine().data
    fitted = TableSynthesizer("copula", random_state=0).fit(X)
    made = fitted.sample(60)
    assert isinstance(made, np.ndarray) and made.shape == (60, 13)


def test_drawn_rows_are_examined_beside_rows_that_meet_their_conditions() -> None:
    fitted = TableSynthesizer("tree", random_state=0).fit(TABLE)
    held = fitted.held_out_
    assert held.sum() == fitted.examination_.n_holdout
    same = fitted.examine(TABLE, fitted.sample(300))
    assert (same.n_real, same.n_holdout) == (int((~held).sum()), int(held.sum()))
    assert not same.flagged and same.n_synthetic == 300
    given = {"sex": "F", "age": (30, 60), "day": ("2020-01-01", "2021-01-01")}
    meets = (TABLE["sex"] == "F") & TABLE["age"].is_between(30, 60)
    meets &= TABLE["day"].is_between(dt.date(2020, 1, 1), dt.date(2021, 1, 1))
    women = fitted.examine(TABLE, fitted.sample(200, given=given), given=given)
    assert women.n_real == int((meets.to_numpy() & ~held).sum())
    assert women.n_holdout == int((meets.to_numpy() & held).sum())
    # Rows under conditions differ from all rows, and not from those that meet them.
    all_rows = fitted.examine(TABLE, fitted.sample(200, given=given))
    apart = (
        {c.name: c.value for c in all_rows.columns},
        {c.name: c.value for c in women.columns},
    )
    assert apart[0]["sex"] > 0.4 > 0.01 > apart[1]["sex"]
    kept = TABLE.filter(pl.Series(~held))
    assert fitted.examine(TABLE, kept).copies == kept.height
    few = fitted.examine(TABLE, fitted.sample(50), given={"pay": None, "age": 44})
    assert few.n_real + few.n_holdout == TABLE.height
    for table, words in ((TABLE.head(50), "that of the fit"), (kept, "of the fit")):
        with pytest.raises(ValueError, match=words):
            fitted.examine(table, kept)
    whole = TableSynthesizer("tree", validation_fraction=0, random_state=0).fit(TABLE)
    with pytest.raises(ValueError, match="no rows were held out"):
        whole.examine(TABLE, kept)


def test_one_generator_that_copies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.integers(0, 60, (900, 4)), axis=1)
    with pytest.warns(UncertifiedWarning, match='the generator "cart" copies'):
        TableSynthesizer("cart", random_state=0).fit(X)
