"""Classification of nodes by a network that mixes neighbours.

    minimise over θ:  mean over labelled i of ℓ(yᵢ, f(A, X; θ)ᵢ)

ℓ is the cross-entropy and f the network
:class:`certus.neural_network.modules.GraphNetwork`. Labels of a few nodes are enough
where neighbours tend to be alike: every node within as many edges of a label as there
are layers helps to fit the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.certificate import Claim
from certus.edges import class_places, has_signs, names_of, read_labels
from certus.graph.joining import nodes_to_predict, read_nodes
from certus.graph.node_data import NodeInputs, NodeRows, WholeBatch
from certus.neural_network.batches import NetworkInputs
from certus.neural_network.modules.graph_network import LAYERS, GraphNetwork
from certus.neural_network.objective import Targets
from certus.neural_network.parameters import (
    ClassifierOptions,
    LabelOptions,
    TrainingOptions,
    trained_with,
)
from certus.neural_network.row_targets import ClassTargets
from certus.neural_network.run import TrainingRun
from certus.neural_network.wrapping import dtype_of
from certus.typing import (
    Array,
    Column,
    GraphLike,
    MatrixLike,
    NodeLabels,
)


@trained_with(
    TrainingOptions,
    LabelOptions,
    learning_rate=0.01,
    weight_decay=5e-4,
    batch_size=None,
    max_iter=200,
)
class NodeClassifier(ClassTargets):
    """Classifies nodes by their features and those of the nodes around them.

    Objective
    ---------
    The mean of ℓ(yᵢ, f(A, X; θ)ᵢ) over nodes with a label, ℓ the cross-entropy.

    Certificate
    -----------
    ``training_loss``, ``gradient_norm`` and ``gradient_ratio`` (MEASURED), as for other
    networks. ``equivariance`` (PROVED): the probabilities are those of the stated
    formula, so that numbering the nodes in another way changes nothing else. ``reach``
    (PROVED): how far away nodes can change a prediction. ``spectrum`` (PROVED, for
    "gcn"): mixing never enlarges a signal. See
    :func:`certus.graph.node_accuracy` for how often new labels agree. Nothing is said
    about nodes that are not in the graph.

    Parameters
    ----------
    layer : {"gcn", "sage", "gat"}, default="gcn"
        Kind of layers. By Q = D̃^{-1/2}(A + I)D̃^{-1/2}; by their mean beside the
        node's own vector; or by attention.
    hidden_layer_sizes : sequence of int, default=(64,)
        Number of units in each hidden layer. With L of them a prediction reads nodes
        L + 1 edges away.
    heads : int, default=4
        Number of heads of attention. Only "gat" has them.
    dropout : float, default=0.5
        Share of units that each training step leaves out at random.
    n_neighbors : int, default=7
        Number of neighbours. They make the graph where none is passed.
    {shared}

    Attributes
    ----------
    module_ : certus.neural_network.modules.GraphNetwork
        The trained network, in evaluation mode.
    graph_ : csr_array of shape (n_nodes, n_nodes)
        Adjacency of the fit.
    X_ : array, sparse matrix or None
        Features of the nodes; None where each has one of its own.
    classes_ : ndarray
        Classes, without −1.
    label_distributions_ : ndarray of shape (n_nodes, n_classes)
        Probabilities of the classes of each node.
    transduction_ : ndarray of shape (n_nodes,)
        The most probable class of each node.
    {fitted}

    Examples
    --------
    >>> from certus.graph import NodeClassifier, stochastic_block_model
    >>> A, groups = stochastic_block_model(
    ...     [40, 40], [[0.3, 0.02], [0.02, 0.3]], random_state=0
    ... )
    >>> model = NodeClassifier(random_state=0)
    >>> model = model.fit(None, {0: "left", 79: "right"}, graph=A)
    >>> bool((model.transduction_[:40] == "left").mean() > 0.9)
    True
    """

    def __init__(
        self,
        layer: str = "gcn",
        *,
        hidden_layer_sizes: Sequence[int] = (64,),
        heads: int = 4,
        dropout: float = 0.5,
        n_neighbors: int = 7,
        **shared: Unpack[ClassifierOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self, X: MatrixLike | None, y: NodeLabels, *, graph: GraphLike | None = None
    ) -> Any:
        """Learn from the nodes that have a label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_nodes, n_features) or None
            Features of the nodes. None stands for those of a PyG Data, or else for a
            feature of its own for each node.
        y : array-like of shape (n_nodes,) or dict
            Classes, −1 where there is no label; or a dict from a node to its class.
            Without a graph, −1 and one other label are two classes.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the nodes, without a direction. By default each row of X is
            joined to those near it.

        Returns
        -------
        NodeClassifier
            Itself.
        """
        self._check_training()
        given = X if graph is None else (X, graph)
        A, features, names = read_nodes(self, X, graph)
        line = read_labels(y, A.shape[0], names)
        _, codes = class_places(line, signs=graph is None)
        known = np.flatnonzero(codes >= 0)
        labels = (
            np.array(line[known].tolist()) if line.dtype.kind == "O" else (line[known])
        )
        done = self._fit(NodeRows(A, features, known), labels)
        self.graph_, self.X_ = A, features
        everything = NodeRows(A, features, np.arange(A.shape[0]))
        z = self._outputs(everything)
        self.label_distributions_ = self._probabilities(z)
        self.transduction_ = self.classes_[self._decide(z)]
        told, measured = y if isinstance(y, Mapping) else line, done.measured
        return Fitted(done.evidence, given, told, None, done.status, measured=measured)

    # -- what the training loop asks for ------------------------------------------

    def _read_X(self, X: Any, reset: bool) -> Any:
        return X

    def _rows(self, X: NodeRows, module: nn.Module) -> NetworkInputs:
        depth = len(tuple(self.hidden_layer_sizes)) + 1
        return NodeInputs(X, self.layer, depth, dtype_of(module), self.device)

    def _build(self, X: NodeRows, targets: Targets) -> nn.Module:
        return GraphNetwork(
            X.shape[1],
            tuple(self.hidden_layer_sizes),
            targets.outputs,
            layer=self.layer,
            heads=int(self.heads),
            dropout=float(self.dropout),
        )

    def _try(self, module: nn.Module, rows: NetworkInputs, targets: Targets) -> None:
        """Our own module fits its data."""

    def _batches(self, rows: Any, chosen: Tensor, run: TrainingRun) -> Any:
        found = super()._batches(rows, chosen, run)
        if rows.mixing.M.shape[0] > 10_000:  # the whole graph is computed
            run.threads = None
        return WholeBatch(chosen) if len(found) == 1 else found

    def _check_training(self) -> None:
        super()._check_training()
        check_choice("layer", self.layer, LAYERS)
        sizes = self.hidden_layer_sizes
        if not isinstance(sizes, list | tuple | np.ndarray):
            raise TypeError(
                f"hidden_layer_sizes must be a list of whole numbers, got {sizes!r}."
            )
        for size in sizes:
            check_number("each of hidden_layer_sizes", size, 1, integer=True)
        check_number("heads", self.heads, 1, integer=True)
        check_number("dropout", self.dropout, 0, 1)
        check_number("n_neighbors", self.n_neighbors, 1, integer=True)
        if self.augment is not None:
            raise ValueError("augment must be None: nodes are not changed in training.")

    def _measured(
        self, witness: Any, X: Any, y: Any, sample_weight: Column, level: str
    ) -> list[Claim]:
        if not isinstance(X, NodeRows):  # as certify passes it
            check_is_fitted(self, "module_")
            graph = X[1] if isinstance(X, tuple) else None
            line = read_labels(y, self.graph_.shape[0], names_of(graph))
            known = np.flatnonzero(
                class_places(line, signs=has_signs(self.classes_))[1] >= 0
            )
            X = NodeRows(self.graph_, self.X_, known)
            y = np.array(line[known].tolist())
        return super()._measured(witness, X, y, sample_weight, level)

    @property
    def partial_fit(self) -> NoReturn:
        """Nodes of one graph cannot come in parts."""
        raise AttributeError("NodeClassifier has no partial_fit.")

    # -- prediction ---------------------------------------------------------------

    @property
    def weights_(self) -> dict[str, Array]:
        """The trained weights by their names."""
        state = self.module_.state_dict()
        return {name: value.detach().cpu().numpy() for name, value in state.items()}

    def _scores(self, X: MatrixLike | None, graph: GraphLike | None) -> Array:
        check_is_fitted(self, "module_")
        nodes = NodeRows(*nodes_to_predict(self, X, graph))
        return self._outputs(nodes)

    def predict_proba(
        self, X: MatrixLike | None = None, *, graph: GraphLike | None = None
    ) -> Array:
        """Probabilities of the classes of nodes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_nodes, n_features), optional
            Features. None stands for the nodes of the fit. Without a graph, each row
            is joined to the nodes of the fit that are near it.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the rows of X, a graph of their own.

        Returns
        -------
        ndarray of shape (n_nodes, n_classes)
            In the order of ``classes_``.
        """
        return self._probabilities(self._scores(X, graph))

    def predict(
        self, X: MatrixLike | None = None, *, graph: GraphLike | None = None
    ) -> Array:
        """The most probable class of nodes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_nodes, n_features), optional
            Features. None stands for the nodes of the fit. Without a graph, each row
            is joined to the nodes of the fit that are near it.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the rows of X, a graph of their own.

        Returns
        -------
        ndarray of shape (n_nodes,)
            Classes.
        """
        places = self._decide(self._scores(X, graph))
        return self.classes_[places]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        return tags
