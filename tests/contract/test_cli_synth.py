"""``certus synth`` keeps its word: rows, report, exit codes, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus.cli import main
from certus.synth import MODELS, TableSynthesizer, steps, synthesizer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "CERTUS_DEBUG", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for seed, file in enumerate(("people.csv", "new.csv")):
        table(seed).write_csv(file)
    return tmp_path


def table(seed: int, n: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return pl.DataFrame(
        {
            "age": np.round(40 + 10 * a).astype(int),
            "sex": np.where(rng.random(n) < 0.4, "F", "M"),
            "pay": np.exp(a + 0.2 * rng.normal(size=n)).round(4),
        }
    )


def test_rows_and_a_report_are_written(capsys: Any) -> None:
    args = ["synth", "people.csv", "--rows", "50", "--given", "sex=F"]
    code = main([*args, "--given", "age=30..40", "--target", "pay"])
    said = capsys.readouterr().out
    made = pl.read_csv("people-synthetic.csv")
    assert code == 0 and made.height == 50 and set(made["sex"]) == {"F"}
    assert made["age"].is_between(30, 40).all()
    assert made.columns == ["age", "sex", "pay"]
    for words in ("held out at random", "copies", "told apart", "useful", "anonymous"):
        assert words in said
    assert all(len(line) <= 80 for line in said.splitlines())
    page = Path("people-synthetic.html").read_text()
    assert "Do the columns agree?" in page and "<script" not in page
    assert "cart" in page and "never chosen" in page


def test_a_named_encoding_is_read_and_utf8_is_written() -> None:
    accents = table(0).rename({"pay": "größe"})
    Path("dos.csv").write_bytes(accents.write_csv().encode("cp437"))
    args = ["synth", "dos.csv", "--rows", "20", "--model", "tree"]
    assert main([*args, "--encoding", "cp437"]) == 0
    assert pl.read_csv("dos-synthetic.csv").columns == ["age", "sex", "größe"]
    assert "größe" in Path("dos-synthetic.html").read_text(encoding="utf-8")


def test_equal_seeds_give_equal_files() -> None:
    for name in ("a.csv", "b.csv"):
        main(["synth", "people.csv", "--model", "tree", "--seed", "7", "--out", name])
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_copies_are_not_written_without_force(capsys: Any) -> None:
    # Rounded values: each column's training values combine to training rows.
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.integers(0, 60, (900, 4)), axis=1)
    pl.DataFrame(X, schema=list("abcd")).write_csv("sums.csv")
    args = ["synth", "sums.csv", "--model", "cart"]
    assert main(args) == 3
    said = capsys.readouterr().out
    assert "cart copies training rows: nothing was written" in said
    assert "every generator" not in said
    assert not Path("sums-synthetic.csv").exists()
    assert main([*args, "--force"]) == 3
    assert Path("sums-synthetic.csv").exists()


class Sly:
    """A generator that copies from its second draw on."""

    exact, draws = True, 0

    def __init__(self, values: Any = None) -> None:
        self.values = values

    def fit(self, U: Any, cells: Any, rng: np.random.Generator) -> Sly:
        self.values = U
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Any:
        Sly.draws += 1
        if Sly.draws == 1:
            return np.column_stack([rng.permutation(u) for u in self.values.T])[:n]
        return self.values[rng.integers(len(self.values), size=n)]


@pytest.mark.parametrize("given", [[], ["--given", "age=20..60"]])
def test_the_rows_that_are_written_answer_for_themselves(
    given: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "sly", Sly)
    monkeypatch.setattr(Sly, "draws", 0)
    args = ["synth", "people.csv", "--model", "sly", "--rows", "120", *given]
    assert main([*args, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["n_synthetic"] == 120 and found["flagged"]
    assert found["copies"] == 120 and found["wrote"] == []
    assert not found["generator_flagged"] and not found["comparison"][0]["flagged"]
    monkeypatch.setattr(Sly, "draws", 0)
    assert main(args) == 3 and not Path("people-synthetic.csv").exists()
    said = " ".join(capsys.readouterr().out.split())
    assert "these rows copy training rows: nothing was written" in said
    assert "The 120 rows drawn for the file, examined" in said
    assert ("that meet the conditions" in said) == bool(given)


def test_screen_and_page_speak_of_the_rows_in_the_file(capsys: Any) -> None:
    args = ["synth", "people.csv", "--model", "tree", "--rows", "70"]
    assert main([*args, "--given", "age=41"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "beside all rows of the table, because few of them meet" in said
    page = Path("people-synthetic.html").read_text()
    assert "70 rows drawn for the file" in page and "about other draws" in page
    assert "70 synthetic rows" in page and "best tree" in page


def test_control_c_leaves_no_file_behind(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file: file.read_bytes() for file in Path().iterdir()}

    def stop(*args: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    for owner, name in (
        (steps, "learn_levels"),
        (TableSynthesizer, "_choose"),
        (TableSynthesizer, "sample"),
        (TableSynthesizer, "examine"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stop)
            if name == "learn_levels":
                patch.setattr(synthesizer, name, stop)
            assert main(["synth", "people.csv", "--model", "tree"]) == 130
        assert {file: file.read_bytes() for file in Path().iterdir()} == before
    # While the file itself is written: the old one stays whole.
    Path("people-synthetic.csv").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        assert main(["synth", "people.csv", "--model", "tree"]) == 130
    assert Path("people-synthetic.csv").read_text() == "old"
    assert len(list(Path().iterdir())) == len(before) + 1


def test_rows_of_others_are_examined(capsys: Any) -> None:
    copied = pl.concat([pl.read_csv("people.csv").head(100), table(9, 300)])
    copied.write_csv("theirs.csv")
    args = ["synth", "people.csv", "--like", "theirs.csv"]
    assert main(args) == 2  # nothing to compare with
    assert "--holdout" in capsys.readouterr().err
    assert main([*args, "--holdout", "new.csv", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["copies"] >= 100 and found["flagged"] and found["exit_code"] == 3
    assert Path("theirs-examined.html").exists()
    assert not Path("people-synthetic.csv").exists()
    table(10).write_csv("fair.csv")
    args[3] = "fair.csv"
    assert main([*args, "--holdout", "new.csv"]) == 0


def test_with_epsilon_only_rows_are_written(capsys: Any) -> None:
    before = set(Path().iterdir())
    code = main(["synth", "people.csv", "--epsilon", "1", "--domain", "sex=F,M"])
    said = capsys.readouterr().out
    assert code == 0 and "ε = 1" in said and "proved" in said
    (file,) = set(Path().iterdir()) - before
    assert file.name == "people-synthetic.csv" and pl.read_csv(file).height == 1000
    assert main(["synth", "people.csv", "--epsilon", "1", "--seed", "0"]) == 2
    assert "subtract the noise" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--model", "gan"], "must be one of auto,"),
        (["--given", "sx=F"], 'Did you mean "sex"'),
        (["--given", "sex=X"], "has no value"),
        (["--given", "age=old"], "must be a number"),
        (["--given", "sex"], "must be COLUMN=VALUE"),
        (["--target", "wage"], "has no column"),
        (["--out", "people.csv"], "would overwrite the input"),
        (["--report", "page.pdf"], "must end in .html"),
    ],
)
def test_mistakes_take_a_line_or_two(more: list[str], words: str, capsys: Any) -> None:
    assert main(["synth", "people.csv", *more]) in (1, 2)
    assert words in " ".join(capsys.readouterr().err.split())
    assert not Path("people-synthetic.csv").exists()


def test_the_help_names_every_generator(capsys: Any) -> None:
    main(["synth", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in ("auto", *MODELS))
