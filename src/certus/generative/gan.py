"""Generative adversarial networks: rows that a critic cannot tell from real ones.

    min over T, max over S of a game between x = T(z), z ~ N(0, I), and a critic S

The distribution of T(z) has no density that could be computed, so there is no
``score_samples``. What can be said comes from critics: the value that a critic reaches
on rows that neither player has seen is a lower bound of the divergence between both
distributions.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.generative.base import ImplicitModel
from certus.generative.games import LOSSES, TwoPlayerStep, row_distance
from certus.generative.options import GenerativeOptions
from certus.generative.rows import RowTask
from certus.neural_network.modules.adversarial import Adversarial
from certus.neural_network.modules.arguments import require_counts
from certus.neural_network.optim import make_optimizer
from certus.neural_network.run import Losses
from certus.typing import Array, MatrixLike

__all__ = ["GenerativeAdversarial"]

#: Rows of a batch in which held-out rows are compared with made ones.
COMPARED = 512


@shares(
    GenerativeOptions,
    learning_rate=2e-3,
    clip=None,
    average=0.999,
    max_iter=4000,
    n_iter_no_change=1000,
)
class GenerativeAdversarial(ImplicitModel):
    """A generator of rows, trained against a critic.

    Objective
    ---------
    min over T, max over S of the game named by ``loss``. The weights of the epoch whose
    rows are nearest to the held-out rows are kept (MMD², Gaussian kernels).

    Certificate
    -----------
    ``divergence`` (STATISTICAL on new rows, MEASURED on those of the fit): the value
    that the critic reaches is a lower bound of the divergence between rows and made
    rows; of their distance W₁, divided by the critic's Lipschitz constant (PROVED), for
    "wasserstein". ``players_agree`` (PROVED): drawn rows and scores are those of the
    weights. ``spread`` (MEASURED): the spread of drawn rows by that of real ones; names
    a generator that has collapsed. ``modes`` (STATISTICAL): how often groups of real
    rows are made. ``fresh_critic`` (STATISTICAL on new rows): the divergence that a
    critic of the verifier's own sees. How good the rows are is not promised:
    :func:`certus.generative.examine` compares them with real ones.

    Parameters
    ----------
    loss : {"nonsaturating", "minimax", "js", "kl", "least_squares", "wasserstein", \
"mmd"}, default="nonsaturating"
        Loss of a row. It names the game; "wasserstein" has a critic whose slopes are at
        most 1, "mmd" has none.
    n_components : int, default=8
        Number of components. They are the normal numbers that a row is made of.
    hidden_layer_sizes : tuple of int, default=(128, 128)
        Number of units in each hidden layer. It is that of the generator.
    critic_layer_sizes : tuple of int, default=(128, 128)
        Number of units in each hidden layer of the critic.
    critic_steps : int, default=1
        Moves of the critic before each of the generator.
    critic_penalty : float, default=0.05
        Weight γ of the critic's slopes at real rows, ½γ·E‖∂S/∂x‖². Without it the
        players tend to run in circles, and modes are lost. "wasserstein" and "mmd" do
        not need it.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Adversarial
        Generator and critic on standardised columns, float64, in evaluation mode.
    classes_, class_prior_ : ndarray of shape (n_classes,)
        Labels and their shares, if y was given.
    loc_, scale_, varies_ : ndarray of shape (n_features,)
        Mean and spread of each column; columns of one value are left out.
    shape_ : tuple of int
        Shape of a row.
    held_out_ : ndarray of int
        Numbers of the rows that were held out.
    config_ : dict
        What the networks were built with.
    weights_ : dict of ndarray
        Their weights by name.
    history_ : dict of lists
        After each epoch: loss, critic_value, validation_loss, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept, from 1; 0 if nothing is held out.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import GenerativeAdversarial
    >>> X = np.random.default_rng(0).normal(3.0, 2.0, size=(500, 1))
    >>> model = GenerativeAdversarial(max_iter=50, random_state=0).fit(X)
    >>> model.sample(4, random_state=0).shape, hasattr(model, "score_samples")
    ((4, 1), False)
    """

    conditional = True

    def __init__(
        self,
        *,
        loss: str = "nonsaturating",
        n_components: int = 8,
        hidden_layer_sizes: tuple[int, ...] = (128, 128),
        critic_layer_sizes: tuple[int, ...] = (128, 128),
        critic_steps: int = 1,
        critic_penalty: float = 0.05,
        **shared: Unpack[GenerativeOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn to make rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; images are flattened.
        y : array-like of shape (n_samples,), optional
            Classes, a further input of both players; ``sample`` takes them.
        """
        return self._fit(X, y)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_choice("loss", self.loss, LOSSES)
        check_number("n_components", self.n_components, 1, integer=True)
        check_number("critic_steps", self.critic_steps, 1, integer=True)
        check_number("critic_penalty", self.critic_penalty, 0)
        require_counts("hidden_layer_sizes", self.hidden_layer_sizes)
        require_counts("critic_layer_sizes", self.critic_layer_sizes)

    def _build(self, width: int, n_classes: int) -> nn.Module:
        return Adversarial(
            width,
            int(self.n_components),
            tuple(self.hidden_layer_sizes),
            tuple(self.critic_layer_sizes),
            n_classes=n_classes,
            lipschitz=self.loss == "wasserstein",
        )

    def _step(self, module: Any, task: RowTask) -> Any:
        kind, rate, decay = self.optimizer, self.learning_rate, self.weight_decay
        # Little momentum: the other player has moved meanwhile.
        options = {"betas": (0.5, 0.99)} if kind == "adam" else None
        optimizers = {
            name: make_optimizer(kind, getattr(module, name), rate, decay, options)
            for name in ("generator", "critic")[: 1 if self.loss == "mmd" else 2]
        }
        penalty = 0.0 if self.loss == "wasserstein" else float(self.critic_penalty)
        return TwoPlayerStep(
            *(module, optimizers, self.loss, int(self.critic_steps), self.clip),
            penalty=penalty,
        )

    def _losses(self, module: Any, x: Tensor, c: Tensor | None) -> Losses:
        """How far drawn rows are from held-out ones: MMD², the rule for early stopping.

        With classes, the class of a row is compared as well.
        """
        c = None if c is None else c[:COMPARED]
        return {"loss": row_distance(module, x[:COMPARED], c)}

    def _state(self, module: Any) -> dict[str, Any]:
        return {"network_": module.double().cpu().eval()}

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("adversarial", witness=witness)

    # -- rows and scores --------------------------------------------------------------

    @torch.no_grad()
    def _draw(self, n: int, codes: Array | None, rng: np.random.Generator) -> Array:
        z = rng.standard_normal((n, self.network_.config["n_components"]))
        made: Array = self.network_.generate(*_pair(z, codes)).numpy()
        return made

    @torch.no_grad()
    def generate(self, Z: MatrixLike, y: Any = None) -> Array:
        """Rows from the numbers they are made of.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Normal numbers.
        y : label or array of labels, optional
            Classes, which a model needs that was fitted with classes.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self, "network_")
        z, k = np.asarray(Z, dtype=np.float64), self.network_.config["n_components"]
        if z.ndim != 2 or z.shape[1] != k:
            raise ValueError(f"Z must have {k} columns, got shape {z.shape}.")
        made = self.network_.generate(*_pair(z, self._codes_for(y, len(z)))).numpy()
        return self._shaped(self._scaled.outer(made))

    @torch.no_grad()
    def critic_scores(self, X: MatrixLike, y: Any = None) -> Array:
        """The critic's scores of rows; high scores look real.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : label or array of labels, optional
            Their classes, which a model needs that was fitted with classes.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        Z = self._inner(X)
        scores: Array = self.network_.score(
            *_pair(Z, self._codes_for(y, len(Z)))
        ).numpy()
        return scores

    def _codes_for(self, y: Any, n: int) -> Array | None:
        if not hasattr(self, "classes_"):
            return None
        if y is None:
            raise ValueError("This model was fitted with classes; pass y.")
        return self._codes_of(np.broadcast_to(np.asarray(y), (n,)))


def _pair(Z: Array, codes: Array | None) -> tuple[Tensor, Tensor | None]:
    """Rows and classes as tensors."""
    x = torch.from_numpy(np.ascontiguousarray(Z))
    return x, None if codes is None else torch.as_tensor(np.asarray(codes).copy())
