"""A tokeniser of few letters, so that all texts of some length can be listed."""

from __future__ import annotations

import numpy as np

from certus.language.base import END
from certus.language.tokens.tokenizers import ByteTokenizer


class Letters(ByteTokenizer):
    """The letters a, b, c and the end of a text: four tokens."""

    def __init__(self, letters="abc"):
        self.letters = letters

    @property
    def tokens(self):
        return [letter.encode() for letter in self.letters] + [b""]

    @property
    def special(self):
        return {END: len(self.letters)}

    def _plain(self, data):
        return np.array([self.letters.index(chr(b)) for b in data], np.int32)


def markov_text(P, n, seed=0):
    """A text of n letters whose next letter depends on the last one by the matrix P."""
    rng = np.random.default_rng(seed)
    steps, state = rng.random(n), 0
    ends = np.cumsum(P, axis=1)
    out = np.empty(n, np.int64)
    for t in range(n):
        state = out[t] = min(int(np.searchsorted(ends[state], steps[t])), len(P) - 1)
    return "".join("abc"[i] for i in out)


def entropy_rate(P):
    """Bits for each letter of a chain that has forgotten its beginning."""
    values, vectors = np.linalg.eig(P.T)
    pi = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    pi /= pi.sum()
    return float(-(pi[:, None] * P * np.log2(P)).sum())
