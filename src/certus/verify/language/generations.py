"""What a model wrote: each token drawn again from the record of the generation.

The record holds the network, the tokens, the uniform numbers and, where a draft
proposed, its proposals and what the sampler decided on them with (``sampling``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.ngrams import counted_draft
from certus.verify.language.sampling import (
    Draft,
    How,
    Proposals,
    cache_claim,
    replay_claim,
    speculative_claim,
)
from certus.verify.language.scoring import verdict
from certus.verify.stating import Checked, Given, require


class Statement(NamedTuple):
    """The network, and the record of a generation."""

    read: PlainNetwork
    draft: Draft | None
    stream: Array
    begun: int
    how: How
    searched: bool


def _draft(config: Any, weights: Any) -> Draft:
    if config.get("kind") == "ngram":
        return counted_draft(config, weights)
    return PlainNetwork(config, weights)


def _generation(made: Any) -> Statement:
    draft = made.draft
    how = How(float(made.temperature), int(made.top_k or 0), float(made.top_p))
    return Statement(
        PlainNetwork(made.config, made.weights),
        None if draft is None else _draft(draft.config, draft.weights),
        np.append(int(made.end), np.asarray(made.ids)).astype(np.int64),
        int(made.prompt_length) + 1,
        how,
        made.beam is not None,
    )


READERS = {"Generation": _generation}


def check(made: Any, stated: Statement, given: Given) -> Checked:
    """Draw a generation again, without a cache and without its code."""
    read, stream, begun = stated.read, stated.stream, stated.begun
    require(0 < begun <= len(stream), "its prompt is longer than the text")
    record = None
    if stated.draft is not None:
        d = made.draft
        record = Proposals(
            *(np.asarray(d.places) + 1, np.asarray(d.tokens), np.asarray(d.q)),
            *(np.asarray(d.p), np.asarray(d.draft_uniforms)),
            *(np.asarray(d.accept_uniforms), np.asarray(d.accepted)),
        )
    claims = (
        []
        if stated.searched
        else [
            replay_claim(
                read, stream, begun, made.uniforms, stated.how, made.source, record
            )
        ]
    )
    if record is not None and stated.draft is not None:
        claims.append(speculative_claim(read, stated.draft, stream, record, stated.how))
    if begun < len(stream):
        claims.append(cache_claim(read, stream, begun, made.log_probs))
    claims.append(_text_claim(made))
    marks = {"shape": [len(stream) - begun], "dtype": "tokens"}
    return claims, verdict(claims), marks


def _text_claim(made: Any) -> Claim:
    """Whether the text is what its tokens stand for."""
    ids = np.asarray(made.ids)[int(made.prompt_length) :]
    require(all(0 <= i < len(made.tokens) for i in ids), "it has unknown tokens")
    said = b"".join([made.tokens[i] for i in ids]).decode("utf-8", "replace")
    return bd.proved(
        *("bytes_counted", Number(float(said != made.text)), 0.0),
        f"the text is what its {len(ids):,} tokens stand for",
        missed="the text is not what its tokens stand for",
        objective="whether the bytes of the tokens, joined, differ from the text",
        theorem="compared byte by byte",
        fix="take the text from the generation's own tokens",
    )
