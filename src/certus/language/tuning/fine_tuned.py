"""Supervised fine-tuning: a language model learns to answer as demonstrations do.

    minimise over θ:  mean over the tokens of the answers of −log p(yₜ | x, y_{<t}; θ)

from the weights of a base, either of all weights or of adapters of low rank (LoRA).
"""

from __future__ import annotations

import copy
import math
from typing import Any, Unpack

import numpy as np
from torch import nn

from certus import fingerprints
from certus._core.sharing import shares
from certus.base import Fitted, certified_fit, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.evidence import BaseWitness
from certus.language.tuning import adapters
from certus.language.tuning.answers import AnswerPairs, encode_pairs
from certus.language.tuning.tuned import (
    PairRows,
    TunedModel,
    TuningCourse,
    answer_loss,
    begin_tuning,
    check_tuning,
    complain,
    fitted_base,
    mean_cost,
    rows_of,
    share_rows,
)
from certus.language.tuning.tuning_options import (
    DemonstrationOptions,
    RowOptions,
    StoppingOptions,
    TuningOptions,
)
from certus.neural_network import distributed
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.run import TrainingRun
from certus.typing import Fit, Texts

__all__ = ["FineTuned"]

#: Step sizes for all weights and for adapters, times the width; and the largest ones.
RATE, ADAPTER_RATE = (0.15, 5e-3), (0.6, 2e-2)


@shares(RowOptions, StoppingOptions, TuningOptions)
class FineTuned(TunedModel):
    """A language model that goes on learning, from prompts and their answers.

    The loss counts the tokens of the answers and the end of each, not those of the
    prompts. The result is a language model as its base is: it can be the base of
    another one.

    Objective
    ---------
    mean −log p(yₜ | x, y_{<t}; θ) over the tokens of all answers y, from the weights of
    the base. With ``rank=r`` each matrix W of attention and feed-forward becomes
    W + s·B·A, where B and A have r columns and rows and nothing else is trained.

    Certificate
    -----------
    ``base_untouched`` (PROVED): the base has the weights that it had before; with
    ``rank`` so has the tuned network, outside of the adapted matrices. With ``rank``
    also ``adapter_merged`` (PROVED): each entry of each adapted matrix is W + s·B·A up
    to its rounding to float32; and ``adapter_rank`` (PROVED). ``agreement`` (PROVED):
    the model's probabilities are those of its weights. ``answer_loss`` and
    ``kl_from_base`` (MEASURED): the loss on the demonstrations, beside the base's, and
    how far the tuned model is from the base there.

    Parameters
    ----------
    base : fitted LanguageModel or tuned model
        Model to start from. It stays as it is.
    rank : int, default=None
        Rank of the adapters; None trains all weights.
    adapter_scale : float, default=1.0
        Factor s of the adapters' change s·B·A.
    learning_rate : float, default=None
        Step size. By default 0.15 divided by the width of the base, at most 0.005; for
        adapters 0.6 divided by it, at most 0.02. It rises at first and then falls
        linearly to zero at the end of the run.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Transformer
        The tuned network with its adapters merged, in evaluation mode.
    tokenizer_ : ByteTokenizer or BPETokenizer
        That of the base.
    config_ : dict
        What the network was built with.
    weights_ : dict of float32 ndarray
        Its weights by name.
    adapters_ : dict of str to (ndarray, ndarray)
        B and A of each adapted matrix, by the name of its weights. Empty without
        ``rank``.
    n_trained_ : int
        Numbers that were trained.
    history_ : dict of lists
        After each epoch: loss (nats for each token of the answers), validation_loss,
        steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept, from 1.
    validation_loss_ : float
        Loss of the held-out answers; NaN where there are none.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A prompt that does not fit into the context with its answer loses its beginning; an
    answer that does not fit is refused. Cloning keeps the fitted base.

    Examples
    --------
    >>> from certus.language import FineTuned, LanguageModel
    >>> base = LanguageModel(n_layers=1, width=32, heads=2, context=32, max_iter=60,
    ...                      random_state=0).fit("one two three four five six. " * 40)
    >>> prompts = ["after one: ", "after two: ", "after three: "] * 10
    >>> answers = ["two", "three", "four"] * 10
    >>> model = FineTuned(base, max_iter=120, random_state=0).fit(prompts, answers)
    >>> model.generate("after two: ", 10, temperature=0).text
    'three'
    >>> model.certificate_.met
    True
    """

    def __init__(
        self,
        base: Fit,
        *,
        rank: int | None = None,
        adapter_scale: float = 1.0,
        learning_rate: float | None = None,
        **shared: Unpack[DemonstrationOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, prompts: Any, answers: Texts, *, validation: Any = None) -> Any:
        """Learn to answer.

        Parameters
        ----------
        prompts : list of str or bytes
            What is asked; may be empty texts.
        answers : list of str or bytes
            The answer to each, at least one byte long. The model is to continue the
            prompt with it and then end: put a separator such as a line break into the
            prompt where you want one.
        validation : (prompts, answers), optional
            Pairs of your own to stop by; nothing is held out then.
        """
        check_number("rank", self.rank, 1, integer=True, none=True)
        check_number("adapter_scale", self.adapter_scale, open_low=True)
        check_tuning(self)
        base = fitted_base(self.base)
        digest = fingerprints.of_weights(base.weights_)
        pairs = self._pairs(prompts, answers)
        rng = generator_of(self.random_state)
        distributed.join(rng)
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        if kept is not None:
            kept.begin(rng)
        monitor = Monitor(self, prompts, answers)
        rows, held = self._held(pairs, validation, rng)
        product, most = RATE if self.rank is None else ADAPTER_RATE
        rate = min(most, product / base.config_["width"])
        run = begin_tuning(self, self._module, answer_loss, rate, rng)
        course = TuningCourse(self, run, rows, held and _judge(held), self._state)
        if kept is not None:
            params, module = self.get_params(deep=False), run.step.modules["module"]
            data = (digest, *pairs.streams, validation)
            kept.resume(run, describe(params, module, *data))
        status = course.train(kept, monitor)
        self._finish(run, held)
        complain(self, run)
        monitor.close({})
        return Fitted(
            Evidence("tuned", witness=BaseWitness(digest)),
            *(list(prompts), list(answers), None, status),
        )

    def _pairs(self, prompts: Texts, answers: Texts) -> AnswerPairs:
        context = self.base.config_["context"]
        return encode_pairs(self.base.tokenizer_, prompts, answers, context)

    def _held(
        self, pairs: AnswerPairs, validation: Any, rng: np.random.Generator
    ) -> tuple[PairRows, PairRows | None]:
        """Rows to learn from, and those to stop by."""
        if validation is not None:
            other = self._pairs(*validation)
            every = rows_of(pairs, np.arange(len(pairs)), self.device)
            return every, rows_of(other, np.arange(len(other)), self.device)
        chosen, left = share_rows(self, len(pairs), rng)
        held = rows_of(pairs, left, self.device) if len(left) else None
        return rows_of(pairs, chosen, self.device), held

    def _module(self) -> nn.Module:
        network = self.base.network_
        if self.rank is not None:
            return adapters.with_adapters(network, self.rank, float(self.adapter_scale))
        return copy.deepcopy(network).requires_grad_(True)

    def _state(self, run: TrainingRun) -> dict[str, Any]:
        """The network and the adapters of a run as of now."""
        module: Any = run.final()
        found: dict[str, Any] = {}
        if self.rank is None:
            network = copy.deepcopy(module)
        else:
            found = adapters.adapters_of(module)
            scale = float(self.adapter_scale)
            network = adapters.merged(self.base.network_, found, scale)
        return {
            "tokenizer_": self.base.tokenizer_,
            "network_": network.to(self.device).eval(),
            "adapters_": found,
        }

    def _finish(self, run: TrainingRun, held: PairRows | None) -> None:
        run.step.fetch = run.best = None  # type: ignore[attr-defined]
        for name, value in self._state(run).items():
            setattr(self, name, value)
        trained = (p for p in run.parameters() if p.requires_grad)
        self.n_trained_ = sum(p.numel() for p in trained)
        self.n_iter_ = int(run.schedules[0].last_epoch)
        self.history_ = {name: list(column) for name, column in run.history.items()}
        self.best_epoch_ = run.best_epoch
        self.validation_loss_ = math.nan
        if held is not None:
            self.validation_loss_ = mean_cost(self.network_, held)


def _judge(held: PairRows) -> Any:
    """What a module pays for held-out answers."""

    def evaluate(module: nn.Module) -> dict[str, float]:
        cost = mean_cost(module, held)
        return {"validation_loss": cost, "criterion": cost}

    return evaluate
