"""What tuned policies share: answers, rewards, and what they show of themselves.

A policy is a language model whose answers are judged, π(y | x). Its reference is the
base that it was tuned from, floored at each token: ρ = (1 − η) π_ref + η/V.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from certus.base import check_number
from certus.language.base import end_of
from certus.language.decoding.samplers import CompiledDecoder, Rule, sample_from
from certus.language.tuning.answers import (
    AnswerPairs,
    answer_scores,
    read_texts,
    summed,
)
from certus.language.tuning.policy_losses import divergences, reference_laws
from certus.language.tuning.policy_results import AnswerComparison
from certus.language.tuning.tuned import TunedModel, check_tuning, fitted_base
from certus.neural_network.run import TrainingRun
from certus.neural_network.wrapping import evaluating
from certus.typing import Array, Fit, Texts

#: Plain draws: temperature 1, all tokens.
PLAIN = Rule(1.0, 0, 1.0)
#: Prompts whose answers a fitted policy keeps, and draws for its own figures.
SHOWN, ENOUGH = 16, 256
#: Tokens whose divergences are summed together.
AT_ONCE = 512
Scores = Callable[[Sequence[Any], Sequence[str]], np.ndarray]


class TunedPolicy(TunedModel):
    """Base of policies; abstract."""

    beta: float
    floor: float
    reward: Any
    reward_range: tuple[float, float] | None
    max_tokens_: int
    samples_: dict[str, list[Any]]

    def __sklearn_clone__(self) -> Any:
        """A copy without the fit; a fitted base and a fitted reward are kept."""
        params = self.get_params(deep=False)
        data = {name: params.pop(name) for name in ("base", "reward")}
        made = {name: clone(value, safe=False) for name, value in params.items()}
        return type(self)(**data, **made)

    def propose_answers(
        self,
        prompts: Sequence[Array],
        uniforms: Array,
        noise: Array | None = None,
        reference: bool = False,
    ) -> list[Array]:
        """Answers that given random numbers draw, for a verifier to check.

        Parameters
        ----------
        prompts : list of int arrays
            Tokens of each prompt.
        uniforms : array of shape (n_prompts, max_tokens)
            Token t of an answer is the first whose cumulative probability exceeds
            number t.
        noise : array of shape (n_prompts, max_tokens), optional
            Where it is below the floor, number t picks a token from all with equal
            probabilities.
        reference : bool, default=False
            Whether the base answers, instead of the tuned policy.

        Returns
        -------
        list of int arrays
            The tokens of each answer, the end-of-text token included where it ended.
        """
        writer: Any = self.base if reference else self
        decoder = writer.decoder()
        places = np.zeros(np.shape(uniforms), bool)
        if noise is not None:
            places = np.asarray(noise) < self.floor
        return draw_answers(decoder, list(prompts), np.asarray(uniforms), places)

    def side_by_side(self) -> AnswerComparison:
        """Answers of the base and of the policy to some prompts of the fit.

        Returns
        -------
        AnswerComparison
            With a table for notebooks and ``to_frame()``.
        """
        kept = {name: list(self.samples_[name]) for name in AnswerComparison.COLUMNS}
        return AnswerComparison(**kept)

    # -- for fits -----------------------------------------------------------------

    def _check_policy(self) -> None:
        check_tuning(self)
        check_number("beta", self.beta, 0)
        if not math.isfinite(self.beta):
            raise ValueError(
                f"beta must be finite, got {self.beta!r}: an infinite one leaves the "
                "base as it is."
            )
        check_number("floor", self.floor, 0, 0.5)
        if self.reward_range is not None:
            try:
                low, high = map(float, self.reward_range)
            except (TypeError, ValueError):
                low, high = 1.0, 0.0
            if not -math.inf < low <= high < math.inf:
                raise ValueError(
                    "reward_range must be a pair (low, high) of finite numbers, got "
                    f"{self.reward_range!r}."
                )

    def _prompts(self, prompts: Texts) -> list[Array]:
        """Tokens of the prompts, which must leave room for an answer."""
        base = fitted_base(self.base)
        context, most = base.config_["context"], self.max_tokens_
        ids = [
            np.asarray(base.tokenizer_.encode(text), np.int64)
            for text in read_texts(prompts, "prompts")
        ]
        if not ids:
            raise ValueError("prompts must hold at least one text, got none.")
        long = [i for i, x in enumerate(ids) if len(x) + most > context]
        if long:
            raise ValueError(
                f"A prompt and {most} tokens of an answer must fit into the base's "
                f"context of {context} tokens, got {len(long)} longer prompts, the "
                f"first in row {long[0]}. Shorten these prompts, or lower max_tokens."
            )
        return ids

    def _state(self, run: TrainingRun) -> dict[str, Any]:
        """The network of a run as of now."""
        network: Any = copy.deepcopy(run.final())
        return {"tokenizer_": self.base.tokenizer_, "network_": network.eval()}

    def _module(self) -> nn.Module:
        network: nn.Module = copy.deepcopy(self.base.network_).requires_grad_(True)
        return network

    def _keep_samples(self, prompts: Sequence[Any], rng: np.random.Generator) -> None:
        """Answers before and after to some prompts, drawn with the same numbers."""
        texts = list(prompts)
        many = min(SHOWN, len(texts))
        chosen = np.unique(np.linspace(0, len(texts) - 1, many).astype(int))
        asked = [texts[i] for i in chosen]
        ids, u = self._prompts(asked), rng.random((len(asked), self.max_tokens_))
        before = self.propose_answers(ids, u, reference=True)
        after = self.propose_answers(ids, u)
        said = (
            [self.tokenizer_.decode(y) for y in before],
            [self.tokenizer_.decode(y) for y in after],
        )
        kl = answer_divergences(self, ids, after)
        rewards = [[math.nan] * len(asked)] * 2
        if self.reward is not None:
            score = scores_of(self.reward)
            rewards = [score(asked, texts).tolist() for texts in said]
        self.samples_ = {
            "prompt": asked,
            "before": said[0],
            "after": said[1],
            "reward_before": rewards[0],
            "reward": rewards[1],
            "kl": kl.tolist(),
            "tokens": after,
        }


def draw_answers(
    decoder: CompiledDecoder, prompts: list[Array], numbers: Array, places: Array
) -> list[Array]:
    """Answers by inverse distribution functions; at some places drawn uniformly.

    Parameters
    ----------
    decoder : CompiledDecoder
        The network.
    prompts : list of int arrays
        Tokens of each prompt.
    numbers : array of shape (n_prompts, most)
        The uniform numbers.
    places : bool array of shape (n_prompts, most)
        Where the number picks any token with equal probability.
    """
    n, most = numbers.shape
    answers = [np.zeros(0, np.int64)] * n
    waiting = np.arange(n)
    while len(waiting):
        # Draw all that is left of each answer, then cut it at its next such place.
        begun = [np.concatenate([prompts[i], answers[i]]) for i in waiting]
        left = np.full((len(waiting), most), 0.5)
        for row, i in zip(left, waiting):
            done = len(answers[i])
            row[: most - done] = numbers[i, done:]
        room = most - min(len(answers[i]) for i in waiting)
        drawn = sample_from(decoder, begun, PLAIN, left[:, :room])
        still = []
        for i, x, found in zip(waiting, begun, drawn):
            done = len(answers[i])
            new = found.ids[len(x) :][: most - done]
            cuts = np.flatnonzero(places[i, done : done + len(new)])
            if len(cuts):
                token = min(
                    int(numbers[i, done + cuts[0]] * decoder.n_tokens),
                    decoder.n_tokens - 1,
                )
                new = np.append(new[: cuts[0]], token)
            answers[i] = np.concatenate([answers[i], new]).astype(np.int64)
            if len(cuts) and new[-1] != decoder.end and len(answers[i]) < most:
                still.append(i)
        waiting = np.array(still, np.int64)
    return answers


def answer_pairs(
    prompts: Sequence[Array], answers: Sequence[Array], end: int, context: int
) -> AnswerPairs:
    """Answers as they were drawn, some of them cut off, as pairs."""
    over = [bool(len(y)) and y[-1] == end for y in answers]
    bare = [y[:-1] if ended else y for y, ended in zip(answers, over)]
    return AnswerPairs(prompts, bare, end, context, over)


class AnswerLaws(NamedTuple):
    """What both networks say at each token of some answers."""

    log_p: torch.Tensor  # (tokens, n_tokens)
    log_q: torch.Tensor  # the same of the floored reference
    kl: torch.Tensor  # (tokens,): KL(π‖ρ), a sum over the vocabulary in float64
    row: torch.Tensor  # the answer that each token belongs to
    wanted: torch.Tensor  # the tokens


@torch.no_grad()
def answer_laws(network: Any, reference: Any, batch: Any, floor: float) -> AnswerLaws:
    """Both distributions at each token; the divergences of training and of samples."""
    with evaluating(network):
        found = answer_scores(network, batch)
    lp = torch.log_softmax(found.scores, dim=-1)
    lq = reference_laws(reference, batch, floor)
    both = zip(lp.split(AT_ONCE), lq.split(AT_ONCE))
    kl = torch.cat([divergences(p.double(), q.double()) for p, q in both])
    return AnswerLaws(lp, lq, kl, found.row, found.wanted)


def answer_divergences(
    policy: Fit, prompts: Sequence[Array], answers: Sequence[Array]
) -> Array:
    """Σₜ KL(π‖ρ) of each answer, in float64."""
    network, reference = policy.network_, policy.base.network_
    end, context = end_of(policy.tokenizer_), network.config["context"]
    device = next(network.parameters()).device
    batch = answer_pairs(prompts, answers, end, context).fetch(
        np.arange(len(answers)), device
    )
    found = answer_laws(network, reference, batch, policy.floor)
    kl = summed(found.kl, found.row, len(answers))
    return np.maximum(kl.cpu().numpy(), 0.0)  # not −1e-17


def scores_of(reward: Any) -> Scores:
    """The reward as a function of lists, whose results are finite numbers."""
    if reward is None or not (callable(reward) or hasattr(reward, "predict")):
        raise TypeError(
            "reward must be a function of a prompt and an answer, or a fitted "
            f"RewardModel, got {type(reward).__name__}."
        )

    def score(prompts: Sequence[Any], answers: Sequence[str]) -> np.ndarray:
        if hasattr(reward, "predict"):
            found = reward.predict(list(prompts), list(answers))
        else:
            found = [reward(x, y) for x, y in zip(prompts, answers)]
        try:
            values = np.array([float(value) for value in found])
        except (TypeError, ValueError):
            raise TypeError(
                "reward must return a number for a prompt and an answer, got "
                f"{next(iter(found))!r}."
            ) from None
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            i = int(bad[0])
            raise ValueError(
                f"reward must return finite numbers, got {values[i]} for the prompt "
                f"{prompts[i]!r} and the answer {answers[i]!r}."
            )
        return values

    return score
