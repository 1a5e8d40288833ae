"""Compiled kernels that are compiled once per installation.

numba caches machine code on disk but does not notice an edit in *another* file that a
kernel calls into. So the cache directory carries a digest of all sources that kernels
are made of: an edit anywhere means another directory, never a stale kernel.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba

#: Seconds after which a cold compile is announced.
PATIENCE = 2.0


def _sources() -> list[Path]:
    package = Path(__file__).resolve().parent
    return [package.parent / "terms.py", *sorted(package.glob("*.py"))]


def source_digest() -> str:
    """Digest of every file whose text can end up in a kernel."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """``$CERTUS_CACHE``, else the user's cache folder, else a temporary one."""
    given = os.environ.get("CERTUS_CACHE")
    base = given or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(base) / "certus"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    # numba unpickles what it finds, so a shared folder must be ours alone.
    private = Path(tempfile.gettempdir()) / f"certus-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        found = private.lstat()
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700:
            return private
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="certus-"))


_DIRECTORY = cache_root() / source_digest()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit`` with the digest's cache directory, announcing long compiles."""
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_DIRECTORY)
    try:
        compiled = numba.njit(
            cache=True,
            nogil=True,
            error_model="numpy",
            fastmath={"reassoc", "contract"},
        )(function)
    finally:
        config.CACHE_DIR = before
    seen: set[Any] = set()

    def call(*args: Any) -> Any:
        if not seen:
            seen.add(True)
            timer = threading.Timer(PATIENCE, _announce)
            timer.daemon = True
            timer.start()
            try:
                return compiled(*args)
            finally:
                timer.cancel()
        return compiled(*args)

    call.compiled = compiled  # type: ignore[attr-defined]
    call.__doc__ = function.__doc__
    call.__name__ = function.__name__
    return call


@lru_cache(maxsize=1)
def _announce() -> None:
    """On stderr: a person is waiting and would like to know why, once."""
    sys.stderr.write(
        "certus: compiling kernels for this machine; this happens once per "
        "installation\n"
    )
    sys.stderr.flush()
