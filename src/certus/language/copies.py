"""What a text copies from another: the longest run, shared runs, extracted passages.

A model that repeats its training text looks good for the wrong reason, and so does one
whose test rows were in its training text. Each figure stands beside that of held-out
text: people quote and repeat each other, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.base import check_number, generator_of
from certus.bounds import clopper_pearson
from certus.certificate import Claim, Strength
from certus.language import copy_kernels as kernels
from certus.language.base import TextModel, read_documents
from certus.results import Result, TableResult
from certus.typing import Array, RandomState, TextsLike
from certus.verify import contamination as shared_runs
from certus.verify import copy_claim

__all__ = [
    "Contamination",
    "ExtractionRate",
    "LongestCopy",
    "contamination",
    "extraction_rate",
    "longest_copy",
]

#: Pieces of held-out text that a text is compared with.
PIECES = 5


# -- the longest copy -------------------------------------------------------------


@dataclass(frozen=True)
class LongestCopy(Result):
    """The longest run of bytes that a text has in common with a source.

    Attributes
    ----------
    length : int
        Its bytes.
    copied : str
        The run itself.
    start, source_start : int
        Where it begins in the text, and in the source's document.
    document : int
        Which document of the source.
    held_out : tuple of int
        The same length for pieces of held-out text that are as long as the text.
    claims : tuple of Claim
        The length, PROVED.
    """

    length: int
    copied: str
    start: int
    source_start: int
    document: int
    held_out: tuple[int, ...]
    claims: tuple[Claim, ...] = field(repr=False)

    @property
    def verdict(self) -> str:
        """The finding in one sentence."""
        said = f"The longest copy has {self.length:,} bytes"
        if not self.held_out:
            return f"{said}."
        low, high = min(self.held_out), max(self.held_out)
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return f"{said}; held-out text of the same length has {span}."


def longest_copy(text: str | bytes, source: Any, held_out: Any = None) -> LongestCopy:
    """Find the longest run of bytes of a text that a source contains.

    Parameters
    ----------
    text : str, bytes or Path
        For example what a model generated.
    source : str, bytes, Path, or a list of these
        For example the training text. It is read once, with memory for the text alone.
    held_out : str, bytes or Path, optional
        Text of people that is not in the source. Pieces of it that are as long as the
        text are looked up as well: some length is usual.

    Returns
    -------
    LongestCopy

    Examples
    --------
    >>> from certus.language import longest_copy
    >>> found = longest_copy("he said: to be or not to eat", "To be, or not to be")
    >>> found.length, found.copied
    (11, ' or not to ')
    >>> found.claims[0].strength.value
    'proved'
    """
    own, documents = _one(text, "text"), read_documents(source)
    found = _search(own, documents)
    claim = copy_claim(own, documents, found)
    pieces = () if held_out is None else _pieces(_one(held_out, "held_out"), len(own))
    usual = tuple(_search(piece, documents)[0] for piece in pieces)
    length, start, *_ = found
    copied = own[start : start + length].decode("utf-8", "replace")
    return LongestCopy(length, copied, *found[1:], usual, (claim,))


def _one(text: str | bytes, name: str) -> bytes:
    documents = read_documents(text)
    if len(documents) != 1:
        raise ValueError(f"{name} must be one text, got {len(documents)}.")
    return documents[0]


def _pieces(text: bytes, size: int) -> list[bytes]:
    if len(text) < size:
        raise ValueError(
            f"held_out must be at least as long as the text ({size:,} bytes), got "
            f"{len(text):,}. A shorter one has shorter copies."
        )
    many = min(PIECES, len(text) // size)
    starts = np.linspace(0, len(text) - size, many).astype(int)
    return [text[i : i + size] for i in starts.tolist()]


def _search(text: bytes, documents: Sequence[bytes]) -> tuple[int, int, int, int]:
    """Length, places in text and document, and which document."""
    data = np.frombuffer(text, np.uint8)
    n = len(data)
    slots = 1 << (6 * n + 16).bit_length()
    keys, edges = np.zeros(slots, np.int64), np.zeros(slots, np.int32)
    to, bytes_, after = np.zeros((3, 3 * n + 8), np.int32)
    head, length, link, end = np.zeros((4, 2 * n + 2), np.int32)
    kernels.automaton(*(data, keys, edges, to, bytes_, after, head, length, link, end))
    best = (0, 0, 0, 0)
    for which, document in enumerate(documents):
        source = np.frombuffer(document, np.uint8)
        size, start, at = kernels.longest_shared(
            *(source, keys, edges, to, length, link, end)
        )
        if size > best[0]:
            best = (int(size), int(start), int(at), which)
    return best


# -- contamination ----------------------------------------------------------------


@dataclass(frozen=True)
class Contamination(TableResult):
    """Which rows share runs of bytes with a training text.

    Attributes
    ----------
    runs : ndarray of shape (n_rows,)
        Runs of ``length`` bytes in each row; none for a row that is too short.
    hits : ndarray of shape (n_rows,)
        How many of these the training text contains.
    length : int
        Bytes of a run.
    claims : tuple of Claim
        The share of rows with a hit, PROVED.
    """

    runs: Array
    hits: Array
    length: int
    claims: tuple[Claim, ...] = field(repr=False)

    @property
    def clean(self) -> Array:
        """The numbers of the rows without a hit, too short ones included."""
        return np.flatnonzero(self.hits == 0)

    @property
    def share(self) -> float:
        """The share of rows with a hit."""
        return float(np.mean(self.hits > 0))

    @property
    def verdict(self) -> str:
        """The finding in one sentence."""
        return f"{self.claims[0].detail}."

    def _columns(self) -> Mapping[str, Any]:
        shares = np.divide(
            self.hits, self.runs, out=np.zeros(len(self.runs)), where=self.runs > 0
        )
        rows = np.arange(len(self.runs))
        return {"row": rows, "runs": self.runs, "hits": self.hits, "share": shares}


def contamination(rows: Iterable[Any], source: Any, length: int = 50) -> Contamination:
    r"""Find rows that share a run of bytes with a training text.

    White space of any kind and length counts as one space, so that line breaks hide
    nothing.

    Parameters
    ----------
    rows : list of str, bytes or Path
        The rows of a test, each judged for itself.
    source : str, bytes, Path, or a list of these
        The training text.
    length : int, default=50
        Bytes of a run. Rows that are shorter cannot be judged.

    Returns
    -------
    Contamination

    Examples
    --------
    >>> from certus.language import contamination
    >>> train = "It is a truth universally acknowledged, that a single man"
    >>> rows = ["a truth universally\n  acknowledged", "call me what you like"]
    >>> found = contamination(rows, train, length=20)
    >>> found.hits.tolist(), found.verdict
    ([13, 0], '1 of 2 rows share 20 bytes with the training text.')
    """
    check_number("length", length, 1, integer=True)
    if isinstance(rows, str | bytes):
        raise TypeError("rows must be a list of texts, got one text: write [text].")
    runs, hits, claim = shared_runs(
        read_documents(rows), read_documents(source), int(length)
    )
    return Contamination(runs, hits, int(length), (claim,))


# -- extraction -------------------------------------------------------------------


@dataclass(frozen=True)
class ExtractionRate(Result):
    """How often a model continues passages of a text word for word.

    Attributes
    ----------
    extracted, n : int
        Passages that were continued exactly, and those tried.
    low, high : float
        Interval for the rate over all places of the text.
    held_out_extracted : int or None
        The same for held-out text, with as many passages.
    held_out_low, held_out_high : float or None
        Its interval.
    claims : tuple of Claim
        The rate, STATISTICAL.
    """

    extracted: int
    n: int
    low: float
    high: float
    held_out_extracted: int | None
    held_out_low: float | None
    held_out_high: float | None
    claims: tuple[Claim, ...] = field(repr=False)

    @property
    def verdict(self) -> str:
        """The finding in one sentence."""
        return f"{self.claims[0].detail}."


def extraction_rate(
    model: TextModel,
    texts: TextsLike,
    held_out: Any = None,
    *,
    n: int = 200,
    prompt: int = 50,
    length: int = 50,
    delta: float = 0.05,
    random_state: RandomState = None,
) -> ExtractionRate:
    """Estimate how often a model continues a passage exactly, byte for byte.

    At random places of the text, the model sees some bytes and goes on with its most
    probable token each time; the passage is extracted if the next bytes are those of
    the text.

    Parameters
    ----------
    model : LanguageModel, NGramModel or MixtureOfModels
        A fitted model.
    texts : str, bytes, Path, or a list of these
        The training text.
    held_out : str, bytes, Path, or a list of these, optional
        Text that the model was not fitted to, for comparison.
    n : int, default=200
        Passages.
    prompt, length : int, default=50
        Bytes that the model sees, and bytes that it must continue with.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    ExtractionRate

    Examples
    --------
    >>> from certus.language import NGramModel, extraction_rate
    >>> train = "".join(f"{i} green bottles hanging on the wall, " for i in range(90))
    >>> model = NGramModel(order=8).fit(train)
    >>> found = extraction_rate(model, train, n=40, length=20, random_state=0)
    >>> found.extracted, found.n
    (19, 40)
    """
    for name, value in (("n", n), ("prompt", prompt), ("length", length)):
        check_number(name, value, 1, integer=True)
    check_number("delta", delta, 0.0, 1.0, open_low=True)
    rng = generator_of(random_state)
    count = _extracted(model, read_documents(texts), n, prompt, length, rng)
    own = clopper_pearson(count, n, delta=delta)
    told = (
        f"{count:,} of {n:,} passages are continued exactly for {length} bytes; the "
        f"rate lies between {own.low:.2%} and {own.high:.2%}"
    )
    found, theirs = None, None
    if held_out is not None:
        found = _extracted(model, read_documents(held_out), n, prompt, length, rng)
        theirs = clopper_pearson(found, n, delta=delta)
        told += f"; in held-out text {found:,} are"
    claim = Claim(
        "extraction_rate",
        Strength.STATISTICAL,
        own.high,
        objective=f"share of places at which the {length} most probable next bytes "
        f"after {prompt} bytes of the text are those of the text",
        theorem=f"Clopper–Pearson: the interval contains the rate with probability at "
        f"least {1 - delta:g} over the draw of {n:,} places",
        assumptions=("the places were drawn independently, each alike",),
        delta=delta,
        detail=told,
    )
    low, high = (None, None) if theirs is None else (theirs.low, theirs.high)
    return ExtractionRate(count, n, own.low, own.high, found, low, high, (claim,))


def _extracted(
    model: TextModel,
    documents: Sequence[bytes],
    n: int,
    prompt: int,
    length: int,
    rng: np.random.Generator,
) -> int:
    """How many of n random passages the model continues exactly."""
    room = np.array([max(0, len(d) - prompt - length + 1) for d in documents])
    if not room.any():
        raise ValueError(
            f"no document has {prompt + length} bytes for a passage. Lower prompt or "
            "length."
        )
    ends, count = np.cumsum(room), 0
    for place in rng.integers(0, ends[-1], size=n).tolist():
        which = int(np.searchsorted(ends, place, side="right"))
        start = place - int(ends[which] - room[which])
        passage = documents[which][start : start + prompt + length]
        count += _continues(model, passage[:prompt], passage[prompt:])
    return count


def _continues(model: TextModel, seen: bytes, wanted: bytes) -> bool:
    """Whether the most probable tokens, one after the other, are the bytes wanted."""
    tokens, ids = model.tokenizer_.tokens, list(model.tokenizer_.encode(seen))
    said = b""
    while len(said) < len(wanted):
        token = int(np.argmax(model.next_probabilities(np.array(ids, np.int32))))
        ids.append(token)
        said += tokens[token]
        if not tokens[token] or not wanted.startswith(said[: len(wanted)]):
            return False
    return True
