"""Autoencoders: short codes from which rows come back.

    min over E, D of the mean of ‖x − D(E(x + σε))‖²/d + c·‖∂D(E(x))/∂x‖²/d

With noise σ rows are to come back without it (denoising); with c slopes of the way
there and back are kept small (contractive), which is nearly the same for c = σ². Of
sparse codes all but a few entries are zero. Linear networks have a formula: axes of the
covariance, each shrunk by λ/(λ + σ² + c). Without noise that is PCA.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_number
from certus.certificate import Evidence
from certus.generative.base import RowModel
from certus.generative.options import GenerativeOptions
from certus.generative.outliers import OutlierCalibration
from certus.generative.rows import read_rows
from certus.neural_network.modules.arguments import require_counts
from certus.neural_network.modules.bottleneck import Bottleneck
from certus.neural_network.run import Losses
from certus.typing import Array, MatrixLike

__all__ = ["Autoencoder"]

#: Rows that pass the networks together.
TOGETHER = 4096


@shares(GenerativeOptions, batch_size=128)
class Autoencoder(TransformerMixin, OutlierCalibration, RowModel):
    """Codes of rows, and rows from codes; denoising, sparse or contractive.

    It does not learn how codes are distributed, so it has no ``sample``: see
    :class:`VariationalAutoencoder`. :class:`certus.decomposition.LinearAutoencoder`
    shows how linear networks are trained; here they have a formula.

    Objective
    ---------
    min over E, D of the mean of ‖x − D(E(x + σε))‖²/d + c·‖∂D(E(x))/∂x‖²/d with normal
    ε, columns standardised.

    Certificate
    -----------
    ``row_error`` (STATISTICAL on new rows, MEASURED on rows held out): the error of
    a row that comes back, and components that carry nothing. ``beside_pca`` (PROVED):
    the error on these rows minus the least error that any linear code of as many
    components has on the same rows. ``codes_agree`` (PROVED): codes and rows are those
    of the weights, and sparse codes have no more entries than they may. ``gap_to_best``
    (PROVED, linear networks): how far the objective is above its minimum.

    Parameters
    ----------
    n_components : int, default=2
        Number of components. They are the numbers in a code.
    hidden_layer_sizes : tuple of int, default=(128,)
        Number of units in each hidden layer. The decoder has them in reverse. With ()
        both networks are linear.
    noise : float, default=0.0
        Standard deviation of the noise that is added to rows, as a share of that of
        each column.
    sparsity : float, default=0.0
        Share of the components that is zero in each code. At least one is left.
    contraction : float, default=0.0
        Weight c of the slopes from rows to the rows that come back.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Bottleneck
        The trained networks on standardised columns, float64, in evaluation mode.
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
        After each epoch: loss, error, validation_loss, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept, from 1; 0 if nothing is held out.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.generative import Autoencoder
    >>> X = load_digits().data[:500]
    >>> model = Autoencoder(n_components=8, noise=0.2, max_iter=300, random_state=0)
    >>> model.fit(X).transform(X).shape
    (500, 8)
    >>> linear = Autoencoder(n_components=8, hidden_layer_sizes=()).fit(X)
    >>> linear.certificate_["gap_to_best"].met
    True
    """

    def __init__(
        self,
        *,
        n_components: int = 2,
        hidden_layer_sizes: tuple[int, ...] = (128,),
        noise: float = 0.0,
        sparsity: float = 0.0,
        contraction: float = 0.0,
        **shared: Unpack[GenerativeOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn codes of rows, and rows from codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; images, also a folder of them, are flattened.
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_number("n_components", self.n_components, 1, integer=True)
        check_number("noise", self.noise, 0)
        check_number("sparsity", self.sparsity, 0, 1)
        check_number("contraction", self.contraction, 0)
        if tuple(self.hidden_layer_sizes):
            require_counts("hidden_layer_sizes", self.hidden_layer_sizes)

    def _build(self, width: int, n_classes: int) -> nn.Module:
        k, n_active = int(self.n_components), None
        if self.sparsity:
            # A share of 0.9 of ten leaves one, whatever 0.9 is in binary.
            n_active = max(1, k - math.floor(k * float(self.sparsity) + 1e-9))
        return Bottleneck(width, k, tuple(self.hidden_layer_sizes), n_active=n_active)

    @property
    def _linear(self) -> bool:
        return not tuple(self.hidden_layer_sizes) and not self.sparsity

    def _needs_held_out(self) -> bool:
        return not self._linear

    def _prepare(self, Z: Array, held: Array | None, rng: np.random.Generator) -> None:
        self._rows = Z if self._linear else None

    def _closed_form(self, width: int) -> nn.Module | None:
        """The leading axes of the covariance, the decoder shrunk by λ/(λ + σ² + c)."""
        Z = self.__dict__.pop("_rows", None)
        if Z is None:
            return None
        module: Any = self._build(width, 0).double()
        k, mean = int(self.n_components), Z.mean(axis=0)
        _, s, Vt = np.linalg.svd(Z - mean, full_matrices=False)
        lost = float(self.noise) ** 2 + float(self.contraction)
        axes, shrink, n = np.zeros((k, width)), np.zeros(k), min(k, len(s))
        axes[:n] = Vt[:n]
        values = s[:n] ** 2 / len(Z)
        shrink[:n] = np.where(values > 0, values / np.maximum(values + lost, 1e-300), 0)
        state = {
            "encoder.output.weight": axes,
            "encoder.output.bias": -axes @ mean,
            "decoder.output.weight": axes.T * shrink,
            "decoder.output.bias": mean,
        }
        module.load_state_dict({name: torch.as_tensor(a) for name, a in state.items()})
        return module

    def _losses(self, module: Any, x: Tensor, c: Tensor | None) -> Losses:
        seen = x + float(self.noise) * torch.randn_like(x) if self.noise else x
        error = (x - module(seen)).square().mean()
        if not self.contraction:
            return {"loss": error}
        slopes = _slopes(module, x)
        loss = error + float(self.contraction) * slopes
        return {"loss": loss, "error": error.detach()}

    def _state(self, module: Any) -> dict[str, Any]:
        return {"network_": module.double().cpu().eval()}

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("coder", witness=witness)

    # -- codes and rows ---------------------------------------------------------------

    @torch.no_grad()
    def _through(self, of: Any, Z: Array) -> Array:
        parts = [
            of(torch.from_numpy(np.ascontiguousarray(Z[i : i + TOGETHER]))).numpy()
            for i in range(0, len(Z), TOGETHER)
        ]
        return np.concatenate(parts)

    def transform(self, X: MatrixLike) -> Array:
        """Codes of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        Z = self._inner(X)
        return self._through(self.network_.encode, Z)

    def inverse_transform(self, Z: MatrixLike) -> Array:
        """Rows of codes.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Codes.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self, "network_")
        z, k = np.asarray(Z, dtype=np.float64), self.network_.config["n_components"]
        if z.ndim != 2 or z.shape[1] != k:
            raise ValueError(f"Z must have {k} columns, got shape {z.shape}.")
        return self._shaped(self._scaled.outer(self._through(self.network_.decode, z)))

    def outlier_scores(self, X: MatrixLike) -> Array:
        """The error with which each row comes back; large is odd.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Mean square over standardised columns; infinite for a row with another value
            in a column that was constant in the fit.
        """
        check_is_fitted(self, "network_")
        X, scaled = read_rows(self, X, reset=False), self._scaled
        Z = scaled.inner(X)
        error = np.square(Z - self._through(self.network_, Z)).mean(axis=1)
        return np.where(scaled.misplaced(X), np.inf, error)

    def score(self, X: MatrixLike, y: Any = None) -> float:
        """Minus the mean error with which rows come back.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return -float(np.mean(self.outlier_scores(X)))

    @property
    def sample(self) -> Any:
        """An autoencoder has no distribution of codes to draw from."""
        raise AttributeError(
            "Autoencoder does not learn how codes are distributed, so it cannot draw "
            "rows. Use VariationalAutoencoder, whose codes are normal."
        )

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of :meth:`transform`.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        check_is_fitted(self, "network_")
        k, name = self.network_.config["n_components"], type(self).__name__.lower()
        return np.asarray([f"{name}{i}" for i in range(k)], dtype=object)


def _slopes(module: Any, x: Tensor) -> Tensor:
    """The mean of ‖∂r/∂x‖²/d, without bias, by one random direction for each row."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        back = module(x)
        v = torch.randn_like(back)
        (g,) = torch.autograd.grad((back * v).sum(), x, create_graph=True)
    return g.square().mean()
