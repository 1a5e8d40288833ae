"""Proximal policy optimisation of a language model, with the reference as a tether.

    maximise  E_x [E_{y~π} r(x, y) − β KL(π‖ρ)] + γ E log π(text)

by steps on min(ρₜAₜ, clip(ρₜ, 1 ± ε)Aₜ), ρₜ the ratio of a token's probability to that
when it was drawn. γ = ``ptx`` keeps what the base learnt from text (PPO-ptx).
"""

from __future__ import annotations

from typing import Any, Unpack

import torch

from certus._core.sharing import shares
from certus.base import certified_fit, check_number
from certus.language.tuning.policy_losses import advantages
from certus.language.tuning.rollouts import RewardedPolicy
from certus.language.tuning.tuning_options import (
    PolicyOptions,
    RewardedOptions,
    RolloutOptions,
    TuningOptions,
)
from certus.typing import Fit

__all__ = ["PPO"]


@shares(PolicyOptions, RolloutOptions, TuningOptions)
class PPO(RewardedPolicy):
    """A language model whose answers earn more reward, near to its reference.

    Each iteration draws answers to prompts, asks for their rewards, and takes a few
    steps. The divergence from the reference is exact at each token, a sum over the
    vocabulary: it is never negative. The baseline of an answer is the mean of the
    others to the same prompt.

    Objective
    ---------
    E_x [E_{y~π} r(x, y) − β Σₜ KL(π‖ρ)] + γ·mean log π(xₜ | x_{<t}) of texts, where
    ρ = (1 − η) π_ref + η/V at each token, and answers end by themselves or after
    ``max_tokens``.

    Certificate
    -----------
    ``kl_to_reference`` (STATISTICAL): the mean exact KL of an answer, from answers that
    the verifier draws. ``gap_to_optimal_policy`` (STATISTICAL): how far J is below the
    best of all policies, and ``gain_over_reference``; both REFUSED or MEASURED without
    ``reward_range``. ``stated_samples`` (PROVED): the KL and rewards in ``samples_``
    are those of the networks and of the reward. ``base_untouched`` (PROVED): the base
    has the weights that it had before the fit.

    Parameters
    ----------
    base : fitted LanguageModel or tuned model
        Model to start from. It stays as it is, and is the reference.
    reward : callable or fitted RewardModel
        Reward of an answer. A function ``reward(prompt, answer)`` of two texts.
    ptx : float, default=0.0
        Weight γ of the loss on texts, which keeps what the base has learnt.
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
    >>> from certus.language import PPO, LanguageModel
    >>> base = LanguageModel(n_layers=1, width=32, heads=2, context=32, max_iter=40,
    ...                      random_state=0).fit("a cat. a dog. a hen. " * 60)
    >>> def short(prompt, answer):
    ...     return -len(answer) / 8
    >>> model = PPO(base, short, beta=0.05, max_tokens=8, reward_range=(-1, 0),
    ...             max_iter=20, random_state=0).fit(["a ", "a c", "a d"])
    >>> model.history_["reward"][-1] > model.history_["reward"][0]
    True
    >>> model.certificate_["kl_to_reference"].strength.value
    'statistical'
    """

    def __init__(
        self,
        base: Fit,
        reward: Any,
        *,
        ptx: float = 0.0,
        **shared: Unpack[RewardedOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, prompts: Any, texts: Any = None) -> Any:
        """Tune the policy on its own answers to prompts.

        Parameters
        ----------
        prompts : list of str or bytes
            What is asked. Each must leave room in the context for ``max_tokens``.
        texts : str, bytes, Path, or a list of these, optional
            Text that the base was trained on, for ``ptx`` above 0.
        """
        check_number("ptx", self.ptx)
        return self._tuned(prompts, texts, float(self.ptx))

    def _advantages(
        self, reward: torch.Tensor, kl: torch.Tensor, row: torch.Tensor
    ) -> torch.Tensor:
        return advantages(reward, kl, row, int(self.group), float(self.beta))
