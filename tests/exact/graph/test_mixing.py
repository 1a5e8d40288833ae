"""Matrices that mix neighbours, filters, and networks made of them."""

import numpy as np
import pytest
import torch
from scipy import sparse

from certus.graph import (
    NodeClassifier,
    graph_filter,
    renormalized_adjacency,
    stochastic_block_model,
)
from certus.neural_network.modules.graph_network import Propagate

#: A few epochs are enough for what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)
GRAPH, GROUPS = stochastic_block_model(
    [12, 10], [[0.4, 0.1], [0.1, 0.4]], random_state=1
)
X = RNG.normal(size=(22, 3)) + GROUPS[:, None]
Y = np.where(np.arange(22) % 4 == 0, GROUPS, -1)
PATH = [(i, i + 1) for i in range(7)]


def dense_network(model, A, X):
    """The formulas of the layers, written out with dense matrices."""
    n, w, h = len(A), model.weights_, X
    loops = A + np.eye(n)
    root = np.sqrt(loops.sum(axis=1))
    Q = loops / root / root[:, None]
    depth = len(model.hidden_layer_sizes) + 1
    for i in range(depth):
        W = w[f"layers.{i}.weight"].astype(np.float64)
        if model.layer == "gcn":
            z = Q @ h @ W.T + w[f"layers.{i}.bias"]
        elif model.layer == "sage":
            mean = A @ h / np.maximum(A.sum(axis=1), 1)[:, None]
            z = np.hstack([h, mean]) @ W.T + w[f"layers.{i}.bias"]
        else:
            a, heads = w[f"scores.{2 * i}"], []
            for part, (out, into) in zip(np.split(h @ W.T, len(a[0]), axis=1), zip(*a)):
                e = (part @ out)[None, :] + (part @ into)[:, None]
                e = np.where(loops > 0, np.where(e > 0, e, 0.2 * e), -np.inf)
                e = loops * np.exp(e - e.max(axis=1, keepdims=True))
                heads.append(e / e.sum(axis=1, keepdims=True) @ part)
            last = i == depth - 1
            z = np.mean(heads, axis=0) if last else np.hstack(heads)
            z = z + w[f"scores.{2 * i + 1}"]
        bend = (
            np.maximum(z, 0)
            if model.layer != "gat"
            else np.where(z > 0, z, np.expm1(np.minimum(z, 0)))
        )
        h = z if i == depth - 1 else bend
    p = np.exp(h - h.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.catalog("GRF-02")
def test_renormalised_adjacency_has_eigenvalues_from_above_minus_one_to_one():
    Q = renormalized_adjacency(GRAPH).toarray()
    assert np.array_equal(Q, Q.T)
    values, vectors = np.linalg.eigh(Q)
    assert values[-1] == pytest.approx(1) and values[0] > -1
    v = np.sqrt(1 + GRAPH.sum(axis=1))
    np.testing.assert_allclose(Q @ v, v)
    top = vectors[:, -1] / vectors[0, -1]
    np.testing.assert_allclose(top, v / v[0], rtol=1e-8)
    i, j = 0, int(GRAPH.indices[0])
    d = 1 + GRAPH.sum(axis=1)
    assert Q[i, j] == pytest.approx(1 / np.sqrt(d[i] * d[j]))
    # Even of a bipartite graph, where D^{-1/2}AD^{-1/2} reaches −1.
    assert np.linalg.eigvalsh(renormalized_adjacency(PATH).toarray())[0] > -1


@pytest.mark.catalog("GRF-03")
@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
def test_a_network_is_its_formula_and_does_not_see_how_nodes_are_numbered(layer):
    model = NodeClassifier(layer, hidden_layer_sizes=(6, 5), max_iter=8, random_state=0)
    model.fit(X, Y, graph=GRAPH)
    wanted = dense_network(model, GRAPH.toarray(), X)
    np.testing.assert_allclose(model.label_distributions_, wanted, atol=1e-5)
    order = RNG.permutation(22)
    moved = model.predict_proba(X[order], graph=GRAPH[order][:, order])
    np.testing.assert_allclose(moved, model.label_distributions_[order], atol=1e-6)
    assert model.certificate_["equivariance"].met
    # How far gᵀd is from the slope by finite differences, as a share of it.
    assert model.certificate_["gradient_ratio"].value < 1e-6


@pytest.mark.catalog("GRF-03")
def test_gradients_of_mixing_are_those_of_finite_differences():
    Q = renormalized_adjacency(GRAPH)[:9]
    parts = []
    for M in (sparse.csr_array(Q), sparse.csr_array(Q.T)):
        parts += [torch.from_numpy(M.indptr.astype(np.int64))]
        parts += [
            torch.from_numpy(M.indices.astype(np.int64)),
            torch.from_numpy(M.data),
        ]
    h = torch.from_numpy(RNG.normal(size=(22, 2))).requires_grad_()
    assert torch.autograd.gradcheck(lambda h: Propagate.apply(h, *parts), h)
    assert torch.autograd.gradgradcheck(lambda h: Propagate.apply(h, *parts) ** 2, h)


@pytest.mark.catalog("GRF-04")
@pytest.mark.parametrize("hidden", [(4,), (4, 4)])
def test_a_prediction_reads_as_many_edges_as_there_are_layers(hidden):
    hops, rows = len(hidden) + 1, np.arange(8.0)[:, None] + [[0.0, 1.0]]
    model = NodeClassifier(hidden_layer_sizes=hidden, max_iter=5, random_state=0)
    model.fit(rows, [0, -1, -1, -1, -1, -1, -1, 1], graph=PATH)
    before = model.predict_proba(rows, graph=PATH)[0]
    for node in range(8):
        changed = rows.copy()
        changed[node] += 9.0
        after = model.predict_proba(changed, graph=PATH)[0]
        assert np.array_equal(before, after) == (node > hops)
    assert model.certificate_["reach"].value == hops
    Q = renormalized_adjacency(PATH).toarray()
    far = np.abs(np.subtract.outer(np.arange(8), np.arange(8))) > 1
    assert not Q[far].any() and Q[~far].all()


@pytest.mark.catalog("GRF-05")
def test_filters_commute_with_the_adjacency_and_only_some_graphs_have_no_others():
    A = GRAPH.toarray()
    H = graph_filter(GRAPH, [0.5, -1.0, 0.25, 0.1]).toarray()
    np.testing.assert_allclose(H @ A, A @ H, atol=1e-10)
    signal = RNG.normal(size=22)
    found = graph_filter(GRAPH, [0.5, -1.0, 0.25, 0.1], signal)
    np.testing.assert_allclose(found, H @ signal)
    # With A = I every matrix commutes, but all filters are multiples of I.
    H = graph_filter(np.eye(3), [1.0, 2.0, 3.0]).toarray()
    np.testing.assert_array_equal(H, 6 * np.eye(3))
    other = RNG.normal(size=(3, 3))
    np.testing.assert_array_equal(np.eye(3) @ other, other @ np.eye(3))


@pytest.mark.catalog("GRF-06")
def test_the_filter_with_two_equal_terms_grows_and_the_renormalised_one_does_not():
    one = np.sqrt(GRAPH.sum(axis=1))
    H = graph_filter(GRAPH, [1.0, 1.0], shift="normalized")
    assert np.linalg.eigvalsh(H.toarray())[-1] == pytest.approx(2)
    grown = kept = one
    for _ in range(20):
        grown = graph_filter(GRAPH, [1.0, 1.0], grown, shift="normalized")
        kept = graph_filter(GRAPH, [0.0, 1.0], kept, shift="renormalized")
    np.testing.assert_allclose(grown, 2.0**20 * one)
    assert np.linalg.norm(kept) <= np.linalg.norm(one)


@pytest.mark.catalog("GRF-07")
def test_on_a_ring_mixing_is_a_circular_convolution():
    n = 9
    Q = renormalized_adjacency([(i, (i + 1) % n) for i in range(n)])
    signal, window = RNG.normal(size=n), np.zeros(n)
    window[[0, 1, -1]] = 1 / 3
    wanted = np.fft.ifft(np.fft.fft(signal) * np.fft.fft(window)).real
    np.testing.assert_allclose(Q @ signal, wanted)
    dense = Q.toarray()
    np.testing.assert_allclose(np.roll(dense, (1, 1), axis=(0, 1)), dense)


def test_a_batch_computes_the_same_gradients_as_the_whole_graph():
    """Only what labelled nodes read is computed; a batch of all is the same step."""
    whole = NodeClassifier(dropout=0.0, max_iter=3, random_state=0).fit(
        X, Y, graph=GRAPH
    )
    n = int((Y >= 0).sum())
    batch = NodeClassifier(dropout=0.0, max_iter=3, batch_size=n, random_state=0)
    batch.fit(X, Y, graph=GRAPH)
    for name, value in whole.weights_.items():
        np.testing.assert_allclose(value, batch.weights_[name], atol=1e-6)


def test_sparse_features_and_none_are_those_of_dense_ones():
    options = {"dropout": 0.0, "max_iter": 5, "random_state": 0}
    for layer in ("gcn", "sage", "gat"):
        dense = NodeClassifier(layer, **options).fit(np.eye(22), Y, graph=GRAPH)
        thin = sparse.csr_array(np.eye(22))
        for other in (thin, None):
            model = NodeClassifier(layer, **options).fit(other, Y, graph=GRAPH)
            np.testing.assert_allclose(
                model.label_distributions_, dense.label_distributions_, atol=1e-5
            )
