"""``certus.certify``: the verifier's claims, plus measured numbers that prove nothing.

Nothing is proved here: the model is taken out of its pipeline and judged by the
verifier, and the result is compared with the fit's certificate, which can only withdraw
claims. Measured numbers are passed along. Our models diagnose themselves; for models of
scikit-learn, which cannot, the numbers are computed here. All of them are MEASURED: the
verifier accepts no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from certus import derived
from certus._core.rows import known_codes, row_weights
from certus.certificate import LEADING_LOSSES, Certificate, Claim, Evidence, Status
from certus.diagnostics import nonnegative, perceptron
from certus.diagnostics.neighbors import left_out
from certus.evidence import TreesWitness
from certus.fingerprints import changed_blocks, in_each_way, same_data
from certus.typing import ArrayLike, Fit, MatrixLike
from certus.unwrapping import innermost, unwrap
from certus.verify import judge

_PASSED = "for the data and weights you passed"


def certify(
    model: Any,
    X: Any = None,
    y: Any = None,
    sample_weight: ArrayLike | None = None,
    *,
    level: str = "quick",
    sensitive: Any = None,
) -> Certificate:
    """Check a fitted model on the data you pass, and return a new certificate.

    Parameters
    ----------
    model : fitted estimator
        One of ours, or one that scikit-learn fitted; pipelines are applied up to their
        last step, searches are judged by their best estimator.
    X, y : array-like
        The training data; or the rows that ``calibrate`` was given, for a certificate
        of their coverage. Tokenisers need none; with texts, these are encoded too.
    sample_weight : array-like, optional
        Row weights. Those used in ``fit``.
    level : {"quick", "full"}
        ``"quick"`` takes one pass over the data for most linear models, a few for
        others; ``"full"`` may cost as much as a fit.
    sensitive : array-like, optional
        The attribute, for models of :mod:`certus.fairness` that were fitted with it: no
        model keeps it.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import certus
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> certus.certify(Lasso(alpha=0.1, tol=1e-8).fit(X, y), X, y).met
    True
    """
    if level not in ("quick", "full"):
        raise ValueError(f"level must be 'quick' or 'full', got {level!r}.")
    calibration = getattr(model, "calibration_certificate_", None)
    X = list(X) if isinstance(X, Iterator) else X
    model, X = unwrap(model, X)
    if calibration is not None and _calibrated_on(calibration, X, y):
        return judge(model, calibration.evidence, X, y, level="full", origin="certify")
    model = innermost(model)
    plain = derived.plain_model(model, X)
    if plain is not None:
        found = certify(plain, X, y, sample_weight, level=level)
        found = _noted(found, *found[found.primary].assumptions, derived.NOTE)
        return replace(found, model=found.model.replace("sklearn ", "sklearnex ", 1))
    stated: Any = getattr(model, "certificate_", None)
    known = isinstance(stated, Certificate) and stated.evidence is not None
    rows = (X, y, sample_weight)
    found = judge(
        *(model, stated.evidence if known else _witness_of(model, y), *rows),
        level=level,
        origin="certify",
        sensitive=sensitive,
        measured=partial(_diagnose, model, *rows, level, sensitive),
    )
    if known:
        return _compare(stated, found)
    ours = _is_ours(model)
    return found if ours or found.met is not False else _noted(found, _PASSED)


def _witness_of(model: object, y: ArrayLike | None) -> Evidence:
    """What a model of scikit-learn leaves unsaid: the rows its boosting held out.

    They are drawn again from the seed of the fit. The verifier need not trust them:
    leaves have the values of their formula on the other rows, or they have not.
    """
    early = getattr(model, "do_early_stopping_", False)
    share = getattr(model, "validation_fraction", None)
    seed = getattr(model, "random_state", None)
    if not early or share is None or y is None or not isinstance(seed, Integral):
        return Evidence("none")
    drawn = check_random_state(int(seed)).randint(np.iinfo(np.uint32).max, dtype="u8")
    y = np.asarray(y).ravel()
    try:
        held = train_test_split(
            np.arange(len(y)),
            test_size=share,
            stratify=y if hasattr(model, "classes_") else None,
            random_state=drawn,
        )[1]
    except ValueError:  # not the labels of the fit
        return Evidence("none")
    return Evidence("trees", TreesWitness(np.sort(held)))


def _calibrated_on(stated: Certificate, X: MatrixLike, y: ArrayLike) -> bool:
    """Whether the calibration used these rows."""
    if y is None or "x" not in stated.fingerprint:  # CV+ is about the rows of the fit
        return False
    return same_data(stated.fingerprint, next(in_each_way(X, y)))


def _is_ours(model: Fit) -> bool:
    """Whether the model's class, or a base class of it, belongs to certus."""
    return any(kind.__module__.startswith("certus.") for kind in type(model).__mro__)


# -- beside the certificate of the fit ----------------------------------------------


def _compare(stated: Certificate, found: Certificate) -> Certificate:
    """REFUTED if the same data no longer shows what the certificate stated."""
    same = same_data(stated.fingerprint, found.fingerprint)
    claim = found[found.primary]
    was_met = stated.met or (claim.name in stated and stated[claim.name].met)
    vanished = stated.status is Status.NO_MINIMISER is not found.status
    lost = vanished or (was_met and found.met is False)
    if claim.name == "bits_per_byte" == stated.primary:
        alike = claim.strength is stated[claim.name].strength
        lost = lost or (alike and _moved(stated.value, claim.value))
    number = claim.name in LEADING_LOSSES
    if number and stated.primary == claim.name:  # of a model without a target
        lost = _moved(stated.value, found.value)
        if same and not lost and stated.status in (Status.MAX_ITER, Status.DIVERGED):
            return replace(found, status=stated.status)
    if not (lost if same else claim.met is False or number):
        return found
    if same:
        found = _noted(found, fix="refit, or restore the model file")
        return replace(found, status=Status.REFUTED)
    note = f"{_PASSED}, which are not those of the fit"
    blocks = changed_blocks(stated.fingerprint, found.fingerprint)
    if blocks:
        which = ", ".join(str(i) for i in blocks[:5]) + (" …" if blocks[5:] else "")
        note += f" (other rows in block {which}, counted from 0)"
    found = _noted(found, note)
    solved = found.status is Status.SOLVED
    return replace(found, status=Status.TOL_NOT_REACHED) if solved else found


def _noted(found: Certificate, *notes: str, **changes: Any) -> Certificate:
    """The certificate with a note added to its primary claim."""
    claim = found[found.primary]
    if notes:
        changes["assumptions"] = notes
    changed = replace(claim, **changes)
    claims = tuple(changed if each is claim else each for each in found.claims)
    return replace(found, claims=claims)


def _moved(was: float | None, now: float | None) -> bool:
    """Whether the loss differs from that of the same weights on the same rows."""
    if was is None or now is None:
        return was is not now
    return not np.isclose(now, was, rtol=1e-6, atol=1e-12, equal_nan=True)


# -- what is only measured ----------------------------------------------------------


def _diagnose(
    model: Fit,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    level: str,
    sensitive: MatrixLike,
) -> Sequence[Claim]:
    """Measured numbers: from our model itself, or computed here for scikit-learn's."""
    if _is_ours(model):
        if not hasattr(model, "diagnose"):
            return []
        lent = {} if sensitive is None else {"sensitive": sensitive}
        found: Sequence[Claim] = model.diagnose(
            X, y, sample_weight, level=level, **lent
        )
        return found
    for kind in type(model).__mro__:
        if kind.__module__.startswith("sklearn.") and kind.__name__ in _FOREIGN:
            return _FOREIGN[kind.__name__](model, X, y, sample_weight, level)
    return []


def _perceptron(
    model: Fit, X: Any, y: Any, sample_weight: ArrayLike | None, level: str
) -> list[Claim]:
    """The gradient that scikit-learn trained with, beside that of the stated loss."""
    X = check_array(X, accept_sparse="csr")
    n, width = X.shape[0], model.coefs_[0].shape[0]
    if X.shape[1] != width:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {width}."
        )
    logistic = model.out_activation_ == "logistic"
    if not hasattr(model, "classes_") or (logistic and model.n_outputs_ > 1):
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    else:
        Y = np.eye(len(model.classes_))[known_codes(y, np.asarray(model.classes_))]
        Y = Y[:, 1:] if logistic else Y
    if len(Y) != n:
        raise ValueError(f"y has {len(Y)} rows and X has {n}.")
    return perceptron.measure(model, X, Y, row_weights(sample_weight, n))


def _neighbors(
    model: Fit, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, level: str
) -> list[Claim]:
    """The error on training rows, each predicted from the other rows."""
    return [] if level == "quick" else left_out(model, X, model._fit_X, model._y)


def _nonnegative(
    model: Fit, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, level: str
) -> list[Claim]:
    """How far a gradient step would move H, and how far WH is from the rows."""
    return nonnegative.measure(model, check_array(X, accept_sparse="csr"))


#: Numbers about models of scikit-learn, by the name of their class.
_FOREIGN: dict[str, Callable[..., list[Claim]]] = {
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
    "KNeighborsClassifier": _neighbors,
    "KNeighborsRegressor": _neighbors,
    "NMF": _nonnegative,
}
