"""How the solvers read weights, labels, targets and coefficients.

The verifier has readers of its own. There are two on purpose: if one of them is wrong,
the other is not, and the certificate fails. A test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from certus.typing import Array

#: Targets whose squares a float64 can hold are not all below this.
SMALLEST = 1e-153
#: Kinds of labels that can be found by binary search alone.
_ORDERED = ("biu", "f", "US")


def as_array(X: Any) -> Any:
    """A torch tensor, on any device, as an array; everything else as it is."""
    if not hasattr(X, "detach"):
        return X
    held = X.detach().to_dense().cpu()
    if "bfloat16" in str(held.dtype):  # NumPy has no such numbers
        held = held.float()
    return held.numpy()


def dense_coef(coef: Any) -> Array:
    """Coefficients as an array, also after scikit-learn's ``sparsify``."""
    coef = np.asarray(coef.toarray() if sparse.issparse(coef) else coef)
    if coef.dtype.kind not in "biuf":
        raise ValueError(
            f"The coefficients must be real numbers, got {coef.dtype}. Fit again."
        )
    return coef


# -- weights ----------------------------------------------------------------------


def row_weights(sample_weight: Any, n: int) -> Array:
    """One weight per row in float64: None means 1, a number stands for all rows."""
    if sample_weight is None:
        return np.ones(n)
    try:
        s = np.array(as_array(sample_weight), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must hold numbers.") from None
    if s.ndim == 0:
        s = np.repeat(s, n)
    if s.shape != (n,):
        raise ValueError(f"sample_weight has shape {s.shape}; expected ({n},).")
    if not (np.isfinite(s).all() and (s >= 0).all() and s.any()):
        raise ValueError("sample_weight must be finite, not negative and not all zero.")
    return s


def labelled_weights(
    sample_weight: Any,
    class_weight: Any,
    codes: Array,
    classes: Array,
    counts: str = "weights",
) -> Array:
    """Row weights times the weight of each row's class.

    "balanced" counts the row ``"weights"`` or, as some classes of scikit-learn, the
    ``"rows"``.
    """
    s = row_weights(sample_weight, len(codes))
    if class_weight is None:
        return s
    counted = s if counts == "weights" else None
    s = s * class_weights(class_weight, codes, classes, counted)[codes]
    if not s.any():
        raise ValueError("class_weight leaves no row with a positive weight.")
    return s


def class_weights(
    class_weight: Any, codes: Array, classes: Array, counted: Array | None = None
) -> Array:
    """One weight per class, from a dict or so that all classes weigh the same.

    Parameters
    ----------
    class_weight : dict or "balanced"
        From label to weight; labels left out have the weight 1.
    codes : ndarray of shape (n_samples,)
        The place of each row's label among ``classes``.
    classes : ndarray of shape (n_classes,)
        The labels.
    counted : ndarray of shape (n_samples,), optional
        What "balanced" counts for a class: row weights; by default, its rows.
    """
    if isinstance(class_weight, Mapping):
        return _weights_by_name(class_weight, classes)
    if not (isinstance(class_weight, str) and class_weight == "balanced"):
        raise ValueError(
            "class_weight must be 'balanced', a dict from label to weight, or None; "
            f"got {class_weight!r}."
        )
    mass = np.bincount(codes, weights=counted, minlength=len(classes)).astype(float)
    found = np.zeros(len(classes))
    present = mass > 0
    found[present] = mass.sum() / np.count_nonzero(present) / mass[present]
    return found


def _weights_by_name(given: Mapping[Any, Any], classes: Array) -> Array:
    """The weights of a dict whose keys are labels, or labels written as text."""
    labels = classes.tolist()
    found, missing, used = np.ones(len(labels)), False, set()
    for place, label in enumerate(labels):
        key = label if label in given else str(label)
        if key not in given:
            missing = True
            continue
        used |= {label, str(label)}
        try:
            found[place] = float(given[key])
        except (TypeError, ValueError):
            raise ValueError(
                f"class_weight[{key!r}] must be a number, got {given[key]!r}."
            ) from None
    strange = [key for key in given if key not in used]
    if missing and strange:
        known = ", ".join(str(label) for label in labels[:8])
        raise ValueError(
            f"class_weight names {strange[0]!r}, which is not a class of y. The "
            f"classes are {known}{', …' if len(labels) > 8 else ''}."
        )
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError("class_weight must be finite and not negative.")
    return found


# -- targets ----------------------------------------------------------------------


def known_codes(y: Any, classes: Array) -> Array:
    """The place of each label among the sorted ``classes`` of a fitted model."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.ravel()
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; pass one label per row.")
    alike = any(y.dtype.kind in k and classes.dtype.kind in k for k in _ORDERED)
    if alike and len(classes):
        places = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        known = classes[places] == y
    else:
        places = _places_by_name(y, classes)
        known = places >= 0
    if not known.all():
        strange = y[np.argmin(known)]
        some = ", ".join(str(label) for label in classes[:5].tolist())
        more = " …" if len(classes) > 5 else ""
        raise ValueError(
            f'y holds the label "{strange}", which the model was not fitted on (it '
            f"knows {some}{more}). Leave such rows out, or refit."
        )
    return places.astype(np.int64)


def _places_by_name(y: Array, classes: Array) -> Array:
    """Places of labels of other kinds than the classes, −1 where there is none."""
    places = {label: place for place, label in enumerate(classes.tolist())}
    try:
        return np.array([places.get(label, -1) for label in y.tolist()], dtype=int)
    except TypeError:  # a label that is a list, say
        return np.full(len(y), -1)


def numeric_targets(y: Any, n: int) -> Array:
    """Targets as float64 of shape (n,) or (n, k)."""
    y = np.asarray(y)
    if y.ndim not in (1, 2):
        raise ValueError(f"y has shape {y.shape}; pass one target per row.")
    try:
        y = y.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError("y must hold numbers; this model is a regressor.") from None
    if len(y) != n:
        raise ValueError(f"y has {len(y)} rows and X has {n}.")
    if not np.isfinite(y).all():
        raise ValueError("y holds NaN or infinite values. Fill or drop those rows.")
    largest = np.abs(y).max(initial=0.0)
    if 0 < largest < SMALLEST:
        raise ValueError(f"y is below {SMALLEST:g} everywhere, too small to square.")
    return y
