"""What is known of a model beside what it predicts."""

from __future__ import annotations

import numpy as np


def derivative_by_differences(target, x, v):
    """∇ₓ Σ vⱼ zⱼ(x) of one row by central differences, in float64."""
    found = np.empty(x.size)
    for i in range(x.size):
        step = np.zeros(x.size)
        step[i] = 1e-5 * max(1.0, np.abs(x).max())
        ends = np.stack([x.ravel() + step, x.ravel() - step]).reshape(2, *x.shape)
        z = np.asarray(target.scores(target.rows(ends)), dtype=np.float64)
        found[i] = (z[0] - z[1]) @ v / (2 * step[i])
    return found.reshape(x.shape)


def check_gradients(target, rows, rtol=1e-5):
    """Gradients of two pulls at once beside differences."""
    z = np.asarray(target.scores(target.rows(rows)))
    V = np.random.default_rng(0).standard_normal((2, *z.shape))

    def pull(k):
        return lambda z: V[k] if isinstance(z, np.ndarray) else z.new_tensor(V[k])

    _, *found = target.gradient(target.rows(rows), pull(0), pull(1))
    for k, G in enumerate(found):
        for i, x in enumerate(np.asarray(rows, dtype=np.float64)):
            truth = derivative_by_differences(target, x, V[k, i])
            size = np.abs(truth).max()
            np.testing.assert_allclose(G[i], truth, rtol=rtol, atol=rtol * size)


def check_scores(target, rows, model):
    """The largest score is that of the predicted class."""
    z = np.asarray(target.scores(target.rows(rows)))
    np.testing.assert_array_equal(target.classes[z.argmax(axis=1)], model.predict(rows))
