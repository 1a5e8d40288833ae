"""Settings shared by all tests: what hypothesis and torch draw, array API checks.

On a build server (``CI`` set) the examples are the same in every run, so that a red
build can be repeated; elsewhere each run explores new ones. There is no deadline: the
first call of a compiled kernel takes as long as its compilation. torch draws the same
numbers in every test, whatever ran before it.
"""

import os
import signal
import sys

# Read when SciPy is first imported; without it scikit-learn skips its array API checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "local",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def torch_seed():
    """The same numbers for every test; the generator is put back as it was."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def ctrl_c():
    """SIGINT interrupts this test, also where the shell has it ignored (``pytest &``).

    Python leaves an ignored signal ignored, and a test that sends one would wait.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
