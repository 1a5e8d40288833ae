"""scikit-learn's own tests, run against our estimators: ``make test-upstream``.

Whole test files of the installed scikit-learn are copied to a temporary directory with
one change: the public names that certus has as well are imported from certus. Nothing
else is replaced, in the tests or in certus. Of these copies the tests that concern our
estimators run (see ``plugin.py``), except those listed with a reason in
``deselected.toml``. Two shares are reported: the tests that pass, of all of them, the
listed included; and the same without the listed tests of private code, of wording, of
classes, and of deliberate differences. Any failure that is not listed is an error.

    python tests/upstream/run.py               the table
    python tests/upstream/run.py --write       and benchmarks/results/upstream.md
    python tests/upstream/run.py --deselected  run the deselected ones as well
    python tests/upstream/run.py -- -k ridge   further options go to pytest
"""

from __future__ import annotations

import argparse
import ast
import collections
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from rich.console import Console
from rich.table import Table

from certus.registry import ESTIMATORS

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "upstream.md"
UPSTREAM = Path(sklearn.__file__).parent
#: Test files by their folder in scikit-learn; the files' names must differ.
FILES_IN = {
    "linear_model/tests": (
        "test_base.py",
        "test_bayes.py",
        "test_common.py",
        "test_coordinate_descent.py",
        "test_huber.py",
        "test_least_angle.py",
        "test_logistic.py",
        "test_perceptron.py",
        "test_quantile.py",
        "test_ransac.py",
        "test_ridge.py",
        "test_sag.py",
        "test_sparse_coordinate_descent.py",
        "test_theil_sen.py",
    ),
    "linear_model/_glm/tests": ("test_glm.py",),
    "neighbors/tests": ("test_neighbors.py", "test_neighbors_pipeline.py"),
    "svm/tests": ("test_bounds.py", "test_sparse.py", "test_svm.py"),
    "cluster/tests": ("test_k_means.py", "test_spectral.py"),
    "mixture/tests": ("test_gaussian_mixture.py", "test_mixture.py"),
    "neural_network/tests": ("test_mlp.py", "test_rbm.py"),
    "decomposition/tests": (
        "test_factor_analysis.py",
        "test_incremental_pca.py",
        "test_kernel_pca.py",
        "test_nmf.py",
        "test_pca.py",
        "test_truncated_svd.py",
    ),
    "semi_supervised/tests": ("test_label_propagation.py",),
    # Tools that take a model: theirs, with our models inside.
    "tests": (
        "test_calibration.py",
        "test_kernel_ridge.py",
        "test_multiclass.py",
        "test_multioutput.py",
        "test_pipeline.py",
    ),
    "ensemble/tests": (
        "test_bagging.py",
        "test_forest.py",
        "test_stacking.py",
        "test_voting.py",
        "test_weight_boosting.py",
    ),
    "ensemble/_hist_gradient_boosting/tests": (
        "test_gradient_boosting.py",
        "test_monotonic_constraints.py",
        "test_warm_start.py",
    ),
    "feature_selection/tests": (
        "test_from_model.py",
        "test_rfe.py",
        "test_sequential.py",
    ),
    "model_selection/tests": (
        "test_classification_threshold.py",
        "test_search.py",
        "test_successive_halving.py",
        "test_validation.py",
    ),
    "inspection/tests": (
        "test_partial_dependence.py",
        "test_permutation_importance.py",
    ),
    "compose/tests": ("test_target.py",),
    "metrics/tests": ("test_score_objects.py",),
    "impute/tests": ("test_impute.py",),
    "utils/tests": ("test_response.py",),
}
FILES = tuple(name for names in FILES_IN.values() for name in names)
#: Shares in percent that must be reached: of all tests, and of all but those that test
#: private code, wording or classes, or that differ on purpose.
LEAST, LEAST_OF_COMPARABLE = 88.0, 97.0
#: Why a test is listed in ``deselected.toml``; all but the last are not comparable.
KINDS = ("private API", "wording", "class identity", "deliberate", "missing")
NOT_COMPARABLE = KINDS[:-1]
Line = dict[str, Any]


def _shared_names() -> dict[str, set[str]]:
    """The public names that both have, by the package that has them in both."""
    homes = sorted({row.home for row in ESTIMATORS.values() if row.shared})
    found = {}
    for home in homes:
        ours = import_module(f"certus.{home}")
        theirs = import_module(f"sklearn.{home}")
        found[home] = {name for name in ours.__all__ if hasattr(theirs, name)}
    return found


SHARED = _shared_names()


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
        package, _, home = (node.module or "").partition(".")
        if package != "sklearn" or node.level:
            continue
        if not home:
            here = {alias.name for alias in node.names}
            wanted = [f"from certus.{h} import {n}" for h, n in dotted if h in here]
            _rewrite(lines, node, [ast.unparse(node), *sorted(wanted)])
        elif home in SHARED:
            sources = collections.defaultdict(list)
            for alias in node.names:
                place = "certus" if alias.name in SHARED[home] else "sklearn"
                sources[f"{place}.{home}"].append(ast.unparse(alias))
            parts = [f"from {m} import {', '.join(a)}" for m, a in sources.items()]
            _rewrite(lines, node, parts)
    return "\n".join(lines) + "\n"


def _rewrite(lines: list[str], node: ast.stmt, parts: list[str]) -> None:
    """Put the parts on the statement's first line and blanks on its others."""
    end = node.end_lineno or node.lineno
    blank = [""] * (end - node.lineno)
    lines[node.lineno - 1 : end] = [" " * node.col_offset + "; ".join(parts), *blank]


def _replace_attributes(lines: list[str], nodes: list[ast.AST]) -> set[tuple[str, str]]:
    """Write ``neighbors.X`` as ``X`` where X is ours; what must be imported for it."""
    found = set()
    places = [n for n in nodes if isinstance(n, ast.Attribute)]
    for node in sorted(places, key=lambda n: (n.lineno, -n.col_offset)):
        if not isinstance(node.value, ast.Name) or node.lineno != node.end_lineno:
            continue
        home = node.value.id
        if node.attr in SHARED.get(home, ()):
            line = lines[node.lineno - 1].encode()
            start, stop = node.col_offset, node.end_col_offset
            changed = line[:start] + node.attr.encode() + line[stop:]
            lines[node.lineno - 1] = changed.decode()
            found.add((home, node.attr))
    return found


def run_tests(extra: list[str], run_all: bool) -> list[Line]:
    """Run pytest on the changed copies and return its report, one dict per line."""
    with tempfile.TemporaryDirectory(prefix="certus-upstream-") as folder:
        root = Path(folder)
        (root / "pytest.ini").write_text("[pytest]\naddopts = -p sklearn.conftest\n")
        for tests, names in FILES_IN.items():
            for name in names:
                source = (UPSTREAM / tests / name).read_text(encoding="utf-8")
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
    """Outcomes per file; a test listed as deselected counts as its kind."""
    counts: dict[str, collections.Counter[str]] = {
        name: collections.Counter() for name in FILES
    }
    for line in report:
        if "test" in line:
            outcome = line["kind"] or line["outcome"]
            # What scikit-learn expects to fail and does not is a pass.
            outcome = "passed" if outcome == "xpassed" else outcome
            counts[line["test"].partition("::")[0]][outcome] += 1
    return counts


def share(c: collections.Counter[str], leaving_out: Iterable[str] = ()) -> float:
    """Percentage passed of all that could run: passed, failed and listed."""
    kinds = [kind for kind in KINDS if kind not in leaving_out]
    tried = c["passed"] + c["failed"] + sum(c[kind] for kind in kinds)
    return 100.0 * c["passed"] / tried if tried else 100.0


#: Outcomes in the order of the table.
OUTCOMES = ("passed", "failed", *KINDS, "skipped", "xfailed")
HEADINGS = ("file", "tests", *OUTCOMES, "of all", "of comparable")


def cells(name: str, c: collections.Counter[str]) -> list[str]:
    """A row of the table."""
    numbers = [str(c[outcome]) for outcome in OUTCOMES]
    shares = [f"{share(c):.1f} %", f"{share(c, NOT_COMPARABLE):.1f} %"]
    return [name, str(c.total()), *numbers, *shares]


def show(report: list[Line], console: Console) -> collections.Counter[str]:
    """Print the table by file; return the total."""
    counts = count(report)
    total = sum(counts.values(), collections.Counter())
    table = Table(*HEADINGS)
    for name, c in counts.items():
        table.add_row(*cells(name, c))
    table.add_section()
    table.add_row(*cells("all", total))
    console.print(table)
    return total


def as_markdown(report: list[Line]) -> str:
    """The table as a page, with the versions and the day of the run."""
    counts = count(report)
    total = sum(counts.values(), collections.Counter())
    table = [HEADINGS, ["---"] * len(HEADINGS)]
    table += [cells(name, c) for name, c in [*counts.items(), ("all", total)]]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in table)
    versions = (
        f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}, {platform.system()} "
        f"{platform.machine()}"
    )
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"""\
# scikit-learn's own tests

Written by `python tests/upstream/run.py --write` on {day}.

{versions}.

Whole test files of scikit-learn, with the public names that certus has as well
imported from certus. Tests that use none of our estimators are not counted. Of all:
passed, of those that passed, failed or are listed. Of comparable: the same without the
tests of private API, of wording, of class identity and of deliberate differences.
`tests/upstream/deselected.toml` lists each test that does not pass, with its reason.

{rows}
"""


def main() -> int:
    """Run, report, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deselected", action="store_true")
    parser.add_argument("--write", action="store_true", help="write upstream.md")
    parser.add_argument("--report", type=Path, help="write every outcome, JSON lines")
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    options = parser.parse_args()
    report = run_tests(options.pytest, options.deselected)
    if options.report:
        options.report.write_text("".join(json.dumps(r) + "\n" for r in report))
    console = Console(width=170)
    total = show(report, console)
    if options.write:
        RESULTS.write_text(as_markdown(report), encoding="utf-8")
    for line in report:
        if "unused" in line and not options.pytest:
            console.print(f"listed, but no such test: {line['unused']}", markup=False)
        if options.deselected and line.get("kind") and line["outcome"] == "passed":
            console.print(f"listed, but passes: {line['test']}", markup=False)
    if total["failed"]:
        console.print("Failures above are not listed in deselected.toml.")
        return 1
    reached = share(total), share(total, NOT_COMPARABLE)
    if not options.pytest and (reached[0] < LEAST or reached[1] < LEAST_OF_COMPARABLE):
        console.print(
            f"Below {LEAST:g} % of all or {LEAST_OF_COMPARABLE:g} % of these."
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
