"""Networks as plain PyTorch modules, one file for each family.

Each keeps its arguments in ``config``; nothing here trains. The estimators of
``certus.neural_network`` do, and take any of these modules as well as your own.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name.
_WHERE = {
    "AbsoluteValue": "activations",
    "Adversarial": "adversarial",
    "AlexNet": "cnn",
    "Attention": "attention",
    "Bottleneck": "bottleneck",
    "CellNetwork": "cell_network",
    "CharacterReader": "character_reader",
    "ConvNet": "cnn",
    "DenseBlock": "densenet",
    "DenseNet": "densenet",
    "Denoiser": "denoiser",
    "ElmanCell": "cells",
    "Flow": "flow",
    "GRUCell": "cells",
    "GraphNetwork": "graph_network",
    "Heaviside": "activations",
    "LSTMCell": "cells",
    "LeNet": "cnn",
    "LipschitzCritic": "adversarial",
    "MLP": "mlp",
    "Maxout": "activations",
    "MemoryNetwork": "memory",
    "MultiHeadAttention": "multi_head",
    "PUBLISHED": "transformer",
    "Painter": "painter",
    "Recurrent": "rnn",
    "ResNet": "resnet",
    "ResidualBlock": "resnet",
    "EncoderDecoder": "seq2seq",
    "TextCNN": "text_cnn",
    "Transformer": "transformer",
    "UNet": "denoiser",
    "Variational": "variational",
    "VisionTransformer": "vision",
    "WeightNoise": "noise",
    "activation": "activations",
    "attention_as_convolution": "attention_convolution",
    "backpropagate_through_time": "cells",
    "convolution_matrix": "convolution",
    "count_parameters": "mlp",
    "initialize": "mlp",
    "output_size": "convolution",
    "patchify": "vision",
    "piecewise_linear_network": "piecewise",
    "receptive_field": "convolution",
    "same_padding": "convolution",
    "sinusoidal_positions": "multi_head",
    "softmax": "activations",
    "toeplitz_matrix": "convolution",
    "unpatchify": "vision",
    "unroll": "cells",
    "written_out": "rnn",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
