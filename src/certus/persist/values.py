"""Codecs of Python's own values, of terms, claims, evidence and certificates.

A certificate that comes out of a file says so: its origin is ``"file"``, whatever the
file states. Types of its fields are checked, since nothing else would before printing.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path, PosixPath, WindowsPath
from typing import Any

import numpy as np

from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.evidence import WITNESSES, witness_of
from certus.objectives.terms import TERMS
from certus.persist.encoding import (
    ValueDecoder,
    ValueEncoder,
    expect,
    malformed,
    register,
)
from certus.threat import ThreatModel
from certus.trees import TreeEnsemble

# --------------------------------------------------------------- plain Python values

_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _float(_: ValueDecoder, value: Any) -> float:
    return _SPECIAL[value]


register("float", (float,), ("value",), lambda v, e: [str(v)], _float)


def _unpack_items(kind: Callable[[Any], Any]) -> Callable[[ValueDecoder, Any], Any]:
    return lambda d, items: kind(d.get(expect(items, list, "items")))


for _kind in (tuple, set, frozenset):
    register(
        _kind.__name__,
        (_kind,),
        ("items",),
        lambda v, e: [e.put_all(v)],
        _unpack_items(_kind),
    )


def _pack_dict(value: dict[Any, Any], e: ValueEncoder) -> list[Any]:
    return [[[e.inside("key", k), e.inside(k, v)] for k, v in value.items()]]


def _unpack_dict(d: ValueDecoder, items: Any) -> dict[Any, Any]:
    pairs = [(d.get(k), d.get(v)) for k, v in expect(items, list, "a dict's items")]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise malformed("holds a dict with a repeated key")
    return found


register("dict", (dict,), ("items",), _pack_dict, _unpack_dict)
register(
    "path",
    (PosixPath, WindowsPath),
    ("value",),
    lambda v, e: [str(v)],
    lambda d, v: Path(expect(v, str, "a path")),
)
#: Bytes that are written as digits; more would make the header too long.
SHORT = 1 << 12


def _pack_bytes(value: bytes, e: ValueEncoder) -> list[Any]:
    if len(value) <= SHORT:
        return [value.hex()]
    return [e.put(np.frombuffer(value, np.uint8))]


def _unpack_bytes(d: ValueDecoder, value: Any) -> bytes:
    if isinstance(value, str):
        return bytes.fromhex(value)
    return bytes(expect(d.get(value), np.ndarray, "bytes").tobytes())


register("bytes", (bytes,), ("hex",), _pack_bytes, _unpack_bytes)
register(
    "complex",
    (complex,),
    ("real", "imag"),
    lambda v, e: [e.put(v.real), e.put(v.imag)],
    lambda d, re_, im: complex(
        expect(d.get(re_), float, "a number"), expect(d.get(im), float, "a number")
    ),
)

# ---------------------------------------------------------------------- dates, times


def _pack_time(value: dt.datetime | dt.time, e: ValueEncoder) -> list[Any]:
    if value.tzinfo is not None and type(value.tzinfo) is not dt.timezone:
        raise e.refusal("its time zone is a custom one. Convert it to UTC")
    return [value.replace(tzinfo=None).isoformat(), e.put(value.utcoffset())]


def _unpack_time(kind: Any) -> Callable[[ValueDecoder, Any, Any], Any]:
    def unpack(d: ValueDecoder, value: Any, offset: Any) -> Any:
        moved = d.get(offset)
        zone = None if moved is None else dt.timezone(moved)
        return kind.fromisoformat(value).replace(tzinfo=zone)

    return unpack


for _clock in (dt.datetime, dt.time):
    register(
        _clock.__name__,
        (_clock,),
        ("value", "offset"),
        _pack_time,
        _unpack_time(_clock),
    )
register(
    "date",
    (dt.date,),
    ("value",),
    lambda v, e: [v.isoformat()],
    lambda d, v: dt.date.fromisoformat(v),
)
register(
    "timedelta",
    (dt.timedelta,),
    ("days", "seconds", "microseconds"),
    lambda v, e: [v.days, v.seconds, v.microseconds],
    lambda d, *parts: dt.timedelta(*(expect(p, int, "a duration") for p in parts)),
)

# --------------------------------------------------------------------------- threats


def _unpack_threat(
    d: ValueDecoder, norm: Any, radius: Any, low: Any, high: Any, fixed: Any
) -> Any:
    sizes = [expect(d.get(v), (int, float), "a threat") for v in (norm, radius)]
    box = (int, float, list, tuple, np.ndarray, np.number)
    ends = [expect(d.get(v), box, "a box") for v in (low, high)]
    held = expect(d.get(fixed), (list, tuple, np.ndarray, type(None)), "fixed entries")
    return ThreatModel(sizes[0], sizes[1], ends[0], ends[1], held)


_FIELDS = ("norm", "radius", "low", "high", "fixed")
register(
    "threat",
    (ThreatModel,),
    _FIELDS,
    lambda v, e: [e.inside(name, getattr(v, name)) for name in _FIELDS],
    _unpack_threat,
)

# ----------------------------------------------------------------------------- trees

_TREE_FIELDS = tuple(each.name for each in fields(TreeEnsemble))


def _unpack_trees(d: ValueDecoder, *values: Any) -> TreeEnsemble:
    """The arrays; the class refuses those that are not trees."""
    told = dict(zip(_TREE_FIELDS, map(d.get, values)))
    kinds = {"n_features": int, "per_stage": int, "single": bool, "link": str}
    for name, value in told.items():
        kind: Any = kinds.get(name, np.ndarray)
        expect(value, (int, float) if name == "divisor" else kind, f"trees' {name}")
    return TreeEnsemble(**told)


register(
    "trees",
    (TreeEnsemble,),
    _TREE_FIELDS,
    lambda v, e: [e.inside(name, value) for name, value in v.as_dict().items()],
    _unpack_trees,
)

# --------------------------------------------------------- terms, claims, certificate

_ENUMS = {kind.__name__: kind for kind in (Status, Strength)}
_TERMS = tuple(TERMS.values())
_FORMER_TERMS = {"ElasticNet": "L1L2"}  # names in older files
_NUMBER = (int, float, type(None))
_CLAIM_TYPES = {
    **dict.fromkeys(("name", "objective", "theorem", "detail", "fix"), str),
    **dict.fromkeys(("value", "target", "delta"), _NUMBER),
    "allowance": (int, float),
    "met": (bool, type(None)),
}
_CERTIFICATE_TYPES = {
    **dict.fromkeys(("model", "primary", "level", "origin"), str),
    **dict.fromkeys(("params", "fingerprint", "versions"), dict),
    **dict.fromkeys(("n_samples", "n_features", "threads"), int),
    "seconds": (int, float),
    "fit_seconds": _NUMBER,
}


def _unpack_term(d: ValueDecoder, name: Any, values: Any) -> Any:
    known = TERMS[_FORMER_TERMS.get(name, name)]
    term = known(*d.get(expect(values, list, "a term's numbers")))
    for field, value in zip(term._fields, term):
        nested = field in ("left", "right", "kernel")  # a kernel built of kernels
        kinds = _TERMS if nested else (int, float, np.number)
        expect(value, kinds, f"a {'kernel' if nested else 'number'} of {name}")
    return term


def _pack_evidence(value: Evidence, e: ValueEncoder) -> list[Any]:
    """The fields of the witness; the place of older files' terms stays empty."""
    if value.witness is not None and type(value.witness) is not WITNESSES.get(
        value.kind
    ):
        raise e.refusal(f"its witness is not of the kind {value.kind!r}")
    told = {} if value.witness is None else value.witness._asdict()
    told = {name: found for name, found in told.items() if found is not None}
    arrays = {k: v for k, v in told.items() if isinstance(v, np.ndarray)}
    params = {k: v for k, v in told.items() if k not in arrays}
    return [value.kind, [], e.inside("params", params), e.inside("arrays", arrays)]


def _unpack_evidence(
    d: ValueDecoder, kind: Any, terms: Any, params: Any, arrays: Any
) -> Evidence:
    """Parameters of the model state the problem; terms of older files are ignored."""
    for term in expect(terms, list, "terms"):
        expect(d.get(term), _TERMS, "a term")
    told = dict(expect(d.get(params), dict, "evidence"))
    for name, array in expect(d.get(arrays), dict, "evidence").items():
        told[expect(name, str, "the name of evidence")] = expect(
            array, np.ndarray, "evidence"
        )
    try:
        witness = witness_of(expect(kind, str, "a kind of evidence"), told)
    except TypeError as error:
        raise malformed(f"holds {error}") from None
    if witness is None and kind in WITNESSES:
        raise malformed(f"holds no witness of the kind {kind[:40]!r}")
    return Evidence(kind, witness)


def _pack_certificate(value: Certificate, e: ValueEncoder) -> list[Any]:
    bare = replace(value, evidence=None)
    return [bare.to_dict(), e.inside("evidence", value.evidence)]


def _unpack_certificate(d: ValueDecoder, data: Any, evidence: Any) -> Certificate:
    found = replace(
        Certificate.from_dict({**data, "evidence": None}),
        origin="file",
        evidence=expect(d.get(evidence), (Evidence, type(None)), "evidence"),
    )
    _check_fields(found, _CERTIFICATE_TYPES)
    for claim in found.claims:
        _check_claim(claim)
    if found.primary not in found:
        raise malformed("holds a certificate without its primary claim")
    return found


def _check_claim(claim: Claim) -> Claim:
    _check_fields(claim, _CLAIM_TYPES)
    for assumption in claim.assumptions:
        expect(assumption, str, "an assumption")
    return claim


def _check_fields(record: Any, types: dict[str, Any]) -> None:
    for name, kind in types.items():
        expect(getattr(record, name), kind, f"a certificate's {name}")


register(
    "term",
    _TERMS,
    ("class", "values"),
    lambda v, e: [type(v).__name__, e.put_all(v)],
    _unpack_term,
)
register(
    "enum",
    tuple(_ENUMS.values()),
    ("class", "value"),
    lambda v, e: [type(v).__name__, v.value],
    lambda d, name, value: _ENUMS[name](value),
)
register(
    "claim",
    (Claim,),
    ("value",),
    lambda v, e: [v.to_dict()],
    lambda d, data: _check_claim(Claim.from_dict(data)),
)
register(
    "evidence",
    (Evidence,),
    ("kind", "terms", "params", "arrays"),
    _pack_evidence,
    _unpack_evidence,
)
register(
    "certificate",
    (Certificate,),
    ("value", "evidence"),
    _pack_certificate,
    _unpack_certificate,
)
