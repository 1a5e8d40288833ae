"""A linear classifier on vectors: how useful they are if there are few labels.

    probe = logistic regression on f(x), compared with the same on x and on a random f

The vectors are centred and divided by one number, their root mean square, so that all
three are regularised alike. All are fitted to the same labels and judged on the same
test rows, so that differences are paired.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from certus.base import as_array, check_number, generator_of, label_codes
from certus.certificate import Certificate, Status
from certus.linear_model.logistic import LogisticRegression
from certus.neural_network.randomness import own_generator
from certus.representation.base import RepresentationModel
from certus.results import TableResult
from certus.typing import Array, Column, Fit, MatrixLike, RandomState
from certus.verify import probe_claims

__all__ = ["Probe", "probe"]

#: What the vectors are called, in the order in which they are compared.
VECTORS, INPUT, RANDOM = "vectors", "input itself", "random network's vectors"


@dataclass(frozen=True)
class Probe(TableResult):
    """How well a linear classifier works on vectors; made by :func:`probe`.

    Attributes
    ----------
    accuracy : dict of str to float
        Share of test rows that are labelled correctly, by kind of vectors.
    n_labels, n_test : int
        Rows with a label, and test rows.
    certificate : Certificate
        ``duality_gap`` (PROVED) of the classifier that is solved least well,
        ``probe_accuracy`` and the gains over the other kinds (STATISTICAL); for an
        encoder, also the claims of its own certificate.
    classifiers : dict of str to LogisticRegression
        The fitted classifiers, each with its certificate.
    """

    accuracy: Mapping[str, float]
    n_labels: int
    n_test: int
    certificate: Certificate = field(repr=False)
    classifiers: Mapping[str, Any] = field(repr=False)

    def _columns(self) -> Mapping[str, Any]:
        widths = [int(model.n_features_in_) for model in self.classifiers.values()]
        return {
            "vectors": list(self.accuracy),
            "accuracy": list(self.accuracy.values()),
            "columns": widths,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.n_labels:,} labels, {self.n_test:,} test rows",
            *(f"{100 * a:5.1f} %  {kind}" for kind, a in self.accuracy.items()),
        ]
        return "\n".join([*lines, str(self.certificate)])


def probe(
    model: Fit,
    X: MatrixLike,
    y: Column,
    X_test: MatrixLike,
    y_test: Column,
    *,
    C: float = 1.0,
    delta: float = 0.05,
    random_state: RandomState = None,
) -> Probe:
    """Compare logistic regression on the vectors of a model with that on the input.

    Parameters
    ----------
    model : fitted encoder, transformer or callable
        Gives the vectors: ``transform(X)``, or ``model(X)``.
    X, y : array-like
        Rows with labels; a few are enough to see a difference.
    X_test, y_test : array-like
        Rows on which classifiers are judged. Neither the model nor a classifier may
        have seen them.
    C : float, default=1.0
        Inverse strength of the penalty. It is the same for all kinds of vectors.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. They decide the weights of the random
        network.

    Returns
    -------
    Probe
        Accuracies of the vectors, of the input itself (where X is an array of numbers)
        and of the vectors of the same network with random weights (for encoders of this
        package), with a certificate of the differences.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.representation import ContrastiveEncoder, probe
    >>> digits = load_digits()
    >>> X, y = digits.images, digits.target
    >>> model = ContrastiveEncoder(max_iter=30, random_state=0).fit(X[:900])
    >>> found = probe(model, X[:50], y[:50], X[900:], y[900:], random_state=0)
    >>> list(found.accuracy)
    ['vectors', 'input itself', "random network's vectors"]
    >>> found.certificate["duality_gap"].met
    True
    """
    start = time.perf_counter()
    check_number("C", C, open_low=True)
    check_number("delta", delta, 0, 1, open_low=True)
    X, X_test = as_array(X), as_array(X_test)
    codes, wanted = _labels(X, y, X_test, y_test)
    kinds = _vectors_of(model, X, X_test, generator_of(random_state))
    classifiers, right, gaps = {}, {}, {}
    for kind, parts in kinds.items():
        train, test = _scaled(*parts)
        found = LogisticRegression(C=float(C), tol=1e-6).fit(train, codes)
        classifiers[kind] = found
        right[kind] = np.asarray(found.predict(test)) == wanted
        gaps[kind] = found.certificate_["duality_gap"]
    own = getattr(model, "certificate_", None)
    said = own.claims if isinstance(own, Certificate) else ()
    claims = [*probe_claims(gaps, right, delta), *said]
    status = Status.SOLVED if claims[0].met else Status.TOL_NOT_REACHED
    shape = [len(wanted), int(classifiers[VECTORS].n_features_in_)]
    certificate = Certificate.of(
        model if hasattr(model, "get_params") else classifiers[VECTORS],
        (claims, status, {"shape": shape}),
        origin="certify",
        seconds=time.perf_counter() - start,
    )
    accuracy = {kind: float(each.mean()) for kind, each in right.items()}
    return Probe(accuracy, len(codes), len(wanted), certificate, classifiers)


def _labels(X: Any, y: Any, X_test: Any, y_test: Any) -> tuple[Array, Array]:
    """The labels of both parts as numbers; −1 for a class without a training label."""
    parts = []
    for name, rows, labels in (("y", X, y), ("y_test", X_test, y_test)):
        line, n = np.asarray(labels), len(rows)
        if line.shape != (n,) or not n:
            raise ValueError(
                f"{name} must hold one label for each of {n} rows, got shape "
                f"{line.shape}."
            )
        parts.append(line)
    classes, codes = label_codes(parts[0])
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least 2 classes, got 1: every label is "
            f"{classes.tolist()[0]!r}. Pass rows of another class as well."
        )
    places = {label: i for i, label in enumerate(classes.tolist())}
    wanted = np.array([places.get(label, -1) for label in parts[1].tolist()])
    return np.asarray(codes), wanted


def _vectors_of(
    model: Fit, X: MatrixLike, X_test: MatrixLike, rng: np.random.Generator
) -> dict[str, tuple[Array, Array]]:
    """Vectors of labelled and of test rows, by kind."""
    rows = (X, X_test)
    if hasattr(model, "transform"):
        check_is_fitted(model)
        found = {VECTORS: _both(model.transform, rows)}
    elif callable(model):
        found = {VECTORS: _both(model, rows)}
    else:
        raise TypeError(
            f"model must be a fitted transformer or a function, got {model!r}."
        )
    if all(isinstance(Z, np.ndarray) and Z.dtype.kind in "fiub" for Z in rows):
        found[INPUT] = _both(np.asarray, rows)
    if isinstance(model, RepresentationModel):
        found[RANDOM] = _both(untrained(model, rng).transform, rows)
    return found


def _both(apply: Callable[..., Any], rows: tuple[Any, Any]) -> tuple[Array, Array]:
    first, second = (_matrix(apply(Z), len(Z)) for Z in rows)
    return first, second


def untrained(model: RepresentationModel, rng: np.random.Generator) -> Any:
    """A copy of an encoder whose networks have new random weights."""
    plain = copy.copy(model)
    with own_generator():
        torch.default_generator.manual_seed(int(rng.integers(2**62)))
        parts = plain._parts(plain.inputs_)
    for name, value in plain._state(parts).items():
        setattr(plain, name, value)
    return plain


def _matrix(Z: Array, n: int) -> Array:
    found = np.asarray(Z, dtype=np.float64)
    found = found.reshape(len(found), -1)
    if len(found) != n or not np.isfinite(found).all():
        raise ValueError(
            f"The model must give {n} rows of finite numbers for {n} rows, got shape "
            f"{found.shape}."
        )
    return found


def _scaled(train: Array, test: Array) -> tuple[Array, Array]:
    """Centred, and divided by one number: the root mean square of all columns."""
    mean = train.mean(axis=0)
    size = float(np.sqrt(np.square(train - mean).mean()))
    size = size if size > 0 else 1.0
    return (train - mean) / size, (test - mean) / size
