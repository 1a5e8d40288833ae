"""Negative sampling in plain Python, drawn from the same stream as the kernels."""

from itertools import pairwise

import numpy as np

MASK = (1 << 64) - 1


class Stream:
    """splitmix64, by Python's integers."""

    def __init__(self, seed):
        self.state = int(seed)

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def uniform(self):
        return (self.bits() & 0xFFFFFF) / 2**24

    def below(self, n):
        return ((self.bits() >> 32) * n) >> 32

    def noise(self, accept, other, k):
        out = []
        for _ in range(k):
            bits = self.bits()
            i = ((bits >> 32) * len(accept)) >> 32
            out.append(i if (bits & 0xFFFFFF) / 2**24 < accept[i] else int(other[i]))
        return out


def pair_loss(h, u, drawn):
    """−log σ(h·u) − Σ log σ(−h·uⱼ)."""
    return np.logaddexp(0, -(h @ u)) + np.logaddexp(0, drawn @ h).sum()


def pair_gradient(h, u, drawn):
    """Derivatives of :func:`pair_loss` by h, u and the drawn rows."""
    a, b = 1 / (1 + np.exp(h @ u)), 1 / (1 + np.exp(-(drawn @ h)))
    return b @ drawn - a * u, -a * h, np.outer(b, h)


def train(ids, offsets, keep, rows, Z, U, table, seed, rates, window, varies, k):
    """The pairs of some texts, one step each, in float64; losses before each step."""
    stream, losses = Stream(seed), []
    ahead = stream.noise(*table, k)
    for first, last in pairwise(offsets):
        kept = [
            w for w in ids[first:last] if keep[w] >= 1 or stream.uniform() < keep[w]
        ]
        rate = rates[0] - rates[1] * first
        for i, true in enumerate(kept):
            reach = 1 + stream.below(window) if varies else window
            for j in range(max(0, i - reach), min(len(kept), i + reach + 1)):
                if j == i:
                    continue
                drawn, ahead = ahead, stream.noise(*table, k)
                own = rows[kept[j]]
                h = Z[own].mean(axis=0)
                losses.append(pair_loss(h, U[true], U[drawn]))
                scores = U[[true, *drawn]] @ h
                step = np.zeros_like(h)
                # A word drawn twice moves twice, the second time from where it then is.
                for at, (word, z) in enumerate(zip([true, *drawn], scores)):
                    slope = rate * ((at == 0) - 1 / (1 + np.exp(-z)))
                    step += slope * U[word]
                    U[word] += slope * h
                Z[own] += step
    return losses
