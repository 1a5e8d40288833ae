"""Direct preference optimisation: a language model learns from pairs of answers.

    minimise over θ:  mean −log σ(β log π/ρ(chosen) − β log π/ρ(rejected))

If the better answer of a pair is chosen with probability σ(r(chosen) − r(rejected)),
the minimum over all policies is π* ∝ ρ e^{r/β}. With few pairs the minimum lies at
infinity: the loss falls and more pairs are ranked as given, while the policy leaves its
reference behind. So look at the divergence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import nn

from certus._core.sharing import shares
from certus.base import Fitted, certified_fit, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.evidence import BaseWitness
from certus.fingerprints import of_weights
from certus.language.tuning.answers import (
    AnswerPairs,
    encode_pairs,
    require_different,
    require_fitting,
    summed,
)
from certus.language.tuning.policy_base import TunedPolicy, scores_of
from certus.language.tuning.policy_losses import (
    PreferenceLoss,
    Preferences,
    reference_laws,
)
from certus.language.tuning.tuned import (
    TOGETHER,
    PairRows,
    TuningCourse,
    begin_tuning,
    complain,
    fitted_base,
    share_rows,
)
from certus.language.tuning.tuning_options import (
    PolicyOptions,
    PreferenceOptions,
    RowOptions,
    StoppingOptions,
    TuningOptions,
)
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.run import TrainingRun
from certus.typing import Array, Fit, Texts

__all__ = ["DPO"]

#: The step size.
RATE = 2e-4


@shares(PolicyOptions, RowOptions, StoppingOptions, TuningOptions)
class DPO(TunedPolicy):
    """A language model tuned on pairs of answers, of which one is preferred.

    Objective
    ---------
    mean −log σ(β log π/ρ(chosen) − β log π/ρ(rejected)) over pairs, from the weights of
    the base, where ρ = (1 − η) π_ref + η/V at each token; with η = 0 it is the
    published loss. It is log 2 at the start.

    Certificate
    -----------
    ``kl_to_reference`` (STATISTICAL): the mean exact KL of an answer, from answers that
    the verifier draws. ``preference_loss`` (PROVED): the loss on the pairs, above log 2
    if they were swapped. ``stated_samples`` (PROVED): the KL in ``samples_`` is that of
    the networks. ``base_untouched`` (PROVED): the base has the weights that it had
    before the fit. With ``reward`` and ``reward_range`` also ``gap_to_optimal_policy``
    and ``gain_over_reference`` (STATISTICAL), which tell a policy that ranks pairs well
    and is worse than its own reference; refused without them, as pairs tell no reward.

    Parameters
    ----------
    base : fitted LanguageModel or tuned model
        Model to start from. It stays as it is, and is the reference.
    reward : callable or fitted RewardModel, default=None
        Reward of an answer. Only the certificate uses it.
    learning_rate : float, default=None
        Step size. By default 0.0002. It rises at first and then falls linearly to zero
        at the end of the run.
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
        Most tokens of an answer: those of the longest one, and its end.
    samples_ : dict of lists
        Prompts, answers before and after, rewards and exact divergences;
        :meth:`side_by_side` shows them.
    history_ : dict of lists
        After each epoch: loss, accuracy (share of pairs ranked as given),
        validation_loss, validation_accuracy, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept, from 1.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    ``certus.certify(model, prompts, list(zip(chosen, rejected)))`` checks it again.
    Cloning keeps the fitted base and the reward.

    Examples
    --------
    >>> from certus.language import DPO, LanguageModel
    >>> base = LanguageModel(n_layers=1, width=32, heads=2, context=32, max_iter=40,
    ...                      random_state=0).fit("a cat. a dog. a hen. " * 60)
    >>> model = DPO(base, beta=0.1, max_iter=60, random_state=0)
    >>> model = model.fit(["a "] * 40, ["dog."] * 40, ["cat."] * 40)
    >>> model.history_["loss"][-1] < 0.69  # log 2 for doing nothing
    True
    >>> model.certificate_["preference_loss"].met
    True
    """

    def __init__(
        self,
        base: Fit,
        *,
        reward: Any = None,
        learning_rate: float | None = None,
        **shared: Unpack[PreferenceOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, prompts: Any, chosen: Texts, rejected: Texts) -> Any:
        """Learn from preferences.

        Parameters
        ----------
        prompts : list of str or bytes
            What is asked; may be empty texts.
        chosen, rejected : list of str or bytes
            The preferred answer to each prompt, and the other one. Both must fit into
            the context with their prompt.
        """
        self._check_policy()
        if not self.beta:
            raise ValueError("beta must be above 0, got 0: the loss would be constant.")
        if self.reward is not None:
            scores_of(self.reward)
        base = fitted_base(self.base)
        digest, pairs = (
            of_weights(base.weights_),
            self._pairs(prompts, chosen, rejected),
        )
        n = len(pairs) // 2
        rng = generator_of(self.random_state)
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        if kept is not None:
            kept.begin(rng)
        monitor = Monitor(self, prompts, chosen)
        rows, held = share_rows(self, n, rng)
        loss = PreferenceLoss(float(self.beta))
        run = begin_tuning(self, self._module, loss, RATE, rng)
        known = self._references(pairs)
        judge = None
        if len(held):
            judge = _judge(loss, _rows(pairs, known, held, self.device))
        mine = _rows(pairs, known, rows, self.device)
        course = TuningCourse(self, run, mine, judge, self._state)
        if kept is not None:
            params, module = self.get_params(deep=False), run.step.modules["module"]
            kept.resume(run, describe(params, module, digest, *pairs.streams))
        status = course.train(kept, monitor)
        self._finish(run, list(prompts))
        complain(self, run)
        monitor.close({})
        both = list(zip(chosen, rejected))
        evidence = Evidence("tuned", BaseWitness(digest))
        return Fitted(evidence, list(prompts), both, None, status)

    def _pairs(self, prompts: Texts, chosen: Texts, rejected: Texts) -> AnswerPairs:
        """The preferred answers as pairs with their prompts, then the others."""
        context, tokenizer = self.base.config_["context"], self.base.tokenizer_
        parts = [
            encode_pairs(tokenizer, prompts, answers, context, names=("prompts", name))
            for name, answers in (("chosen", chosen), ("rejected", rejected))
        ]
        require_different(chosen, rejected)
        for part in parts:
            require_fitting(part, context)
        lengths = [
            len(stream) - begin
            for part in parts
            for stream, begin in zip(part.streams, part.begins)
        ]
        self.max_tokens_ = int(max(lengths))
        self._prompts(prompts)  # each must leave room for the longest answer
        first, second = parts
        first.streams += second.streams
        first.begins = np.concatenate([first.begins, second.begins])
        first.cut = np.concatenate([first.cut, second.cut])
        first.lengths = torch.cat([first.lengths, second.lengths])
        return first

    @torch.no_grad()
    def _references(self, pairs: AnswerPairs) -> torch.Tensor:
        """Log ρ of each answer, found once."""
        network: Any = self.base.network_.to(self.device)
        found = torch.zeros(len(pairs), device=self.device)
        for part in pairs.lengths.argsort(stable=True).split(TOGETHER):
            batch = pairs.fetch(part, self.device)
            laws = reference_laws(network, batch, float(self.floor))
            mask: Any = batch.extra
            taken = laws.gather(1, batch.y[mask][:, None])[:, 0]
            found[part] = summed(taken, mask.nonzero()[:, 0], len(part))
        return found

    def _finish(self, run: TrainingRun, prompts: Sequence[Any]) -> None:
        run.step.fetch = run.best = None  # type: ignore[attr-defined]
        for name, value in self._state(run).items():
            setattr(self, name, value)
        self.n_iter_ = int(run.schedules[0].last_epoch)
        self.history_ = {name: list(column) for name, column in run.history.items()}
        self.best_epoch_ = run.best_epoch
        self._keep_samples(prompts, run.rng)


def _rows(
    pairs: AnswerPairs, known: torch.Tensor, chosen: Array, device: torch.device | str
) -> PairRows:
    """Some pairs of answers as rows of a course."""
    numbers, n = torch.as_tensor(chosen), len(pairs) // 2

    def fetch(rows: Any) -> Any:
        at = numbers[torch.as_tensor(rows)]
        both = torch.cat([at, at + n])
        batch = pairs.fetch(both, device)
        mask: Any = batch.extra
        return Preferences(batch.inputs, batch.y, None, mask, known[both])

    longest = torch.maximum(pairs.lengths[numbers], pairs.lengths[numbers + n])
    return PairRows(fetch, longest)


def _judge(loss: PreferenceLoss, held: PairRows) -> Any:
    """The loss of held-out pairs, and the share that is ranked as given."""
    pairs_of: Any = held.fetch

    @torch.no_grad()
    def evaluate(module: nn.Module) -> dict[str, float]:
        margins = torch.cat(
            [
                loss.margins(module, pairs_of(part))
                for part in torch.arange(len(held.lengths)).split(TOGETHER)
            ]
        )
        cost = float(-nn.functional.logsigmoid(margins.double()).mean())
        right = float((margins > 0).double().mean())
        return {
            "validation_loss": cost,
            "validation_accuracy": right,
            "criterion": cost,
        }

    return evaluate
