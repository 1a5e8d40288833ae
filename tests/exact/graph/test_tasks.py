"""Nodes, links and graphs: what the tasks give on data whose truth is known."""

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from certus.graph import (
    LabelPropagation,
    LabelSpreading,
    LinkPredictor,
    NodeClassifier,
    PersonalizedPageRank,
    SGCClassifier,
    node_accuracy,
    stochastic_block_model,
)
from certus.neural_network import MLPClassifier

KARATE = nx.karate_club_graph()
OFFICER = np.array([club == "Officer" for _, club in KARATE.nodes(data="club")])


@pytest.mark.catalog("GRF-01", "GRF-08")
@pytest.mark.parametrize(
    "model",
    [NodeClassifier(random_state=0), SGCClassifier(), LabelPropagation()],
    ids=lambda model: type(model).__name__,
)
def test_two_labels_of_the_karate_club_determine_the_others(model):
    model.fit(None, {0: "Mr. Hi", 33: "Officer"}, graph=KARATE)
    assert np.sum((model.transduction_ == "Officer") == OFFICER) >= 32


@pytest.mark.catalog("GRF-08")
def test_a_graph_is_worth_twenty_points_where_there_are_eight_labels():
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        A, groups = stochastic_block_model(
            [200, 200], [[0.05, 0.01], [0.01, 0.05]], random_state=seed
        )
        X = rng.normal(size=(400, 8))
        X[:, 0] += 0.8 * (2 * groups - 1)
        y = np.full(400, -1)
        for c in (0, 1):
            y[rng.choice(np.flatnonzero(groups == c), 4, replace=False)] = c
        new = y < 0
        model = NodeClassifier(random_state=seed).fit(X, y, graph=A)
        alone = MLPClassifier((16,), solver="lbfgs", alpha=0.1, random_state=seed)
        alone.fit(X[~new], y[~new])
        right = [(m.predict(X) == groups)[new].mean() for m in (alone,)]
        gains.append((model.transduction_ == groups)[new].mean() - right[0])
        convex = SGCClassifier().fit(X, y, graph=A)
        assert convex.certificate_.met
        assert (convex.transduction_ == groups)[new].mean() > right[0]
    assert np.mean(gains) >= 0.2


@pytest.mark.catalog("GRF-09", "GRF-01")
def test_held_out_edges_score_higher_than_other_pairs():
    A, _ = stochastic_block_model(
        [60, 60], [[0.25, 0.02], [0.02, 0.25]], random_state=0
    )
    model = LinkPredictor(2, random_state=0).fit(A)
    assert model.certificate_["link_auc"].met
    assert model.certificate_["auc_of_all_pairs"].value > 0.7
    inside = model.decision_function([(0, 1), (60, 61)])
    across = model.decision_function([(0, 60), (1, 61)])
    assert inside.min() > across.max()
    # The score of a pair is the inner product of the nodes' vectors, written out.
    Q = np.asarray(model.graph_.todense()) + np.eye(120)
    d = Q.sum(axis=1)
    low = model.eigenvectors_ * model.eigenvalues_**2 @ model.eigenvectors_.T
    assert model.decision_function([(3, 7)])[0] == pytest.approx(
        np.sqrt(d[3] * d[7]) * low[3, 7]
    )
    assert not any(model.graph_[i, j] for i, j in model.held_edges_)


@pytest.mark.catalog("GRF-09")
def test_links_of_les_miserables_have_an_interval():
    model = LinkPredictor(validation_fraction=0.2, random_state=0).fit(
        nx.les_miserables_graph()
    )
    claim = model.certificate_["link_auc"]
    assert claim.strength.value == "statistical" and claim.value > 0.7
    assert model.certificate_["auc_of_all_pairs"].value > 0.85


@pytest.mark.catalog("GRF-10")
def test_the_block_model_has_the_densities_it_is_asked_for():
    sizes, P = [300, 200], np.array([[0.1, 0.02], [0.02, 0.3]])
    A, groups = stochastic_block_model(sizes, P, random_state=0)
    assert (A != A.T).nnz == 0 and not A.diagonal().any() and set(A.data) == {1.0}
    for a, b in ((0, 0), (0, 1), (1, 1)):
        n, m = sizes[a], sizes[b]
        pairs = n * (n - 1) // 2 if a == b else n * m
        edges = A[groups == a][:, groups == b].sum() / (2 if a == b else 1)
        assert 1e-4 < stats.binom.cdf(edges, pairs, P[a, b]) < 1 - 1e-4
    full, _ = stochastic_block_model([40], [[1.0]], random_state=0)
    assert full.sum() == 40 * 39  # every pair once


def test_every_pair_of_a_group_is_as_likely_as_the_others():
    counts = np.zeros((6, 6))
    for seed in range(300):
        counts += stochastic_block_model([6], [[0.5]], random_state=seed)[0].toarray()
    above = counts[np.triu_indices(6, 1)]
    assert stats.chisquare(above).pvalue > 1e-4


def test_personalised_pagerank_is_the_solution_of_its_system():
    A = nx.to_numpy_array(KARATE)
    model = PersonalizedPageRank().fit(KARATE, {0: 1.0, 5: 3.0})
    v = np.zeros(34)
    v[[0, 5]] = 0.25, 0.75
    P = A / A.sum(axis=1, keepdims=True)
    wanted = np.linalg.solve(np.eye(34) - 0.85 * P.T, 0.15 * v)
    np.testing.assert_allclose(model.scores_, wanted, atol=1e-11)
    # Direction counts, and a node without a way out begins again.
    model = PersonalizedPageRank().fit([(0, 1), (1, 2)])
    P = np.array([[0, 1, 0], [0, 0, 1], [1 / 3, 1 / 3, 1 / 3]])
    wanted = np.linalg.solve(np.eye(3) - 0.85 * P.T, np.full(3, 0.05))
    np.testing.assert_allclose(model.scores_, wanted, atol=1e-10)


@pytest.mark.parametrize("form", ["sparse", "dense", "edges", "networkx", "pyg"])
def test_a_graph_may_come_in_any_form(form):
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]
    graph = nx.Graph(edges)
    A = nx.to_scipy_sparse_array(graph, nodelist=range(5), format="csr")

    class Data:
        edge_index = np.vstack([np.array(edges), np.array(edges)[:, ::-1]]).T
        edge_weight = None
        num_nodes = 5
        x = None

    ordered = nx.Graph()
    ordered.add_nodes_from(range(5))
    ordered.add_edges_from(edges)
    forms = {"sparse": A, "dense": A.toarray(), "edges": edges, "networkx": ordered}
    found = LabelSpreading().fit(
        None, [0, -1, 1, -1, -1], graph=forms.get(form, Data())
    )
    wanted = LabelSpreading().fit(None, [0, -1, 1, -1, -1], graph=A)
    np.testing.assert_allclose(found.label_distributions_, wanted.label_distributions_)
    assert found.certificate_["graph_kept"].met


def test_accuracy_on_held_out_nodes_is_hypergeometric():
    A, groups = stochastic_block_model(
        [100, 100], [[0.1, 0.02], [0.02, 0.1]], random_state=0
    )
    inside = 0
    for seed in range(40):
        order = np.random.default_rng(seed).permutation(200)
        trained, looked = np.full(200, -1), np.full(200, -1)
        trained[order[:12]] = groups[order[:12]]
        looked[order[12:52]] = groups[order[12:52]]
        model = LabelPropagation().fit(None, trained, graph=A)
        claim = node_accuracy(model, looked, trained, delta=0.2)["node_accuracy"]
        truth = (model.transduction_ == groups)[order[12:]].mean()
        inside += claim.value <= truth + 1e-12
    assert stats.binom.cdf(40 - inside, 40, 0.1) < 0.999
