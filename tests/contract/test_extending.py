"""The pages on extending, followed to the letter in a package of their own."""

import doctest
import re
import sys
from pathlib import Path

import pytest

from certus._solvers import losses as solving_losses
from certus._solvers import penalties as solving
from certus.verify.kernel import losses as judging_losses
from certus.verify.kernel import penalties as judging

DOCS = Path(__file__).parents[2] / "docs" / "extending"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLES = [
    solving.PENALTIES,
    judging.PENALTIES,
    solving_losses.FORMULAS,
    judging_losses.LOSSES,
]


@pytest.mark.parametrize("page", ["penalty", "loss"])
def test_the_page_works_as_written(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    files = [block for block in blocks if block.startswith("# ")]
    sessions = [block for block in blocks if block.startswith(">>> ")]
    assert len(files) >= 3 and sessions
    for block in files:
        path = tmp_path / block.split("\n", 1)[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")
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
