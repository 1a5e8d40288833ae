"""Loops of stochastic descent against the same steps written out one by one."""

import numpy as np
import pytest
from scipy import sparse

from certus.recommend.rating_steps import deal_entries, visit
from certus.verify.half_steps import Side, Sizes, bracket, least, step


def one_by_one(order, X, s, W, Z, b, c, keep, biased, rate):
    """The steps as they are defined, each after the one before."""
    for u in order:
        for t in range(X.indptr[u], X.indptr[u + 1]):
            i = X.indices[t]
            step = rate * s[t] * (X.data[t] - b[u] - c[i] - W[u] @ Z[i])
            W[u], Z[i] = (
                keep[0][u] * W[u] + step * Z[i],
                keep[1][i] * Z[i] + step * W[u],
            )
            if biased:
                b[u], c[i] = keep[2][u] * b[u] + step, keep[3][i] * c[i] + step


@pytest.mark.catalog("LAT-29")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("K", [1, 5, 32])
def test_two_steps_at_once_are_two_steps(biased, weighted, K):
    rng = np.random.default_rng(K)
    n, m, rate = 9, 12, 0.05
    X = sparse.random(n, m, 0.5, random_state=K, format="csr")
    assert {1, 0} <= set(np.diff(X.indptr) % 2)  # rows of even and of odd length
    s = rng.uniform(0.5, 2.0, X.nnz) if weighted else np.ones(X.nnz)
    ours = [0.3 * rng.standard_normal(shape) for shape in ((n, K), (m, K), n, m)]
    plain = [part.copy() for part in ours]
    keep = [rng.uniform(0.9, 1.0, len(part)) for part in ours]
    order = rng.permutation(n)
    visit(
        *(order, X.indptr[:-1], X.indptr[1:], X.indices, X.data),
        *(s if weighted else np.empty(0), *ours, *keep, biased, rate),
    )
    one_by_one(order, X, s, *plain, keep, biased, rate)
    for found, expected in zip(ours, plain):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("groups", [1, 3])
def test_entries_follow_the_new_order_of_columns(groups):
    X = sparse.random(15, 10, 0.4, random_state=0, format="csr")
    label = np.random.default_rng(1).permutation(10).astype(np.int32)
    edges = np.linspace(0, 10, groups + 1).astype(int)
    order, labels = np.empty(X.nnz, dtype=int), np.empty(X.nnz, dtype=np.int32)
    ends = np.empty((groups + 1, 15), dtype=X.indptr.dtype)
    deal_entries(X.indptr, X.indices, label, edges, order, labels, ends)
    np.testing.assert_array_equal(labels, label[X.indices[order]])
    np.testing.assert_array_equal(ends[0], X.indptr[:-1])
    np.testing.assert_array_equal(ends[-1], X.indptr[1:])
    for u in range(15):
        row = slice(X.indptr[u], X.indptr[u + 1])
        assert sorted(order[row]) == list(range(row.start, row.stop))
        assert np.all(np.diff(labels[row]) > 0)
        for q in range(groups):
            found = labels[ends[q, u] : ends[q + 1, u]]
            assert np.all((found >= edges[q]) & (found < edges[q + 1]))


@pytest.mark.parametrize("penalty", [0.0, 0.7])
@pytest.mark.parametrize("turned", [False, True])
def test_the_least_gain_is_that_of_one_step(penalty, turned):
    rng = np.random.default_rng(0)
    X = sparse.random(30, 20, 0.4, random_state=0, format="csr")
    rows, others = (20, 30) if turned else (30, 20)
    side = Side(
        *(X, rng.uniform(0.5, 2, X.nnz), rng.standard_normal((others, 4))),
        *(np.full(4, penalty), rng.uniform(1, 2, rows), None, turned),
    )
    g = side.gradient(rng.standard_normal((rows, 4)), rng.standard_normal(X.nnz))
    sizes = Sizes(*(np.full(rows, size) for size in (1.0, 1.0, 1e-15)))
    found = least(side, g, sizes).low
    assert found == pytest.approx(bracket(side, g, sizes, step(side, g, 2)).low)
    # The exact gain, row by row, from dense matrices.
    dense = side.matrix(side.curve).toarray()
    for u in range(rows):
        H = (side.Y * dense[u][:, None]).T @ side.Y
        H += side.scale[u] * np.diag(side.ridge)
        assert found[u] <= 0.5 * g[u] @ np.linalg.pinv(H) @ g[u] * (1 + 1e-9)
    assert found.sum() > 0
