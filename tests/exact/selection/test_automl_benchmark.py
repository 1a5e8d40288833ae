"""The plan of the benchmark of automatic machine learning, and what its page counts."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def automl(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("benchmarks.automl")


def test_both_parts_of_the_plan_have_every_cell_once(automl: ModuleType) -> None:
    short, long = automl.plan(automl.LIMIT), automl.plan(automl.LONG_LIMIT)
    assert len(short) == 16 * 3 * len(automl.CONTENDERS) == len(set(short))
    assert len(long) == 6 * 3 * len(automl.TIMED) == len(set(long))
    assert not set(short) & set(long)
    assert set(automl.TIMED) < set(automl.CONTENDERS)
    assert automl.ADDITIVE in automl.SINGLE and automl.OURS not in automl.SINGLE


def test_make_runs_both_parts_of_the_plan() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    part = makefile.partition("\nbench-automl:")[2].partition("\n\n")[0]
    assert "benchmarks.automl run\n" in part
    assert part.endswith("benchmarks.automl run --long --limit 300")


def test_the_page_counts_what_is_missing(automl: ModuleType, tmp_path: Path) -> None:
    report = import_module("benchmarks.automl_report")
    cells = {}
    for limit in (automl.LIMIT, automl.LONG_LIMIT):
        for at, place in enumerate(automl.plan(limit)):
            loss = 1.0 + 0.01 * at
            cells[place] = {"loss": loss, "constant": 9.0, "seconds": 1.0}
    del cells["iris | EBM | 1 | single"]
    del cells["food | FLAML | 2 | 300 s"]
    (tmp_path / "cells.json").write_text(json.dumps(cells), encoding="utf-8")
    report.write_table(tmp_path / "cells.json", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert f"Measured: {len(cells)} cells. Missing: 1 of 432 for 60 s" in page
    assert "single fits, 1 of 54 for 300 s." in page
    assert page.index("## Limit 60 s") < page.index("## Limit 300 s")
    assert "fraction=0" in page


def test_a_table_is_read_without_importing_its_package(
    automl: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    package = tmp_path / "palmerpenguins"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("import pkg_resources_is_missing\n")
    (package / "data" / "penguins.csv").write_text("species,mass\nAdelie,3750\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    tables = import_module("benchmarks.automl_tables")
    found = tables.SOURCES["penguins"].load()
    assert list(found["species"]) == ["Adelie"] and "palmerpenguins" not in sys.modules


def test_the_additive_contender_answers_for_all_sealed_rows(
    automl: ModuleType,
) -> None:
    tables = import_module("benchmarks.automl_tables")
    part = tables.divide("iris", 0)
    guess, _ = automl.CONTENDERS[automl.ADDITIVE](part, 5.0)
    np.testing.assert_allclose(np.sum(guess, axis=1), 1.0)
    assert automl.loss_of(guess, part) < automl.constant_loss(part) / 3
