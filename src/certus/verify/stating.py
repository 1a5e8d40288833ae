"""What a model minimises, read from its public parameters and chosen attributes.

Our models and scikit-learn's are treated alike: classes are recognised by name, and a
checker of the verifier translates the parameters of each class into a statement. A
model's evidence has no influence on it. A model without a statement is refused with a
reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from inspect import getattr_static
from typing import Any, NamedTuple

from certus.certificate import Claim, Status
from certus.typing import Fit

#: Reads a model's parameters into a statement, a NamedTuple of the checker that judges
#: it.
Reader = Callable[[Any], Any]

#: Target of the primary claim, if the model has no such parameter.
TOL = 1e-6
#: Packages whose classes are recognised by name.
LIBRARIES = ("certus", "sklearn", "lightgbm", "xgboost")
#: Methods whose results the claims are about.
_ANSWERS = (
    *("predict", "predict_proba", "decision_function", "transform"),
    *("score_samples", "recommend"),
)

#: A checker's result: claims, the primary one first; status; fingerprint of the data.
Checked = tuple[list[Claim], Status, dict[str, Any]]


class Given(NamedTuple):
    """The data on which a checker judges a model, and the witness of the fit."""

    witness: Any
    X: Any
    y: Any
    sample_weight: Any
    level: str = "quick"
    sensitive: Any = None


class Refusal(Exception):
    """Why nothing can be claimed, and what would help."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def by_address(X: Any) -> bool:
    """Whether rows come as blocks."""
    return all(hasattr(X, name) for name in ("keys", "read", "map", "names"))


def require(sound: bool, what: str) -> None:
    """Raise unless the model, maybe from a file, is a possible result of a fit."""
    if not sound:
        raise ValueError(
            f"This model was changed after its fit: {what.rstrip('.')}. Fit it again, "
            "or restore its file."
        )


def is_number(value: Any, most: float = sys.float_info.max) -> bool:
    """Whether a parameter is a number between 0 and ``most``."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and 0 <= value <= most


def library_of(cls: type) -> str:
    """The package that a class comes from."""
    return cls.__module__.partition(".")[0]


def is_ours(model: Fit) -> bool:
    """Whether the model's class, or a base class of it, belongs to certus."""
    return any(library_of(cls) == "certus" for cls in type(model).__mro__)


def known_class(model: Fit, names: Mapping[str, Any] | None = None) -> type | None:
    """The model's first base class in a known library with one of these names.

    Without names, the first of any.
    """
    for cls in type(model).__mro__:
        named = names is None or cls.__name__ in names
        if named and library_of(cls) in LIBRARIES:
            return cls
    return None


def class_name(model: Fit) -> str:
    """The class name by which a model is recognised."""
    return (known_class(model) or type(model)).__name__


def tol_of(model: Fit) -> float:
    """The target: ``tol`` where it bounds a certificate, as in all of our models."""
    return float(model.tol) if is_ours(model) and hasattr(model, "tol") else TOL


def state(model: Fit, readers: Mapping[str, Reader]) -> Any:
    """The statement of a fitted model, or a :class:`Refusal`."""
    cls = known_class(model, readers)
    if cls is None:
        known = ", ".join(sorted(readers))
        raise Refusal(
            f"certify cannot check a {type(model).__name__} yet",
            f"certify can check {known}, of certus and of scikit-learn",
        )
    for name in _ANSWERS:
        # Not getattr: a method that exists under a condition is a new one each time.
        own, known = (getattr_static(each, name, None) for each in (type(model), cls))
        if own is not known or name in getattr(model, "__dict__", {}):
            raise Refusal(
                f"{type(model).__name__} overrides {name}, so what is known about "
                f"{cls.__name__} does not apply to its predictions",
                f"certify a {cls.__name__}",
            )
    try:
        return readers[cls.__name__](model)
    except (AttributeError, TypeError, ArithmeticError, LookupError) as error:
        raise Refusal(
            f"this {cls.__name__} has invalid parameters ({str(error).rstrip('.')})",
            "fit again with the parameters you want",
        ) from None
