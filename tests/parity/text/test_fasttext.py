"""Training of the text classifier against a plain NumPy loop on the same numbers."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.utils import check_random_state

from certus.text import FastTextClassifier


def texts_and_labels(n=150, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, n)
    texts = [[f"w{t}" for t in rng.zipf(1.5, m) % 40] for m in lengths]
    return texts, rng.choice(5, n, p=[0.5, 0.2, 0.15, 0.1, 0.05])


def path_to(leaf, tree):
    """(node, side) from the leaf to the root."""
    k = len(tree) // 2 + 1
    while leaf < len(tree):
        node, side = tree[leaf]
        yield node, side
        leaf = k + node


def plain_epochs(model, texts, y, rate, max_iter):
    """Stochastic gradient descent in float64, one text after the other."""
    d = model.n_components
    place = {word: i for i, word in enumerate(model.vocabulary_)}
    rng = np.random.default_rng(
        check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
    )
    Z = (2 * rng.random((len(place), d), dtype=np.float32) - 1).astype(float) / d
    W = np.zeros((len(model.coef_), d))
    n, seen = len(texts), []
    for epoch in range(max_iter):
        losses = []
        for t, i in enumerate(rng.permutation(n)):
            rows = [place[w] for w in texts[i]]
            h = Z[rows].mean(axis=0) if rows else np.zeros(d)
            eta = rate * (1 - (epoch * n + t) / (max_iter * n))
            if model.tree_ is None:
                p = softmax(W @ h)
                losses.append(-np.log(p[y[i]]))
                slope = p - np.eye(len(W))[y[i]]
            else:
                slope, loss = np.zeros(len(W)), 0.0
                for node, side in path_to(y[i], model.tree_):
                    z = W[node] @ h
                    loss -= np.log(expit(z if side else -z))
                    slope[node] = expit(z) - side
                losses.append(loss)
            back = slope @ W
            W -= eta * np.outer(slope, h)
            for row in rows:
                Z[row] -= eta * back / len(rows)
        seen.append(np.mean(losses))
    return Z, W, seen


@pytest.mark.catalog("TXT-10")
@pytest.mark.parametrize("loss", ["softmax", "hierarchical"])
@pytest.mark.parametrize("max_iter", [1, 3])
def test_epochs_equal_those_of_a_plain_loop(loss, max_iter):
    texts, y = texts_and_labels()
    model = FastTextClassifier(
        7,
        loss=loss,
        learning_rate=0.8,
        max_iter=max_iter,
        deterministic=True,
        random_state=3,
    ).fit(texts, y)
    Z, W, seen = plain_epochs(model, texts, y, 0.8, max_iter)
    np.testing.assert_allclose(model.vectors_, Z, atol=2e-5)
    np.testing.assert_allclose(model.coef_, W, atol=2e-5)
    np.testing.assert_allclose(model.history_["running_loss"], seen, rtol=1e-5)


def test_in_one_thread_turns_leave_no_trace(monkeypatch):
    """The rates run on from turn to turn, and the exchange of W loses nothing."""
    monkeypatch.setattr("certus.text.classifier_training.TURN", 3e3)
    texts, y = texts_and_labels()
    model = FastTextClassifier(
        7, learning_rate=0.8, max_iter=2, deterministic=True, random_state=0
    ).fit(texts, y)
    Z, W, _ = plain_epochs(model, texts, y, 0.8, 2)
    np.testing.assert_allclose(model.vectors_, Z, atol=2e-5)
    np.testing.assert_allclose(model.coef_, W, atol=2e-5)
