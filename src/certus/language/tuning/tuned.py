"""What all tuned models share: a base, its tokens, and a run over prompts and answers.

A base is any fitted transformer of text. It stays as it is: tuning works on a copy, and
the certificate compares a fingerprint of the base's weights with that of before.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus import config
from certus.base import UncertifiedWarning, check_choice, check_number
from certus.language.language_model import LanguageModel
from certus.language.training import Course
from certus.language.transformer_text import TransformerText
from certus.language.tuning.answers import AnswerPairs, answer_scores, token_costs
from certus.neural_network import distributed
from certus.neural_network.batches import Batch, epoch_batches
from certus.neural_network.objective import GradientStep
from certus.neural_network.optim import make_average, make_optimizer
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import Losses, TrainingRun
from certus.neural_network.tasks import PASSES, STRETCH, RunClock, make_plan
from certus.neural_network.wrapping import evaluating, require_device
from certus.typing import Fit

#: Fewest pairs of which some are held out.
WORTH_HOLDING = 20
#: Pairs that are scored together.
TOGETHER = 32


class OnBase:
    """Mixin of models with a fitted ``base``, which a clone keeps."""

    base: Any

    def __sklearn_clone__(self) -> Any:
        """A copy without the fit; the fitted base is a datum of it and is kept."""
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        names = params.keys() - {"base"}
        kept = {name: clone(params[name], safe=False) for name in names}
        return type(self)(base=self.base, **kept)  # type: ignore[call-arg]


class TunedModel(OnBase, TransformerText):
    """Base of models that continue the training of another; abstract."""

    def merge(self) -> LanguageModel:
        """The tuned network as a language model that needs no base.

        Returns
        -------
        LanguageModel
            Fitted, with a copy of the network and without a certificate.
        """
        check_is_fitted(self, "network_")
        return as_language_model(copy.deepcopy(self.network_), self.tokenizer_)


def as_language_model(network: Any, tokenizer: Any) -> LanguageModel:
    """A fitted language model from a network and its tokens."""
    config = network.config
    names = (
        "n_layers",
        "width",
        "heads",
        "context",
        "position",
        "activation",
        "qk_norm",
    )
    model = LanguageModel(tokenizer, **{name: config[name] for name in names})
    model.tokenizer_, model.network_ = tokenizer, network.eval()
    model.n_iter_, model.history_, model.best_epoch_ = 0, {}, 0
    model.validation_bits_, model.baselines_ = math.nan, {}
    return model


def fitted_base(base: Fit) -> Any:
    """The base of a fit, or a sentence about what it must be."""
    if not isinstance(base, TransformerText):
        raise TypeError(
            "base must be a fitted LanguageModel or a model tuned from one, got "
            f"{type(base).__name__}."
        )
    try:
        check_is_fitted(base, "network_")
    except NotFittedError:
        raise NotFittedError(
            f"base must be fitted: fit this {type(base).__name__} to texts first."
        ) from None
    return base


def check_tuning(model: Fit) -> None:
    """Check the parameters that all tuned models share."""
    check_number("learning_rate", model.learning_rate, open_low=True, none=True)
    check_number("warmup", model.warmup, 0, 1)
    check_number("weight_decay", model.weight_decay)
    check_number("clip", model.clip, open_low=True, none=True)
    check_number("batch_size", model.batch_size, 1, integer=True)
    check_number("max_iter", model.max_iter, 1, integer=True, none=True)
    check_number("max_time", model.max_time, open_low=True, none=True)
    patience = getattr(model, "n_iter_no_change", math.inf)
    if patience != math.inf:
        check_number("n_iter_no_change", patience, 1, integer=True)
    check_number("validation_fraction", model.validation_fraction, 0, 0.9)
    check_choice(
        "early_stopping", getattr(model, "early_stopping", True), (False, True)
    )
    require_device(model.device)


def begin_tuning(
    model: Fit,
    make: Callable[[], nn.Module],
    objective: Callable[[Any, Any], Losses],
    rate: float,
    rng: np.random.Generator,
) -> TrainingRun:
    """A run at its beginning.

    Parameters
    ----------
    model : TunedModel
        With its parameters.
    make : callable
        Makes the module to train; may draw from torch's generator.
    objective : callable
        ``objective(module, batch)`` gives the losses of a batch.
    rate : float
        Step size where the model has none.
    rng : numpy.random.Generator
        Of the fit.
    """
    seed = int(rng.integers(2**63 - 1))
    with own_generator():
        torch.default_generator.manual_seed(seed)
        module = make().to(model.device)
        distributed.alike(module)
        state = torch.random.get_rng_state()
    rate = rate if model.learning_rate is None else float(model.learning_rate)
    decay = float(model.weight_decay)
    optimizer = make_optimizer(model.optimizer, module, rate, decay)
    step = GradientStep(module, optimizer, objective, None, model.clip)
    average = make_average(module, model.average)
    averages = {} if average is None else {"module": average}
    return TrainingRun(step, rng, state, averages)


class PairRows(NamedTuple):
    """Rows to train on or to stop by: their batches, and the tokens of each."""

    fetch: Callable[[Any], Batch]
    lengths: Tensor


class TuningCourse(Course):
    """Trains a run on rows of pairs, in stretches that end with a look at others.

    Parameters
    ----------
    model : TunedModel
        With its parameters.
    run : TrainingRun
        What is trained; gets its schedule here.
    rows : PairRows
        To train on.
    evaluate : callable or None
        Gives the numbers of held-out rows for a module, among them "criterion"; None
        where nothing is held out.
    state : callable
        Gives the fitted attributes of a run, for callbacks.
    """

    def __init__(
        self,
        model: Fit,
        run: TrainingRun,
        rows: PairRows,
        evaluate: Callable[[nn.Module], dict[str, float]] | None,
        state: Callable[[TrainingRun], dict[str, Any]],
    ) -> None:
        self.model, self.run, self.rows, self.told = model, run, rows, state
        self.batch_size, self.watched = int(model.batch_size), evaluate
        step: Any = run.step
        step.fetch = rows.fetch
        a_pass = math.ceil(len(rows.lengths) / self.batch_size)
        steps = model.max_iter or max(STRETCH, PASSES * a_pass)
        self.clock = RunClock(steps, model.max_time)
        #: Steps between two looks.
        self.every = min(STRETCH, max(10, a_pass))
        self.plan = make_plan(step.optimizers["module"], self.clock, model.warmup)
        run.schedules = [self.plan]

    def _batches(self, rng: np.random.Generator) -> Iterator[Tensor]:
        """Row numbers of each step of a stretch: all rows in turn, shuffled."""
        assert self.clock.steps is not None
        left = min(self.every, self.clock.steps - self.plan.last_epoch)
        n, lengths = len(self.rows.lengths), self.rows.lengths
        while left > 0:
            for part in epoch_batches(rng, n, self.batch_size, lengths=lengths):
                if left > 0:
                    left -= 1
                    yield part

    def _evaluate(self, run: TrainingRun) -> dict[str, float]:
        assert self.watched is not None
        found: dict[str, float] = self.watched(run.final())
        value = found["criterion"]
        return {**found, "criterion": value if math.isfinite(value) else math.inf}

    def _state(self) -> dict[str, Any]:
        return {
            **self.told(self.run),
            "history_": {name: list(row) for name, row in self.run.history.items()},
            "n_iter_": self.plan.last_epoch,
            "baselines_": {},
        }


def complain(model: Fit, run: TrainingRun) -> None:
    """Warn if the loss became infinite: what the fit returns is an earlier state."""
    if run.diverged is None or config.get_config()["on_uncertified"] == "ignore":
        return
    epoch, step, before = run.diverged
    warnings.warn(
        f"{type(model).__name__}: the loss became NaN or infinite in step {step} of "
        f"epoch {epoch} ({before:.3g} before); the weights after epoch {run.kept} were "
        "kept. Fix: lower learning_rate, or set clip=1.0.",
        UncertifiedWarning,
        stacklevel=5,
    )


def share_rows(
    model: Fit, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on and to hold out; none of the latter among few rows."""
    if not model.early_stopping or n < WORTH_HOLDING:
        return np.arange(n), np.arange(0)
    many = max(1, round(float(model.validation_fraction) * n))
    many = many if model.validation_fraction else 0
    order = rng.permutation(n)
    return np.sort(order[many:]), np.sort(order[:many])


# -- answers --------------------------------------------------------------------------


def answer_loss(module: nn.Module, batch: Batch) -> Losses:
    """The mean of −log p over the tokens of the answers of a batch."""
    return {"loss": token_costs(answer_scores(module, batch)).mean()}


def rows_of(pairs: AnswerPairs, chosen: Any, device: torch.device | str) -> PairRows:
    """Some pairs as rows of a course."""
    numbers = torch.as_tensor(np.asarray(chosen))
    return PairRows(
        lambda rows: pairs.fetch(numbers[torch.as_tensor(rows)], device),
        pairs.lengths[numbers],
    )


@torch.no_grad()
def mean_cost(module: nn.Module, rows: PairRows) -> float:
    """Mean −log p of a token of the answers, over all rows."""
    total, count = 0.0, 0
    with evaluating(module):
        for part in rows.lengths.argsort(stable=True).split(TOGETHER):
            costs = token_costs(answer_scores(module, rows.fetch(part)))
            total += float(costs.double().sum())
            count += len(costs)
    return total / max(1, count)
