"""Planted faults in solvers, parameters, data, dtypes and files of graph models."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import certus
from certus.certificate import Status, Strength
from certus.edges import read_labels
from certus.graph import (
    LabelPropagation,
    LabelSpreading,
    LinkPredictor,
    NodeClassifier,
    PersonalizedPageRank,
    SGCClassifier,
    SpectralClustering,
    stochastic_block_model,
)
from certus.verify.links import area

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)
GRAPH, GROUPS = stochastic_block_model(
    [25, 25], [[0.4, 0.05], [0.05, 0.4]], random_state=3
)
Y = np.where(np.arange(50) % 5 == 0, GROUPS, -1)
X = RNG.normal(size=(50, 3)) + GROUPS[:, None]
CLUB = nx.karate_club_graph()
TWO = {0: "Mr. Hi", 33: "Officer"}


# -- links ------------------------------------------------------------------------


@pytest.fixture
def links():
    return LinkPredictor(3, validation_fraction=0.2, random_state=0).fit(GRAPH)


def test_pairs_held_out_are_compared_with_the_graph(links):
    assert certus.certify(links, GRAPH)["link_auc"].met
    assert certus.certify(links, (None, GRAPH))["link_auc"].met
    alone = certus.certify(links)
    assert alone["link_auc"].strength is Strength.REFUSED and alone.met
    edges = links.held_edges_
    links.held_edges_ = np.vstack([edges, links.held_non_edges_[:1]])
    with pytest.raises(ValueError, match="pairs that are not edges"):
        certus.certify(links, GRAPH)
    links.held_edges_ = np.vstack([edges, edges[:1, ::-1]])
    with pytest.raises(ValueError, match="a pair twice"):
        certus.certify(links, GRAPH)
    links.held_edges_ = edges
    links.held_non_edges_ = np.vstack([links.held_non_edges_, edges[:1]])
    with pytest.raises(ValueError, match="edges of the graph"):
        certus.certify(links, GRAPH)


def test_edges_that_were_trained_on_prove_nothing(links):
    trained = np.argwhere(sparse.triu(links.graph_, 1).toarray())[:4]
    links.held_edges_ = trained
    with pytest.raises(ValueError, match="trained on"):
        certus.certify(links, GRAPH)


def test_links_of_another_graph_have_no_interval(links):
    other, _ = stochastic_block_model([25, 25], np.full((2, 2), 0.2), random_state=9)
    found = certus.certify(links, other)
    assert found["graph_kept"].met is False and "link_auc" not in found


def test_the_area_is_that_of_all_pairs():
    a, b = RNG.integers(0, 6, 40).astype(float), RNG.integers(0, 5, 30).astype(float)
    wanted = (a[:, None] > b).mean() + (a[:, None] == b).mean() / 2
    assert area(a, b) == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize(
    "graph",
    [
        np.ones((6, 6)) - np.eye(6),  # every pair is an edge
        np.zeros((5, 5)),
        np.zeros((1, 1)),
        np.eye(4),
        [(0, 1)],
    ],
)
def test_graphs_without_pairs_to_hold_out(graph):
    model = LinkPredictor(2, random_state=0).fit(graph)
    assert model.certificate_["link_auc"].strength is Strength.REFUSED
    assert model.certificate_.met


# -- clusters ---------------------------------------------------------------------


def test_a_wrong_number_of_clusters_is_found():
    model = SpectralClustering(2, affinity="precomputed", random_state=0).fit(CLUB)
    assert model.certificate_["normalised_cut"].strength is Strength.PROVED
    whole = model.labels_
    for wrong in (np.zeros(34, dtype=int), np.arange(34), np.r_[whole[:-1], 2]):
        model.labels_ = wrong
        found = certus.certify(model, CLUB)
        assert found.met is False and "normalised_cut" not in found
    model.labels_, model.n_clusters = whole, 3
    assert certus.certify(model, CLUB).met is False


def test_clusters_with_isolated_nodes_loops_and_twins():
    A = sparse.block_diag([np.ones((5, 5)), np.ones((5, 5)), [[0.0]], [[3.0]]])
    A = sparse.lil_array(A)
    A[0, 9] = A[9, 0] = 0.1
    model = SpectralClustering(2, affinity="precomputed", random_state=0)
    model.fit(sparse.csr_array(A))
    assert np.isfinite(model.certificate_.claims[0].value)
    for bad in (nx.DiGraph([(0, 1), (1, 2)]), [(0, 1, -1.0), (1, 2, 1.0)]):
        with pytest.raises(ValueError, match=r"directed|negative"):
            SpectralClustering(2, affinity="precomputed").fit(bad)


# -- walks and labels -------------------------------------------------------------


def test_walks_begin_where_they_were_asked_to():
    model = PersonalizedPageRank().fit(CLUB, {3: 1.0})
    assert certus.certify(model, CLUB, {3: 1.0}).met
    assert certus.certify(model, CLUB, {4: 1.0}).met is False
    assert certus.certify(model, CLUB, np.ones(34)).met is False
    with pytest.raises(ValueError, match="names the node"):
        certus.certify(model, CLUB, {99: 1.0})


def test_a_solver_that_reads_starts_wrongly_is_found(monkeypatch):
    from certus.graph import pagerank

    right = pagerank._beginnings
    monkeypatch.setattr(
        pagerank, "_beginnings", lambda *given: np.roll(right(*given), 1)
    )
    assert PersonalizedPageRank().fit(CLUB, {3: 1.0}).certificate_.met is False


@pytest.mark.parametrize(
    "model",
    [
        LabelPropagation(),
        LabelSpreading(),
        SGCClassifier(),
        NodeClassifier(max_iter=3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_labels_given_as_a_dict_can_be_certified_as_they_were_given(model):
    model.fit(None, TWO, graph=CLUB)
    found = certus.certify(model, (None, CLUB), TWO)
    assert found.status is not Status.REFUTED
    assert found.met == model.certificate_.met
    line = read_labels(TWO, 34, list(CLUB.nodes))
    again = certus.certify(model, (None, CLUB), line)
    assert again.claims[0].value == pytest.approx(found.claims[0].value)


@pytest.mark.parametrize("kind", [LabelPropagation, SGCClassifier])
def test_a_solver_that_puts_labels_on_other_nodes_is_found(monkeypatch, kind):
    from certus.graph import sgc
    from certus.semi_supervised import label_propagation

    home = sgc if kind is SGCClassifier else label_propagation
    monkeypatch.setattr(
        home, "read_labels", lambda *given: np.roll(read_labels(*given), 1)
    )
    assert kind().fit(None, TWO, graph=CLUB).certificate_.met is False


def test_a_solver_that_mixes_differently_is_found(monkeypatch):
    from certus.graph import sgc

    monkeypatch.setattr(sgc, "renormalized", lambda A: sparse.csr_array(A / 4.0))
    assert SGCClassifier().fit(X, Y, graph=GRAPH).certificate_.met is False


@pytest.mark.parametrize("name", ["weights", "X_", "graph_"])
def test_changed_parts_of_networks_are_found(name, tmp_path):
    model = NodeClassifier(max_iter=3, random_state=0).fit(X, Y, graph=GRAPH)
    assert model.certificate_["equivariance"].met
    if name == "weights":
        with certus.config_context(on_uncertified="ignore"):
            next(model.module_.parameters()).data += 0.05
    elif name == "X_":
        model.X_ = model.X_[::-1].copy()
    else:
        model.graph_ = sparse.csr_array(model.graph_[::-1][:, ::-1])
    again = certus.load(model.save(tmp_path / "changed.certus"))
    found = certus.certify(again, (X, GRAPH), Y)
    assert any(claim.met is False for claim in found.claims), name


@pytest.mark.parametrize(
    "kind", [LabelPropagation, LabelSpreading, SGCClassifier, PersonalizedPageRank]
)
def test_a_file_whose_graph_has_a_direction_is_found(kind, tmp_path):
    ranks = kind is PersonalizedPageRank
    model = kind().fit(GRAPH) if ranks else kind().fit(X, Y, graph=GRAPH)
    model.graph_ = sparse.csr_array(sparse.triu(GRAPH))
    again = certus.load(model.save(tmp_path / "forged.certus"))
    given = (GRAPH,) if ranks else ((X, GRAPH), Y)
    if kind is SGCClassifier:
        with pytest.raises(ValueError, match="not a symmetric matrix"):
            certus.certify(again, *given)
        return
    found = certus.certify(again, *given)
    assert found["graph_kept"].met is False and found.met is False


@pytest.mark.parametrize("dtype", [np.float32, np.int32, bool])
def test_a_graph_of_another_dtype_gives_the_same(dtype):
    A = GRAPH.astype(dtype)
    for kind in (LabelPropagation, LabelSpreading, SGCClassifier):
        one = kind().fit(None, Y, graph=A)
        two = kind().fit(None, Y, graph=GRAPH)
        np.testing.assert_array_equal(
            one.label_distributions_, two.label_distributions_
        )
        assert one.certificate_.met and one.certificate_["graph_kept"].met


@pytest.mark.parametrize("size", [1e-320, 1e-280, 1e280, 1.7e308])
def test_weights_of_any_size_are_solved_or_refused(size):
    A, y = sparse.csr_array(np.ones((6, 6)) * size), [0, -1, -1, -1, -1, 1]
    labels = (LabelPropagation(), LabelSpreading(), SGCClassifier())
    others = (PersonalizedPageRank(), LinkPredictor(2, random_state=0))
    fits = [lambda m=m: m.fit(None, y, graph=A) for m in labels]
    fits += [lambda m=m: m.fit(A) for m in others]
    for fit in fits:
        if not 1e-290 < size < 1e290:
            with pytest.raises(ValueError, match="scale all of them"):
                fit()
            continue
        model = fit()
        if isinstance(model, LabelPropagation):
            assert model.certificate_.met
            np.testing.assert_allclose(model.label_distributions_[1:5], 0.5)
        if isinstance(model, PersonalizedPageRank):
            assert model.certificate_.met
            np.testing.assert_allclose(model.scores_, 1 / 6)


# -- callbacks and limits ---------------------------------------------------------


class Stop:
    """Counts steps and stops a fit at the second one."""

    def __init__(self):
        self.steps = 0

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context, **more):
        self.steps += context.task_name == "step"
        return self.steps >= 2


def sparse_case():
    A, groups = stochastic_block_model(
        [1500, 1500], [[4e-3, 2e-4], [2e-4, 4e-3]], random_state=0
    )
    return A, np.where(np.arange(3000) % 100 == 0, groups, -1)


def test_callbacks_stop_iterations_of_graph_models():
    A, y = sparse_case()
    for model in (LabelPropagation(), LabelSpreading(alpha=0.99)):
        spy = Stop()
        model.set_callbacks(spy).fit(None, y, graph=A)
        assert spy.steps == 2 and model.n_iter_ == 2
        assert model.certificate_.status is Status.STOPPED
    spy = Stop()
    ranks = PersonalizedPageRank().set_callbacks(spy).fit(A)
    assert spy.steps == 2 and ranks.certificate_.status is Status.STOPPED


@pytest.mark.parametrize(
    "kind", [LabelPropagation, LabelSpreading], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("given", ["edges", "rows"])
def test_labels_go_on_from_the_last_iteration(kind, given):
    more = {"alpha": 0.99} if kind is LabelSpreading else {}
    if given == "edges":
        (A, y), inputs = sparse_case(), {}
        rows, inputs = None, {"graph": A}
    else:  # a system that is not symmetric
        rng = np.random.default_rng(0)
        rows, inputs = rng.normal(size=(2100, 2)), {}
        y = np.where(np.arange(2100) % 30 == 0, rows[:, 0] > 0, -1)
        more["kernel"] = "knn"
    whole = kind(max_iter=1000, **more).fit(rows, y, **inputs)
    part = kind(max_iter=5, warm_start=True, **more).fit(rows, y, **inputs)
    short = part.certificate_["propagation_error"].value
    part.set_params(max_iter=1000).fit(rows, y, **inputs)
    assert part.certificate_["propagation_error"].value < 1e-4 * short
    np.testing.assert_allclose(
        part.label_distributions_, whole.label_distributions_, atol=1e-7
    )
    part.fit(rows, y, **inputs)
    assert part.n_iter_ <= 3  # there is nothing left to do
    other = np.where(y >= 0, np.arange(len(y)) % 3, -1)
    fresh = kind(max_iter=1000, **more).fit(rows, other, **inputs)
    part.fit(rows, other, **inputs)  # other classes: it begins again
    np.testing.assert_array_equal(part.label_distributions_, fresh.label_distributions_)


def test_pagerank_goes_on_from_the_last_iteration():
    A, _ = sparse_case()
    whole = PersonalizedPageRank().fit(A)
    part = PersonalizedPageRank(max_iter=4, warm_start=True).fit(A)
    assert part.certificate_.met is False
    part.set_params(max_iter=1000).fit(A)
    assert part.n_iter_ == whole.n_iter_ - 4
    np.testing.assert_array_equal(part.scores_, whole.scores_)
    part.fit(A[:50, :50])  # another graph: it begins again
    np.testing.assert_array_equal(
        part.scores_, PersonalizedPageRank().fit(A[:50, :50]).scores_
    )


@pytest.mark.parametrize("k", [2, 3])
def test_a_convex_fit_on_a_graph_goes_on_from_the_last_coefficients(k):
    y = np.where(Y < 0, -1, np.arange(50) // 5 % k)
    options = {"C": 1e4, "tol": 1e-10}
    whole = SGCClassifier(**options).fit(X, y, graph=GRAPH)
    part = SGCClassifier(max_iter=2, warm_start=True, **options).fit(X, y, graph=GRAPH)
    assert part.certificate_.met is False
    part.set_params(max_iter=100).fit(X, y, graph=GRAPH)
    assert part.certificate_.met and part.n_iter_[0] < whole.n_iter_[0]
    part.fit(X, y, graph=GRAPH)
    assert part.n_iter_[0] <= 1


def test_callbacks_see_eigendecompositions():
    class Ends:
        begun = ended = 0

        def setup(self, estimator, context): ...

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context):
            self.begun += 1

        def on_fit_task_end(self, estimator, context, **more):
            self.ended += 1

    for model in (LinkPredictor(2), SpectralClustering(2, affinity="precomputed")):
        spy = Ends()
        model.set_callbacks(spy).fit(GRAPH)
        assert spy.begun == spy.ended == 1


def test_a_convex_fit_on_a_graph_reports_its_steps():
    plain = SGCClassifier(C=1e4, tol=1e-12).fit(X, Y, graph=GRAPH)
    assert len(plain.history_["gap"]) >= 3 and plain.certificate_.met is not False
    spy = Stop()
    model = SGCClassifier(C=1e4, tol=1e-12).set_callbacks(spy).fit(X, Y, graph=GRAPH)
    assert spy.steps == 2 and len(model.history_["gap"]) == 2
    assert model.certificate_.status is Status.STOPPED
    late = SGCClassifier(C=1e4, tol=1e-12, max_time=0.0).fit(X, Y, graph=GRAPH)
    assert late.certificate_.status is Status.TIME_LIMIT
    assert "max_time" in late.certificate_.claims[0].fix


def test_a_convex_fit_on_a_graph_checks_its_parameters():
    for change, words in (
        ({"C": -1.0}, "C must be"),
        ({"tol": -1.0}, "tol must be"),
        ({"class_weight": {0: 0.0}}, "Only one class"),
        ({"class_weight": "even"}, "class_weight must be"),
    ):
        with pytest.raises(ValueError, match=words):
            SGCClassifier(**change).fit(X, Y, graph=GRAPH)
    weighted = SGCClassifier(class_weight={0: 3.0}).fit(X, Y, graph=GRAPH)
    assert weighted.certificate_.met
    free = SGCClassifier(C=np.inf).fit(X[:, :1] * 0 + GROUPS[:, None], Y, graph=GRAPH)
    assert free.certificate_.status is Status.NO_MINIMISER
