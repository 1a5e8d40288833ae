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
from os import PathLike
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import Fitted, Model, certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.language.tokens import bpe_encoding_kernels as encoding
from certus.language.tokens import bpe_learning_kernels as learning
from certus.language.tokens import vocabularies
from certus.language.tokens.pieces import (
    PieceCounts,
    as_bytes,
    in_pieces,
    refuse_characters,
)
from certus.language.tokens.splitting_kernels import RULES
from certus.typing import Array

#: Pieces whose tokens an encoding remembers.
REMEMBERED = 1 << 16
#: Tokens that are decoded at a time; as Python's numbers they take much memory.
DECODED = 1 << 20
#: Hash tables of fitted tokenisers, which are made when they are first needed.
_TABLES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class ByteTokenizer(Model):
    """One token for each byte, and any special tokens after them; nothing is learnt.

    Objective
    ---------
    None: token b stands for byte b.

    Certificate
    -----------
    ``roundtrip`` (PROVED): every byte string comes back unchanged from its tokens.

    Parameters
    ----------
    special_tokens : sequence of str, default=()
        Names of the tokens that stand for no byte. Such as an end of text: they are the
        tokens 256, 257, …

    Attributes
    ----------
    certificate_ : Certificate
        What the verifier found.

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

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Return the tokeniser: there is nothing to learn.

        Parameters
        ----------
        X : None
            Ignored.
        y : None
            Ignored.
        """
        check_names(self.special_tokens)
        return Fitted(Evidence("tokenizer"), None, None)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        return tags

    def encode(self, text: str | bytes, *, special: bool = False) -> Array:
        """The tokens of a text, an array of int32.

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
        parts = (ids[i : i + DECODED].tolist() for i in range(0, len(ids), DECODED))
        return b"".join([b"".join([tokens[i] for i in part]) for part in parts])

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

    def transform(self, X: Iterable[str | bytes]) -> list[Array]:
        """The tokens of each text.

        Parameters
        ----------
        X : iterable of str or bytes
            The texts.
        """
        return [self.encode(text) for text in _several(X)]


class BPETokenizer(ByteTokenizer):
    """Byte-pair encoding: frequent neighbours become one token, again and again.

    Learning takes memory for the distinct words of the corpus, not for the corpus, and
    counts in 64 bits.

    Objective
    ---------
    None: the most frequent pair of neighbours is joined, until there are enough tokens.

    Certificate
    -----------
    ``roundtrip`` (PROVED): every byte string comes back unchanged from its tokens.
    ``unreachable_tokens`` (PROVED): how many tokens no text can have. For more than
    16,384 tokens at level "full" only; it then takes some seconds.

    Parameters
    ----------
    vocab_size : int, default=4096
        Number of tokens, the 256 bytes and the special ones included. Fewer are learnt
        where the texts have no more pairs.
    special_tokens : sequence of str, default=()
        Names of the tokens that stand for no byte. They are the last ones.
    min_count : int, default=2
        Pairs of tokens that occur less often are not joined.
    pattern : {"gpt2", "cl100k", "cl100k_end"}, default="gpt2"
        Rule that cuts a text into pieces, which no token crosses. ``"gpt2"`` puts a
        word and the space before it into one piece; ``"cl100k"`` also cuts numbers
        after three digits; ``"cl100k_end"`` is how tiktoken has it today, where white
        space at the end of a text is one piece.

    Attributes
    ----------
    tokens_ : list of bytes
        The bytes of each token.
    merges_ : ndarray of shape (n_merges, 3)
        Left, right, and the token they become, in the order in which they are applied.
    special_ : dict
        The number of each special token.
    whole_pieces_ : bool
        Whether a piece that is a token becomes it without merges. True for vocabularies
        of tiktoken.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Which characters are letters is read from Python's table of Unicode. Other libraries
    have tables of other years, so that characters younger than the older table may be
    cut differently; :meth:`decode` does not depend on it.

    Examples
    --------
    >>> from certus.language import BPETokenizer
    >>> tokenizer = BPETokenizer(vocab_size=260).fit(["low lower lowest", "slow"])
    >>> [tokenizer.tokens_[i] for i in tokenizer.encode("lower")]
    [b'low', b'e', b'r']
    >>> tokenizer.decode(tokenizer.encode("déjà vu"))
    'déjà vu'
    >>> tokenizer.certificate_.met
    True
    """

    def __init__(
        self,
        vocab_size: int = 4096,
        *,
        special_tokens: Sequence[str] = (),
        min_count: int = 2,
        pattern: str = "gpt2",
    ) -> None:
        self.vocab_size = vocab_size
        self.special_tokens = special_tokens
        self.min_count = min_count
        self.pattern = pattern

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

    @property
    def regex(self) -> str:
        """The rule that cuts a text, as a regular expression for other libraries."""
        return vocabularies.REGEX[self.pattern]

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn the merges.

        Parameters
        ----------
        X : str, bytes, Path, or an iterable of these
            Texts, or files that are read a few megabytes at a time.
        y : None
            Ignored.
        """
        check_choice("pattern", self.pattern, tuple(RULES))
        check_number("min_count", self.min_count, 1, integer=True)
        check_number("vocab_size", self.vocab_size, 0, 1 << 24, integer=True)
        names = check_names(self.special_tokens)
        if self.vocab_size < 256 + len(names):
            raise ValueError(
                f"vocab_size must be at least {256 + len(names)}: one token for each "
                f"byte and for each special token; got {self.vocab_size!r}."
            )
        refuse_characters(X)
        offsets, store, counts = PieceCounts(RULES[self.pattern]).add(X).arrays()
        if not len(counts):
            raise ValueError("The texts hold no byte; give at least one.")
        wanted = self.vocab_size - 256 - len(names)
        merges = np.empty((wanted, 3), np.int32)
        done = learning.learn_merges(
            offsets, store, counts, wanted, int(self.min_count), merges
        )
        tokens = [bytes([b]) for b in range(256)]
        for left, right, _ in merges[:done].tolist():
            tokens.append(tokens[left] + tokens[right])
        special = {name: len(tokens) + i for i, name in enumerate(names)}
        self._remember(tokens + [b""] * len(names), merges[:done].copy(), special)
        return Fitted(Evidence("tokenizer"), None, None)

    def _remember(
        self,
        tokens: list[bytes],
        merges: Array,
        special: dict[str, int],
        whole_pieces: bool = False,
    ) -> Self:
        self.tokens_, self.merges_, self.special_ = tokens, merges, special
        self.whole_pieces_ = whole_pieces
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tokens_")

    def _plain(self, data: bytes) -> Array:
        check_is_fitted(self)
        text = np.frombuffer(data, np.uint8)
        merges, whole = self._tables()
        most = min(REMEMBERED, max(16, len(data)))
        room = 1 << (2 * most - 1).bit_length()
        numbers = np.empty((4, most), np.int64)
        seen = (np.zeros(room, np.int64), np.empty(most, np.uint64), *numbers)
        state, out = np.zeros(2, np.int64), np.empty(len(data), np.int32)
        for begin, ends in in_pieces(text, RULES[self.pattern]):
            _refuse_pieces(begin, ends)
            encoding.encode_pieces(text, begin, ends, merges, whole, seen, state, out)
        return out[: state[1]].copy()

    def _tables(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Tokens of single bytes and a table of the merges; a table of whole pieces."""
        made = _TABLES.get(self)
        if made is None or made[0] is not self.merges_:
            found = {token: i for i, token in reversed(list(enumerate(self.tokens_)))}
            singles = np.array([found[bytes([b])] for b in range(256)], np.int32)
            merges = np.ascontiguousarray(self.merges_, np.int32)
            room = 1 << (2 * len(merges) + 16).bit_length()
            keys = np.zeros(room, np.uint64)
            ranks, new = np.zeros(room, np.int32), np.zeros(room, np.int32)
            encoding.pair_table(merges, keys, ranks, new)
            lengths = _lengths(self.tokens_, merges)
            pairs = (singles, keys, ranks, new, lengths)
            made = _TABLES[self] = (self.merges_, pairs, self._table_of_pieces())
        return made[1:]

    def _table_of_pieces(self) -> tuple[Array, Array, Array]:
        tokens = self.tokens_ if self.whole_pieces_ else []
        offsets = np.zeros(len(tokens) + 1, np.int64)
        np.cumsum([len(token) for token in tokens], out=offsets[1:])
        table = np.zeros(1 << (2 * len(tokens) + 1).bit_length(), np.int64)
        store = np.frombuffer(b"".join(tokens) or b"\0", np.uint8)
        encoding.token_table(offsets, store, table)
        return offsets, store, table

    # -- files of other libraries ------------------------------------------------

    @classmethod
    def from_tokenizers(cls, source: str | PathLike[str] | Mapping[str, Any]) -> Self:
        """Read a ``tokenizer.json`` of Hugging Face; its ids are kept.

        Texts get the ids that ``encode(text, add_special_tokens=False)`` gives there.

        Parameters
        ----------
        source : path or mapping
            The file, or its contents. Byte-level BPE with the patterns of GPT-2 and
            cl100k is read; all else, such as a normaliser that changes the text, is
            refused by name.
        """
        return cls._from(vocabularies.read_tokenizers(source))

    def to_tokenizers(self, path: str | PathLike[str] | None = None) -> dict[str, Any]:
        """The contents of a ``tokenizer.json`` of Hugging Face with the same ids.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.
        """
        return vocabularies.write_tokenizers(self._vocabulary(), path)

    @classmethod
    def from_tiktoken(
        cls,
        source: Any,
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
    ) -> Self:
        """Read ranks of tiktoken; they are the ids.

        Parameters
        ----------
        source : path, mapping or tiktoken.Encoding
            A file with a token in base64 and its rank in each line; the rank of each
            token; or an encoding, which brings pattern and special tokens along.
        pattern : str, optional
            The rule that cuts texts: a name as in the parameter ``pattern``, or its
            regular expression.
        special_tokens : mapping of str to int, optional
            Numbers of the special tokens.
        """
        return cls._from(vocabularies.read_tiktoken(source, pattern, special_tokens))

    def to_tiktoken(self, path: str | PathLike[str] | None = None) -> dict[bytes, int]:
        """The rank of each token for tiktoken, if it gives the same ids with them.

        Use them as ``tiktoken.Encoding(name, pat_str=tokenizer.regex,
        mergeable_ranks=tokenizer.to_tiktoken(), special_tokens=tokenizer.special)``.

        Parameters
        ----------
        path : path, optional
            Where to write them as well, a token in base64 and its rank in each line.
        """
        return vocabularies.write_tiktoken(self._vocabulary(), path)

    def _vocabulary(self) -> vocabularies.TokenTable:
        check_is_fitted(self)
        return vocabularies.TokenTable(
            self.tokens_, self.merges_, self.special_, self.pattern, self.whole_pieces_
        )

    @classmethod
    def _from(cls, found: vocabularies.TokenTable) -> Self:
        made = cls(
            len(found.tokens),
            special_tokens=tuple(found.special),
            pattern=found.pattern,
        )
        return made._remember(
            found.tokens, found.merges, dict(found.special), found.whole_pieces
        )


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of special tokens, or an error if they cannot be such."""
    if isinstance(names, str | bytes):
        raise TypeError(
            f"special_tokens must be a list of names, got one text: write [{names!r}]."
        )
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"special_tokens must hold names of at least one character, got "
                f"{name!r}."
            )
        as_bytes(name)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"special_tokens must differ; {min(twice)!r} occurs twice.")
    return names


def _lengths(tokens: Sequence[bytes], merges: Array) -> Array:
    """The bytes of each token; empty if a merge, as of a forged file, changes them."""
    lengths = np.array([len(token) for token in tokens], np.int64)
    none = np.zeros(0, np.int64)
    if merges.size == 0:
        return lengths
    if merges.min() < 0 or merges.max() >= len(lengths):
        return none
    left, right, made = lengths[merges.T]
    kept = np.array_equal(left + right, made) and min(left.min(), right.min()) > 0
    return lengths if kept else none


def _refuse_pieces(begin: int, ends: Array) -> None:
    """Places of a piece are numbered in 32 bits."""
    if np.diff(ends, prepend=begin).max() > encoding.MOST:
        raise ValueError(
            "the text has a word of more than 2 GB, which cannot be encoded at once. "
            "Encode it in parts."
        )


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
