"""Non-negative factors by one call, as in scikit-learn: X ≈ WH with W, H ≥ 0.

    ½‖X − WH‖² + penalties, over both factors or over W alone

:class:`certus.decomposition.NMF` solves it and states what was reached.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_non_negative

from certus.decomposition.nonnegative import NMF, require_dtype
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

__all__ = ["non_negative_factorization"]


def non_negative_factorization(
    X: MatrixLike,
    W: ArrayLike | None = None,
    H: ArrayLike | None = None,
    n_components: int | str | None = "auto",
    *,
    init: str | None = None,
    update_H: bool = True,
    solver: str = "cd",
    beta_loss: Any = "frobenius",
    tol: float = 1e-4,
    max_iter: int = 200,
    alpha_W: float = 0.0,
    alpha_H: float | str = "same",
    l1_ratio: float = 0.0,
    random_state: RandomState = None,
    verbose: int = 0,
    shuffle: bool = False,
) -> tuple[Array, Array, int]:
    """Find non-negative factors of a matrix; :class:`NMF` also gives a certificate.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows without negative entries.
    W : array-like of shape (n_samples, n_components), optional
        Start of W, for ``init="custom"``.
    H : array-like of shape (n_components, n_features), optional
        Start of H, for ``init="custom"``; with ``update_H=False`` the parts themselves.
    update_H : bool, default=True
        Whether to find both factors. Otherwise H stays as it is.
    n_components, init, solver, beta_loss, tol, max_iter, alpha_W, alpha_H, l1_ratio, \
random_state, verbose, shuffle
        As in :class:`NMF`.

    Returns
    -------
    W : ndarray of shape (n_samples, n_components)
        Weights of the parts in each row.
    H : ndarray of shape (n_components, n_features)
        The parts.
    n_iter : int
        Rounds made; 1 with ``update_H=False``, where W is solved for directly.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.decomposition import non_negative_factorization
    >>> X = np.outer([1.0, 2.0, 3.0], [1.0, 0.5])
    >>> W, H, _ = non_negative_factorization(X, n_components=1, random_state=0)
    >>> bool(np.allclose(W @ H, X, atol=1e-3))
    True
    """
    model = NMF(
        n_components=n_components,
        init=init,
        solver=solver,
        beta_loss=beta_loss,
        tol=tol,
        max_iter=max_iter,
        random_state=random_state,
        alpha_W=alpha_W,
        alpha_H=alpha_H,
        l1_ratio=l1_ratio,
        verbose=verbose,
        shuffle=shuffle,
    )
    if not update_H:
        if W is not None:
            text = "W was not used: with update_H=False it is solved for directly."
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        return _weights(model, X, H)
    weights = model.fit_transform(X, W=W, H=H)
    return weights, model.components_, model.n_iter_


def _weights(model: NMF, X: Any, H: Any) -> tuple[Array, Array, int]:
    """The best W for given parts."""
    if H is None:
        raise ValueError("update_H=False needs H, the parts; got None.")
    X = check_array(X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32])
    require_dtype("H", H, X.dtype)
    H = check_array(H, dtype=X.dtype, input_name="H")
    check_non_negative(H, "NMF (input H)")
    k = model.n_components
    wanted = (len(H) if k is None or isinstance(k, str) else k, X.shape[1])
    if H.shape != wanted:
        raise ValueError(f"H must have the shape {wanted}, got {H.shape}.")
    model.components_, model.n_features_in_ = H, X.shape[1]
    return model.transform(X), H, 1
