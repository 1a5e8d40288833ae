"""What is shipped, and whether the files that ship it agree with one another.

``pyproject.toml`` is the one place for versions, dependencies and extras; workflows,
the conda recipe and the Makefile repeat some of it. ``make lint`` checks the form of
the workflows; here it is what they say.
"""

import importlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from certus.testing.instances import instances

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPE = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))

PYTHONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
#: Versions that the workflows ask for; CONTRIBUTING says on which something ran.
ASKED = ["3.11", "3.12", "3.13", "3.14"]
#: Distributions whose modules have another name, or come with one that is declared.
DISTRIBUTION = {
    "sklearn": "scikit-learn",
    "llvmlite": "numba",
    "markupsafe": "jinja2",
}

IMPORT = re.compile(
    r"^ *(?:from (\w+)[\w.]* import \S|import (\w+)[\w.]*(?: as \w+)?$)", re.MULTILINE
)


def name_of(requirement: str) -> str:
    """``"scikit-learn>=1.9"`` is ``"scikit-learn"``."""
    return re.split(r"[\[<>=~! ;]", requirement, maxsplit=1)[0].lower()


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def commands(path: Path) -> str:
    """Everything that a workflow runs."""
    steps = [step for job in jobs(path).values() for step in job.get("steps", ())]
    return "\n".join(step.get("run", "") for step in steps)


@cache
def built(target: str) -> set[str]:
    """The files that a wheel or an sdist would contain, without building it."""
    module = importlib.import_module(f"hatchling.builders.{target}")
    builder = getattr(module, f"{target.title()}Builder")(str(ROOT))
    return {file.distribution_path for file in builder.recurse_included_files()}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_and_says_its_version(path: Path) -> None:
    used = re.findall(r"uses: ([\w-]+/.*)", path.read_text(encoding="utf-8"))
    unpinned = [u for u in used if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", u)]
    assert used and unpinned == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_supported_pythons_and_known_targets(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
    wanted = re.findall(r"\bmake ([a-z-]+)", commands(path))
    for job in jobs(path).values():
        matrix = job.get("strategy", {}).get("matrix", {})
        assert matrix.get("python", ASKED) == ASKED
        wanted += matrix.get("target", [])
        for step in job.get("steps", ()):
            version = step.get("with", {}).get("python-version", PYTHONS[0])
            assert version in {*ASKED, "${{ matrix.python }}"}
        assert "uses" in job or 0 < job["timeout-minutes"] <= 360
    assert set(wanted) <= targets


def test_three_systems_meet_every_python() -> None:
    every = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    for job in ("test", "wheel"):
        matrix = every[job]["strategy"]["matrix"]
        assert matrix["python"] == ASKED
        systems = [label.split("-")[0] for label in matrix["os"]]
        assert systems == ["ubuntu", "macos", "windows"]


def test_classifiers_name_only_versions_on_which_something_ran() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| Python ([\d., ]+) \|(.*)\|$", text, re.MULTILINE)
    ran = set()
    for versions, cells in rows:
        if any(cell.strip() != "nothing" for cell in cells.split("|")):
            ran |= set(versions.split(", "))
    assert {version for versions, _ in rows for version in versions.split(", ")} == {
        *ASKED
    }
    assert set(PYTHONS) == ran


def test_extras_that_are_installed_exist() -> None:
    text = MAKEFILE + "".join(map(commands, WORKFLOWS))
    asked = re.findall(r"\.\[([a-z,]+)\]|call install,[^,]+,([a-z]+)\)", text)
    names = {name for pair in asked for part in pair for name in part.split(",")} - {""}
    assert {"dev", "docs"} <= names <= set(EXTRAS)


def test_only_publishing_may_write() -> None:
    """Each workflow reads; one job of one workflow may prove who it is, to PyPI."""
    asked = {}
    for path in WORKFLOWS:
        text = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert text["permissions"] == {"contents": "read"}
        assert text["concurrency"]["group"]
        for name, job in text["jobs"].items():
            if "permissions" in job:
                asked[path.stem, name] = job["permissions"]
    assert asked == {("release", "publish"): {"id-token": "write"}}


def test_conda_recipe_agrees_with_pyproject() -> None:
    context, needs = RECIPE["context"], RECIPE["requirements"]
    assert context["version"] == PROJECT["version"]
    assert PROJECT["requires-python"] == f">={context['python_min']}"
    assert context["python_min"] == PYTHONS[0]
    spaced = [
        requirement.replace(">=", " >=") for requirement in PROJECT["dependencies"]
    ]
    assert needs["run"] == ["python >=${{ python_min }}", *spaced]
    backend = tomllib.loads(PYPROJECT)["build-system"]["requires"]
    assert set(needs["host"]) >= {item.replace(">=", " >=") for item in backend}
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    optional = [item.split(">=") for item in (*EXTRAS["deep"], *EXTRAS["plot"])]
    assert needs["run_constraints"] == [f"{names[n]} >={v}" for n, v in optional]
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["about"]["license"] == PROJECT["license"]


def test_upper_bounds_say_why() -> None:
    """A cap has its reason on the same line, or on the line above."""
    for text in (PYPROJECT, (ROOT / "constraints.txt").read_text(encoding="utf-8")):
        lines = text.splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            if re.match(r' *"?[\w.-]+(\[[\w,]+\])?[^#"]*(<|==|~=) *\d', line):
                assert "#" in line or above.lstrip().startswith("#"), line


def test_what_certus_imports_is_declared() -> None:
    """In the dependencies, or in the extra that brings it."""
    known = {name_of(r) for r in PROJECT["dependencies"]}
    extras = ("deep", "plot", "scale", "dask")
    known |= {name_of(r) for extra in extras for r in EXTRAS[extra]}
    # The user's frames, pictures and collections, where these are given.
    known |= {"pandas", "pil", "dask"}
    for path in sorted((ROOT / "src" / "certus").rglob("*.py")):
        found = IMPORT.findall(path.read_text(encoding="utf-8"))
        roots = {first or second for first, second in found} - {"certus"}
        others = roots - set(sys.stdlib_module_names)
        packages = {DISTRIBUTION.get(r, r.lower().replace("_", "-")) for r in others}
        assert packages <= known, path.name


def test_wheel_holds_the_package_and_its_data() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/certus"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    names = {name for name in listed.stdout.decode().split("\0") if name}
    if not names:
        pytest.skip("not a checkout")
    sources = {name.removeprefix("src/") for name in names if (ROOT / name).exists()}
    assert sources <= built("wheel")
    assert {name.split("/")[0] for name in built("wheel")} == {"certus"}
    data = {Path(name).suffix for name in sources}
    assert {".toml", ".csv", ".html", ".typed"} <= data


def test_sdist_holds_what_the_wheel_is_built_from() -> None:
    """Hatchling itself adds pyproject.toml, README and LICENSE."""
    assert {name.split("/")[0] for name in built("sdist")} == {"src", "CHANGELOG.md"}
    assert {f"src/{name}" for name in built("wheel")} <= built("sdist")


def test_catalog_is_listed_without_torch() -> None:
    code = """if True:
    import sys
    class Absent:
        def find_spec(self, name, *_):
            if name == "torch":
                raise ModuleNotFoundError("No module named 'torch'", name=name)
    sys.meta_path.insert(0, Absent())
    from certus.cli import main
    sys.exit(main(["list", "--catalog", "all"]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_instances_without_torch_are_those_that_run_without_it() -> None:
    code = """if True:
    import sys
    class Absent:
        def find_spec(self, name, *_):
            if name == "torch":
                raise ModuleNotFoundError("No module named 'torch'", name=name)
    sys.meta_path.insert(0, Absent())
    from certus.testing import instances as made
    made.find_spec = lambda name: None
    print(len(made.instances()))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(instances()) - 30 < int(done.stdout) < len(instances())


def test_contributing_has_the_layers_of_the_import_linter() -> None:
    """The same packages in the same rows, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers"]
    held = [{part.strip(" ()") for part in re.split(r"[|:]", row)} for row in layers]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = page.split("## The layers")[1].split("\n## ")[0]
    cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert [set(re.findall(r"`(\w+)`", cell)) for cell in cells] == held
