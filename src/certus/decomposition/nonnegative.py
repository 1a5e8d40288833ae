"""Non-negative factors: rows as sums of parts, X ≈ WH with W, H ≥ 0.

    ½‖X − WH‖² + a‖W‖₁ + ½b‖W‖² + a'‖H‖₁ + ½b'‖H‖²

The problem in both factors is not convex. In one of them it is convex, and splits into
a small problem for each row, which coordinate descent solves (HALS). The factors are
improved in turn until the best H for the current W would gain less than ``tol``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted, check_non_negative

from certus._core.threads import Stop, run_blocks, slices
from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    validate_data,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.decomposition.nonnegative_kernels import descend
from certus.decomposition.svd import require_columns
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

INITS = (None, "random", "nndsvd", "nndsvda", "nndsvdar", "custom")
#: Rows of a factor that a thread improves at a time.
TASK = 1 << 10
#: Sweeps over a row, and the share of the first one's move at which it is left: while
#: the other factor is about to change, and to the end.
QUICK, EXACT = (4, 0.1), (2_000, 1e-20)


class Levels(NamedTuple):
    """Penalties of one factor."""

    l1: float
    l2: float


class Pace:
    """How far to go beyond a step: more while the objective falls, less after a rise.

    Extrapolation as Ang and Gillis propose for alternating descent.
    """

    def __init__(self) -> None:
        self.beta, self.most, self.last = 0.5, 1.0, math.inf

    def next(self, value: float) -> float:
        """The factor after a step that led to this objective; 0 after a rise."""
        rose, self.last = value > self.last, value
        if rose:
            self.most, self.beta = self.beta, self.beta / 1.5
            return 0.0
        self.most = min(1.0, 1.01 * self.most)
        self.beta = min(self.most, 1.05 * self.beta)
        return self.beta


def _beyond(fresh: Array, before: Array, beta: float) -> Array:
    """A step continued; not where a component would vanish and never come back."""
    ahead = np.maximum(fresh + beta * (fresh - before), 0.0)
    return np.where(ahead.any(axis=0), ahead, fresh)


class NMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Model):
    """Non-negative matrix factorisation, X ≈ WH.

    Objective
    ---------
    ½‖X − WH‖² + penalties over W, H ≥ 0: d·alpha_W·(l1_ratio·‖W‖₁ + ½(1 −
    l1_ratio)·‖W‖²), and with n·alpha_H the same of H, for n rows of d columns.

    Certificate
    -----------
    ``components_gap`` and ``weights_gap`` (PROVED): the best H for this W, and the best
    W for this H, lower the objective by at most ``tol`` of ½‖X‖². Nothing is said about
    the global minimum, which is unknown. W is what ``transform`` gives.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Number of components. "auto" and None mean as many as X has columns, or as H has
        rows with ``init="custom"``.
    init : str, default=None
        How the first factors are chosen. "random" draws them; "nndsvd" takes singular
        vectors, "nndsvda" and "nndsvdar" fill their zeros with the mean or with small
        random numbers; "custom" takes the factors passed to ``fit``. None is "nndsvda",
        or "random" where rows or columns are too few.
    beta_loss : {"frobenius"} or 2, default="frobenius"
        Other divergences are refused; scikit-learn's NMF has them.
    tol : float, default=1e-4
        Target of the certificate's primary claim.
    max_iter : int, default=200
        Maximum number of iterations. They are rounds over both factors.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the start.
    alpha_W : float, default=0.0
        Strength of the penalty of W.
    alpha_H : float or "same", default="same"
        Strength of the penalty of H.
    l1_ratio : float, default=0.0
        Share of the L1 penalty, between 0 and 1.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    solver, verbose, shuffle
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H, the parts.
    n_components_ : int
        How many.
    reconstruction_err_ : float
        ‖X − WH‖.
    n_iter_ : int
        Rounds made.
    history_ : dict of lists
        Objective, gap of H as a share of ½‖X‖², and seconds after each round.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A round costs two products of X with k columns and O((n + d)·k²) for the rows of the
    factors. Memory: the factors and their products with X.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.decomposition import NMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 8))
    >>> model = NMF(3, random_state=0).fit(X)
    >>> share = model.reconstruction_err_ / np.linalg.norm(X)
    >>> bool(share < 0.05), model.certificate_.met
    (True, True)
    """

    components_: Array

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: str | None = None,
        solver: str = "cd",
        beta_loss: Any = "frobenius",
        tol: float = 1e-4,
        max_iter: int = 200,
        random_state: RandomState = None,
        alpha_W: float = 0.0,
        alpha_H: Any = "same",
        l1_ratio: float = 0.0,
        verbose: int = 0,
        shuffle: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.verbose = verbose
        self.shuffle = shuffle
        self.max_time = max_time

    @certified_fit
    def fit(
        self, X: Any, y: ArrayLike | None = None, W: Any = None, H: Any = None
    ) -> Any:
        """Find the parts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows without negative entries.
        y : None
            Ignored.
        W : array-like of shape (n_samples, n_components), optional
            Start of W, for ``init="custom"``.
        H : array-like of shape (n_components, n_features), optional
            Start of H, for ``init="custom"``.
        """
        _check_parameters(self)
        X = validate_data(
            self, X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32]
        )
        check_non_negative(X, "NMF (input X)")
        k = self._count(X.shape[1], H)
        W, H = self._start(X, k, W, H)
        monitor = Monitor(self, X, None, None, self.max_time)
        W, Ht, status = self._alternate(X, W, np.ascontiguousarray(H.T), monitor)
        self.components_ = np.ascontiguousarray(Ht.T, X.dtype)
        self.n_components_ = k
        self.reconstruction_err_ = _distance(X, W, self.components_)
        self.n_iter_ = len(monitor.history["gap"])
        self.history_ = monitor.history
        monitor.close({"components_": self.components_})
        return Fitted(Evidence("nonnegative"), X, None, None, status)

    def _alternate(
        self, X: Any, W: Array, Ht: Array, monitor: Monitor
    ) -> tuple[Array, Array, Status]:
        """Improve the factors in turn; Ht is H by its columns."""
        (n, d), share = X.shape, float(self.l1_ratio)
        own = float(self.alpha_W)
        other = own if isinstance(self.alpha_H, str) else float(self.alpha_H)
        on_W = Levels(d * own * share, d * own * (1 - share))
        on_H = Levels(n * other * share, n * other * (1 - share))
        whole = _squares(X) / 2
        target = 0.8 * float(self.tol) * whole
        last, status, pace = math.inf, Status.MAX_ITER, Pace()
        ahead = Ht  # where H seems to be going
        for _ in range(int(self.max_iter)):
            G, B = ahead.T @ ahead, _times(X, ahead)
            slack = gap(G, B, W, on_W)
            fresh = _improve(G, B, W.copy(), on_W, QUICK)
            W = _beyond(fresh, W, pace.beta)
            G, B = W.T @ W, _times(X.T, W)
            gain = gap(G, B, ahead, on_H)
            value = _value(whole, G, B, ahead) + _cost(W, on_W) + _cost(ahead, on_H)
            ratio = gain / whole if whole > 0 else 0.0
            stop = monitor.step(value, ratio, _state(Ht))
            if stop is not None:
                status = stop
                break
            settled = abs(last - value) <= float(self.tol) * value
            if gain + slack <= target and settled:
                # Judge H with the W that it will be judged by.
                G, B = ahead.T @ ahead, _times(X, ahead)
                W = _improve(G, B, np.zeros(W.shape), on_W, EXACT)
                G, B = W.T @ W, _times(X.T, W)
                if gap(G, B, ahead, on_H) <= target:
                    return W, ahead, Status.SOLVED
            fresh, before = _improve(G, B, ahead.copy(), on_H, QUICK), Ht
            Ht = fresh
            ahead = _beyond(fresh, before, pace.next(value))
            last = value
        G, B = Ht.T @ Ht, _times(X, Ht)
        return _improve(G, B, np.zeros(W.shape), on_W, EXACT), Ht, status

    def _count(self, d: int, H: Any) -> int:
        k = self.n_components
        if k is None or isinstance(k, str):
            custom = self.init == "custom" and H is not None
            return len(H) if custom else d
        return int(k)

    def _start(self, X: Any, k: int, W: Any, H: Any) -> tuple[Array, Array]:
        """Both factors to begin with, in float64."""
        if self.init == "custom":
            if W is None or H is None:
                raise ValueError("init='custom' needs W and H in fit.")
            for name, F in (("W", W), ("H", H)):
                require_dtype(name, F, X.dtype)
            W, H = (np.array(F, dtype=np.float64, order="C") for F in (W, H))
            if W.shape != (X.shape[0], k) or H.shape != (k, X.shape[1]):
                raise ValueError(
                    f"W and H must have shapes {(X.shape[0], k)} and {(k, X.shape[1])},"
                    f" got {W.shape} and {H.shape}."
                )
            for name, F in (("W", W), ("H", H)):
                check_non_negative(F, f"NMF (input {name})")
                if not F.any():
                    raise ValueError(f"{name} must have a positive entry, got zeros.")
            return W, H
        if W is not None or H is not None:
            text = "W and H were not used: they are starts for init='custom' only."
            warnings.warn(text, RuntimeWarning, stacklevel=5)
        rng = np.random.RandomState() if self.random_state is None else None
        rng = rng or _legacy(self.random_state)
        return _initial(X, k, self.init, rng)

    def transform(self, X: Any) -> Array:
        """The best W ≥ 0 for these rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows without negative entries.

        Returns
        -------
        W : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            accept_sparse=("csr", "csc"),
            dtype=[np.float64, np.float32],
            reset=False,
        )
        check_non_negative(X, "NMF (input X)")
        Ht = np.ascontiguousarray(self.components_.T, dtype=np.float64)
        share, own = float(self.l1_ratio), Ht.shape[0] * float(self.alpha_W)
        level = Levels(own * share, own * (1 - share))
        W = np.zeros((X.shape[0], Ht.shape[1]))
        return _improve(Ht.T @ Ht, _times(X, Ht), W, level, EXACT).astype(X.dtype)

    def fit_transform(
        self, X: MatrixLike, y: ArrayLike | None = None, W: Any = None, H: Any = None
    ) -> Any:
        """Find the parts and return W.

        Parameters
        ----------
        X, y, W, H
            As in :meth:`fit`.

        Returns
        -------
        W : ndarray of shape (n_samples, n_components)
        """
        return self.fit(X, y, W=W, H=H).transform(X)

    def inverse_transform(self, X: Any) -> Array:
        """Rows of which these are the weights: WH.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Weights, W.
        """
        check_is_fitted(self)
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        require_columns(X, len(self.components_))
        return np.asarray(X @ self.components_)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def require_dtype(name: str, F: Any, dtype: Any) -> None:
    """Raise an error unless a given factor has the type of X."""
    if np.asarray(F).dtype != dtype:
        raise TypeError(
            f"{name} should have the same dtype as X, {dtype}, got "
            f"{np.asarray(F).dtype}."
        )


def _state(Ht: Array) -> Callable[[], dict[str, Any]]:
    return lambda: {"components_": Ht.T}


# -- one factor -------------------------------------------------------------------


def _improve(
    G: Array, B: Array, W: Array, level: Levels, effort: tuple[int, float]
) -> Array:
    """Descend on the rows of W in place."""
    lifted = G + level.l2 * np.eye(len(G))

    def work(part: slice, stop: Stop) -> None:
        V = W[part] @ lifted - B[part] + level.l1
        descend(lifted, V, W[part], *effort)

    run_blocks(work, slices(len(W), TASK))
    return W


def gap(G: Array, B: Array, W: Array, level: Levels) -> float:
    """How much the best W may gain at most: the excess of a dual point."""
    v = W @ G - B
    if level.l2 > 0:
        A = np.minimum(-v, level.l1)
        p = (-v - A) / level.l2
        return float(np.sum(level.l2 / 2 * (W - p) ** 2 + W * (level.l1 - A)))
    size = np.diag(G)
    used = size > 0
    c = np.where(used, 1 / np.sqrt(np.where(used, size, 1.0)), 0.0)
    up = G @ c
    wanted = (-v[:, used] - level.l1) / up[used]
    t = np.maximum(wanted.max(axis=1, initial=0.0), 0.0)
    moved = float(t @ t) * float(c @ up) / 2
    return moved + float(np.sum(W * (level.l1 + v + np.outer(t, up))))


def _value(whole: float, G: Array, B: Array, Ht: Array) -> float:
    """½‖X − WH‖² from WᵀW, XᵀW and H."""
    fit = float(np.sum(G * (Ht.T @ Ht))) / 2
    return max(whole - float(np.sum(B * Ht)) + fit, 0.0)


def _cost(W: Array, level: Levels) -> float:
    return level.l1 * float(W.sum()) + level.l2 * float(np.sum(W * W)) / 2


def _times(X: Any, F: Array) -> Array:
    """X·F in float64, the product itself in X's own precision."""
    found = X @ F.astype(X.dtype, copy=False)
    return np.ascontiguousarray(found, dtype=np.float64)


def _squares(X: Any) -> float:
    values = np.asarray(X.data if sparse.issparse(X) else X, dtype=np.float64).ravel()
    return float(values @ values)


def _distance(X: Any, W: Array, H: Array) -> float:
    """‖X − WH‖ by its cells, a few rows at a time."""
    total = 0.0
    for part in slices(X.shape[0], max(1, (1 << 22) // X.shape[1])):
        rows = X[part].toarray() if sparse.issparse(X) else X[part]
        total += float(np.sum((rows - W[part] @ H) ** 2, dtype=np.float64))
    return math.sqrt(total)


# -- where to begin -----------------------------------------------------------------


def _legacy(seed: Any) -> np.random.RandomState:
    """The generator that scikit-learn draws its starts from."""
    if isinstance(seed, np.random.RandomState):
        return seed
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**31))
    return np.random.RandomState(seed)


def _initial(
    X: Any, k: int, init: str | None, rng: np.random.RandomState
) -> tuple[Array, Array]:
    """scikit-learn's starts, number for number."""
    n, d = X.shape
    mean = float(X.mean())
    if init is None:
        init = "nndsvda" if k <= min(n, d) else "random"
    if init == "random":
        scale = math.sqrt(mean / k)
        H = np.abs(scale * rng.standard_normal(size=(k, d)))
        W = np.abs(scale * rng.standard_normal(size=(n, k)))
        return W, H
    if k > min(n, d):
        raise ValueError(
            f"init={init!r} needs n_components <= min(n_samples, n_features) = "
            f"{min(n, d)}, got {k}. Use init='random'."
        )
    with config_context(array_api_dispatch=False):  # these are plain arrays
        U, S, V = randomized_svd(X, k, random_state=rng)
    W, H = np.zeros((n, k)), np.zeros((k, d))
    W[:, 0], H[0] = math.sqrt(S[0]) * np.abs(U[:, 0]), math.sqrt(S[0]) * np.abs(V[0])
    for j in range(1, k):
        sides = [(np.maximum(s * U[:, j], 0), np.maximum(s * V[j], 0)) for s in (1, -1)]
        sizes = [(np.linalg.norm(u), np.linalg.norm(v)) for u, v in sides]
        best = int(sizes[1][0] * sizes[1][1] >= sizes[0][0] * sizes[0][1])
        (u, v), (a, b) = sides[best], sizes[best]
        if a * b > 0:
            scale = math.sqrt(S[j] * a * b)
            W[:, j], H[j] = scale * u / a, scale * v / b
    W[W < 1e-6], H[H < 1e-6] = 0.0, 0.0
    if init == "nndsvda":
        W[W == 0], H[H == 0] = mean, mean
    elif init == "nndsvdar":
        for F in (W, H):
            at = F == 0
            F[at] = np.abs(mean * rng.standard_normal(size=int(at.sum())) / 100)
    return W, H


def _check_parameters(model: NMF) -> None:
    k = model.n_components
    if k is not None and k != "auto":
        check_number("n_components", k, 1, integer=True)
    check_choice("init", model.init, INITS)
    check_choice("solver", model.solver, ("cd", "mu"))
    if model.beta_loss not in ("frobenius", 2):
        raise NotImplementedError(
            f"beta_loss={model.beta_loss!r} is not solved here; only 'frobenius' is. "
            "Use sklearn.decomposition.NMF with solver='mu'."
        )
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("alpha_W", model.alpha_W)
    if not isinstance(model.alpha_H, str) or model.alpha_H != "same":
        check_number("alpha_H", model.alpha_H)
    check_number("l1_ratio", model.l1_ratio, 0.0, 1.0)
    check_number("max_time", model.max_time, none=True)
