"""Mixtures of language models: how many bits the best weights could still save.

For weights λ, and gₘ = meanₜ pₘ(xₜ)/Σₖ λₖ pₖ(xₜ), every other μ ≥ 0 with Σ μ = 1 has

    f(λ) − f(μ) = meanₜ log (μ·pₜ/λ·pₜ) ≤ log Σₘ μₘ gₘ ≤ log maxₘ gₘ

by Jensen's inequality, f being −mean log λ·pₜ. The same holds for any other weights κ,
so f(λ) − min f ≤ f(λ) − f(κ) + log maxₘ gₘ(κ), where κ takes steps of EM.

Rounding: pₜ relative to the largest of its row is right to a share of (8 + abs(log pₜ))
u, the sum over M members and n tokens to γ, a logarithm to 8 u of itself; by how much λ
misses the sum 1 counts as rounding.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify import stating
from certus.verify.deciding import Number, U, gamma
from certus.verify.language import models
from certus.verify.stating import Checked, Given, require

#: Steps of EM towards a tighter bound.
STEPS = 200
TRUSTED = "the probabilities of the members are as they compute them"


class Statement(NamedTuple):
    """The target, in bits per byte, and the bytes of each token."""

    tol: float
    tokens: list[bytes]
    end: int


def _mixture(model: Any) -> Statement:
    tokenizer = model.tokenizer_
    tokens = [bytes(token) for token in tokenizer.tokens]
    return Statement(stating.tol_of(model), tokens, int(tokenizer.special[models.END]))


READERS = {"MixtureOfModels": _mixture}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The gap of the weights and the bits of the mixture, on the text given."""
    bd.refuse_weights(model, given.sample_weight)
    documents = models.documents_of(given.X)
    marks = fingerprints.of_texts(documents, np.zeros(len(documents)))
    each = [np.asarray(model.tokenizer_.encode(text)) for text in documents]
    counted = models.bytes_claim(stated.tokens, stated.end, each, documents)
    if not counted.met:
        return [counted], bd.status_of(counted), marks
    ids = models.joined(each, stated.end)[1:]
    lam = np.asarray(model.weights_, dtype=np.float64)
    require(lam.shape == (len(model.models),), "it has not one weight for each member")
    sound = bool(np.all(lam >= 0)) and abs(lam.sum() - 1) <= 1e-12
    require(sound, "its weights are not shares that sum to one")
    L = np.column_stack(
        [models.numbers(one.token_log_probs, ids) for one in model.models]
    )
    size = sum(map(len, documents))
    claims = [_gap(L, lam, size, stated.tol), _bits(L, lam, size), counted]
    return claims, bd.verdict(claims), marks


def _shares(L: Array, lam: Array) -> tuple[Array, Array, float]:
    """Probabilities by member, and mixed, relative to a row's largest; rounding."""
    top = L.max(axis=1, keepdims=True)
    P = np.exp(L - top)
    P[P < 1e-290] = 0.0  # where digits are lost
    deep = float(np.abs(np.where(P > 0, L, top)).max())
    share = (16 + 2 * deep) * U + gamma(len(lam) + 4)
    return P, P @ lam, share + abs(float(lam.sum()) - 1)


def _gap(L: Array, lam: Array, size: int, tol: float) -> Claim:
    n, (P, mixed, share) = len(L), _shares(L, lam)
    scale, at, gaps = n / size / math.log(2), lam, []
    with np.errstate(divide="ignore"):
        here = np.log(mixed)
    far = float(np.abs(here).max())
    for _ in range(STEPS):  # of EM, for weights of another text than this
        with np.errstate(divide="ignore", invalid="ignore"):
            g = (P / (P @ at)[:, None]).mean(axis=0)
            there = np.log(P @ at)
            saved, far = float(np.mean(there - here)), max(far, np.abs(there).max())
        top = float(g.max())
        gaps.append(saved + math.log(top) if saved + top < math.inf else math.inf)
        if min(gaps) * scale <= tol / 2 or math.log(top) < 1e-3 * saved:
            break
        at = (at + 1 / len(lam)) / 2 if len(gaps) == 1 else at * g
        at = at / at.sum()
    lost = 4 * (share + gamma(n)) * (1 + far) + 32 * U * far
    found = Number(max(0.0, min(gaps)) * scale, lost * scale)
    return bd.proved(
        *("mixing_gap", found, tol),
        f"no other weights save more than {found.most:.1e} bits per byte "
        f"(asked for {tol:.0e})",
        missed=f"other weights may save {found.most:.2g} bits per byte "
        f"(asked for {tol:.0e})",
        fix="fit the weights to this text",
        objective="gap of  −Σ log₂ Σₘ λₘ pₘ(xₜ)/bytes  over λ ≥ 0, Σ λ = 1",
        theorem="Jensen: f(κ) − min f ≤ log maxₘ meanₜ pₘ(xₜ)/κ·p(xₜ), for κ = λ or "
        "better weights",
        assumptions=(TRUSTED,),
    )


def _bits(L: Array, lam: Array, size: int) -> Claim:
    _, mixed, share = _shares(L, lam)
    with np.errstate(divide="ignore"):
        nats = -(L.max(axis=1) + np.log(mixed))
    total = math.fsum(nats.tolist())
    off = len(L) * 2 * share + 12 * U * math.fsum(np.abs(nats).tolist())
    scale = 1 / (size * math.log(2))
    found = Number(total * scale, off * scale)
    alone = ", ".join(f"{-math.fsum(column) * scale:.4f}" for column in L.T.tolist())
    return bd.proved(
        *("bits_per_byte", found, None),
        f"{found.value:.4f} bits per byte for {size:,} bytes; the members need {alone}",
        objective="−Σ log₂ Σₘ λₘ pₘ(xₜ | x_{<t}) / bytes; the first token follows an "
        "end of text",
        theorem="the chain rule",
        assumptions=(TRUSTED,),
    )
