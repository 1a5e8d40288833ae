"""scikit-learn's own tests, run against our estimators: ``make test-upstream``.

The installed test files of some families of scikit-learn are copied to a temporary
directory with one change: names that ours has (see ``FAMILIES``) are imported from
there. Of these copies the tests that concern our estimators run (see ``plugin.py``),
except those listed with a reason in ``deselected.toml``. The share that passes is taken
of all of them, the deselected included, and must reach 85 %; any other failure is an
error.

    python tests/upstream/run.py               the table
    python tests/upstream/run.py --deselected  run the deselected ones as well
    python tests/upstream/run.py -- -k ridge   further options go to pytest
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sklearn
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
UPSTREAM = Path(sklearn.__file__).parent
#: scikit-learn's package, ours, and the test files there; their names must differ.
FAMILIES = (
    (
        "sklearn.linear_model",
        "certus.linear_model",
        (
            "test_base.py",
            "test_common.py",
            "test_coordinate_descent.py",
            "test_huber.py",
            "test_logistic.py",
            "test_perceptron.py",
            "test_quantile.py",
            "test_ridge.py",
            "test_sparse_coordinate_descent.py",
        ),
    ),
    ("sklearn.linear_model._glm", "certus.linear_model", ("test_glm.py",)),
    (
        "sklearn.neighbors",
        "certus.neighbors",
        ("test_neighbors.py", "test_neighbors_pipeline.py"),
    ),
    ("sklearn.svm", "certus.svm", ("test_svm.py",)),
    ("sklearn.svm", "certus.linear_model", ()),
    ("sklearn.kernel_ridge", "certus.svm", ("test_kernel_ridge.py",)),
    ("sklearn.cluster", "certus.mixture", ("test_k_means.py",)),
    (
        "sklearn.mixture",
        "certus.mixture",
        ("test_gaussian_mixture.py", "test_mixture.py"),
    ),
    ("sklearn.neural_network", "certus.neural_network", ("test_mlp.py",)),
    (
        "sklearn.decomposition",
        "certus.decomposition",
        (
            "test_factor_analysis.py",
            "test_incremental_pca.py",
            "test_kernel_pca.py",
            "test_pca.py",
            "test_truncated_svd.py",
        ),
    ),
)
FILES = tuple(name for *_, names in FAMILIES for name in names)
#: Classes that tests ask a model's class to be derived from, and ours in their place.
BASES = {
    ("sklearn.neighbors._base", "KNeighborsMixin"): (
        "certus.neighbors.common",
        "NeighborsBase",
    ),
}
LEAST = 85.0
Line = dict[str, Any]
#: Of each of their packages, where our names live.
NAMES: dict[str, dict[str, str]] = {}
for _theirs, _ours, _ in FAMILIES:
    public = importlib.import_module(_ours).__all__
    NAMES.setdefault(_theirs, {}).update(dict.fromkeys(public, _ours))


def replace_imports(source: str) -> str:
    """``from sklearn.linear_model import ...`` with our names taken from us.

    So are those written ``neighbors.X`` after ``from sklearn import neighbors``. Every
    line keeps its number, so that a traceback points into scikit-learn's file.
    """
    lines = source.splitlines()
    nodes = list(ast.walk(ast.parse(source)))
    dotted = _replace_attributes(lines, nodes)
    for node in nodes:
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.module == "sklearn":
            here = {f"sklearn.{alias.name}" for alias in node.names}
            wanted = [f"from {m} import {n}" for t, m, n in sorted(dotted) if t in here]
            _rewrite(lines, node, [ast.unparse(node), *wanted])
        elif any((node.module, alias.name) in BASES for alias in node.names):
            _rewrite(lines, node, [_import_base(node.module, a) for a in node.names])
        elif node.module in NAMES:
            homes = collections.defaultdict(list)
            for alias in node.names:
                home = NAMES[node.module].get(alias.name, node.module)
                homes[home].append(ast.unparse(alias))
            parts = [f"from {m} import {', '.join(a)}" for m, a in homes.items()]
            _rewrite(lines, node, parts)
    return "\n".join(lines) + "\n"


def _import_base(module: str | None, alias: ast.alias) -> str:
    package, name = BASES.get((str(module), alias.name), (module, ""))
    what = f"{name} as {alias.name}" if name else ast.unparse(alias)
    return f"from {package} import {what}"


def _rewrite(lines: list[str], node: ast.stmt, parts: list[str]) -> None:
    """Put the parts on the statement's first line and blanks on its others."""
    end = node.end_lineno or node.lineno
    blank = [""] * (end - node.lineno)
    lines[node.lineno - 1 : end] = [" " * node.col_offset + "; ".join(parts), *blank]


def _replace_attributes(
    lines: list[str], nodes: list[ast.AST]
) -> set[tuple[str, str, str]]:
    """Write ``neighbors.X`` as ``X`` where X is ours; what must be imported for it."""
    found = set()
    places = [n for n in nodes if isinstance(n, ast.Attribute)]
    for node in sorted(places, key=lambda n: (n.lineno, -n.col_offset)):
        if not isinstance(node.value, ast.Name):
            continue
        theirs = f"sklearn.{node.value.id}"
        package = NAMES.get(theirs, {}).get(node.attr)
        if package is not None and node.lineno == node.end_lineno:
            line = lines[node.lineno - 1].encode()
            start, stop = node.col_offset, node.end_col_offset
            changed = line[:start] + node.attr.encode() + line[stop:]
            lines[node.lineno - 1] = changed.decode()
            found.add((theirs, package, node.attr))
    return found


def run_tests(extra: list[str], run_all: bool) -> list[Line]:
    """Run pytest on the changed copies and return its report, one dict per line."""
    with tempfile.TemporaryDirectory(prefix="certus-upstream-") as folder:
        root = Path(folder)
        (root / "pytest.ini").write_text("[pytest]\naddopts = -p sklearn.conftest\n")
        for theirs, _, names in FAMILIES:
            folder_of = UPSTREAM / theirs.partition(".")[2].replace(".", "/") / "tests"
            tests = folder_of if folder_of.exists() else UPSTREAM / "tests"
            for name in names:
                source = (tests / name).read_text(encoding="utf-8")
                (root / name).write_text(replace_imports(source), encoding="utf-8")
        report = root / "report.jsonl"
        report.touch()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(HERE), os.environ.get("PYTHONPATH", "")]
            ),
            "UPSTREAM_REPORT": str(report),
            "UPSTREAM_RUN_ALL": "1" if run_all else "",
        }
        # scikit-learn skips its array API tests without this, and so do we.
        environment.pop("SCIPY_ARRAY_API", None)
        options = ["-p", "plugin", "-n", "2", "-q", "--tb=short", "-W", "ignore"]
        command = [sys.executable, "-m", "pytest", *options, *extra]
        done = subprocess.run(command, cwd=root, env=environment, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"pytest ended with code {done.returncode}; see above.")
        return [json.loads(line) for line in report.read_text().splitlines()]


def count(report: list[Line]) -> dict[str, collections.Counter[str]]:
    """Outcomes per file; a test listed as deselected counts as that."""
    counts: dict[str, collections.Counter[str]] = {
        name: collections.Counter() for name in FILES
    }
    for line in report:
        if "test" in line:
            outcome = "deselected" if line["reason"] else line["outcome"]
            # What scikit-learn expects to fail and does not is a pass.
            outcome = "passed" if outcome == "xpassed" else outcome
            counts[line["test"].partition("::")[0]][outcome] += 1
    return counts


def share(c: collections.Counter[str]) -> float:
    """Percentage passed of all that could run: passed, failed and deselected."""
    tried = c["passed"] + c["failed"] + c["deselected"]
    return 100.0 * c["passed"] / tried if tried else 100.0


def show(report: list[Line], console: Console) -> collections.Counter[str]:
    """Print the table by file and the reasons; return the total."""
    counts = count(report)
    total = sum(counts.values(), collections.Counter())
    columns = ("passed", "failed", "deselected", "skipped", "xfailed")
    table = Table("file", "collected", *columns, "passed of all")
    for name, c in [*counts.items(), ("all", total)]:
        if name == "all":
            table.add_section()
        numbers = [str(c[column]) for column in columns]
        table.add_row(name, str(c.total()), *numbers, f"{share(c):.1f} %")
    console.print(table)
    reasons = collections.Counter(r["reason"] for r in report if r.get("reason"))
    for reason, number in reasons.most_common():
        console.print(f"deselected, {reason}: {number}", highlight=False)
    run = total["passed"] + total["failed"]
    if run:
        console.print(f"of those run, {100 * total['passed'] / run:.1f} % passed")
    return total


def main() -> int:
    """Run, report, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deselected", action="store_true")
    parser.add_argument("--report", type=Path, help="write every outcome, JSON lines")
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    options = parser.parse_args()
    report = run_tests(options.pytest, options.deselected)
    if options.report:
        options.report.write_text("".join(json.dumps(r) + "\n" for r in report))
    console = Console(width=120)
    total = show(report, console)
    for line in report:
        if "unused" in line and not options.pytest:
            console.print(f"listed, but no such test: {line['unused']}", markup=False)
        if options.deselected and line.get("reason") and line["outcome"] == "passed":
            console.print(f"deselected, but passes: {line['test']}", markup=False)
    if total["failed"]:
        console.print("Failures above are not listed in deselected.toml.")
        return 1
    if share(total) < LEAST:
        console.print(f"Below {LEAST:g} %.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
