"""One tiny instance of every estimator that trains a network, with data for it.

``CASES[name](**options)`` gives the estimator, X and y; options go to the training.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from torch import nn

from certus.neural_network import (
    ConsistentClassifier,
    ConvNetClassifier,
    Distilled,
    MLPClassifier,
    MLPRegressor,
    MultiTaskNetwork,
    NeuralClassifier,
    NeuralRegressor,
    RecurrentClassifier,
    RecurrentRegressor,
    Seq2Seq,
    SequenceTagger,
    ViTClassifier,
)
from certus.neural_network.modules import MLP
from certus.text import TextConvClassifier

RNG = np.random.default_rng(0)
N = 30
X = RNG.normal(size=(N, 3))
CLASSES = np.arange(N) % 3
NUMBERS = X @ [1.0, -1.0, 0.5] + 0.1 * RNG.normal(size=N)
SEQUENCES = [RNG.normal(size=(int(t), 2)) for t in RNG.integers(1, 6, size=N)]
WORDS = [list(RNG.choice(["a", "b", "c"], size=len(x))) for x in SEQUENCES]
TAGS = [["v" if w == "a" else "k" for w in words] for words in WORDS]
IMAGES = RNG.normal(size=(N, 8, 8))


def small(n, k):
    """Smooth, so that its second derivatives are those of the loss."""
    return nn.Sequential(nn.Linear(n, 3), nn.Tanh(), nn.Linear(3, k)).double()


def rough(n, k):
    """All that has a state of its own."""
    return nn.Sequential(
        nn.Linear(n, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, k)
    )


def picture(n, k):
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2), nn.Softplus(), nn.Flatten(), nn.Linear(18, k)
    ).double()


def _plain(options):
    return {"max_iter": 4, "batch_size": 8, "random_state": 0, **options}


def classifier(module=small, **options):
    return NeuralClassifier(module, **_plain(options)), X, CLASSES


def regressor(module=small, **options):
    return NeuralRegressor(module, **_plain(options)), X, NUMBERS


def explicit_classifier(**options):
    chosen = {"hidden_layer_sizes": (3,), "activation": "tanh", "alpha": 0.1}
    return MLPClassifier(**chosen, **_plain(options)), X, CLASSES


def explicit_regressor(**options):
    chosen = {"hidden_layer_sizes": (3,), "activation": "logistic", "alpha": 0.1}
    return MLPRegressor(**chosen, **_plain(options)), X, NUMBERS


def torch_classifier(**options):
    return explicit_classifier(engine="torch", **options)


def torch_regressor(**options):
    return explicit_regressor(engine="torch", **options)


def images(module=picture, **options):
    model = ConvNetClassifier(module, **_plain(options))
    return model, IMAGES, CLASSES


def patches(**options):
    chosen = {"patch_size": 4, "n_layers": 1, "width": 4, "heads": 2}
    return ViTClassifier(**{**chosen, **_plain(options)}), IMAGES, CLASSES


def recurrent_classifier(**options):
    chosen = {"width": 2, "cell": "gru"}
    return RecurrentClassifier(**{**chosen, **_plain(options)}), SEQUENCES, CLASSES


def recurrent_regressor(**options):
    chosen = {"width": 2, "cell": "rnn"}
    return RecurrentRegressor(**{**chosen, **_plain(options)}), SEQUENCES, NUMBERS


def tagger(**options):
    chosen = {"width": 2, "embedding": 2, "bidirectional": False}
    return SequenceTagger(**{**chosen, **_plain(options)}), WORDS, TAGS


def translator(**options):
    chosen = {"width": 2}
    return Seq2Seq(**{**chosen, **_plain(options)}), WORDS, TAGS


def transforming_translator(**options):
    return translator(network="transformer", width=4, heads=2, **options)


def texts(**options):
    chosen = {"embedding": 2, "n_filters": 2, "widths": (1, 2)}
    model = TextConvClassifier(**{**chosen, **_plain(options)})
    return model, [" ".join(words) for words in WORDS], CLASSES


def tasks(module=small, **options):
    y = np.column_stack([CLASSES, NUMBERS]).astype(float)
    y[::4, 0] = np.nan
    return MultiTaskNetwork(module, **_plain(options)), X, y


def consistent(module=small, **options):
    y = np.where(np.arange(N) % 5 < 2, -1, CLASSES)
    return ConsistentClassifier(classifier(module, **options)[0]), X, y


def distilled(module=small, **options):
    teacher = LogisticRegression().fit(X, CLASSES)
    return Distilled(classifier(module, **options)[0], teacher=teacher), X, CLASSES


CASES = {
    case.__name__: case
    for case in (
        classifier,
        regressor,
        explicit_classifier,
        explicit_regressor,
        torch_classifier,
        torch_regressor,
        images,
        patches,
        recurrent_classifier,
        recurrent_regressor,
        tagger,
        translator,
        transforming_translator,
        texts,
        tasks,
        consistent,
        distilled,
    )
}


def default_mlp(n, k):
    return MLP(n, 4, k)
