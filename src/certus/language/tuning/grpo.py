"""Group-relative policy optimisation: rewards measured against those of a group.

    maximise  E_x [E_{y~π} A(x, y) − β Σₜ KL(π‖ρ)],   A = (r − mean)/std

over the answers to the same prompt, by steps on min(ρₜA, clip(ρₜ, 1 ± ε)A). The scale
of the reward and a shift of it for each prompt do not matter.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch

from certus._core.sharing import shares
from certus.base import certified_fit, check_number
from certus.language.tuning.policy_losses import group_advantages
from certus.language.tuning.rollouts import RewardedPolicy
from certus.language.tuning.tuning_options import (
    PolicyOptions,
    RewardedOptions,
    RolloutOptions,
    TuningOptions,
)
from certus.typing import Column, Fit

__all__ = ["GRPO"]


@shares(PolicyOptions, RolloutOptions, TuningOptions, group=8)
class GRPO(RewardedPolicy):
    """A language model whose answers beat others to the same prompt.

    As :class:`PPO`, with rewards scaled by their standard deviation among the answers
    to a prompt. The value of the loss is near zero by construction; look at the reward
    in ``history_``.

    Objective
    ---------
    E_x [E_{y~π} (r(x, y) − mean)/std − β Σₜ KL(π‖ρ)] with the mean and the standard
    deviation over the ``group`` answers to x, and ρ = (1 − η) π_ref + η/V at each
    token. Answers with equal rewards move nothing. Tokens count alike, in short and in
    long answers.

    Certificate
    -----------
    As that of :class:`PPO`, about the reward itself: J = E r − β KL(π‖ρ).

    Parameters
    ----------
    base : fitted LanguageModel or tuned model
        Model to start from. It stays as it is, and is the reference.
    reward : callable or fitted RewardModel
        Reward of an answer. A function ``reward(prompt, answer)`` of two texts.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Transformer
        The tuned network, in evaluation mode.
    tokenizer_ : ByteTokenizer or BPETokenizer
        That of the base.
    config_ : dict
        What the network was built with.
    weights_ : dict of float32 ndarray
        Its weights by name.
    max_tokens_ : int
        Most tokens of an answer.
    samples_ : dict of lists
        Prompts, answers before and after, rewards and exact divergences;
        :meth:`side_by_side` shows them.
    history_ : dict of lists
        After each epoch: loss, reward with reward_low and reward_high, kl, objective,
        length of answers, steps, seconds. :meth:`frontier` draws it.
    n_iter_ : int
        Iterations made.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Cloning keeps the fitted base and the reward.

    Examples
    --------
    >>> from certus.language import GRPO, LanguageModel
    >>> base = LanguageModel(n_layers=1, width=32, heads=2, context=32, max_iter=40,
    ...                      random_state=0).fit("a cat. a dog. a hen. " * 60)
    >>> def short(prompt, answer):
    ...     return -len(answer) / 8
    >>> model = GRPO(base, short, beta=0.05, max_tokens=8, reward_range=(-1, 0),
    ...              max_iter=20, random_state=0).fit(["a ", "a c", "a d"])
    >>> model.history_["reward"][-1] > model.history_["reward"][0]
    True
    >>> model.certificate_["kl_to_reference"].strength.value
    'statistical'
    """

    def __init__(
        self, base: Fit, reward: Any, **shared: Unpack[RewardedOptions]
    ) -> None: ...

    @certified_fit
    def fit(self, prompts: Any, y: Column = None) -> Any:
        """Tune the policy on its own answers to prompts.

        Parameters
        ----------
        prompts : list of str or bytes
            What is asked. Each must leave room in the context for ``max_tokens``.
        y : None
            Ignored.
        """
        check_number("group", self.group, 2, integer=True)
        return self._tuned(prompts, None, 0.0)

    def _advantages(
        self, reward: torch.Tensor, kl: torch.Tensor, row: torch.Tensor
    ) -> torch.Tensor:
        return group_advantages(reward, row, int(self.group))
