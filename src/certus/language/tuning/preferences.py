"""How well any reward orders pairs of answers: shares with intervals, and length."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from certus.certificate import Certificate, Status
from certus.language.tuning.answers import read_texts, require_different
from certus.typing import Texts
from certus.verify import preference_claims

__all__ = ["preference_accuracy"]


def preference_accuracy(
    reward: Any, prompts: Texts, chosen: Texts, rejected: Texts, *, delta: float = 0.05
) -> Certificate:
    """How well a reward orders pairs of answers that it has not seen.

    Parameters
    ----------
    reward : callable
        ``reward(prompt, answer)`` gives a number; a fitted :class:`RewardModel`, or any
        function.
    prompts : list of str or bytes
        What was asked. Where one repeats, prompts are the independent units.
    chosen, rejected : list of str or bytes
        The better and the worse answer to each prompt.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    Certificate
        With ``pair_accuracy``, the lower end of its interval; it is missed where the
        reward prefers the rejected answers. ``longer_chosen``, ``longer_preferred`` and
        ``length_correlation`` say how much of it is length. Adding a number to all
        rewards of a prompt changes nothing.

    Examples
    --------
    >>> from certus.language import preference_accuracy
    >>> prompts = [str(n) for n in range(30)]
    >>> found = preference_accuracy(
    ...     lambda prompt, answer: len(answer), prompts, ["long"] * 30, ["no"] * 30)
    >>> found["pair_accuracy"].value > 0.88
    True
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be a probability between 0 and 1, got {delta!r}.")
    start = time.perf_counter()
    x = read_texts(prompts, "prompts")
    both = read_texts(chosen, "chosen"), read_texts(rejected, "rejected")
    if not len(x) == len(both[0]) == len(both[1]) or not x:
        raise ValueError(
            "prompts, chosen and rejected must have the same length, at least 1, got "
            f"{len(x)}, {len(both[0])} and {len(both[1])}."
        )
    require_different(chosen, rejected)
    r = [_rewards(reward, list(prompts), list(each)) for each in (chosen, rejected)]
    sizes = np.array([[len(text) for text in texts] for texts in both]).T
    claims = preference_claims(np.column_stack(r), sizes, list(x), delta)
    return Certificate.of(
        reward,
        (claims, Status.SOLVED, {"shape": [len(x)], "dtype": "str"}),
        origin="certify",
        seconds=time.perf_counter() - start,
    )


def _rewards(reward: Any, prompts: list[Any], answers: list[Any]) -> list[float]:
    together = getattr(reward, "predict", None)  # all at once is faster
    if together is not None:
        return [float(r) for r in together(prompts, answers)]
    return [float(reward(x, y)) for x, y in zip(prompts, answers)]
