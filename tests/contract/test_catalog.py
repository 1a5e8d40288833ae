"""The catalog is complete, and what it says exists does exist.

Marks are read from the syntax trees of the test files, without importing them, so
that a test which is skipped or needs an extra still counts as written.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from certus.testing import catalog, resolve, sections
from helpers.touching import marked, touching, touching_helpers

TESTS = Path(__file__).parents[1]

#: How many items each section has; changes only together with the catalog itself.
COUNTS = {
    "PRE": 25,
    "LOSS": 32,
    "OPT": 64,
    "REG": 29,
    "CLS": 44,
    "KER": 21,
    "NBR": 5,
    "SEL": 15,
    "NN": 60,
    "CNN": 31,
    "SEQ": 16,
    "TRF": 24,
    "LM": 25,
    "LAT": 32,
    "TXT": 13,
    "SSL": 12,
    "GEN": 57,
    "MEM": 18,
    "GRF": 10,
    "ADV": 31,
    "FAIR": 10,
    "THY": 29,
}


def marked_ids(source: str) -> Iterator[str]:
    """Yield the IDs in ``pytest.mark.catalog(...)`` calls of a test file.

    Only whole-string arguments are accepted: an ID that is computed could not be
    found by a reader either.
    """
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "catalog"
            and ast.unparse(node.func) in {"pytest.mark.catalog", "mark.catalog"}
        ):
            for argument in node.args:
                if not (
                    isinstance(argument, ast.Constant)
                    and isinstance(argument.value, str)
                ):
                    raise ValueError(f"write the ID out: {ast.unparse(node)}")
                yield argument.value


@pytest.fixture(scope="module")
def marks() -> Counter[str]:
    """How many tests carry each ID."""
    found: Counter[str] = Counter()
    for path in sorted(TESTS.rglob("test_*.py")):
        if path != Path(__file__):
            source = path.read_text(encoding="utf-8")
            found.update(marked_ids(source) if "mark.catalog" in source else ())
    return found


def test_marks_are_found_in_decorators_lists_and_params() -> None:
    source = (
        "import pytest\n"
        "pytestmark = [pytest.mark.catalog('A-01')]\n"
        "@pytest.mark.catalog('A-02', 'A-03')\n"
        "@pytest.mark.parametrize('x', "
        "[pytest.param(1, marks=pytest.mark.catalog('A-04'))])\n"
        "def test_it(x): ...\n"
    )
    assert sorted(marked_ids(source)) == ["A-01", "A-02", "A-03", "A-04"]
    with pytest.raises(ValueError, match="write the ID out"):
        list(marked_ids("pytest.mark.catalog(ID)"))


def test_every_id_is_unique_numbered_in_order_and_in_its_section() -> None:
    expected = [
        f"{key}-{number:02d}"
        for key, count in COUNTS.items()
        for number in range(1, count + 1)
    ]
    assert [item.id for item in catalog()] == expected
    assert all(item.id.startswith(item.section + "-") for item in catalog())


def test_counts_match() -> None:
    assert {section.key: section.n_items for section in sections()} == COUNTS
    assert Counter(item.section for item in catalog()) == COUNTS
    assert [section.number for section in sections()] == list(range(1, 23))
    assert sum(COUNTS.values()) == 603


def test_rows_are_well_formed() -> None:
    for item in catalog():
        assert item.title and item.title == item.title.strip(), item
        assert item.kind in {"object", "fact"}, item
        assert item.kind == "object" or not item.name, f"{item.id}: a fact has no name"


@pytest.mark.parametrize("name", sorted({i.name for i in catalog() if i.name}))
def test_every_name_resolves(name: str) -> None:
    assert resolve(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "certus.nothing",
        "certus.objectives._private",
        "os.path",
        "certus.objectives.L1.x",
    ],
)
def test_other_names_do_not_resolve(name: str) -> None:
    with pytest.raises(LookupError, match="public name"):
        resolve(name)


def test_marks_use_known_ids(marks: Counter[str]) -> None:
    assert set(marks) <= {item.id for item in catalog()}


def test_done_sections_are_named_and_tested(marks: Counter[str]) -> None:
    done = {section.key for section in sections() if section.done}
    items = [item for item in catalog() if item.section in done]
    assert [item.id for item in items if not marks[item.id]] == []
    assert [i.id for i in items if i.kind == "object" and not i.name] == []


def test_every_marked_test_uses_certus() -> None:
    """An item is shown by what certus computes; facts alone go to examples/course."""
    helpers = touching_helpers(TESTS / "helpers")
    idle = []
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.catalog" not in source:
            continue
        used = touching(source, helpers)
        idle += [
            f"{path.relative_to(TESTS)}: {name} ({', '.join(items)})"
            for name, items in marked(source)
            if name not in used
        ]
    assert idle == []


def test_uses_of_certus_are_found_through_helpers_and_not_by_name_alone() -> None:
    source = """
import numpy as np
from certus.linear_model import Lasso as L
from helpers.judging import problem
from helpers.sampling import draw

CASES = [L()]
t = L

@pytest.fixture
def model():
    return CASES[0].fit()

def test_parameters(): ...
@pytest.mark.parametrize("one", CASES)
def test_decorated(one): ...
def test_fixture(model): ...
def test_helper(): problem()
def test_inside():
    from certus.svm import SVC
def test_hidden():
    t = np.ones(3)
    return [t for L in t]
def test_other_helper(): draw()
"""
    found = touching(source, frozenset({"helpers.judging.problem"}))
    names = {name for name in found if name.startswith("test")}
    assert names == {"test_decorated", "test_fixture", "test_helper", "test_inside"}
