"""Beam search: the most probable text that keeping a few candidates finds.

After each step the ``beam`` most probable candidates go on. A candidate that drew the
end-of-text token is complete. The search ends when no unfinished candidate is more
probable than the best complete one: probabilities only fall as a text grows. There is
no reward for length, so the score is the probability itself.
"""

from __future__ import annotations

import numpy as np

from certus.language.decoding import decoding_kernels as kernels
from certus.language.decoding.samplers import CompiledDecoder, Drawn
from certus.typing import Array


def beam_search(
    decoder: CompiledDecoder, prompt: Array, max_tokens: int, beam: int
) -> Drawn:
    """The most probable continuation that was found.

    Parameters
    ----------
    decoder : CompiledDecoder
        The network.
    prompt : int array
        Tokens of the prompt.
    max_tokens : int
        Most tokens of a continuation.
    beam : int
        Candidates that go on after each step.
    """
    n = len(prompt) + 1
    ids = np.full((1, n + max_tokens), decoder.end, np.int64)
    ids[0, 1:n] = prompt
    K, V = decoder.caches(1)
    starts, read = np.zeros(1, np.int64), np.zeros(1, np.int64)
    parts, totals = np.zeros((1, max_tokens)), np.zeros(1)
    best: tuple[float, Array, Array] | None = None
    for step in range(max_tokens):
        alive, length = len(ids), n + step
        logits = np.empty((alive, 1, decoder.n_tokens), np.float32)
        kernels.read_on(
            decoder.net, decoder.stride, K, V, ids, np.full(alive, length), starts,
            read, np.ones(alive, np.bool_), 1, logits,
        )  # fmt: skip
        logs = _log_softmax(logits[:, 0])
        parents, tokens = _largest(totals[:, None] + logs, beam)
        ids, starts, read = ids[parents], starts[parents], read[parents]
        parts, totals = parts[parents], totals[parents] + logs[parents, tokens]
        ids[:, length], parts[:, step] = tokens, logs[parents, tokens]
        ended = tokens == decoder.end
        for i in np.flatnonzero(ended):
            if best is None or totals[i] > best[0]:
                best = totals[i], ids[i, 1 : length + 1], parts[i, : step + 1]
        on = ~ended & (totals > (-np.inf if best is None else best[0]))
        if not on.any():
            break
        ids, starts, read = ids[on], starts[on], read[on]
        parts, totals = parts[on], totals[on]
        if not np.array_equal(parents[on], np.arange(len(K))):
            K, V = K[parents[on]], V[parents[on]]
    else:
        if max_tokens and (best is None or totals[0] > best[0]):
            best = totals[0], ids[0, 1:], parts[0]
    _, found, logs = best or (0.0, ids[0, 1:n], np.zeros(0))
    made = len(found) - n + 1
    done = made > 0 and bool(found[-1] == decoder.end)
    nothing = np.full(made, np.nan)
    return Drawn(found.copy(), nothing, logs.copy(), np.zeros(made, np.int64), done)


def _log_softmax(logits: Array) -> Array:
    """Row by row, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def _largest(scores: Array, k: int) -> tuple[Array, Array]:
    """Rows and columns of the k largest, in falling order; of equals the first."""
    order = np.argsort(-scores, axis=None, kind="stable")[:k]
    rows, columns = np.unravel_index(order, scores.shape)
    return rows, columns
