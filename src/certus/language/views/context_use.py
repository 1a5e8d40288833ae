"""How much a network gains from seeing further back.

The same tokens xₜ, at places spread over a text, are predicted from the last k tokens
only, for k = 1, 2, 4, … up to the whole context:

    bits(k) = mean over t of −log₂ p(xₜ | x_{t−k}, …, x_{t−1}) / mean bytes of a token

The tokens are the same for each k, so differences are paired: the interval is that of
the mean of bits(k) − bits(longest) over the places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from certus.neural_network.wrapping import evaluating
from certus.results import TableResult, new_figure
from certus.typing import Array, Axes

__all__ = ["ContextUse"]

#: Most places that are looked at, and tokens that are read in one pass.
PLACES, TOGETHER = 512, 1 << 14


@dataclass(frozen=True)
class ContextUse(TableResult):
    """Bits per byte by how far back a network sees; from ``model.context_use(text)``.

    Intervals are the mean ± 1.96 standard errors over places, and treat these as
    independent. ``gains`` compares each context with the longest one on the same
    tokens.

    Attributes
    ----------
    contexts : int array of shape (m,)
        How many tokens the network saw.
    bits, low, high : arrays of shape (m,)
        Bits per byte with this many, and their interval.
    gains, gains_low, gains_high : arrays of shape (m,)
        Bits per byte that the longest context saves against this one.
    n_places : int
        Tokens that were predicted each time.

    Examples
    --------
    >>> from certus.language import LanguageModel
    >>> text = "the cat sat on the mat and the dog sat on the cat. " * 100
    >>> model = LanguageModel(n_layers=1, width=32, context=32, max_iter=60,
    ...                       random_state=0).fit(text)
    >>> found = model.context_use(text)
    >>> found.contexts.tolist()
    [1, 2, 4, 8, 16, 32]
    >>> bool(found.bits[-1] < found.bits[0])
    True
    """

    contexts: Array
    bits: Array
    low: Array
    high: Array
    gains: Array
    gains_low: Array
    gains_high: Array
    n_places: int

    @property
    def verdict(self) -> str:
        """What the second half of the context is worth, in a sentence."""
        if len(self.contexts) < 2:
            return f"{self.bits[-1]:.3f} bits per byte with one token of context."
        longest, before = (int(k) for k in self.contexts[[-1, -2]])
        gain, half = self.gains[-2], (self.gains_high[-2] - self.gains_low[-2]) / 2
        seen = f"Seeing {longest:,} tokens instead of {before:,}"
        if not abs(gain) > half:  # also if there is no interval
            found = f"{gain:+.3f} ± {half:.3f}".replace("-", "−")
            return (
                f"{seen} changes nothing that {self.n_places:,} tokens could show: it "
                f"saves {found} bits per byte."
            )
        verb = "saves" if gain > 0 else "costs"
        return f"{seen} {verb} {abs(gain):.3f} ± {half:.3f} bits per byte."

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw bits per byte by the number of tokens seen, with the interval.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            ax = new_figure(6.0, 3.4).subplots()
        ax.fill_between(self.contexts, self.low, self.high, color="#30638e", alpha=0.18)
        ax.plot(self.contexts, self.bits, "o-", color="#30638e")
        ax.set_xscale("log", base=2)
        ax.set_xticks(self.contexts, [f"{k:,}" for k in self.contexts], minor=False)
        ax.set_xlabel("tokens that the network sees")
        ax.set_ylabel("bits per byte")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _columns(self) -> Mapping[str, Any]:
        names = ("contexts", "bits", "low", "high", "gains", "gains_low", "gains_high")
        return {name: getattr(self, name) for name in names}

    def _notes(self) -> list[str]:
        return [
            f"Bits per byte on the same {self.n_places:,} tokens, spread over the "
            "text; gains are what the longest context saves. Intervals (95 %) treat "
            "these places as independent."
        ]


def context_use(network: Any, stream: Array, sizes: Array, end: int) -> ContextUse:
    """Predict the same tokens from fewer and from more tokens before them.

    Parameters
    ----------
    network : Transformer
        A decoder.
    stream : int array
        The end-of-text token, and the tokens of a text behind it.
    sizes : int array of shape (n_tokens,)
        Bytes of each token.
    end : int
        The end-of-text token, which is not predicted.
    """
    longest = min(network.config["context"], len(stream) // 2)
    at = np.arange(longest, len(stream))
    at = at[stream[at] != end]
    if not len(at):
        raise ValueError(
            "The text is too short to compare contexts; give at least two tokens."
        )
    at = at[np.unique(np.linspace(0, len(at) - 1, min(PLACES, len(at))).astype(int))]
    contexts = [2**i for i in range(longest.bit_length())]
    contexts += [longest] if contexts[-1] != longest else []
    B = np.stack([_bits(network, stream, at, k) for k in contexts], axis=1)
    B /= sizes[stream[at]].mean()
    bits, half = _interval(B)
    gains, wide = _interval(B - B[:, -1:])
    return ContextUse(
        contexts=np.array(contexts),
        bits=bits,
        low=bits - half,
        high=bits + half,
        gains=gains,
        gains_low=gains - wide,
        gains_high=gains + wide,
        n_places=len(at),
    )


def _interval(values: Array) -> tuple[Array, Array]:
    """Means of the columns, and 1.96 standard errors; NaN of a single row."""
    n = len(values)
    if n < 2:
        return values.mean(axis=0), np.full(values.shape[1], math.nan)
    return values.mean(axis=0), 1.96 * values.std(axis=0, ddof=1) / math.sqrt(n)


@torch.no_grad()
def _bits(network: Any, stream: Array, at: Array, k: int) -> Array:
    """Bits of the tokens at these places, from the k tokens before each."""
    device = next(network.parameters()).device
    ids, found = torch.from_numpy(stream.astype(np.int64)), []
    with evaluating(network):
        for part in np.array_split(at, max(1, math.ceil(len(at) * k / TOGETHER))):
            places = torch.from_numpy(part)
            seen = ids[places[:, None] + torch.arange(-k, 0)].to(device)
            states, _ = network.states(seen)
            scores = network.scores(states[:, -1]).double()
            wanted = ids[places].to(device)[:, None]
            lp = torch.log_softmax(scores, dim=1).gather(1, wanted)[:, 0]
            found.append(-lp.cpu().numpy() / math.log(2))
    return np.concatenate(found)
