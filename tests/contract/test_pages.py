"""The pages of the documentation show code that is there."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from sklearn.datasets import load_diabetes
from sklearn.utils import all_estimators

from certus.linear_model import Lasso
from certus.registry import ESTIMATORS
from certus.verify.judging import READERS

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(
    r"literalinclude(?:\}|::) (\S+)\n((?: *:[a-z-]+:.*\n)*)", flags=re.MULTILINE
)
PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*"))
    if page.suffix in (".md", ".rst")
    and not {"_build", "generated", "auto_examples"} & set(page.parts)
    and SHOWN.search(page.read_text(encoding="utf-8"))
]


def names(path: Path) -> set[str]:
    """Functions and classes of a module, and the methods of these."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found |= {
                f"{node.name}.{part.name}"
                for part in inner
                if isinstance(part, ast.FunctionDef)
            }
    return found


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_code_shown_is_there(page: Path) -> None:
    for shown, options in SHOWN.findall(page.read_text(encoding="utf-8")):
        if "generated" in shown:  # written when the documentation is built
            continue
        path = (page.parent / shown).resolve()
        assert path.exists(), f"{page.name} shows {shown}"
        given = dict(re.findall(r":([a-z-]+): (.*)", options))
        if "pyobject" in given:
            assert given["pyobject"] in names(path), f"{page.name}: {given['pyobject']}"
        text = path.read_text(encoding="utf-8")
        for option in ("start-at", "end-at", "start-after", "end-before"):
            assert given.get(option, "").strip('"') in text, f"{page.name}: {option}"


GUIDE = ROOT / "docs" / "guide"
GROUPS = ["Start here", "Models", "Networks", "Text and language", "Trust", "Tools"]


def test_the_guide_is_grouped_and_complete() -> None:
    """Each page is in one group of the side bar and in the table of that group."""
    index = (GUIDE / "index.md").read_text(encoding="utf-8")
    groups = re.findall(r":caption: (.+)\n\n([^`]*)", index)
    assert [caption for caption, _ in groups] == GROUPS
    for caption, names in groups:
        section = re.search(rf"^## {caption}\n(.*?)^(?:##|```)", index, re.M | re.S)
        assert section, caption
        for name in names.split():
            assert f"({name}.md" in section.group(1), name
    listed = [name for _, names in groups for name in names.split()]
    assert sorted([*listed, "index"]) == sorted(
        page.stem for page in GUIDE.glob("*.md")
    )


def test_each_page_of_the_guide_begins_with_the_users_question() -> None:
    for page in sorted(GUIDE.glob("*.md")):
        if page.stem == "index":
            continue
        heading, _, text = page.read_text(encoding="utf-8").partition("\n\n")
        question = text.partition("\n\n")[0]
        assert heading.startswith("# ") and "\n" not in heading, page.name
        assert question.startswith("*") and question.endswith("?*"), page.name


def test_links_between_pages_lead_somewhere() -> None:
    missing = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if {"_build", "generated", "auto_examples"} & set(page.parts):
            continue
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
            generated = "auto_examples" in link or "generated" in link
            if "://" not in link and not generated:
                target = page.parent / link
                if not target.exists():
                    missing.append(f"{page.name}: {link}")
    assert missing == []


def test_every_public_name_is_on_one_page_of_the_reference(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    reference = importlib.import_module("reference")
    for name in reference.PACKAGES:
        listed = re.findall(r"^   ([\w.]+)$", reference.page(name), re.M)
        known = {entry.split(".")[0] for entry in listed}
        package = importlib.import_module(f"certus.{name}")
        homes = {n: ESTIMATORS[n].home for n in package.__all__ if n in ESTIMATORS}
        known |= {n for n, home in homes.items() if home != name}  # linked from here
        missing = [n for n in package.__all__ if n not in known]
        assert not [n for n in missing if callable(getattr(package, n))], name
        assert len(listed) == len(set(listed)), name
    told = reference.list_differences()
    for row in ESTIMATORS.values():
        assert (f"`{row.name}`" in told) == bool(row.differs), row.name
        assert not row.differs or row.shared, row.name


EXAMPLES = sorted((ROOT / "examples").rglob("plot_*.py"))


def drawn_in_parts(text: str) -> set[str]:
    """Axes that a block draws on although an earlier block has shown their figure."""
    known: set[str] = set()
    late: set[str] = set()
    for block in text.split("\n# %%\n"):
        tree = ast.parse(block)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        made = {
            name.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and "plt.subplots" in ast.unparse(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        late |= {node.id for node in names} & known - stored
        known = (known - stored) | made
    return late


def test_examples_finish_a_figure_in_the_block_that_begins_it() -> None:
    """The gallery closes every figure at the end of its block."""
    begun = "figure, (a, b) = plt.subplots(1, 2)\na.plot(x)"
    assert drawn_in_parts(f"{begun}\n# %%\nb.plot(x)") == {"b"}
    for path in EXAMPLES:
        assert drawn_in_parts(path.read_text(encoding="utf-8")) == set(), path.name


def test_the_page_on_scikit_learn_names_every_class_that_can_be_checked() -> None:
    page = (GUIDE / "sklearn.md").read_text(encoding="utf-8")
    theirs = {name for name, _ in all_estimators()}
    named = {name for name in READERS if f"`{name.removesuffix('CV')}`" in page}
    assert set(READERS) & theirs <= named


def test_the_readme_and_the_changelog_count_the_classes_that_can_be_checked() -> None:
    count = len(set(READERS) & {name for name, _ in all_estimators()})
    for page in ("README.md", "CHANGELOG.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        stated = re.findall(
            r"\b(\d+) (?:classes of scikit-learn|of scikit-learn's)", text
        )
        assert str(count) in stated, page


@pytest.mark.parametrize("page", ["README.md", "docs/guide/certificate.md"])
def test_the_certificate_shown_is_what_is_printed(page: str) -> None:
    """Word by word; the numbers differ between processors."""
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.search(
        r"^    Lasso\(alpha=0\.05\) ·.*\n(?:^    .*\n)+", text, re.MULTILINE
    )
    X, y = load_diabetes(return_X_y=True)
    printed = str(Lasso(alpha=0.05).fit(X, y).certificate_)

    def masked(lines: str) -> list[str]:
        return re.sub(r"\d[\d.e-]*( m?s\b)?", "#", lines).split()

    assert shown and masked(shown.group()) == masked(printed)
