"""The parameters that vectors of words and documents share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypedDict

from certus.typing import RandomState


class SamplingOptions(TypedDict, total=False):
    """Training on pairs of a true word and drawn ones.

    negatives : int
        Number of noise words for each pair.
    subsample : float or None
        Frequency above which words are dropped at random. A word that is the share f of
        all words stays with probability √(t/f) + t/f. None keeps all words, which small
        corpora need.
    learning_rate : float
        Step size. It falls to ``min_learning_rate``.
    min_learning_rate : float
        Step size at the end.
    max_iter : int
        Maximum number of iterations. They are passes over the corpus.
    min_count : int
        Words that occur less often are left out.
    max_words : int
        Maximum number of words; the most frequent ones are kept.
    noise_power : float
        Power of the counts in the distribution of noise words.
    tokenizer : None, "whitespace" or callable
        How a str is split into words; None means :func:`certus.text.tokenize`.
    random_state : int, RandomState, Generator or None
        Seed or generator of all random numbers. They decide the first vectors, the
        draws and the sample.
    deterministic : bool
        Whether to use one thread, so that equal seeds give equal vectors. Otherwise
        threads write to common tables without locks, and two fits agree only roughly.
    max_time : float
        Seconds after which the fit stops and keeps what it has.
    """

    negatives: Annotated[int, 5]
    subsample: Annotated[float | None, 1e-3]
    learning_rate: Annotated[float, 0.025]
    min_learning_rate: Annotated[float, 1e-4]
    max_iter: Annotated[int, 5]
    min_count: Annotated[int, 5]
    max_words: Annotated[int | None, None]
    noise_power: Annotated[float, 0.75]
    tokenizer: Annotated[str | Callable[[str], list[str]] | None, None]
    random_state: Annotated[RandomState, None]
    deterministic: Annotated[bool, False]
    max_time: Annotated[float | None, None]


class WindowOptions(TypedDict, total=False):
    """Pairs of words that stand near each other.

    window : int
        Largest distance between the two words of a pair.
    dynamic_window : bool
        Whether each word's window is drawn between 1 and ``window``, which gives near
        words more weight.
    warm_start : bool
        Whether to start from the last fit. Words that had no vector start afresh.
    """

    window: Annotated[int, 5]
    dynamic_window: Annotated[bool, True]
    warm_start: Annotated[bool, False]


class WordOptions(WindowOptions, SamplingOptions, total=False):
    """What vectors of words share."""
