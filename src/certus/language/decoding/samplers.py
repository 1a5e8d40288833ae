"""Decoding: samplers, greedy and beam search, and drafts, over plain arrays.

The loops are compiled and keep keys and values of what they have read. Each token is
drawn by inverse CDF from a uniform number that is kept, so that a generation can be
drawn again by somebody else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from certus.base import generator_of
from certus.language.decoding import decoding_kernels as kernels
from certus.language.decoding.forward_kernels import ROWS, PackedNetwork
from certus.language.decoding.packing import in_panels, pack
from certus.language.decoding.speculation_kernels import speculate_some
from certus.typing import Array, Fit, RandomState

#: Tokens between two looks at whether somebody pressed Ctrl-C, for small networks.
STEPS = 64
#: Places whose scores are computed in one call.
MOST = 128


class Rule(NamedTuple):
    """How the next token is chosen from the scores."""

    temperature: float
    top_k: int
    top_p: float


class Drawn(NamedTuple):
    """Tokens, the prompt's included, and what belongs to each generated one."""

    ids: Array
    uniforms: Array
    log_probs: Array
    source: Array
    finished: bool


class Tried(NamedTuple):
    """What a draft proposed; see ``DraftRecord``."""

    places: Array
    tokens: Array
    q: Array
    p: Array
    draft_uniforms: Array
    accept_uniforms: Array
    accepted: Array


class CompiledDecoder:
    """A decoder ready for compiled decoding.

    Parameters
    ----------
    config : dict
        ``Transformer(...).config``.
    weights : dict of arrays
        Named as in its ``state_dict``.
    end : int
        The end-of-text token: it stands before every text, and decoding stops at it.
    """

    def __init__(
        self, config: Mapping[str, Any], weights: Mapping[str, Any], end: int
    ) -> None:
        self.config, self.weights, self.end = config, weights, end
        self.net: PackedNetwork = in_panels(pack(config, weights))
        self.stride = max(1, self.net.context // 2)

    @property
    def n_tokens(self) -> int:
        """How many different tokens there are."""
        return self.net.embedding.shape[0]

    def caches(self, sequences: int) -> tuple[Array, Array]:
        """Empty keys and values of this many sequences."""
        net = self.net
        layers, width = net.qkv.shape[:2]
        d = width // net.heads
        K = np.zeros((sequences, layers, net.heads, d, net.context), np.float32)
        return K, np.zeros((sequences, layers, net.heads, net.context, d), np.float32)

    #: Rounds of proposals of such a network, for another one.
    speculate = staticmethod(speculate_some)

    def started(self) -> tuple[Any, ...]:
        """What a compiled loop over one sequence needs, before its first token."""
        state = (np.zeros(1, np.int64), np.zeros(1, np.int64))
        return self.net, self.stride, self.caches(1), state

    def logits(self, ids: Array) -> Array:
        """Scores of what follows each token, (n, n_tokens), each in its own window.

        Parameters
        ----------
        ids : int array of shape (n,)
            Tokens, beginning with the end-of-text token.
        """
        parts = [part for _, part in self.scores(ids)]
        return np.concatenate([np.empty((0, self.n_tokens), np.float32), *parts])

    def scores(self, ids: Array) -> Iterator[tuple[int, Array]]:
        """As :meth:`logits`, part by part: the first place of each, and its rows."""
        ids = np.ascontiguousarray(ids, np.int64)
        n, context = len(ids), self.net.context
        K, V = self.caches(1)
        starts, read = np.zeros(1, np.int64), np.zeros(1, np.int64)
        done, on = 0, np.ones(1, np.bool_)
        while done < n:
            start = int(kernels.window_start(done + 1, context, self.stride))
            last = min(n, start + context, done + MOST)
            part = np.empty((1, last - done, self.n_tokens), np.float32)
            kernels.read_on(
                self.net, self.stride, K, V, ids[None], np.array([last]), starts, read,
                on, last - done, part,
            )  # fmt: skip
            yield done, part[0]
            done = last


def check_rule(
    temperature: float, top_k: int | None, top_p: float, n_tokens: int
) -> Rule:
    """The sampler's rule, after its parameters have been checked."""
    if not 0.0 <= temperature < np.inf:
        raise ValueError(
            f"temperature must be a finite number of at least 0, got {temperature!r}; "
            "0 always takes the most probable token."
        )
    if 0.0 < temperature < 1e-3:
        raise ValueError(
            f"temperature must be 0 or at least 0.001, got {temperature!r}; use 0 for "
            "the most probable token."
        )
    k = 0 if top_k is None else check_count("top_k", top_k, 1)
    if not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p must be in (0, 1], got {top_p!r}.")
    return Rule(float(temperature), min(k, n_tokens), float(top_p))


def check_count(name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least ``least``."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if found < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {value!r}."
        )
    return found


def sample(
    decoder: CompiledDecoder,
    prompts: Sequence[Array],
    max_tokens: int,
    rule: Rule,
    random_state: RandomState = None,
) -> list[Drawn]:
    """Tokens behind each prompt, drawn one by one.

    Parameters
    ----------
    decoder : CompiledDecoder
        The network.
    prompts : list of int arrays
        Tokens of each prompt, without the end-of-text token before them.
    max_tokens : int
        Most tokens to draw for each.
    rule : Rule
        Temperature, top-k and top-p.
    random_state : int, Generator or None
        Seed or generator of all random numbers.
    """
    numbers = generator_of(random_state).random((len(prompts), max_tokens))
    return sample_from(decoder, prompts, rule, numbers)


def sample_from(
    decoder: CompiledDecoder, prompts: Sequence[Array], rule: Rule, numbers: Array
) -> list[Drawn]:
    """As :func:`sample`, with given uniform numbers, (prompts, most tokens)."""
    drawn: list[Drawn] = []
    most = numbers.shape[1]
    for first in range(0, len(prompts), ROWS):
        part = slice(first, first + ROWS)
        drawn += _sample_block(decoder, prompts[part], most, rule, numbers[part])
    return drawn


def _sample_block(
    decoder: CompiledDecoder,
    prompts: Sequence[Array],
    most: int,
    rule: Rule,
    numbers: Array,
) -> list[Drawn]:
    n = len(prompts)
    begun = np.array([len(prompt) + 1 for prompt in prompts], np.int64)
    ids = np.full((n, int(begun.max()) + most), decoder.end, np.int64)
    for row, prompt in zip(ids, prompts):
        row[1 : len(prompt) + 1] = prompt
    lengths, log_probs = begun.copy(), np.zeros((n, most))
    starts, read = np.zeros(n, np.int64), np.zeros(n, np.int64)
    active = np.full(n, most > 0)
    caches = decoder.caches(n)
    while active.any():
        kernels.generate_some(
            decoder.net, decoder.stride, *caches, ids, lengths, starts, read, active,
            begun, most, decoder.end, tuple(rule), numbers, log_probs, _steps(decoder),
        )  # fmt: skip
    found = []
    for i in range(n):
        made = int(lengths[i] - begun[i])
        uniforms = numbers[i, :made].copy()
        tokens = ids[i, 1 : lengths[i]].copy()
        source = np.zeros(made, np.int64)
        done = made > 0 and tokens[-1] == decoder.end
        found.append(Drawn(tokens, uniforms, log_probs[i, :made], source, bool(done)))
    return found


def _steps(decoder: CompiledDecoder) -> int:
    """Tokens in one call of a compiled loop, which Ctrl-C cannot interrupt."""
    size = sum(part.size for part in decoder.net if isinstance(part, np.ndarray))
    return max(1, min(STEPS, 200_000_000 // max(1, size)))


def sample_with_draft(
    decoder: CompiledDecoder,
    draft: Fit,
    prompt: Array,
    max_tokens: int,
    rule: Rule,
    random_state: RandomState = None,
    draft_tokens: int = 4,
) -> tuple[Drawn, Tried]:
    """As :func:`sample` for one prompt, with a draft that proposes tokens.

    Parameters
    ----------
    decoder : CompiledDecoder
        The network whose distribution the text has.
    draft : CompiledDecoder or CountedDraft
        The smaller one that proposes.
    prompt : int array
        Tokens of the prompt.
    max_tokens : int
        Most tokens to draw.
    rule : Rule
        Temperature, top-k and top-p, of both distributions.
    random_state : int, Generator or None
        Seed or generator of all random numbers.
    draft_tokens : int
        How many tokens are proposed at once.
    """
    n, most = len(prompt) + 1, max_tokens
    numbers = generator_of(random_state).random((most, 3))
    ids = np.full((1, n + most + draft_tokens), decoder.end, np.int64)
    ids[0, 1:n] = prompt
    lengths = np.array([n])
    room = most + draft_tokens
    tried = Tried(
        np.zeros(room, np.int64),
        np.zeros(room, np.int64),
        np.zeros((room, decoder.n_tokens)),
        np.zeros((room, decoder.n_tokens)),
        np.zeros(room),
        np.zeros(room),
        np.zeros(room, np.bool_),
    )
    uniforms, log_probs = np.zeros(most), np.zeros(most)
    source, count = np.zeros(most, np.int64), 0
    told, before = (uniforms, log_probs, source), -1
    target, proposing = decoder.started(), draft.started()
    while lengths[0] != before:
        before = int(lengths[0])
        count = draft.speculate(
            target, proposing, ids, lengths, n, most, decoder.end, draft_tokens,
            tuple(rule), numbers, told, (*tried[:2], *tried[4:]), tried[2:4], count,
            _steps(decoder),
        )  # fmt: skip
    made = int(lengths[0]) - n
    found = ids[0, 1 : n + made].copy()
    done = made > 0 and bool(found[-1] == decoder.end)
    drawn = Drawn(found, uniforms[:made], log_probs[:made], source[:made], done)
    record = Tried(*(part[:count].copy() for part in tried))
    return drawn, record._replace(places=record.places - 1)
