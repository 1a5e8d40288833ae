"""Diffusion models: rows out of noise, by a network that removes noise step by step.

    x = x₀ + σε,  D(x, σ) ≈ E[x₀ | x],  ∇ log p_σ(x) = (D(x, σ) − x)/σ²
    probability flow   dx/dσ = (x − D(x, σ))/σ

A noising a·x₀ + s·ε, as of variance-preserving diffusions and of flow matching, is the
same with σ = s/a after a division by a: the three differ in what the network is asked
for, and in the noise levels at which it is trained. Guidance moves D away from the
denoiser that does not see the class: D₀ + guidance·(D_y − D₀).
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.generative.base import ExplicitModel
from certus.generative.conditions import rows_by_steps
from certus.generative.filling import by_steps, filled
from certus.generative.noise_flow import (
    SAMPLERS,
    TOGETHER,
    flow_log_density,
    noise_to_rows,
    parts_of,
    tensors_of,
)
from certus.generative.options import GenerativeOptions
from certus.generative.rows import Standardization
from certus.neural_network.image_reading import layout_of
from certus.neural_network.modules.arguments import require_counts
from certus.neural_network.modules.denoiser import (
    NOISINGS,
    Denoiser,
    UNet,
    noise_levels,
)
from certus.neural_network.run import Losses
from certus.typing import Array, MatrixLike

__all__ = ["Diffusion"]

NETWORKS = ("mlp", "unet")
#: Share of the rows of a step whose class is not told, where there are classes.
UNTOLD = 0.1
#: Columns up to which the divergence of the flow is computed.
WIDEST = 128
#: Rows with noise by which held-out rows are judged at least.
JUDGED = 2048
#: Widths by default.
WIDTHS = {"mlp": (256, 256, 256), "unet": (32, 64)}


@shares(GenerativeOptions, learning_rate=2e-3, max_iter=4000, n_iter_no_change=20)
class Diffusion(ExplicitModel):
    """A denoiser at all noise levels, which turns noise into rows.

    ``sample(given=...)`` with ranges keeps those rows that lie inside, which is exact.
    A known value is put back 16 times at each noise level, and the other columns follow
    it nearly, not exactly: too often as they would without it, such as 0.68 of the rows
    in a group whose share is then 0.76. With classes it needs y, because shares of
    classes among such rows are not known. Values far from all rows are refused.

    Objective
    ---------
    min over θ of the mean of ‖F_θ − target‖² over rows, noise and noise levels; the
    minimum is at D(x, σ) = E[x₀ | x] for every noising.

    Certificate
    -----------
    ``denoising`` (MEASURED on the rows of the fit, STATISTICAL on new rows): whether
    the model generalises or copies, from its errors and those of the memoriser, the
    best denoiser on the training rows, a weighted mean of them. ``denoising_errors``
    (STATISTICAL over noise): model, memoriser and best linear denoiser on rows held out
    at each noise level. ``memoriser_floor`` (STATISTICAL over noise): on training rows
    no denoiser is below the memoriser. ``bits_per_dimension`` (STATISTICAL on new
    rows): where values are evenly spaced, as pixels are, a bound of the bits of a value
    with rounding. ``denoiser_agrees`` (PROVED for "mlp", MEASURED for "unet"):
    ``denoise`` is that of the weights. ``flow_likelihood`` (MEASURED, "mlp" with few
    columns): log-densities by the verifier's own flow, and what half the step changes.
    ``sample_density`` (STATISTICAL, "mlp" with at most four columns, certified on level
    "full"): rows drawn have the density that ``score_samples`` states.

    Parameters
    ----------
    noising : {"edm", "variance_preserving", "flow_matching"}, default="edm"
        What the network is asked for, and the noise levels it is trained at.
    network : {"mlp", "unet"}, default="mlp"
        Kind of network. A perceptron for rows, or a U-Net for images.
    hidden_layer_sizes : tuple of int or None, default=None
        Number of units in each hidden layer. Of a U-Net, channels of each level, which
        halves height and width; multiples of 16 are fastest. None stands for
        (256, 256, 256), or (32, 64).
    guidance : float, default=1.0
        How much samples follow their class. Above 1, rows are more typical of it. It
        has no part in densities.
    sampler : {"heun", "ddim", "ddpm"}, default="heun"
        How rows are drawn. "heun" and "ddim" follow the probability flow, by Heun's and
        by Euler's steps; "ddpm" is a chain with fresh noise in each step.
    n_steps : int, default=32
        Number of steps from noise to a row. Also from a row to noise, in
        ``score_samples``.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Denoiser or UNet
        The trained denoiser on standardised columns, float64, in evaluation mode.
    classes_, class_prior_ : ndarray of shape (n_classes,)
        Labels and their shares, if y was given.
    loc_, scale_, varies_ : ndarray of shape (n_features,)
        Mean and spread of each column, of images of all pixels together; columns of one
        value are left out, except for a U-Net.
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
        Epoch whose weights were kept, from 1; 0 if nothing is held out.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import Diffusion
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 400)
    >>> X = rng.normal(size=(400, 2)) + 8 * y[:, None]
    >>> model = Diffusion(hidden_layer_sizes=(32,), max_iter=300, random_state=0)
    >>> made, _ = model.fit(X, y).sample(100, y=1, random_state=0)
    >>> made.shape, bool((abs(made.mean(axis=0) - 8) < 1).all())
    ((100, 2), True)
    """

    conditional = True

    def __init__(
        self,
        *,
        noising: str = "edm",
        network: str = "mlp",
        hidden_layer_sizes: tuple[int, ...] | None = None,
        guidance: float = 1.0,
        sampler: str = "heun",
        n_steps: int = 32,
        **shared: Unpack[GenerativeOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn to remove noise from rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; images in their shape.
        y : array-like of shape (n_samples,), optional
            Classes: the network sees the class of nine rows out of ten, and ``sample``
            takes it.
        """
        if y is None and self.guidance != 1:
            raise ValueError(
                "guidance follows classes, and there is no y. Pass y, or guidance=1."
            )
        return self._fit(X, y)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_choice("noising", self.noising, NOISINGS)
        check_choice("network", self.network, NETWORKS)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_number("guidance", self.guidance, 0)
        check_number("n_steps", self.n_steps, 1, integer=True)
        if self.hidden_layer_sizes is not None:
            require_counts("hidden_layer_sizes", self.hidden_layer_sizes)

    def _scaling(self, X: Array) -> Standardization:
        """Pixels share mean and spread, so that noise is alike in all of an image."""
        each = Standardization.of(X)
        if len(self.shape_) == 1 and self.network == "mlp":
            return each
        mean, spread = np.full(X.shape[1], X.mean()), np.full(X.shape[1], X.std())
        if self.network == "unet":
            return Standardization(mean, spread, np.ones(X.shape[1], dtype=bool))
        at = each.varies
        loc, scale = np.where(at, mean, each.loc), np.where(at, spread, 1.0)
        return Standardization(loc, scale, at)

    def _build(self, width: int, n_classes: int) -> nn.Module:
        hidden = tuple(self.hidden_layer_sizes or WIDTHS[self.network])
        if self.network == "mlp":
            return Denoiser(width, hidden, noising=self.noising, n_classes=n_classes)
        if len(self.shape_) not in (2, 3):
            raise ValueError(
                'network="unet" needs images, such as X of shape (n, height, width), '
                f"got rows of shape {self.shape_}."
            )
        layout = layout_of(self.shape_, None, None)
        return UNet(
            layout.sizes,
            hidden,
            noising=self.noising,
            n_classes=n_classes,
            channels_first=len(self.shape_) == 2 or layout.first,
        )

    def _losses(self, module: Any, x: Tensor, c: Tensor | None) -> Losses:
        if module.training:
            if c is not None:
                drop = torch.rand(c.shape, device=c.device) < UNTOLD
                c = torch.where(drop, -1, c)
        else:  # few rows are judged by several noises each
            times = -(-JUDGED // len(x))
            x, c = x.repeat(times, 1), None if c is None else c.repeat(times)
        n = len(x)
        # One noise level from each of n parts that are equally likely.
        u = (torch.randperm(n) + torch.rand(n)) / n
        u = u.clamp(1e-6, 1 - 1e-6).to(x.device)
        sigma = noise_levels(self.noising, u)
        noisy = x + sigma[:, None] * torch.randn(x.shape).to(x)
        return {"loss": module.loss(x, noisy, sigma, c)}

    def _state(self, module: Any) -> dict[str, Any]:
        return {"network_": module.double().cpu().eval()}

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("denoiser", witness=witness)

    # -- denoising --------------------------------------------------------------------

    @torch.no_grad()
    def denoise(self, X: MatrixLike, noise_level: Any, y: Any = None) -> Array:
        """What rows were before noise, in the mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to which normal noise was added.
        noise_level : float or array-like of shape (n_samples,)
            Spread σ of the noise, as a share of the spread ``scale_`` of each column.
        y : label or array of labels, optional
            Their classes, for a model that was fitted with classes; by default the
            classes are not known.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        Z = self._inner(X)
        sigma = np.asarray(noise_level, dtype=np.float64)
        if sigma.shape not in ((), (len(Z),)) or not (sigma > 0).all():
            raise ValueError(
                "noise_level must be a positive number, or one for each of "
                f"{len(Z)} rows, got {noise_level!r}."
            )
        codes = None
        if y is not None:
            if not hasattr(self, "classes_"):
                raise ValueError("This Diffusion was fitted without classes.")
            codes = self._codes_of(np.broadcast_to(np.asarray(y), (len(Z),)))
        sigma = np.broadcast_to(sigma, len(Z))
        parts = [
            self.network_(*tensors_of(Z[i], sigma[i], codes, i)).numpy()
            for i in parts_of(len(Z), TOGETHER)
        ]
        return self._shaped(self._scaled.outer(np.concatenate(parts)))

    def _guided(self, x: Tensor, sigma: float, c: Tensor | None = None) -> Tensor:
        """The denoiser that ``sample`` follows."""
        level = torch.full((len(x),), sigma, dtype=x.dtype)
        found: Tensor = self.network_(x, level, c)
        if c is None or self.guidance == 1:
            return found
        free: Tensor = self.network_(x, level, None)
        return free + float(self.guidance) * (found - free)

    # -- drawing ----------------------------------------------------------------------

    def _draw(self, n: int, codes: Array | None, rng: np.random.Generator) -> Array:
        self._check()  # the sampler may be set after the fit
        return noise_to_rows(self, n, codes, rng)

    def _draw_given(
        self,
        n: int,
        ends: tuple[Array, Array],
        codes: Array | None,
        rng: np.random.Generator,
    ) -> tuple[Array, Array | None]:
        self._check()
        return rows_by_steps(self, n, ends, codes, rng)

    def impute(self, X: MatrixLike, *, random_state: Any = None) -> Array:
        """Fill gaps (NaN) with the mean of some draws, given the rest of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, NaN where a value is missing.
        random_state : int, RandomState or None
            Seed or generator of all random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Known values are unchanged. Draws follow the rest of the row nearly, not
            exactly: known columns are put back at each noise level.
        """
        check_is_fitted(self, "network_")
        return filled(self, X, random_state, by_steps)

    # -- the density ------------------------------------------------------------------

    def _log_density(self, Z: Array) -> Array:
        """By the probability flow; over classes with their shares, if there are any."""
        if Z.shape[1] > WIDEST:
            raise ValueError(
                "score_samples needs the divergence of a flow, which is computed for "
                f"at most {WIDEST} columns; these rows have {Z.shape[1]}."
            )
        network, n_steps = self.network_, int(self.n_steps)
        if not hasattr(self, "classes_"):
            return flow_log_density(network, Z, None, n_steps)
        found = [
            flow_log_density(network, Z, c, n_steps) for c in range(len(self.classes_))
        ]
        logs = np.log(self.class_prior_)[:, None]
        return np.asarray(logsumexp(np.array(found) + logs, axis=0))
