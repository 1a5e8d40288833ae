"""What holds for the repository as a whole.

The import is light, every file says what it is for, the library keeps to the rules it
set itself, and nothing in the tree speaks of the machine it was written on.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import certus
from helpers import stubs

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "certus"
SOURCES = sorted(PACKAGE.rglob("*.py"))
BINARY = {".certus", ".png", ".parquet", ".feather", ".gz", ".npz", ".ico"}

# Written so that this file does not match itself.
MACHINE = re.compile(
    r"/wor[k]/|/hom[e]/\w|/User[s]/\w|/roo[t]/|/op[t]/|/tm[p]/\w"
    r"|\b[A-Z]:\\User[s]\\"
    r"|inde[x]-url|find-lin[k]s|artifactor[y]|jfro[g]|devp[i]|nexu[s]\b"
    r"|pythonhoste[d]|pyp[i]-more",
    re.IGNORECASE,
)


def tracked() -> list[Path]:
    """Every text file under version control, or all of them outside a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        places = ("src", "tests", "docs", "examples", "benchmarks")
        paths = [*ROOT.glob("*"), *(p for d in places for p in (ROOT / d).rglob("*"))]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


def imported(node: ast.AST) -> list[str]:
    """The modules that a node imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def packages() -> list[ModuleType]:
    """Certus and every public package below it."""
    return [certus] + [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(certus.__path__, "certus.")
        if found.ispkg and "._" not in found.name
    ]


def by_path(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_pattern_for_machine_paths_can_fail() -> None:
    assert MACHINE.search("see /" + "home/ada/data.csv")
    assert MACHINE.search("pip --inde" + "x-url x")
    assert not MACHINE.search("the working set, and the index of a column")


def test_no_file_speaks_of_a_machine() -> None:
    found = [
        f"{by_path(path)}: {match.group()}"
        for path in tracked()
        if (match := MACHINE.search(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_tests_stand_in_the_folder_of_their_package() -> None:
    kinds = ("exact", "hostile", "parity", "statistical")
    loose = [by_path(p) for k in kinds for p in (ROOT / "tests" / k).glob("test_*.py")]
    folders = {p for k in kinds for p in (ROOT / "tests" / k).glob("[a-z]*/")}
    assert loose == []
    assert {p.name for p in folders} <= {p.name for p in PACKAGE.iterdir()}


def broken_rules(path: Path) -> Iterator[str]:
    """What a source file does against the rules of the house."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "has no docstring that says what it is for"
    if text.count("\n") > 700:
        yield "has more than 700 lines"
    if re.search(r"\b(TODO|FIXME|XXX)\b", text):
        yield "leaves something to do"
    silent = "cli" not in path.relative_to(PACKAGE).parts
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if silent and isinstance(called, ast.Name) and called.id == "print":
            yield f"prints in line {node.lineno}"
        for module in imported(node):
            root, *parts = module.split(".")
            if root in {"pickle", "cloudpickle", "dill"}:
                yield f"imports {module}, which runs code on loading"
            if root == "sklearn" and any(part.startswith("_") for part in parts):
                yield f"imports {module}, which is private"


def test_source_files_keep_the_house_rules() -> None:
    found = [f"{by_path(p)} {what}" for p in SOURCES for what in broken_rules(p)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1", "no docstring"),
        ('"""A."""\n' + 700 * "\n", "more than 700"),
        ('"""A."""\n# TO' + "DO", "leaves something"),
        ('"""A."""\nprint(1)', "prints in line 2"),
        ('"""A."""\nimport pickle', "runs code"),
        ('"""A."""\nfrom sklearn.svm._base import x', "is private"),
    ],
)
def test_a_broken_rule_is_found(text: str, what: str, monkeypatch, tmp_path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert [what in found for found in broken_rules(path)] == [True]


def test_import_is_lazy() -> None:
    code = "import certus, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(code)))
    assert loaded & {"torch", "numba", "sklearn", "polars", "matplotlib"} == set()


def test_import_is_quick() -> None:
    """Under 50 ms beyond numpy; the quickest of several, as machines are busy."""
    code = (
        "import numpy, time; start = time.perf_counter(); import certus; "
        "print(time.perf_counter() - start)"
    )
    assert min(float(run(code)) for _ in range(7)) < 0.050


def test_public_names_resolve() -> None:
    for package in packages():
        for name in getattr(package, "__all__", ()):
            assert getattr(package, name) is not None, f"{package.__name__}.{name}"
            assert name in dir(package), f"{package.__name__}.{name}"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        certus.no_such_name  # noqa: B018


def test_no_public_function_shares_its_name_with_a_module() -> None:
    """``certus.certify`` is only ever the function, whatever was imported before."""
    clashes = [
        f"{package.__name__}.{name}"
        for package in packages()
        for name in set(getattr(package, "__all__", ()))
        & {found.name for found in pkgutil.iter_modules(package.__path__)}
        if inspect.isroutine(getattr(package, name))
    ]
    assert clashes == []


def test_types_are_shipped() -> None:
    assert files("certus").joinpath("py.typed").is_file()


def test_stubs_name_what_the_packages_export() -> None:
    """``make stubs`` writes them anew."""
    for package in stubs.lazy_packages():
        written = stubs.stub_path(package).read_text(encoding="utf-8")
        assert written == stubs.stub(package), package.__name__


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^\]]*)\]", changelog, flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == project["project"]["version"] == version("certus")
    assert certus.__version__ == version("certus")
