"""Settings shared by all tests: hypothesis, torch's seed, array API checks, markers.

A test carries the name of its package as a marker: from its path (``tests/exact/svm``,
``src/certus/svm``), or from the estimator that it is given as a parameter. ``quick``
marks what ``make check`` runs: the proof kernel's tests, and the tests that take an
estimator, for one estimator of each package.

On a build server (``CI`` set) the examples are the same in every run, so that a red
build can be repeated; elsewhere each run explores new ones, and ``make check`` only a
few of them. There is no deadline: the first call of a compiled kernel takes as long as
its compilation. torch draws the same numbers in every test, whatever ran before it.
"""

import gc
import os
import signal
import sys
from pathlib import Path

# Read when SciPy is first imported; without it scikit-learn skips its array API checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import HealthCheck, settings

# A plugin of the run of scikit-learn's tests, which imports its neighbour there.
collect_ignore = ["upstream/plugin.py"]

PACKAGES = {
    path.name
    for path in (Path(__file__).parents[1] / "src" / "certus").iterdir()
    if path.is_dir() and path.name != "__pycache__"
}

settings.register_profile(
    "local",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("local"), max_examples=10)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config):
    for name in sorted(name.strip("_") for name in PACKAGES):
        config.addinivalue_line("markers", f"{name}: tests of certus.{name}")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """The garbage collector passes over what was collected.

    Tests and modules are a million objects that live until the end: looking through
    them takes about half a second, a hundred times in a run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    first = {}  # the estimator of each package that stands for the others
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {}).get("estimator")
        home = type(given).__module__.split(".")
        ours = home[0] == "certus" and home[1] in PACKAGES
        parts = item.path.parts
        for name in PACKAGES.intersection(parts) | ({home[1]} if ours else set()):
            item.add_marker(name.strip("_"))
        one = ours and first.setdefault(home[1], type(given)) is type(given)
        if one or parts[-3:-1] == ("exact", "verify"):
            item.add_marker("quick")


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
