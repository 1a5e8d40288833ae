# Written by `make stubs` from the rows of the package; do not edit.
from certus.graph.reexported import LabelPropagation as LabelPropagation
from certus.graph.reexported import LabelSpreading as LabelSpreading
from certus.graph.links import LinkPredictor as LinkPredictor
from certus.graph.node_classifier import NodeClassifier as NodeClassifier
from certus.graph.pagerank import PersonalizedPageRank as PersonalizedPageRank
from certus.graph.sgc import SGCClassifier as SGCClassifier
from certus.graph.reexported import SpectralClustering as SpectralClustering
from certus.graph.filters import graph_filter as graph_filter
from certus.graph.accuracy import node_accuracy as node_accuracy
from certus.graph.filters import renormalized_adjacency as renormalized_adjacency
from certus.graph.generators import stochastic_block_model as stochastic_block_model
