"""Encoders that make two views of a row alike, and different rows different.

    minimise over θ:  E loss(g(f(x′)), g(f(x″))),   x′, x″ two random views of x

f is the encoder, whose vectors :meth:`ContrastiveEncoder.transform` gives; g is the
projection head, which only the loss uses. It is not enough that views are alike,
because a constant f would be perfect. The four methods differ in how they prevent a
constant f.
"""

from __future__ import annotations

import copy
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_choice, check_number
from certus.neural_network.modules.mlp import MLP
from certus.neural_network.objective import GradientStep
from certus.neural_network.optim import make_optimizer
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import Losses, TrainingRun, TrainingStep
from certus.representation import inputs
from certus.representation.base import RepresentationModel, RowsTask
from certus.representation.joint_losses import METHODS, alignment, of_views
from certus.representation.networks import build_encoder, check_sizes
from certus.representation.options import EncoderTraining
from certus.representation.views import make_views
from certus.typing import Array, Column, MatrixLike, RandomState

#: Rows whose views are made together.
TOGETHER = 1024
#: How much wider than its vectors the hidden layer of the predictor is.
WIDER = 8


@shares(EncoderTraining)
class ContrastiveEncoder(RepresentationModel):
    """Learns vectors that are alike for two random views of a row.

    X holds images, table rows or sequences. The two views of an image are turned, moved
    and enlarged copies; those of a table row have some cells from other rows; those of
    a sequence are two parts of it. "simclr" learns to find the partner of a view among
    all other views of the batch. "byol" predicts the vector that a moving average of
    the networks gives the other view. "barlow" makes the correlation matrix of both
    views the unit matrix, and "vicreg" keeps the variance of each component large.

    Objective
    ---------
    E loss(g(f(x′)), g(f(x″))) over rows x and their views, with the encoder f and the
    head g. For "simclr" the loss is −log of the share of exp(cos/τ) that belongs to the
    partner, among 2B − 1 vectors, where B is the number of rows in a batch; if all
    vectors are equal, it is log(2B − 1).

    Certificate
    -----------
    Computed on held-out rows. ``view_loss`` (MEASURED): the loss compared with its
    value if all vectors were equal. ``vectors_differ`` (PROVED): the mean cosine of the
    vectors of two different rows; near 1 all rows have the same vector, and the claim
    fails. It concerns the vectors that the loss compares. ``vectors_agree`` (PROVED):
    the vectors are those of the stored weights, computed again in float64; REFUSED for
    sequences and networks of your own. ``mutual_information`` (STATISTICAL): a lower
    bound on the information that two views share, in nats. ``effective_rank`` and
    ``component_spread`` (MEASURED) of the vectors of ``transform``. See
    :func:`certus.representation.probe` for how much they help a classifier.

    Parameters
    ----------
    method : {"simclr", "byol", "barlow", "vicreg"}, default="simclr"
        What keeps vectors from becoming equal. For the four methods these are other
        views of the batch; a predictor and a moving average; correlations; variances.
    n_components : int, default=128
        Number of components. A vector of ``transform`` has this many numbers.
    module : "auto", nn.Module or callable, default="auto"
        The network to train, or a function that makes it. "auto" is ``ConvNet``,
        ``MLP`` or ``Recurrent`` of :mod:`certus.neural_network.modules`, for images,
        rows and sequences; ``module(shape, n_components)`` makes one for inputs of a
        shape: (channels, height, width), (columns,) or (numbers or tokens of a step,).
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Number of units in each hidden layer. Networks for images and sequences have
        one, of the last size.
    head_layer_sizes : sequence of int, default=(128, 64)
        Number of units in each layer of the projection head. The last one is the length
        of the vectors that the loss compares.
    temperature : float, default=0.2
        Divisor of the cosines: the smaller it is, the more small differences count.
        This is τ of "simclr".
    predictor : bool, default=True
        Whether "byol" predicts the other vector. Without it, and with target_decay=0,
        all vectors become equal.
    target_decay : float, default=0.996
        Share of the old weights that the target of "byol" keeps in each step. With 0
        the target is the network itself.
    augment : "auto", str, callable or list, default="auto"
        Function that changes a batch of inputs before each training step. It is called
        twice, for two views. For images also names of
        :mod:`certus.neural_network.augment`, or a list.
    kind : {"auto", "images", "rows", "sequences"}, default="auto"
        What X holds. "auto" takes arrays of three or four axes, files and rows with an
        ``image_shape`` for images, lists of texts or of sequences of unequal length for
        sequences, and tables for rows.
    image_shape : (int, int) or (int, int, int), default=None
        For flattened rows: height and width, and the number of channels if there are
        several. Images of another size are resized to it.
    channels : None, "first" or "last", default=None
        Where the channels of an image are. By default they are the axis of length 1, 3
        or 4.
    {shared}

    Attributes
    ----------
    encoder_ : nn.Module
        f, in evaluation mode.
    head_ : certus.neural_network.modules.MLP
        g, in evaluation mode.
    predictor_ : certus.neural_network.modules.MLP
        The predictor of "byol".
    target_encoder_, target_head_ : nn.Module
        The moving averages of the networks of "byol".
    inputs_ : dict
        How X is read: its kind, the shape of an image, means and scales, tokens.
    held_out_ : ndarray of int
        Rows that were held out.
    history_ : dict of lists
        Loss, steps and seconds, recorded at intervals during the training.
    n_iter_ : int
        Number of training steps.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Networks are trained in float32. A step takes two passes through the networks for
    each row and, for "simclr" with B rows and vectors of d numbers, B²·d products. More
    rows in a batch make the task harder and the vectors better, up to a point: digits
    need no more than 256.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.representation import ContrastiveEncoder
    >>> X = load_digits().images[:300]
    >>> model = ContrastiveEncoder(max_iter=20, random_state=0).fit(X)
    >>> model.transform(X).shape, model.project(X).shape
    ((300, 128), (300, 64))
    >>> model.certificate_["vectors_differ"].met
    True
    """

    least_rows = 2

    def __init__(
        self,
        method: str = "simclr",
        *,
        n_components: int = 128,
        module: Any = "auto",
        hidden_layer_sizes: Any = (256, 256),
        head_layer_sizes: Any = (128, 64),
        temperature: float = 0.2,
        predictor: bool = True,
        target_decay: float = 0.996,
        augment: Any = "auto",
        kind: str = "auto",
        image_shape: Any = None,
        channels: str | None = None,
        **shared: Unpack[EncoderTraining],
    ) -> None: ...

    @certified_fit
    def fit(self, X: MatrixLike, y: Column = None) -> Any:
        """Learn vectors of rows.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Images (n, height, width) or with channels, table rows, or sequences.
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        check_choice("method", self.method, METHODS)
        super()._check()
        check_sizes(self)
        check_number("temperature", self.temperature, open_low=True)
        check_number("target_decay", self.target_decay, 0, 1)
        check_choice("predictor", self.predictor, (False, True))
        make_views("images" if self.kind == "auto" else self.kind, self.augment)

    @property
    def part_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the networks that are trained."""
        more = self.method == "byol" and self.predictor
        return ("encoder", "head", "predictor") if more else ("encoder", "head")

    def _parts(self, learnt: inputs.Learnt) -> nn.ModuleDict:
        *hidden, last = (int(size) for size in self.head_layer_sizes)
        # Without it "byol" collapses all the same; "simclr" does as well without.
        norm = None if self.method == "simclr" else "batch"
        width = int(self.n_components)
        parts: dict[str, nn.Module] = {
            "encoder": build_encoder(self, learnt),
            "head": MLP(width, tuple(hidden), last, normalization=norm),
        }
        if "predictor" in self.part_names:
            parts["predictor"] = MLP(last, (WIDER * last,), last, normalization=norm)
        return nn.ModuleDict(parts)

    def _view(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One random view of each row of a batch of inputs."""
        tokens = self.inputs_.get("tokens") is not None
        return make_views(self.inputs_["kind"], self.augment, tokens)(x)

    def _losses(self, parts: nn.ModuleDict, *x: Tensor) -> Losses:
        a, b = (parts["head"](parts["encoder"](*self._view(x))) for _ in range(2))
        return {"loss": of_views(self.method, a, b, self.temperature)}

    def _step(self, parts: Any, task: RowsTask) -> TrainingStep:
        if self.method != "byol":
            return super()._step(parts, task)
        kind, rate, decay = self.optimizer, self.learning_rate, self.weight_decay
        optimizer = make_optimizer(kind, parts, rate, decay)
        if self.warm_start and hasattr(self, "target_encoder_"):
            kept = {"encoder": self.target_encoder_, "head": self.target_head_}
        else:
            kept = {"encoder": parts["encoder"], "head": parts["head"]}
        target = copy.deepcopy(nn.ModuleDict(kept)).float().requires_grad_(False)

        def objective(parts: nn.Module, batch: Any) -> Losses:
            views = [self._view(batch.inputs) for _ in range(2)]
            return {"loss": predicted_targets(parts, target, views)}

        return MovingTargetStep(
            parts,
            optimizer,
            objective,
            task.fetch,
            self.clip,
            target,
            self.target_decay,
        )

    def _closed(self, run: TrainingRun) -> None:
        for name in ("target_encoder_", "target_head_", "predictor_"):
            if name[:-1] not in self.part_names:
                self.__dict__.pop(name, None)
        if self.method == "byol":
            target: Any = self._ready(run.step.modules["target"], self.inputs_)
            self.target_encoder_ = target["encoder"].eval()
            self.target_head_ = target["head"].eval()

    # -- vectors ----------------------------------------------------------------------

    def project(self, X: MatrixLike) -> Array:
        """The vectors that the loss compares: those of the projection head.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, head_layer_sizes[-1])
            Vectors of any length; the losses of "simclr" and "byol" use only their
            directions.
        """
        check_is_fitted(self, "encoder_")
        return self._vectors(X, self.encoder_, self.head_)

    def views(self, X: MatrixLike, random_state: RandomState = None) -> tuple[Any, Any]:
        """Two random views of each row, as training makes them.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Rows like those of the fit.
        random_state : int, RandomState or None
            Seed or generator of all random numbers.

        Returns
        -------
        A, B : arrays or lists
            Rows like those of X, in its units: row i of both comes from row i of X.
        """
        check_is_fitted(self, "encoder_")
        rng = np.random.default_rng(random_state)
        rows = self._inputs(inputs.read(self, self.inputs_, X))
        found = []
        with own_generator(), torch.no_grad():
            torch.default_generator.manual_seed(int(rng.integers(2**62)))
            for _ in range(2):
                parts = [
                    inputs.written(self.inputs_, self._view(rows[block]))
                    for block in _blocks(len(rows))
                ]
                found.append(_joined(parts))
        return found[0], found[1]


def _blocks(n: int) -> list[Any]:
    return [torch.arange(i, min(i + TOGETHER, n)) for i in range(0, n, TOGETHER)]


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    return np.concatenate(parts)


def predicted_targets(parts: Any, target: Any, views: list[Any]) -> Tensor:
    """BYOL: each view predicts the target's vector of the other, both ways."""
    online = [parts["head"](parts["encoder"](*x)) for x in views]
    if "predictor" in parts:
        online = [parts["predictor"](z) for z in online]
    with torch.no_grad():
        fixed = [target["head"](target["encoder"](*x)) for x in views]
    return 0.5 * (alignment(online[0], fixed[1]) + alignment(online[1], fixed[0]))


class MovingTargetStep(GradientStep):
    """A gradient step, after which a target follows: θ′ ← m θ′ + (1 − m) θ.

    Parameters
    ----------
    module, optimizer, objective, fetch, clip
        As for :class:`certus.neural_network.objective.GradientStep`.
    target : nn.ModuleDict
        Networks of the same names as some of the module's; they are not trained.
    momentum : float
        m.
    """

    def __init__(
        self,
        module: Any,
        optimizer: torch.optim.Optimizer,
        objective: Any,
        fetch: Any,
        clip: float | None,
        target: nn.ModuleDict,
        momentum: float,
    ) -> None:
        super().__init__(module, optimizer, objective, fetch, clip)
        self.modules["target"] = target
        self.momentum = float(momentum)

    def __call__(self, rows: Array) -> Losses:
        """Move on the rows of these numbers."""
        # A run leaves batch norms without trained weights as they are; the target's
        # must follow the batches, or it would compare with its first state.
        self.modules["target"].train()
        losses = super().__call__(rows)
        self.follow()
        return losses

    @torch.no_grad()
    def follow(self) -> None:
        """Move the target towards the networks."""
        target: Any = self.modules["target"]
        module: Any = self.modules["module"]
        for name, part in target.items():
            means, now = list(part.parameters()), list(module[name].parameters())
            torch._foreach_lerp_(means, now, 1 - self.momentum)
