"""What Linux has and other systems lack is asked for, never relied upon.

macOS has no ``os.sched_getaffinity``; Windows has neither that, nor ``os.getuid`` and
``os.register_at_fork``; a user without a home makes ``Path.home()`` raise. Each is
taken away in a new process before certus is imported, which then fits and certifies.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from certus._core import cache
from certus.verify import blocks

WITHOUT_AFFINITY = "del os.sched_getaffinity"
WITHOUT_USERS = "del os.getuid, os.geteuid"
WITHOUT_FORK = "del os.register_at_fork, os.fork"
WITHOUT_HOME = """
    def home():
        raise RuntimeError("Could not determine home directory.")
    pathlib.Path.home = staticmethod(home)
"""

SYSTEMS = {
    "macos": [WITHOUT_AFFINITY],
    "windows": [WITHOUT_AFFINITY, WITHOUT_USERS, WITHOUT_FORK],
    "no home": [WITHOUT_HOME],
    "nothing": [WITHOUT_AFFINITY, WITHOUT_USERS, WITHOUT_FORK, WITHOUT_HOME],
}

#: Enough rows for the verifier to share them among threads.
WORK = """
    import numpy as np, certus
    from certus.decomposition import PCA
    from certus.svm import SVC
    from sklearn.linear_model import Ridge
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20))
    y = X[:, 0] + rng.normal(size=3000) > 0
    for model, n in ((PCA(3), 3000), (SVC(), 300), (Ridge(), 3000)):
        found = certus.certify(model.fit(X[:n], y[:n]), X[:n], y[:n])
        print(type(model).__name__, found.met, found.threads >= 1)
"""


@pytest.mark.parametrize("missing", SYSTEMS.values(), ids=SYSTEMS)
def test_fit_and_certify_without(missing: list[str], tmp_path: Path) -> None:
    code = "import os, pathlib\n" + "\n".join(map(textwrap.dedent, missing))
    hidden = {"CERTUS_CACHE", "XDG_CACHE_HOME"} if WITHOUT_HOME in missing else set()
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", code + textwrap.dedent(WORK)],
        capture_output=True,
        text=True,
        env={**environment, "TMPDIR": str(tmp_path)} if hidden else environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "PCA True True\nSVC True True\nRidge True True\n"
    if hidden:  # compiled among the temporary files
        assert list(tmp_path.glob("certus-*/*/**/*.nbi"))


def test_cores_are_counted_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(os, "sched_getaffinity"):
        assert blocks.cores() == len(os.sched_getaffinity(0))
        monkeypatch.delattr(os, "sched_getaffinity")
    assert blocks.cores() == (os.cpu_count() or 1)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert blocks.cores() == 1


def test_a_folder_with_an_unknown_owner_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may have put machine code there; without users it is a new one."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("CERTUS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    if hasattr(os, "getuid"):
        kept = cache.cache_root()
        assert kept == cache.cache_root() == tmp_path / f"certus-{os.getuid()}"
        kept.chmod(0o755)
        assert cache.cache_root() != kept
        kept.chmod(0o700)
        monkeypatch.delattr(os, "getuid")
    first, second = cache.cache_root(), cache.cache_root()
    assert first != second and first.parent == second.parent == tmp_path
