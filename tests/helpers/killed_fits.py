"""Fits that are killed at random moments and in the middle of a write, then resumed.

Run as a program, because it forks: ``killed_fits.py FOLDER``. Prints a line of JSON.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from certus.neural_network import NeuralClassifier
from certus.persist import container

EPOCHS = 12


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def network(d, k):
    return nn.Sequential(
        nn.Linear(d, 8), nn.ReLU(), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.Linear(8, k)
    )


def noise(x):
    return x + 0.1 * torch.randn_like(x)


def model(folder=None, **options):
    settings = {
        "augment": noise,
        "average": 0.95,
        "schedule": "cosine",
        "warmup": 0.1,
        "early_stopping": True,
        "n_iter_no_change": EPOCHS,
        "batch_size": 16,
        "max_iter": EPOCHS,
        "random_state": 3,
    }
    settings = {"module": network, **settings, **options}
    return NeuralClassifier(checkpoint=folder, **settings)


def fit(folder=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(folder, **options).fit(*data())


def weights(fitted):
    parts = [v.double().reshape(-1) for v in fitted.module_.state_dict().values()]
    return torch.cat(parts).numpy().tobytes().hex()


def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def kill_at_random(folder, times, seconds):
    """How many of the fits, which take some seconds, died before they were done."""
    died, rng = 0, random.Random(0)
    for _ in range(times):
        child = in_child(lambda: fit(folder))
        time.sleep(rng.uniform(0.1, 0.5) * seconds)
        os.kill(child, signal.SIGKILL)
        died += os.waitpid(child, 0)[1] != 0
    return died


def kill_in_write(folder, after):
    """Die when half of a file is written, at the write of this number."""
    plain, count = container.seal, [0]

    def sealed(manifest, tensors):
        blob = plain(manifest, tensors)
        count[0] += 1
        if count[0] < after:
            return blob

        def halves():
            yield blob[: len(blob) // 2]
            os.kill(os.getpid(), signal.SIGKILL)

        return halves()

    def work():
        from certus.neural_network import checkpoint

        checkpoint.seal = sealed
        fit(folder)

    os.waitpid(in_child(work), 0)


def main(folder):
    fit()  # imports and compiles
    start = time.perf_counter()
    whole = weights(fit())
    died = kill_at_random(folder / "random", 6, time.perf_counter() - start)
    random_end = weights(fit(folder / "random"))
    for after in (1, 2, 5):
        kill_in_write(folder / "write", after)
    left = sorted(p.name for p in (folder / "write").iterdir())
    write_end = weights(fit(folder / "write"))
    tidy = sorted(p.name for p in (folder / "write").iterdir())
    same = [random_end == whole, write_end == whole]
    print(json.dumps({"died": died, "same": same, "left": left, "tidy": tidy}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
