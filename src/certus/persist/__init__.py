"""Saving models as data: a ``.certus`` file is a safetensors file with a manifest.

The manifest, JSON in the file's metadata, holds the schema version, the class by name,
parameters, fitted attributes, feature names, library versions, the split of the data
and the certificate. Nothing is unpickled and nothing is imported by a name from a
file; a file that is forged, cut short or damaged gives a :class:`ModelFileError` and
loads nothing. Files of schema 1 load in every later version.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from certus.persist import arrays, networks, values  # noqa: F401 - the table of codecs
from certus.persist.container import (
    ModelFileError,
    seal,
    unseal,
    write_atomically,
)
from certus.persist.encoding import (
    REGISTRY,
    TAG,
    ValueDecoder,
    ValueEncoder,
    decode,
    encode,
    expect,
    is_registered,
    malformed,
    pack_estimator,
)

__all__ = [
    "REGISTRY",
    "SCHEMA",
    "ModelFileError",
    "decode",
    "encode",
    "load",
    "read_manifest",
    "save",
]

#: Version of the manifest's layout written by this certus.
SCHEMA = 1

_FIELDS = {
    "sha256",
    "schema",
    "class",
    "params",
    "attributes",
    "feature_names",
    "certificate",
    "split",
    "versions",
}
#: Attributes with a field of their own, where a reader looks for them.
_OWN_FIELD = {"feature_names_in_": "feature_names", "certificate_": "certificate"}


def save(model: Any, path: str | os.PathLike[str], *, split: Any = None) -> Path:
    """Save a certus model to a file that holds data and no code.

    The file is written beside its final place and renamed, so an interrupted or
    failed save leaves the previous file whole. Callbacks are not saved.

    Parameters
    ----------
    model : estimator
        One of the classes in ``REGISTRY``, fitted or not. Its parameters and
        attributes must be data: a callable is refused by name.
    path : str or path
        Where to, usually ending in ``.certus``.
    split : object, optional
        How the data was divided, kept for later checks of the model.

    Returns
    -------
    Path
        Where the file is.

    Raises
    ------
    ModelFileError
        If a value cannot be saved as data, or the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from certus.linear_model import Ridge
    >>> from certus.persist import load, save
    >>> model = Ridge(alpha=2.0).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(model, pathlib.Path(folder) / "line.certus")
    ...     again = load(path)
    >>> again.predict([[3.0]]) == model.predict([[3.0]])
    array([ True])
    >>> again.certificate_.origin
    'file'
    """
    path = Path(path)
    cls = type(model)
    if not is_registered(cls):
        raise ModelFileError(
            f"cannot save {cls.__name__}: only certus models can be saved, and "
            f"{cls.__module__}.{cls.__qualname__} is not one. Use the class of "
            "certus, or save it with joblib."
        )
    encoder = ValueEncoder({}, cls.__name__)
    name, params, attributes = pack_estimator(model, encoder)
    own = {field: attributes.pop(a, None) for a, field in _OWN_FIELD.items()}
    manifest = {
        "schema": SCHEMA,
        "class": name,
        "params": params,
        **own,
        "split": encoder.inside("split", split),
        "versions": _versions(),
        "attributes": attributes,
    }
    try:
        write_atomically(path, seal(manifest, encoder.tensors))
    except ModelFileError as error:
        raise ModelFileError(f"{path.name} {error}") from error.__cause__
    return path


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model saved by :func:`save`.

    Parameters
    ----------
    path : str or path
        The model file.

    Returns
    -------
    estimator
        Of the class that was saved. Its certificate says ``origin="file"``: stated,
        not rechecked, until ``certus.certify`` is run.

    Raises
    ------
    ModelFileError
        If the file is not a model, is damaged, or was written by a newer certus.

    Examples
    --------
    >>> from certus.persist import load
    >>> load("missing.certus")
    Traceback (most recent call last):
    certus.persist.ModelFileError: missing.certus does not exist. ...
    """
    path = Path(path)
    try:
        manifest, tensors = unseal(path)
        _check_manifest(manifest)
        decoder = ValueDecoder(tensors)
        decoder.get(manifest["split"])
        attributes = dict(expect(manifest["attributes"], dict, "attributes"))
        for attribute, field in _OWN_FIELD.items():
            if attribute in attributes:
                raise malformed(f"sets {attribute!r} in the wrong place")
            if manifest[field] is not None:
                attributes[attribute] = manifest[field]
        state = {"class": manifest["class"], "params": manifest["params"]}
        model = decoder.get({TAG: "estimator", **state, "attributes": attributes})
        decoder.finish()
        return model
    except ModelFileError as error:
        raise ModelFileError(f"{path.name} {error}") from error.__cause__


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file says about itself, without building the model.

    Parameters
    ----------
    path : str or path
        The model file. It is checked in full, checksum included.

    Returns
    -------
    dict
        ``schema``, ``class``, ``versions`` and ``sha256`` as they stand;
        ``feature_names`` (a list or None), ``split`` and ``certificate`` decoded;
        ``params`` and ``attributes`` in the encoding of ``encode``.

    Examples
    --------
    >>> from certus.persist import read_manifest
    >>> read_manifest("missing.certus")
    Traceback (most recent call last):
    certus.persist.ModelFileError: missing.certus does not exist. ...
    """
    path = Path(path)
    try:
        manifest, tensors = unseal(path)
        _check_manifest(manifest)
        decoder = ValueDecoder(tensors)
        for field in ("feature_names", "split", "certificate"):
            manifest[field] = decoder.get(manifest[field])
        names = manifest["feature_names"]
        if names is not None:
            manifest["feature_names"] = expect(names, np.ndarray, "names").tolist()
        return manifest
    except ModelFileError as error:
        raise ModelFileError(f"{path.name} {error}") from error.__cause__


def _check_manifest(manifest: Any) -> None:
    """Refuse a manifest that this version does not understand."""
    expect(manifest, dict, "a manifest")
    schema = expect(manifest.get("schema"), int, "a schema version")
    if schema > SCHEMA:
        raise ModelFileError(
            f"was written by a newer certus (schema {schema}; this one reads up to "
            f"{SCHEMA}). Upgrade: pip install -U certus."
        )
    if schema < 1:
        raise malformed(f"has the impossible schema version {schema}")
    if set(manifest) != _FIELDS:
        odd = sorted(set(manifest) ^ _FIELDS)
        raise malformed(f"has a manifest with {odd[0][:80]!r} missing or unexpected")
    for name, version in expect(manifest["versions"], dict, "versions").items():
        expect(version, str, f"the version of {name[:80]}")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("certus", "numpy", "scipy", "scikit-learn", "safetensors"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found
