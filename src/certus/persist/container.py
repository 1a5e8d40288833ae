"""The bytes of a model file: a safetensors file with a sealed manifest.

Layout: eight bytes of header length, a JSON header, the tensors. The header's
``__metadata__["certus"]`` is the manifest, a JSON text that opens with a SHA-256 over
the whole file in which those 64 digits read as zeros. Every declared length, offset
and shape is compared with the size of the file before anything is allocated for it,
so what a file claims can cost no more than what it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy

from certus.wording import unstopped

#: Largest JSON header read or written. Text in the manifest (names, object labels)
#: lives here; numbers live in tensors, which have no limit.
MAX_HEADER = 64 * 2**20
#: Deepest nesting of brackets in the header or the manifest.
MAX_DEPTH = 128

_DIGITS = 64
_OPENING = '{"sha256":"'
_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BOOL": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1,
}  # fmt: skip
# A string ends at its quote or, if unterminated, at the end of the text: one pass.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_COPY = "Copy it again; nothing was loaded."
_ALIEN = "Nothing was loaded."


class ModelFileError(ValueError):
    """A model file that cannot be written or read, and what to do about it."""

    __module__ = "certus.persist"  # where users find it


def dump_json(value: Any) -> str:
    """JSON in ASCII without spaces; NaN and infinity are errors, never tokens."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def parse_json(text: str, what: str) -> Any:
    """Parse JSON after checking its depth; repeated keys and NaN are refused."""
    brackets = np.frombuffer(_STRING.sub("", text).encode(), dtype=np.uint8)
    opening = np.isin(brackets, np.frombuffer(b"[{", np.uint8)).astype(np.int32)
    closing = np.isin(brackets, np.frombuffer(b"]}", np.uint8)).astype(np.int32)
    if np.cumsum(opening - closing).max(initial=0) > MAX_DEPTH:
        raise ModelFileError(
            f"is not valid: its {what} is nested deeper than {MAX_DEPTH} levels. "
            f"{_ALIEN}"
        )
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except ValueError as error:
        raise ModelFileError(
            f"is damaged: its {what} is not JSON ({error}). {_COPY}"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:80]!r} appears twice")
    return found


def _no_constant(token: str) -> Any:
    raise ValueError(f"{token} is not JSON")


def seal(manifest: dict[str, Any], tensors: dict[str, np.ndarray]) -> bytes:
    """The bytes of a model file, checksum included."""
    text = dump_json({"sha256": "0" * _DIGITS, **manifest})
    try:
        blob = safetensors.numpy.save(tensors, metadata={"certus": text})
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"cannot be written: {error}") from None
    length = int.from_bytes(blob[:8], "little")
    if length > MAX_HEADER:
        raise ModelFileError(
            f"would need {length:,} bytes for names and labels, more than the "
            f"{MAX_HEADER:,} that a model file may hold. Use numeric arrays for large "
            "data."
        )
    parse_json(text, "manifest")  # what cannot be read back is not written
    at = _seal_position(blob[8 : 8 + length]) + 8
    digest = hashlib.sha256(blob).hexdigest().encode()
    return b"".join((blob[:at], digest, memoryview(blob)[at + _DIGITS :]))


def _seal_position(header: bytes) -> int:
    """Where the 64 digits stand in the header; the manifest is escaped there."""
    opening = dump_json(_OPENING)[1:-1].encode()
    found = header.find(opening)
    if found < 0:
        raise ModelFileError(f"is damaged: it has no checksum. {_COPY}")
    return found + len(opening)


def unseal(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model file: its manifest and its tensors, each checked."""
    with _opened(path) as (handle, size):
        prefix, header = _read_header(handle, size)
        parsed = parse_json(_text(header), "header")
        if not isinstance(parsed, dict):
            raise ModelFileError(f"is not a certus model file. {_ALIEN}")
        metadata = parsed.pop("__metadata__", None)
        expected = len(prefix) + len(header) + _check_tensors(parsed)
        if size < expected:
            raise _cut_short(size, f"{expected:,}")
        if size > expected:
            raise ModelFileError(
                f"has {size - expected:,} bytes after its end. {_COPY}"
            )
        text = metadata.get("certus") if isinstance(metadata, dict) else None
        if not isinstance(text, str):
            raise ModelFileError(
                "is a safetensors file without a certus manifest: it holds tensors, "
                f"not a model. {_ALIEN}"
            )
        data = handle.read(expected - len(prefix) - len(header))
    _check_seal(prefix, header, data, text)
    manifest = parse_json(text, "manifest")
    try:
        tensors = safetensors.numpy.load(b"".join((prefix, header, data)))
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        raise ModelFileError(f"is not valid: {unstopped(error)}. {_ALIEN}") from None
    return manifest, tensors


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    try:
        kind = os.stat(_speakable(path)).st_mode
        if stat.S_ISDIR(kind):
            raise ModelFileError("is a directory. Pass the model file inside it.")
        if not stat.S_ISREG(kind):  # opening a pipe would wait forever
            raise ModelFileError(
                "is not a regular file. Pass the path of a model file."
            )
        with open(path, "rb") as handle:
            yield handle, os.fstat(handle.fileno()).st_size
    except FileNotFoundError:
        raise ModelFileError("does not exist. Check the path.") from None
    except OSError as error:
        raise ModelFileError(
            f"cannot be read: {error.strerror or error}. {_ALIEN}"
        ) from None


def _speakable(path: Path) -> Path:
    if "\0" in str(path):
        raise ModelFileError("is not a valid path: it contains a null character.")
    return path


def _read_header(handle: BinaryIO, size: int) -> tuple[bytes, bytes]:
    prefix = handle.read(9)
    if not prefix:
        raise ModelFileError(f"is empty. {_COPY}")
    if prefix[8:] != b"{":
        raise _alien(prefix, size)
    length = int.from_bytes(prefix[:8], "little")
    if length > MAX_HEADER:
        raise ModelFileError(
            f"is not valid: it declares a header of {length:,} bytes, more than the "
            f"{MAX_HEADER:,} allowed. {_ALIEN}"
        )
    if size < 8 + length:
        raise _cut_short(size, f"at least {8 + length:,}")
    return prefix[:8], b"{" + handle.read(length - 1) if length else b""


def _alien(prefix: bytes, size: int) -> ModelFileError:
    if prefix[:1] == b"\x80" and prefix[1:2] <= b"\x05":
        return ModelFileError(
            "is a pickle, not a certus model file. A pickle can run code, so certus "
            "does not open it. Load it in an environment where you trust it, and "
            "save the model again."
        )
    if prefix[:4] == b"PK\x03\x04" or prefix[:2] == b"\x1f\x8b":
        return ModelFileError(
            "is a compressed archive, not a certus model file. Unpack it first."
        )
    if size <= 8:
        return _cut_short(size, "at least 10")
    return ModelFileError(f"is not a certus model file. {_ALIEN}")


def _cut_short(size: int, expected: str) -> ModelFileError:
    return ModelFileError(f"is cut short at byte {size:,} of {expected}. {_COPY}")


def _text(header: bytes) -> str:
    try:
        return header.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFileError(f"is damaged: its header is not text. {_COPY}") from None


def _check_tensors(table: dict[str, Any]) -> int:
    """Bytes the tensors take; they must tile the data without gap or overlap."""
    spans = []
    for name, entry in table.items():
        what = f"is not valid: tensor {name[:80]!r}"
        if not isinstance(entry, dict) or set(entry) != {
            "dtype",
            "shape",
            "data_offsets",
        }:
            raise ModelFileError(f"{what} is described incompletely. {_ALIEN}")
        dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _SIZES:
            raise ModelFileError(f"{what} has the unknown dtype {dtype!r}. {_ALIEN}")
        if not _counts(shape) or len(shape) > 32:
            raise ModelFileError(f"{what} has an impossible shape. {_ALIEN}")
        if not _counts(span) or len(span) != 2:
            raise ModelFileError(f"{what} has impossible offsets. {_ALIEN}")
        if prod(shape) * _SIZES[dtype] != span[1] - span[0]:
            raise ModelFileError(
                f"{what} has a shape that does not match its size. {_ALIEN}"
            )
        spans.append((span[0], span[1]))
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise ModelFileError(
                f"is not valid: its tensors overlap or leave gaps. {_ALIEN}"
            )
        end = stop
    return end


def _counts(value: Any) -> bool:
    """Whether this is a list of sizes that fit a signed 64-bit integer."""
    return isinstance(value, list) and all(
        type(count) is int and 0 <= count < 2**63 for count in value
    )


def _check_seal(prefix: bytes, header: bytes, data: bytes, text: str) -> None:
    stated = text[len(_OPENING) :][:_DIGITS]
    at = _seal_position(header)
    digest = hashlib.sha256(prefix)
    digest.update(header[:at] + b"0" * _DIGITS + header[at + _DIGITS :])
    digest.update(data)
    if not text.startswith(_OPENING) or stated != digest.hexdigest():
        raise ModelFileError(
            f"is damaged: its content does not match its checksum. {_COPY}"
        )


def write_atomically(path: Path, blob: bytes | Iterable[bytes]) -> None:
    """Write bytes, or pieces of them, beside the target, then rename over it.

    At every moment the path holds the old content or the new one, whole.
    """
    target = Path(os.path.realpath(_speakable(path)))
    beside = target.with_name(f".certus-{secrets.token_hex(8)}.tmp")
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "it is a directory; pass a file name")
        if target.exists() and not target.is_file():
            # A rename would put a file in place of the device or pipe itself.
            raise OSError(None, "it is a device or a pipe; pass a file name")
        with open(beside, "xb") as handle:
            handle.writelines([blob] if isinstance(blob, bytes) else blob)
            handle.flush()
            os.fsync(handle.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
        _flush_directory(target.parent)
    except OSError as error:
        kept = "the existing file was not changed" if os.path.isfile(target) else ""
        raise ModelFileError(
            f"could not be written: {error.strerror or error}; "
            f"{kept or 'no part of it was written'}."
        ) from error
    finally:
        with suppress(OSError):
            os.unlink(beside)


def _flush_directory(folder: Path) -> None:
    """Make the rename itself durable where directories can be flushed."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
