"""``certus lm``: text files in; models, their bits, their texts, small files out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import certus
from certus.cli import main

SENTENCE = "the cat sat on the mat and the dog sat on the cat. "
SMALL = ["--set", "n_layers=1", "--set", "width=16", "--set", "context=32"]
SHORT = [*SMALL, "--set", "max_iter=30", "--max-time", "60"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder with a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CERTUS_DEBUG", raising=False)
    Path("book.txt").write_text(SENTENCE * 60)
    Path("new.txt").write_text("the dog sat on the mat. ")
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certus.language import LanguageModel

    model = LanguageModel(
        n_layers=1, width=16, context=32, max_iter=40, random_state=0
    ).fit(SENTENCE * 60)
    return model.save(tmp_path_factory.mktemp("lm") / "book.certus")


def test_fit_writes_a_model_and_shows_how_it_learns(capsys, monkeypatch) -> None:
    from certus.cli.learning import ShownTraining

    samples: list[object] = []
    monkeypatch.setattr(ShownTraining, "_tell_sample", lambda *told: samples.append(0))
    assert main(["lm", "fit", "book.txt", *SHORT]) == 0
    told = capsys.readouterr()
    assert "bits per byte" in told.err and "5-gram" in told.err
    assert "wrote book.certus" in told.out and "proved" in told.out
    assert not samples  # stderr is a pipe
    model = certus.load("book.certus")
    assert type(model).__name__ == "LanguageModel" and model.random_state == 0


def test_samples_have_the_length_asked_for_and_are_separated(capsys) -> None:
    assert main(["lm", "fit", "book.txt", *SHORT, "--sample", "9"]) == 0
    told = capsys.readouterr().err.splitlines()
    lines = [line for line in told if line.startswith("certus: step")]
    assert lines and len(told) > len(lines)
    assert all(len(line) <= 80 for line in told)
    rest = [line for line in told if not line.startswith("certus: ")]
    assert all(line[:8].isspace() or not line for line in rest)
    assert sum(len(line[8:]) for line in rest) <= 9 * 4 * len(lines)  # "\\x07" is one


def test_a_terminal_keeps_baselines_and_shows_the_rest_in_one_line(
    capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    from certus.cli import learning

    monkeypatch.setattr(learning, "err", lambda: Console(force_terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    shown: list[tuple[str, float, float]] = []
    progress = learning.ShownTraining(lambda *told: shown.append(told), 60.0, 0)
    history = {"steps": [1000.0], "seconds": [15.0], "validation_bits": [2.5]}
    known = {"5-gram": 2.1, "xz": 2.75}
    progress._tell(history, known)
    progress._tell(history | {"seconds": [30.0], "validation_bits": [2.0]}, known)
    progress._tell(history | {"seconds": [75.0], "validation_bits": [1.9]}, known)
    assert shown[0] == ("step 1,000: 2.500 bits per byte", 0.25, 45.0)
    assert [share for _, share, _ in shown] == [0.25, 0.5, 1.0]
    assert capsys.readouterr().err.splitlines() == [
        "certus: bits per byte without a network: 5-gram 2.10, xz 2.75",
        "certus: below xz after 15 s: 2.500 bits per byte",
        "certus: below 5-gram after 30 s: 2.000 bits per byte",
    ]


def test_a_pipe_gets_lines_on_how_far_the_training_is(monkeypatch) -> None:
    from rich.console import Console

    from certus.cli import learning

    monkeypatch.setattr(learning, "err", lambda: Console(force_terminal=False))
    shown: list[tuple[str, float, float]] = []
    progress = learning.ShownTraining(lambda *told: shown.append(told), 60.0, 0)
    history = {"steps": [1000.0], "seconds": [15.0], "validation_bits": [2.5]}
    progress._tell(history, {"xz": 2.75})
    assert shown == [("learning", 0.25, 45.0)]


@pytest.mark.parametrize("given", [None, 0, 9])
@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_shows_samples_unless_told_otherwise(
    live: bool, given: int | None, trained: Path, capsys, monkeypatch
) -> None:
    from rich.console import Console

    from certus.cli import learning

    monkeypatch.setattr(learning, "err", lambda: Console(force_terminal=live))
    monkeypatch.setenv("TERM", "xterm")
    progress = learning.ShownTraining(lambda *told: None, 60.0, given)
    expected = given if given is not None else 120 if live else 0
    assert progress.sample == expected
    told = progress._sample_of(certus.load(trained)) if expected else ""
    assert len(told.encode()) <= 4 * expected  # a document may end before that
    model = SimpleNamespace(history_={"steps": [1.0], "seconds": [1.0], "loss": [2.0]})
    model.baselines_, writes = {}, []
    model.generate = lambda max_tokens: (
        writes.append(max_tokens) or SimpleNamespace(data=b"x" * max_tokens)
    )
    step = SimpleNamespace(task_name="step")
    progress.on_fit_task_end(model, step, fitted_estimator=model)
    assert writes == [expected] * (expected > 0)
    assert capsys.readouterr().err.count("x") == expected


def test_two_files_are_two_documents_and_json_is_json(capsys) -> None:
    args = ["lm", "fit", "book.txt", "new.txt", "--model", "ngram", "--json"]
    assert main([*args, "--out", "counts.certus", "--set", "order=3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == "counts.certus"
    assert certus.load("counts.certus").order == 3


def test_bits_are_counted_and_checked(trained: Path, capsys) -> None:
    assert main(["lm", "bits", str(trained), "new.txt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["certificate"]
    claims = {claim["name"]: claim for claim in found["claims"]}
    own = certus.load(trained).bits_per_byte(Path("new.txt"))
    assert claims["bits_per_byte"]["value"] == pytest.approx(own, abs=1e-4)
    assert main(["lm", "bits", str(trained), "new.txt", "--explain"]) == 0
    assert "bits per byte" in capsys.readouterr().out


def test_samples_begin_with_the_prompt_and_repeat(trained: Path, capsysbinary) -> None:
    args = ["lm", "sample", str(trained), "--prompt", "the ", "--tokens", "40"]
    assert main([*args, "--seed", "3"]) == 0
    first = capsysbinary.readouterr().out
    assert first.startswith(b"the ") and len(first) > 4
    assert main([*args, "--seed", "3"]) == 0
    assert capsysbinary.readouterr().out == first
    assert main([*args, "--seed", "4", "--json"]) == 0
    told = json.loads(capsysbinary.readouterr().out)
    assert told["prompt"] == "the " and told["text"]


def test_a_prompt_may_hold_any_bytes(trained: Path, capsysbinary) -> None:
    args = ["lm", "sample", str(trained), "--tokens", "3", "--prompt", "a\udcffb"]
    assert main(args) == 0
    assert capsysbinary.readouterr().out.startswith(b"a\xffb")


@pytest.mark.parametrize("data", [b"the cat sat. " * 20, b"", b"\xff\0\xfe" * 9])
def test_files_come_back(trained: Path, data: bytes, capsys) -> None:
    Path("data.bin").write_bytes(data)
    assert main(["lm", "compress", str(trained), "data.bin"]) == 0
    told = capsys.readouterr().out
    assert "without the model" in told
    small = Path("data.bin.lm")
    if data.startswith(b"the"):
        assert small.stat().st_size < len(data) * 0.8
    Path("data.bin").unlink()
    assert main(["lm", "decompress", str(trained), "data.bin.lm"]) == 0
    assert Path("data.bin").read_bytes() == data


def test_a_damaged_or_foreign_file_is_refused(trained: Path, capsys) -> None:
    assert main(["lm", "compress", str(trained), "new.txt", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 24
    packed = bytearray(Path("new.txt.lm").read_bytes())
    packed[-1] ^= 255
    Path("bad.lm").write_bytes(packed)
    for name in ("bad.lm", "book.txt"):
        args = ["lm", "decompress", str(trained), name, "--out", "back.txt"]
        assert main(args) == 1
        assert not Path("back.txt").exists()
    capsys.readouterr()
    assert main(["lm", "decompress", str(trained), "new.txt.lm"]) == 1
    assert "new.txt exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args, code, told",
    [
        (["lm", "fit", "nowhere.txt"], 1, "there is no file nowhere.txt"),
        (["lm", "fit", "."], 1, "is a folder"),
        (["lm", "fit", "book.txt", "--out", "book.txt"], 2, "overwrite the input"),
        (["lm", "fit", "book.txt", "--set", "max_time=3"], 2, "--max-time"),
        (["lm", "fit", "book.txt", "--set", "nothing=3"], 2, "nothing"),
        (["lm", "fit"], 2, "missing argument"),
        (["lm", "bits", "book.txt", "new.txt"], 1, "not a certus model file"),
        (["lm", "decompress", "book.txt", "new.txt"], 2, "does not end in .lm"),
    ],
)
def test_mistakes_get_a_clear_message(args, code, told, capsys) -> None:
    assert main(args) == code
    assert told in " ".join(capsys.readouterr().err.split())


def test_an_empty_text_is_refused(capsys) -> None:
    Path("empty.txt").write_bytes(b"")
    assert main(["lm", "fit", "empty.txt"]) == 1
    assert "text is empty" in capsys.readouterr().err


def test_a_model_of_tables_is_refused(capsys) -> None:
    from certus.linear_model import Ridge

    Ridge().fit([[0.0], [1.0]], [0.0, 1.0]).save("ridge.certus")
    for command in ("bits", "compress", "sample"):
        files = [] if command == "sample" else ["new.txt"]
        assert main(["lm", command, "ridge.certus", *files]) == 1
        assert "holds a Ridge" in capsys.readouterr().err
