"""The section of an audit about groups: what it judges, says, draws and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression

import certus
from certus.cli import main
from certus.fairness import independence
from certus.linear_model import LogisticRegression
from certus.report import Audit


def table(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    pay = rng.normal(size=n) - 1.0 * (sex == "f")
    paid = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * pay)), "yes", "no")
    other = rng.normal(size=n)
    return pd.DataFrame({"pay": pay, "other": other, "sex": sex, "paid": paid})


@pytest.fixture(scope="module")
def report() -> Audit:
    rows = table(4000)
    X, y = rows[["pay", "other"]], rows["paid"]
    model = LogisticRegression().fit(X[:1500], y[:1500])
    return certus.audit(
        model,
        X[:1500],
        y[:1500],
        X_test=rows[1500:].drop(columns="paid"),
        y_test=y[1500:],
        sensitive="sex",
        max_time=4.0,
        random_state=0,
    )


def test_the_claims_are_those_of_the_tables(report) -> None:
    by = {claim.name: claim for claim in report.statistical}
    rows = table(4000)
    model = LogisticRegression().fit(rows[["pay", "other"]][:1500], rows["paid"][:1500])
    guess = model.predict(rows[["pay", "other"]][1500:])
    wanted = independence(guess, rows["sex"][1500:], delta=0.05 / 4)
    claim = by["independence"]
    assert claim.met is False and claim.value == wanted.gaps[0].low
    assert claim.delta == 0.05 / 4 and claim.mark == "✗"
    assert claim.detail.startswith(
        "independence does not hold: groups differ by at least"
    )
    assert claim.label == "groups"
    # The other criteria are stated, or refused for want of rows.
    said = " ".join(c.name + c.detail for c in report.statistical)
    assert "separation" in said and "sufficiency" in said


def test_the_figure_says_and_draws_it(report) -> None:
    figure = report.figure("groups")
    assert figure.question == "Are groups treated equally?"
    assert "Independence does not hold" in figure.answer
    assert "not all criteria can hold" in figure.answer
    assert "2,500 test rows, grouped by “sex”, positive decisions are" in figure.caption
    assert "“yes”; bars" in figure.caption
    assert figure.data["groups"] == ["f", "m"] and len(figure.data["names"]) == 5
    page = report.to_html()
    assert page.count("Are groups treated equally?") >= 1 and "selection rate" in page
    assert "selection rate" in report.to_markdown()
    again = Audit.from_dict(json.loads(report.to_json()))
    assert again.to_html() == page


def test_rows_of_the_fit_give_no_claim_about_groups() -> None:
    rows = table(300)
    X, y = rows[["pay", "other"]], rows["paid"]
    model = LogisticRegression().fit(X, y)
    found = certus.audit(
        model, X, y, sensitive=rows["sex"], max_time=2.0, random_state=0
    )
    assert any(
        "nothing can be said about groups" in claim.detail
        for claim in found.statistical
    )
    assert any(line.startswith("groups") for line in found.left_out)
    with pytest.raises(KeyError):
        found.figure("groups")


def test_amounts_are_compared_as_distributions_and_arrays_by_place() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    group = rng.integers(0, 2, 3000)
    X[:, 0] += group
    model = LinearRegression().fit(X[:1000], X[:1000, 0])
    found = certus.audit(
        model,
        X[:1000],
        X[:1000, 0],
        X_test=X[1000:],
        y_test=X[1000:, 0],
        sensitive=group[1000:],
        max_time=2.0,
        random_state=0,
    )
    assert "Independence does not hold" in found.figure("groups").answer
    assert found.figure("groups").data["names"] == ["score distribution"]


def test_misfits_are_reported() -> None:
    rows = table(200)
    X, y = rows[["pay", "other"]], rows["paid"]
    model = LogisticRegression().fit(X[:100], y[:100])
    rest = {"X_test": X[100:], "y_test": y[100:], "max_time": 1.0}
    with pytest.raises(ValueError, match="no column “sex”"):
        certus.audit(model, X[:100], y[:100], sensitive="sex", **rest)
    with pytest.raises(ValueError, match="has no column names"):
        certus.audit(model, X[:100].to_numpy(), y[:100], sensitive="sex", max_time=1.0)
    with pytest.raises(ValueError, match="ranges first"):
        certus.audit(model, X[:100], y[:100], sensitive=X["pay"][100:], **rest)
    with pytest.raises(ValueError, match="200 rows, but the test table"):
        certus.audit(model, X[:100], y[:100], sensitive=rows["sex"], **rest)


def test_the_command_compares_groups(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pl.from_pandas(table(3000))
    frame.write_csv("all.csv")
    frame.drop("sex").write_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "paid", "--model", "logistic"]) == 0
    capsys.readouterr()
    line = ["audit", "t.certus", "all.csv", "--sensitive", "sex"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    figure = next(f for f in found["figures"] if f["kind"] == "groups")
    assert figure["data"]["groups"] == ["f", "m"]
    assert "sealed rows, grouped by “sex”" in figure["caption"]
    sizes = figure["data"]["sizes"][0]
    assert sum(sizes) == found["data"]["unseen_rows"]
    assert main(line) == 0
    assert "Are groups treated equally?" in capsys.readouterr().out
    assert main(["audit", "t.certus", "all.csv", "--sensitive", "sx"]) == 2
    assert 'Did you mean "sex"?' in capsys.readouterr().err


def test_the_label_that_is_never_guessed_is_the_chosen_one_everywhere() -> None:
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(600, 1)), rng.choice(["f", "m"], 600)
    y = np.where(rng.random(600) < 0.02, "yes", "no")
    model = LogisticRegression().fit(X[:200], y[:200])
    assert set(model.predict(X)) == {"no"}
    rest = {"X_test": X[200:], "y_test": y[200:], "sensitive": group[200:]}
    found = certus.audit(model, X[:200], y[:200], max_time=2.0, **rest, random_state=0)
    figure = found.figure("groups")
    assert "positive decisions are “yes”" in figure.caption
    at = figure.data["names"].index("selection rate")
    assert figure.data["values"][at] == [0.0, 0.0]


def test_no_claim_says_that_amounts_stay_between_zero_and_one() -> None:
    rng = np.random.default_rng(1)
    X, group = rng.random((600, 1)), rng.integers(0, 2, 600)
    model = LinearRegression().fit(X[:200], X[:200, 0])
    rest = {"X_test": X[200:], "y_test": X[200:, 0], "sensitive": group[200:]}
    figure = certus.audit(
        model, X[:200], X[:200, 0], max_time=2.0, **rest, random_state=0
    ).figure("groups")
    assert figure.data["names"] == ["score distribution", "mean score"]
    assert "if the scores of new rows lie in [0, 1]" in figure.caption


def test_many_rates_on_a_phone() -> None:
    """Nothing is cut in its middle, and what has no room is counted."""
    rows = table(900)
    X, y = rows[["pay", "other"]], pd.qcut(rows["pay"], 3, labels=["low", "mid", "top"])
    y = y.astype(str)
    model = LogisticRegression().fit(X[:300], y[:300])
    found = certus.audit(
        model, X[:300], y[:300], X_test=X[300:], y_test=y[300:],
        sensitive=rows["sex"][300:], max_time=1.0, random_state=0)  # fmt: skip
    figure = found.figure("groups")
    assert figure.data["names"][0] == "selection rate [low]"
    assert "9 further rates are not drawn" in figure.caption
    page = found.to_html()
    drawn = page[page.index('id="groups-narrow-t"') :].split("</svg>")[0]
    names = [name for name in figure.data["names"] if name in drawn]
    assert names == figure.data["names"] and "…" not in drawn
    assert "95\u00a0%" in page and "95 %" not in page


def test_a_long_verdict_stays_on_its_figure() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    figure = independence([0, 1, 1] * 500, ["a", "b", "b", "a", "c"] * 300).plot()
    figure.canvas.draw()
    title = figure.get_suptitle()
    (said,) = (text for text in figure.texts if text.get_text() == title)
    assert len(title) > 50 and said.get_window_extent().x1 <= figure.bbox.x1
    pyplot.close(figure)
