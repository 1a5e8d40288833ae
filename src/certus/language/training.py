"""Training of a language model: batches, schedule, held-out text, and the run.

    minimise over θ:  mean over windows and their places of −log p(xₜ | x_{<t}; θ)

A training run is divided into stretches of steps; after each the held-out text is
scored, and a checkpoint written. The learning rate falls linearly to zero over the
planned steps, or, where only a time is given, over that time.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.callbacks import Monitor
from certus.certificate import Status
from certus.language.precision import in_precision
from certus.language.scoring import log_probs
from certus.language.simple_means import baselines
from certus.language.sizing import ENOUGH, SIZES, NetworkSizes, choose
from certus.language.windows import BEGINNINGS, drawn_places
from certus.neural_network import distributed
from certus.neural_network.batches import Batch
from certus.neural_network.checkpoint import Checkpoints
from certus.neural_network.modules.transformer import Transformer
from certus.neural_network.muon import Muon, muon_groups
from certus.neural_network.objective import GradientStep
from certus.neural_network.optim import make_average, make_optimizer
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import Losses, Rules, TrainingRun
from certus.neural_network.tasks import PASSES, STRETCH, RunClock, make_plan
from certus.neural_network.train import train
from certus.typing import Array, Fit

#: Tokens of the held-out text that are scored then.
WATCHED = 1 << 14
#: Fewest bytes on which a comparison with simple means says something.
WORTH_COMPARING = 16
#: Bytes that are held out at least, of short texts a twentieth.
LEAST = 256.0
#: Most passages that are held out of one text, and the fewest bytes of each.
PASSAGES, PASSAGE = 8, 1024
#: Step sizes of the optimisers.
RATES = {"muon": 0.02, "adam": 2e-3}


def next_token_loss(module: nn.Module, batch: Batch) -> Losses:
    """The mean of −log p(xₜ | x_{<t}) over a batch of windows."""
    z = module(*batch.inputs).output  # (batch, time, n_tokens)
    return {"loss": F.cross_entropy(z.flatten(0, 1), batch.y.flatten())}


class TokenStream:
    """Tokens in one array, from which windows are fetched by their beginnings.

    Parameters
    ----------
    ids : int array
        The end-of-text token, and the tokens of all documents behind it.
    context : int
        Length of a window; shorter where there are fewer tokens.
    device : str
        Where batches are needed.
    """

    def __init__(self, ids: Array, context: int, device: torch.device | str) -> None:
        self.ids = torch.from_numpy(ids.astype(np.int64)).to(device)
        self.n = len(ids) - 1
        self.length = min(context, self.n)
        self.places = torch.arange(self.length + 1, device=device)

    def fetch(self, begins: Tensor) -> Batch:
        """Windows and the tokens behind each of their places."""
        rows = self.ids[begins.to(self.ids.device)[:, None] + self.places]
        seen = rows[:, :-1].clone()
        seen[begins % BEGINNINGS == 0, 0] = self.ids[0]
        return Batch((seen,), rows[:, 1:], None)


def language_step(model: Fit, module: nn.Module, tokens: int) -> GradientStep:
    """The step of a model's optimiser for batches of this many tokens."""
    kind, decay = model.optimizer, float(model.weight_decay)
    if kind == "auto":
        kind = "muon" if tokens >= ENOUGH else "adam"
    rate = model.learning_rate
    if rate is None:
        rate = (
            RATES.get(kind, RATES["adam"]) if isinstance(kind, str) else RATES["adam"]
        )
    optimizer: torch.optim.Optimizer
    if kind == "muon":
        optimizer = Muon(muon_groups(module, rate, decay), lr=rate)
    else:
        optimizer = make_optimizer(kind, module, rate, decay)
    loss = in_precision(next_token_loss, model)
    return GradientStep(module, optimizer, loss, None, model.clip)


def begin_run(
    model: Fit, n_tokens: int, rng: np.random.Generator, network: Transformer | None
) -> tuple[TrainingRun, int]:
    """A run at its beginning, and how many windows a step takes.

    Parameters
    ----------
    model : LanguageModel
        With its parameters and tokeniser.
    n_tokens : int
        Tokens to learn from.
    rng : numpy.random.Generator
        Of the fit.
    network : Transformer or None
        The network that goes on; None for a new one.
    """
    fixed = {} if network is None else network.config
    given = {name: fixed.get(name, getattr(model, name)) for name in SIZES}
    sizes = choose(
        n_tokens,
        seconds=model.max_time,
        steps=model.max_iter,
        threads=torch.get_num_threads(),
        given=given,
    )
    seed = int(rng.integers(2**63 - 1))
    with own_generator():
        torch.default_generator.manual_seed(seed)
        module = _built(model, sizes) if network is None else copy.deepcopy(network)
        module = module.to(model.device)
        distributed.alike(module)
        state = torch.random.get_rng_state()
    step = language_step(model, module, sizes.batch_size * sizes.context)
    average = make_average(module, model.average)
    averages = {} if average is None else {"module": average}
    return TrainingRun(step, rng, state, averages), sizes.batch_size


def _built(model: Fit, sizes: NetworkSizes) -> Transformer:
    return Transformer(
        model.tokenizer_.n_tokens,
        n_layers=sizes.n_layers,
        width=sizes.width,
        heads=sizes.heads,
        context=sizes.context,
        position=model.position,
        activation=model.activation,
        qk_norm=bool(model.qk_norm),
        dropout=float(model.dropout),
    )


class Course:
    """Trains a run in stretches of steps, each followed by a look at held-out text.

    Parameters
    ----------
    model : LanguageModel
        With its parameters and tokeniser.
    run : TrainingRun
        What is trained; gets its schedule here.
    ids, watched : int array
        Streams of tokens to learn from, and to stop by (or None).
    batch_size : int
        Windows in a step.
    """

    #: Whether the weights of the best look are put back at the end.
    keeps_best = True

    def __init__(
        self, model: Fit, run: TrainingRun, ids: Array, batch_size: int, watched: Any
    ) -> None:
        module: Any = run.step.modules["module"]
        self.model, self.run, self.batch_size = model, run, batch_size
        self.stream = TokenStream(ids, module.config["context"], model.device)
        step: Any = run.step
        step.fetch = self.stream.fetch
        a_pass = math.ceil(self.stream.n / (batch_size * self.stream.length))
        steps = model.max_iter
        if steps is None and model.max_time is None:
            steps = max(STRETCH, PASSES * a_pass)
        self.clock = RunClock(steps, model.max_time)
        #: Steps between two looks.
        self.every = min(STRETCH, max(10, a_pass))
        self.plan = make_plan(step.optimizers["module"], self.clock, model.warmup)
        run.schedules = [self.plan]
        self.known: dict[str, float] | None = None
        self.watched = None if watched is None else watched[: WATCHED + 1]
        if self.watched is not None:
            tokens = model.tokenizer_.tokens
            sizes = np.array([len(token) for token in tokens])
            self.watched_bytes = max(1, int(sizes[self.watched[1:]].sum()))

    def train(self, kept: Checkpoints | None, monitor: Monitor) -> Status:
        """Train until the plan, the held-out text, a callback or Ctrl-C ends it."""
        run, model, clock = self.run, self.model, self.clock
        spent = run.history.get("seconds", [0.0])[-1]
        clock.start(spent)
        began = time.perf_counter()

        def on_epoch(run: TrainingRun) -> Status | None:
            now = self.plan.last_epoch
            seconds = spent + time.perf_counter() - began
            run.record({"steps": now, "seconds": seconds})
            ended = monitor.step(run.history["loss"][-1], math.nan, self._state)
            if kept is not None:
                kept.save(run)
            return ended or (Status.SOLVED if clock.share(now) >= 1 else None)

        planned = clock.steps is not None
        over = clock.share(self.plan.last_epoch) >= 1  # a resumed run may be
        rules = Rules(
            max_epochs=run.epoch if over else sys.maxsize,
            patience=math.inf if self.watched is None else model.n_iter_no_change,
            max_time=model.max_time if planned else None,
            keep_best=self.watched is not None and self.keeps_best,
        )
        evaluate = None if self.watched is None else self._evaluate
        status = train(run, self._batches, rules, evaluate, on_epoch)
        return Status.SOLVED if status is Status.MAX_ITER else status

    def _batches(self, rng: np.random.Generator) -> Iterator[Tensor]:
        """Beginnings of the windows of each step of a stretch; at least one step."""
        every, done = self.every, self.plan.last_epoch
        if self.clock.steps is not None:
            every = min(every, self.clock.steps - done)
        n, length = self.stream.n, self.stream.length
        for i, places in enumerate(
            drawn_places(rng, n, length, every, self.batch_size)
        ):
            if i and self.clock.share(done + i) >= 1:
                return
            yield torch.from_numpy(places)

    def _state(self) -> dict[str, Any]:
        """The fitted attributes as of now, for callbacks."""
        network: Any = copy.deepcopy(self.run.final()).eval()
        history = {name: list(column) for name, column in self.run.history.items()}
        return {
            "tokenizer_": self.model.tokenizer_,
            "network_": network,
            "history_": history,
            "n_iter_": self.plan.last_epoch,
            "baselines_": self.baselines(),
        }

    def baselines(self) -> dict[str, float]:
        """What the watched text costs without a network; computed once."""
        if self.known is None:
            decode, self.known = self.model.tokenizer_.decode_bytes, {}
            if self.watched is not None and self.watched_bytes >= WORTH_COMPARING:
                source = self.stream.ids.cpu().numpy()
                self.known = baselines(decode(self.watched), decode(source))
        return self.known

    def _evaluate(self, run: TrainingRun) -> dict[str, float]:
        assert self.watched is not None
        found = log_probs(run.final(), self.watched)
        nats = -math.fsum(found)
        cost = nats / math.log(2) / self.watched_bytes
        return {
            "validation_loss": nats / len(found),
            "validation_bits": cost,
            "criterion": cost if math.isfinite(cost) else math.inf,
        }


def held_out(
    documents: list[bytes], share: float, rng: np.random.Generator
) -> tuple[list[bytes], list[bytes]]:
    """Documents to learn from and to be judged by.

    Whole documents, drawn at random, where there are at least five; else passages of
    the longest one, spread over it: without its end a model would not know the names
    of the last chapter.
    """
    sizes = np.array([len(document) for document in documents])
    total = float(sizes.sum())
    wanted = max(1.0, share * total, min(LEAST, 0.05 * total) if share else 0.0)
    if len(documents) >= 5:
        chosen: set[int] = set()
        for i in rng.permutation(len(documents)).tolist():
            if len(chosen) + 1 < len(documents) and sizes[list(chosen)].sum() < wanted:
                chosen.add(i)
        held = [documents[i] for i in sorted(chosen)]
        rest = [d for i, d in enumerate(documents) if i not in chosen]
        if any(held) and any(rest):
            return rest, held
    longest = int(sizes.argmax())
    parts, held = _passages(documents[longest], wanted)
    return [*documents[:longest], *parts, *documents[longest + 1 :]], held


def _passages(text: bytes, wanted: float) -> tuple[list[bytes], list[bytes]]:
    """What is left of a text, and passages of this many bytes at equal distances."""
    count = int(min(PASSAGES, max(1, wanted // PASSAGE)))
    distance, size = len(text) / count, wanted / count
    parts, held, at = [], [], 0
    for i in range(count):
        begin = _between_characters(text, int((i + 0.5) * distance - size / 2))
        end = _between_characters(text, int((i + 0.5) * distance + size / 2))
        parts.append(text[at:begin])
        held.append(text[begin:end])
        at = end
    return [*parts, text[at:]], held


def _between_characters(text: bytes, cut: int) -> int:
    """A place at most three bytes further on that does not split a UTF-8 character."""
    cut = max(1, cut)
    for at in range(cut, min(cut + 4, len(text))):
        if text[at] >> 6 != 2:
            return at
    return cut
