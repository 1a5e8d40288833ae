"""Keeps the prose true: its examples are run, and command-line output is captured.

Every ``>>>`` example in a Markdown page is run as a doctest, one namespace per page;
a difference is a warning, and warnings are errors. Blocks that begin with the name of a
file are written there first, for the examples to import. Durations and tiny numbers
differ between machines and are not compared. What the command line prints is written to
``api/generated/cli`` for the pages to include, and so is the table of measured speeds.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.util import logging

logger = logging.getLogger(__name__)

#: Code, but for changes of certus itself, which a test follows in a copy.
_BLOCK = re.compile(
    r"^```python\n(?!# (?:src|tests)/)(.*?)^```", re.MULTILINE | re.DOTALL
)
_VARYING = re.compile(r"\d+(?:\.\d+)?\s+m?s\b|\d(?:\.\d)?e[-+]\d\d")
_FILE = re.compile(r"# (\w+/\w+\.py)\n")
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
_COMMANDS = {
    "help": ["--help"],
    "fit": ["fit", "--no-files"],
    "fit-help": ["fit", "--help"],
    "predict-help": ["predict", "--help"],
    "explain-help": ["explain", "--help"],
    "watch-help": ["watch", "--help"],
    "certify-help": ["certify", "--help"],
    "audit-help": ["audit", "--help"],
    "synth-help": ["synth", "--help"],
    "list": ["list"],
    "list-help": ["list", "--help"],
    "migrate-help": ["migrate", "--help"],
    "lm-help": ["lm", "--help"],
    "lm-fit-help": ["lm", "fit", "--help"],
    "lm-sample-help": ["lm", "sample", "--help"],
    "lm-bits-help": ["lm", "bits", "--help"],
    "lm-compress-help": ["lm", "compress", "--help"],
}


class _Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, flags: int) -> bool:
        want, got = (_VARYING.sub("#", text) for text in (want, got))
        return super().check_output(want, got, flags)


def run_examples(app: Any) -> None:
    """Run the examples of every page as one doctest per page."""
    source = Path(app.srcdir)
    here = Path.cwd()
    for page in sorted(source.rglob("*.md")):
        if {"_build", "auto_examples"} & set(page.relative_to(source).parts):
            continue
        text = page.read_text(encoding="utf-8")
        blank = [
            "\n" * text.count("\n", last, match.start(1)) + match.group(1)
            for last, match in _blocks(text)
        ]
        test = doctest.DocTestParser().get_doctest(
            "".join(blank), {}, str(page), str(page), 0
        )
        report: list[str] = []
        runner = doctest.DocTestRunner(_Checker(), verbose=False, optionflags=_FLAGS)
        with tempfile.TemporaryDirectory() as folder:
            _write_files(Path(folder), text)
            sys.path.insert(0, folder)
            os.chdir(folder)  # examples may write files
            try:
                runner.run(test, out=report.append)
            finally:
                os.chdir(here)
                sys.path.remove(folder)
        if report:
            logger.warning("an example does not hold:\n%s", "".join(report))


def _write_files(folder: Path, text: str) -> None:
    for _, match in _blocks(text):
        named = _FILE.match(match.group(1))
        if named:
            path = folder / named.group(1)
            path.parent.mkdir(exist_ok=True)
            path.write_text(match.group(1), encoding="utf-8")


def _blocks(text: str) -> Any:
    """Each fenced block with the end of the one before, so line numbers are kept."""
    last = 0
    for match in _BLOCK.finditer(text):
        yield last, match
        last = match.end(1)


def capture_commands(app: Any) -> None:
    """Write what the command line prints, at 80 columns and without colour."""
    folder = Path(app.srcdir) / "api" / "generated" / "cli"
    folder.mkdir(parents=True, exist_ok=True)
    command = Path(sys.executable).with_name("certus")
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    for name, arguments in _COMMANDS.items():
        done = subprocess.run(
            [command, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if done.returncode:
            logger.warning("certus %s failed: %s", " ".join(arguments), done.stderr)
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        typed = f"$ certus {' '.join(arguments)}"
        text = "\n".join([typed, *lines]).rstrip() + "\n"
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def write_speed(app: Any) -> None:
    """Write the tables of the page on speed from the results of the benchmarks."""
    results = Path(app.srcdir).parent / "benchmarks" / "results" / "table.md"
    best = results.read_text(encoding="utf-8").partition("## Every contender")[0]
    rows = [line.strip("| ").split(" | ") for line in best.splitlines() if "|" in line]
    lines = ["| problem | certus | another library | ratio |", "|---|--:|--:|--:|"]
    for row in rows[2:]:
        problem, ours, peer, theirs = row[0], row[1], row[4], row[5]
        problem = re.sub(r" \([^()]*\)$", "", problem)  # how it was measured
        peer = peer.replace("sklearnex", "scikit-learn-intelex")
        peer = re.sub(r"^sklearn\b", "scikit-learn", peer)
        if theirs == "–":
            lines.append(f"| {problem} | {_seconds(ours)} | no result | – |")
            continue
        ratio = float(theirs.rstrip("*")) / float(ours)
        lines.append(
            f"| {problem} | {_seconds(ours)} | {peer}, {_seconds(theirs)} "
            f"| {ratio:.1f} |"
        )
    folder = Path(app.srcdir) / "api" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    attacks = (results.parent / "attacks.md").read_text(encoding="utf-8")
    automl = (results.parent / "automl.md").read_text(encoding="utf-8")
    automl = automl[automl.index("\n## ") + 1 :].partition("## Every ")[0]
    pages = {
        "speed": "\n".join(lines),
        "attacks": attacks[attacks.index("| attack |") :],
        "automl": automl.replace("## ", "### "),
    }
    for name, text in pages.items():
        (folder / f"{name}.txt").write_text(f"{text.strip()}\n", encoding="utf-8")


def _seconds(text: str) -> str:
    """Two digits, held together with their unit."""
    return f"{float(text.rstrip('*')):.2g}\N{NO-BREAK SPACE}s"


def setup(app: Any) -> dict[str, Any]:
    """Run before pages are read."""
    app.connect("builder-inited", capture_commands)
    app.connect("builder-inited", write_speed)
    app.connect("builder-inited", run_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
