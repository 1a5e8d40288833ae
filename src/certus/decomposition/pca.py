"""Principal components: the directions of largest variance.

    max over V with VVᵀ = I:  Σᵢ ‖(X − 1mᵀ)vᵢ‖² / (n − 1),     m the column means

The optimum is spanned by the leading eigenvectors of the covariance matrix. As a model
of the data, a Gaussian with these variances along V and their mean, over what is left,
in all other directions (probabilistic PCA).
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from certus._core.threads import slices
from certus.base import Fitted, certified_fit, check_choice, check_number, validate_data
from certus.blocks import Blocks
from certus.blocks.accepting import by_block
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.decomposition.by_blocks import BlockOperator
from certus.decomposition.operator import CELLS, Operator
from certus.decomposition.spectra import Spectrum, direct_spectrum, randomised
from certus.decomposition.svd import (
    NORMALIZERS,
    SpectralModel,
    fix_signs,
    iterates,
    require_columns,
)
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: What tol=0 stands for: rounding.
ROUNDING = 1e-10
SOLVERS = ("auto", "full", "covariance_eigh", "arpack", "randomized")


class PCA(SpectralModel):
    """Principal component analysis.

    Objective
    ---------
    max over orthonormal v₁ … v_k:  Σᵢ vᵢᵀ C vᵢ,  C = (X − 1mᵀ)ᵀ(X − 1mᵀ)/(n − 1)

    Certificate
    -----------
    With A = X − 1mᵀ: ``ritz_residual`` (PROVED): within value·σ₁ of each singular value
    reported lies one of A's. ``orthonormality`` and ``captured_variance`` (PROVED):
    recomputed from ``components_``. ``eckart_young`` (PROVED), if there are at most 128
    rows or columns, at level "full" at most 2,000: captured ≥ best possible − value.
    Else ``largest`` (MEASURED): the largest variance a probe found outside, as a share
    of the smallest inside; it cannot prove that nothing was missed, but where it
    exceeds one it proves that something was. The quick check costs two passes over X.

    Parameters
    ----------
    n_components : int, float, "mle" or None, default=None
        Number of components. A number between 0 and 1 asks for as many as exceed that
        share of the variance, ``"mle"`` for Minka's choice, None for all.
    whiten : bool, default=False
        Whether ``transform`` divides by the standard deviations.
    svd_solver : str, default="auto"
        ``"covariance_eigh"`` forms the covariance matrix, or that of the rows if there
        are fewer; where the smallest variance kept is below 1e-8 of the largest, half
        its digits would be lost, and ``"full"`` is used in its place: orthogonal
        factors of blocks of rows, at three times the cost. ``"arpack"`` is a block
        Lanczos method that runs until ``tol`` is met, ``"randomized"`` the same unless
        ``iterated_power`` says how many passes to make. ``"auto"`` takes the covariance
        matrix if X has at most 1,000 rows or columns, or more than an eighth of the
        components are wanted, else Lanczos.
    tol : float, default=0
        Target of the certificate's primary claim. 0 stands for 1e-6, which products in
        float64 can tell, and iterations run to 1e-10. In float32 it is at least 1e-3.
    iterated_power : int or "auto", default="auto"
        Passes of ``"randomized"``.
    n_oversamples : int, default=10
        Number of additional random directions of "randomized".
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the random directions.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    copy, power_iteration_normalizer
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Directions, largest variance first, their largest entry positive.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
        Variances along them, and their shares of the whole.
    singular_values_ : ndarray of shape (n_components,)
        Of the centred X.
    mean_ : ndarray of shape (n_features,)
        Column means.
    n_components_, n_samples_ : int
        How many.
    noise_variance_ : float
        Mean variance of the directions left out.
    solver_, solver_reason_ : str
        What was used, and why.
    n_iter_ : int
        Steps taken; 1 for direct solvers.
    history_ : dict of lists
        Captured squares, residual and seconds of each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    The covariance matrix costs n·d² operations on all threads, in blocks of rows that
    are centred on the way; memory is that of a few d × d matrices. float32 data are
    multiplied in float32 where the variances kept are within a factor of 100.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.decomposition import PCA
    >>> X = load_iris().data
    >>> model = PCA(n_components=2).fit(X)
    >>> model.certificate_.met, model.explained_variance_ratio_.round(2).tolist()
    (True, [0.92, 0.05])
    """

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 0.0,
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: RandomState = None,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Fit to rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows. Sparse ones need "auto", "arpack" or "covariance_eigh".
        y : None
            Ignored.
        """
        _check_parameters(self)
        if sparse.issparse(X) and self.svd_solver in ("full", "randomized"):
            raise TypeError(
                'PCA only supports sparse inputs with the "arpack" and '
                f'"covariance_eigh" solvers, while "{self.svd_solver}" was passed. See '
                "TruncatedSVD for a possible alternative."
            )
        X = validate_data(
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            ensure_min_samples=2,
            ensure_all_finite=False,
        )
        _check_count(self, X.shape)
        op = Operator(X, centre=True)
        monitor = Monitor(self, X, None, None, self.max_time)
        found, k = self._decompose(op, monitor, X.dtype)
        self._store(found, k, op, X.dtype)
        self._close(found, monitor)
        return Fitted(Evidence("spectral"), X, None, None, found.status)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        _check_parameters(self)
        _check_count(self, table.shape)
        op: Any = BlockOperator(table, centre=True)
        monitor = Monitor(self, table, None, None, self.max_time)
        wanted = op.side if self.n_components is None else self.n_components

        def count(values: Array) -> int:
            return _count(wanted, values, op.shape[0])

        found, k = direct_spectrum(op, count, "sums over blocks of rows")
        self._store(found, k, op, table.dtype)
        self._close(found, monitor)
        return Fitted(Evidence("spectral"), table, None)

    def _decompose(
        self, op: Operator, monitor: Monitor, dtype: Any
    ) -> tuple[Spectrum, int]:
        solver, wanted, (n, d) = self.svd_solver, self.n_components, op.shape
        all_of_them = op.side - 1 if solver == "arpack" else op.side
        wanted = all_of_them if wanted is None else wanted

        def count(values: Array) -> int:
            return _count(wanted, values, n)

        why = "as asked"
        if solver == "full":
            return direct_spectrum(op, count, why, full=True)
        if isinstance(wanted, numbers.Integral):
            k = int(wanted)
            if solver == "randomized" and self.iterated_power != "auto":
                passes, extra = int(self.iterated_power), int(self.n_oversamples)
                return randomised(op, k, extra, passes, self._random()), k
            if solver != "covariance_eigh" and iterates(op, k):
                tol = (float(self.tol) or ROUNDING) / 2
                return self._iterate(op, k, tol, monitor, dtype), k
            if k == n <= d and not op.sparse:  # centred rows lack a direction
                return direct_spectrum(op, count, "n components of n rows", full=True)
        if solver == "auto":
            why = f"{op.side:,} singular values in all"
        return direct_spectrum(op, count, why)

    def _store(self, found: Spectrum, k: int, op: Operator, dtype: Any) -> None:
        n = op.shape[0]
        values, top = found.values, found.values[:1].max(initial=0.0)
        top = top if top > 0 else 1.0
        share = np.square(values / top)
        whole = float(share.sum())
        if not found.complete:
            whole = max(op.squares() / (top * op.scale) ** 2, whole)
        left = share[k:].sum() if found.complete else whole - share[:k].sum()
        variances = np.square(values / np.sqrt(n - 1))
        rest = 0.0
        if k < op.side:  # squared last: the square of ``top`` may overflow
            rest = (np.sqrt(max(left, 0.0) / (op.side - k)) * top / np.sqrt(n - 1)) ** 2
        self.mean_ = op.mean.astype(dtype)
        self.n_samples_, self.n_components_ = n, k
        self.components_ = np.ascontiguousarray(fix_signs(found.vectors[:k]), dtype)
        self.singular_values_ = values[:k].astype(dtype)
        self.explained_variance_ = variances[:k].astype(dtype)
        ratio = share[:k] / whole if whole > 0 else share[:k]
        self.explained_variance_ratio_ = ratio.astype(dtype)
        self.noise_variance_ = dtype.type(rest)

    # -- coordinates ---------------------------------------------------------------

    @by_block
    def transform(self, X: MatrixLike) -> Array:
        """Coordinates of rows along the components.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        """
        check_is_fitted(self)
        Z = self._project(self._validate_X(X))
        return Z / self._deviations() if self.whiten else Z

    def _project(self, X: Any) -> Array:
        """(X − 1mᵀ)Vᵀ, centred a block at a time so that a large mean costs nothing."""
        V = self.components_.T
        if sparse.issparse(X):
            return np.asarray(X @ V - self.mean_ @ V)
        out = np.empty((X.shape[0], V.shape[1]), dtype=np.result_type(X, V))
        for part in slices(X.shape[0], max(1, CELLS // X.shape[1])):
            out[part] = (X[part] - self.mean_) @ V
        return out

    def _deviations(self) -> Array:
        """Standard deviations; those that are null beside the largest are raised."""
        size = np.sqrt(self.explained_variance_)
        floor = np.finfo(size.dtype).eps * size.max(initial=0.0)
        return np.maximum(size, floor if floor > 0 else 1.0)

    def inverse_transform(self, X: MatrixLike) -> Array:
        """Rows of which these are the coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Coordinates.
        """
        check_is_fitted(self)
        Z = check_array(X, dtype=[np.float64, np.float32])
        require_columns(Z, len(self.components_))
        Z = Z * self._deviations() if self.whiten else Z
        return np.asarray(Z @ self.components_ + self.mean_)

    # -- as a model of the data ----------------------------------------------------

    def _spectrum(self) -> tuple[Array, float]:
        """Variances of the model along the components, and in all other directions."""
        noise = float(self.noise_variance_)
        return np.maximum(self.explained_variance_.astype(np.float64), noise), noise

    def _proper(self) -> tuple[Array, float]:
        """As ``_spectrum``, for what needs a density."""
        variances, noise = self._spectrum()
        whole = len(variances) == self.components_.shape[1]
        if variances.min(initial=np.inf) <= 0 or (noise <= 0 and not whole):
            raise ValueError(
                "The model's variance is zero in some direction, so it has no "
                "density. Keep fewer components."
            )
        return variances, noise

    def get_covariance(self) -> Array:
        """Covariance matrix of the probabilistic model, (n_features, n_features)."""
        check_is_fitted(self)
        variances, noise = self._spectrum()
        V = self.components_
        C = (V.T * (variances - noise)) @ V
        C.flat[:: len(C) + 1] += noise
        return np.asarray(C.astype(V.dtype))

    def get_precision(self) -> Array:
        """Its inverse, by the components alone."""
        check_is_fitted(self)
        variances, noise = self._proper()
        V = self.components_
        rest = 1.0 / noise if noise > 0 else 0.0
        P = (V.T * (1.0 / variances - rest)) @ V
        P.flat[:: len(P) + 1] += rest
        return np.asarray(P.astype(V.dtype))

    @by_block
    def score_samples(self, X: Any) -> Array:
        """Log-density of each row under the probabilistic model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        variances, noise = self._proper()
        k, d = self.components_.shape
        V, out = self.components_.T.astype(np.float64), np.empty(X.shape[0])
        for part in slices(X.shape[0], max(1, CELLS // d)):
            rows = np.subtract(X[part], self.mean_, dtype=np.float64)
            Z = rows @ V
            out[part] = np.square(Z) @ (1.0 / variances)
            if k < d:
                rows -= Z @ V.T
                out[part] += np.einsum("ij,ij->i", rows, rows) / noise
        size = np.log(variances).sum() + ((d - k) * np.log(noise) if k < d else 0.0)
        return -0.5 * (out + d * np.log(2 * np.pi) + size)

    def score(self, X: MatrixLike, y: ArrayLike | None = None) -> float:
        """Mean log-density of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return float(self.score_samples(X).mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.svd_solver not in ("full", "randomized")
        return tags


# -- how many ---------------------------------------------------------------------


def _count(wanted: Any, values: Array, n: int) -> int:
    """Number of components, from all singular values."""
    if wanted == "mle":
        return _minka(np.square(values) / (n - 1), n)
    if isinstance(wanted, numbers.Integral):
        return int(wanted)
    squares = np.square(values / max(values[0], np.finfo(float).tiny))
    shares = np.cumsum(squares / squares.sum())
    return int(min(np.searchsorted(shares, wanted, side="right") + 1, len(values)))


def _minka(spectrum: Array, n: int) -> int:
    """The number that maximises Laplace's approximation of the evidence."""
    d = len(spectrum)
    best, chosen = -np.inf, 0
    tiny = 1e-15
    for k in range(1, d):
        if spectrum[k - 1] < tiny:
            break
        noise = max(tiny, float(spectrum[k:].mean()))
        ends = (d - np.arange(1, k + 1) + 1) / 2.0
        prior = np.sum(gammaln(ends) - np.log(np.pi) * ends) - k * np.log(2.0)
        fit = -0.5 * n * (np.log(spectrum[:k]).sum() + (d - k) * np.log(noise))
        free = d * k - k * (k + 1) / 2.0
        inverse = 1.0 / np.concatenate([spectrum[:k], np.full(d - k, noise)])
        i, j = np.triu_indices(d, 1)
        i, j = i[i < k], j[i < k]
        gaps = (spectrum[i] - spectrum[j]) * (inverse[j] - inverse[i])
        if gaps.min(initial=1.0) <= 0:  # would keep one of two equal variances
            continue
        curvature = np.log(gaps).sum() + len(gaps) * np.log(n)
        volume = 0.5 * np.log(2 * np.pi) * (free + k)
        evidence = prior + fit + volume - 0.5 * curvature - 0.5 * k * np.log(n)
        if evidence > best:
            best, chosen = evidence, k
    return chosen


def _check_parameters(model: PCA) -> None:
    wanted = model.n_components
    if isinstance(wanted, str):
        check_choice("n_components", wanted, ("mle",))
    elif wanted is not None:
        whole = isinstance(wanted, numbers.Integral)
        check_number("n_components", wanted, 0)
        if not whole and not 0.0 < wanted < 1.0:
            raise ValueError(
                f"n_components must be an integer, a share between 0 and 1, 'mle' or "
                f"None, got {wanted!r}."
            )
    check_choice("svd_solver", model.svd_solver, SOLVERS)
    check_number("tol", model.tol)
    if model.iterated_power != "auto":
        check_number("iterated_power", model.iterated_power, integer=True)
    check_number("n_oversamples", model.n_oversamples, 1, integer=True)
    given = model.power_iteration_normalizer
    check_choice("power_iteration_normalizer", given, NORMALIZERS)
    check_number("max_time", model.max_time, none=True)


def _check_count(model: PCA, shape: tuple[int, int]) -> None:
    """Raise scikit-learn's errors about a number of components out of range."""
    wanted, solver, (n, d) = model.n_components, model.svd_solver, shape
    side = min(n, d)
    truncated = solver in ("arpack", "randomized")
    if wanted == "mle":
        if truncated:
            raise ValueError(
                f"n_components='mle' cannot be a string with svd_solver='{solver}'"
            )
        if n < d:
            raise ValueError(
                "n_components='mle' is only supported if n_samples >= n_features"
            )
        return
    if wanted is None:
        return
    low = 1 if truncated else 0
    if not low <= wanted <= side:
        raise ValueError(
            f"n_components={wanted!r} must be between {low} and "
            f"min(n_samples, n_features)={side} with svd_solver='{solver}'"
        )
    if solver == "arpack" and wanted == side:
        raise ValueError(
            f"n_components={wanted!r} must be strictly less than "
            f"min(n_samples, n_features)={side} with svd_solver='arpack'"
        )
