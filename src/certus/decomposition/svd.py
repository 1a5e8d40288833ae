"""Truncated singular value decomposition: the best approximation of rank k.

    min over Y of rank ≤ k:  ‖X − Y‖²     attained at  X V Vᵀ    (Eckart and Young)

where the columns of V are the right singular vectors of the k largest singular values.
Columns are not centred, so sparse X stays sparse; with centring this is ``PCA``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
    validate_data,
)
from certus.blocks import Blocks
from certus.blocks.accepting import by_block
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.decomposition.by_blocks import BlockOperator
from certus.decomposition.operator import Operator
from certus.decomposition.spectra import (
    BLOCK,
    Spectrum,
    direct_spectrum,
    lanczos,
    randomised,
)
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: All singular values are computed if there are at most this many, or at most this
#: many times as many as are wanted.
DIRECT_SIDE, DIRECT_SHARE = 1_000, 8
NORMALIZERS = ("auto", "QR", "LU", "none")


class SpectralModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Model):
    """What PCA and TruncatedSVD share; abstract."""

    components_: Array
    singular_values_: Array
    random_state: Any
    max_time: float | None
    tol: float

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _random(self) -> np.random.Generator:
        return generator_of(self.random_state)

    def _iterate(
        self, op: Operator, k: int, tol: float, monitor: Monitor, dtype: Any
    ) -> Spectrum:
        """Block Lanczos under the monitor's eye."""

        def on_step(captured: float, residual: float, result: Any) -> Status | None:
            def state() -> dict[str, Any]:
                return {"components_": fix_signs(result()[1]).astype(dtype)}

            return monitor.step(captured, residual, state)

        return lanczos(op, k, tol, self._random(), on_step)

    def _close(self, found: Spectrum, monitor: Monitor) -> None:
        """Store the attributes that every fit sets."""
        if not np.isfinite(self.singular_values_).all():
            raise np.linalg.LinAlgError("its singular values overflow")
        if not monitor.history["gap"]:
            monitor.step(float(np.square(found.values).sum()), 0.0)
        self.solver_, self.solver_reason_ = found.solver, found.why
        self.n_iter_ = found.n_iter
        self.history_ = monitor.history
        monitor.close({"components_": self.components_})


def fix_signs(V: Array) -> Array:
    """Rows with their largest entry positive, as scikit-learn has them."""
    largest = np.abs(V).argmax(axis=1)
    return np.asarray(
        V * np.where(V[np.arange(len(V)), largest] < 0, -1.0, 1.0)[:, None]
    )


def iterates(op: Operator, k: int) -> bool:
    """Whether few singular values of many are wanted."""
    return op.side > max(DIRECT_SIDE, DIRECT_SHARE * k) and op.side > 4 * (k + BLOCK)


class TruncatedSVD(SpectralModel):
    """The k largest singular values and right singular vectors of X.

    Objective
    ---------
    min over matrices Y of rank ≤ k:  ‖X − Y‖²  (Frobenius), attained at X·Vᵀ·V with
    ``components_`` = V.

    Certificate
    -----------
    ``ritz_residual`` (PROVED): within value·σ₁ of each singular value reported lies one
    of X's. ``orthonormality`` and ``captured_variance`` (PROVED): recomputed from
    ``components_``. ``eckart_young`` (PROVED), if there are at most 128 rows or
    columns, at level "full" at most 2,000: captured ≥ best possible − value. Else
    ``largest`` (MEASURED): the largest variance a probe found outside, as a share of
    the smallest inside; it cannot prove that nothing was missed, but where it exceeds
    one it proves that something was. The quick check costs two passes over X.

    Parameters
    ----------
    n_components : int, default=2
        Number of components. At most as many as X has rows are returned.
    algorithm : {"auto", "arpack", "randomized"}, default="auto"
        Algorithm that computes the fit. ``"auto"`` diagonalises a Gram matrix where one
        side of X is at most 1,000, else runs a block Lanczos method until ``tol`` is
        met. ``"arpack"`` asks for the latter. ``"randomized"`` makes ``n_iter`` passes,
        whatever they reach.
    n_iter : int, default=5
        Power iterations of ``"randomized"``.
    n_oversamples : int, default=10
        Number of additional random directions of "randomized".
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the random directions.
    tol : float, default=1e-6
        Target of the certificate's primary claim. 0 stands for 1e-6, and iterations run
        to 1e-10. In float32 it is at least 1e-3.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    power_iteration_normalizer
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Right singular vectors, the entry of largest size positive.
    singular_values_ : ndarray of shape (n_components,)
        Largest first.
    explained_variance_ : ndarray of shape (n_components,)
        Variance of the columns of ``transform(X)``.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        As a share of the variance of the columns of X.
    solver_, solver_reason_ : str
        What was used, and why.
    n_iter_ : int
        Steps taken.
    history_ : dict of lists
        Captured squares, residual and seconds of each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A step of the Lanczos method costs two products of X with 16 columns, on all
    threads, and O(n·m) for a basis of m columns (n the smaller side). Memory: that
    basis, at most k + 320 columns, and a transposed copy of sparse X. Singular values
    below 1e-5 of the largest need the direct route.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from certus.decomposition import TruncatedSVD
    >>> X = sparse.random(200, 50, 0.1, "csr", random_state=0)
    >>> model = TruncatedSVD(n_components=5).fit(X)
    >>> model.transform(X).shape, model.certificate_.met
    ((200, 5), True)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        algorithm: str = "auto",
        n_iter: int = 5,
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: RandomState = None,
        tol: float = 1e-6,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.n_iter = n_iter
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.tol = tol
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Fit to rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; sparse ones are never densified.
        y : None
            Ignored.
        """
        _check_parameters(self)
        X = validate_data(
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            ensure_min_features=2,
            ensure_all_finite=False,
        )
        k = self._count(X.shape)
        op = Operator(X, centre=False)
        monitor = Monitor(self, X, None, None, self.max_time)
        target = float(self.tol) or 1e-10
        if self.algorithm == "randomized":
            found = randomised(
                op, k, int(self.n_oversamples), int(self.n_iter), self._random()
            )
        elif iterates(op, k):
            found = self._iterate(op, k, target / 2, monitor, X.dtype)
        else:
            found, _ = direct_spectrum(op, lambda values: k, _few(op))
        self._store(found, k, op, X.dtype)
        self._close(found, monitor)
        return Fitted(Evidence("spectral"), X, None, None, found.status)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        _check_parameters(self)
        k = self._count(table.shape)
        op: Any = BlockOperator(table, centre=False)
        monitor = Monitor(self, table, None, None, self.max_time)
        found, _ = direct_spectrum(op, lambda values: k, "sums over blocks of rows")
        self._store(found, k, op, table.dtype)
        self._close(found, monitor)
        return Fitted(Evidence("spectral"), table, None)

    def _count(self, shape: tuple[int, int]) -> int:
        n, d = shape
        k = int(self.n_components)
        if k > d:
            raise ValueError(f"n_components({k}) must be <= n_features({d}).")
        if self.algorithm == "arpack" and k >= min(n, d):
            raise ValueError(
                f"n_components={k} must be below min(n_samples, n_features)="
                f"{min(n, d)} with algorithm='arpack'. Use 'auto'."
            )
        return min(k, n)

    def _store(self, found: Spectrum, k: int, op: Operator, dtype: Any) -> None:
        values, V = found.values[:k], fix_signs(found.vectors[:k])
        n, scale = op.shape[0], op.scale
        mean = op.t_dot(np.ones((n, 1))).ravel() / n
        total = op.squares() / n - float(mean @ mean)
        variance = np.square(values * scale) / n - np.square(V @ mean)
        variance = np.maximum(variance, 0.0)
        self.components_ = np.ascontiguousarray(V, dtype)
        self.singular_values_ = values.astype(dtype)
        self.explained_variance_ = (variance / scale / scale).astype(dtype)
        share = variance / total if total > 0 else np.zeros(k)
        self.explained_variance_ratio_ = share.astype(dtype)

    @by_block
    def transform(self, X: MatrixLike) -> Array:
        """Coordinates X·Vᵀ of rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        """
        check_is_fitted(self)
        return np.asarray(self._validate_X(X) @ self.components_.T)

    def inverse_transform(self, X: Any) -> Array:
        """Rows of which these are the coordinates; dense.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Coordinates.
        """
        check_is_fitted(self)
        X = check_array(X, dtype=[np.float64, np.float32])
        require_columns(X, len(self.components_))
        return np.asarray(X @ self.components_)


def require_columns(Z: Array, k: int) -> None:
    """Raise unless there is a coordinate for each of the k components."""
    if Z.shape[1] != k:
        raise ValueError(
            f"X has {Z.shape[1]} columns, but the model has {k} components. Pass the "
            "output of transform."
        )


def _few(op: Operator) -> str:
    kind = "sparse" if sparse.issparse(op.X) else "dense"
    return f"{kind}, with {op.side:,} singular values in all"


def _check_parameters(model: TruncatedSVD) -> None:
    check_number("n_components", model.n_components, 1, integer=True)
    check_choice("algorithm", model.algorithm, ("auto", "arpack", "randomized"))
    check_number("n_iter", model.n_iter, 0, integer=True)
    check_number("n_oversamples", model.n_oversamples, 1, integer=True)
    given = model.power_iteration_normalizer
    check_choice("power_iteration_normalizer", given, NORMALIZERS)
    check_number("tol", model.tol)
    check_number("max_time", model.max_time, none=True)
