"""The numbers of words: fixed in advance, or assigned as words appear.

Both are dictionaries, so that a document is numbered by ``map`` at the speed of C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from certus.wording import shorten

if TYPE_CHECKING:
    from certus.base import Model
    from certus.text.vectors import WordVectors


class NotAWord(Exception):
    """Raised from within a dictionary, where the document's number is unknown."""


class Numbering(dict[str, int]):
    """A word not seen before gets the next number."""

    def __missing__(self, word: object) -> int:
        if not isinstance(word, str):
            raise NotAWord(word)
        self[str(word)] = number = len(self)
        return number


class Vocabulary(dict[str, int]):
    """The position of each word; a word that is not in it gets −1.

    Parameters
    ----------
    words : sequence of str, or dict from word to position
        Each word once; positions 0, 1, 2, ...

    Examples
    --------
    >>> from certus.text import Vocabulary
    >>> positions = Vocabulary(["a", "b"])
    >>> positions["b"], positions["c"], positions.words
    (1, -1, ['a', 'b'])
    """

    def __init__(self, words: Sequence[str] | Mapping[str, int]) -> None:
        if isinstance(words, Mapping):
            words = _in_order(words)
        self.words = list(words)
        self.source: Any = None
        super().__init__(zip(self.words, range(len(self.words))))
        if len(self) < len(self.words):
            seen: set[str] = set()
            for word in self.words:
                if word in seen:
                    raise ValueError(
                        f"The vocabulary holds {shorten(repr(word))} twice; list each "
                        "word once."
                    )
                seen.add(word)

    def __missing__(self, word: object) -> int:
        if not isinstance(word, str):
            raise NotAWord(word)
        return -1


def _in_order(positions: Mapping[str, int]) -> list[str]:
    words = sorted(positions, key=positions.__getitem__)
    if any(positions[word] != i for i, word in enumerate(words)):
        raise ValueError("A vocabulary must number its words 0, 1, 2, ...")
    return words


_LOOKUPS: WeakKeyDictionary[Any, Vocabulary] = WeakKeyDictionary()


def lookup(model: Model | WordVectors) -> Vocabulary:
    """The positions of a model's ``vocabulary_``; kept beside it, never saved."""
    found = _LOOKUPS.get(model)
    if found is None or found.source is not model.vocabulary_:
        found = _LOOKUPS[model] = Vocabulary(model.vocabulary_)
        found.source = model.vocabulary_
    return found
