"""Compiled kernels that are compiled once per installation.

numba caches machine code on disk but does not notice an edit in *another* file that a
kernel calls into. So the cache directory carries a digest of all sources that kernels
are made of: an edit anywhere means another directory, never a stale kernel.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event as events


def _sources() -> list[Path]:
    root = Path(__file__).resolve().parents[1]
    # Kernels of other packages call what stands here; those of language each other.
    named = ("bpe_pair", "bpe_table", "exponential", "forward", "decoding", "ngram")
    called = [f"language/**/{name}_kernels.py" for name in named]
    places = ("_core/*.py", "_solvers/*.py", *called)
    kernels = (path for place in places for path in root.glob(place))
    return [root / "objectives" / "terms.py", *sorted(kernels)]


def source_digest() -> str:
    """Digest of every file whose text can end up in a kernel."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """``$CERTUS_CACHE``, else the user's cache folder, else a temporary one."""
    base = _user_folder()
    if base is not None:
        root = base / "certus"
        try:
            root.mkdir(parents=True, exist_ok=True)
            if os.access(root, os.W_OK):
                return root
        except OSError:
            pass
    return _private_folder() or Path(tempfile.mkdtemp(prefix="certus-"))


def _user_folder() -> Path | None:
    given = os.environ.get("CERTUS_CACHE") or os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None


def _private_folder() -> Path | None:
    """A lasting folder in the temporary place, if its owner can be determined.

    numba unpickles what it finds, so a folder in a shared place must be ours alone.
    """
    if not hasattr(os, "getuid"):  # Windows
        return None
    private = Path(tempfile.gettempdir()) / f"certus-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        found = private.lstat()
    except OSError:
        return None
    ours = found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    return private if ours else None


_DIRECTORY = cache_root() / source_digest()
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract"},
}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit`` with the digest's cache directory."""
    return _cached(function, _OPTIONS)


def exact_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`kernel`, with each operation rounded by itself and in its own place.

    Sums keep their order and no product is fused with a sum, so that a result has the
    same bits on every processor that follows IEEE 754.
    """
    return _cached(function, {**_OPTIONS, "fastmath": False})


def _cached(
    function: Callable[..., Any], options: dict[str, Any]
) -> Callable[..., Any]:
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_DIRECTORY)
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before
    return compiled


def term_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`kernel` for functions of a term; terms from elsewhere are not cached.

    The digest does not cover their sources, so an edit there would go unnoticed.
    """
    ours, theirs = kernel(function), numba.njit(**_OPTIONS)(function)

    @functools.wraps(function)
    def call(term: Any, *args: Any) -> Any:
        known = type(term).__module__.startswith("certus.")
        return (ours if known else theirs)(term, *args)

    call.cached = ours  # type: ignore[attr-defined]
    return call


class _Compilation(events.Listener):
    """Tell the user, who waits, that numba compiles one of our kernels.

    numba reports compilations only, not machine code that it reads from the cache.
    The first one is announced. A Ctrl-C that arrives while LLVM calls back into Python
    is ignored there, by the rules of ctypes; it is sent again once numba is done.
    """

    def __init__(self) -> None:
        self.told = False
        self._depth = 0
        self._pressed = False
        self._hook = sys.unraisablehook

    def on_start(self, event: Any) -> None:
        if not _is_ours(event):
            return
        if not self.told:
            self.told = True
            sys.stderr.write(
                "certus: compiling kernels for this machine; this happens once per "
                "installation\n"
            )
            sys.stderr.flush()
        self._depth += 1
        if self._depth == 1:
            self._hook, sys.unraisablehook = sys.unraisablehook, self._note

    def on_end(self, event: Any) -> None:
        if not _is_ours(event):
            return
        self._depth -= 1
        if self._depth == 0:
            sys.unraisablehook = self._hook
            if self._pressed:
                self._pressed = False
                signal.raise_signal(signal.SIGINT)

    def _note(self, ignored: Any) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            self._pressed = True
        else:
            self._hook(ignored)


def _is_ours(event: Any) -> bool:
    function = getattr(event.data["dispatcher"], "py_func", None)
    return str(getattr(function, "__module__", None)).partition(".")[0] == "certus"


_compilation = _Compilation()
events.register("numba:compile", _compilation)  # type: ignore[no-untyped-call]
