"""``certus lm`` with hostile texts, files and places, a full disk, and Ctrl-C."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import certus
from certus.cli import main, screen

pytest.importorskip("torch")

SMALL = ["--set", "n_layers=1", "--set", "width=16", "--set", "context=16"]
SHORT = [*SMALL, "--set", "max_iter=10"]
#: The command in a process of its own; a shell may have SIGINT ignored.
COMMAND = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from certus.cli import main; sys.exit(main())"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CERTUS_DEBUG", raising=False)
    Path("book.txt").write_text("the cat sat on the mat. " * 60)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certus.language import LanguageModel

    model = LanguageModel(n_layers=1, width=16, context=16, max_iter=10, random_state=0)
    model.fit("the cat sat on the mat. " * 60)
    return model.save(tmp_path_factory.mktemp("lm") / "book.certus")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "data",
    [b"a", b"\x00" * 300, b"\xff\xfe\x80" * 100, b"x" * 5_000, "日本\u202e".encode()],
    ids=["one byte", "NUL", "not UTF-8", "one line", "other script"],
)
def test_any_bytes_can_be_learnt_counted_and_written(data: bytes, capsysbinary) -> None:
    Path("odd.txt").write_bytes(data)
    assert main(["lm", "fit", "odd.txt", *SHORT]) == 0
    assert main(["lm", "bits", "odd.certus", "odd.txt", "--report", "odd.html"]) == 0
    assert "<script" not in Path("odd.html").read_text(encoding="utf-8")
    assert main(["lm", "sample", "odd.certus", "--tokens", "5"]) == 0
    assert main(["lm", "compress", "odd.certus", "odd.txt"]) == 0
    back = ["lm", "decompress", "odd.certus", "odd.txt.lm", "--out", "back.txt"]
    assert main(back) == 0
    assert Path("back.txt").read_bytes() == data
    capsysbinary.readouterr()


def test_a_captured_stream_that_holds_any_bytes_can_be_read(tmp_path: Path) -> None:
    screen.tolerate_any_encoding()
    (tmp_path / "out").write_bytes(b"a\xb2b")
    read = (tmp_path / "out").read_text(encoding="utf-8", errors="certus-plain")
    assert read == "a\ufffdb"


def test_an_empty_text_is_refused_by_each_command(trained: Path, capsys) -> None:
    Path("empty.txt").write_bytes(b"")
    for args in (["fit", "empty.txt"], ["bits", str(trained), "empty.txt"]):
        assert main(["lm", *args]) in (1, 3)
        assert "empty" in "".join(capsys.readouterr())


def test_a_prompt_may_be_longer_than_the_context(trained: Path, capsysbinary) -> None:
    prompt = "the cat sat " * 40
    args = ["lm", "sample", str(trained), "--tokens", "9", "--prompt", prompt]
    assert main(args) == 0
    assert capsysbinary.readouterr().out.startswith(prompt.encode())


def test_text_that_controls_a_terminal_is_escaped_there(
    trained: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    args = ["lm", "sample", str(trained), "--tokens", "0", "--prompt", "\x1b[31mred"]
    assert main(args) == 0
    assert capsys.readouterr().out == "\\x1b[31mred\n"


def test_a_forged_or_cut_model_file_is_refused(trained: Path, capsys) -> None:
    data = trained.read_bytes()
    Path("cut.certus").write_bytes(data[: len(data) // 2])
    Path("text.certus").write_bytes(b"not a model at all")
    flipped = bytearray(data)
    flipped[40] ^= 255
    Path("flipped.certus").write_bytes(flipped)
    for name in ("cut", "text", "flipped"):
        assert main(["lm", "sample", f"{name}.certus"]) == 1
        told = said(capsys)
        assert told.startswith("certus: ") and "Traceback" not in told


def test_a_device_is_refused_before_the_work(trained: Path, capsys) -> None:
    before = time.monotonic()
    assert main(["lm", "fit", "book.txt", "--out", "/dev/null"]) == 1
    assert "is a device or a pipe" in said(capsys)
    for command in ("compress", "bits"):
        option = "--out" if command == "compress" else "--report"
        place = "/dev/null" if command == "compress" else "page.pdf"
        code = main(["lm", command, str(trained), "book.txt", option, place])
        assert code == (1 if command == "compress" else 2)
    assert "must end in .html" in said(capsys)
    assert time.monotonic() - before < 60


def test_a_page_written_by_others_is_not_overwritten(trained: Path, capsys) -> None:
    Path("mine.html").write_text("<p>my page</p>")
    args = ["lm", "bits", str(trained), "book.txt", "--report", "mine.html"]
    assert main(args) == 1
    assert "was not written by certus" in said(capsys)
    assert Path("mine.html").read_text() == "<p>my page</p>"


def test_a_full_disk_leaves_the_old_files(
    trained: Path, folder: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("book.certus").write_bytes(b"an older model")
    Path("book.txt.lm").write_bytes(b"an older file")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for args in (
        ["fit", "book.txt", *SHORT],
        ["compress", str(trained), "book.txt"],
        ["bits", str(trained), "book.txt", "--report", "page.html"],
    ):
        assert main(["lm", *args]) == 1
        told = said(capsys)
        assert "could not be written: No space left on device" in told
        assert any(f"{n} could" in told for n in ("certus", "lm", "page.html"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_sample_that_nobody_can_store(trained: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                COMMAND,
                "lm",
                "sample",
                str(trained),
                "--tokens",
                "9",
            ],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 1
    assert done.stderr == b"certus: no space left on device.\n"


# ---- Ctrl-C --------------------------------------------------------------------


def interrupted(
    args: list[str], word: bytes, before: str = ""
) -> tuple[int, bytes, bytes]:
    """Run a command, press Ctrl-C once it has said a word; code and what it said."""
    begun = b""
    with subprocess.Popen(
        [sys.executable, "-c", before + COMMAND, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stderr is not None
        while word not in begun:
            line = running.stderr.readline()
            assert line, begun
            begun += line
        running.send_signal(signal.SIGINT)
        out, told = running.communicate(timeout=120)
    return running.returncode, out, begun + told


def test_ctrl_c_in_the_middle_of_a_fit_keeps_what_was_learnt() -> None:
    args = ["lm", "fit", "book.txt", *SMALL, "--max-time", "600"]
    code, out, told = interrupted(args, b"step ")
    assert code == 130 and b"Traceback" not in told
    assert b"interrupted; what was learnt so far was written." in told
    assert b"wrote book.certus" in out
    model = certus.load("book.certus")
    assert model.certificate_.status.value == "interrupted"
    assert model.n_iter_ > 0 and model.bits_per_byte("the cat") < 8
    assert not list(Path().glob("*.tmp*"))


def test_ctrl_c_before_there_is_a_model_writes_nothing() -> None:
    waiting = (
        "import certus.cli.language_models as m, sys, time\n"
        "def slow(*_):\n"
        "    print('waiting', file=sys.stderr, flush=True)\n"
        "    time.sleep(60)\n"
        "m._unfitted = slow\n"
    )
    args = ["lm", "fit", "book.txt", *SMALL]
    code, _, told = interrupted(args, b"waiting", waiting)
    assert code == 130 and b"Traceback" not in told
    assert told.endswith(b"certus: interrupted; nothing was written.\n")
    assert not Path("book.certus").exists()


def test_ctrl_c_in_the_middle_of_a_generation(trained: Path) -> None:
    model = certus.load(trained)
    model.network_.embedding.weight.data[256] = 0  # the end is never likely
    model.save("endless.certus")
    waiting = (
        "import certus.language.decoding.decoding_kernels as k, sys\n"
        "plain = k.generate_some\n"
        "def some(*args):\n"
        "    print('writing', file=sys.stderr, flush=True)\n"
        "    return plain(*args)\n"
        "k.generate_some = some\n"
    )
    args = ["lm", "sample", "endless.certus", "--tokens", "30000000"]
    code, out, told = interrupted(args, b"writing", waiting)
    assert code == 130 and out == b""
    assert told.endswith(b"certus: interrupted; nothing was written.\n")
