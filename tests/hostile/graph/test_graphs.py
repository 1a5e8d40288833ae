"""Graphs that are damaged, directed, in parts or empty; labels that are missing."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import certus
from certus.edges import read_graph, read_labels
from certus.graph import (
    LabelPropagation,
    LabelSpreading,
    LinkPredictor,
    NodeClassifier,
    PersonalizedPageRank,
    SGCClassifier,
    SpectralClustering,
    graph_filter,
    node_accuracy,
    renormalized_adjacency,
    stochastic_block_model,
)
from certus.verify.graph_reading import adjacency

PATH = [(0, 1), (1, 2), (2, 3)]
Y = [0, -1, -1, 1]
MODELS = [
    LabelPropagation(),
    LabelSpreading(),
    SGCClassifier(),
    NodeClassifier(max_iter=2, random_state=0),
]


def named(model):
    return type(model).__name__


def holed(value):
    A = np.ones((4, 4))
    A[0, 1] = A[1, 0] = value
    return A


BAD = [
    (holed(-1.0), "must not be negative"),
    (holed(np.nan), "NaN or infinite"),
    (holed(np.inf), "NaN or infinite"),
    (np.triu(np.ones((4, 4))), "directed"),
    (np.ones((4, 5)), "graph must be"),
    (np.ones((3, 3)), "3 nodes"),
    (np.zeros((0, 0)), "empty|nodes"),
    ("friends", "graph must be"),
    ([(0, 9)], "between 0 and|nodes"),
    ([(-1, 2)], "between 0 and"),
    ([(0.5, 2)], "whole numbers"),
    ([(0, 1, 1.0), (0, 1, 2.0)], "twice with different weights"),
    ([(0, 1, 1.0), (1, 0, 2.0)], "twice with different weights"),
    (nx.DiGraph(PATH), "directed"),
    (np.ones((4, 4), dtype=complex), "graph"),
]


@pytest.mark.parametrize(("graph", "words"), BAD)
def test_a_bad_graph_is_named(graph, words):
    with pytest.raises(ValueError, match=words):
        LabelPropagation().fit(None, Y, graph=graph)


@pytest.mark.parametrize(("graph", "words"), BAD[:4])
@pytest.mark.parametrize("model", MODELS[1:], ids=named)
def test_every_model_reads_graphs_in_the_same_way(model, graph, words):
    with pytest.raises(ValueError, match=words):
        model.fit(None, Y, graph=graph)


def test_damaged_sparse_matrices_are_found():
    A = sparse.csr_array(np.ones((4, 4)))
    A.indices[0] = 77
    with pytest.raises(ValueError, match="damaged"):
        LabelPropagation().fit(None, Y, graph=A)


LABELS = [
    ([-1, -1, -1, -1], "holds no labels"),
    ([0, 1], "one label for|4 nodes"),
    (None, "requires y"),
    ({9: 1}, "names the node 9"),
    ([0.5, -1, 1.25, 3.7], "continuous|label type"),
    ([np.nan, -1, -1, 1], "NaN|label type"),
]


@pytest.mark.parametrize(("y", "words"), LABELS)
@pytest.mark.parametrize("model", [*MODELS[:1], *MODELS[2:]], ids=named)
def test_bad_labels_are_named(model, y, words):
    with pytest.raises(ValueError, match=words):
        model.fit(None, y, graph=PATH)


def test_one_label_only():
    for model in MODELS[:2]:
        model.fit(None, [7, -1, -1, -1], graph=PATH)
        assert (model.transduction_ == 7).all() and model.certificate_.met
    for model in MODELS[2:]:
        with pytest.raises(ValueError, match="class"):
            model.fit(None, [7, -1, -1, -1], graph=PATH)


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_graphs_in_parts_isolated_nodes_and_loops(model):
    graph = sparse.block_diag([np.ones((3, 3)), np.ones((3, 3)), [[0.0]], [[5.0]]])
    y = [0, -1, -1, 1, -1, -1, -1, -1]
    if isinstance(model, NodeClassifier):
        model = NodeClassifier(random_state=0)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(None, y, graph=graph)
    np.testing.assert_array_equal(model.transduction_[:6], [0, 0, 0, 1, 1, 1])
    assert np.isfinite(model.label_distributions_).all()
    if isinstance(model, LabelPropagation | LabelSpreading):
        assert model.certificate_["unreached_nodes"].value == 2
        assert model.certificate_.met


def test_an_edge_that_is_listed_twice_counts_once():
    edges = [(0, 1), (1, 0), (0, 1), (2, 2), (1, 2)]
    A = read_graph(edges).A.toarray()
    np.testing.assert_array_equal(A, [[0, 1, 0], [1, 0, 1], [0, 1, 1]])
    # Parallel edges of networkx, and entries of a matrix, add up.
    many = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    assert read_graph(many).A[0, 1] == 2
    twice = sparse.coo_array(([1.0, 1.0, 2.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert read_graph(twice).A[0, 1] == 2


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_edges_may_leave_out_the_last_nodes(model):
    X, y = np.random.default_rng(0).normal(size=(5, 2)), [0, 1, -1, -1, -1]
    with certus.config_context(on_uncertified="ignore"):
        short = model.fit(X, y, graph=[(0, 1)]).label_distributions_
        whole = np.zeros((5, 5))
        whole[0, 1] = whole[1, 0] = 1.0
        model.fit(X, y, graph=whole)
    np.testing.assert_array_equal(short, model.label_distributions_)
    with pytest.raises(ValueError, match="between 0 and 4"):
        model.fit(X, y, graph=[(0, 7)])


def test_labels_count_the_nodes_that_edges_leave_out():
    for model in MODELS[:2]:
        model.fit(None, [0, 1, -1, -1], graph=[(0, 1)])
        assert model.certificate_.met and model.label_distributions_.shape == (4, 2)
        assert model.certificate_["unreached_nodes"].value == 2
        model.fit(None, [0, 1], graph=[])
        np.testing.assert_array_equal(model.transduction_, [0, 1])


FORMS = [
    [(0, 1), (1, 2), (2, 0), (3, 3)],
    [(0, 1, 2.5), (1, 2, 0.5), (3, 2, 1.0)],
    np.array([[0, 1], [1, 2], [2, 3], [0, 3], [1, 3]]),
    np.array([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]),
    holed(3.0),
    sparse.csc_array(holed(3.0)),
    nx.path_graph(4),
    nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 3), (3, 3)]),
]


ARROWS = sparse.csr_array(np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]))
MINUS = sparse.csr_array(np.array([[0.0, -1, 0], [-1, 0, 1], [0, 1, 0]]))


@pytest.mark.parametrize(
    ("model", "graph", "words"),
    [
        (LinkPredictor(1), ARROWS, "graph is directed"),
        (LinkPredictor(1), nx.DiGraph([(0, 1), (1, 2)]), "to_undirected"),
        (LinkPredictor(1), MINUS, "must not be negative"),
        (LinkPredictor(1), [(0, 1, -2.0), (1, 2, 1.0)], "must not be negative"),
        (PersonalizedPageRank(), MINUS, "must not be negative"),
        (PersonalizedPageRank(), [(0, 1, -1.0), (1, 2, 1.0)], "must not be negative"),
    ],
)
def test_directed_and_negative_edges_get_a_clear_message(model, graph, words):
    with pytest.raises(ValueError, match=words):
        model.fit(graph)


@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
def test_networks_learn_from_batches_of_one_node(layer):
    A, groups = stochastic_block_model(
        [20, 20], [[0.5, 0.1], [0.1, 0.5]], random_state=0
    )
    y = np.where(np.arange(40) % 5 == 0, groups, -1)
    model = NodeClassifier(layer, batch_size=1, max_iter=20, random_state=0)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(None, y, graph=A)
    assert (model.transduction_ == groups).mean() > 0.9
    assert model.certificate_["equivariance"].met


@pytest.mark.parametrize("graph", FORMS)
def test_both_readers_of_graphs_agree(graph):
    A = read_graph(graph, 4).A
    np.testing.assert_array_equal(A.toarray(), adjacency(graph, 4).toarray())
    B = read_graph(graph, 4, directed=True).A
    np.testing.assert_array_equal(B.toarray(), adjacency(graph, 4, True).toarray())


def test_labels_may_be_words_and_names_may_be_anything():
    graph = nx.Graph([("a", ("b", 1)), (("b", 1), 3.5)])
    model = LabelPropagation().fit(None, {"a": "left", 3.5: "right"}, graph=graph)
    assert model.classes_.tolist() == ["left", "right"]
    np.testing.assert_allclose(model.label_distributions_[1], 0.5)
    assert read_labels(["x", None, "y"], 3).tolist() == ["x", None, "y"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LabelPropagation(kernel="poly").fit([[0.0]], [0]), "kernel must be"),
        (lambda: LabelSpreading(alpha=1).fit(None, Y, graph=PATH), "alpha"),
        (lambda: LabelSpreading(alpha=0).fit(None, Y, graph=PATH), "alpha"),
        (lambda: LabelPropagation("knn").fit(np.eye(3), [0, 1, -1]), "n_neighbors"),
        (lambda: LabelPropagation(max_iter=0).fit(None, Y, graph=PATH), "max_iter"),
        (lambda: NodeClassifier("gin").fit(None, Y, graph=PATH), "layer must be"),
        (lambda: NodeClassifier(dropout=2).fit(None, Y, graph=PATH), "dropout"),
        (lambda: NodeClassifier().fit(None, Y), "Pass X, graph or both"),
        (lambda: SGCClassifier(-1).fit(None, Y, graph=PATH), "steps must be"),
        (
            lambda: SGCClassifier().fit(np.ones((3, 2)), Y, graph=PATH),
            "between 0 and 2",
        ),
        (lambda: PersonalizedPageRank(1).fit(PATH), "damping must be"),
        (lambda: PersonalizedPageRank().fit(PATH, [0, 0, 0, 0]), "not all zero"),
        (lambda: PersonalizedPageRank().fit(PATH, {8: 1.0}), "names the node"),
        (lambda: LinkPredictor(0).fit(PATH), "n_components"),
        (lambda: LinkPredictor().fit(PATH).decision_function([(0, 9)]), "nodes from"),
        (lambda: LinkPredictor().fit(PATH).decision_function([0.5]), "whole numbers"),
        (lambda: graph_filter(PATH, []), "coefficients"),
        (lambda: graph_filter(PATH, [1.0], [1.0]), "4 nodes"),
        (lambda: graph_filter(PATH, [1.0], shift="laplacian"), "shift must be"),
        (lambda: renormalized_adjacency(None), "got None"),
        (lambda: stochastic_block_model([3], [[1.5]]), "between 0 and 1"),
        (lambda: stochastic_block_model([3, 3], [[1, 0], [1, 1]]), "symmetric"),
        (lambda: stochastic_block_model([0], [[1.0]]), "at least 1"),
        (lambda: SpectralClustering(9, affinity="precomputed").fit(PATH), "n_clusters"),
        (
            lambda: SpectralClustering(2, affinity="precomputed").fit(
                np.triu(np.ones((4, 4)))
            ),
            "symmetric",
        ),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_models_of_graphs_say_what_they_cannot_predict():
    model = LabelPropagation().fit(None, Y, graph=PATH)
    with pytest.raises(ValueError, match="fitted on a graph"):
        model.predict([[0.0]])
    model = SGCClassifier().fit(None, Y, graph=PATH)
    with pytest.raises(ValueError, match="without features"):
        model.predict([[0.0]])
    with pytest.raises(ValueError, match="one feature for each node"):
        model.predict(graph=[(0, 1)])
    with pytest.raises(ValueError, match="at least 1 node"):
        node_accuracy(model, Y, Y)


def test_clusters_of_graphs_in_parts_cut_nothing():
    graph = sparse.block_diag([np.ones((5, 5)), np.ones((4, 4))])
    model = SpectralClustering(2, affinity="precomputed", random_state=0).fit(graph)
    claim = model.certificate_["normalised_cut"]
    assert claim.strength.value == "proved" and claim.value == 1
    # Kernels with negative values have no cuts.
    X = np.random.default_rng(0).normal(size=(12, 3))
    with certus.config_context(on_uncertified="ignore"):
        refused = SpectralClustering(2, affinity="linear", random_state=0).fit(X)
    assert refused.certificate_.claims[0].strength.value == "refused"


def test_a_nearly_disconnected_graph_is_solved_or_reported_as_undecided():
    for weight in (1e-3, 1e-9, 1e-15, 1e-300):
        A = np.ones((8, 8))
        A[:4, 4:] = A[4:, :4] = weight
        y = [0, 1, -1, -1, -1, -1, -1, -1]
        with certus.config_context(on_uncertified="ignore"):
            model = LabelPropagation().fit(None, y, graph=A)
        if model.certificate_.met:  # by symmetry
            np.testing.assert_allclose(model.label_distributions_[2:], 0.5, atol=1e-3)


def test_time_and_interruption_keep_what_there_is():
    A, groups = stochastic_block_model(
        [3000, 3000], [[2e-3, 1e-4], [1e-4, 2e-3]], random_state=0
    )
    y = np.where(np.arange(6000) % 100 == 0, groups, -1)
    with certus.config_context(on_uncertified="ignore"):
        model = LabelPropagation(max_time=0).fit(None, y, graph=A)
        short = LabelPropagation(max_iter=2).fit(None, y, graph=A)
    assert model.certificate_.status.value == "time_limit"
    assert short.certificate_.met is False and short.n_iter_ == 2
    assert LabelPropagation().fit(None, y, graph=A).certificate_.met


@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
def test_networks_resume_from_a_checkpoint_bit_for_bit(tmp_path, layer):
    A, groups = stochastic_block_model(
        [20, 20], [[0.5, 0.1], [0.1, 0.5]], random_state=0
    )
    y = np.where(np.arange(40) % 5 == 0, groups, -1)
    options = {"layer": layer, "n_iter_no_change": 99, "random_state": 0}
    with certus.config_context(on_uncertified="ignore"):
        whole = NodeClassifier(max_iter=6, **options).fit(None, y, graph=A)
        folder = tmp_path / "run"
        part = NodeClassifier(max_iter=6, max_time=1e-9, checkpoint=folder, **options)
        assert len(part.fit(None, y, graph=A).history_["loss"]) < 6
        again = NodeClassifier(max_iter=6, checkpoint=folder, **options)
        again.fit(None, y, graph=A)
    for name, value in whole.weights_.items():
        np.testing.assert_array_equal(again.weights_[name], value)
    np.testing.assert_array_equal(
        again.label_distributions_, whole.label_distributions_
    )
