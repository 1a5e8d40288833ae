"""Training against an attacker, and against steep networks.

    minimise  Σ sᵢ [max over allowed x̂ of ℓ(yᵢ, f(x̂; θ)) + ½ λ σ(J_f(xᵢ))²] / Σ s

The maximum is sought by projected gradient steps; σ, the largest singular value of the
Jacobian of the scores, by the power method. What was found is then held fixed: by
Danskin's theorem the gradient in θ is that of the maximum, as far as it was found.
Everything is in the units of the user's rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from certus.neural_network.batches import Batch
from certus.neural_network.objective import Objective, weighted_mean
from certus.neural_network.operator_norm import Direction, steepest_direction, stretched
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import evaluating
from certus.threat import ThreatModel
from certus.typing import MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel

#: Norms for which the row that is worst by a gradient is known, box and all.
KNOWN = (1, 2, math.inf)


class InputUnits(NamedTuple):
    """Inputs of the module are (x − mean) / scale, x in the user's units.

    Both have the shape of an input, or one that broadcasts to it.
    """

    mean: Any
    scale: Any

    def raw(self, inputs: Tensor) -> Tensor:
        """Rows in the user's units."""
        mean, scale = self._like(inputs)
        return inputs * scale + mean

    def scaled(self, x: Tensor) -> Tensor:
        """The rows in the units of the module."""
        mean, scale = self._like(x)
        return (x - mean) / scale

    def _like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, scale = (
            torch.as_tensor(v, dtype=x.dtype, device=x.device)
            for v in (self.mean, self.scale)
        )
        return mean, scale


#: The user's units are the module's.
SAME = InputUnits(0.0, 1.0)


class AdversarialBatch(NamedTuple):
    """Results of the attack and the power method for a batch."""

    inputs: tuple[Tensor, ...]
    direction: Direction | None
    #: Passes back through the network that were made for it.
    passes: int


class Hardened:
    """An objective at the worst rows that were found, with a penalty of steepness.

    Parameters
    ----------
    objective : callable
        ``objective(module, batch)`` gives the losses of a batch.
    threat : ThreatModel or None
        What the attacker may do to rows in the user's units.
    steps : int
        Of projected gradient ascent.
    weight : float
        λ of the penalty ½ λ σ(J_f(x))².
    units : InputUnits
        What is done to rows before the module.
    """

    def __init__(
        self,
        objective: Objective,
        threat: ThreatModel | None,
        steps: int,
        weight: float,
        units: InputUnits = SAME,
    ) -> None:
        self.objective, self.threat, self.steps = objective, threat, steps
        self.weight, self.units = weight, units

    def __call__(self, module: nn.Module, batch: Batch) -> Losses:
        """The losses of a batch; ``"gradients"`` counts passes back for each row."""
        found = self.search(module, batch)
        losses = self.losses(module, batch, found)
        count = torch.tensor(found.passes + 1.0, device=losses["loss"].device)
        return {**losses, "gradients": count}

    def held(self, module: nn.Module, batch: Batch) -> Objective:
        """The objective with what is found now held fixed, for the verifier."""
        found = self.search(module, batch)

        def objective(module: nn.Module, batch: Batch) -> Losses:
            inputs = tuple(x.clone() for x in found.inputs)  # it may change them
            return self.losses(module, batch, found._replace(inputs=inputs))

        return objective

    @property
    def words(self) -> str:
        """The parts of the objective besides the plain loss, in words."""
        told = ""
        if self.threat is not None:
            p = {1.0: "1", 2.0: "2", math.inf: "∞"}
            norm = p.get(self.threat.norm, f"{self.threat.norm:g}")
            told = f" at the worst rows found within l{norm} {self.threat.radius:g}"
        return told + " and ½·alpha_operator_norm·σ(J)²" * bool(self.weight)

    def search(self, module: nn.Module, batch: Batch) -> AdversarialBatch:
        """The worst rows, and the direction in which the scores are steepest."""
        x, more = batch.inputs[0], batch.inputs[1:]
        if not x.is_floating_point():
            raise ValueError(
                "adversarial and alpha_operator_norm need rows of numbers, but this "
                "module takes indices into a table. Leave both out."
            )
        passes, direction, inputs = 0, None, batch.inputs
        with evaluating(module), torch.enable_grad():
            raw = self.units.raw(x.detach())
            if self.threat is not None:

                def harm(rows: Tensor) -> Tensor:
                    changed = batch._replace(inputs=(self.units.scaled(rows), *more))
                    return self.objective(module, changed)["loss"] * len(rows)

                worst = worst_rows(harm, raw, self.threat, self.steps)
                inputs = (self.units.scaled(worst), *more)
                passes += self.steps
            if self.weight:
                direction = steepest_direction(self._scores(module, more), raw)
                passes += direction.passes
        return AdversarialBatch(inputs, direction, passes)

    def losses(
        self, module: nn.Module, batch: Batch, found: AdversarialBatch
    ) -> Losses:
        """The losses at what was found."""
        losses = dict(self.objective(module, batch._replace(inputs=found.inputs)))
        if found.direction is None:
            return losses
        raw, more = self.units.raw(batch.inputs[0].detach()), batch.inputs[1:]
        with evaluating(module):
            norms = stretched(self._scores(module, more), raw, found.direction)
        penalty = 0.5 * self.weight * weighted_mean(norms.square(), batch.s)
        mean = weighted_mean(norms.detach(), batch.s)
        return {**losses, "loss": losses["loss"] + penalty, "operator_norm": mean}

    def _scores(
        self, module: nn.Module, more: tuple[Tensor, ...]
    ) -> Callable[[Tensor], Tensor]:
        return lambda rows: module(self.units.scaled(rows), *more)


def worst_rows(
    harm: Callable[[Tensor], Tensor], X: Tensor, threat: ThreatModel, steps: int
) -> Tensor:
    """Allowed rows at which ``harm``, a sum over rows, is large.

    x̂ ← P(x̂ + α · argmax_{‖v‖_p ≤ 1} vᵀ∇harm), from a random point of the ball. The
    first step goes all the way to the row that is worst by the gradient there, which is
    the worst one where ``harm`` is a function of a linear score; the others fall from
    the width of the ball to zero. In l1, where such a step would move a single entry,
    they go a share of the way to the row that is worst by the gradient.

    Parameters
    ----------
    harm : callable
        Of changed rows.
    X : Tensor
        Rows.
    threat : ThreatModel
        What is allowed.
    steps : int
        At least 1; as many gradients are taken.
    """
    radius = threat.radius
    x = threat.project(X + radius * (2 * torch.rand_like(X) - 1), X)
    for step in range(steps):
        x = x.detach().requires_grad_(True)
        (G,) = torch.autograd.grad(harm(x), x)
        x, share = x.detach(), 1 - step / steps
        if threat.norm in KNOWN and (step == 0 or threat.norm == 1):
            x = x + share * (threat.worst(X, G) - x)
        else:
            begin, width = (x, 2 * share) if step else (X, 1.0)
            x = threat.project(begin + width * radius * threat.steepest(G), X)
    return x


def hardened(model: NeuralModel, objective: Objective) -> Objective:
    """An estimator's objective with its ``adversarial`` and ``alpha_operator_norm``."""
    weight = float(getattr(model, "alpha_operator_norm", 0.0))
    threat = getattr(model, "adversarial", None)
    if threat is None and not weight:
        return objective
    threat, units = model._in_inputs(threat)
    return Hardened(objective, threat, model.adversarial_steps, weight, units or SAME)


def require_allowed(model: NeuralModel, X: MatrixLike) -> None:
    """Refuse rows that are not valid themselves, and rows that are not dense."""
    threat = getattr(model, "adversarial", None)
    if threat is None:
        return
    if hasattr(X, "tocsr"):
        raise ValueError(
            "adversarial changes every entry of a row, so X must not be sparse. Pass "
            "X.toarray()."
        )
    threat, _ = model._in_inputs(threat)
    threat.check_rows(X)
