"""Graphs beside scikit-learn, torch.sparse and PyTorch Geometric: CPU time.

    python -m benchmarks.graphs [SCALE | PART ...]

An epoch of a graph convolution on 100,000 nodes with 1.1 million entries, 64 → 64 → 16,
forward, backward and Adam; label propagation on scikit-learn's own data; label
propagation and simple graph convolution on a million edges; and what is reached with
few labels. Ours includes the certificate where a whole fit is timed. Best of three
runs; of nine, in turn, for label propagation. PyG is left out where it is not
installed. A SCALE above 1 divides the sizes, and writes nothing. The parts are epochs,
labels, million, cut and reached. Written to ``results/graphs.md``, where parts that are
not measured again stay as they are; each names its machine.
"""

import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn import semi_supervised
from sklearn.datasets import load_digits, make_circles
from torch import nn
from torch.nn import functional as F

import certus
from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.graph import (
    LabelPropagation,
    LabelSpreading,
    LinkPredictor,
    NodeClassifier,
    SGCClassifier,
    SpectralClustering,
    renormalized_adjacency,
    stochastic_block_model,
)
from certus.neural_network import MLPClassifier

PACKAGES = ("certus", "scikit-learn", "torch", "torch_geometric", "numpy", "scipy")
RUNS, EPOCHS = 3, 5
LAYERS = ("gcn", "gat", "sage")
#: Short fits are repeated more often, and longer ones than this are not.
SHORT_RUNS, LONG = 9, 1.0


def best(work: Callable[[], Any]) -> float:
    """The least CPU seconds of three runs."""
    found = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def in_turn(one: Callable[[], Any], two: Callable[[], Any]) -> tuple[float, float]:
    """The least CPU seconds of two works that take turns, so that load hits both."""
    found: tuple[list[float], list[float]] = ([], [])
    for i in range(SHORT_RUNS):
        for work, times in zip((one, two), found):
            if i < RUNS or min(times) < LONG:
                start = time.process_time()
                work()
                times.append(time.process_time() - start)
    return min(found[0]), min(found[1])


# -- an epoch ---------------------------------------------------------------------


def random_graph(scale: int) -> tuple[Any, Any, Any]:
    """100,000 nodes of degree 10, 64 features, 16 classes."""
    rng, n = np.random.default_rng(0), 100_000 // scale
    ends = rng.integers(n, size=(2, 5 * n))
    ends = ends[:, ends[0] != ends[1]]
    ones = np.ones(2 * ends.shape[1])
    i, j = np.r_[ends[0], ends[1]], np.r_[ends[1], ends[0]]
    A = sparse.csr_array((ones, (i, j)), shape=(n, n))
    A.data[:] = 1.0
    X = rng.standard_normal((n, 64)).astype(np.float32)
    return A, X, rng.integers(16, size=n)


class SparseNetwork(nn.Module):
    """Two layers of graph convolution with torch.sparse."""

    def __init__(self, Q: Any) -> None:
        super().__init__()
        parts = (torch.from_numpy(part) for part in (Q.indptr, Q.indices, Q.data))
        self.Q = torch.sparse_csr_tensor(*parts, size=Q.shape, dtype=torch.float32)
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        """Scores of all nodes."""
        h = F.relu(self.Q @ self.first(x))
        return self.Q @ self.second(F.dropout(h, 0.5, self.training))


def pyg_network(A: Any) -> Any:
    """Two layers of PyG's GCNConv on its default path."""
    from torch_geometric.nn import GCNConv

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(64, 64), GCNConv(64, 16)
            A_ = sparse.coo_array(A)
            self.edges = torch.from_numpy(np.stack(A_.coords).astype(np.int64))

        def forward(self, x: Any) -> Any:
            h = F.relu(self.first(x, self.edges))
            return self.second(F.dropout(h, 0.5, self.training), self.edges)

    return Network()


def epochs_of(network: nn.Module, X: Any, y: Any, known: Any) -> float:
    """CPU seconds of an epoch of a plain loop."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    x, t, rows = torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(known)
    network.train()

    def work() -> None:
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            F.cross_entropy(network(x)[rows], t[rows]).backward()
            optimizer.step()

    work()
    return best(work) / EPOCHS


def our_epochs(A: Any, X: Any, y: Any, known: Any) -> float:
    """CPU seconds of an epoch of ours: the difference of a long and a short fit."""
    few = np.full(len(y), -1)
    few[known] = y[known]

    def fit(epochs: int) -> Callable[[], Any]:
        model = NodeClassifier(max_iter=epochs, n_iter_no_change=10**6, random_state=0)
        return lambda: model.fit(X, few, graph=A)

    with certus.config_context(certify="never"):
        fit(2)()
        short, long = best(fit(2)), best(fit(2 + 4 * EPOCHS))
    return max(1e-9, (long - short) / (4 * EPOCHS))


def epoch_rows(scale: int) -> list[str]:
    """Times of an epoch with labels of all nodes, and of one in a hundred."""
    A, X, y = random_graph(scale)
    Q, n = renormalized_adjacency(A), len(y)
    rows = [
        "| labels | certus | torch.sparse | × | PyG | × |",
        "|---|---|---|---|---|---|",
    ]
    for name, known in (("all", np.arange(n)), ("1 %", np.arange(0, n, 100))):
        mine = our_epochs(A, X, y, known)
        theirs = epochs_of(SparseNetwork(Q), X, y, known)
        line = f"| {name} | {_ms(mine)} | {_ms(theirs)} | {theirs / mine:.1f} |"
        if find_spec("torch_geometric"):
            other = epochs_of(pyg_network(A), X, y, known)
            line += f" {_ms(other)} | {other / mine:.1f} |"
        else:
            line += " not installed | |"
        rows.append(line)
    if find_spec("torch_geometric"):
        rows += ["", data_line(A, X, y)]
    return rows


def data_line(A: Any, X: Any, y: Any) -> str:
    """Whether a Data of PyG, with its features, is read as the same graph."""
    from torch_geometric.data import Data

    ends = np.stack(sparse.coo_array(A).coords).astype(np.int64)
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(ends))
    few = np.where(np.arange(len(y)) % 100 == 0, y, -1)
    one, two = (
        SGCClassifier(C=1e-3).fit(features, few, graph=graph)
        for features, graph in ((None, data), (X, A))
    )
    same = np.array_equal(one.coef_, two.coef_)
    kept = one.certificate_["graph_kept"].met and one.certificate_.met
    return f"A `Data` of PyG gives the same fit: {same}, certified: {kept}."


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"


# -- labels -----------------------------------------------------------------------


def label_rows(scale: int) -> list[str]:
    """Label propagation beside scikit-learn's, which iterates 1,000 times at most."""
    digits = load_digits(return_X_y=True)
    circles = make_circles(1000, factor=0.5, noise=0.05, random_state=0)
    rng = np.random.default_rng(0)
    rows = [
        "| data | model | certus | of it the fit | scikit-learn | × | labels right | "
        "theirs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = np.arange(len(digits[1]))
    np.random.RandomState(2).shuffle(order)  # as in scikit-learn's example
    example = tuple(part[order[:340]] for part in digits)
    sets = (
        ("digits", digits, 0.01, 1000),
        ("circles", circles, 20.0, 1000),
        ("scikit-learn's example, 340 digits", example, 0.25, 20),
    )
    for name, (X, y), gamma, most in sets:
        X, y = X[::scale], y[::scale]
        few = np.where(rng.random(len(y)) < 0.05, y, -1)
        if most == 20:
            few = np.where(np.arange(len(y)) < 40 // scale, y, -1)
        for ours in (LabelPropagation, LabelSpreading):
            title = ours.__name__
            theirs = getattr(semi_supervised, title)(gamma=gamma, max_iter=most)
            mine = ours(gamma=gamma)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                a, b = in_turn(
                    lambda model=mine, X=X, few=few: model.fit(X, few),
                    lambda model=theirs, X=X, few=few: model.fit(X, few),
                )
                with certus.config_context(certify="never"):
                    fit = best(lambda: ours(gamma=gamma).fit(X, few))  # noqa: B023
            right = [(m.transduction_ == y).mean() for m in (mine, theirs)]
            rows.append(
                f"| {name} | {title} | {_ms(a)} | {_ms(fit)} | {_ms(b)} | "
                f"{b / a:.1f} | "
                f"{100 * right[0]:.1f} % | {100 * right[1]:.1f} % |"
            )
    return [*rows, "", *floor_lines(digits[0][::scale])]


def floor_lines(X: Any) -> list[str]:
    """The least that a certified fit of the digits must do: their weights, twice."""
    C = X - X.mean(axis=0)

    def weights(dtype: Any) -> Any:
        s, one = 0.01 * np.square(C).sum(axis=1), np.ones(len(C))
        left = np.column_stack([0.02 * C, -s, one]).astype(dtype)
        right = np.column_stack([C, one, -s]).astype(dtype)
        return np.exp(left @ right.T)

    double, single = (best(lambda t=t: weights(t)) for t in (np.float64, np.float32))
    K = weights(np.float64)
    few = best(lambda: sparse.csr_array(np.where(K > 1e-6, K, 0.0)))
    V = np.ones((10, len(X)))
    passed = best(lambda: V @ K)
    return [
        "Where scikit-learn's spreading stops after few products, the weights are most "
        f"of the work. For the digits, weights in float64 take {_ms(double)}, in "
        f"float32 {_ms(single)}; a product with ten columns takes {_ms(passed)}; "
        f"keeping only weights above 1e-6 in a sparse matrix takes {_ms(few)}, more "
        "than the products that it saves. The fit and the verifier each compute the "
        "weights, so that neither fewer steps, nor float32 in the fit, nor a sparse "
        "matrix makes a certified fit five times as fast as scikit-learn's.",
    ]


def cut_rows(scale: int) -> list[str]:
    """Seconds of a two-way cut of 3,000 nodes, certificate included."""
    n = 3000 // scale
    P = np.full((2, 2), 2 / n) + 20 / n * np.eye(2)
    A, _ = stochastic_block_model([n // 2] * 2, P, random_state=0)
    model = SpectralClustering(2, affinity="precomputed", random_state=0)
    seconds = best(lambda: model.fit(A))
    claim = model.certificate_["normalised_cut"]
    return [
        f"Two clusters of {n:,} nodes and {A.nnz // 2:,} edges: {seconds:.2f} s; "
        f"{claim.detail} ({claim.strength.value})."
    ]


def million_rows(scale: int) -> list[str]:
    """Whole fits on a million edges, certificates included."""
    n = 100_000 // scale
    p, q = 68 / n, 4 / n
    P = np.full((4, 4), q) + (p - q) * np.eye(4)
    A, groups = stochastic_block_model([n // 4] * 4, P, random_state=0)
    rng = np.random.default_rng(0)
    few = np.where(rng.random(len(groups)) < 0.01, groups, -1)
    X = rng.standard_normal((len(groups), 16)) + np.eye(16)[groups]
    rows = [
        f"{A.nnz // 2:,} edges, {len(groups):,} nodes, 1 % of the labels.",
        "",
        "| model | seconds of a fit | labels right | proved |",
        "|---|---|---|---|",
    ]
    for model in (LabelPropagation(), LabelSpreading(), SGCClassifier()):
        inputs = X if isinstance(model, SGCClassifier) else None
        seconds = best(lambda m=model, inputs=inputs: m.fit(inputs, few, graph=A))
        right = (model.transduction_ == groups)[few < 0].mean()
        claim = model.certificate_.claims[0]
        rows.append(
            f"| {type(model).__name__} | {seconds:.2f} | {100 * right:.1f} % | "
            f"{claim.name} ≤ {claim.value:.1e} |"
        )
    return rows


# -- what is reached --------------------------------------------------------------


def reached_rows() -> list[str]:
    """Accuracy with few labels, five draws; the karate club; links of a novel."""
    import networkx as nx

    gains = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        A, groups = stochastic_block_model(
            [200, 200], [[0.05, 0.01], [0.01, 0.05]], random_state=seed
        )
        X = rng.standard_normal((400, 8))
        X[:, 0] += 0.8 * (2 * groups - 1)
        y = np.full(400, -1)
        for c in (0, 1):
            y[rng.choice(np.flatnonzero(groups == c), 4, replace=False)] = c
        new = y < 0
        networks = [
            NodeClassifier(layer=layer, random_state=seed).fit(X, y, graph=A)
            for layer in LAYERS
        ]
        alone = MLPClassifier((16,), solver="lbfgs", alpha=0.1, random_state=seed)
        alone.fit(X[~new], y[~new])
        convex = SGCClassifier().fit(X, y, graph=A)
        found = [model.transduction_ for model in (*networks, convex)]
        gains.append([(t == groups)[new].mean() for t in (*found, alone.predict(X))])
    mean = 100 * np.mean(gains, axis=0)
    club = nx.karate_club_graph()
    officer = np.array([side == "Officer" for _, side in club.nodes(data="club")])

    def right(model: Any) -> int:
        model.fit(None, {0: 0, 33: 1}, graph=club)
        return int((model.transduction_ == officer).sum())

    members = []
    for layer in LAYERS:
        own = [right(NodeClassifier(layer=layer, random_state=s)) for s in range(10)]
        members.append(f"{layer} {min(own)} to {max(own)}")
    links = LinkPredictor(validation_fraction=0.2, random_state=0).fit(
        nx.les_miserables_graph()
    )
    auc = links.certificate_["link_auc"]
    whole = links.certificate_["auc_of_all_pairs"].value
    return [
        "- Two blocks, 400 nodes, 8 labels, mean of five draws: "
        + "".join(f"{name} {m:.1f} %, " for name, m in zip(LAYERS, mean))
        + f"simple graph convolution {mean[3]:.1f} %, features alone {mean[4]:.1f} %.",
        f"- Karate club, two labels, of 34: {', '.join(members)} in ten seeds, simple "
        f"graph convolution {right(SGCClassifier())}, label propagation "
        f"{right(LabelPropagation())}.",
        f"- Links of Les Misérables: AUC {whole:.3f}; {auc.detail} ({auc.basis}).",
    ]


PARTS: dict[str, tuple[str, Callable[[int], list[str]]]] = {
    "epochs": ("An epoch of graph convolution", epoch_rows),
    "labels": ("Labels on scikit-learn's data", label_rows),
    "million": ("A million edges", million_rows),
    "cut": ("A two-way cut", cut_rows),
    "reached": ("What is reached", lambda scale: reached_rows()),
}
OPENING = (
    "# Graphs\n\nCPU seconds, the least of three runs; of nine in turn for the labels "
    "on scikit-learn's data, or of three where a fit takes more than a second."
)


def main(arguments: list[str]) -> None:
    """Measure all, or the parts that are named, and write the tables."""
    scale = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 1
    page = Path(__file__).with_name("results") / "graphs.md"
    before = page.read_text("utf-8").strip().split("\n\n## ")[1:]
    told = {part.partition("\n")[0]: part for part in before}
    with certus.config_context(on_uncertified="ignore"):
        for name in arguments or PARTS:
            title, rows = PARTS[name]
            on = describe_machine(machine(PACKAGES)).strip()
            told[title] = "\n\n".join([title, on, "\n".join(rows(scale))])
            print(told[title], flush=True)
            if scale == 1:
                parts = [OPENING, *(told[t] for t, _ in PARTS.values() if t in told)]
                page.write_text("\n\n## ".join(parts) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
