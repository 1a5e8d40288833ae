"""Tuned language models: what was changed, and what it does to answers.

    merged:   |W′ − (W + s·B·A)|ᵢⱼ ≤ 2·2⁻²⁴·(|W| + s|B||A|)ᵢⱼ for every entry of each
              adapted matrix; a float32 number is rounded by at most 2⁻²⁴ of its size
    rank:     B has r columns and A has r rows, so s·B·A has rank at most r
    base:     its weights have the digest that they had before the fit, and all other
              weights of the tuned network are equal to the base's
    answers:  mean −log p(yₜ | x, y_{<t}) over the tokens of the answers

The product s·B·A of float32 factors is computed in float64; γ_{r+2} of s|B||A| bounds
its rounding, and is added. A pair is read as <|end|> x y <|end|>, its last tokens where
it is longer than the context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.language import attention, models
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.models import COMPARED, RAW
from certus.verify.stating import Checked, Given, require

#: Unit roundoff of float32, and the smallest distance of two of its numbers.
U32, LEAST32 = 2.0**-24, 2.0**-149
#: Numbers that are held at a time.
HELD = 1 << 24
#: Largest difference of a merged entry, in units of the rounding of its terms.
ROUNDINGS = 2.0


class Statement(NamedTuple):
    """The tuned network, the weights of its base, and the adapters between them."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    tokens: list[bytes]
    end: int
    base: Mapping[str, Array]
    adapters: Mapping[str, tuple[Array, Array]] | None
    rank: int
    scale: float


def _fine_tuned(model: Any) -> Statement:
    own = models._language_model(model)
    found = None if model.rank is None else dict(model.adapters_)
    return Statement(
        *own,
        model.base.weights_,
        found,
        0 if model.rank is None else int(model.rank),
        float(model.adapter_scale),
    )


READERS = {"FineTuned": _fine_tuned}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """What was changed, and what answers cost; X are prompts and y their answers."""
    bd.refuse_weights(model, given.sample_weight)
    x, y = texts_of(given.X, "prompts"), texts_of(given.y, "answers")
    pairs = read_pairs(model.tokenizer_, stated.end, x, y, stated.config["context"])
    both = [one + b"\0" + other for one, other in zip(x, y)]
    marks = fingerprints.of_texts(both, np.zeros(len(both)))
    counted = models.bytes_claim(stated.tokens, stated.end, pairs.ids, x + y)
    if not counted.met:
        return [counted], bd.status_of(counted), marks
    claims = [] if stated.adapters is None else adapter_claims(stated)
    changed = frozenset(stated.adapters or ())
    whole = None if stated.adapters is None else stated.weights
    claims.append(base_claim(given.witness, stated.base, whole, changed))
    read = models.reader(models.Statement(*stated[:4]))
    old = PlainNetwork(stated.config, stated.base)
    part = models.joined(pairs.joined(), stated.end)[: COMPARED + 1]
    agreed = models.agreement_claim(read, part, None, model.token_log_probs)
    claims.append(agreed)
    some = pairs.streams
    if given.level == "quick":
        step = -(-len(some) // models.many(read))
        some = some[::step]
    claims += answer_claims(read, old, some, len(pairs.streams))
    return claims, bd.verdict(claims, unsure(agreed)), marks


def unsure(claim: Claim) -> tuple[str, ...]:
    """The name of a claim that rounding leaves open: it is not what decides."""
    return (claim.name,) if claim.met is None else ()


# -- reading --------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Tokens of prompts and answers, all prompts first; and what a network sees.

    A stream is the tokens of a pair and the place of its first answered token.
    """

    ids: list[Array]
    streams: list[tuple[Array, int]]

    def joined(self) -> list[Array]:
        """The tokens of each prompt with its answer."""
        n = len(self.streams)
        return [np.concatenate(two) for two in zip(self.ids[:n], self.ids[n:])]


def texts_of(texts: Any, name: str) -> list[bytes]:
    """A list of texts as bytes."""
    if texts is None or isinstance(texts, RAW):
        raise TypeError(f"{name} must be a list of texts.")
    found = [models._document(text) for text in texts]
    if not found:
        raise ValueError(f"{name} must hold at least one text, got none.")
    return found


def read_pairs(
    tokenizer: Any, end: int, x: list[bytes], y: list[bytes], context: int
) -> Pairs:
    """The tokens of each pair, of a long one the last ``context`` + 1."""
    if len(x) != len(y):
        raise ValueError(f"There are {len(x)} prompts, but {len(y)} answers.")
    ids = [np.asarray(tokenizer.encode(text), dtype=np.int64) for text in x + y]
    streams = []
    for one, other in zip(ids[: len(x)], ids[len(x) :]):
        line = np.concatenate([[end], one, other, [end]]).astype(np.int64)
        kept = min(len(line), context + 1)
        begin = kept - len(other) - 1
        require(begin >= 1, "an answer does not fit into its context")
        streams.append((line[-kept:], begin))
    return Pairs(ids, streams)


def alike(lines: list[Array], held: int) -> Iterator[list[int]]:
    """Numbers of lines of the same length, at most ``held`` tokens at a time."""
    same: dict[int, list[int]] = {}
    for i, line in enumerate(lines):
        same.setdefault(len(line), []).append(i)
    for size, rows in same.items():
        many = max(1, held // size)
        yield from (rows[i : i + many] for i in range(0, len(rows), many))


# -- what was changed -----------------------------------------------------------------


def adapter_claims(stated: Statement) -> list[Claim]:
    """Whether the merged matrices are W + s·B·A, and the rank of the change."""
    assert stated.adapters is not None
    s, worst, entries, ranks = stated.scale, Number(0.0), 0, [0]
    for name, pair in stated.adapters.items():
        B, A = (np.asarray(part, dtype=np.float64) for part in pair)
        W = np.asarray(stated.base[name], dtype=np.float64)
        new = np.asarray(stated.weights[name], dtype=np.float64)
        fits = B.ndim == A.ndim == 2 and B.shape[1] == A.shape[0]
        require(fits, f"the factors of {name} do not match")
        require((len(B), A.shape[1]) == W.shape == new.shape, f"{name} has other sizes")
        size = np.abs(W) + abs(s) * (np.abs(B) @ np.abs(A))
        unit = U32 * size + LEAST32
        apart = float((np.abs(new - (W + s * (B @ A))) / unit).max(initial=0.0))
        lost = 2 * gamma(len(A) + 3) / U32
        found = Number(apart if math.isfinite(apart) else math.inf, lost)
        worst = max(worst, found, key=lambda number: number.most)
        entries += W.size
        ranks.append(len(A))
    merged = bd.proved(
        *("adapter_merged", worst, ROUNDINGS),
        f"all {entries:,} adapted weights are W + s·B·A, within {worst.most:.2g} "
        "roundings to float32",
        missed=f"an adapted weight is {worst.most:.2g} roundings away from W + s·B·A",
        objective="largest |W′ − (W + s·B·A)|, in units of 2⁻²⁴·(|W| + s|B||A|)",
        theorem="entry by entry, the products computed in float64",
        fix="merge the adapters once, into the base that they were trained on",
    )
    r = max(ranks)
    rank = bd.proved(
        *("adapter_rank", Number(float(r)), float(stated.rank)),
        f"the change of each of {len(ranks) - 1} matrices has rank at most {r}",
        missed=f"an adapter has rank {r}, but rank={stated.rank}",
        objective="most columns of a factor B of the change s·B·A",
        theorem="the rank of a product is at most that of its factors",
        fix="fit again with this rank",
    )
    return [merged, rank]


def base_claim(
    witness: Any,
    base: Mapping[str, Array],
    tuned: Mapping[str, Array] | None = None,
    changed: frozenset[str] = frozenset(),
) -> Claim:
    """Whether the base is as it was, and so is the rest of the tuned network."""
    digest = getattr(witness, "digest", None)
    moved = digest is None or not np.array_equal(digest, fingerprints.of_weights(base))
    count, kept = int(moved), 0
    for name in () if tuned is None else {*base, *tuned} - changed:
        one, other = (np.asarray(each.get(name, 0)) for each in (base, tuned or {}))
        same = one.shape == other.shape
        count += int(np.sum(one != other)) if same else 1
        kept += one.size
    size = sum(np.size(value) for value in base.values())
    rest = f"; {kept:,} weights without an adapter are the same" if kept else ""
    what = "the base has other weights than before the fit"
    if not moved:
        what = f"{count:,} weights without an adapter differ from the base's"
    return bd.proved(
        *("base_untouched", Number(float(count)), 0.0),
        f"the {size:,} weights of the base are those before the fit{rest}",
        missed=what,
        objective="weights that differ from those of the base before the fit",
        theorem="the SHA-256 digest of all weights of the base, and each weight",
        fix="restore the base, or fit again",
    )


# -- answers --------------------------------------------------------------------------


def answer_laws(
    read: PlainNetwork, streams: list[tuple[Array, int]]
) -> Iterator[tuple[int, Array, Array]]:
    """Each pair with log p of all tokens where it answers, (T, V), and its tokens."""
    row = max(read.config["n_tokens"], read.config["heads"] * read.config["context"])
    for rows in alike([line for line, _ in streams], HELD // row):
        given = np.stack([streams[i][0][:-1] for i in rows])
        for i, lp in zip(rows, attention.log_probs(read, given).x):
            line, begin = streams[i]
            yield i, lp[begin - 1 :], line[begin:]


def answer_claims(
    read: PlainNetwork, base: PlainNetwork, streams: list[Any], of: int
) -> list[Claim]:
    """The loss on answers beside the base's, and the distance of both distributions."""
    costs, before, apart = [], [], []
    old = dict((i, lp) for i, lp, _ in answer_laws(base, streams))
    for i, lp, wanted in answer_laws(read, streams):
        at = np.arange(len(wanted))
        costs += (-lp[at, wanted]).tolist()
        before += (-old[i][at, wanted]).tolist()
        apart += (np.exp(lp) * (lp - old[i])).sum(axis=1).tolist()
    n, some = len(costs), f"{len(streams):,} answers"
    if len(streams) < of:
        some = f"{len(streams):,} of {of:,} answers; level='full' takes all"
    loss, was, kl = (math.fsum(part) / n for part in (costs, before, apart))
    return [
        bd.measured(
            *("answer_loss", loss),
            f"{loss:.4f} nats for each token of the answers; the base needs {was:.4f} "
            f"({some})",
            objective="mean −log p(yₜ | x, y_{<t}) over the tokens of the answers",
        ),
        bd.measured(
            *("kl_from_base", kl),
            f"{kl:.4f} nats for each token of the answers from the base",
            objective="mean KL(p(· | x, y_{<t}) ‖ p_base(· | x, y_{<t})), a sum over "
            "all tokens",
        ),
    ]
