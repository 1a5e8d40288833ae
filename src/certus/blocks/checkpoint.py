"""A checkpoint: the sums of every finished pass, in a file that only grows.

A fit to blocks is a function of the sums of its passes. They are kept under a digest of
the function, its state (coefficients) and the addresses of the rows, so that a fit that
was killed reads what it had already found and goes on, to the same bits. Nothing in the
file is code: numbers, texts, and the names of our own tuples.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from threadpoolctl import threadpool_info

from certus.typing import Array

#: How a file begins; the number is that of the layout.
MAGIC = b"certus-checkpoint-1\n"
_HEAD = struct.Struct("<Q32s32s")  # length, digest of the pass, digest of the content
_LOCK = threading.Lock()


class PassesError(RuntimeError):
    """A file that is not a checkpoint."""


class Checkpoint:
    """The passes in a file.

    Parameters
    ----------
    path : path
        The file; it is made if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._where: dict[bytes, tuple[int, int, bytes]] = {}
        self._end = 0
        self._broken = False
        if os.path.exists(self.path) and os.path.getsize(self.path):
            self._scan()

    def __len__(self) -> int:
        return len(self._where)

    def find(self, name: bytes) -> Any:
        """The sums of a pass; None if they are not there, or damaged."""
        if name not in self._where:
            return None
        at, length, digest = self._where[name]
        try:
            with open(self.path, "rb") as file:
                file.seek(at)
                content = file.read(length)
        except OSError:
            return None
        if hashlib.sha256(content).digest() != digest:
            return None
        return unpack(content)

    def keep(self, name: bytes, value: Any) -> None:
        """Add a pass; a full disk is a warning, and the fit goes on."""
        if self._broken:
            return
        try:
            content = pack(value)
        except TypeError:  # sums that are no data are computed again
            return
        digest = hashlib.sha256(content).digest()
        try:
            with open(self.path, "r+b" if self._end else "wb") as file:
                if not self._end:
                    file.write(MAGIC)
                    self._end = len(MAGIC)
                file.seek(self._end)
                file.truncate()
                file.write(_HEAD.pack(len(content), name, digest) + content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._broken = True
            warnings.warn(
                f"The checkpoint {self.path} cannot be written ({error.strerror}). The "
                "fit goes on without it; what it holds already stays usable.",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self._where[name] = (self._end + _HEAD.size, len(content), digest)
        self._end += _HEAD.size + len(content)

    def _scan(self) -> None:
        """Where the passes are; an unfinished one at the end is left out."""
        size = os.path.getsize(self.path)
        with open(self.path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise PassesError(
                    f"{self.path} exists and is not a checkpoint of certus. Name "
                    "another file."
                )
            self._end = len(MAGIC)
            while True:
                head = _read_head(file)
                if head is None or self._end + _HEAD.size + head[0] > size:
                    return
                length, name, digest = head
                self._where[name] = (self._end + _HEAD.size, length, digest)
                self._end += _HEAD.size + length
                file.seek(self._end)


def _read_head(file: BinaryIO) -> tuple[int, bytes, bytes] | None:
    head = file.read(_HEAD.size)
    return _HEAD.unpack(head) if len(head) == _HEAD.size else None


def remembered(
    kept: Checkpoint | None,
    blocks: Any,
    work: Callable[..., Any],
    state: tuple[Any, ...],
    compute: Callable[[], Any],
) -> Any:
    """``compute()``, or what a checkpoint holds of the same pass."""
    if kept is None:
        return compute()
    mark = blocks.digest()
    if not mark:
        return compute()
    try:
        name = _name(mark, work, state)
    except TypeError:  # a state that has no bytes cannot be recognised again
        return compute()
    with _LOCK:
        found = kept.find(name)
    if found is not None:
        logging.getLogger("certus").info("pass read from %s", kept.path)
        return found
    found = compute()
    with _LOCK:
        kept.keep(name, found)
    return found


def _name(mark: bytes, work: Callable[..., Any], state: tuple[Any, ...]) -> bytes:
    """The digest of a pass: what is computed, from which rows, by which libraries."""
    found = hashlib.sha256(repr(_libraries()).encode())
    found.update(f"{work.__module__}.{work.__qualname__}".encode())
    found.update(mark)
    found.update(pack(state))
    return found.digest()


def _libraries() -> list[Any]:
    """What the bits of a sum depend on beside the rows."""
    from importlib.metadata import version

    kernels = {str(pool.get("architecture")) for pool in threadpool_info()}
    return [version("certus"), np.__version__, sorted(kernels)]


# -- values as bytes -------------------------------------------------------------------


def pack(value: Any) -> bytes:
    """Arrays, numbers, texts, and tuples, lists and dicts of them, as bytes."""
    arrays: list[Array] = []
    shape = json.dumps(_shape(value, arrays)).encode()
    parts = [struct.pack("<Q", len(shape)), shape]
    parts += [np.ascontiguousarray(array).tobytes() for array in arrays]
    return b"".join(parts)


def unpack(content: bytes) -> Any:
    """Inverse of :func:`pack`.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.blocks.checkpoint import pack, unpack
    >>> unpack(pack((1, "a", {"b": np.arange(3)})))
    (1, 'a', {'b': array([0, 1, 2])})
    """
    (length,) = struct.unpack("<Q", content[:8])
    return _value(json.loads(content[8 : 8 + length]), [content, 8 + length])


def _shape(value: Any, arrays: list[Array]) -> Any:
    """JSON that says where the arrays go."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            raise TypeError("an array of objects")
        arrays.append(np.asarray(value))
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [value.dtype.str, list(np.shape(value))]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        cls = type(value)
        parts = [_shape(part, arrays) for part in value]
        return {"named": [cls.__module__, cls.__qualname__], "parts": parts}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_shape(part, arrays) for part in value]}
    if isinstance(value, dict):
        pairs = [[_shape(k, arrays), _shape(v, arrays)] for k, v in value.items()]
        return {"dict": pairs}
    raise TypeError(f"a {type(value).__name__}")


def _value(shape: Any, rest: list[Any]) -> Any:
    if not isinstance(shape, dict):
        return shape
    if "float" in shape:
        return float.fromhex(shape["float"])
    for kind in ("array", "scalar"):
        if kind in shape:
            dtype, size = shape[kind]
            return _array(dtype, size, rest)[() if kind == "scalar" else ...]
    if "named" in shape:
        made = _tuple_class(*shape["named"])
        return made(*[_value(part, rest) for part in shape["parts"]])
    if "dict" in shape:
        return {_value(k, rest): _value(v, rest) for k, v in shape["dict"]}
    if "tuple" in shape:
        return tuple(_value(part, rest) for part in shape["tuple"])
    return [_value(part, rest) for part in shape["list"]]


def _array(dtype: str, shape: list[int], rest: list[Any]) -> Array:
    content, at = rest
    kind, count = np.dtype(dtype), int(np.prod(shape, dtype=np.int64))
    rest[1] = at + kind.itemsize * count
    return np.frombuffer(content, kind, count, at).reshape(shape).copy()


def _tuple_class(module: str, name: str) -> Any:
    """One of our own named tuples; nothing else is built from a file."""
    found = None
    if module.startswith("certus."):
        found = getattr(sys.modules.get(module), name, None)
    if not (isinstance(found, type) and issubclass(found, tuple)):
        raise PassesError(f"A checkpoint names {module}.{name}, which is not ours.")
    return found
