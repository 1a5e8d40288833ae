"""Where a flow starts: a mixture of Gaussians that held-out rows choose.

Mixtures of several sizes, shapes of covariance and regularisations are fitted to
standardised rows; the one with the highest mean log-density of held-out rows is taken,
or without such rows the one with the lowest BIC.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus import config
from certus.mixture import GaussianMixture
from certus.typing import Array

#: Numbers of components, kinds of covariance and regularisations that are compared.
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
KINDS = ("full", "tied", "diag")
FLOORS = (1e-6, 1e-3, 1e-2, 0.1)
#: Rows that a mixture learns from at most; more would only take longer.
ENOUGH = 20_000
#: Columns up to which covariances are full.
WIDE = 200


class MixtureStart(NamedTuple):
    """The parts of a mixture as a flow holds them: (z − μ)U is standard normal."""

    shares: Array
    means: Array
    factors: Array

    @classmethod
    def of(cls, mixture: Any) -> MixtureStart:
        """From a fitted mixture; one covariance for each component."""
        k, d = mixture.means_.shape
        factors = np.asarray(mixture.precisions_cholesky_, dtype=np.float64)
        if mixture.covariance_type == "tied":
            factors = np.tile(factors, (k, 1, 1))
        elif mixture.covariance_type == "spherical":
            factors = np.tile(factors[:, None], (1, d))
        return cls(np.asarray(mixture.weights_), np.asarray(mixture.means_), factors)

    @property
    def covariance(self) -> str:
        """The kind of its covariances, "full" or "diag"."""
        return "full" if self.factors.ndim == 3 else "diag"


def best_mixture(
    Z: Array, held: Array | None, n_components: int | None, rng: np.random.Generator
) -> GaussianMixture:
    """The mixture that held-out rows find likeliest.

    Parameters
    ----------
    Z, held : float64 array of shape (n, d)
        Rows to fit, and to choose by (or None: by BIC).
    n_components : int or None
        The size; None compares several.
    rng : numpy.random.Generator
        Of the fit.
    """
    Z = Z if len(Z) <= ENOUGH else Z[np.sort(rng.permutation(len(Z))[:ENOUGH])]
    sizes = SIZES if n_components is None else (int(n_components),)
    kinds = KINDS if Z.shape[1] <= WIDE else KINDS[2:]
    best, best_value = None, -math.inf
    for kind in kinds:
        for floor in FLOORS if kind != "diag" else FLOORS[::2]:
            fallen, last = 0, -math.inf
            for size in sizes:
                if size > max(1, len(Z) // 5) or (size == 1 and kind == "tied"):
                    continue
                found = _fitted(Z, size, kind, floor, int(rng.integers(2**31)))
                value = -math.inf if found is None else _value(found, Z, held)
                if value > best_value:
                    best, best_value = found, value
                # Two sizes in a row that are worse: larger ones are worse still.
                fallen, last = (0, value) if value > last else (fallen + 1, last)
                if fallen == 2:
                    break
    if best is None:
        raise ValueError(
            "No mixture fits X: its columns hold numbers that are too large, or too "
            "few that differ. Pass more rows, or drop such columns."
        )
    return best


def gaussian(Z: Array) -> GaussianMixture:
    """One Gaussian: mean and covariance of rows, regularised where it is singular."""
    for floor in (0.0, *FLOORS):
        found = _fitted(Z, 1, "full" if Z.shape[1] <= WIDE else "diag", floor, 0)
        if found is not None:
            return found
    raise ValueError("The covariance of X is not a matrix of numbers; scale X.")


def _fitted(
    Z: Array, size: int, kind: str, floor: float, seed: int
) -> GaussianMixture | None:
    """A mixture, or None if its covariances are singular."""
    mixture = GaussianMixture(
        size, covariance_type=kind, reg_covar=floor, random_state=seed
    )
    try:
        with config.config_context(certify="never"):
            return mixture.fit(Z)
    except ValueError:
        return None


def _value(mixture: GaussianMixture, Z: Array, held: Array | None) -> float:
    """How well a mixture does; higher is better."""
    try:
        found = -mixture.bic(Z) if held is None else mixture.score(held)
    except ValueError:  # a held-out row that is far from every component
        return -math.inf
    return found if math.isfinite(found) else -math.inf
