"""Reward models: which of two answers is preferred, as a number for each answer.

    minimise:  mean −log σ(r(x, y⁺) − r(x, y⁻)) over chosen and rejected answers

With a frozen network this is a logistic regression on differences of features, without
an intercept: convex, and certified by its duality gap. A reward is known up to a number
for each prompt, since only differences enter.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import nn

from certus import fingerprints
from certus._core.sharing import shares
from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import BaseWitness
from certus.language.tokens.tokenizers import ByteTokenizer
from certus.language.tuning import rewards
from certus.language.tuning.answers import (
    AnswerPairs,
    encode_pairs,
    read_texts,
    require_different,
)
from certus.language.tuning.tuned import (
    OnBase,
    TuningCourse,
    begin_tuning,
    check_tuning,
    complain,
    fitted_base,
)
from certus.language.tuning.tuning_options import (
    RewardOptions,
    RowOptions,
    TuningOptions,
)
from certus.neural_network import distributed
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.modules.transformer import Transformer
from certus.neural_network.run import TrainingRun
from certus.typing import Array, Fit, Texts

__all__ = ["RewardModel"]

#: Step size of a whole network times its width, and the largest one.
RATE = 0.15, 5e-3


@shares(RowOptions, TuningOptions)
class RewardModel(OnBase, Model):
    """A number for each answer, such that preferred answers have larger ones.

    Objective
    ---------
    mean −log σ(r(x, y⁺) − r(x, y⁻)) + ½·alpha·‖w‖² with r(x, y) = wᵀφ(x, y) and φ a
    state of the base's network, which stays as it is. With ``train="all"`` the network
    is trained together with w, and nothing is penalised.

    Certificate
    -----------
    ``duality_gap`` (PROVED): no other head has a lower objective by more than this, as
    a share of log 2. ``base_untouched`` (PROVED) and ``reward_agreement`` (PROVED): the
    base is as before, and rewards are those of the weights. ``pairwise_loss``
    (MEASURED). On pairs that the fit has not seen: ``pair_accuracy`` (STATISTICAL), how
    often the chosen answer has the larger reward; ``longer_chosen``,
    ``longer_preferred`` and ``length_correlation`` (STATISTICAL), how often length
    alone would be right, and how much the reward follows it. With ``train="all"`` there
    is no gap.

    Parameters
    ----------
    base : fitted LanguageModel or tuned model
        Model to start from. It stays as it is.
    train : {"head", "all"}, default="head"
        What is trained: a head on the base's states, or a copy of the network too. A
        head is found by a solver, without steps: only "all" uses the parameters of a
        run, such as ``optimizer``, ``max_time`` and ``checkpoint``.
    pooling : {"mean", "last"}, default="mean"
        Which states the prediction is made from. The mean over the answer, which is
        richer where the network is frozen, or that of its last token.
    alpha : float, default=0.001
        Strength of the penalty. For "head".
    tol : float, default=1e-6
        Target of the certificate's primary claim. For "head".
    learning_rate : float, default=None
        Step size. By default 0.15 divided by the width of the base, at most 0.005. It
        rises at first and then falls linearly to zero at the end of the run.
    validation_fraction : float, default=0.2
        Share of the rows that is held out. Whole prompts are, and only to judge the
        model: nothing is chosen by them. Of fewer than 20 prompts none is held out.
    {shared}

    Attributes
    ----------
    coef_ : float64 ndarray of shape (width,)
        w.
    network_ : certus.neural_network.modules.Transformer
        The network of φ: the base's own, or the trained one.
    tuned_ : certus.neural_network.modules.Transformer or None
        The trained network; None for "head".
    tokenizer_, config_, weights_
        The tokeniser of the base; what the network was built with, and its weights.
    held_out_ : int ndarray
        Rows that the fit did not see.
    history_ : dict of lists
        For "all", after each epoch: loss, steps, seconds.
    n_iter_ : int
        Steps made, or iterations of the solver.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A fitted model is a function of a prompt and an answer. A prompt that does not fit
    into the context with its answer loses its beginning.

    Examples
    --------
    >>> from certus.language import LanguageModel, RewardModel
    >>> base = LanguageModel(n_layers=1, width=32, heads=2, context=32, max_iter=40,
    ...                      random_state=0).fit("yes, please. no, thanks. " * 50)
    >>> prompts = [f"{n} more? " for n in range(40)]
    >>> model = RewardModel(base, random_state=0).fit(
    ...     prompts, ["yes, please."] * 40, ["no, thanks."] * 40)
    >>> model.certificate_.met
    True
    >>> model("7 more? ", "yes, please.") > model("7 more? ", "no, thanks.")
    True
    """

    def __init__(
        self,
        base: Fit,
        *,
        train: str = "head",
        pooling: str = "mean",
        alpha: float = 0.001,
        tol: float = 1e-6,
        learning_rate: float | None = None,
        validation_fraction: float = 0.2,
        **shared: Unpack[RewardOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, prompts: Any, chosen: Texts, rejected: Texts) -> Any:
        """Learn which answers are preferred.

        Parameters
        ----------
        prompts : list of str or bytes
            What was asked.
        chosen, rejected : list of str or bytes
            The better and the worse answer to each prompt. A pair of equal answers is
            refused.
        """
        self._check()
        base = fitted_base(self.base)
        digest = fingerprints.of_weights(base.weights_)
        pairs = self._pairs(prompts, chosen, rejected)
        rng = generator_of(self.random_state)
        distributed.join(rng)
        texts = read_texts(prompts, "prompts")
        status, y = Status.SOLVED, list(zip(chosen, rejected))
        if self.train == "all":
            status = self._train_all(pairs, texts, rng, digest, (prompts, y))
        else:
            share = float(self.validation_fraction)
            rows, self.held_out_ = rewards.hold_out(texts, share, rng)
            F = rewards.all_states(base.network_, pairs, self.pooling)
            D = (F[: len(texts)] - F[len(texts) :])[rows]
            found = rewards.fitted_head(D, float(self.alpha), float(self.tol))
            self.coef_, self.n_iter_ = found
            self.tuned_, self.history_ = None, dict[str, list[float]]()
        evidence = Evidence("tuned", witness=BaseWitness(digest))
        return Fitted(evidence, list(prompts), y, None, status)

    def _pairs(self, prompts: Texts, chosen: Texts, rejected: Texts) -> AnswerPairs:
        """The chosen answers, and behind them the rejected ones."""
        tokenizer, context = self.base.tokenizer_, self.base.config_["context"]
        for answers, name in ((chosen, "chosen"), (rejected, "rejected")):
            names = ("prompts", name)
            encode_pairs(tokenizer, prompts, answers, context, names=names)
        require_different(chosen, rejected)
        twice, both = [*prompts, *prompts], [*chosen, *rejected]
        return encode_pairs(tokenizer, twice, both, context)

    def _train_all(
        self,
        pairs: AnswerPairs,
        texts: list[bytes],
        rng: np.random.Generator,
        digest: Array,
        given: tuple[Any, Any],
    ) -> Status:
        """Train the network and its head; returns how that ended."""
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        if kept is not None:
            kept.begin(rng)
        monitor = Monitor(self, *given)
        share = float(self.validation_fraction)
        chosen, self.held_out_ = rewards.hold_out(texts, share, rng)
        width = self.base.config_["width"]

        def module() -> nn.Module:
            network = copy.deepcopy(self.base.network_).requires_grad_(True)
            return rewards.RewardNetwork(network, width, self.pooling)

        rate = min(RATE[1], RATE[0] / width)
        run = begin_tuning(self, module, rewards.pairwise_loss, rate, rng)
        rows = rewards.rows_of_choices(pairs, chosen, self.device)
        course = TuningCourse(self, run, rows, None, self._state)
        if kept is not None:
            params, trained = self.get_params(deep=False), run.step.modules["module"]
            kept.resume(run, describe(params, trained, digest, *pairs.streams))
        status = course.train(kept, monitor)
        for name, value in self._state(run).items():
            setattr(self, name, value)
        self.n_iter_ = int(run.schedules[0].last_epoch)
        self.history_ = {name: list(column) for name, column in run.history.items()}
        complain(self, run)
        monitor.close({})
        return status

    def _state(self, run: TrainingRun) -> dict[str, Any]:
        """The network and the head of a run as of now."""
        module: Any = copy.deepcopy(run.final())
        head = module.head.detach().double().cpu().numpy()
        return {"tuned_": module.network.eval(), "coef_": head}

    # -- rewards ------------------------------------------------------------------

    def predict(self, prompts: Texts, answers: Texts) -> Array:
        """The rewards of answers.

        Parameters
        ----------
        prompts : list of str or bytes
            What was asked.
        answers : list of str or bytes
            An answer to each; may be empty.

        Returns
        -------
        float64 array of shape (n,)
            Comparable between answers to one prompt, not between prompts.
        """
        check_is_fitted(self, "coef_")
        context = self.config_["context"]
        pairs = encode_pairs(self.tokenizer_, prompts, answers, context, empty=True)
        return rewards.all_states(self.network_, pairs, self.pooling) @ self.coef_

    def __call__(self, prompt: str | bytes, answer: str | bytes) -> float:
        """The reward of one answer."""
        return float(self.predict([prompt], [answer])[0])

    @property
    def network_(self) -> Transformer:
        """The network of φ."""
        check_is_fitted(self, "coef_")
        network: Transformer = (
            self.base.network_ if self.tuned_ is None else self.tuned_
        )
        return network

    @property
    def tokenizer_(self) -> ByteTokenizer:
        """The tokeniser of the base."""
        found: ByteTokenizer = self.base.tokenizer_
        return found

    @property
    def config_(self) -> dict[str, Any]:
        """What the network was built with."""
        return dict(self.network_.config)

    @property
    def weights_(self) -> Mapping[str, Array]:
        """The network's weights by name, float32."""
        state = self.network_.state_dict().items()
        return {name: value.detach().cpu().numpy() for name, value in state}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        return tags

    def _check(self) -> None:
        check_choice("train", self.train, ("head", "all"))
        check_choice("pooling", self.pooling, rewards.POOLING)
        check_number("alpha", self.alpha, open_low=True)
        check_number("tol", self.tol, open_low=True)
        check_tuning(self)
