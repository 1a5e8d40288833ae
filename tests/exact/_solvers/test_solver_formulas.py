"""The solvers' formulas equal the verifier's, which are written independently.

Losses and curvature, compiled descent and the products of a design, on dense data of
either order and precision and on sparse data, weighted, centred and far from zero,
against plain NumPy.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from certus._solvers.design import Design
from certus._solvers.kernels import descend_columns, descend_gram
from certus._solvers.losses import apply_curvature, evaluate, mean_curvature
from certus._solvers.penalties import prox
from certus.objectives import terms as t
from certus.verify.kernel.losses import LOSSES

Array = np.ndarray
CLASSES = [t.Logistic(), t.Softmax(2), t.Softmax(5)]
PENALTIES = [t.L1(0.7), t.L2(0.7), t.L1L2(0.3, 0.9), t.NonNegative(0.1, 0.2)]


def name(value: Any) -> str:
    return f"{type(value).__name__}{tuple(value)}"


def rows(loss: Any, seed: int, n: int = 30, reach: float = 5.0) -> tuple[Array, Array]:
    """Labels as the loss wants them and scores of shape (n, k)."""
    rng = np.random.default_rng(seed)
    if isinstance(loss, t.Logistic):
        return rng.choice([-1.0, 1.0], n), reach * rng.normal(size=(n, 1))
    k = loss.n_classes
    return rng.integers(0, k, n), reach * rng.normal(size=(n, k))


# -- losses -----------------------------------------------------------------------


@pytest.mark.parametrize("loss", CLASSES, ids=name)
@given(seed=st.integers(0, 10**6), reach=st.sampled_from([0.0, 1e-8, 1.0, 30.0, 1e3]))
def test_value_and_slope(loss: Any, seed: int, reach: float) -> None:
    y, z = rows(loss, seed, reach=reach)
    flat = z[:, 0] if isinstance(loss, t.Logistic) else z
    found, formulas = evaluate(loss, y, z), LOSSES[type(loss)]
    expected = formulas.value(loss, y, flat)
    np.testing.assert_allclose(found.value, expected, rtol=1e-12, atol=1e-12)
    slope = formulas.slope(loss, y, flat).reshape(z.shape)
    np.testing.assert_allclose(found.slope, slope, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", CLASSES, ids=name)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_curvature_is_the_change_of_the_slope(loss: Any, seed: int) -> None:
    y, z = rows(loss, seed, reach=2.0)
    rng = np.random.default_rng(seed + 1)
    D, step = rng.normal(size=z.shape), 1e-5
    formulas = LOSSES[type(loss)]

    def slope(z: Array) -> Array:
        flat = z[:, 0] if isinstance(loss, t.Logistic) else z
        return formulas.slope(loss, y, flat).reshape(z.shape)

    expected = (slope(z + step * D) - slope(z - step * D)) / (2 * step)
    state = evaluate(loss, y, z).state
    np.testing.assert_allclose(apply_curvature(loss, state, D), expected, atol=1e-8)
    s, k = rng.uniform(0.1, 2, len(y)), z.shape[1]
    mean = mean_curvature(loss, state, s)
    for j in range(k):
        e = np.tile(np.eye(k)[j], (len(y), 1))
        by_rows = s @ apply_curvature(loss, state, e) / s.sum()
        np.testing.assert_allclose(mean[:, j], by_rows, rtol=1e-12, atol=1e-14)


def test_an_unknown_loss_is_named() -> None:
    with pytest.raises(TypeError, match="Hinge"):
        evaluate(t.Hinge(), np.ones(2), np.ones((2, 1)))


# -- compiled descent ------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
def test_compiled_descent_reaches_the_fixed_point(penalty: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(0.5, 1, (40, 5)), rng.normal(size=40)
    h, A = np.full(40, 1 / 40), X - X.mean(axis=0)
    G, c = A.T @ A / 40, A.T @ y / 40
    w, g = np.zeros(5), -c.copy()
    change, epochs = descend_gram(penalty, G, w, g, 5, 1000, 1e-15)
    assert change <= 1e-15 or epochs == 1000
    np.testing.assert_allclose(g, G @ w - c, atol=1e-12)
    steps = 1 / np.diag(G)
    again = [prox(penalty, j, w[j] - g[j] * steps[j], steps[j]) for j in range(5)]
    np.testing.assert_allclose(again, w, atol=1e-12)

    v, delta = np.zeros(5), np.zeros(40)
    descend_columns(
        penalty,
        np.asfortranarray(A),
        h,
        np.diag(G).copy(),
        -c,
        v,
        delta,
        np.arange(5),
        1000,
        1e-15,
    )
    np.testing.assert_allclose(v, w, atol=1e-12)
    np.testing.assert_allclose(delta, A @ v, atol=1e-12)


# -- designs ----------------------------------------------------------------------

FORMS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), d=st.integers(1, 8))
@settings(max_examples=12)
def test_products_of_a_design(
    form: str, dtype: Any, centre: bool, weighted: bool, seed: int, n: int, d: int
) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.normal(1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.7)).astype(dtype)
    s = rng.uniform(0.1, 2, n) if weighted else None
    design = Design(FORMS[form](X), s, centre)
    weight = np.ones(n) if s is None else s
    share = weight / weight.sum()
    mean = share @ X.astype(float) if centre else np.zeros(d)
    A = X.astype(float) - mean
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(design.mean, mean, **close)
    for k in ((), (3,)):
        w, u = rng.normal(size=(d, *k)), rng.normal(size=(n, *k))
        np.testing.assert_allclose(design.dot(w), A @ w, **close)
        su = (share * u.T).T
        np.testing.assert_allclose(design.t_dot(u), A.T @ su, **close)
        np.testing.assert_allclose(design.average(u), su.sum(axis=0), **close)
    G = A.T @ (share[:, None] * A)
    np.testing.assert_allclose(design.gram(), G, **close)
    left, right = np.arange(0, d, 2), np.arange(d)[::-1]
    if design.sparse:
        columns = design.X[:, left], design.X[:, right]
    else:
        held = np.empty((d, n))
        design.columns(np.arange(d), held)
        np.testing.assert_allclose(held.T, A, **close)
        columns = held.T[:, left], held.T[:, right]
    cross = design.cross(*columns, (design.rest[left], design.rest[right]))
    np.testing.assert_allclose(cross, G[np.ix_(left, right)], **close)
    np.testing.assert_allclose(design.column_squares(), np.diag(G), **close)


@pytest.mark.parametrize("order", ["C", "F"])
def test_single_precision_is_summed_in_double_by_blocks(order: Any) -> None:
    rng = np.random.default_rng(1)
    X = np.asarray(rng.normal(size=(70_000, 40)), dtype=np.float32, order=order)
    design, A = Design(X, None, True), X.astype(float) - X.mean(axis=0, dtype=float)
    u, w = rng.normal(size=70_000), rng.normal(size=40)
    np.testing.assert_allclose(design.t_dot(u), A.T @ u / 70_000, atol=1e-14)
    np.testing.assert_allclose(design.dot(w), A @ w, atol=1e-11)
    np.testing.assert_allclose(design.gram(), A.T @ A / 70_000, atol=1e-12)


def test_sparse_data_are_never_made_dense() -> None:
    X = sparse.random_array((200_000, 50_000), density=1e-6, rng=0, format="csr")
    design = Design(X, None, True)  # 80 GB if dense
    w = np.ones(50_000)
    z = design.dot(w)
    np.testing.assert_allclose(z, X @ w - (X @ w).mean(), atol=1e-12)
    assert design.t_dot(z).shape == (50_000,)
