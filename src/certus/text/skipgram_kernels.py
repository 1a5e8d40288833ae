"""Compiled loops of negative sampling: one input against one true and k drawn outputs.

    ℓ = −log σ(h·u₀) − Σⱼ log σ(−h·uⱼ),    h = mean of the input's rows

A step moves each output row by rate·(label − σ)·h and each row of the input by the sum
of rate·(label − σ)·u: stochastic gradient descent in the order of word2vec, with two
differences. Scores beyond ±8 are not skipped, so the loss returned is that of the
formula; and a drawn word that happens to be the true one stays, so that the optimum is
log p(w, c)/(p(w)q(c)) − log k. Each block of tokens has a generator of its own, seeded
by the caller: what is drawn does not depend on which thread works on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from certus._core.cache import kernel
from certus.typing import Array

#: Half-width of the table of σ and −log σ, and entries for one unit of the score.
REACH, FINENESS = 8, 128


def sigmoid_table() -> Any:
    """σ(z) and log(1 + e⁻ᶻ) on a grid from −8 to 8, for linear interpolation."""
    z = np.arange(-REACH * FINENESS, REACH * FINENESS + 2) / FINENESS
    loss = np.logaddexp(0.0, -z)
    return np.stack([np.exp(-loss), loss], axis=1).astype(np.float32)


@intrinsic
def _prefetch(typingctx: Any, array: Any, row: Any, column: Any) -> Any:
    """Prefetch the cache line of ``array[row, column]``, which is needed soon."""

    def codegen(context: Any, builder: Any, signature: Any, args: Array) -> Any:
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, args[0])
        place = cgutils.get_item_pointer(
            context, builder, kind, view, [args[1], args[2]], wraparound=False
        )
        number, pointer = ir.IntType(32), cgutils.voidptr_t
        shape = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(
            builder.module, shape, "llvm.prefetch.p0i8"
        )
        hints = [number(1), number(3), number(1)]  # to write, near, data
        builder.call(function, [builder.bitcast(place, pointer), *hints])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), codegen


@register_jitable(forceinline=True)
def _fetch(table: Array, row: int | np.int64) -> None:
    """Prefetch a whole row, because reading it takes as long as a step."""
    for c in range(0, table.shape[1], 16):
        _prefetch(table, row, c)  # type: ignore[call-arg]


@register_jitable(forceinline=True)
def _advance(state: Array) -> Any:
    """The next 64 random bits (splitmix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@register_jitable(forceinline=True)
def _uniform(bits: np.uint64) -> Any:
    """A number in [0, 1) from the lower 32 bits."""
    return np.float32(np.int64(bits & np.uint64(0xFFFFFF))) * np.float32(2.0**-24)


@register_jitable(forceinline=True)
def _draw_noise(
    state: Array, accept: Array, other: Array, outputs: Array, targets: Array, turn: int
) -> None:
    """Draw targets 1 … k of a turn by Walker's alias method, and ask for their rows."""
    n = np.uint64(len(accept))
    for j in range(1, targets.shape[1]):
        bits = _advance(state)
        i = np.int64(((bits >> np.uint64(32)) * n) >> np.uint64(32))
        if _uniform(bits) >= accept[i]:
            i = np.int64(other[i])
        targets[turn, j] = i
        _fetch(outputs, i)


@register_jitable(forceinline=True)
def _score_loss(z: np.float32, table: Array) -> Any:
    """σ(z) and −log σ(z); NaN passes through."""
    if z >= REACH:
        tail = np.float32(np.exp(-z))
        return np.float32(1.0) - tail, tail
    if z > -REACH:
        place = (z + np.float32(REACH)) * np.float32(FINENESS)
        i = np.int64(place)
        share = place - np.float32(i)
        low, loss = table[i, 0], table[i, 1]
        return (
            low + share * (table[i + 1, 0] - low),
            loss + share * (table[i + 1, 1] - loss),
        )
    tail = np.float32(np.exp(z))
    return tail, tail - z


@register_jitable(forceinline=True)
def _move(
    source: Array,
    row: int | np.int64,
    e: Array,
    outputs: Array,
    targets: Array,
    turn: int,
    rate: np.float32,
    table: Array,
    g: Array,
    learn: bool,
) -> Any:
    """One step of the outputs; ``e`` becomes that of the input. The loss before it.

    Without ``learn`` the outputs stay. A word drawn twice moves twice. Scores, slopes
    and steps come in turn: the processor then works on several at a time.
    """
    d = e.shape[0]
    loss = np.float32(0.0)
    for j in range(targets.shape[1]):
        t = targets[turn, j]
        z = np.float32(0.0)
        for c in range(d):
            z += source[row, c] * outputs[t, c]
        g[j] = z
    for j in range(targets.shape[1]):
        sign = np.float32(1.0) if j == 0 else np.float32(-1.0)
        p, value = _score_loss(sign * g[j], table)
        g[j] = sign * rate * (np.float32(1.0) - p)
        loss += value
    for c in range(d):
        e[c] = np.float32(0.0)
    for j in range(targets.shape[1]):
        t, step = targets[turn, j], g[j]
        if learn:
            for c in range(d):
                u = outputs[t, c]
                e[c] += step * u
                outputs[t, c] = u + step * source[row, c]
        else:
            for c in range(d):
                e[c] += step * outputs[t, c]
    return loss


@register_jitable(forceinline=True)
def _gather(inputs: Array, rows: Array, start: int, stop: int, mean: Array) -> None:
    """``mean[0]`` becomes the mean of the rows."""
    d = mean.shape[1]
    first = rows[start]
    for c in range(d):
        mean[0, c] = inputs[first, c]
    for r in range(start + 1, stop):
        i = rows[r]
        for c in range(d):
            mean[0, c] += inputs[i, c]
    scale = np.float32(1.0) / np.float32(stop - start)
    for c in range(d):
        mean[0, c] *= scale


@register_jitable(forceinline=True)
def _fetch_input(inputs: Array, rows: Array, row_ends: Array, word: int) -> None:
    for r in range(row_ends[word], row_ends[word + 1]):
        _fetch(inputs, rows[r])


@register_jitable(forceinline=True)
def _scatter(inputs: Array, rows: Array, start: int, stop: int, e: Array) -> None:
    """Add the step to each row."""
    for r in range(start, stop):
        i = rows[r]
        for c in range(e.shape[0]):
            inputs[i, c] += e[c]


@register_jitable(forceinline=True)
def _thin(
    tokens: Array, first: int, last: int, keep: Array, state: Array, kept: Array, n: int
) -> int:
    """Append the places of the tokens that stay; how many there are now."""
    for i in range(first, last):
        chance = keep[tokens[i]]
        if chance >= 1.0 or _uniform(_advance(state)) < chance:
            kept[n] = i
            n += 1
    return n


@register_jitable(forceinline=True)
def _reach(window: int, varies: bool, state: Array) -> Any:
    """Half-width of a window: the largest, or one up to it."""
    if not varies:
        return window
    bits = _advance(state) >> np.uint64(32)
    return 1 + np.int64((bits * np.uint64(window)) >> np.uint64(32))


@register_jitable(forceinline=True)
def _longest(ends: Array) -> int:
    most = 0
    for s in range(len(ends) - 1):
        most = max(most, ends[s + 1] - ends[s])
    return most


@kernel
def train_words(
    tokens: Array,
    ends: Array,
    keep: Array,
    rows: Array,
    row_ends: Array,
    inputs: Array,
    outputs: Array,
    accept: Array,
    other: Array,
    table: Array,
    seed: np.uint64,
    rates: Array,
    settings: tuple[int, bool, int],
) -> Any:
    """Visit the pairs of words of some texts; the sum of losses and how many pairs.

    Each word within reach of the centre is an input, the centre its true output.
    ``keep``: chance of each word to stay; ``rows[row_ends[w]:row_ends[w + 1]]``: input
    rows of word w; ``rates``: step size of the first token and what it loses per token;
    ``settings``: window, whether it varies, k.
    """
    window, varies, k = settings
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    d = inputs.shape[1]
    mean, e = np.empty((1, d), dtype=np.float32), np.empty(d, dtype=np.float32)
    targets, turn = np.empty((2, k + 1), dtype=np.int64), 0
    g = np.empty(k + 1, dtype=np.float32)
    _draw_noise(state, accept, other, outputs, targets, 0)
    kept = np.empty(_longest(ends), dtype=np.int64)
    total, pairs = 0.0, 0
    for s in range(len(ends) - 1):
        n = _thin(tokens, ends[s], ends[s + 1], keep, state, kept, 0)
        for i in range(min(n, window + 1)):
            _fetch_input(inputs, rows, row_ends, tokens[kept[i]])
        rate = np.float32(rates[0] - rates[1] * ends[s])
        for i in range(n):
            reach = _reach(window, varies, state)
            if i + 1 < n:
                _fetch(outputs, tokens[kept[i + 1]])
            if i + window + 1 < n:
                _fetch_input(inputs, rows, row_ends, tokens[kept[i + window + 1]])
            for j in range(max(0, i - reach), min(n, i + reach + 1)):
                if j == i:
                    continue
                targets[turn, 0] = tokens[kept[i]]
                _draw_noise(state, accept, other, outputs, targets, 1 - turn)
                w = tokens[kept[j]]
                start, stop = row_ends[w], row_ends[w + 1]
                source, row = inputs, np.int64(rows[start])
                if stop - start > 1:
                    _gather(inputs, rows, start, stop, mean)
                    source, row = mean, np.int64(0)
                loss = _move(
                    *(source, row, e, outputs, targets, turn, rate, table, g, True)
                )
                _scatter(inputs, rows, start, stop, e)
                total += np.float64(loss)
                pairs += 1
                turn = 1 - turn
    return total, pairs


@kernel
def compose(
    inputs: Array, rows: Array, row_ends: Array, which: Array, out: Array
) -> None:
    """The input vectors of some words or texts: means of their rows, 0 without any."""
    total = np.empty(out.shape[1], dtype=np.float64)
    for s in range(len(which)):
        start, stop = row_ends[which[s]], row_ends[which[s] + 1]
        total[:] = 0.0
        for r in range(start, stop):
            for c in range(len(total)):
                total[c] += inputs[rows[r], c]
        for c in range(len(total)):
            out[s, c] = total[c] / max(1, stop - start)


@kernel
def collect_pairs(
    tokens: Array,
    ends: Array,
    keep: Array,
    seed: np.uint64,
    settings: tuple[int, bool, int],
    found: Array,
    n: int,
) -> int:
    """Places (input, centre) of pairs as :func:`train_words` meets them; how many.

    They are appended to the ``n`` rows of ``found`` that are filled, until it is full.
    """
    window, varies, _ = settings
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    kept = np.empty(_longest(ends), dtype=np.int64)
    for s in range(len(ends) - 1):
        size = _thin(tokens, ends[s], ends[s + 1], keep, state, kept, 0)
        for i in range(size):
            reach = _reach(window, varies, state)
            for j in range(max(0, i - reach), min(size, i + reach + 1)):
                if j != i and n < len(found):
                    found[n, 0], found[n, 1] = kept[j], kept[i]
                    n += 1
    return n


@kernel
def train_texts(
    tokens: Array,
    spans: Array,
    keep: Array,
    rows: Array,
    row_ends: Array,
    inputs: Array,
    outputs: Array,
    accept: Array,
    other: Array,
    table: Array,
    seed: np.uint64,
    rates: Array,
    settings: tuple[int, bool],
) -> Any:
    """Visit the pairs of a text and a word; the sum of losses and how many pairs.

    Text s has the input rows ``rows[row_ends[s]:row_ends[s + 1]]`` and predicts the
    tokens from ``spans[s, 0]`` to ``spans[s, 3]`` without those from ``spans[s, 1]`` to
    ``spans[s, 2]``. Each step moves all its rows alike, hence their mean as far: they
    are read and written once a text. ``rates``: step size of the first text and what it
    loses per text; ``settings``: k, whether the outputs learn. Where they do not, each
    text begins with the same seed, and its vector does not depend on other texts.
    """
    k, learn = settings
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    d = inputs.shape[1]
    mean, e = np.empty((1, d), dtype=np.float32), np.empty(d, dtype=np.float32)
    moved = np.empty(d, dtype=np.float32)
    targets = np.empty((1, k + 1), dtype=np.int64)
    g = np.empty(k + 1, dtype=np.float32)
    most = 0
    for s in range(len(spans)):
        most = max(most, spans[s, 3] - spans[s, 0])
    kept = np.empty(most, dtype=np.int64)
    total, pairs = 0.0, 0
    for s in range(len(spans)):
        start, stop = row_ends[s], row_ends[s + 1]
        if start == stop:
            continue
        if not learn:
            state[0] = seed
        n = _thin(tokens, spans[s, 0], spans[s, 1], keep, state, kept, 0)
        n = _thin(tokens, spans[s, 2], spans[s, 3], keep, state, kept, n)
        rate = np.float32(rates[0] - rates[1] * s)
        _gather(inputs, rows, start, stop, mean)
        for c in range(d):
            moved[c] = 0.0
        for i in range(n):
            targets[0, 0] = tokens[kept[i]]
            _draw_noise(state, accept, other, outputs, targets, 0)
            loss = _move(mean, 0, e, outputs, targets, 0, rate, table, g, learn)
            for c in range(d):
                mean[0, c] += e[c]
                moved[c] += e[c]
            total += np.float64(loss)
            pairs += 1
        _scatter(inputs, rows, start, stop, moved)
    return total, pairs


@kernel
def alias_table(weights: Array, accept: Array, other: Array) -> None:
    """Walker's table: draw i evenly, keep it with chance accept, else take other."""
    n = len(weights)
    scale = n / weights.sum()
    left = weights * scale
    queue = np.empty(n, dtype=np.int64)  # small ones from the front, large from behind
    small, large = 0, n
    for i in range(n):
        other[i], accept[i] = i, 1.0
        if left[i] < 1.0:
            queue[small] = i
            small += 1
        else:
            large -= 1
            queue[large] = i
    while small > 0 and large < n:
        small -= 1
        i, j = queue[small], queue[large]
        accept[i], other[i] = left[i], j
        left[j] -= 1.0 - left[i]
        if left[j] < 1.0:
            large += 1
            queue[small] = j
            small += 1
