"""A fixture for modules whose tests draw from torch: seeded, the global state kept."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def torch_seed() -> Iterator[None]:
    """The same random numbers in every test of a module that imports this."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
