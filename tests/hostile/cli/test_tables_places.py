"""Where the commands write: no permission, no folder, no space, or the input itself.

Whatever happens, files are whole or absent, and no fragment stays behind.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import certus
from certus.cli import files, fitting, main

Capture = pytest.CaptureFixture[str]
Limited = Callable[..., tuple[int, str]]
FIT = ["fit", "t.csv", "--target", "y", "--model", "ridge"]
WRITERS = {
    "fit": [*FIT, "--out"],
    "report of fit": [*FIT, "--report"],
    "predict": ["predict", "m.certus", "t.csv", "--out"],
    "audit": ["audit", "m.certus", "t.csv", "--report"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "REPORT_SECONDS", 0.1)
    x = np.arange(60.0)
    pl.DataFrame({"x": x, "z": x % 7, "y": x + np.sin(7 * x)}).write_csv("t.csv")
    assert main([*FIT, "--out", "m.certus"]) == 0
    return tmp_path


def state(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def refused(args: list[str], text: str, capsys: Capture, code: int = 1) -> None:
    before = state(Path())
    capsys.readouterr()
    assert main(args) == code
    shown = capsys.readouterr()
    said = " ".join(shown.err.split())
    assert text in said and len(shown.err.splitlines()) <= 2, shown.err
    assert state(Path()) == before


@pytest.mark.parametrize("command", WRITERS)
def test_no_permission(
    command: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by chmod: a test run as root could write all the same.
    whole = os.access

    def access(path: str, mode: int) -> bool:
        return mode != os.W_OK and whole(path, mode)

    monkeypatch.setattr(files.os, "access", access)
    refused([*WRITERS[command], "o.html"], "permission denied. Change --", capsys)


@pytest.mark.parametrize("command", WRITERS)
def test_no_such_folder(command: str, capsys: Capture) -> None:
    refused([*WRITERS[command], "no/such/o.html"], "Create it, or change --", capsys)
    Path("taken.html").mkdir()
    refused([*WRITERS[command], "taken.html"], "is a folder. Name a file", capsys)


@pytest.mark.parametrize("command", WRITERS)
def test_the_input_as_output(command: str, capsys: Capture) -> None:
    """By its name, by a symbolic and by a hard link."""
    Path("soft.html").symlink_to("t.csv")
    os.link("t.csv", "hard.html")
    for place in ("t.csv", "./t.csv", "soft.html", "hard.html"):
        args = [*WRITERS[command], place]
        refused(args, "would overwrite the input", capsys, code=2)


@pytest.fixture
def limited(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Run a command while no file may grow beyond a limit; its code and its errors."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(limit: int, *args: str) -> tuple[int, str]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        capsys.readouterr()
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            code = main(list(args))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return code, " ".join(capsys.readouterr().err.split())

    return run


def test_no_space_for_the_model_or_the_predictions(limited: Limited) -> None:
    before = state(Path())
    for args in (FIT, ["predict", "m.certus", "t.csv", "--out", "p.csv"]):
        code, said = limited(500, *args)
        assert code == 1
        assert "could not be written: File too large" in said, said
        assert "Traceback" not in said
        assert state(Path()) == before


def test_no_space_for_the_report(limited: Limited) -> None:
    """The model is whole and the message says where; there is no part of a page."""
    fit = [*FIT, "--no-refit"]  # a model much smaller than any report
    assert main([*fit, "--out", "n.certus"]) == 0
    before = state(Path())
    code, said = limited(len(before["n.certus"]) + 1000, *fit)
    assert code == 1 and "The model is in t.certus." in said
    after = state(Path())
    assert set(after) - set(before) == {"t.certus"}
    assert certus.load("t.certus").certificate_.met is True
    code, said = limited(1000, "audit", "m.certus", "t.csv", "--report", "a.html")
    assert code == 1 and "no part of it was written" in said
    assert state(Path()) == after
