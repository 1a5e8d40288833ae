"""Fits for several processes: ``torchrun --nproc-per-node 2 together.py FOLDER``.

Every process makes the same calls. Each saves the weights it ends with.
"""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from certus.linear_model import LogisticRegression
from certus.neural_network import (
    Distilled,
    MLPClassifier,
    MultiTaskNetwork,
    NeuralClassifier,
    NeuralRegressor,
    RecurrentRegressor,
    Seq2Seq,
    SequenceTagger,
    majority_vote,
)

#: 37 rows in batches of 8: shares are unequal, and the last batch has five rows.
ROWS = 37

CASES = {
    "adam": {},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.05, "schedule": "cosine"},
    "clip": {"clip": 0.05, "weight_decay": 0.1, "average": 0.9},
    "svrg": {"optimizer": "svrg", "learning_rate": 0.05},
    "stopped": {"early_stopping": True, "n_iter_no_change": 2, "max_iter": 30},
    "single": {"batch_size": 1, "max_iter": 1},
    "weighted": {"class_weight": {0: 1.0, 1: 3.0}},
}


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int), rng.uniform(0.5, 2.0, ROWS)


def network(d, k):
    return nn.Sequential(nn.Linear(d, 6), nn.Tanh(), nn.Linear(6, k)).double()


def made(seed):
    """A network made outside, as each process makes its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(4, 2)


def fit(module=network, **options):
    X, y, s = data()
    settings = {"batch_size": 8, "max_iter": 4, "random_state": 0, **options}
    model = NeuralClassifier(module, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, sample_weight=s)


def others():
    """The same call of other estimators, whose losses count other things than rows."""
    X, y, s = data()
    rng = np.random.default_rng(1)
    settings = {"batch_size": 8, "max_iter": 3, "random_state": 0}
    several = np.where(rng.random((ROWS, 2)) < 0.7, np.c_[y, X[:, 2] > 0], np.nan)
    long = [rng.normal(size=(k, 2)) for k in rng.integers(1, 7, size=ROWS)]
    tags = [(x[:, 0] > 0).astype(int) for x in long]
    words = ["abcdef"[: len(x)] for x in long]
    teacher = LogisticRegression().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        student = Distilled(NeuralClassifier(network, **settings), teacher=teacher)
        return {
            "numbers": NeuralRegressor(network, **settings).fit(X, X[:, :2], s),
            "tasks": MultiTaskNetwork(network, **settings).fit(X, several),
            "taught": student.fit(X, y, s),
            "perceptron": MLPClassifier((6,), engine="torch", **settings).fit(X, y),
            "recurrent": RecurrentRegressor(width=4, **settings).fit(long, X[:, 0]),
            "tagger": SequenceTagger(width=4, **settings).fit(long, tags, s),
            "words": Seq2Seq(width=4, **settings).fit(words, words),
        }


def weights(model):
    parts = [p.detach().reshape(-1) for p in model.module_.parameters()]
    return torch.cat(parts).numpy()


def vote(rank):
    """What DistributedDataParallel leaves as gradients after a vote."""
    layer = nn.Linear(3, 2).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
    parallel = nn.parallel.DistributedDataParallel(layer)
    parallel.register_comm_hook(None, majority_vote)
    x = torch.tensor([[1.0, -2.0, 0.5], [-3.0, -1.0, 0.5]], dtype=torch.float64)
    wanted = torch.tensor([[1.0, 2.0], [-5.0, 2.0]], dtype=torch.float64)
    loss = (parallel(x[rank : rank + 1]) - wanted[rank]).square().sum()
    loss.backward()
    return torch.cat([p.grad.reshape(-1) for p in layer.parameters()]).numpy()


def main(folder):
    rank = int(os.environ["RANK"])
    found = {name: weights(fit(**options)) for name, options in CASES.items()}
    found |= {name: weights(model) for name, model in others().items()}
    found["losses"] = np.array(fit().history_["loss"])
    found["made"] = weights(fit(made(rank)))
    # Without a seed the first process draws for all, and it alone writes.
    unseeded = fit(random_state=None, checkpoint=folder / f"of-{rank}")
    found["unseeded"] = weights(unseeded)
    found["resumed"] = weights(fit(random_state=None, checkpoint=folder / f"of-{rank}"))
    found["epochs"] = np.array(fit(max_iter=10**6, max_time=0.3, tol=0.0).n_iter_)
    found["vote"] = vote(rank)
    found["sign"] = weights(fit(optimizer="signsgd", max_iter=1, batch_size=ROWS))
    np.savez(folder / f"rank-{rank}.npz", **found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
