"""The command line under bad input: one or two lines on stderr, never a traceback.

Damaged files, meaningless targets, places that cannot be written, a full disk, Ctrl-C,
a closed pipe, and names made to upset a terminal.
"""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus._core import cache
from certus.cli import fitting, main, screen
from certus.kernel_ridge import KernelRidge
from certus.linear_model import LassoCV, Ridge

LABELS = "ridge-classifier"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "CERTUS_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fitting, "REPORT_SECONDS", 0.2)  # figures are tested elsewhere
    monkeypatch.setattr(
        cache._compilation, "told", True
    )  # a new clone compiles kernels
    return tmp_path


RIDGE = ["--model", "ridge"]


def table(name: str = "t.csv", n: int = 40, **columns: Any) -> str:
    x = np.arange(float(n))
    data = {"x": x, "y": x + np.sin(7 * x)} | columns
    pl.DataFrame(data).write_csv(name)
    return name


def fails(
    args: list[str], text: str, capsys: pytest.CaptureFixture[str], code: int = 1
) -> str:
    """The command ends with this code and a short sentence; nothing on stdout."""
    capsys.readouterr()
    assert main(args) == code
    shown = capsys.readouterr()
    found = shown.err.splitlines()
    assert shown.err.startswith("certus: ") and len(found) <= 4, shown.err
    assert all(len(line) <= 80 for line in found)
    joined = " ".join(line.strip() for line in found)
    assert text in joined, joined
    assert "Traceback" not in joined
    return joined


# ---- tables --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"x,y\n", "no rows"),
        (b"x,y\n1,2\n3,4,5\n", "line 3"),
        ("x,y\n".encode("utf-16"), "no rows"),
        ("x,y\n1,привет\n2,b\n".encode("cp1251"), "--encoding"),
        (b"\x00\x01\x02\x03", "binary"),
        (b"y\n1\n2\n3\n", "no column besides"),
        (b"x,y\n1,2\n", "nothing to predict"),
        (b"x,x,y\n1,2,3\n", "more than one column"),
    ],
)
def test_damaged_tables(
    content: bytes, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_bytes(content)
    fails(["fit", "t.csv", "--target", "y"], text, capsys)
    assert [path.name for path in folder.iterdir()] == ["t.csv"]


def test_missing_files(capsys: pytest.CaptureFixture[str]) -> None:
    table("houses.csv")
    fails(["fit", "house.csv", "--target", "y"], 'Did you mean "houses.csv"?', capsys)
    fails(["fit", ".", "--target", "y"], "is a folder", capsys)
    fails(["fit", "t.xlsx", "--target", "y"], "There is no file".lower(), capsys)
    fails(["predict", "m.certus", "houses.csv"], "m.certus does not exist", capsys)
    fails(["certify", "m.certus", "houses.csv"], "m.certus does not exist", capsys)


def test_a_target_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(["fit", table()], "--target COLUMN", capsys, code=2)
    assert '"x", "y"' in said


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([None] * 40, "no value in any row"),
        ([3.5] * 40, "is 3.5 in every row"),
        (["same"] * 40, "is same in every row"),
        ([float("inf"), *range(39)], "infinite"),
        ([float("-inf"), *range(39)], "infinite"),
        ([f"name {i}" for i in range(40)], "40 different labels"),
        (
            [f"2020-01-{1 + i % 28:02d}" for i in range(40)],
            "must hold numbers or labels",
        ),
        ([True] * 40, "in every row"),
    ],
    ids=["missing", "constant", "one class", "inf", "-inf", "names", "dates", "true"],
)
def test_meaningless_targets(
    values: list[Any], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(["fit", table(y=values), "--target", "y"], text, capsys)
    fails(["fit", "t.csv", "--target", "y", "--model", LABELS], text, capsys)


def test_no_usable_column(capsys: pytest.CaptureFixture[str]) -> None:
    fails(["fit", table(x=[1] * 40), "--target", "y"], "no column can be used", capsys)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9])
def test_tiny_tables(n: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Few rows are fitted; where an error cannot be measured, that is said."""
    assert main(["fit", table(n=n), "--target", "y", "--json"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["split"]["sealed_rows"] == 0
    assert found["risk"][0]["strength"] == "refused"
    row = next(r for r in found["candidates"] if r["name"] == found["chosen"])
    assert row["reason"] or len(row["folds"]) == min(5, n // 2)


def test_rare_labels(capsys: pytest.CaptureFixture[str]) -> None:
    """A label met once cannot be in two folds; the fit goes on."""
    labels = ["a"] * 20 + ["b"] * 19 + ["c"]
    assert main(["fit", table(y=labels), "--target", "y", "--model", LABELS]) == 0
    assert "c 1" in capsys.readouterr().out
    # Two rows of one of the labels: each fold still knows both.
    labels = ["a"] * 38 + ["b"] * 2
    assert main(["fit", table(y=labels), "--target", "y", "--model", LABELS]) == 0


def test_a_label_unknown_to_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["fit", table(y=["a", "b"] * 20), "--target", "y", "--model", LABELS]) == 0
    )
    table("new.csv", y=["a", "z"] * 20)
    capsys.readouterr()
    code = main(["certify", "t.certus", "new.csv"])
    shown = capsys.readouterr()
    assert code in (1, 3), shown
    assert "Traceback" not in shown.err


def test_many_columns_and_rows_of_one_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """More columns than rows: solved all the same, and everything fits the screen."""
    generator = np.random.default_rng(0)
    columns = {f"column number {i:03d}": generator.normal(size=40) for i in range(50)}
    assert main(["fit", table(**columns), "--target", "y"]) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scales(scale: float, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(40.0)
    table(x=scale * x, y=scale * (x + np.sin(x)))
    code = main(["fit", "t.csv", "--target", "y", *RIDGE])
    shown = capsys.readouterr()
    assert code in (0, 1, 3)
    assert (code == 1) == shown.err.startswith("certus: ")


# ---- names made to upset -------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "\x1b[31mred\x1b[0m",
        "[bold]not markup[/bold]",
        ":smile:",
        "tab\there",
        "n" * 300,
        "größe 価格 🙂",
        "-rf",
        "$(id)",
        "",
    ],
    ids=ascii,
)
def test_odd_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped; markup, emoji codes and shell text stay text."""
    x = np.arange(40.0)
    pl.DataFrame({"x": x, name or "y": x + np.sin(x)}).write_parquet("t.parquet")
    args = ["fit", "t.parquet", f"--target={name or 'y'}", *RIDGE]
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and "\t" not in text
    assert all(
        len(line) <= 80 for line in text.splitlines() if "certus fit" not in line
    )
    if name.startswith(("[", ":")):
        assert name in text
    assert main(["certify", "t.certus", "t.parquet"]) == 0


def test_file_names_that_are_not_text() -> None:
    shown = program(b"fit", b"\xff\xfe.csv", b"--target", b"y")
    assert shown.returncode == 1
    assert shown.stderr.startswith(b"certus: ") and b"Traceback" not in shown.stderr


# ---- model files ---------------------------------------------------------------


@pytest.mark.parametrize("command", ["predict", "certify"])
def test_files_that_are_not_models_are_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table()
    Path("m.certus").write_bytes(b"PK\x03\x04 not a model at all")
    fails([command, "m.certus", "t.csv"], "m.certus", capsys)
    Path("m.certus").write_bytes(b"")
    fails([command, "m.certus", "t.csv"], "m.certus", capsys)
    assert main(["fit", "t.csv", "--target", "y", *RIDGE]) == 0
    whole = Path("t.certus").read_bytes()
    Path("m.certus").write_bytes(whole[:-100])
    fails([command, "m.certus", "t.csv"], "m.certus", capsys)
    at = len(whole) - 5
    Path("m.certus").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    fails([command, "m.certus", "t.csv"], "m.certus", capsys)


def test_a_model_that_was_never_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    certus.save(Ridge(), "bare.certus")
    table()
    fails(["predict", "bare.certus", "t.csv"], "not fitted", capsys)
    fails(["certify", "bare.certus", "t.csv", "--target", "y"], "not fitted", capsys)


def test_types_that_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", table(), "--target", "y", *RIDGE]) == 0
    pl.DataFrame({"x": ["three", "four"]}).write_csv("new.csv")
    fails(["predict", "t.certus", "new.csv"], '"x"', capsys)
    pl.DataFrame({"z": [1.0, 2.0]}).write_csv("new.csv")
    fails(["predict", "t.certus", "new.csv"], 'no column "x"', capsys)


# ---- places --------------------------------------------------------------------


def test_the_input_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(table()).read_bytes()
    base = ["fit", "t.csv", "--target", "y", *RIDGE]
    fails([*base, "--out", "t.csv"], "would overwrite the input", capsys, code=2)
    fails([*base, "--out", "./t.csv"], "would overwrite the input", capsys, code=2)
    fails([*base, "--report", "t.csv"], "would overwrite the input", capsys, code=2)
    fails([*base, "--out", "a.html", "--report", "a.html"], "overwrite", capsys, code=2)
    fails([*base, "--report", "report"], ".html, .md or .json", capsys, code=2)
    assert main(base) == 0
    for place in ("t.csv", "t.certus"):
        args = ["predict", "t.certus", "t.csv", "--out", place]
        fails(args, "would overwrite the input", capsys, code=2)
    assert Path("t.csv").read_bytes() == before


def test_places_that_cannot_be_written_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["fit", table(), "--target", "y"]
    fails([*base, "--out", "no/such/m.certus"], "there is no folder", capsys)
    fails([*base, "--out", "."], "is a folder", capsys)
    fails([*base, "--report", "no/such/m.html"], "there is no folder", capsys)
    assert [path.name for path in folder.iterdir()] == ["t.csv"]


def test_full_disk(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files stay whole, no fragments remain, and a sentence says so."""
    assert main(["fit", table(), "--target", "y", *RIDGE]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        args = ["fit", "t.csv", "--target", "y", "--json", *RIDGE]
        said = fails(args, "No space", capsys)
        assert "t.certus" in said
        args = ["predict", "t.certus", "t.csv", "--out", "p.csv"]
        capsys.readouterr()
        assert main(args) == 1
        assert "p.csv could not be written" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_standard_output() -> None:
    with open("/dev/full", "wb") as full:
        shown = program(b"list", stdout=full)
    assert shown.returncode == 1
    assert b"Traceback" not in shown.stderr and b"certus: " in shown.stderr


# ---- endings -------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_interrupt_before_there_is_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table()
    monkeypatch.setattr(Ridge, "fit", interrupt)
    assert main(["fit", "t.csv", "--target", "y"]) == 130
    assert "interrupted; nothing was written" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["t.csv"]


def test_interrupt_keeps_complete_candidates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the lasso: ridge is complete, is chosen, judged and written."""
    monkeypatch.setattr(LassoCV, "fit", interrupt)
    args = ["fit", table(n=60), "--target", "y", "--json"]
    assert main(args) == 130
    shown = capsys.readouterr()
    assert shown.err == "certus: interrupted; the finished parts were written.\n"
    report = json.loads(shown.out)
    found = report["comparison"]
    assert found["status"] == "interrupted" and found["chosen"] == "ridge"
    reasons = {row["name"]: row["reason"] for row in found["candidates"]}
    assert reasons["ridge"] == "" and reasons["lasso"] == "interrupted"
    assert reasons["gradient boosting"] == "interrupted"
    promised = {claim["name"]: claim["strength"] for claim in found["risk"]}
    assert promised["large_error"] == "statistical"
    assert certus.load("t.certus").certificate_.met is True
    assert main(["certify", "t.certus", "t.csv"]) == 0
    monkeypatch.setattr(LassoCV, "fit", interrupt)
    assert main(["fit", "t.csv", "--target", "y", "--no-files"]) == 130
    assert "nothing was written" in capsys.readouterr().err


def test_a_real_interrupt_leaves_a_whole_file_or_none() -> None:
    """The signal itself, at several moments, to a program of its own."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(6000, 20))
    y = X[:, 0] * X[:, 1] + generator.normal(size=6000)
    pl.DataFrame(X).with_columns(y=pl.Series(y)).write_parquet("big.parquet")
    command = (
        "import signal, sys; "  # a shell may have it ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from certus.cli import main; sys.exit(main())"
    )
    args = [sys.executable, "-c", command, "fit", "big.parquet", "--target", "y"]
    for seconds in (1.0, 6.0):
        with subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            time.sleep(seconds)
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=60)
        assert b"Traceback" not in said
        if running.returncode == 0:  # it was done before the signal came
            continue
        assert running.returncode == 130, said
        written = b"the finished parts were written" in said
        assert written == Path("big.certus").exists()
        if written:
            certus.load("big.certus")
            Path("big.certus").unlink()
        assert not list(Path().glob("*.tmp*"))


WAITING = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
from certus.cli import fitting, main
def compare(*_):
    print("ready", flush=True)
    time.sleep(60)
fitting._compare = compare
code = main(["fit"])
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
sys.exit(code)
"""


def test_an_interrupt_stops_a_command_that_began_with_it_ignored() -> None:
    """As behind ``&`` in a script; what was ignored is ignored again afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGINT)
        out, said = running.communicate(timeout=30)
    assert running.returncode == 130 and out == b"True\n"
    # On a busy machine there is a line about the progress before it.
    assert said.endswith(b"certus: interrupted; nothing was written.\n")


LOADING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from certus.cli import main
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "polars._utils":
            signal.raise_signal(signal.SIGINT)
            print("held back", flush=True)
sys.meta_path.insert(0, Pressed())
sys.exit(main(["fit"]))
"""


def test_an_interrupt_waits_until_polars_is_loaded() -> None:
    """Its compiled part panics on one, and says so at length."""
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True)
    assert done.returncode == 130 and done.stdout == b"held back\n"
    assert done.stderr == b"certus: interrupted; nothing was written.\n"


def test_interrupt_at_the_report_leaves_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certus.report.audit", interrupt)
    assert main(["fit", table(), "--target", "y", *RIDGE]) == 130
    shown = capsys.readouterr()
    assert shown.err == "certus: interrupted; the finished parts were written.\n"
    assert "wrote t.certus\n" in shown.out and not Path("t.html").exists()
    assert certus.load("t.certus").certificate_.met is True


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_import_is_an_interrupt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled modules turn Ctrl-C while they load into an ImportError."""

    def swallowed(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(fitting, "_compare", swallowed)
    assert main(["fit"]) == 130
    assert "interrupted; nothing was written" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_time_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too short for anything: nothing is written. Long enough: all are compared."""
    table(n=200)
    args = ["fit", "t.csv", "--target", "y", "--max-time"]
    fails([*args, "4"], "--max-time 4 is too short", capsys, 2)
    monkeypatch.setattr("certus.cli.limits.LEAST", 0.0)
    monkeypatch.setattr("certus.cli.limits.WHOLE", 0.0)
    fails([*args, "0.000001"], "no model was fitted within 1e-06 s", capsys)
    assert not Path("t.certus").exists()
    assert main([*args, "600", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["status"] == "solved"


def test_a_limit_that_a_busy_machine_cannot_keep_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from certus.cli import limits

    table(n=60)
    args = ["fit", "t.csv", "--target", "y", "--max-time"]
    monkeypatch.setattr(limits, "_busy", lambda: 6.0)
    start = time.process_time()
    fails([*args, "17"], "takes about 18 s. Give at least 18.", capsys, 2)
    assert time.process_time() - start < 1
    limits.check_limit(18.0)
    # Where too little is left after reading, no model is begun.
    monkeypatch.setattr(limits, "seconds_left", lambda limit: 4.7)
    with pytest.raises(limits.Stop, match="no model was fitted within 18 s"):
        limits.model_seconds(18.0)
    monkeypatch.setattr(limits, "_busy", lambda: 2.0)
    assert 2.0 < limits.model_seconds(18.0) < 2.5
    assert not Path("t.certus").exists()


def test_time_limit_leaves_out_what_does_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, slept = KernelRidge.fit, []

    def slow(self: KernelRidge, *args: object, **kwargs: object) -> KernelRidge:
        start = time.perf_counter()
        try:
            time.sleep(1.0)
        finally:
            slept.append(time.perf_counter() - start)
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(KernelRidge, "fit", slow)
    start, cpu = time.perf_counter(), time.process_time()
    assert main(["fit", table(n=60), "--target", "y", "--max-time", "10"]) == 0
    worked = time.process_time() - cpu + sum(slept)
    # The limit is that of the whole command, its report included; what a busy machine
    # does in the meantime is not counted.
    assert min(time.perf_counter() - start, worked) < 11
    text = capsys.readouterr().out
    assert re.search(r"kernel ridge \(Gaussian\) +– no time left", text)
    assert "! the time limit left no time for: kernel ridge (Gaussian)" in text
    assert certus.load("t.certus").certificate_.met is True


def test_interrupted_fit_is_written_with_its_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver that completes the final model after Ctrl-C: it is kept, and says so."""
    import dataclasses

    whole = Ridge.fit

    def stopped(self: Ridge, X: Any, *args: object, **kwargs: object) -> Ridge:
        whole(self, X, *args, **kwargs)
        if len(X) == 32:  # all training rows of 40
            status = certus.Status.INTERRUPTED
            self.certificate_ = dataclasses.replace(self.certificate_, status=status)
        return self

    monkeypatch.setattr(Ridge, "fit", stopped)
    assert main(["fit", table(), "--target", "y", *RIDGE]) == 130
    shown = capsys.readouterr()
    assert "! interrupted; this is the model so far" in shown.out
    assert certus.load("t.certus").certificate_.status is certus.Status.INTERRUPTED


def test_surprises_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise KeyError("deep inside")

    monkeypatch.setattr(fitting, "_compare", surprise)
    assert main(["fit"]) == 1
    shown = capsys.readouterr()
    assert "unexpected KeyError" in shown.err and "CERTUS_DEBUG=1" in shown.err
    assert "Traceback" not in shown.err
    monkeypatch.setenv("CERTUS_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["fit"])


def test_out_of_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate without memory is left out; if it is the only one, that is said."""

    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Ridge, "fit", greedy)
    assert main(["fit", *RIDGE]) == 1
    assert "out of memory" in capsys.readouterr().err
    assert main(["fit", table(n=60), "--target", "y"]) == 0
    assert re.search(r"ridge +– out of memory", capsys.readouterr().out)


def program(
    *args: bytes, stdout: Any = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from certus.cli import main; sys.exit(main())"
    return subprocess.run(
        [os.fsencode(sys.executable), b"-c", code.encode(), *args],
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


def test_reader_that_leaves_early() -> None:
    """As ``certus list | head -0`` does: no traceback, no complaint at exit."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        shown = program(b"list", b"--json", stdout=writing)
    finally:
        os.close(writing)
    assert shown.returncode == 1 and shown.stderr == b""


def test_progress_appears_late_and_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with screen.progress(2) as step:
        step("one")
    assert capsys.readouterr().err == ""
    import time

    from rich.console import Console

    console = Console(file=sys.stderr, force_terminal=True, width=80)
    monkeypatch.setattr(screen, "err", lambda: console)
    with screen.progress(2) as step:
        step("quick")
    assert capsys.readouterr().err == ""
    with screen.progress(2) as step:
        step("reading a long file")
        time.sleep(1.3)
    assert "reading a long file" in capsys.readouterr().err
