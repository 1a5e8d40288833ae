"""Amounts with a logarithmic link: gamma and Tweedie regression.

A Tweedie family has a variance ∝ meanᵖ: p = 0 is Gaussian, 1 Poisson, 2 gamma; between
1 and 2 its amounts are zero or positive, such as what an insurance pays in a year. Half
its deviance at the mean exp(z), z = Xw + b, up to what depends on y alone, is

    exp((2 − p)z)/(2 − p) + y·exp((1 − p)z)/(p − 1)      (p = 2: z + y·exp(−z))

and convex in z for 1 ≤ p ≤ 2. For other powers, or another link, it is not.
"""

from __future__ import annotations

from typing import Any

from certus.base import check_choice, check_number
from certus.linear_model.glm import DevianceRegressor
from certus.objectives import Exponential, Poisson, Squared, Tweedie


class GammaRegressor(DevianceRegressor):
    """Gamma regression of positive amounts, with a logarithmic link.

    Objective
    ---------
    mean [y·exp(−z) + z − log y − 1] + ½·alpha·‖w‖², z = Xw + b: half the mean deviance
    and a penalty, weighted by ``sample_weight``.

    Certificate
    -----------
    ``duality_gap`` (PROVED) with ``alpha > 0``, relative to the best constant model.
    With ``alpha=0`` ``stationarity`` (MEASURED). One or two passes over the data.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty. The intercept is not penalised.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    solver : str, default="auto"
        Algorithm that computes the fit. scikit-learn's names are accepted; the method
        is Newton's.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Constant.
    n_iter_ : int
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.linear_model import GammaRegressor
    >>> X = [[1, 2], [2, 3], [3, 4], [4, 3]]
    >>> model = GammaRegressor().fit(X, [19, 26, 33, 30])
    >>> model.coef_.round(3), model.certificate_.met
    (array([0.073, 0.067]), True)
    """

    def _loss(self) -> Any:
        return Exponential()


class TweedieRegressor(DevianceRegressor):
    """Regression of amounts whose variance grows with a power of their mean.

    Objective
    ---------
    Half the mean Tweedie deviance of ``power`` + ½·alpha·‖w‖², weighted by
    ``sample_weight``. The mean is exp(Xw + b), for ``power=0`` Xw + b.

    Certificate
    -----------
    ``duality_gap`` (PROVED) with ``alpha > 0``, relative to the best constant model.
    With ``alpha=0`` ``backward_error`` (PROVED) for power 0, else ``stationarity``
    (MEASURED), or REFUSED with a direction as witness where no minimiser exists: a cell
    of zeros. One or two passes over the data.

    Parameters
    ----------
    power : float, default=0.0
        ====== ================================= =====================
        power  distribution                      y
        ====== ================================= =====================
        0      normal                            any number
        1      Poisson                           at least 0
        1 … 2  compound Poisson–gamma            at least 0
        2      gamma                             above 0
        ====== ================================= =====================
    alpha : float, default=1.0
        Strength of the penalty. The intercept is not penalised.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    link : {"auto", "identity", "log"}, default="auto"
        "auto" is the identity for power 0 and the logarithm for the others. Other pairs
        are not convex and refused; scikit-learn's TweedieRegressor takes them.
    solver : str, default="auto"
        Algorithm that computes the fit. scikit-learn's names are accepted; the method
        is Newton's, and direct for power 0.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Constant.
    n_iter_ : int
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import TweedieRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> claims = rng.poisson(np.exp(X[:, 0]))
    >>> cost = rng.gamma(np.maximum(2 * claims, 1e-9))  # zero without a claim
    >>> model = TweedieRegressor(power=1.5, alpha=0.01).fit(X, cost)
    >>> model.coef_.round(), model.certificate_.met
    (array([1., 0.]), True)
    """

    def __init__(
        self,
        *,
        power: float = 0.0,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        link: str = "auto",
        solver: str = "auto",
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: int = 0,
        max_time: float | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            fit_intercept=fit_intercept,
            solver=solver,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            verbose=verbose,
            max_time=max_time,
        )
        self.power = power
        self.link = link

    def _loss(self) -> Any:
        check_number("power", self.power, -float("inf"))
        check_choice("link", self.link, ("auto", "identity", "log"))
        power, link = float(self.power), self.link
        if 0 < power < 1:
            raise ValueError(
                f"power must not lie between 0 and 1, got {power:g}: no distribution "
                "has such a variance."
            )
        link = ("log" if power > 0 else "identity") if link == "auto" else link
        if not (power == 0 if link == "identity" else 1 <= power <= 2):
            raise NotImplementedError(
                f"power={power:g} with link={link!r} is not a convex problem. Use "
                "power=0, or a power from 1 to 2 with the logarithmic link; "
                "sklearn.linear_model.TweedieRegressor fits the others."
            )
        named = {0.0: Squared(), 1.0: Poisson(), 2.0: Exponential()}
        return named.get(power, Tweedie(power))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.power != 0
        return tags
