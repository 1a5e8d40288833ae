"""One tagged encoding between Python values and JSON plus tensors.

None, booleans, integers, strings, finite floats, lists and dicts with string keys are
written as JSON writes them. Everything else becomes ``{"~": tag, ...}`` with one
:class:`Codec` per tag; numeric arrays go to tensors and are referred to by name. A
codec knows the types it packs, so an unknown type is refused when saving, and checks
what it unpacks, so a forged file is refused when loading. No name in a file is ever
imported: classes are looked up in ``REGISTRY`` below and in no other place.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from certus.persist.container import ModelFileError
from certus.persist.renames import present_names
from certus.registry import ESTIMATORS
from certus.wording import unstopped

#: Every class a model file may name, and where it lives.
REGISTRY: dict[str, tuple[str, str]] = {
    row.name: (f"certus.{row.home}.{row.file}", row.name) for row in ESTIMATORS.values()
}

#: Where the networks live that a model file may hold.
NETWORKS = "certus.neural_network.modules"

#: What callbacks and training leave on an estimator: live objects, not a result.
#: ``_run`` is the optimiser of a network between two partial fits, ``_walked`` what an
#: n-gram model has checked, ``_grown`` the estimator that grew an ensemble's trees.
TRANSIENT = frozenset(
    {
        *("_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx"),
        *("_run", "_walked", "_grown"),
    }
)

#: Deepest nesting of values. One level takes at most three levels of JSON.
MAX_NESTING = 40
#: Integers beyond this are not parameters; JSON readers stop near 4,300 digits.
MAX_BITS = 8192

TAG = "~"
Tensors = dict[str, np.ndarray]


class Codec(NamedTuple):
    """How values of some types are written and read back."""

    tag: str
    types: tuple[type, ...]
    fields: tuple[str, ...]
    pack: Callable[[Any, ValueEncoder], Iterable[Any]]
    unpack: Callable[..., Any]


BY_TYPE: dict[type, Codec] = {}
BY_TAG: dict[str, Codec] = {}


def register(
    tag: str,
    types: tuple[type, ...],
    fields: tuple[str, ...],
    pack: Callable[[Any, ValueEncoder], Iterable[Any]],
    unpack: Callable[..., Any],
) -> None:
    """Add a codec: ``pack`` gives the fields' values, ``unpack`` takes them."""
    codec = Codec(tag, types, fields, pack, unpack)
    BY_TAG[tag] = codec
    BY_TYPE.update(dict.fromkeys(types, codec))


class ValueEncoder:
    """Turns values into JSON-ready data, collecting tensors on the way."""

    def __init__(self, tensors: Tensors, where: str) -> None:
        self.tensors = tensors
        self.path = [where]

    def put(self, value: Any) -> Any:
        """Encode one value."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int and value.bit_length() <= MAX_BITS:
            return value
        if kind is float and math.isfinite(value):
            return value
        if kind is list:
            return self.put_all(value)
        if kind is dict and all(type(k) is str and k != TAG for k in value):
            return {name: self.inside(name, item) for name, item in value.items()}
        codec = self._codec(value)
        return {TAG: codec.tag, **dict(zip(codec.fields, codec.pack(value, self)))}

    def put_all(self, values: Iterable[Any]) -> list[Any]:
        """Encode each, naming it by its position."""
        return [self.inside(i, value) for i, value in enumerate(values)]

    def inside(self, name: object, value: Any) -> Any:
        """Encode a part of the current value; messages call it ``name``."""
        self.path.append(str(name))
        if len(self.path) > MAX_NESTING:
            raise self.refusal(
                f"it is nested deeper than {MAX_NESTING} levels, or contains itself. "
                "Flatten it"
            )
        data = self.put(value)
        self.path.pop()
        return data

    def add_tensor(self, array: np.ndarray) -> str:
        """Store a contiguous array under a name that says where it belongs."""
        stem = name = re.sub(r"[^A-Za-z0-9_.]", "_", ".".join(self.path[1:]) or "value")
        count = 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{stem}-{count}"
        self.tensors[name] = array
        return name

    def refusal(self, reason: str) -> ModelFileError:
        """Say which part of the model cannot be saved, and why."""
        where = ".".join(self.path)
        return ModelFileError(f"cannot save {where[:200]}: {unstopped(reason)}.")

    def _codec(self, value: Any) -> Codec:
        for kind in type(value).__mro__[:-1]:
            codec = BY_TYPE.get(kind)
            # NumPy's scalars and dtypes are families of classes; elsewhere a
            # subclass may carry more than its base and is not the same value.
            if codec and (kind is type(value) or codec.tag in ("scalar", "dtype")):
                objects = codec.tag == "array" and value.dtype.kind == "O"
                return BY_TAG["objects"] if objects else codec
        if is_registered(type(value)):
            return BY_TAG["estimator"]
        if is_network(type(value)):
            return BY_TAG["network"]
        raise self.refusal(_why_refused(value))


def _why_refused(value: Any) -> str:
    kind = type(value)
    if isinstance(value, FunctionType | MethodType | BuiltinFunctionType):
        return (
            f"it is the function {value.__name__!r}, and a model file holds data, "
            "never code. Use a named option instead (for a module, a network of "
            "certus.neural_network.modules), or save the model with joblib"
        )
    name = value if isinstance(value, type) else kind
    label = f"{name.__module__}.{name.__qualname__}"
    if kind is int:
        return f"it is an integer of more than {MAX_BITS} bits. Use a smaller one"
    if isinstance(value, type):
        return f"it is the class {label}, and a model file holds data, never code"
    if hasattr(value, "get_params"):
        return (
            f"it is a {label}, not a certus model, so a model file cannot hold it. "
            "Use the class of certus, or save the model with joblib"
        )
    if hasattr(value, "state_dict"):
        return (
            f"it is the module {label}, and a model file holds data, never code. Use "
            "a network of certus.neural_network.modules, or save the model with "
            "joblib"
        )
    if callable(value):
        return (
            f"it is a callable {label}, and a model file holds data, never code. Use "
            "a named option instead, or save the model with joblib"
        )
    return (
        f"it is a {label}, which a model file cannot hold. Convert it to a NumPy "
        "array or a plain Python value"
    )


class ValueDecoder:
    """Turns encoded data back into values; each tensor is used once."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors

    def get(self, data: Any) -> Any:
        """Decode one value."""
        if data is None or isinstance(data, bool | int | str):
            return data
        if isinstance(data, float):
            if not math.isfinite(data):
                raise malformed("holds a number that is too large")
            return data
        if isinstance(data, list):
            return [self.get(item) for item in data]
        if not isinstance(data, dict):
            raise malformed(f"holds a {type(data).__name__} where JSON was expected")
        if TAG not in data:
            return {name: self.get(item) for name, item in data.items()}
        tag = data[TAG]
        codec = BY_TAG.get(tag) if isinstance(tag, str) else None
        if codec is None:
            raise malformed(f"holds a value of the unknown kind {str(tag)[:80]!r}")
        if set(data) != {TAG, *codec.fields}:
            raise malformed(f"holds an incomplete value of kind {tag!r}")
        try:
            return codec.unpack(self, *(data[name] for name in codec.fields))
        except ModelFileError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            MemoryError,
            TypeError,
            ValueError,
        ) as error:
            raise malformed(
                f"holds a value of kind {tag!r} that cannot be rebuilt "
                f"({str(error)[:200]})"
            ) from error

    def take(self, name: Any) -> np.ndarray:
        """The tensor of that name, which no other value may use."""
        if not isinstance(name, str) or name not in self.tensors:
            raise malformed(
                f"refers to the tensor {str(name)[:80]!r}, which is missing or used "
                "twice"
            )
        return self.tensors.pop(name)

    def finish(self) -> None:
        """Refuse tensors that belong to nothing."""
        if self.tensors:
            name = next(iter(self.tensors))
            raise malformed(f"holds the tensor {name[:80]!r}, which no value refers to")


def malformed(reason: str) -> ModelFileError:
    """A file that is well sealed and yet says what no model would."""
    return ModelFileError(f"is not valid: it {unstopped(reason)}. Nothing was loaded.")


def expect(value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    """The value, if it has the type its place requires."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise malformed(f"holds a {type(value).__name__} as {what}")
    return value


def find_class(name: Any) -> type:
    """The class of that name in ``REGISTRY``; no other name is imported."""
    if not isinstance(name, str) or name not in REGISTRY:
        raise malformed(
            f"names the class {str(name)[:80]!r}, which this certus does not have"
        )
    module, attribute = REGISTRY[name]
    try:
        cls: type = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ModelFileError(
            f"needs {module}.{attribute}, which this installation lacks ({error})."
        ) from error
    return cls


def is_registered(kind: type) -> bool:
    """Whether this very class, not one of the same name, is in ``REGISTRY``."""
    module, attribute = REGISTRY.get(kind.__name__, ("", ""))
    # An instance exists, so its module is loaded: nothing is imported here.
    return getattr(sys.modules.get(module), attribute or "-", None) is kind


def is_network(kind: type) -> bool:
    """Whether this very class is a public one of ``certus.neural_network.modules``."""
    ours = kind.__module__.startswith(NETWORKS + ".")
    return ours and getattr(sys.modules.get(NETWORKS), kind.__name__, None) is kind


def split_state(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and fitted attributes of an estimator."""
    params = model.get_params(deep=False)
    attributes = {
        name: value
        for name, value in vars(model).items()
        if name not in params and name not in TRANSIENT
    }
    return params, attributes


def build(name: Any, params: Any, attributes: Any) -> Any:
    """An estimator from its decoded state, after checking every name in it."""
    cls = find_class(name)
    known = set(inspect.signature(cls).parameters)
    expect(params, dict, "parameters")
    expect(attributes, dict, "attributes")
    params, attributes = present_names(name, params, attributes, known)
    for param in params:
        if param not in known:
            raise malformed(
                f"sets the parameter {str(param)[:80]!r}, which {name} does not have"
            )
    for attribute in attributes:
        if not is_attribute(cls, attribute, known):
            raise malformed(
                f"sets {str(attribute)[:80]!r}, which is not a fitted attribute of "
                f"{name}"
            )
    model = cls(**params)
    for attribute, value in attributes.items():
        setattr(model, attribute, value)
    return model


def is_attribute(cls: type, name: Any, params: Iterable[str]) -> bool:
    """Whether ``fit`` may have left this name: no method, property or parameter."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and not name.startswith("__")
        and name not in params
        and name not in TRANSIENT
        and not hasattr(cls, name)
    )


def pack_estimator(model: Any, encoder: ValueEncoder) -> tuple[str, Any, Any]:
    """Class name, parameters and attributes of a registered estimator."""
    cls = type(model)
    params, attributes = split_state(model)
    for name in attributes:
        if not is_attribute(cls, name, params):
            encoder.path.append(name)
            raise encoder.refusal("it hides a method or property of the class")
    return cls.__name__, encoder.put(params), encoder.put(attributes)


register(
    "estimator",
    (),
    ("class", "params", "attributes"),
    pack_estimator,
    lambda d, name, params, attributes: build(name, d.get(params), d.get(attributes)),
)


def encode(value: Any, tensors: Tensors, where: str = "value") -> Any:
    """Encode a value as JSON-ready data; numeric arrays are added to ``tensors``.

    Parameters
    ----------
    value : object
        Anything that has a codec, nested to any depth.
    tensors : dict
        Receives the arrays, by name.
    where : str, default="value"
        What the value is, for the message when it is refused.

    Returns
    -------
    object
        What ``json.dumps`` accepts.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.persist import decode, encode
    >>> tensors = {}
    >>> data = encode({"rate": float("inf"), "w": np.ones(2)}, tensors)
    >>> data["rate"], data["w"]["tensor"]
    ({'~': 'float', 'value': 'inf'}, 'w')
    >>> decode(data, tensors)
    {'rate': inf, 'w': array([1., 1.])}
    """
    return ValueEncoder(tensors, where).put(value)


def decode(data: Any, tensors: Tensors) -> Any:
    """Inverse of :func:`encode`.

    Parameters
    ----------
    data : object
        What :func:`encode` returned, perhaps through JSON.
    tensors : dict
        The tensors it filled; it is left as it is.

    Returns
    -------
    object
        The value.

    Examples
    --------
    >>> from certus.persist import decode
    >>> decode({"~": "tuple", "items": [1, "a"]}, {})
    (1, 'a')
    """
    return ValueDecoder(dict(tensors)).get(data)
