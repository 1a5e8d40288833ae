"""What policies show: answers before and after, reward against divergence, the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from certus.results import Result, TableResult, new_figure
from certus.typing import Array, Axes

BLUE, RED = "#30638e", "#d1495b"


@dataclass(frozen=True)
class AnswerComparison(TableResult):
    """Answers of a base and of the policy tuned from it, side by side.

    Attributes
    ----------
    prompt : list of str or bytes
        What was asked.
    before, after : list of str
        The answers of the base and of the policy, drawn with the same random numbers.
    reward_before, reward : list of float
        Their rewards; NaN where no reward is known.
    kl : list of float
        The exact divergence Σₜ KL(π‖ρ) along each answer of the policy, in nats.

    Examples
    --------
    >>> from certus.language import AnswerComparison
    >>> found = AnswerComparison(["a"], ["b"], ["c"], [0.0], [1.0], [0.3])
    >>> found.to_frame().columns[:3]
    ['prompt', 'before', 'after']
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("prompt", "before", "after", "reward_before", "reward", "kl"),
    )

    prompt: list[Any]
    before: list[str]
    after: list[str]
    reward_before: list[float]
    reward: list[float]
    kl: list[float]

    def _columns(self) -> Mapping[str, Any]:
        shown = [
            str(x, "utf-8", "replace") if isinstance(x, bytes) else x
            for x in self.prompt
        ]
        return {"prompt": shown, **{n: getattr(self, n) for n in self.COLUMNS[1:]}}

    @property
    def _headline(self) -> str:
        text = f"{len(self.prompt)} prompts, before and after"
        if not len(self.reward) or np.isnan(self.reward).any():
            return text
        return (
            f"{text}: mean reward {np.mean(self.reward_before):.3g} and "
            f"{np.mean(self.reward):.3g}, mean KL {np.mean(self.kl):.3g} nats"
        )


@dataclass(frozen=True)
class PolicyFrontier(TableResult):
    """Reward with its interval against the exact divergence, during a fit.

    Attributes
    ----------
    kl : array of shape (n_looks,)
        Mean Σₜ KL(π‖ρ) of an answer, in nats: a sum over the vocabulary at each token.
    reward, reward_low, reward_high : arrays of shape (n_looks,)
        Mean reward of the answers that were drawn, and its 95 % interval.
    beta : float
        Price of a nat: J = reward − β·KL rises along the arrow across the lines.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.language import PolicyFrontier
    >>> up = np.array([0.1, 0.5])
    >>> PolicyFrontier(np.array([0.0, 2.0]), up, up - 0.1, up + 0.1, 0.1).gain
    0.2
    """

    kl: Array
    reward: Array
    reward_low: Array
    reward_high: Array
    beta: float

    @property
    def gain(self) -> float:
        """How much the objective J = reward − β·KL rose from first to last."""
        J = self.reward - self.beta * self.kl
        return round(float(J[-1] - J[0]), 12)

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the frontier.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            ax = new_figure(6.0, 4.0).subplots()
        # A run may come back to a smaller KL, so that a band would cross itself.
        ax.vlines(self.kl, self.reward_low, self.reward_high, color=BLUE, alpha=0.4)
        ax.plot(self.kl, self.reward, "o-", color=BLUE, ms=4)
        reach = np.array([0.0, float(np.max(self.kl))])
        level = self.reward[0] - self.beta * self.kl[0] + self.beta * reach
        ax.plot(reach, level, ":", color=RED, label="no gain: β·KL pays for it")
        ax.legend(loc="lower right", frameon=False)
        ax.set_xlabel("exact KL to the reference, nats for each answer")
        ax.set_ylabel("mean reward, 95 % interval")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _columns(self) -> Mapping[str, Any]:
        names = ("kl", "reward", "reward_low", "reward_high")
        return {name: np.asarray(getattr(self, name)) for name in names}

    @property
    def _headline(self) -> str:
        return f"{len(self.kl)} looks; the objective rose by {self.gain:+.3g}"


@dataclass(frozen=True)
class OptimalPolicy(Result):
    """The best policy for a reward and a reference, π* ∝ ρ e^{r/β}.

    Attributes
    ----------
    probabilities : array of shape (..., n_answers)
        π*.
    value : array of shape (...)
        J* = β log Σ ρ e^{r/β}, the largest possible E r − β KL(π‖ρ).
    kl : array of shape (...)
        KL(π*‖ρ), in nats.
    answers : list or None
        The answers, where they were given.
    beta : float
        β.

    Examples
    --------
    >>> from certus.language import optimal_policy
    >>> best = optimal_policy([0.5, 0.5], [1.0, 0.0], beta=1.0)
    >>> best.probabilities.round(3), round(float(best.value), 3)
    (array([0.731, 0.269]), 0.62)
    """

    probabilities: Array
    value: Array
    kl: Array
    answers: list[Any] | None
    beta: float
    reference: Array = field(repr=False)

    @property
    def _headline(self) -> str:
        return f"best policy at beta = {self.beta:g}: J* = {np.mean(self.value):.4g}"

    def _table(self) -> Iterable[Sequence[str]]:
        yield "answer", "reference", "best policy"
        n = self.probabilities.shape[-1]
        names = self.answers or list(range(n))
        p, q = (
            np.asarray(x).reshape(-1, n)[0]
            for x in (self.probabilities, self.reference)
        )
        for i in np.argsort(-p):
            yield str(names[i]), f"{q[i]:.4f}", f"{p[i]:.4f}"

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw both distributions, the most probable answers of the best policy first.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            ax = new_figure(7.0, 3.0).subplots()
        n = self.probabilities.shape[-1]
        p, q = (
            np.asarray(x).reshape(-1, n)[0]
            for x in (self.probabilities, self.reference)
        )
        order = np.argsort(-p)[:40]
        at = np.arange(len(order))
        ax.bar(at - 0.2, q[order], width=0.4, color="#b8c4d0", label="reference")
        ax.bar(at + 0.2, p[order], width=0.4, color=BLUE, label="best policy")
        if self.answers and len(order) <= 15:
            ax.set_xticks(at, [str(self.answers[i]) for i in order])
        ax.set_ylabel("probability")
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        return ax
