"""Odd tables, absurd conditions and changed models."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus.generative import Examination, examine
from certus.persist import ModelFileError
from certus.synth import MODELS, TableSynthesizer, networks

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("_FLOW_STEPS", 15), ("_DIFFUSION_STEPS", 30)):
        monkeypatch.setattr(networks, name, most)


def odd(n: int = 80) -> pl.DataFrame:
    x = RNG.standard_cauchy(n)
    return pl.DataFrame(
        {
            "constant": [7] * n,
            "empty": [None] * n,
            "heavy": x,
            "again": x,
            "huge": x * 1e200,
            "one label": ["same"] * n,
            "mostly missing": [1.5, 2.5] + [None] * (n - 2),
            "flag": RNG.random(n) < 0.02,
            "<b>": RNG.choice(["a,b", "c\nd", "é", ""], n),
        }
    )


@pytest.mark.parametrize("model", sorted(MODELS))
def test_odd_columns_go_through(model: str) -> None:
    table = odd()
    fitted = TableSynthesizer(model, validation_fraction=0, random_state=0).fit(table)
    made = fitted.sample(60)
    assert made.columns == table.columns
    assert set(made["constant"]) == {7} and made["empty"].null_count() == 60
    assert set(made["one label"]) == {"same"}
    assert set(made["<b>"]) <= {"a,b", "c\nd", "é", ""}
    assert np.isfinite(made["huge"].to_numpy()).all()


def test_odd_columns_can_be_examined() -> None:
    fitted = TableSynthesizer("copula", random_state=0).fit(odd(200))
    assert fitted.examination_.n_holdout > 20
    assert "&lt;b&gt;" in fitted.examination_._repr_html_()


def test_one_column_and_one_kind_of_row() -> None:
    for column in (["a"] * 30, [1] * 30, [1.5, None] * 15):
        table = pl.DataFrame({"x": column})
        for model in MODELS:
            made = TableSynthesizer(model, random_state=1).fit(table).sample(5)
            assert set(made["x"]) <= set(column)


def test_values_outside_the_fitted_range() -> None:
    table = pl.DataFrame({"a": RNG.normal(size=200), "b": RNG.normal(size=200)})
    for model in ("tree", "copula", "autoregressive"):
        fitted = TableSynthesizer(model, validation_fraction=0, random_state=0).fit(
            table
        )
        made = fitted.sample(20, given={"a": 1e6})
        assert set(made["a"]) == {1e6} and np.isfinite(made["b"].to_numpy()).all()
        known = pl.DataFrame({"a": [-1e9, None], "b": [None, 1e9]})
        filled = fitted.impute(known)
        assert filled["a"][0] == -1e9 and filled["b"].null_count() == 0
    cart = TableSynthesizer("cart", validation_fraction=0, random_state=0).fit(table)
    with pytest.raises(ValueError, match="rows met the conditions"):
        low, high = table["a"].sort()[100:102]  # between two values of the fit
        cart.sample(5, given={"a": (low + (high - low) / 3, high - (high - low) / 3)})
    with pytest.raises(NotImplementedError, match="tree"):
        cart.impute(table)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("no such column", {"c": 1}),
        ("has no value", {"s": "maybe"}),
        ("must be a number", {"a": "old"}),
        ("low ≤ high", {"a": (2, 1)}),
        ("must be \\(low, high\\)", {"a": (1, 2, 3)}),
    ],
)
def test_impossible_conditions_are_refused(words: str, given: Any) -> None:
    table = pl.DataFrame({"a": np.arange(50.0), "s": ["yes", "no"] * 25})
    fitted = TableSynthesizer("tree", validation_fraction=0, random_state=0).fit(table)
    with pytest.raises(ValueError, match=words):
        fitted.sample(3, given=given)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("model must be one of", {"model": "gan"}),
        ("validation_fraction", {"validation_fraction": 1.0}),
        ("needs held-out rows", {"validation_fraction": 0}),
        ("delta", {"delta": 0.0}),
    ],
)
def test_parameters_are_checked(words: str, options: Any) -> None:
    with pytest.raises(ValueError, match=words):
        TableSynthesizer(**options).fit(odd())


def test_too_few_rows_and_wrong_tables() -> None:
    with pytest.raises(ValueError, match="at least 10 rows"):
        TableSynthesizer().fit([[1.0]] * 5)
    table = pl.DataFrame({"a": np.arange(50.0)})
    with pytest.raises(ValueError, match="no column"):
        TableSynthesizer("tree", target="b", random_state=0).fit(table)
    fitted = TableSynthesizer("tree", validation_fraction=0).fit(table)
    with pytest.raises(ValueError, match="must have the columns"):
        fitted.impute(pl.DataFrame({"b": [1.0]}))


def test_a_damaged_file_is_refused(tmp_path: Any) -> None:
    fitted = TableSynthesizer("tree", random_state=0).fit(odd())
    path = fitted.save(tmp_path / "m.certus")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelFileError):
        certus.load(path)


def changed(model: TableSynthesizer, fault: str) -> None:
    """Forge one part of a fitted model."""
    state, first = model.state_, model.columns_[0]
    if fault == "generator":
        model.model_ = "gan"
    elif fault == "no state":
        model.state_ = {}
    elif fault == "no columns":
        model.columns_ = []
    elif fault == "a column less":
        model.columns_ = model.columns_[:1]
    elif fault == "levels":
        first["levels"] = first["levels"][::-1].copy()
    elif fault == "knots":
        first["knots"] = first["knots"][:-1]
    elif fault == "missing numbers":
        for value in (state.get("correlation"), state.get("values")):
            if value is not None:
                value[0, 0] = np.nan
        for table in state.get("tables", []):
            table[0] = np.nan
    elif "tables" in state:
        state["tables"] = [table * 2 for table in state["tables"]]
    elif "correlation" in state:
        state["correlation"] = -state["correlation"]
    else:
        state["values"] = state["values"][:, :1]


@pytest.mark.parametrize("model", ["tree", "copula", "cart"])
def test_forged_parts_are_refused(model: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"a": rng.normal(size=80), "s": ["x", "y"] * 40})
    for fault in (
        *("generator", "no state", "no columns", "a column less", "levels", "knots"),
        *("missing numbers", "numbers"),
    ):
        fitted = TableSynthesizer(model, random_state=0).fit(table)
        changed(fitted, fault)
        again = certus.load(fitted.save(tmp_path / "m.certus"))
        with pytest.raises(ValueError, match="changed after its fit"):
            again.sample(5)


def test_a_forged_examination_does_not_come_out_alike() -> None:
    rng = np.random.default_rng(0)
    parts = [pl.DataFrame({"a": rng.normal(size=150)}) for _ in range(2)]
    made = parts[0].head(100)
    data = examine(*parts, made, random_state=0).to_dict()
    assert data["flagged"]
    assert Examination.from_dict(data).recheck(*parts, made) == ()
    for claim in data["claims"]:  # nobody copies here
        if claim["name"] in ("memorised", "exact_copies"):
            claim["met"] = True
    forged = Examination.from_dict(data | {"copies": 0, "flagged": False})
    assert not forged.flagged
    assert {"exact_copies", "copies"} <= set(forged.recheck(*parts, made))
    for name in ("n_holdout", "claims", "seed"):
        less = {key: value for key, value in data.items() if key != name}
        with pytest.raises(ValueError, match=name):
            Examination.from_dict(less)
