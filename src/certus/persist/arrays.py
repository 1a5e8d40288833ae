"""Codecs of NumPy and SciPy: dtypes, scalars, arrays, sparse matrices, randomness.

Arrays become tensors bit for bit. Fixed-width text is stored as its code points and
complex numbers as pairs, so that no array can claim more memory than its file has.
Whatever compiled code would trust blindly is checked here: indices of sparse matrices,
positions inside a random generator's state, bytes of a boolean, code points of text.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import scipy.sparse as sp

from certus.persist.encoding import (
    ValueDecoder,
    ValueEncoder,
    expect,
    malformed,
    register,
)

# --------------------------------------------------------- NumPy dtypes and scalars

_UNIT = r"\[(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]"
_DTYPE = re.compile(
    r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[US][1-9]\d{0,8}|[mM]8(?:" + _UNIT + ")?)"
)
_TYPES = {
    **{kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, object)},
    **{
        f"numpy.{np.dtype(code).name}": np.dtype(code).type
        for code in ("?", *"bhilBHILefdFD")
    },
}
_TYPE_NAMES = {kind: name for name, kind in _TYPES.items()}


def _pack_dtype(value: np.dtype[Any], e: ValueEncoder) -> list[Any]:
    if value.kind != "O" and not _DTYPE.fullmatch(value.str):
        raise e.refusal(f"a model file cannot hold the dtype {value}")
    return [value.str]


def _unpack_dtype(_: ValueDecoder, name: Any) -> np.dtype[Any]:
    expect(name, str, "a dtype")
    if name != "|O" and not _DTYPE.fullmatch(name):
        raise malformed(f"holds the unknown dtype {name[:80]!r}")
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _pack_type(value: type, e: ValueEncoder) -> list[Any]:
    if value not in _TYPE_NAMES:
        label = f"{value.__module__}.{value.__qualname__}"
        raise e.refusal(
            f"it is the class {label}, and a model file holds data, never code. Use a "
            "named option instead, or save the model with joblib"
        )
    return [_TYPE_NAMES[value]]


def _pack_scalar(value: np.generic, e: ValueEncoder) -> list[Any]:
    if isinstance(value, np.str_):
        return ["U", str(value)]
    if isinstance(value, np.bytes_):
        return ["S", value.hex()]
    (name,) = _pack_dtype(value.dtype, e)
    if value.dtype.kind in "biuf":
        return [name, e.put(value.item())]
    return [name, value.tobytes().hex()]


def _unpack_scalar(d: ValueDecoder, name: Any, data: Any) -> Any:
    if name == "U":
        return np.str_(expect(data, str, "text"))
    if name == "S":
        return np.bytes_(bytes.fromhex(data))
    dtype = _unpack_dtype(d, name)
    if dtype.kind in "biuf":
        kind = {"b": bool, "f": float}.get(dtype.kind, int)
        with np.errstate(over="raise"):
            return dtype.type(expect(d.get(data), kind, "a number"))
    (value,) = np.frombuffer(bytes.fromhex(data), dtype)
    return value


register("dtype", (np.dtype,), ("name",), _pack_dtype, _unpack_dtype)
register("type", (type,), ("name",), _pack_type, lambda d, name: _TYPES[name])
register("scalar", (np.generic,), ("dtype", "value"), _pack_scalar, _unpack_scalar)

# --------------------------------------------------------------------- NumPy arrays

#: How a kind of array is laid out in a tensor: its element there, by dtype kind.
_CELLS = {"U": "u4", "S": "u1", "M": "i8", "m": "i8"}
_LAST_CODE_POINT = 0x10FFFF


def _cell(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return np.dtype(_CELLS.get(dtype.kind, dtype.newbyteorder("=")))


def _pack_array(value: np.ndarray, e: ValueEncoder) -> list[Any]:
    value = np.asarray(value)
    if value.dtype.str[1:] in ("U0", "S0"):
        value = value.astype(value.dtype.str[:2] + "1")
    (name,) = _pack_dtype(value.dtype, e)
    order = "F" if value.flags.fnc else "C"
    native = np.asarray(
        value.T if order == "F" else value, value.dtype.newbyteorder("="), order="C"
    )
    cell = _cell(native.dtype)
    if native.dtype.kind in "USc":  # one more axis: the parts of an element
        native = native.reshape((*native.shape, 1))
    return [name, order, e.add_tensor(native.view(cell))]


def _unpack_array(d: ValueDecoder, name: Any, order: Any, tensor: Any) -> np.ndarray:
    dtype = _unpack_dtype(d, name)
    native, cell = dtype.newbyteorder("="), _cell(dtype)
    if order not in ("C", "F"):
        raise malformed(f"holds an array in the unknown order {str(order)[:80]!r}")
    data = d.take(tensor)
    if data.dtype != cell:
        raise malformed(f"holds an array of {data.dtype} that is declared as {dtype}")
    if data.dtype == bool and data.view(np.uint8).max(initial=0) > 1:
        raise malformed("holds a boolean that is neither true nor false")
    if dtype.kind == "U" and data.max(initial=0) > _LAST_CODE_POINT:
        raise malformed("holds text with an impossible character")
    if dtype.kind in "USc":
        if data.ndim == 0 or data.shape[-1] * cell.itemsize != dtype.itemsize:
            raise malformed(
                f"holds an array of shape {data.shape} that is declared as {dtype}"
            )
        data = data.view(native).reshape(data.shape[:-1])
    array = data.view(native).astype(dtype, copy=False)
    return array.T if order == "F" else array


def _pack_objects(value: np.ndarray, e: ValueEncoder) -> list[Any]:
    return [list(value.shape), e.put_all(value.ravel().tolist())]


def _unpack_objects(d: ValueDecoder, shape: Any, items: Any) -> np.ndarray:
    values = d.get(expect(items, list, "an array's items"))
    if math.prod(expect(shape, list, "a shape")) != len(values):
        raise malformed("holds an array whose shape does not match its size")
    flat = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):  # item by item: lists must stay lists
        flat[i] = value
    return flat.reshape(tuple(shape))


register(
    "array",
    (np.ndarray, np.memmap),
    ("dtype", "order", "tensor"),
    _pack_array,
    _unpack_array,
)
register("objects", (), ("shape", "items"), _pack_objects, _unpack_objects)

# ------------------------------------------------------------------ sparse matrices

_SPARSE = {
    kind.__name__: kind
    for kind in (
        sp.csr_array,
        sp.csc_array,
        sp.coo_array,
        sp.csr_matrix,
        sp.csc_matrix,
        sp.coo_matrix,
    )
}


def _pack_sparse(value: Any, e: ValueEncoder) -> list[Any]:
    parts = (
        [value.data, *value.coords]
        if value.format == "coo"
        else [value.data, value.indices, value.indptr]
    )
    return [type(value).__name__, list(map(int, value.shape)), e.put_all(parts)]


def _unpack_sparse(d: ValueDecoder, name: Any, shape: Any, parts: Any) -> Any:
    kind = _SPARSE[name]
    data, *index = (
        expect(d.get(p), np.ndarray, "a sparse matrix's part") for p in parts
    )
    if any(i.dtype.kind not in "iu" or i.ndim != 1 for i in index):
        raise malformed("holds a sparse matrix whose indices are not integers")
    size = tuple(expect(s, int, "a shape") for s in expect(shape, list, "a shape"))
    if kind in (sp.coo_array, sp.coo_matrix):  # its constructor checks the range
        return kind((data, tuple(index)), shape=size)
    matrix = kind((data, *index), shape=size)
    matrix.check_format(full_check=True)  # compiled code would trust the indices
    return matrix


register(
    "sparse",
    tuple(_SPARSE.values()),
    ("class", "shape", "parts"),
    _pack_sparse,
    _unpack_sparse,
)

# -------------------------------------------------------------------- random states

_BITS = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}


def _pack_random(value: Any, e: ValueEncoder) -> list[Any]:
    if isinstance(value, np.random.RandomState):
        state, seed = value.get_state(legacy=False), None
    else:
        bits = value.bit_generator
        state = bits.state
        source = bits.seed_seq
        seed = source.state if type(source) is np.random.SeedSequence else None
    if state["bit_generator"] not in _BITS:
        raise e.refusal(f"its bit generator {state['bit_generator']} is not NumPy's")
    return [type(value).__name__, e.inside("state", state), e.inside("seed", seed)]


def _unpack_random(d: ValueDecoder, name: Any, state: Any, seed: Any) -> Any:
    state = expect(d.get(state), dict, "a random state")
    seed = expect(d.get(seed), (dict, type(None)), "a random seed")
    # Compiled generators read at these positions without checking them.
    position = state["state"].get("pos", 0), state.get("buffer_pos", 0)
    if not (0 <= position[0] <= 624 and 0 <= position[1] <= 4):
        raise malformed("holds a random state that points outside itself")
    if seed and not 4 <= seed["pool_size"] <= 64:
        raise malformed("holds a random seed with an impossible pool")
    bits = _BITS[state["bit_generator"]](
        np.random.SeedSequence(**seed) if seed else np.random.SeedSequence(0)
    )
    if name == "RandomState":
        legacy = np.random.RandomState(bits)
        legacy.set_state(state)
        return legacy
    if name != "Generator":
        raise malformed(f"holds the unknown random state {str(name)[:80]!r}")
    bits.state = state
    return np.random.Generator(bits)


register(
    "random",
    (np.random.RandomState, np.random.Generator),
    ("class", "state", "seed"),
    _pack_random,
    _unpack_random,
)
