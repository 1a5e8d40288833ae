"""Claims about graphs: bounds that hold, and faults that are found."""

import copy

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from scipy.stats import hypergeom

import certus
from certus.evidence import CutWitness, PropagationWitness
from certus.graph import (
    LabelPropagation,
    LabelSpreading,
    LinkPredictor,
    NodeClassifier,
    PersonalizedPageRank,
    SGCClassifier,
    SpectralClustering,
    renormalized_adjacency,
    stochastic_block_model,
)
from certus.verify import judge
from certus.verify.cuts import lower_bounds
from certus.verify.graph_networks import hypergeometric

#: A few epochs are enough for what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def judged(model, X, y, evidence=None):
    """The certificate of a model on data, with a witness of one's own."""
    return judge(model, evidence or model.certificate_.evidence, X, y)


RNG = np.random.default_rng(0)
GRAPH, GROUPS = stochastic_block_model(
    [15, 15], [[0.4, 0.1], [0.1, 0.4]], random_state=2
)
Y = np.where(np.arange(30) % 5 == 0, GROUPS, -1)
KARATE = nx.karate_club_graph()


def exact(model, A):
    """The solution of the system, by a dense factor."""
    A, n = np.asarray(A, dtype=float), len(A)
    hot = np.eye(2)[np.maximum(Y, 0)] * (Y >= 0)[:, None]
    if isinstance(model, LabelSpreading):
        root = np.sqrt(A.sum(axis=0))
        S = A / root / root[:, None]
        return np.linalg.solve(np.eye(n) - 0.2 * S, 0.8 * hot)
    P, u = A / A.sum(axis=1, keepdims=True), Y < 0
    hot[u] = np.linalg.solve((np.eye(n) - P)[u][:, u], P[u][:, ~u] @ hot[~u])
    return hot


@pytest.mark.parametrize("model", [LabelPropagation(), LabelSpreading()])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-4, 1e-2])
def test_the_error_stated_is_never_below_the_true_one(model, size):
    model.fit(None, Y, graph=GRAPH)
    wanted = exact(model, GRAPH.toarray())
    witness = model.certificate_.evidence.witness
    moved = size * RNG.normal(size=(30, 2)) * (Y < 0)[:, None]
    model.label_distributions_ = model.label_distributions_ + moved
    F = model.label_distributions_ * np.asarray(witness.totals)[:, None]
    claim = certus.certify(model, None, Y)["propagation_error"]
    true = np.abs(F - wanted).max()
    assert claim.value >= true * (1 - 1e-9)
    assert claim.value <= 1e-11 + 300 * size
    assert claim.met == (claim.value <= 1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "knn"])
def test_rows_that_make_a_graph_are_looked_at_again(kernel):
    X = np.vstack([RNG.normal(c, 0.4, (20, 2)) for c in (0, 2)])
    y = np.full(40, -1)
    y[[0, 20]] = 0, 1
    for model in (LabelPropagation(kernel, gamma=2), LabelSpreading(kernel, gamma=2)):
        model.fit(X, y)
        assert model.certificate_.met
        assert certus.certify(model, X, y).met
        moved = X.copy()
        moved[7] += 3.0
        assert certus.certify(model, moved, y).status.value != "solved"
        model.gamma = 5.0  # another problem
        if kernel == "rbf":
            assert certus.certify(model, X, y).met is False


FORGED = [
    PropagationWitness(),
    PropagationWitness(np.ones(30), np.ones(30)),
    PropagationWitness(np.ones(30), np.full(30, np.inf)),
    PropagationWitness(np.ones(30), -np.ones(30)),
    PropagationWitness(np.zeros(30), np.zeros(30)),
    PropagationWitness(np.ones(3), np.ones(3)),
    PropagationWitness(np.full(30, np.nan), np.full(30, np.nan)),
]


@pytest.mark.parametrize("kind", [LabelPropagation, LabelSpreading])
@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_witness_cannot_make_a_wrong_solution_right(kind, forged):
    model = kind().fit(None, Y, graph=GRAPH)
    model.label_distributions_[1] = model.label_distributions_[1][::-1]
    found = judged(
        model,
        (None, GRAPH),
        Y,
        evidence=certus.certificate.Evidence("propagation", forged),
    )
    claim = found["propagation_error"]
    wrong = np.abs(model.label_distributions_ - exact(model, GRAPH.toarray())).max()
    assert kind is LabelSpreading or claim.met is not True or wrong <= 1e-3
    if kind is LabelPropagation:
        assert claim.value >= wrong or claim.met is None


def test_changed_parts_of_models_are_found():
    model = LabelPropagation().fit(None, Y, graph=GRAPH)
    model.transduction_ = 1 - model.transduction_
    found = certus.certify(model, None, Y)
    assert found["settled_labels"].value == 0
    assert found["stated_labels"].met is False and found.met is False
    model = LabelPropagation().fit(None, Y, graph=GRAPH)
    model.graph_.data[0] = 7.0
    found = judged(model, (None, GRAPH), Y)
    assert found["graph_kept"].met is False
    model = PersonalizedPageRank().fit(GRAPH)
    model.scores_[0] += 1e-4
    assert certus.certify(model).met is False
    model = LinkPredictor(3, random_state=0).fit(GRAPH)
    model.eigenvalues_[1] += 1e-3
    assert certus.certify(model).met is False
    X = RNG.normal(size=(30, 3))
    model = SGCClassifier().fit(X, Y, graph=GRAPH)
    assert certus.certify(model, (X, GRAPH), Y).met
    moved = certus.certify(_moved(model), (X, GRAPH), Y)
    assert moved["equivariance"].met is False and moved["duality_gap"].met
    model.coef_ = model.coef_ * 1.1
    assert certus.certify(model, X, Y).met is False
    model = SGCClassifier().fit(X, Y, graph=GRAPH)
    model.n_steps = 1
    assert certus.certify(model, X, Y).met is False
    model = NodeClassifier(max_iter=5, random_state=0).fit(X, Y, graph=GRAPH)
    model.label_distributions_[3] = model.label_distributions_[3][::-1]
    assert certus.certify(model, X, Y)["equivariance"].met is False


def _moved(model):
    """The model with probabilities that its coefficients do not give."""
    other = copy.copy(model)
    other.label_distributions_ = 0.99 * model.label_distributions_ + 0.005
    return other


def all_cuts(A):
    """The smallest normalised cut and conductance over all bipartitions."""
    n, d, best, least = len(A), A.sum(axis=1), np.inf, np.inf
    for code in range(1, 2 ** (n - 1)):
        side = (code >> np.arange(n)) & 1 == 1
        cut, a, b = A[side][:, ~side].sum(), d[side].sum(), d[~side].sum()
        if min(a, b) > 0:
            best = min(best, cut / a + cut / b)
            least = min(least, cut / min(a, b))
    return best, least


@pytest.mark.parametrize("seed", range(4))
def test_no_cut_is_below_the_bound(seed):
    A, _ = stochastic_block_model([5, 5], [[0.8, 0.2], [0.2, 0.8]], random_state=seed)
    model = SpectralClustering(2, affinity="precomputed", random_state=0).fit(A)
    best, least = all_cuts(A.toarray())
    for name, optimum in (("normalised_cut", best), ("conductance", least)):
        claim = model.certificate_[name]
        found = float(claim.objective.split(";")[0].split()[-1])
        if found > 0 and claim.strength.value == "proved":
            assert found / claim.value <= optimum * (1 + 1e-3)
            assert claim.value < 6


def test_eigenvalues_are_bounded_from_below_whatever_the_vectors():
    A = GRAPH.toarray()
    root = np.sqrt(A.sum(axis=1))
    S = sparse.csr_array(A / root / root[:, None])
    true = 1 - np.sort(np.linalg.eigvalsh(S.toarray()))[::-1]
    good = np.linalg.eigh(S.toarray())[1][:, ::-1][:, :4]
    found = lower_bounds(S, good, 4)
    assert (found <= true[:4] + 1e-12).all()
    np.testing.assert_allclose(found[1:], true[1:4], rtol=1e-6)
    for _ in range(20):
        forged = np.linalg.qr(RNG.normal(size=(30, 4)))[0]
        assert (lower_bounds(S, forged, 4) <= true[:4] + 1e-12).all()
        near = np.linalg.qr(good + 0.05 * RNG.normal(size=(30, 4)))[0]
        assert (lower_bounds(S, near, 4) <= true[:4] + 1e-12).all()


def test_without_eigenvectors_of_the_fit_clusters_are_judged_all_the_same():
    model = SpectralClustering(2, affinity="precomputed", random_state=0).fit(KARATE)
    told = model.certificate_["normalised_cut"]
    none = certus.certificate.Evidence("graph_cut", CutWitness())
    again = judged(model, KARATE, None, evidence=none)["normalised_cut"]
    assert again.value == pytest.approx(told.value)
    model.labels_ = RNG.integers(2, size=34)
    assert judged(model, KARATE, None)["normalised_cut"].value > told.value


def test_nodes_without_a_path_to_a_label_are_named():
    graph = sparse.block_diag([GRAPH, GRAPH])
    y = np.r_[Y, np.full(30, -1)]
    for kind in (LabelPropagation, LabelSpreading):
        model = kind().fit(None, y, graph=graph)
        assert model.certificate_["unreached_nodes"].value == 30
        assert not model.label_distributions_[30:].any()
        assert model.certificate_["settled_labels"].value <= 30


def test_the_hypergeometric_interval_covers():
    total, n, delta = 25, 9, 0.1
    ends = [hypergeometric(k, n, total, delta) for k in range(n + 1)]
    for K in range(total + 1):
        odds = hypergeom.pmf(np.arange(n + 1), total, K, n)
        hit = np.array([low <= K <= high for low, high in ends])
        assert odds[hit].sum() >= 1 - delta - 1e-12
    assert hypergeometric(25, 25, 25, 0.1) == (25, 25)


@pytest.mark.parametrize(
    "model",
    [
        LabelPropagation(),
        LabelSpreading(),
        SGCClassifier(),
        NodeClassifier("gat", max_iter=3, random_state=0),
        LinkPredictor(3, random_state=0),
        PersonalizedPageRank(),
        SpectralClustering(2, affinity="precomputed", random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_come_back_from_files(model, tmp_path):
    takes_labels = hasattr(model, "predict")
    model = model.fit(None, Y, graph=GRAPH) if takes_labels else model.fit(GRAPH)
    again = certus.load(model.save(tmp_path / "model.certus"))
    y = Y if takes_labels else None
    found = certus.certify(again, None, y)
    assert found.met == model.certificate_.met
    assert found.status is not certus.certificate.Status.REFUTED
    if takes_labels:
        np.testing.assert_array_equal(again.predict(), model.predict())


def exact_mixing(A, X, depth):
    """Q^depth X in extended precision."""
    loops = (A + sparse.eye_array(A.shape[0])).toarray().astype(np.longdouble)
    root = np.sqrt(loops.sum(axis=1))
    for _ in range(depth):
        X = (loops / root[:, None] / root) @ X
    return X


@pytest.mark.parametrize("k", [2, 3])
def test_the_gap_counts_what_mixing_features_loses(k):
    A, groups = stochastic_block_model(
        [40] * k, np.full((k, k), 0.02) + 0.2 * np.eye(k), random_state=0
    )
    rng = np.random.default_rng(k)
    small = rng.standard_normal((40 * k, 3)) + np.eye(k, 3)[groups]
    # What is added to the first column is nothing after one step, but for rounding.
    Q = exact_mixing(A, np.eye(40 * k), 1).astype(float)
    lost = np.linalg.svd(Q)[2][-1]
    X = small + 1e7 * np.outer(lost, [1.0, 0.0, 0.0])
    y = np.where(rng.random(40 * k) < 0.5, groups, -1)
    model, plain = (SGCClassifier(2).fit(M, y, graph=A) for M in (X, small))
    claim = model.certificate_["duality_gap"]
    assert claim.strength.value == "proved" and not claim.assumptions
    assert claim.allowance > 1e4 * plain.certificate_["duality_gap"].allowance
    known, C = y >= 0, y[y >= 0]

    def loss(Z):
        z = Z[known] @ model.coef_.T + model.intercept_
        z = np.column_stack([0 * z, z]) if k == 2 else z
        return float((np.logaddexp.reduce(z, axis=1) - z[range(len(C)), C]).mean())

    exact = exact_mixing(A, X.astype(np.longdouble), 2)
    rounded = renormalized_adjacency(A) @ (renormalized_adjacency(A) @ X)
    share = np.bincount(C) / len(C)
    base = -float((share * np.log(share)).sum())
    off = abs(loss(exact) - loss(rounded.astype(np.longdouble))) / base
    assert 0 < off <= claim.allowance


def test_a_gap_that_mixing_may_have_moved_is_undecided():
    X = np.column_stack([1e14 * (-1.0) ** np.arange(30), GROUPS])
    model = SGCClassifier().fit(X, Y, graph=GRAPH)
    claim = model.certificate_["duality_gap"]
    assert claim.met is None and "rounding" in claim.detail


@pytest.mark.parametrize(
    ("sizes", "strength"),
    [
        ([1000, 1000], "proved"),
        ([400, 400, 400], "measured"),
        ([1501, 1500], "measured"),
    ],
)
def test_a_cut_is_proved_up_to_3000_nodes_in_two_sets(sizes, strength):
    n, k = sum(sizes), len(sizes)
    P = np.full((k, k), 2 / n) + 20 / n * np.eye(k)
    A, groups = stochastic_block_model(sizes, P, random_state=0)
    model = SpectralClustering(k, affinity="precomputed", random_state=0).fit(A)
    claim = model.certificate_["normalised_cut"]
    assert claim.strength.value == strength
    if strength == "proved":
        # The blocks themselves are a partition: the factor must cover them.
        labels, model.labels_ = model.labels_, groups
        other = certus.certify(model, A)["normalised_cut"]
        assert 1 <= claim.value < 1.5 and other.value / claim.value < claim.value
        assert len(labels) == n
