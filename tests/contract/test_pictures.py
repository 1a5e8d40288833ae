"""The pictures of the README and the guide show what the commands print now.

If a test fails here, the wording has changed: ``make pictures`` draws them anew.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    path = ROOT / "docs" / "pictures.py"
    spec = importlib.util.spec_from_file_location("pictures", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fitted(pictures: ModuleType, tmp_path_factory) -> tuple[str, Path]:
    """What the command prints, and the page that it writes."""
    folder = tmp_path_factory.mktemp("fit")
    return pictures.run_command(folder, "fit").plain, folder / "diabetes.html"


def test_the_comparison_can_fail(pictures: ModuleType) -> None:
    assert pictures.words("solved in 3 ms") == pictures.words("solved in 4 s")
    assert pictures.words("is solved") != pictures.words("is certified")


def test_the_picture_of_the_command(pictures: ModuleType, fitted) -> None:
    printed = pictures.words("certus fit " + fitted[0])
    assert pictures.words_of_drawing("fit") == printed, "run make pictures"


def test_the_picture_of_the_report(pictures: ModuleType, fitted) -> None:
    shown = pictures.words_of_photograph("report")
    assert shown == pictures.words_of_page(fitted[1]), "run make pictures"


def test_the_picture_of_a_check(pictures: ModuleType) -> None:
    printed = pictures.words(pictures.SESSION + pictures.run_session(pictures.SESSION))
    assert pictures.words_of_drawing("certify") == printed, "run make pictures"
