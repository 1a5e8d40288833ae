"""Global settings, and what is installed.

Choices that a user makes once: whether fits are certified, what happens when a
certificate misses its target, and what Ctrl-C does to a fit.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from typing import Any

_DEFAULTS: dict[str, Any] = {
    "on_uncertified": "warn",
    "on_interrupt": "raise",
    "certify": "always",
    "engine": None,
    "checkpoint": None,
}
_CHOICES = {
    "on_uncertified": ("warn", "raise", "ignore"),
    "on_interrupt": ("raise", "return"),
    "certify": ("always", "never"),
}
_state = threading.local()


def get_config() -> dict[str, Any]:
    """The current settings.

    Examples
    --------
    >>> import certus
    >>> certus.get_config()["certify"]
    'always'
    """
    return dict(getattr(_state, "config", _DEFAULTS))


def set_config(
    *,
    on_uncertified: str | None = None,
    on_interrupt: str | None = None,
    certify: str | None = None,
    engine: Any = None,
    checkpoint: Any = None,
) -> None:
    """Change settings for this thread.

    Parameters
    ----------
    on_uncertified : {"warn", "raise", "ignore"}, optional
        When the primary claim of a fit misses its target.
    on_interrupt : {"raise", "return"}, optional
        After Ctrl-C the estimator is completed with what it has; then the
        ``KeyboardInterrupt`` is raised again, or ``fit`` returns.
    certify : {"always", "never"}, optional
        Whether ``fit`` calls the verifier. ``"never"`` is for fits that are thrown
        away, such as folds and warm-ups: they leave no ``certificate_`` and do not
        warn. :func:`certus.certify` judges such a model later.
    engine : object, optional
        Where blocks of rows are read and worked on: a ``distributed.Client``, an engine
        of ``certus.scale``, or any object with ``run(blocks, work, state)``;
        ``"local"`` for the threads of this process, which is the default.
    checkpoint : str or path, optional
        A file that keeps the sums of every finished pass over blocks of rows. A fit
        that was killed reads them there and ends with the same bits. False for none,
        which is the default.

    Examples
    --------
    >>> import certus
    >>> with certus.config_context(on_uncertified="raise"):
    ...     certus.get_config()["on_uncertified"]
    'raise'
    """
    config = get_config()
    given = {
        "on_uncertified": on_uncertified,
        "on_interrupt": on_interrupt,
        "certify": certify,
    }
    for name, value in given.items():
        if value is None:
            continue
        if value not in _CHOICES[name]:
            raise ValueError(f"{name} must be one of {_CHOICES[name]}, got {value!r}.")
        config[name] = value
    if engine is not None:
        config["engine"] = _engine(engine)
    if checkpoint is not None:
        config["checkpoint"] = _checkpoint(checkpoint)
    _state.config = config


def _engine(given: Any) -> Any:
    """The engine that was meant; None for this process."""
    if isinstance(given, str) and given == "local":
        return None
    if hasattr(given, "scheduler_info"):  # a Dask client, whose run() is another one
        given = import_module("certus.engines").engine_of(given)
    run = getattr(given, "run", None)
    names = list(signature(run).parameters)[:3] if callable(run) else []
    if names != ["blocks", "work", "state"]:
        raise ValueError(
            "engine must be 'local', a distributed.Client, an engine of certus.scale, "
            "or an object with run(blocks, work, state); got "
            f"{given if isinstance(given, str) else type(given).__name__}."
        )
    return given


def _checkpoint(given: Any) -> Any:
    """The checkpoint in a file; None for none."""
    if given is False or hasattr(given, "keep"):
        return None if given is False else given
    if not isinstance(given, str | os.PathLike):
        raise ValueError(
            f"checkpoint must be the path of a file, got {type(given).__name__}."
        )
    return import_module("certus.blocks.checkpoint").Checkpoint(given)


@contextlib.contextmanager
def config_context(**settings: Any) -> Iterator[None]:
    """Settings that hold inside a ``with`` block.

    Parameters
    ----------
    **settings
        As in :func:`set_config`.

    Examples
    --------
    >>> import certus
    >>> from certus.linear_model import Lasso
    >>> with certus.config_context(certify="never"):
    ...     model = Lasso().fit([[0.0], [1.0], [5.0]], [0.0, 1.0, 5.0])
    >>> hasattr(model, "certificate_")
    False
    """
    before = get_config()
    set_config(**settings)
    try:
        yield
    finally:
        _state.config = before


def show_versions() -> dict[str, str]:
    """Versions of certus, Python and their dependencies, for bug reports.

    Examples
    --------
    >>> import certus
    >>> sorted(certus.show_versions())[:3]
    ['certus', 'numba', 'numpy']
    """
    import platform
    from importlib.metadata import PackageNotFoundError, version

    names = (
        "numpy",
        "scipy",
        "scikit-learn",
        "numba",
        "polars",
        "safetensors",
        "torch",
    )
    found = {"certus": version("certus"), "python": platform.python_version()}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    found["platform"] = platform.platform()
    return found
