"""Rows for networks: our loop against a bare one and skorch, and our perceptrons.

All train for the same number of epochs on the same rows with the same batch size and
Adam; a row's gap is the share of training rows misclassified afterwards. Labels are
those of a random network, so that there is something to learn. Where the loop itself
is judged, ours is timed without its certificate, which is a fixed cost.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from benchmarks.machines import handed_over
from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row, ours

BATCH, SEED = 128, 0

# -- data -------------------------------------------------------------------------


@lru_cache(maxsize=1)
def taught(n: int, d: int, classes: int, scale: int) -> tuple[Any, Any]:
    """Gaussian rows in float32, labelled by a random network of 32 hidden units."""
    rng, n = default_rng(0), n // scale
    X = rng.standard_normal((n, d), dtype=np.float32)
    A = rng.standard_normal((d, 32), dtype=np.float32) / np.sqrt(d)
    B = rng.standard_normal((32, classes), dtype=np.float32)
    return X, np.argmax(np.maximum(X @ A, 0) @ B, axis=1)


def _rows(n: int, d: int, classes: int) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y = taught(n, d, classes, scale)
        return Problem(X, y, None, judge=training_error)

    return problem


def _images(scale: int) -> Problem:
    """10,000 images of 28 × 28: one of ten patterns under noise."""
    rng, n = default_rng(1), 10_000 // scale
    y = rng.integers(0, 10, n)
    X = rng.standard_normal((10, 1, 28, 28), dtype=np.float32)[y]
    X += 2 * rng.standard_normal(X.shape, dtype=np.float32)
    return Problem(X, y, None, judge=training_error)


def training_error(p: Problem, fit: Fit) -> float:
    return float(np.mean(fit.coef.predict(p.X) != p.y))


# -- networks ---------------------------------------------------------------------


def cnn() -> Any:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )


def dense(*widths: int) -> Callable[[], Any]:
    def build() -> Any:
        from torch import nn

        layers: list[Any] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return build


# -- contenders -------------------------------------------------------------------


class _Bare(NamedTuple):
    """A module with a ``predict``."""

    module: Any

    def predict(self, X: Any) -> Any:
        import torch

        with torch.inference_mode():
            return self.module(torch.from_numpy(X)).argmax(dim=1).numpy()


def bare_loop(
    build: Callable[[], Any], epochs: int, threads: int | None = None
) -> Callable[[Problem, float], Fit]:
    def fit(p: Problem, tol: float) -> Fit:
        import torch
        from torch.nn import functional as F

        if threads is not None:
            torch.set_num_threads(threads)
        torch.manual_seed(SEED)  # the process is this contender's alone
        module = build()
        optimizer = torch.optim.Adam(module.parameters(), fused=True)
        X, y = torch.from_numpy(p.X), torch.from_numpy(p.y)
        for _ in range(epochs):
            for rows in torch.randperm(len(y)).split(BATCH):
                loss = F.cross_entropy(module(X[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return Fit(_Bare(module.eval()))

    return fit


def our_loop(build: Callable[[], Any], epochs: int) -> Callable[[Problem, float], Fit]:
    def fit(p: Problem, tol: float) -> Fit:
        from certus.neural_network import NeuralClassifier

        model = NeuralClassifier(
            lambda *_: build(), batch_size=BATCH, max_iter=epochs, random_state=SEED
        )
        return handed_over(model.fit(p.X, p.y))

    return fit


def skorch(build: Callable[[], Any], epochs: int) -> Callable[[Problem, float], Fit]:
    def fit(p: Problem, tol: float) -> Fit:
        import torch
        from skorch import NeuralNetClassifier

        torch.manual_seed(SEED)  # the process is this contender's alone
        model = NeuralNetClassifier(
            build(),
            criterion=torch.nn.CrossEntropyLoss,
            optimizer=torch.optim.Adam,
            optimizer__fused=True,
            lr=1e-3,
            batch_size=BATCH,
            max_epochs=epochs,
            train_split=None,
            iterator_train__shuffle=True,
            verbose=0,
        )
        return Fit(model.fit(p.X, p.y))

    return fit


def perceptron(module: str, hidden: tuple[int, ...]) -> Callable[[Problem, float], Fit]:
    def fit(p: Problem, tol: float) -> Fit:
        from importlib import import_module

        cls = import_module(module).MLPClassifier
        options = {"batch_size": BATCH, "max_iter": 1, "random_state": SEED}
        return handed_over(cls(hidden, **options).fit(p.X, p.y))

    return fit


def _perceptrons(*widths: int) -> tuple[Contender, ...]:
    hidden, build = widths[1:-1], dense(*widths)
    return (
        ours(perceptron("certus.neural_network", hidden), 0.0),
        Contender("sklearn", perceptron("sklearn.neural_network", hidden)),
        Contender("torch, fused Adam", bare_loop(build, 1)),
        Contender("torch, fused Adam, one thread", bare_loop(build, 1, threads=1)),
    )


# -- prediction -------------------------------------------------------------------


class _Answers(NamedTuple):
    """Classes predicted already: what is timed is the prediction."""

    found: Any

    def predict(self, X: Any) -> Any:
        return self.found


class _Predicted(NamedTuple):
    """Rows of which a trained network says the classes."""

    problem: Callable[[int], Problem]
    model: Callable[[], Any]
    times: int = 100


def _neural(build: Callable[[], Any]) -> Callable[[], Any]:
    def make() -> Any:
        from certus.neural_network import NeuralClassifier

        return NeuralClassifier(lambda *_: build(), max_iter=2, random_state=SEED)

    return make


def _explicit(*hidden: int) -> Callable[[], Any]:
    def make() -> Any:
        from certus.neural_network import MLPClassifier

        return MLPClassifier(hidden, engine="explicit", max_iter=2, random_state=SEED)

    return make


def _lstm() -> Any:
    from certus.neural_network import RecurrentClassifier

    return RecurrentClassifier(width=64, max_iter=1, random_state=SEED)


def _sequences(scale: int) -> Problem:
    """10,000 sequences of 20 steps with 8 numbers each."""
    p = _rows(10_000, 160, 2)(scale)
    p.X = p.X.reshape(-1, 20, 8)
    return p


PREDICTED = {
    "rows, MLP 784-256-10": _Predicted(
        _rows(10_000, 784, 10), _neural(dense(784, 256, 10))
    ),
    "rows, MLP 784-256-10, explicit": _Predicted(
        _rows(10_000, 784, 10), _explicit(256)
    ),
    "rows, MLP 20-64-64-2": _Predicted(
        _rows(10_000, 20, 2), _neural(dense(20, 64, 64, 2))
    ),
    "rows, MLP 20-64-64-2, explicit": _Predicted(
        _rows(10_000, 20, 2), _explicit(64, 64)
    ),
    "images, CNN": _Predicted(_images, _neural(cnn), 3),
    "sequences of 20 steps, LSTM of 64": _Predicted(_sequences, _lstm, 10),
}


@lru_cache(maxsize=2)
def _trained(name: str, scale: int) -> Any:
    p = PREDICTED[name].problem(scale)
    return PREDICTED[name].model().fit(p.X, p.y)


def _prediction(name: str) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        p = PREDICTED[name].problem(scale)
        p.queries = _trained(name, scale)
        p.judge = lambda p, fit: float(
            np.mean(fit.coef.found != p.queries.predict(p.X))
        )
        return p

    return problem


def our_prediction(times: int) -> Callable[[Problem, float], Fit]:
    def fit(p: Problem, tol: float) -> Fit:
        for _ in range(times):
            found = p.queries.predict(p.X)
        return Fit(_Answers(found))

    return fit


def bare_prediction(times: int, together: int) -> Callable[[Problem, float], Fit]:
    """The module itself on so many rows at a time."""

    def fit(p: Problem, tol: float) -> Fit:
        import torch

        module = p.queries.module_
        for _ in range(times):
            with torch.inference_mode():
                parts = torch.from_numpy(p.X).split(together)
                z = torch.cat([module(part) for part in parts])
                one = z.shape[1] == 1  # score of two classes
                found = ((z[:, 0] > 0).long() if one else z.argmax(dim=1)).numpy()
        return Fit(_Answers(found))

    return fit


def _predictions(times: int) -> tuple[Contender, ...]:
    return (
        ours(our_prediction(times), 0.0),
        Contender("bare module", bare_prediction(times, 10_000)),
        Contender("bare module, 1,000 at a time", bare_prediction(times, 1_000)),
    )


# -- rows -------------------------------------------------------------------------

ERROR = "gap: share of training rows misclassified"

ROWS: tuple[Row, ...] = (
    Row(
        "loop on a CNN, 10,000 images 28 × 28, batch 128, 2 epochs",
        _images,
        0.05,
        (
            ours(our_loop(cnn, 2), 0.0),
            Contender("bare torch loop", bare_loop(cnn, 2)),
        ),
        (("bare torch loop", 0.95),),
        ERROR,
        fit_alone=True,
    ),
    Row(
        "loop on an MLP 20-64-64-2, 50,000 rows, batch 128, 2 epochs",
        _rows(50_000, 20, 2),
        0.07,
        (
            ours(our_loop(dense(20, 64, 64, 2), 2), 0.0),
            Contender("skorch", skorch(dense(20, 64, 64, 2), 2)),
            Contender("bare torch loop", bare_loop(dense(20, 64, 64, 2), 2, threads=1)),
        ),
        (("skorch", 2.0), ("bare torch loop", 0.95)),
        ERROR,
        fit_alone=True,
    ),
    Row(
        "MLP 784-256-10, 60,000 rows, batch 128, one epoch of Adam",
        _rows(60_000, 784, 10),
        0.3,
        _perceptrons(784, 256, 10),
        (("best", 1.0),),
        ERROR,
    ),
    Row(
        "MLP 20-64-64-2, 50,000 rows, batch 128, one epoch of Adam",
        _rows(50_000, 20, 2),
        0.1,
        _perceptrons(20, 64, 64, 2),
        (("sklearn", 2.0),),
        ERROR,
    ),
    *(
        Row(
            f"prediction of 10,000 {name}, {predicted.times} times",
            _prediction(name),
            0.0,
            _predictions(predicted.times),
            (("bare module", 0.97),),
            "gap: share that differs from certus",
        )
        for name, predicted in PREDICTED.items()
    ),
)
