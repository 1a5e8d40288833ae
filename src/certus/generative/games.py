"""What two players want: losses of a critic and of a generator, and their steps.

With scores S of real rows (distribution q) and drawn rows (distribution p), D =
sigmoid(S):

    minimax          max E log D + E log(1 − D),       min E log(1 − D)
    nonsaturating    the same critic,                  min −E log D
    js               max E log D + E log(1 − D) + log 4 = 2·JS at best
    kl               max E S − E e^S + 1 = KL(q ‖ p) at best
    least_squares    min ½E(S − 1)² + ½E S²,           min ½E(S − 1)²
    wasserstein      max E S − E S, slopes at most 1;  min −E S
    mmd              no critic: min E k(x, x') + E k(y, y') − 2E k(x, y)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from certus.base import check_number
from certus.neural_network.run import Losses
from certus.typing import Array

#: Exponents beyond which e^S is not followed.
MOST = 15.0
#: Widths of the kernels of MMD, as shares of the median distance: narrow ones see
#: whether modes are sharp, wide ones whether any is missing.
WIDTHS = (0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


class AdversarialGame(NamedTuple):
    """What critic and generator minimise, from scores of real and of drawn rows.

    Attributes
    ----------
    critic : callable
        Loss from both scores; minus it is what the game is worth.
    generator : callable
        Loss from the scores of drawn rows.
    worth : float
        Constant by which the critic's value is a divergence.
    """

    critic: Callable[[Tensor, Tensor], Tensor]
    generator: Callable[[Tensor], Tensor]
    worth: float = 0.0


def _cross_entropy(real: Tensor, made: Tensor) -> Tensor:
    return F.softplus(-real).mean() + F.softplus(made).mean()


def _exp(s: Tensor) -> Tensor:
    """e^s, continued by its tangent where it would overflow."""
    return s.clamp(max=MOST).exp() * (1 + (s - MOST).clamp(min=0))


def _squares(real: Tensor, made: Tensor) -> Tensor:
    return 0.5 * ((real - 1).square().mean() + made.square().mean())


GAMES: dict[str, AdversarialGame] = {
    "minimax": AdversarialGame(_cross_entropy, lambda made: -F.softplus(made).mean()),
    "nonsaturating": AdversarialGame(
        _cross_entropy, lambda made: F.softplus(-made).mean()
    ),
    "js": AdversarialGame(
        _cross_entropy, lambda made: -F.softplus(made).mean(), worth=math.log(4)
    ),
    "kl": AdversarialGame(
        lambda real, made: _exp(made).mean() - real.mean(),
        lambda made: -_exp(made).mean(),
        worth=1.0,
    ),
    "least_squares": AdversarialGame(
        _squares, lambda made: 0.5 * (made - 1).square().mean()
    ),
    "wasserstein": AdversarialGame(
        lambda real, made: made.mean() - real.mean(), lambda made: -made.mean()
    ),
}
#: Names of all losses; "mmd" has no critic.
LOSSES = (*GAMES, "mmd")


def kernel_distance(x: Tensor, y: Tensor, widths: Tensor) -> Tensor:
    """The unbiased MMD² of two batches, over Gaussian kernels of several widths.

    Parameters
    ----------
    x, y : Tensor of shape (n, d)
        Rows.
    widths : Tensor of shape (m,)
        Widths of the kernels, which are added up.
    """

    def mean(a: Tensor, b: Tensor, same: bool) -> Tensor:
        squares = (a[:, None] - b[None]).square().sum(dim=-1)
        k = sum(torch.exp(-squares / (2 * h * h)) for h in widths)
        if not same:
            return k.mean()  # type: ignore[union-attr]
        n = len(a)
        return (k.sum() - len(widths) * n) / max(1, n * (n - 1))  # type: ignore

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


def kernel_widths(x: Tensor) -> Tensor:
    """Widths around the median distance of rows."""
    some = x[:256]
    far = torch.pdist(some)
    middle = far.median() if len(far) and float(far.median()) > 0 else torch.ones(())
    return middle * torch.tensor(WIDTHS, dtype=x.dtype, device=x.device)


def row_distance(module: Any, x: Tensor, c: Tensor | None) -> Tensor:
    """MMD² of rows and as many drawn rows; with classes, of rows and their classes."""
    made = module.draw(len(x), c)
    if c is not None:
        told = 3.0 * F.one_hot(c, module.config["n_classes"]).to(x.dtype)
        x, made = torch.cat([x, told], dim=1), torch.cat([made, told], dim=1)
    return kernel_distance(x, made, kernel_widths(x))


class TwoPlayerStep:
    """The critic moves, then the generator; a :class:`TrainingStep`.

    Parameters
    ----------
    module : Adversarial
        Both players.
    optimizers : dict
        Of "generator" and "critic".
    loss : str
        A name of ``LOSSES``.
    critic_steps : int
        Moves of the critic before each of the generator.
    clip : float or None
        Largest norm of a gradient.
    penalty : float
        Weight of the critic's squared slopes at real rows.
    """

    def __init__(
        self,
        module: Any,
        optimizers: dict[str, torch.optim.Optimizer],
        loss: str,
        critic_steps: int = 1,
        clip: float | None = None,
        penalty: float = 0.0,
    ) -> None:
        self.penalty = penalty
        self.modules = {"module": module}
        self.optimizers = optimizers
        self.loss, self.critic_steps, self.clip = loss, critic_steps, clip

    def __call__(self, batch: Any) -> Losses:
        """Move both on the rows of a batch."""
        module: Any = self.modules["module"]
        x, c = batch.inputs
        if self.loss == "mmd":
            value = row_distance(module, x, c)
            self._move("generator", module.generator, value)
            return {"loss": value.detach()}
        game, worth = GAMES[self.loss], torch.zeros(())
        for _ in range(self.critic_steps):
            with torch.no_grad():
                made = module.draw(len(x), c)
            value, slopes = self._worth(module, game, x, made, c)
            self._move("critic", module.critic, value + slopes)
            if hasattr(module.critic, "project"):
                module.critic.project()
            worth = game.worth - value.detach()
        loss = game.generator(module.score(module.draw(len(x), c), c))
        self._move("generator", module.generator, loss)
        return {"loss": loss.detach(), "critic_value": worth}

    def _worth(
        self, module: Any, game: AdversarialGame, x: Tensor, made: Tensor, c: Any
    ) -> tuple[Tensor, Any]:
        """The critic's loss, and ½γ·E‖∂S/∂x‖² at real rows (Mescheder et al. 2018).

        A critic without slopes at real rows has nothing to teach there, so that a
        generator that has arrived stays.
        """
        if not self.penalty:
            return game.critic(module.score(x, c), module.score(made, c)), 0.0
        x = x.detach().requires_grad_()
        real = module.score(x, c)
        (g,) = torch.autograd.grad(real.sum(), x, create_graph=True)
        slopes = 0.5 * self.penalty * g.square().sum(dim=1).mean()
        return game.critic(real, module.score(made, c)), slopes

    def _move(self, name: str, player: torch.nn.Module, loss: Tensor) -> None:
        optimizer = self.optimizers[name]
        parameters = list(player.parameters())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for p, g in zip(parameters, gradients):
            p.grad = g
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
        optimizer.step()
        for p in parameters:
            p.grad = None


def descent_ascent(
    gradient: Callable[[Array, Array], tuple[Array, Array]],
    x: Any,
    y: Any,
    *,
    learning_rate: float = 0.1,
    max_iter: int = 100,
    alternating: bool = True,
) -> tuple[Array, Array]:
    """Play min over x, max over y by gradient steps.

    Parameters
    ----------
    gradient : callable
        ``gradient(x, y)`` gives the gradients in x and in y.
    x, y : array-like
        Where both start.
    learning_rate : float, default=0.1
        Step size.
    max_iter : int, default=100
        Number of steps of each player.
    alternating : bool, default=True
        Whether y answers the new x. If both move at once, the players of f = xy go
        round and away from the saddle: each step multiplies the distance by √(1 + η²).

    Returns
    -------
    x, y : ndarray of shape (max_iter + 1, ...)
        Where they were.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import descent_ascent
    >>> xs, ys = descent_ascent(lambda x, y: (y, x), 1.0, 0.0, alternating=False)
    >>> round(float(np.hypot(xs[-1], ys[-1])), 3), round(1.01**50, 3)
    (1.645, 1.645)
    """
    check_number("learning_rate", learning_rate, open_low=True)
    check_number("max_iter", max_iter, 0, integer=True)
    here, there = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    xs, ys = [here], [there]
    for _ in range(int(max_iter)):
        moved = here - learning_rate * np.asarray(gradient(here, there)[0])
        answer = gradient(moved if alternating else here, there)[1]
        here, there = moved, there + learning_rate * np.asarray(answer)
        xs.append(here)
        ys.append(there)
    return np.array(xs), np.array(ys)
