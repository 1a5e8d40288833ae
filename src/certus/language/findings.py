"""What the verifier says about texts beside bits per byte: differences, excess, search.

Each function returns a certificate. The claims are made by the verifier from plain
arrays: tokens, the configuration of a network, and its weights.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from certus.certificate import Certificate, Claim, Status
from certus.language.base import TextModel, end_of, joined, read_documents
from certus.typing import Array, Fit, TextsLike
from certus.verify import (
    PlainNetwork,
    decoding_claim,
    difference_claims,
    excess_claim,
)

__all__ = ["bits_difference", "decoding_gap", "entropy_excess"]


def bits_difference(
    first: TextModel, second: TextModel, texts: TextsLike, *, delta: float = 0.05
) -> Certificate:
    """Whether one model needs fewer bits than another, document by document.

    The documents are the independent units, not their tokens: eight are needed at
    least. The interval is for the median document and assumes no distribution.

    Parameters
    ----------
    first, second : TextModel
        Fitted models of text, of any kind and with any tokenisers.
    texts : list of str, bytes or Path
        Documents that neither model has seen.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    Certificate
        With ``bits_difference``, the upper end of the interval in bits per byte (below
        zero: the first model is better), and ``total_difference`` over all bytes.

    Examples
    --------
    >>> from certus.language import NGramModel, bits_difference
    >>> short, long = (NGramModel(k).fit("abracadabra " * 50) for k in (1, 4))
    >>> found = bits_difference(long, short, ["abracadabra " * n for n in range(2, 12)])
    >>> found["bits_difference"].value < 0
    True
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be a probability between 0 and 1, got {delta!r}.")
    start = time.perf_counter()
    documents = read_documents(texts)
    one, other = (
        [-model.log_prob(document) / math.log(2) for document in documents]
        for model in (first, second)
    )
    sizes = [len(document) for document in documents]
    claims = difference_claims(one, other, sizes, delta=delta)
    return _signed(first, claims, documents, start)


def entropy_excess(
    model: Fit, law: Any, symbols: str | bytes | list[str], length: int
) -> Certificate:
    """How many bits a model pays above the entropy of a Markov source.

    Parameters
    ----------
    model : LanguageModel
        Fitted to texts of the source.
    law : array of shape (m, …, m)
        ``law[a, …, b, c]`` is the probability that symbol c follows a, …, b; as many
        axes as the order of the source and one more.
    symbols : str, bytes or list of str
        The m symbols, each of them one token.
    length : int
        Symbols in a text, which begins in the stationary distribution behind an
        end-of-text token; at most the model's context.

    Returns
    -------
    Certificate
        With ``entropy_excess`` in bits per symbol: proved where all m^length texts can
        be listed (up to 4,096), otherwise with an interval.

    Examples
    --------
    >>> from certus.language import LanguageModel, entropy_excess
    >>> model = LanguageModel(n_layers=1, width=16, context=8, max_iter=1,
    ...                       random_state=0).fit("abba" * 200)
    >>> entropy_excess(model, [0.5, 0.5], "ab", 4).value > 0
    True
    """
    start = time.perf_counter()
    given = symbols if isinstance(symbols, list) else [*_letters(symbols)]
    ids = [np.asarray(model.tokenizer_.encode(symbol)) for symbol in given]
    if len(ids) < 2 or any(len(each) != 1 for each in ids):
        raise ValueError(
            "symbols must hold at least two symbols, each of which is one token of the "
            "model."
        )
    read, end = PlainNetwork(model.config_, model.weights_), end_of(model.tokenizer_)
    claim = excess_claim(read, end, law, np.concatenate(ids), int(length))
    return _signed(model, [claim], [], start)


def decoding_gap(
    model: Fit,
    prompt: Any,
    continuation: Any,
    *,
    max_tokens: int | None = None,
    visits: int = 200,
) -> Certificate:
    """How much more probable another continuation of a prompt can be.

    A best-first search continues the most probable beginnings. No text is more probable
    than its beginning, so what is left bounds all texts, found or not.

    Parameters
    ----------
    model : LanguageModel
        The model that wrote the continuation.
    prompt, continuation : str, bytes or int array
        Texts or their tokens. The continuation must be finished: have ``max_tokens``
        tokens, or end with the end-of-text token.
    max_tokens : int, optional
        Most tokens of any continuation; by default as many as this one has.
    visits : int, default=200
        How many beginnings are continued. More make the bound tighter.

    Returns
    -------
    Certificate
        With ``decoding_gap``, in natural logarithms of probabilities.

    Examples
    --------
    >>> from certus.language import LanguageModel, decoding_gap
    >>> model = LanguageModel(n_layers=1, width=16, context=16, max_iter=30,
    ...                       random_state=0).fit("abba" * 200)
    >>> decoding_gap(model, "ab", "ba").value < 5
    True
    """
    start = time.perf_counter()
    end = end_of(model.tokenizer_)
    before, found = (_tokens(model, part) for part in (prompt, continuation))
    read = PlainNetwork(model.config_, model.weights_)
    most = len(found) if max_tokens is None else int(max_tokens)
    line = np.concatenate([[end], before]).astype(np.int64)
    claim = decoding_claim(read, line, found, end, most, visits)
    return _signed(model, [claim], [], start)


def _letters(symbols: str | bytes) -> list[Any]:
    if isinstance(symbols, str):
        return list(symbols)
    return [symbols[i : i + 1] for i in range(len(symbols))]


def _tokens(model: Fit, text: str | bytes) -> Array:
    if isinstance(text, str | bytes):
        return joined(model.tokenizer_, read_documents(text, empty=True))
    return np.asarray(text, dtype=np.int64).ravel()


def _signed(
    model: Fit, claims: list[Claim], documents: list[bytes], start: float
) -> Certificate:
    marks = {"shape": [len(documents)], "dtype": "str"}
    return Certificate.of(
        model,
        (claims, Status.SOLVED, marks),
        origin="certify",
        seconds=time.perf_counter() - start,
    )
