"""The linear autoencoder: compress each row to a few numbers and reconstruct it.

    min over C (k × d), D (d × k) of  (1/2n) Σ‖(x − m) − DC(x − m)‖²
                                    = ½ tr (I − DC) S (I − DC)ᵀ

Nothing forces C and D to be orthogonal, or to be related; yet every minimum has
DC = UUᵀ with the k leading eigenvectors U of the covariance S, and the least loss is
half the sum of the eigenvalues left out. (C, D) and (AC, DA⁻¹) are equally good.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence, Status
from certus.decomposition.moments import DenseTransformer, RowMoments, moments
from certus.diagnostics import Diagnosed
from certus.diagnostics.linear_networks import gradient_claims
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Up to this many rows or columns the least loss is computed, to stop near it.
EIGEN = 2_000
#: Directions with less than this share of the largest are ignored.
ABSENT = 1e-14
#: Training goes on to this share of ``tol``: the verifier adds its rounding.
ROOM = 0.01


class LinearAutoencoder(Diagnosed, DenseTransformer):
    """An encoder and a decoder, both linear, trained to reproduce the rows.

    Objective
    ---------
    min over C, D of (1/2n) Σᵢ ‖(xᵢ − m) − DC(xᵢ − m)‖².

    Certificate
    -----------
    ``loss_excess`` (PROVED): loss above the least that any encoder and decoder reach,
    half the sum of the eigenvalues left out, as a share of the loss without factors.
    ``tol`` bounds it. REFUSED beyond 2,000 rows and columns. ``gradient_norm``
    (MEASURED). One pass, and the eigenvalues of the covariance.

    Parameters
    ----------
    n_components : int, default=2
        Number of components. These numbers pass from encoder to decoder.
    solver : {"alternating", "lbfgs"}, default="alternating"
        Algorithm that computes the fit. The best encoder for the decoder and best
        decoder for the encoder in turn, or both together along the gradient.
    tol : float, default=1e-10
        Target of the certificate's primary claim. It bounds the excess of the loss;
        beyond 2,000 rows and columns, its relative fall in a step.
    max_iter : int, default=10000
        Maximum number of iterations.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the first decoder.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    encoder_ : ndarray of shape (n_components, n_features)
        C.
    decoder_ : ndarray of shape (n_features, n_components)
        D.
    mean_ : ndarray of shape (n_features,)
        m.
    loss_ : float
        The objective at the end.
    n_iter_ : int
        Steps taken.
    history_ : dict
        The loss, what ``tol`` bounds (under ``gap``) and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    One pass of n·d² operations to form S, then d²k a step. Steps are many where the
    eigenvalues on both sides of the cut are nearly equal.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.decomposition import LinearAutoencoder
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = LinearAutoencoder(n_components=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.certificate_.met
    ((150, 2), True)
    >>> error = model.inverse_transform(model.transform(X)) - X
    >>> bool(abs(0.5 * (error**2).sum() / 150 - model.loss_) < 1e-12)
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: str = "alternating",
        tol: float = 1e-10,
        max_iter: int = 10_000,
        random_state: RandomState = None,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Train on rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : None
            Ignored.
        """
        check_number("n_components", self.n_components, integer=True)
        check_choice("solver", self.solver, ("alternating", "lbfgs"))
        check_number("tol", self.tol)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("max_time", self.max_time, none=True)
        warm = self.warm_start and hasattr(self, "decoder_")
        before = (self.encoder_, self.decoder_) if warm else None
        X = self._dense(X, reset=True)
        d, k = X.shape[1], int(self.n_components)
        if k > d:
            raise ValueError(f"n_components must be at most n_features={d}, got {k}.")
        found = moments(X, type(self).__name__)
        D = check_random_state(self.random_state).normal(size=(d, k)) / math.sqrt(d)
        C = D.T
        if before is not None and before[1].shape == (d, k):
            C, D = (np.array(part, dtype=np.float64) for part in before)
        monitor = Monitor(self, X, None, None, self.max_time)
        training = _Training(found, C, D, float(self.tol), monitor, X.dtype)
        run = training.alternate if self.solver == "alternating" else training.descend
        status = run(int(self.max_iter))
        for name, value in training.attributes().items():
            setattr(self, name, value)
        self.n_iter_ = len(monitor.history["objective"])
        self.history_ = monitor.history
        monitor.close(training.attributes())
        measured = self._to_measure(None, X)
        evidence = Evidence("autoencoder")
        return Fitted(evidence, X, None, None, status, measured=measured)

    def _measured(
        self,
        witness: Any,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        return gradient_claims(X, X, (self.encoder_, self.decoder_))

    def transform(self, X: Any) -> Array:
        """Encode rows: C(x − m).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        check_is_fitted(self)
        X = self._dense(X)
        return np.asarray((X - self.mean_) @ self.encoder_.T.astype(X.dtype))

    def inverse_transform(self, X: MatrixLike) -> Array:
        """Decode: m + Dz.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            What :meth:`transform` gave.
        """
        check_is_fitted(self)
        Z = check_array(X, dtype=[np.float64, np.float32])
        k = self.decoder_.shape[1]
        if Z.shape[1] != k:
            raise ValueError(f"X has {Z.shape[1]} columns, but the code has {k}.")
        return np.asarray(Z @ self.decoder_.T.astype(Z.dtype) + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.encoder_.shape[0])


class _Training:
    """C and D on the covariance, in units of the mean variance."""

    def __init__(
        self,
        found: RowMoments,
        C: Array,
        D: Array,
        tol: float,
        monitor: Monitor,
        dtype: Any,
    ) -> None:
        total = float(found.variances.mean())
        self.unit = total if total > 0 else 1.0
        self.mean, self.dtype = found.mean, dtype
        self.S = found.scaled(np.full(len(D), self.unit**-0.5))
        self.trace = float(self.S.variances.sum())
        self.tol, self.monitor = tol, monitor
        self.C, self.D, self.loss = C, D, math.inf
        d, k = D.shape
        self.best: float | None = None
        if min(found.n, d) <= EIGEN:
            self.best = 0.5 * (self.trace - float(self.S.eigen(k)[0].sum()))

    def alternate(self, max_iter: int) -> Status:
        """Each of C and D the best for the other, in turn."""
        try:
            for _ in range(max_iter):
                C = _pseudo_inverse(self.D)
                SC = self.S.times(C.T)
                D = SC @ _inverse(C @ SC)
                loss = 0.5 * (self.trace - float(np.einsum("ij,ij->", D, SC)))
                stop = self._record(C, D, loss)
                if stop is not None:
                    return stop
        except KeyboardInterrupt:
            return self._interrupted()
        return Status.MAX_ITER

    def descend(self, max_iter: int) -> Status:
        """Both along the gradient, by L-BFGS."""
        ended: list[Status] = []
        d, k = self.D.shape
        if k == 0:  # nothing to search
            return self._record(self.C, self.D, 0.5 * self.trace) or Status.SOLVED

        def value(point: Array) -> tuple[float, Array]:
            C, D = point[: k * d].reshape(k, d), point[k * d :].reshape(d, k)
            SC = self.S.times(C.T)
            inner, outer = C @ SC, D.T @ D
            cross = float(np.einsum("ij,ij->", D, SC))
            loss = 0.5 * (self.trace - 2 * cross + float(np.sum(outer * inner)))
            # ∂C = Dᵀ(DC − I)S and ∂D = (DC − I)SCᵀ
            by_C = outer @ SC.T - self.S.times(D).T
            return loss, np.concatenate([by_C.ravel(), (D @ inner - SC).ravel()])

        def on_step(intermediate_result: Any) -> None:
            point = intermediate_result.x
            C, D = point[: k * d].reshape(k, d), point[k * d :].reshape(d, k)
            stop = self._record(C.copy(), D.copy(), float(intermediate_result.fun))
            if stop is not None:
                ended.append(stop)
                raise StopIteration

        first = np.concatenate([self.C.ravel(), self.D.ravel()])
        options = {"maxiter": max_iter, "maxfun": 3 * max_iter, "ftol": 0, "gtol": 0}
        try:
            minimize(
                value,
                first,
                jac=True,
                method="L-BFGS-B",
                callback=on_step,
                options={**options, "maxcor": 30},
            )
        except KeyboardInterrupt:
            return self._interrupted()
        return ended[0] if ended else Status.MAX_ITER

    def _record(self, C: Array, D: Array, loss: float) -> Status | None:
        """Move there; a status ends the training."""
        size, loss = 0.5 * self.trace or 1.0, max(loss, 0.0)
        above = self.loss if self.best is None else loss
        below = loss if self.best is None else self.best
        short = (above - below) / size
        self.C, self.D, self.loss = C, D, loss
        stop = self.monitor.step(loss * self.unit, short, self.attributes)
        return Status.SOLVED if short <= ROOM * self.tol else stop

    def _interrupted(self) -> Status:
        if not self.monitor.history["objective"]:
            raise KeyboardInterrupt
        return Status.INTERRUPTED

    def attributes(self) -> dict[str, Any]:
        """The fitted attributes."""
        return {
            "encoder_": self.C.astype(self.dtype),
            "decoder_": self.D.astype(self.dtype),
            "mean_": self.mean.astype(self.dtype),
            "loss_": self.loss * self.unit,
        }


def _pseudo_inverse(D: Array) -> Array:
    """(DᵀD)⁻¹Dᵀ, the best encoder for D."""
    return np.asarray(_inverse(D.T @ D) @ D.T)


def _inverse(A: Array) -> Array:
    """The inverse of a symmetric matrix, without directions that are absent."""
    values, V = np.linalg.eigh(A)
    used = values > ABSENT * values.max(initial=0.0)
    return np.asarray((V[:, used] / values[used]) @ V[:, used].T)
