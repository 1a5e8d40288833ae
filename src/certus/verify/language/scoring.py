"""Log-probabilities of a text in windows, and claims about them with their rounding.

The bound of the rounding grows by a large factor with each layer of a network. Where it
exceeds ``NEAR``, or leaves open whether a target is met, the claim is measured, with an
estimate of its rounding from two orders of summation as its allowance; if that does not
meet the target either, the claim is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number
from certus.verify.language import attention
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.drift import Bounded

#: Largest difference between two logarithms of a probability: float32 and some layers.
#: A figure whose rounding may be larger than this is not proved.
NEAR = 1e-3
#: Failure probability of an interval, and nats of a bit.
DELTA, BITS = 0.05, math.log(2)
#: Windows that are added up in both orders, and the factor on their difference.
TWICE, FACTOR = 4, 10.0
#: Numbers of scores that are held at a time.
HELD = 1 << 24
SHALLOWER = "a network of fewer layers has a smaller bound of its rounding"


class Stretch(NamedTuple):
    """Tokens ``begin … stop − 1`` go in; ``first … stop`` are scored."""

    begin: int
    first: int
    stop: int


def windows(n: int, context: int) -> list[Stretch]:
    """Windows over n tokens behind an end-of-text token, each half a context on."""
    found, step = [Stretch(0, 1, min(context, n))], max(1, context // 2)
    while found[-1].stop < n:
        begin, done = found[-1].begin + step, found[-1].stop
        found.append(Stretch(begin, done + 1, min(begin + context, n)))
    return found


def window_log_probs(
    read: PlainNetwork, stream: Array, some: list[Stretch]
) -> Iterator[tuple[Stretch, Bounded]]:
    """Each window with log p of its scored tokens, and their rounding."""
    config = read.config
    row = max(config["n_tokens"], config["heads"] * config["context"])
    many = max(1, HELD // (config["context"] * row))
    same: dict[int, list[Stretch]] = {}
    for window in some:
        same.setdefault(window.stop - window.begin, []).append(window)
    for alike in same.values():
        for i in range(0, len(alike), many):
            part = alike[i : i + many]
            given = np.stack([stream[w.begin : w.stop] for w in part])
            found = attention.log_probs(read, given)
            for w, lp, off in zip(part, *found, strict=True):
                at = np.arange(w.first, w.stop + 1)
                place = at - 1 - w.begin
                yield w, Bounded(lp[place, stream[at]], off[place])


def log_probs(read: PlainNetwork, stream: Array) -> Bounded:
    """Natural log p of each token behind the first, in the stated windows."""
    found = Bounded(np.zeros(len(stream) - 1), np.zeros(len(stream) - 1))
    every = windows(len(stream) - 1, read.config["context"])
    for window, some in window_log_probs(read, stream, every):
        found.x[window.first - 1 : window.stop] = some.x
        found.off[window.first - 1 : window.stop] = some.off
    return found


def estimate(read: PlainNetwork, stream: Array) -> float:
    """Ten times the largest difference of a token's log p in two orders."""
    picked = pick(windows(len(stream) - 1, read.config["context"]))
    there, back = (
        dict(window_log_probs(each, stream, picked))
        for each in (read, read.backwards())
    )
    apart = [np.abs(there[w].x - back[w].x).max() for w in picked]
    return estimated(max(apart))


def pick(some: list[Stretch]) -> list[Stretch]:
    """The few windows that are added up in both orders."""
    return [some[i] for i in spread(len(some), TWICE)]


def estimated(apart: float) -> float:
    """An estimate of the rounding of numbers that are so far apart in two orders."""
    return FACTOR * float(apart) + 64 * bd.U


def spread(n: int, size: int) -> list[int]:
    """At most ``size`` places between 0 and n − 1, the first and the last included."""
    return sorted({int(i) for i in np.linspace(0, n - 1, min(n, size)).round()})


# -- claims -------------------------------------------------------------------------


def farthest(own: Array, off: Array, said: Array) -> Number:
    """The largest difference and rounding; what the model says must be numbers."""
    if said.shape != own.shape or not np.isfinite(said).all():
        return Number(math.inf)
    worst = float(np.abs(own - said).max(initial=0.0))
    return Number(worst, float(off.max(initial=0.0)) + 4 * bd.U * worst)


def figure(
    name: str,
    found: Number,
    detail: str,
    guess: Callable[[], float],
    **words: Any,
) -> Claim:
    """A proved figure; a measured one if its rounding may be larger than ``NEAR``."""
    if found.rounding <= NEAR:
        return bd.proved(name, found, None, detail, **words)
    words["fix"] = SHALLOWER
    return _measured(name, found, None, detail, guess(), words)


def decide(
    name: str,
    found: Number,
    target: float,
    detail: str,
    guess: Callable[[], float],
    **words: Any,
) -> Claim:
    """A claim with a target, by the one rule for rounding.

    It is met if computed + bound is within the target, missed if computed − bound is
    above it. Between the two it is measured if computed + estimate is within the
    target, and undecided if not.
    """
    claim = bd.proved(name, found, target, detail, **words)
    if claim.met is not None:
        return claim
    lost = guess()
    if found.value + lost <= target:
        words = {k: v for k, v in words.items() if k not in ("missed", "fix")}
        return _measured(name, found, target, detail, lost, words)
    told = (
        f"undecided: {found.value:.1e} as computed; rounding is estimated from two "
        f"orders of summation, {lost:.0e}, and proved to be below {found.rounding:.0e} "
        f"only (asked for {target:.0e})"
    )
    # Where the estimate says that the target is missed, rounding is not the cause.
    fix = words.get("fix", "") if found.value - lost > target else SHALLOWER
    return replace(claim, detail=told, fix=fix)


def _measured(
    name: str,
    found: Number,
    target: float | None,
    detail: str,
    lost: float,
    words: dict[str, Any],
) -> Claim:
    """A number with an estimate of its rounding, which is named as one."""
    value = found.value if math.isfinite(found.value) else math.inf
    return bd.measured(
        *(name, value + lost),
        f"{detail}; its rounding is estimated from two orders of summation, "
        f"{lost:.0e}, and proved to be below {found.rounding:.0e} only",
        target=target,
        allowance=lost,
        **words,
    )


def verdict(claims: list[Claim]) -> Status:
    """As for other models; and undecided if the first claim is measured only."""
    status = bd.verdict(claims)
    measured = claims[0].strength is Strength.MEASURED
    return Status.UNDECIDED if measured and status is Status.SOLVED else status
