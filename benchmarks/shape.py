"""The shape of the code, before and after the move to scikit-learn's packages.

    git worktree add ../before COMMIT
    python -m benchmarks.shape ../before . > benchmarks/results/shape.md

Each row is counted in both folders in the same way, from their files alone. What takes
minutes to measure (seconds of the checks, shares of scikit-learn's tests) is measured
by hand on an idle machine and kept, with what was run, in ``results/shape.json``.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ENTRY = "HuberRegressor"
MEASURED = Path(__file__).parent / "results" / "shape.json"
PARAMETERS = re.compile(
    r"^ *Parameters\n *-+\n(.*?)(?=^ *\w[^\n]*\n *---|\Z)", re.M | re.S
)
TEXTS = {".py", ".pyi", ".toml", ".md", ".rst"}
BUILT = {"_build", "generated", "auto_examples", "__pycache__"}

HEAD = """\
# The shape of the code

Written by `python -m benchmarks.shape`.

- Before: {before}, the last commit before the packages moved to scikit-learn's map.
- After: {after}.

Between the two the library has grown: language models, generated rows, graphs,
memories, vectors without labels, trees, explanations, monitoring and tables larger than
memory came after the move. So totals say how much there is; the shares, and the rows on
one estimator, say what it costs to find one's way. Seconds are those of an idle
machine with two cores. The name that several classes still share is `Statement`, by
which the verifier finds its parts.

| | before | after |
|---|---|---|
"""


@cache
def trees(root: Path) -> dict[Path, ast.Module]:
    """The modules of the package, parsed."""
    paths = sorted((root / "src").rglob("*.py"))
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def nodes(root: Path) -> Iterator[ast.AST]:
    for tree in trees(root).values():
        yield from ast.walk(tree)


def count_files(root: Path) -> str:
    """Lines and files of the package."""
    lines = sum(len(p.read_text("utf-8").splitlines()) for p in trees(root))
    return f"{lines:,} in {len(trees(root))} files"


def files_naming(folder: str) -> Callable[[Path], str]:
    """Files of a folder that name the estimator."""

    def measure(root: Path) -> str:
        paths = (p for p in (root / folder).rglob("*") if p.suffix in TEXTS)
        kept = (p for p in paths if not BUILT & set(p.parts))
        return str(sum(ENTRY in p.read_text("utf-8") for p in kept))

    return measure


def parameter_lines(root: Path) -> str:
    """Lines of descriptions of parameters."""
    kinds = ast.ClassDef | ast.FunctionDef
    texts = (ast.get_docstring(n) or "" for n in nodes(root) if isinstance(n, kinds))
    found = [m[1] for text in texts for m in PARAMETERS.finditer(text + "\n")]
    return f"{sum(len(part.strip().splitlines()) for part in found):,}"


def repeated_classes(root: Path) -> str:
    """Names that several classes share, and how many classes these are."""
    bodies = (node for tree in trees(root).values() for node in tree.body)
    names = Counter(node.name for node in bodies if isinstance(node, ast.ClassDef))
    twice = [n for n in names.values() if n > 1]
    return f"{len(twice)} ({sum(twice)} classes)"


def definitions(name: str) -> Callable[[Path], str]:
    """How many modules define a name at their top."""

    def measure(root: Path) -> str:
        found = 0
        for tree in trees(root).values():
            for node in tree.body:
                targets = getattr(node, "targets", [getattr(node, "target", None)])
                found += any(isinstance(t, ast.Name) and t.id == name for t in targets)
        return str(found)

    return measure


def share_of_any(root: Path) -> str:
    """Share of the annotated parameters that may be anything."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = []
    for node in nodes(root):
        if isinstance(node, kinds):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            found += [ast.unparse(a.annotation) for a in every if a.annotation]
    return f"{100 * found.count('Any') / len(found):.0f} %"


def readme_lines(root: Path) -> str:
    return str(len((root / "README.md").read_text("utf-8").splitlines()))


ROWS: dict[str, Callable[[Path], str]] = {
    "lines of source": count_files,
    f"files of `src` that name `{ENTRY}`": files_naming("src"),
    f"files of `tests` that name `{ENTRY}`": files_naming("tests"),
    f"files of `docs` that name `{ENTRY}`": files_naming("docs"),
    'lines of text under "Parameters"': parameter_lines,
    "class names defined more than once": repeated_classes,
    "modules that define `EPS`": definitions("EPS"),
    "modules that define `Array`": definitions("Array"),
    "parameters annotated as `Any`": share_of_any,
    "lines of the README": readme_lines,
}


def commit(root: Path) -> str:
    """The commit that a folder shows."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%h (%cs)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print the table."""
    before, after = (Path(name) for name in sys.argv[1:3])
    names = {"before": commit(before).strip(), "after": commit(after).strip()}
    print(HEAD.format(**names), end="")
    for name, measure in ROWS.items():
        print(f"| {name} | {measure(before)} | {measure(after)} |", flush=True)
    measured = json.loads(MEASURED.read_text("utf-8"))
    for name, (then, now) in measured["rows"].items():
        print(f"| {name} | {then} | {now} |")
    print("\n" + "\n".join(measured["notes"]))


if __name__ == "__main__":
    main()
