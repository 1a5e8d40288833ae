"""Group-relative policy optimisation: rewards measured against those of a group.

    maximise  E_x [E_{y~π} A(x, y) − β Σₜ KL(π‖ρ)],   A = (r − mean)/std

over the answers to the same prompt, by steps on min(ρₜA, clip(ρₜ, 1 ± ε)A). The scale
of the reward and a shift of it for each prompt do not matter.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from certus.base import certified_fit, check_number
from certus.language.policy_losses import group_advantages
from certus.language.rollouts import RewardedPolicy
from certus.typing import RandomState

__all__ = ["GRPO"]


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
    beta : float, default=0.1
        Price of a nat of divergence from the reference.
    max_tokens : int, default=32
        Most tokens of an answer.
    group : int, default=8
        Number of answers to each prompt of an iteration.
    passes : int, default=2
        Number of steps on the answers of an iteration.
    clip_ratio : float, default=0.2
        Change of a probability beyond which an answer no longer counts.
    floor : float, default=0.01
        Share η of the uniform law in the reference, which makes divergences finite.
    reward_range : (low, high), default=None
        Bounds of the reward, known before the fit. Needed for
        ``gap_to_optimal_policy``.
    optimizer : str or callable, default="adam"
        Name of an optimiser, or a function that makes one. As in
        :class:`certus.neural_network.NeuralClassifier`.
    learning_rate : float, default=None
        Step size. By default 0.001. It rises at first and then falls linearly to zero
        at the end of the run.
    warmup : float, default=0.02
        Share of the run in which the learning rate rises from zero.
    weight_decay : float, default=0.0
        Rate at which the optimiser shrinks weights in each step.
    clip : float, default=1.0
        Largest norm of a gradient; longer ones are shortened. None leaves all alone.
    average : "polyak" or float, default=None
        Whether to predict with averaged weights. "polyak" takes the mean over all
        steps, a number is the decay of an exponential mean.
    batch_size : int, default=64
        Number of rows in each training step. They are answers, a multiple of ``group``.
    max_iter : int, default=100
        Maximum number of iterations. Each draws ``batch_size`` answers.
    n_iter_no_change : int, default=10
        Number of epochs without improvement after which the fit stops. An epoch here is
        five iterations; an improvement is one of the objective by more than its 95 %
        interval.
    max_time : float, default=600.0
        Seconds after which the fit stops and keeps what it has.
    checkpoint : path, default=None
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it, bit for bit.
    device : str, default="cpu"
        Device on which torch computes.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide which prompts are asked
        and what is answered.

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
    >>> base = LanguageModel(layers=1, width=32, heads=2, context=32, max_iter=40,
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
        self,
        base: Any,
        reward: Any,
        *,
        beta: float = 0.1,
        max_tokens: int = 32,
        group: int = 8,
        passes: int = 2,
        clip_ratio: float = 0.2,
        floor: float = 0.01,
        reward_range: tuple[float, float] | None = None,
        optimizer: Any = "adam",
        learning_rate: float | None = None,
        warmup: float = 0.02,
        weight_decay: float = 0.0,
        clip: float | None = 1.0,
        average: str | float | None = None,
        batch_size: int = 64,
        max_iter: int = 100,
        n_iter_no_change: float = 10,
        max_time: float | None = 600.0,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        random_state: RandomState = None,
    ) -> None:
        self.base = base
        self.reward = reward
        self.beta = beta
        self.max_tokens = max_tokens
        self.group = group
        self.passes = passes
        self.clip_ratio = clip_ratio
        self.floor = floor
        self.reward_range = reward_range
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.clip = clip
        self.average = average
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state

    @certified_fit
    def fit(self, prompts: Any, y: Any = None) -> Any:
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
