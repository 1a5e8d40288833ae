"""The pages of the guide, run as they stand: their examples give what they show."""

import doctest
import re
import warnings
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "guide").glob("*.md"))
#: How long something took differs each time, and what rounding leaves over, which may
#: be nothing at all, on each processor.
CHANGING = re.compile(r"\b(\d[\d.,]*(\s+(µs|ms|s|min)|e-\d+)|0\.0e\+00)\b")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Lasting(doctest.OutputChecker):
    """Compares output without what changes."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        want, got = (CHANGING.sub("some", text) for text in (want, got))
        return super().check_output(want, got, optionflags)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.stem == "text"))
        for page in PAGES
    ],
    ids=[page.stem for page in PAGES],
)
def test_the_page_runs(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^```.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(Lasting(), optionflags=FLAGS)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # what a reader sees
        failed, _ = runner.run(examples, out=report.append)
    assert failed == 0, "".join(report)[-3000:]
