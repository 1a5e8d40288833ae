"""Variational autoencoders: deep factor analysis with a bound of the likelihood.

    log p(x) ≥ E_q log p(x | z) − KL(q(z | x) ‖ N(0, I))

Linear networks with a normal likelihood are probabilistic PCA: the best ones follow
from eigenvectors, and the bound is the likelihood itself. With ``n_draws`` above 1 the
bound is that of importance-weighted autoencoders, log of a mean of p(x, z)/q(z | x).
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.generative.base import ExplicitModel
from certus.generative.conditions import rows_by_codes
from certus.generative.filling import by_codes, filled
from certus.generative.options import GenerativeOptions
from certus.generative.rows import Standardization
from certus.generative.vae_likelihood import (
    importance_bounds,
    integrated,
    normal_log_density,
    paired,
    sigmoid,
    start_at_components,
)
from certus.neural_network.modules.arguments import require_counts
from certus.neural_network.modules.variational import LIKELIHOODS, Variational
from certus.neural_network.run import Losses
from certus.typing import Array, MatrixLike

__all__ = ["VariationalAutoencoder"]

#: Draws of a code for the bound of ``score_samples``.
DRAWS = 100


@shares(GenerativeOptions, batch_size=128)
class VariationalAutoencoder(TransformerMixin, ExplicitModel):
    """A decoder from normal codes to rows, fitted by a bound of the likelihood.

    ``sample(given=...)`` moves codes by 60 rounds of Markov chains that keep the
    distribution of code, class and row on the conditions: exact after many rounds,
    nearly so after these. Values far from all rows of the model are refused.

    Objective
    ---------
    max over θ, φ of the mean of E_q log p(x | z) − β KL(q(z | x) ‖ N(0, I)), codes
    drawn as z = μ(x) + s(x)·η, η ~ N(0, I).

    Certificate
    -----------
    ``gap_to_best`` (PROVED, linear networks with a normal likelihood): how far the
    bound is below the largest likelihood of probabilistic PCA. ``likelihood_bound`` and
    ``importance_bound`` (STATISTICAL on new rows, MEASURED on rows held out): the
    bounds, by the verifier's own networks and draws, and the components that carry
    nothing. ``bits_per_dimension`` (the same): where values are evenly spaced, as
    pixels are, the bits of a value with rounding. ``codes_agree`` (PROVED): codes and
    rows are those of the weights. ``integrated_likelihood`` (PROVED, at most two
    components): log p between two bounds, which shows how far below it the others are.
    ``gain_over_pca`` (MEASURED): the bound minus the likelihood of probabilistic PCA
    with as many components. ``sample_density`` (STATISTICAL, normal likelihood and at
    most eight columns): rows drawn have the density that ``log_likelihood`` states; of
    linear networks, or certified on level "full" with at most two components.

    Parameters
    ----------
    n_components : int, default=2
        Number of components. They are the numbers in a code.
    likelihood : {"normal", "bernoulli"}, default="normal"
        Law of a row, given its code. "bernoulli" is for values from 0 to 1, such as
        grey values; the others are standardised, with one σ² for all columns.
    hidden_layer_sizes : tuple of int, default=(128, 128)
        Number of units in each hidden layer. The decoder has them in reverse. With ()
        both networks are linear.
    beta : float, default=1.0
        Weight of the divergence. Above 1, components carry less and are more
        independent; the objective is then no bound of the likelihood.
    n_draws : int, default=1
        Number of codes drawn for each row of a step. Above 1, the bound of
        importance-weighted autoencoders.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Variational
        The trained networks on standardised columns, float64, in evaluation mode.
    noise_variance_ : float
        σ² of a normal likelihood, of standardised columns.
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
        After each epoch: loss, divergence, validation_loss, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept, from 1; 0 if nothing is held out.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.generative import VariationalAutoencoder
    >>> X = load_digits().data[:500] / 16
    >>> model = VariationalAutoencoder(n_components=8, likelihood="bernoulli",
    ...                                max_iter=200, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3, random_state=0).shape
    ((500, 8), (3, 64))
    >>> linear = VariationalAutoencoder(hidden_layer_sizes=()).fit(X[:, 2:6])
    >>> linear.certificate_["gap_to_best"].met
    True
    """

    conditional = True

    def __init__(
        self,
        *,
        n_components: int = 2,
        likelihood: str = "normal",
        hidden_layer_sizes: tuple[int, ...] = (128, 128),
        beta: float = 1.0,
        n_draws: int = 1,
        **shared: Unpack[GenerativeOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn codes of rows, and rows from codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; images are flattened.
        y : array-like of shape (n_samples,), optional
            Classes, a further input of both networks; ``sample`` takes them.
        """
        return self._fit(X, y)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_number("n_components", self.n_components, 1, integer=True)
        check_choice("likelihood", self.likelihood, LIKELIHOODS)
        check_number("beta", self.beta, 0)
        check_number("n_draws", self.n_draws, 1, integer=True)
        if self.n_draws > 1 and self.beta != 1:
            raise ValueError(
                "A bound by several draws has no divergence to weight: use beta=1 with "
                f"n_draws={self.n_draws}, or n_draws=1."
            )
        if tuple(self.hidden_layer_sizes):
            require_counts("hidden_layer_sizes", self.hidden_layer_sizes)

    def _scaling(self, X: Array) -> Standardization:
        if self.likelihood == "normal":
            return Standardization.of(X)
        low, high = float(X.min()), float(X.max())
        if low < 0 or high > 1:
            raise ValueError(
                'With likelihood="bernoulli" all values must lie between 0 and 1, got '
                f"{low:g} to {high:g}. Divide by the largest, or use "
                'likelihood="normal".'
            )
        d = X.shape[1]
        return Standardization(np.zeros(d), np.ones(d), np.ones(d, dtype=bool))

    @property
    def _linear(self) -> bool:
        """Whether this is probabilistic PCA."""
        plain = self.likelihood == "normal" and not tuple(self.hidden_layer_sizes)
        return plain and not hasattr(self, "classes_")

    def _needs_held_out(self) -> bool:
        return not (self._linear and self.beta == 1)

    def _prepare(self, Z: Array, held: Array | None, rng: np.random.Generator) -> None:
        self._rows = Z if self._linear else None

    def _build(self, width: int, n_classes: int) -> nn.Module:
        return Variational(
            width,
            int(self.n_components),
            tuple(self.hidden_layer_sizes),
            likelihood=self.likelihood,
            n_classes=n_classes,
        )

    def _closed_form(self, width: int) -> nn.Module | None:
        """Probabilistic PCA, where both networks are linear."""
        Z = self.__dict__.pop("_rows", None)
        if Z is None or self._needs_held_out():
            return None
        module = self._build(width, 0).double()
        return start_at_components(module, Z, int(self.n_components))

    def _losses(self, module: Any, x: Tensor, c: Tensor | None) -> Losses:
        if self.n_draws > 1:
            w = module.log_weights(x, c, int(self.n_draws))
            bound = torch.logsumexp(w, dim=0) - math.log(self.n_draws)
            return {"loss": -bound.mean()}
        code = module.encode(x, c)
        seen = module.log_likelihood(x, module.decode(code.draw()[0], c)).mean()
        kl = code.divergence().sum(dim=1).mean()
        return {"loss": self.beta * kl - seen, "divergence": kl.detach()}

    def _state(self, module: Any) -> dict[str, Any]:
        return {"network_": module.double().cpu().eval()}

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("elbo", witness=witness)

    @property
    def noise_variance_(self) -> float:
        """σ² of a normal likelihood, of standardised columns."""
        check_is_fitted(self, "network_")
        return float(self.network_.noise().detach())

    # -- the likelihood and its bounds ------------------------------------------------

    def _log_density(self, Z: Array) -> Array:
        # The same draws for every row: a score does not depend on the other rows.
        return self._over_classes(
            lambda c: importance_bounds(self.network_, Z, c, DRAWS, 0, alike=True)
        )

    def _over_classes(self, of_class: Any) -> Array:
        """Log of a mean over classes with their shares, where there are classes."""
        if not hasattr(self, "classes_"):
            return np.asarray(of_class(None))
        found = np.array([of_class(c) for c in range(len(self.classes_))])
        return np.asarray(logsumexp(found + np.log(self.class_prior_)[:, None], axis=0))

    def bound(
        self, X: MatrixLike, *, n_draws: int = DRAWS, random_state: Any = None
    ) -> Array:
        """A lower bound of the log-likelihood of each row, in expectation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        n_draws : int, default=100
            Codes drawn for each row. With 1 it is the evidence lower bound (ELBO); more
            draws bring it closer to log p(x).
        random_state : int, RandomState or None
            Seed or generator of all random numbers.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "network_")
        check_number("n_draws", n_draws, 1, integer=True)
        rng = np.random.default_rng(random_state)
        seed, Z = int(rng.integers(2**62)), self._inner(X)
        found = self._over_classes(
            lambda c: importance_bounds(self.network_, Z, c, int(n_draws), seed)
        )
        return found - self._scaled.log_volume()

    def log_likelihood(self, X: MatrixLike) -> Array:
        """Log p(x) of each row: a formula, or an integral over at most two components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Exact for linear networks with a normal likelihood; otherwise by the
            trapezoidal rule on a grid of codes from −6 to 6.
        """
        Z = self._inner(X)
        if self._linear:
            found = normal_log_density(self.weights_, self.noise_variance_, Z)
        elif self.network_.config["n_components"] <= 2:
            found = self._over_classes(lambda c: integrated(self.network_, Z, c))
        else:
            raise ValueError(
                "The likelihood is an integral over "
                f"{self.network_.config['n_components']} components, which is computed "
                "for at most two. score_samples and bound give lower bounds."
            )
        return found - self._scaled.log_volume()

    # -- codes and rows ---------------------------------------------------------------

    @torch.no_grad()
    def _draw(self, n: int, codes: Array | None, rng: np.random.Generator) -> Array:
        k = self.network_.config["n_components"]
        z, c = paired(rng.standard_normal((n, k)), codes)
        m = self.network_.decode(z, c).numpy()
        if self.likelihood == "bernoulli":
            return (rng.random(m.shape) < sigmoid(m)).astype(np.float64)
        noise = math.sqrt(self.noise_variance_)
        return np.asarray(m + noise * rng.standard_normal(m.shape))

    @torch.no_grad()
    def transform(self, X: MatrixLike, y: Any = None) -> Array:
        """Mean codes of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,), optional
            Their classes, for a model that was fitted with classes; by default the
            class whose bound is the largest.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        Z = self._inner(X)
        code = self.network_.encode(*paired(Z, self._classes_for(Z, y)))
        return code.mean.numpy()

    def _classes_for(self, Z: Array, y: Any) -> Array | None:
        if not hasattr(self, "classes_"):
            return None
        if y is not None:
            return self._codes_of(np.broadcast_to(np.asarray(y), (len(Z),)))
        found = [self._at_mean_code(Z, c) for c in range(len(self.classes_))]
        return np.argmax(np.array(found) + np.log(self.class_prior_)[:, None], axis=0)

    def _at_mean_code(self, Z: Array, code: int) -> Array:
        """Log p(x | z) at the mean code, minus the divergence."""
        x, c = paired(Z, code)
        found = self.network_.encode(x, c)
        m = self.network_.decode(found.mean, c)
        kl = found.divergence().sum(dim=1)
        return (self.network_.log_likelihood(x, m) - kl).numpy()

    @torch.no_grad()
    def inverse_transform(self, Z: MatrixLike, y: Any = None) -> Array:
        """Mean rows of codes.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Codes.
        y : label or array of labels, optional
            Classes, for a model that was fitted with classes; by default the mean over
            all classes.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self, "network_")
        z, k = np.asarray(Z, dtype=np.float64), self.network_.config["n_components"]
        if z.ndim != 2 or z.shape[1] != k:
            raise ValueError(f"Z must have {k} columns, got shape {z.shape}.")
        told, codes = hasattr(self, "classes_"), None
        if told and y is not None:
            codes = self._codes_of(np.broadcast_to(np.asarray(y), (len(z),)))
        if told and y is None:
            parts = [self._mean_rows(z, c) for c in range(len(self.classes_))]
            m = np.tensordot(self.class_prior_, parts, axes=1)
        else:
            m = self._mean_rows(z, codes)
        return self._shaped(self._scaled.outer(m))

    def _mean_rows(self, z: Array, codes: Any) -> Array:
        m: Array = self.network_.decode(*paired(z, codes)).numpy()
        return sigmoid(m) if self.likelihood == "bernoulli" else m

    def _draw_given(
        self,
        n: int,
        ends: tuple[Array, Array],
        codes: Array | None,
        rng: np.random.Generator,
    ) -> tuple[Array, Array | None]:
        return rows_by_codes(self, n, ends, codes, rng)

    def impute(self, X: MatrixLike, *, random_state: Any = None) -> Array:
        """Fill gaps (NaN) with their expected value, given the rest of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, NaN where a value is missing.
        random_state : int, RandomState or None
            Seed or generator of all random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Known values are unchanged.
        """
        check_is_fitted(self, "network_")
        return filled(self, X, random_state, by_codes)

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
