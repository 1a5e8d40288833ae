"""Language models: how many bits a text costs, counted again from its raw bytes.

    bits per byte = −log₂ p(text) / bytes(text),   p(text) = Π p(xₜ | x_{<t})

The bytes are those of the text as given, and the tokens must decode to exactly these.
As p(text) is the sum over all ways to cut the text, this way alone needs at least as
many bits: the figure speaks about the text and is comparable between tokenisers. The
probabilities come from the verifier's own transformer, with a bound of their rounding
(``scoring``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number
from certus.verify.language import attention
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.drawn_bits import sampled_claim
from certus.verify.language.drift import Bounded
from certus.verify.language.scoring import (
    BITS,
    NEAR,
    decide,
    estimate,
    farthest,
    figure,
    log_probs,
    spread,
    verdict,
    windows,
)
from certus.verify.stating import Checked, Given, require

#: Tokens whose bytes are joined at a time.
JOINED = 1 << 20
#: Multiplications that are spent at level "quick", and tokens that are compared then.
QUICK, COMPARED = 1.5e10, 1_024
#: Fewest windows from which the bits of all are estimated.
FEWEST = 12
END = "<|end|>"
RAW = str | bytes | bytearray | memoryview


class Statement(NamedTuple):
    """The network by its configuration and weights, and the bytes of each token."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    tokens: list[bytes]
    end: int


def _language_model(model: Any) -> Statement:
    tokenizer = model.tokenizer_
    tokens = [bytes(token) for token in tokenizer.tokens]
    return Statement(
        dict(model.config_), model.weights_, tokens, int(tokenizer.special[END])
    )


READERS = {"LanguageModel": _language_model}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Whether the tokens are the text, what they cost, and whether the model says so.

    ``X`` is a text or a list of documents.
    """
    bd.refuse_weights(model, given.sample_weight)
    documents = documents_of(given.X)
    marks = fingerprints.of_texts(documents, np.zeros(len(documents)))
    ids = [np.asarray(model.tokenizer_.encode(document)) for document in documents]
    counted = bytes_claim(stated.tokens, stated.end, ids, documents)
    if not counted.met:
        return [counted], bd.status_of(counted), marks
    stream = joined(ids, stated.end)
    tokens = np.array(list(map(len, ids)))
    n_bytes, n = sum(map(len, documents)), len(stream) - 1
    read, model_says = reader(stated), model.token_log_probs
    every = given.level == "full" or len(windows(n, read.config["context"])) <= many(
        read
    )
    own = log_probs(read, stream) if every else None
    part = stream if own is not None else stream[: COMPARED + 1]
    claims = [
        bits_claim(read, stream, tokens, n_bytes, own),
        counted,
        agreement_claim(read, part, own, model_says),
        causality_claim(read, stream, model_says),
    ]
    if given.level == "full" and own is not None:
        said = model.bits_per_byte(given.X)
        guess = rounding_of_bits(read, stream, n_bytes)
        claims.insert(1, stated_claim(bits_of(own, n_bytes), said, guess))
    return claims, verdict(claims), marks


def reader(stated: Statement) -> PlainNetwork:
    """The verifier's network; it must be a decoder over the tokeniser's tokens."""
    read = PlainNetwork(stated.config, stated.weights)
    require(read.config["kind"] == "decoder", "its network is not a decoder")
    n, known = read.config["n_tokens"], len(stated.tokens)
    require(n >= known, f"its network has {n} tokens and its tokeniser {known}")
    return read


# -- reading --------------------------------------------------------------------------


def documents_of(texts: Any) -> list[bytes]:
    """The documents as bytes; one text is one document."""
    one = isinstance(texts, RAW) or not isinstance(texts, Iterable)
    found = [_document(text) for text in ([texts] if one else texts)]
    if not any(found):
        raise ValueError("The text is empty; give at least one byte of text.")
    return found


def _document(text: Any) -> bytes:
    if isinstance(text, PathLike):
        return Path(text).read_bytes()
    if not isinstance(text, RAW):
        raise TypeError(f"Pass a text, bytes or a path, not {type(text).__name__}.")
    return text.encode("utf-8") if isinstance(text, str) else bytes(text)


def joined(ids: list[Array], end: int) -> Array:
    """The tokens of all documents, an end-of-text token before each of them."""
    parts = [part for each in ids for part in ([end], each)]
    return np.concatenate(parts).astype(np.int64)


def _stand_for(tokens: list[bytes], ids: Array, document: bytes) -> bool:
    """Whether tokens are a document; part by part, as joining takes much memory."""
    at = 0
    for begin in range(0, len(ids), JOINED):
        said = b"".join([tokens[i] for i in ids[begin : begin + JOINED].tolist()])
        if document[at : at + len(said)] != said:
            return False
        at += len(said)
    return at == len(document)


def bytes_claim(
    tokens: list[bytes], end: int, ids: list[Array], documents: list[bytes]
) -> Claim:
    """Whether the tokens of each document decode to exactly its bytes."""
    wrong = 0 if tokens[end] == b"" else 1
    for each, document in zip(ids, documents, strict=True):
        inside = not len(each) or (each.min() >= 0 and each.max() < len(tokens))
        wrong += not (inside and _stand_for(tokens, each, document))
    n = sum(map(len, documents))
    return bd.proved(
        *("bytes_counted", Number(float(wrong)), 0.0),
        f"the tokens stand for exactly the {n:,} bytes that were given",
        missed="the tokens do not stand for the bytes that were given",
        objective="documents whose tokens do not decode to their bytes",
        theorem="the bytes of the tokens were joined and compared, byte by byte",
        fix="use the tokeniser that the model was fitted with",
    )


# -- bits -----------------------------------------------------------------------------


def many(read: PlainNetwork) -> int:
    """How many windows are scored at level "quick"."""
    size = sum(np.size(w) for w in read.weights.values())
    return max(FEWEST, int(QUICK / (read.config["context"] * size)))


def bits_of(own: Bounded, n_bytes: int) -> Number:
    """Bits per byte, and their rounding."""
    total = -math.fsum(own.x) / BITS
    lost = math.fsum(own.off) / BITS + 64 * bd.U * abs(total)
    return Number(total / n_bytes, lost / n_bytes)


def rounding_of_bits(
    read: PlainNetwork, stream: Array, n_bytes: int
) -> Callable[[], float]:
    """An estimate of the rounding of the bits per byte, for when it is asked for."""
    return lambda: estimate(read, stream) / BITS * (len(stream) - 1) / n_bytes


def bits_claim(
    read: PlainNetwork,
    stream: Array,
    tokens: Array,
    n_bytes: int,
    own: Bounded | None,
) -> Claim:
    """Bits per byte from all log-probabilities, or an interval from some of them."""
    objective, n = told(read, len(tokens)), many(read)
    if own is None:
        return sampled_claim(read, stream, tokens, n_bytes, n, objective)
    found = bits_of(own, n_bytes)
    shown = found.most if found.rounding <= NEAR else found.value
    return figure(
        *("bits_per_byte", found),
        f"{shown:.4f} bits per byte for {n_bytes:,} bytes "
        f"({shown * n_bytes / 8:,.0f} bytes with an arithmetic coder)",
        rounding_of_bits(read, stream, n_bytes),
        objective=objective,
        theorem="the chain rule; the probability of the text is at least that of its "
        "tokens",
    )


def told(read: PlainNetwork, documents: int) -> str:
    """Windows, and what the first token sees, in one line."""
    size, many = read.config["context"], ""
    if documents > 1:
        many = f" of {documents:,} documents"
    return (
        f"−log₂ p / bytes{many}: windows of {size} tokens, {max(1, size // 2)} apart, "
        "each token once; the first one sees an end-of-text token"
    )


def stated_claim(found: Number, said: float, guess: Callable[[], float]) -> Claim:
    """Whether the model's own figure is the verifier's."""
    apart = abs(float(said) - found.value)
    return decide(
        *("stated_bits", Number(apart, found.rounding), NEAR),
        f"the model's own figure, {said:.4f} bits per byte, is {apart:.1e} away",
        guess,
        missed=f"the model says {said:.4f} bits per byte, but the text costs "
        f"{found.value:.4f}",
        objective="|bits per byte of the model − bits per byte of the verifier|",
        theorem="both counted on the same bytes",
        fix="count the raw bytes of the text, and each token once",
    )


# -- the model's own numbers ----------------------------------------------------------

Numbers = Callable[[Array], Array]


def agreement_claim(
    read: PlainNetwork, stream: Array, own: Bounded | None, model: Numbers
) -> Claim:
    """Whether the model gives each token the verifier's probability."""
    n = len(stream) - 1
    own = log_probs(read, stream) if own is None else own
    found = farthest(*own, numbers(model, stream[1:]))
    worst = found.value
    return decide(
        *("agreement", found, NEAR),
        f"the model's log-probabilities of {n:,} tokens agree within {worst:.1e}",
        lambda: estimate(read, stream),
        missed=f"the model's log-probability of a token is {worst:.2g} away from that "
        "of its weights",
        objective=f"largest |log p of the model − log p of the verifier| of {n:,} "
        "tokens",
        theorem="the network was run again in float64 from its configuration and "
        "weights",
        fix="restore the model file, or fit again",
    )


def numbers(model: Numbers, ids: Array) -> Array:
    """What the model says about the tokens, one number for each."""
    said = np.asarray(model(ids), dtype=np.float64)
    require(said.shape == ids.shape, f"it gives {said.size} numbers for {ids.size}")
    return said


def causality_claim(read: PlainNetwork, stream: Array, model: Numbers) -> Claim:
    """Whether probabilities depend on earlier tokens alone, at some places.

    The verifier is given the tokens before each place and no others; and the model is
    given other tokens behind it.
    """
    context = read.config["context"]
    n = min(len(stream) - 1, 2 * context)
    ids = stream[1 : n + 1]
    said, worst, off = numbers(model, ids), 0.0, 0.0
    places = spread(n, 6)
    every = windows(n, context)
    for t in places:
        w = next(w for w in every if w.first <= t + 1 <= w.stop)
        before = stream[w.begin : t + 1]
        lp = attention.log_probs(read, before)
        other = ids.copy()
        other[t + 1 :] = (ids[t + 1 :][::-1] + 1) % (ids.max() + 1)
        again = numbers(model, other)[: t + 1]
        found = farthest(lp.x[-1:, ids[t]], lp.off[-1:], said[t : t + 1])
        moved = farthest(said[: t + 1], np.zeros(1), again)
        worst = max(worst, found.value, moved.value)
        off = max(off, found.rounding, moved.rounding)
    return decide(
        *("causality", Number(worst, off), NEAR),
        f"at {len(places)} places, later tokens move no probability by more than "
        f"{worst:.1e}",
        lambda: estimate(read, stream[: n + 1]),
        missed=f"later tokens move the probability of an earlier one by {worst:.2g} "
        "(in log p)",
        objective="largest change of a token's log p if later tokens are left out or "
        "changed",
        theorem="the verifier was given the earlier tokens only",
        fix="mask the positions that come later",
    )
