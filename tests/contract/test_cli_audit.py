"""``certus audit``: the rows it judges by, what it says, and what it writes."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from scipy import stats
from sklearn.datasets import load_breast_cancer

from certus.cli import main
from certus.linear_model import Ridge
from certus.persist import load, read_manifest, save
from certus.report import Audit
from certus.selection import sealed_rows
from certus.tables import TablePipeline, load_example


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a model chosen on it, and other rows."""
    folder = tmp_path_factory.mktemp("audit")
    A, b = load_breast_cancer(return_X_y=True)
    columns = {f"c{i}": A[:, i] for i in range(6)}
    labels = ["ill" if label == 0 else "well" for label in b]
    frame = pl.DataFrame(columns | {"state": labels})
    frame[:400].write_csv(folder / "t.csv")
    frame[400:].write_csv(folder / "new.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "t.csv", "--target", "state", "--model", "logistic"]) == 0
    return folder


@pytest.fixture(autouse=True)
def _inside(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(fitted)
    yield


def test_sealed_rows_are_judged_as_at_the_fit(capsys) -> None:
    assert main(["audit", "t.certus", "t.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sealed = sealed_rows(read_manifest("t.certus")["split"])
    frame = pl.read_csv("t.csv")[sealed]
    guess = load("t.certus").before_.predict(frame.drop("state"))
    wrong = int((guess != frame["state"].to_numpy()).sum())
    # Half of delta is spent on the log loss, the rest on ten others.
    sure = 1 - 0.05 / 2 / 10
    exact = stats.binomtest(wrong, len(sealed)).proportion_ci(sure, "exact")
    error = next(c for c in found["statistical"] if c["name"] == "error_rate")
    assert error["value"] == pytest.approx(exact.high)
    assert found["certificate"]["n_samples"] == 400 - len(sealed)
    assert found["data"]["unseen_rows"] == len(sealed)
    assert "as at the fit; the file holds the model fitted again" in found["rows"]
    assert Path("t-audit.html").is_file()


def test_other_rows_are_taken_as_new_and_reported(capsys) -> None:
    assert main(["audit", "t.certus", "new.csv", "--report", "new.md"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "! the 169 rows are not those of the fit" in text
    assert "stated, not rechecked" in text and "169 test rows" in text
    assert "wrote new.md" in text
    report = Path("new.md").read_text(encoding="utf-8")
    assert "not used to fit" in report and "## Would more rows help?" not in report


def test_report_is_written_as_its_ending_says(capsys) -> None:
    for name in ("r.json", "r.html", "r.md"):
        assert main(["audit", "t.certus", "t.csv", "--report", name]) == 0
    again = Audit.from_dict(json.loads(Path("r.json").read_text(encoding="utf-8")))
    assert again.verdict in " ".join(capsys.readouterr().out.split())
    assert "<!DOCTYPE html>" in Path("r.html").read_text(encoding="utf-8")
    assert Path("r.md").read_text(encoding="utf-8").startswith("# ")


def test_a_model_without_a_split_has_no_claim_about_new_rows(capsys) -> None:
    frame, target = load_example()
    frame.write_csv("d.csv")
    table = pl.read_csv("d.csv")
    model = TablePipeline(estimator=Ridge()).fit(table.drop(target), table[target])
    save(model, "d.certus")
    assert main(["audit", "d.certus", "d.csv"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "all 442 rows were used in the fit" in text
    assert "– refused" in text and "on rows held out in turn" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t.certus", "t.csv", "--report", "t.csv"], "would overwrite the input"),
        (
            ["t.certus", "t.csv", "--report", "r.pdf"],
            "must end in .html, .md",
        ),
        (["t.certus", "t.csv", "--report", "no/r.html"], "there is no folder no"),
        (["t.certus", "t.csv", "--target", "stat"], "has no column"),
        (["t.certus", "gone.csv"], "gone.csv"),
        (["t.csv", "t.csv"], "t.csv"),
    ],
)
def test_mistakes_are_one_or_two_lines(arguments, message, capsys) -> None:
    assert main(["audit", *arguments]) in (1, 2)
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert shown.out == "" and shown.err.count("\n") <= 4
