"""Networks as plain torch modules, one file for each family.

Each keeps what it was built with in ``config``; nothing here trains. The estimators of
``certus.neural_network`` do, and take any of these modules as well as your own.
"""

from __future__ import annotations

from certus.lazy import lazily

#: Public names, and the modules they live in.
_WHERE = {
    "MLP": "mlp",
    "Absolute": "activations",
    "ElmanCell": "cells",
    "GRUCell": "cells",
    "Heaviside": "activations",
    "LSTMCell": "cells",
    "Maxout": "activations",
    "Recurrent": "rnn",
    "MemoryNetwork": "memory",
    "Seq2Seq": "seq2seq",
    "WeightNoise": "noise",
    "TextCNN": "text_cnn",
    "activation": "activations",
    "backpropagate_through_time": "cells",
    "count_parameters": "mlp",
    "initialize": "mlp",
    "piecewise_linear_network": "piecewise",
    "softmax": "activations",
    "unroll": "cells",
    "written_out": "rnn",
    "AlexNet": "cnn",
    "ConvNet": "cnn",
    "LeNet": "cnn",
    "ResNet": "resnet",
    "ResidualBlock": "resnet",
    "DenseNet": "densenet",
    "DenseBlock": "densenet",
    "convolution_matrix": "convolution",
    "output_size": "convolution",
    "receptive_field": "convolution",
    "same_padding": "convolution",
    "toeplitz_matrix": "convolution",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE, __all__)
