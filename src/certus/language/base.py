"""What all models of text share: documents, their tokens, and bits for each byte.

A model gives p(xₜ | x_{<t}) for each token; the first one sees the end-of-text token.
By the chain rule

    log p(text) = Σₜ log p(xₜ | x_{<t}),   bits per byte = −log₂ p(text) / bytes(text),

where the bytes are those of the text as it was given. The end-of-text tokens between
documents cost bits and have no bytes. Bits for each byte are comparable between
tokenisers: a vocabulary cannot make them look smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from certus.base import Model
from certus.language.tokens.pieces import as_bytes, refuse_characters, refuse_folder
from certus.language.tokens.tokenizers import BPETokenizer, ByteTokenizer
from certus.language.views.surprise import Surprise
from certus.typing import Array, Column, TextsLike

#: The special token between documents; what the first token of a text sees.
END = "<|end|>"
#: Bytes of a text from which merged tokens are worth learning.
SHORT = 100_000


class TextModel(Model):
    """Base of all models of text; abstract.

    Subclasses set ``tokenizer_`` and give :meth:`token_log_probs` and
    :meth:`next_probabilities`.
    """

    tokenizer_: ByteTokenizer

    def token_log_probs(self, ids: Array) -> Array:
        """Natural logarithm of each token's probability given those before it.

        Parameters
        ----------
        ids : int array of shape (n,)
            Tokens of a text, without an end-of-text token at the beginning: the first
            one is taken to follow one.

        Returns
        -------
        float64 array of shape (n,)
        """
        raise NotImplementedError

    def next_probabilities(self, ids: Array) -> Array:
        """The probability of each token to come next.

        Parameters
        ----------
        ids : int array of shape (n,)
            The text so far; may be empty.

        Returns
        -------
        float64 array of shape (n_tokens,)
        """
        raise NotImplementedError

    def log_prob(self, texts: Any) -> float:
        """Natural logarithm of the probability of a text.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents; between these stands the end-of-text token.
        """
        ids = joined(self.tokenizer_, read_documents(texts, empty=True))
        return math.fsum(self.token_log_probs(ids)) if len(ids) else 0.0

    def bits_per_byte(self, texts: Any) -> float:
        """Bits that the model needs for each byte of a text, −log₂ p(text) / bytes.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents; the end-of-text tokens between these cost bits but
            have no bytes. Strings are counted as UTF-8.
        """
        documents = read_documents(texts)
        nats = self.log_prob(documents)
        return -nats / math.log(2) / sum(map(len, documents))

    def surprise(self, texts: TextsLike) -> Surprise:
        """The bits that each token of a text costs, −log₂ p.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents; between these stands the end-of-text token.

        Returns
        -------
        Surprise
            Bits of each token; notebooks show the text coloured by them.
        """
        check_is_fitted(self)
        documents = read_documents(texts)
        ids = joined(self.tokenizer_, documents)
        tokens = [self.tokenizer_.tokens[i] for i in ids.tolist()]
        bits = self.token_log_probs(ids) / -math.log(2)
        return Surprise(ids, bits, sum(map(len, documents)), tokens)

    def score(self, texts: TextsLike, y: Column = None) -> float:
        """Minus bits per byte: higher is better, as scikit-learn wants it.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents.
        y : None
            Ignored.
        """
        return -self.bits_per_byte(texts)

    def _encoded(self, texts: TextsLike, tokenizer: Any) -> tuple[list[bytes], Array]:
        """The documents of a fit, and their tokens; sets ``tokenizer_``."""
        documents = read_documents(texts)
        self.tokenizer_ = fitted_tokenizer(tokenizer, documents)
        return documents, joined(self.tokenizer_, documents)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        return tags


def read_documents(texts: Any, *, empty: bool = False) -> list[bytes]:
    """The documents as bytes.

    Parameters
    ----------
    texts : str, bytes, Path, or an iterable of these
        One document or several.
    empty : bool, default=False
        Whether a text without a single byte is allowed.
    """
    if isinstance(texts, str | bytes | bytearray | memoryview | PathLike):
        documents = [_document(texts)]
    elif isinstance(texts, set | frozenset):
        raise TypeError(
            "texts must be a list, not a set: the order of a set changes from run to "
            "run, and the model with it. Give sorted(texts)."
        )
    elif isinstance(texts, Iterable) and not isinstance(texts, Mapping):
        given = list(texts)
        refuse_characters(given)
        _refuse_numbers(given)
        documents = [_document(text) for text in given]
    else:
        raise TypeError(
            "texts must be a text, a path, or a list of these, got "
            f"{type(texts).__name__}."
        )
    if not empty and not any(documents):
        raise ValueError("The text is empty; give at least one byte of text.")
    return documents


def _document(text: Any) -> bytes:
    if not isinstance(text, PathLike):
        return as_bytes(text)
    refuse_folder(text)
    return Path(fspath(text)).read_bytes()


def _refuse_numbers(texts: Sequence[Any]) -> None:
    if texts and all(isinstance(t, int | np.integer) for t in texts):
        raise TypeError(
            "texts must hold texts, got numbers. Give the text itself: the model has "
            "a tokeniser of its own."
        )


def known_tokens(ids: Any, n_tokens: int) -> Array:
    """Tokens as an array, or an error that says which ones there are.

    Parameters
    ----------
    ids : list or array of int
        The tokens of a text.
    n_tokens : int
        How many different tokens there are.
    """
    ids = np.asarray(ids)
    if ids.size == 0:
        return np.zeros(0, np.int32)
    whole = ids.ndim == 1 and ids.dtype.kind in "iu"
    if not whole or ids.min() < 0 or ids.max() >= n_tokens:
        raise ValueError(
            f"ids must be a list of tokens, whole numbers from 0 to {n_tokens - 1}. "
            "Use model.tokenizer_.encode(text)."
        )
    return ids


def joined(tokenizer: ByteTokenizer, documents: Sequence[bytes]) -> Array:
    """The tokens of the documents, with the end-of-text token between them."""
    end = np.array([end_of(tokenizer)], np.int32)
    parts: list[Array] = []
    for document in documents:
        parts += [end, tokenizer.encode(document)]
    return np.concatenate(parts[1:]) if parts else np.zeros(0, np.int32)


def end_of(tokenizer: ByteTokenizer) -> int:
    """The number of the end-of-text token."""
    try:
        return tokenizer.special[END]
    except KeyError:
        known = ", ".join(map(repr, tokenizer.special)) or "none"
        raise ValueError(
            f"The tokeniser must have the special token {END!r}, which stands between "
            f"documents; its special tokens: {known}. Make it with "
            f"special_tokens=[{END!r}]."
        ) from None


def _fitting_size(n_bytes: int) -> int | str:
    """Bytes for a short text; 512 tokens for 0.1 MB, 1,024 for 1 MB, 2,048 for 4 MB."""
    if n_bytes < SHORT:
        return "bytes"
    return min(8192, max(512, 2 ** round(math.log2(n_bytes) / 2)))


def fitted_tokenizer(given: Any, documents: Sequence[bytes]) -> ByteTokenizer:
    """The tokeniser of a fit.

    Parameters
    ----------
    given : "auto", "bytes", "bpe", an int, or a tokeniser
        One token for each byte; byte-pair encoding with 4,096 or a given number of
        tokens; or a tokeniser of your own, which is fitted to the documents if it is
        not yet. "auto" takes bytes for short texts, and about √bytes tokens for longer
        ones.
    documents : list of bytes
        What the model learns from.
    """
    if isinstance(given, str) and given == "auto":
        given = _fitting_size(sum(map(len, documents)))
    if isinstance(given, str) and given == "bytes":
        return ByteTokenizer(special_tokens=(END,))
    if isinstance(given, str) and given == "bpe":
        given = BPETokenizer(special_tokens=(END,))
    elif isinstance(given, int | np.integer) and not isinstance(given, bool):
        given = BPETokenizer(int(given), special_tokens=(END,))
    if not isinstance(given, ByteTokenizer):
        raise TypeError(
            "tokenizer must be 'auto', 'bytes', 'bpe', a number of tokens, or a "
            f"ByteTokenizer or BPETokenizer, got {given!r}."
        )
    try:
        end_of(given)
    except NotFittedError:
        names = tuple(given.special_tokens)
        names += () if END in names else (END,)
        given = clone(given).set_params(special_tokens=names).fit(documents)
    return given
