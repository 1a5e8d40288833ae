"""Tuning by rewards: draw answers, judge them, move the policy, and look at both.

    maximise J(π) = E_x [E_{y~π} r(x, y) − β KL(π‖ρ)] + γ E log π(text)

Each iteration draws a batch of answers with the compiled decoder and takes a few steps
on it. A fit is over when J no longer rises by more than its interval: the loss says
nothing, its value is zero by construction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from certus.base import Fitted, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.evidence import BaseWitness
from certus.fingerprints import of_weights
from certus.language.base import end_of, joined, read_documents
from certus.language.decoding.samplers import CompiledDecoder, sample_from
from certus.language.training import Course, TokenStream
from certus.language.tuning.answers import summed
from certus.language.tuning.policy_base import (
    PLAIN,
    TunedPolicy,
    answer_laws,
    answer_pairs,
    scores_of,
)
from certus.language.tuning.policy_losses import PolicyLoss, Rollout
from certus.language.tuning.policy_results import PolicyFrontier
from certus.language.tuning.tuned import begin_tuning, complain, fitted_base
from certus.language.windows import drawn_places
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.run import TrainingRun
from certus.neural_network.tasks import RunClock, make_plan
from certus.typing import Array, Fit, TextsLike

#: Iterations between two looks, and windows of text in a step with ``ptx``.
EVERY, WINDOWS = 5, 16
#: Half the width of a 95 % interval, in standard errors; the step size.
WIDE, RATE = 1.96, 1e-3


class Judged(NamedTuple):
    """Numbers of the answers of one iteration."""

    prompt: Array  # number in the list of prompts
    reward: Array
    kl: Array
    length: Array


class PolicyCourse(Course):
    """Trains a run on answers that it draws itself.

    Parameters
    ----------
    model : RewardedPolicy
        With its parameters.
    run : TrainingRun
        What is trained; gets its schedule here.
    prompts : list of int arrays
        Tokens of the prompts.
    texts : list of str or bytes
        The prompts, as the reward sees them.
    stream : TokenStream or None
        Pre-training text.
    """

    keeps_best = False
    stream: Any  # a TokenStream, or None

    def __init__(
        self,
        model: Fit,
        run: TrainingRun,
        prompts: list[Array],
        texts: list[Any],
        stream: TokenStream | None,
    ) -> None:
        self.model, self.run, self.stream = model, run, stream
        self.prompts, self.texts = prompts, texts
        self.score, self.seen = scores_of(model.reward), list[Judged]()
        self.end = end_of(model.base.tokenizer_)
        self.passes = int(model.passes)
        step: Any = run.step
        self.clock = RunClock(int(model.max_iter) * self.passes, model.max_time)
        self.plan = make_plan(step.optimizers["module"], self.clock, model.warmup)
        run.schedules = [self.plan]
        self.watched = self._evaluate

    def _batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The answers of each iteration of a stretch, as often as steps are made."""
        assert self.clock.steps is not None
        self.seen = []
        left = (self.clock.steps - self.plan.last_epoch) // self.passes
        for _ in range(min(EVERY, left)):
            if not self._can_answer():
                return  # the run ends here, and goes back to weights that can
            made = self.roll(rng)
            for _ in range(self.passes):
                yield made._replace(pretraining=self._windows(rng))

    def roll(self, rng: np.random.Generator) -> Rollout:
        """Draw answers from the policy as it is now, and judge them."""
        model, module = self.model, self._network()
        n, group = int(model.batch_size), int(model.group)
        many = n // group
        among = len(self.prompts)
        chosen = rng.permutation(among)[:many]
        if many > among:
            chosen = rng.integers(among, size=many)
        chosen = np.repeat(chosen, group)
        prompts = [self.prompts[i] for i in chosen]
        weights = {k: v.detach().cpu().numpy() for k, v in module.state_dict().items()}
        decoder = CompiledDecoder(module.config, weights, self.end)
        numbers = rng.random((n, model.max_tokens_))
        drawn = sample_from(decoder, prompts, PLAIN, numbers)
        answers = [found.ids[len(x) :] for found, x in zip(drawn, prompts)]
        decode = model.base.tokenizer_.decode
        reward = self.score(
            [self.texts[i] for i in chosen], [decode(y) for y in answers]
        )
        return self._rollout(chosen, answers, reward)

    def _rollout(self, chosen: Array, answers: list[Array], reward: Array) -> Rollout:
        prompts = [self.prompts[i] for i in chosen]
        model, module = self.model, self._network()
        context, n = module.config["context"], len(answers)
        pairs = answer_pairs(prompts, answers, self.end, context)
        batch = pairs.fetch(np.arange(n), model.device)
        reference = model.base.network_.to(model.device)
        found = answer_laws(module, reference, batch, model.floor)
        lp, kl = found.log_p, found.kl
        value = torch.as_tensor(reward, dtype=torch.float64, device=kl.device)
        advantage = model._advantages(value, kl, found.row).to(lp.dtype)
        total = summed(kl, found.row, n).cpu().numpy()
        lengths = np.array([len(y) for y in answers], float)
        self.seen.append(Judged(chosen, reward, total, lengths))
        old = lp.gather(1, found.wanted[:, None])[:, 0]
        mask: Any = batch.extra
        return Rollout(batch.inputs, batch.y, None, mask, old, advantage, found.log_q)

    def _can_answer(self) -> bool:
        """Whether all weights are finite: others draw no answers."""
        values = self._network().state_dict().values()
        return all(bool(torch.isfinite(value).all()) for value in values)

    def _network(self) -> Any:
        return self.run.step.modules["module"]

    def _windows(self, rng: np.random.Generator) -> Any:
        if self.stream is None:
            return None
        places = drawn_places(rng, self.stream.n, self.stream.length, 1, WINDOWS)
        return self.stream.fetch(torch.from_numpy(places[0]))

    def _evaluate(self, run: TrainingRun) -> dict[str, float]:
        """Means of the stretch; J counts as better only if its interval says so."""
        prompt, reward, kl, length = map(np.concatenate, zip(*self.seen))
        among = len(self.prompts)
        half = WIDE * standard_error(reward, prompt, among)
        J = reward - self.model.beta * kl
        width = WIDE * standard_error(J, prompt, among)
        best = -run.best_value
        better = not math.isfinite(best) or J.mean() - width > best
        value = -float(J.mean())
        return {
            "reward": float(reward.mean()),
            "reward_low": float(reward.mean()) - half,
            "reward_high": float(reward.mean()) + half,
            "kl": float(kl.mean()),
            "objective": float(J.mean()),
            "length": float(length.mean()),
            "criterion": value if better else max(value, run.best_value),
        }

    def _state(self) -> dict[str, Any]:
        return {
            **self.model._state(self.run),
            "history_": {name: list(row) for name, row in self.run.history.items()},
            "n_iter_": self.plan.last_epoch // self.passes,
            "baselines_": {},
        }


def standard_error(values: Array, prompt: Array, among: int) -> float:
    """The standard error of the mean as an estimate of that over all prompts.

    Answers to one prompt are alike, so prompts are what is drawn: G of the ``among``
    in the list, and then answers to each. The means of the G prompts count with the
    share 1 − G/among of prompts that were not seen, the answers with the rest.
    """
    n, group = len(values), np.unique(prompt, return_inverse=True)[1]
    count = np.bincount(group)
    means = np.bincount(group, values) / count
    G, seen = len(count), len(count) / among
    between = 0.0
    if G > 1:
        apart = count / n * (means - values.mean())
        between = G / (G - 1) * float(np.square(apart).sum())
    # One answer to each prompt tells no spread of its own: that of all is larger.
    within = float(np.square(values - means[group]).sum()) / max(1, n - G)
    if n == G:
        within = float(np.var(values, ddof=1)) if n > 1 else 0.0
    return math.sqrt((1 - seen) * between + seen * within / n)


class RewardedPolicy(TunedPolicy):
    """Base of policies that are tuned by a reward; abstract."""

    #: Nothing is held out: each iteration draws answers of its own.
    early_stopping, validation_fraction = True, 0.0
    group: int
    passes: int
    clip_ratio: float
    max_tokens: int
    batch_size: int
    max_iter: int

    def _advantages(
        self, reward: torch.Tensor, kl: torch.Tensor, row: torch.Tensor
    ) -> torch.Tensor:
        """The advantage of each token."""
        raise NotImplementedError

    def frontier(self) -> PolicyFrontier:
        """Reward with its interval against the exact divergence, look after look.

        Returns
        -------
        PolicyFrontier
            With ``plot()`` and ``to_frame()``.
        """
        names = ("kl", "reward", "reward_low", "reward_high")
        columns: Any = {name: np.array(self.history_[name]) for name in names}
        return PolicyFrontier(**columns, beta=float(self.beta))

    def _check_rewarded(self) -> None:
        for name in ("group", "passes", "max_tokens", "max_iter"):
            check_number(name, getattr(self, name), 1, integer=True)
        check_number("clip_ratio", self.clip_ratio, open_low=True)
        self._check_policy()
        if self.batch_size % self.group:
            raise ValueError(
                "batch_size must be a multiple of group, the answers to each prompt, "
                f"got {self.batch_size} and {self.group}."
            )
        if self.batch_size < 2:
            raise ValueError("batch_size must be at least 2, got 1.")

    def _tuned(self, prompts: Any, texts: Any, ptx: float) -> Fitted:
        """The fit of all policies with a reward."""
        self._check_rewarded()
        base = fitted_base(self.base)
        self.max_tokens_ = int(self.max_tokens)
        ids = self._prompts(prompts)
        given = list(prompts)
        stream = None if not ptx else self._stream_of(texts)
        digest = of_weights(base.weights_)
        rng = generator_of(self.random_state)
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        if kept is not None:
            kept.begin(rng)
        monitor = Monitor(self, given, None)
        loss = PolicyLoss(float(self.beta), float(self.clip_ratio), ptx)
        run = begin_tuning(self, self._module, loss, RATE, rng)
        course = PolicyCourse(self, run, ids, given, stream)
        if kept is not None:
            params, module = self.get_params(deep=False), run.step.modules["module"]
            data = (digest, *ids, None if stream is None else stream.ids)
            kept.resume(run, describe(params, module, *data))
        status = course.train(kept, monitor)
        self._finish(run, given)
        complain(self, run)
        monitor.close({})
        witness = BaseWitness(digest)
        return Fitted(Evidence("tuned", witness), given, None, None, status)

    def _stream_of(self, texts: TextsLike) -> TokenStream:
        if texts is None:
            raise ValueError(
                "texts must be given with ptx above 0: the text that the base was "
                "trained on, or one like it."
            )
        ids = joined(self.base.tokenizer_, read_documents(texts))
        stream = np.concatenate([[end_of(self.base.tokenizer_)], ids])
        return TokenStream(stream, self.base.config_["context"], self.device)

    def _finish(self, run: TrainingRun, prompts: list[Any]) -> None:
        for name, value in self._state(run).items():
            setattr(self, name, value)
        self.n_iter_ = int(run.schedules[0].last_epoch) // int(self.passes)
        self.history_ = {name: list(column) for name, column in run.history.items()}
        self._keep_samples(prompts, run.rng)
