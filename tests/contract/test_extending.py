"""The pages on extending, followed to the letter, and how many files each touches.

Pages whose files begin with ``src/certus`` are followed in a copy of certus, the others
in a package of their own.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certus._solvers import losses as solving_losses
from certus._solvers import penalties as solving
from certus.verify.kernel import losses as judging_losses
from certus.verify.kernel import penalties as judging

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "extending"
BLOCK = re.compile(r"^```(?:python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The first line of a block: a file, and where in it the lines go if it is there.
PLACE = re.compile(r"# ([\w/]+\.(?:py|toml))(?:, (in|before|after) (.+))?\n")
TABLES = [
    solving.PENALTIES,
    judging.PENALTIES,
    solving_losses.FORMULAS,
    judging_losses.LOSSES,
]
#: What the row of an estimator is enough for.
DERIVED = """
import sys
from sklearn.utils.estimator_checks import check_estimator
import certus
from certus.cli.models import build, find_model
from certus.registry import ESTIMATORS
from certus.testing.instances import instance
sys.path.insert(0, sys.argv[1])
import reference
name = sys.argv[2]
row = ESTIMATORS[name]
model = instance(row)
check_estimator(model)
assert name in certus.linear_model.__all__
assert type(build(find_model("mean-ridge"), ["alpha=2"], None)) is type(model)
model.fit([[0.0], [1.0], [5.0]], [0.0, 1.0, 4.0])
again = certus.load(model.save("model.certus"))
assert type(again) is type(model) and again.get_params() == model.get_params()
assert f"   {name}\\n" in reference.page(row.home)
"""


def blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))


def apply(page: str, folder: Path) -> set[str]:
    """Write what the page shows, and return the files that it touched."""
    touched = set()
    for block in blocks(page):
        place = PLACE.match(block)
        if place is None:
            continue
        name, how, where = place.groups()
        path, lines = folder / name, block[place.end() :]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if how:
            found = re.search(rf"^ *{re.escape(where)}.*\n", text, re.MULTILINE)
            assert found, f"{name} has no {where}"
            at = found.start() if how == "before" else found.end()
            lines = lines + "\n\n" if how == "before" else lines
            text = text[:at] + lines + text[at:]
        else:
            text = f"{text}\n{lines}" if text else lines
        path.write_text(text, encoding="utf-8")
        touched.add(name)
    return touched


def promised(page: str) -> int:
    """How many files the index says that it takes, without tests."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    [count] = re.findall(rf"\({page}\.md\) \|.*\| (\d+) \|$", index, re.MULTILINE)
    return int(count)


@pytest.mark.parametrize("page", ["penalty", "loss", "attack"])
def test_the_page_works_in_a_package_of_its_own(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(apply(page, tmp_path)) == promised(page)
    sessions = [block for block in blocks(page) if block.startswith(">>> ")]
    assert sessions
    monkeypatch.syspath_prepend(str(tmp_path))
    before = [dict(table) for table in TABLES]
    try:
        examples = doctest.DocTestParser().get_doctest(
            "\n".join(sessions), {}, page, page, 0
        )
        report: list[str] = []
        failed, _ = doctest.DocTestRunner().run(examples, out=report.append)
        assert failed == 0, "".join(report)
    finally:
        for table, old in zip(TABLES, before, strict=True):
            table.clear()
            table.update(old)
        for name in list(sys.modules):
            if name.split(".")[0] in {path.name for path in tmp_path.iterdir()}:
                del sys.modules[name]


@pytest.mark.parametrize("page", ["estimator", "network", "bound"])
def test_the_page_works_in_a_copy_of_certus(page: str, tmp_path: Path) -> None:
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=compiled)
    touched = apply(page, tmp_path)
    tests = [name for name in touched if name.startswith("tests/")]
    assert len(touched) - len(tests) == promised(page)
    assert len(tests) == 1
    new = [name for name in touched if not (ROOT / name).exists()]
    run(tmp_path, "-m", "pytest", "-q", "--doctest-modules", *new)
    if page == "estimator":
        run(tmp_path, "-c", DERIVED, str(ROOT / "docs" / "_ext"), "MeanRidge")
    helpers = tmp_path / "tests" / "helpers"
    helpers.mkdir()
    shutil.copy(ROOT / "tests" / "helpers" / "stubs.py", helpers)
    run(tmp_path, str(helpers / "stubs.py"))
    [source] = [name for name in new if name.startswith("src/")]
    module = source.removeprefix("src/").removesuffix(".py").replace("/", ".")
    stub = (tmp_path / source).with_name("__init__.pyi").read_text(encoding="utf-8")
    assert f"from {module} import" in stub


def test_the_page_on_candidates_works_in_a_copy_of_certus(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__")
    )
    touched = apply("candidate", tmp_path)
    [test] = [name for name in touched if name.startswith("tests/")]
    assert len(touched) - 1 == promised("candidate")
    run(tmp_path, "-m", "pytest", "-q", test)


def run(folder: Path, *arguments: str) -> None:
    """Run Python there, with the copy of certus."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
