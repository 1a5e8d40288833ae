"""What a generation returns: the text, and all that is needed to draw it again.

Notebooks show the text with each token coloured by its surprise, −log₂ p: the bits that
the model itself would need to write it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.language.views.colouring import coloured_block, draw_bits
from certus.results import Result
from certus.typing import Array, Axes

#: Tokens that a notebook shows.
SHOWN = 2_000


@dataclass(frozen=True)
class DraftRecord(Result):
    """What a draft proposed and what became of it, one entry for each tried token.

    A tried token x with probability q(x) under the draft and p(x) under the model is
    accepted if its uniform number is below p(x)/q(x). If not, a token is drawn from the
    residual max(p − q, 0), rescaled. So what comes out has the distribution p, whatever
    q is.

    Attributes
    ----------
    places : int array of shape (n_tried,)
        Where the token would stand in ``Generation.ids``.
    tokens : int array of shape (n_tried,)
        The tried tokens.
    q, p : float64 arrays of shape (n_tried, n_tokens)
        The distributions of the draft and of the model, after temperature, top-k and
        top-p.
    draft_uniforms, accept_uniforms : arrays of shape (n_tried,)
        The numbers that drew the token from q, and that decided on it.
    accepted : bool array of shape (n_tried,)
        Whether it was accepted.
    config, weights : dict
        The draft: its network, or the runs of tokens of an n-gram model.

    Examples
    --------
    >>> from certus.language import LanguageModel
    >>> words = {"n_layers": 1, "heads": 2, "context": 16, "max_iter": 20}
    >>> text = "to be or not to be, " * 30
    >>> model = LanguageModel(**words, width=32, random_state=0).fit(text)
    >>> draft = LanguageModel(**words, width=16, random_state=0).fit(text)
    >>> made = model.generate("to ", 20, draft=draft, temperature=0)
    >>> made.text == model.generate("to ", 20, temperature=0).text
    True
    >>> 0 <= made.draft.acceptance <= 1
    True
    """

    places: Array
    tokens: Array
    q: Array = field(repr=False)
    p: Array = field(repr=False)
    draft_uniforms: Array
    accept_uniforms: Array
    accepted: Array
    config: Mapping[str, Any] = field(repr=False)
    weights: Mapping[str, Any] = field(repr=False)

    @property
    def acceptance(self) -> float:
        """The share of tried tokens that were accepted."""
        return float(np.mean(self.accepted)) if len(self.accepted) else 0.0


@dataclass(frozen=True)
class Generation(Result):
    """A text that a model wrote, with the random numbers that drew it.

    Token i of the generated ones is the first whose cumulative probability exceeds
    ``uniforms[i]``; tokens stand in the order of their numbers, with the probabilities
    after temperature, top-k and top-p. The network sees the end-of-text token, then
    ``ids``, in windows: the first one begins at the end-of-text token, and it moves by
    half a context whenever the next token no longer fits.

    Attributes
    ----------
    text : str
        The generated text, without the prompt.
    ids : int array
        The tokens of the prompt and the generated ones.
    prompt_length : int
        How many of them are the prompt's.
    uniforms : array of shape (n_generated,)
        The number in [0, 1) that drew each token. NaN for beam search, which draws
        nothing; at temperature 0 every number gives the same token.
    log_probs : array of shape (n_generated,)
        Natural logarithm of each token's probability under the model itself, at
        temperature 1 and without top-k and top-p.
    source : int array of shape (n_generated,)
        0 if drawn from the model, 1 if accepted from the draft, 2 if drawn from the
        residual.
    temperature, top_k, top_p, beam : number or None
        How the tokens were chosen.
    finished : bool
        Whether the text ended by itself; otherwise it ran into ``max_tokens``.
    end : int
        The end-of-text token, which stands before the first one.
    draft : DraftRecord or None
        The draft's record.
    config, weights : dict
        The network that wrote the text.
    tokens : list of bytes
        The bytes of each token.

    Examples
    --------
    >>> import certus
    >>> from certus.language import LanguageModel
    >>> words = {"n_layers": 1, "width": 16, "heads": 2, "context": 16, "max_iter": 20}
    >>> model = LanguageModel(**words, random_state=0).fit("to be or not to be, " * 30)
    >>> made = model.generate("to ", 20, top_p=0.9, random_state=0)
    >>> len(made.uniforms) == len(made.generated) <= 20
    True
    >>> certus.certify(made).met  # drawn again by the verifier
    True
    """

    text: str
    ids: Array
    prompt_length: int
    uniforms: Array
    log_probs: Array
    source: Array
    temperature: float
    top_k: int | None
    top_p: float
    beam: int | None
    finished: bool
    end: int
    draft: DraftRecord | None
    config: Mapping[str, Any] = field(repr=False)
    weights: Mapping[str, Any] = field(repr=False)
    tokens: list[bytes] = field(repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def generated(self) -> Array:
        """The generated tokens."""
        return self.ids[self.prompt_length :]

    @property
    def data(self) -> bytes:
        """The generated bytes, also where they are not UTF-8."""
        return b"".join(self._pieces)

    @property
    def log_prob(self) -> float:
        """Natural logarithm of the probability of the generated tokens."""
        return float(np.sum(self.log_probs))

    @property
    def bits(self) -> Array:
        """The surprise of each generated token, −log₂ p, in bits."""
        return -self.log_probs / np.log(2.0)

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the surprise of each generated token.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        return draw_bits(self._pieces, self.bits, ax)

    @property
    def _pieces(self) -> list[bytes]:
        return [self.tokens[i] for i in self.generated.tolist()]

    @property
    def _headline(self) -> str:
        n = len(self.generated)
        mean = f", {float(np.mean(self.bits)):.2f} bits each" if n else ""
        return f"{n:,} generated tokens{mean}"

    def _table(self) -> Iterable[Sequence[str]]:
        yield "", ""
        for name in ("temperature", "top_k", "top_p", "beam", "finished"):
            yield name, str(getattr(self, name))
        if self.draft is not None:
            yield "drafted tokens accepted", f"{self.draft.acceptance:.0%}"

    def _repr_html_(self) -> str:
        """The table, and the text with the surprise of each token as its colour."""
        before = b"".join(self.tokens[i] for i in self.ids[: self.prompt_length])
        prompt = before.decode("utf-8", "replace")[-SHOWN:]
        text = coloured_block(prompt, self._pieces[:SHOWN], self.bits[:SHOWN])
        return super()._repr_html_().removesuffix("</div>") + text + "</div>"
