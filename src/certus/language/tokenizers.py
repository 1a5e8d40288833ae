"""Byte-level tokenisers: every byte string becomes tokens, and comes back unchanged.

A vocabulary holds the 256 bytes and merges (left, right) → token, in the order of
learning. A text is cut into pieces; in each piece the pair with the earliest merge is
joined until none is left. Decoding writes the bytes of the tokens behind each other, so

    decode(encode(b)) = b    for all byte strings b,

as each merge keeps the bytes: bytes(token) = bytes(left) + bytes(right).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from certus.language import bpe_kernels as kernels
from certus.language.pieces import PieceCounts, as_bytes, character_kinds
from certus.typing import Array

#: Pieces whose tokens an encoding remembers.
REMEMBERED = 1 << 16


class ByteTokenizer(BaseEstimator):
    """One token for each byte, and any special tokens after them; nothing is learnt.

    Parameters
    ----------
    special_tokens : sequence of str, default=()
        Tokens that stand for no byte, such as an end of text: 256, 257, …

    Examples
    --------
    >>> from certus.language import ByteTokenizer
    >>> ByteTokenizer().encode("né").tolist()
    [110, 195, 169]
    >>> ByteTokenizer().decode([110, 195, 169])
    'né'
    """

    def __init__(self, special_tokens: Sequence[str] = ()) -> None:
        self.special_tokens = special_tokens

    @property
    def n_tokens(self) -> int:
        """How many different tokens there are."""
        return len(self.tokens)

    @property
    def tokens(self) -> list[bytes]:
        """The bytes of each token; none for a special one."""
        return [bytes([b]) for b in range(256)] + [b""] * len(self.special_tokens)

    @property
    def special(self) -> dict[str, int]:
        """The number of each special token."""
        return {name: 256 + i for i, name in enumerate(self.special_tokens)}

    def fit(self, texts: Any, y: Any = None) -> Self:
        """Return the tokeniser: there is nothing to learn."""
        return self

    def encode(self, text: str | bytes, *, special: bool = False) -> Array:
        """The tokens of a text.

        Parameters
        ----------
        text : str or bytes
            Strings are encoded as UTF-8 first.
        special : bool, default=False
            Whether the names of special tokens in the text mean these tokens. A text
            from a stranger should not be able to say so.
        """
        if special and self.special:
            return self._with_special(text)
        return self._plain(as_bytes(text))

    def _plain(self, data: bytes) -> Array:
        return np.frombuffer(data, np.uint8).astype(np.int32)

    def _with_special(self, text: str | bytes) -> Array:
        names = {as_bytes(name): number for name, number in self.special.items()}
        longest = sorted(names, key=len, reverse=True)
        parts = re.split(
            b"(" + b"|".join(map(re.escape, longest)) + b")", as_bytes(text)
        )
        ids = [
            np.array([names[part]], np.int32) if i % 2 else self._plain(part)
            for i, part in enumerate(parts)
        ]
        return np.concatenate(ids)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that the tokens stand for, behind each other."""
        ids, tokens = _whole_numbers(ids), self.tokens
        wrong = ids[(ids < 0) | (ids >= len(tokens))]
        if wrong.size:
            raise ValueError(
                f"token {wrong[0]} is not in the vocabulary, which has tokens from 0 "
                f"to {len(tokens) - 1}. Decode with the tokeniser that made them."
            )
        return b"".join([tokens[i] for i in ids.tolist()])

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The text of the tokens.

        Parameters
        ----------
        ids : iterable of int
            The tokens.
        errors : str, default="replace"
            What to do with bytes that are no UTF-8, as ``bytes.decode`` names it; a cut
            in the middle of a character leaves some. :meth:`decode_bytes` keeps all.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def transform(self, texts: Iterable[str | bytes]) -> list[Array]:
        """The tokens of each text."""
        return [self.encode(text) for text in _several(texts)]


class BPETokenizer(ByteTokenizer):
    """Byte-pair encoding: frequent neighbours become one token, again and again.

    Learning takes memory for the distinct words of the corpus, not for the corpus, and
    counts in 64 bits.

    Parameters
    ----------
    vocab_size : int, default=4096
        Number of tokens, the 256 bytes and the special ones included. Fewer are learnt
        where the texts have no more pairs.
    special_tokens : sequence of str, default=()
        Tokens that stand for no byte; they are the last ones.
    min_count : int, default=2
        How often a pair must occur to be joined.

    Attributes
    ----------
    tokens_ : list of bytes
        The bytes of each token.
    merges_ : ndarray of shape (n_merges, 3)
        Left, right, and the token they become, in the order of learning.
    special_ : dict
        The number of each special token.

    Examples
    --------
    >>> from certus.language import BPETokenizer
    >>> tokenizer = BPETokenizer(vocab_size=260).fit(["low lower lowest", "slow"])
    >>> [tokenizer.tokens_[i] for i in tokenizer.encode("lower")]
    [b'low', b'e', b'r']
    >>> tokenizer.decode(tokenizer.encode("déjà vu"))
    'déjà vu'
    """

    def __init__(
        self,
        vocab_size: int = 4096,
        *,
        special_tokens: Sequence[str] = (),
        min_count: int = 2,
    ) -> None:
        self.vocab_size = vocab_size
        self.special_tokens = special_tokens
        self.min_count = min_count

    @property
    def tokens(self) -> list[bytes]:
        """The bytes of each token; none for a special one."""
        check_is_fitted(self)
        return self.tokens_

    @property
    def special(self) -> dict[str, int]:
        """The number of each special token."""
        check_is_fitted(self)
        return self.special_

    def fit(self, texts: Any, y: Any = None) -> Self:
        """Learn the merges.

        Parameters
        ----------
        texts : str, bytes, Path, or an iterable of these
            Texts, or files that are read a few megabytes at a time.
        y : None
            Ignored.
        """
        n_special = len(self.special_tokens)
        if self.vocab_size < 256 + n_special:
            raise ValueError(
                f"vocab_size must be at least {256 + n_special}: one token for each "
                f"byte and for each special token; got {self.vocab_size!r}."
            )
        counted = PieceCounts().add(texts)
        offsets, store, counts = counted.arrays()
        wanted = self.vocab_size - 256 - n_special
        merges = np.empty((2 * wanted, 3), np.int32)
        done = kernels.learn_merges(
            offsets, store, counts, wanted, max(1, self.min_count), merges
        )
        tokens = [bytes([b]) for b in range(256)]
        for left, right, made in merges[:done].tolist():
            if made == len(tokens):
                tokens.append(tokens[left] + tokens[right])
        return self._remember(tokens, merges[:done].copy(), tuple(self.special_tokens))

    def _remember(
        self, tokens: list[bytes], merges: Array, special: Sequence[str]
    ) -> Self:
        self.special_ = {name: len(tokens) + i for i, name in enumerate(special)}
        self.tokens_ = tokens + [b""] * len(special)
        self.merges_ = merges
        return self

    def _plain(self, data: bytes) -> Array:
        check_is_fitted(self)
        text = np.frombuffer(data, np.uint8)
        singles, keys, ranks, new = self._tables()
        most = min(REMEMBERED, max(16, len(data)))
        room = 1 << (2 * most - 1).bit_length()
        out = np.empty(len(data), np.int32)
        numbers = np.empty((4, most), np.int64)
        size = kernels.encode_pieces(
            text,
            character_kinds(),
            singles,
            keys,
            ranks,
            new,
            np.zeros(room, np.int64),
            np.empty(most, np.uint64),
            *numbers,
            out,
        )
        return out[:size].copy()

    def _tables(self) -> tuple[Array, Array, Array, Array]:
        """Tokens of single bytes, and a hash table of the merges; made once."""
        made = self.__dict__.get("_made")
        if made is None or made[0] is not self.merges_:
            found = {token: i for i, token in reversed(list(enumerate(self.tokens_)))}
            singles = np.array([found[bytes([b])] for b in range(256)], np.int32)
            left, right, new = np.ascontiguousarray(self.merges_.T)
            room = 1 << (2 * len(left) + 16).bit_length()
            keys = np.zeros(room, np.uint64)
            ranks, ids = np.zeros(room, np.int32), np.zeros(room, np.int32)
            kernels.pair_table(left, right, new, keys, ranks, ids)
            made = self._made = (self.merges_, (singles, keys, ranks, ids))
        return made[1]

    def __getstate__(self) -> Mapping[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_made", None)
        return state


def _several(texts: Iterable[str | bytes]) -> Iterable[str | bytes]:
    if isinstance(texts, str | bytes):
        raise TypeError("texts must be a list of texts, got one text: write [text].")
    return texts


def _whole_numbers(ids: Iterable[int]) -> Array:
    given = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
    if given.size == 0:
        return np.zeros(0, np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(
            f"tokens must be a list of whole numbers, got {given.dtype} of shape "
            f"{given.shape}."
        )
    return given
