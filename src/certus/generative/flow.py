"""Normalising flows: densities by invertible networks that start at a mixture.

    maximise  mean over rows of log r(S(x)) + log |det ∇S(x)|

S is a stack of layers with triangular Jacobians, r a mixture of Gaussians that is
fitted first. A new stack is the identity, and the start counts as the zeroth epoch of
early stopping: on held-out rows the flow is never worse than the mixture.
"""

from __future__ import annotations

import copy
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.generative.base import ExplicitModel
from certus.generative.imputing import imputed, rows_by_weight
from certus.generative.options import GenerativeOptions
from certus.generative.rows import TOGETHER, read_rows
from certus.generative.starts import MixtureStart, best_mixture, gaussian
from certus.neural_network.modules.arguments import require_counts
from certus.neural_network.modules.flow import KINDS, Flow
from certus.neural_network.run import Losses
from certus.typing import Array, MatrixLike, RandomState

__all__ = ["NormalizingFlow"]

#: Share of the rows beyond each side of a spline's box, and the margin around it.
BEYOND, MARGIN = 0.001, 0.1


@shares(GenerativeOptions, learning_rate=5e-3, n_iter_no_change=20)
class NormalizingFlow(TransformerMixin, ExplicitModel):
    """A density with an invertible network, which starts at a fitted mixture.

    ``sample(given=...)`` takes proposals of the mixture, at least eight for each row,
    by their weight under the flow's density; that is exact for many proposals.

    Objective
    ---------
    max over θ of the mean of ``log r(S(x)) + log |det ∇S(x)|``, S a stack of increasing
    triangular maps and r a mixture of Gaussians.

    Certificate
    -----------
    ``bijective`` (PROVED, for every row there can be): no column depends on itself
    through the network's masks, and slopes are bounded away from zero, so the density
    integrates to one. ``log_density`` and ``inverse`` (PROVED, on rows): the model's
    numbers are those of its weights, computed again with a bound on rounding errors.
    ``sample_density`` (STATISTICAL): rows that are drawn follow the density that is
    stated. ``gain``: what the network adds to the mixture it started from; STATISTICAL
    on new rows, in nats clipped to ±5.

    Parameters
    ----------
    layer : {"spline", "affine", "monotone", "sum_of_squares", "linear", "planar"}, \
default="spline"
        Kind of layers. Rational-quadratic splines; shifts and scales (MAF,
        or Real NVP with ``coupling``); sums of steps (NAF); integrals of squared
        polynomials; one linear map, which has a closed form; bends along a direction.
    coupling : bool, default=False
        Whether half of the columns decide over the other half. By default each column
        depends on those before it, which fits better and draws rows more slowly.
    n_layers : int, default=2
        Number of layers.
    base : {"mixture", "normal"}, default="mixture"
        Model to start from. "normal" is one Gaussian with the mean and the covariance
        of the rows.
    n_components : int, default=None
        Number of components. None compares mixtures of 1 to 32 on held-out rows.
    hidden_layer_sizes : tuple of int, default=(64, 64)
        Number of units in each hidden layer. Each layer of the flow has such a network.
    bins : int, default=8
        Bins of a spline, or steps of "monotone".
    polynomial_degree : int, default=2
        Degree r of the polynomials of "sum_of_squares"; the map has degree 2r + 1.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Flow
        The trained flow on standardised columns, float64, in evaluation mode.
    mixture_ : GaussianMixture
        What it started at, on standardised columns.
    start_score_, validation_score_ : float
        Mean log-density of the held-out rows at the start and at the end; NaN without.
    loc_, scale_, varies_ : ndarray of shape (n_features,)
        Mean and spread of each column; columns of one value are left out.
    shape_ : tuple of int
        Shape of a row.
    held_out_ : ndarray of int
        Numbers of the rows that were held out.
    config_ : dict
        What the network was built with.
    weights_ : dict of ndarray
        Its weights by name.
    history_ : dict of lists
        After each epoch: loss, validation_loss, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept; 0 is the mixture itself.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import NormalizingFlow
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=600)
    >>> X = np.column_stack([x, x**2 + 0.3 * rng.normal(size=600)])
    >>> flow = NormalizingFlow(max_iter=100, random_state=0).fit(X[:400])
    >>> flow.sample(2, random_state=0).shape, flow.certificate_["bijective"].met
    ((2, 2), True)
    >>> flow.calibrate(X[400:]).predict_outlier([[0.0, 0.1], [0.0, -4.0]])
    array([False,  True])
    """

    keeps_start = True
    mixture_: Any

    def __init__(
        self,
        *,
        layer: str = "spline",
        coupling: bool = False,
        n_layers: int = 2,
        base: str = "mixture",
        n_components: int | None = None,
        hidden_layer_sizes: tuple[int, ...] = (64, 64),
        bins: int = 8,
        polynomial_degree: int = 2,
        **shared: Unpack[GenerativeOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn the density of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; images are flattened.
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_choice("layer", self.layer, KINDS)
        check_choice("coupling", self.coupling, (False, True))
        check_choice("base", self.base, ("mixture", "normal"))
        check_number("n_layers", self.n_layers, 1, integer=True)
        check_number("n_components", self.n_components, 1, integer=True, none=True)
        check_number("bins", self.bins, 2, 200, integer=True)
        check_number("polynomial_degree", self.polynomial_degree, 0, 20, integer=True)
        require_counts("hidden_layer_sizes", self.hidden_layer_sizes)

    def _prepare(self, Z: Array, held: Array | None, rng: np.random.Generator) -> None:
        if self.base == "normal" or self.layer == "linear":
            self.mixture_ = gaussian(Z)
        else:
            self.mixture_ = best_mixture(Z, held, self.n_components, rng)
        # Splines end where few rows are; other maps see all rows within ±1.
        share = BEYOND if self.layer == "spline" else 0.0
        low, high = np.quantile(Z, (share, 1 - share), axis=0)
        self._box = 0.5 * (low + high), (0.5 + MARGIN) * (high - low)

    def _build(self, width: int, n_classes: int) -> nn.Module:
        start = MixtureStart.of(self.mixture_)
        linear = self.layer == "linear"
        module = Flow(
            width,
            self.layer,
            coupling=bool(self.coupling),
            n_layers=1 if linear else int(self.n_layers),
            hidden=tuple(self.hidden_layer_sizes),
            bins=int(self.bins),
            degree=int(self.polynomial_degree),
            n_components=1 if linear else len(start.shares),
            covariance="full" if linear else start.covariance,
        )
        if linear:
            module.look_at(np.zeros(width), np.ones(width))
        else:
            module.start_at(*start)
            module.look_at(*self._box)
        return module

    def _closed_form(self, width: int) -> nn.Module | None:
        """The best linear flow: rows become uncorrelated with mean 0 and spread 1."""
        if self.layer != "linear":
            return None
        module: Any = self._build(width, 0).double()
        _, means, factors = MixtureStart.of(self.mixture_)
        U = np.diag(factors[0]) if factors.ndim == 2 else factors[0]
        with torch.no_grad():
            module.layers[0].weight.copy_(torch.as_tensor(U.T))
            module.layers[0].bias.copy_(torch.as_tensor(-means[0] @ U))
        return module

    def _losses(self, module: nn.Module, x: Tensor, c: Tensor | None) -> Losses:
        return {"loss": -module.log_prob(x).mean()}  # type: ignore[operator]

    def _state(self, module: Any) -> dict[str, Any]:
        """Float64 from here on, with the mixture and the box as they were fitted."""
        network: Any = copy.deepcopy(module).double().cpu().eval()
        if self.layer != "linear":
            network.start_at(*MixtureStart.of(self.mixture_))
        return {"network_": network}

    def _closed(self, task_held: Array | None) -> None:
        """What held-out rows say of the start and of the end."""
        self.start_score_ = self.validation_score_ = float("nan")
        if task_held is not None:
            lost = self._scaled.log_volume()
            start = float(self.mixture_.score(task_held))
            self.start_score_ = start - lost
            self.validation_score_ = float(self._log_density(task_held).mean()) - lost
        self.__dict__.pop("_box", None)

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("flow", witness=witness)

    # -- density and samples ----------------------------------------------------------

    @torch.no_grad()
    def _log_density(self, Z: Array) -> Array:
        parts = [
            self.network_.log_prob(torch.from_numpy(Z[i : i + TOGETHER])).numpy()
            for i in range(0, len(Z), TOGETHER)
        ]
        found = np.concatenate(parts)
        # Far outside, squares overflow: the density is too small for a number.
        return np.where(np.isnan(found), -np.inf, found)

    @torch.no_grad()
    def _draw(self, n: int, codes: Array | None, rng: np.random.Generator) -> Array:
        z = self.network_.draw_base(n, rng)
        # A hundred-millionth is not seen in a sample; single precision is faster.
        network = copy.deepcopy(self.network_).float()
        x: Array = network.inverse(torch.as_tensor(z, dtype=torch.float32)).numpy()
        return x.astype(np.float64)

    def _draw_given(
        self,
        n: int,
        ends: tuple[Array, Array],
        codes: Array | None,
        rng: np.random.Generator,
    ) -> tuple[Array, Array | None]:
        return rows_by_weight(self, n, ends, rng), None

    @torch.no_grad()
    def transform(self, X: MatrixLike) -> Array:
        """S(x): rows in the space of the mixture.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_varying)
            One number for each column that varies.
        """
        z: Array = self._fitted()(torch.from_numpy(self._inner(X)))[0].numpy()
        return z

    @torch.no_grad()
    def inverse_transform(self, Z: MatrixLike) -> Array:
        """S⁻¹(z): the rows that :meth:`transform` takes to these.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_varying)
            Rows in the space of the mixture.
        """
        network = self._fitted()
        z = np.asarray(Z, dtype=np.float64)
        if z.ndim != 2 or z.shape[1] != network.config["n_inputs"]:
            raise ValueError(
                f"Z must have {network.config['n_inputs']} columns, got an array of "
                f"shape {z.shape}."
            )
        x: Array = network.inverse(torch.from_numpy(np.ascontiguousarray(z))).numpy()
        return self._shaped(self._scaled.outer(x))

    def _fitted(self) -> Any:
        """The network of a fitted model."""
        check_is_fitted(self, "network_")
        return self.network_

    def impute(self, X: MatrixLike, *, random_state: RandomState = None) -> Array:
        """Fill gaps (NaN) with their expected value, given the rest of the row.

        The mixture proposes values, and the flow's density weights them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with NaN for what is missing.
        random_state : int, RandomState or None
            Seed or generator of all random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Whole rows.
        """
        check_is_fitted(self, "network_")
        X = read_rows(self, X, reset=False, missing=True)
        return self._shaped(imputed(self, X, random_state))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of :meth:`transform`.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        width = self._fitted().config["n_inputs"]
        return np.asarray([f"normalizingflow{i}" for i in range(width)], dtype=object)
