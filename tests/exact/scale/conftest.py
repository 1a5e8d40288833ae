"""Sockets that Dask leaves open are dropped with the file of tests that made them."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

DASK = (
    "test_anywhere.py",
    "test_collections.py",
    "test_dask.py",
    "test_engines.py",
    "test_faults.py",
)


@pytest.fixture(autouse=True, scope="module")
def dropped_sockets() -> Iterator[None]:
    yield
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    message = "ignore:.*socket:pytest.PytestUnraisableExceptionWarning"
    for item in items:
        if item.path.parent == here and item.path.name in DASK:
            item.add_marker(pytest.mark.filterwarnings(message))
