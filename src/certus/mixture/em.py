"""Expectation and maximisation for any model with a latent variable.

    E:  q ← p(z | x, θ)          M:  θ ← argmax E_q log p(x, z | θ)

Each pair of steps can only raise L(θ) = (1/n) Σᵢ log p(xᵢ | θ), because
L(θ) = E_q log(p(x, z | θ)/q) + KL(q ‖ p(z | x, θ)), and the last term is zero after the
E-step. You define the model by a few functions of data and parameters.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp

from certus.base import Fitted, Model, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.typing import Array, MatrixLike


class EM(Model):
    """EM for a model that you define by functions for its steps.

    Objective
    ---------
    maximise (1/n) Σᵢ log p(xᵢ | θ).

    Certificate
    -----------
    ``step_gain``: what one further step would change in the objective, at most ``tol``;
    PROVED for the functions given if ``log_joint`` is among them, so that the verifier
    computes posterior and likelihood itself, else MEASURED. ``elbo`` (PROVED): at the
    posterior of your ``e_step`` the lower bound equals the log-likelihood. Level "full"
    repeats the fit from its start: ``monotone`` is the largest drop. It is not checked
    whether your functions describe the model you have in mind. Two E-steps and one
    M-step.

    Parameters
    ----------
    e_step : callable or None
        ``e_step(X, params) -> (q, log_likelihood)``: the posterior of the latent
        variable in whatever form ``m_step`` takes, and log p(xᵢ | params) of each row.
        None if ``log_joint`` is given: q is then an array of rows × states.
    m_step : callable
        ``m_step(X, q) -> params``.
    log_joint : callable, optional
        ``log_joint(X, params)``: log p(xᵢ, z = k | params), rows × states, where the
        latent variable has finitely many.
    tol : float, default=1e-6
        Stop when a step changes the objective by less, and the next one would, too.
    max_iter : int, default=1000
        Most steps.
    max_time : float, optional
        Seconds after which the fit stops with what it has.

    Attributes
    ----------
    params_ : object
        The parameters, as ``m_step`` returned them.
    start_ : object
        A copy of the parameters the fit began with.
    log_likelihood_ : float
        The objective at ``params_``.
    n_iter_ : int
        M-steps taken.
    converged_ : bool
        Whether the last step changed the objective by less than ``tol``, and the next
        one would, too.
    history_ : dict
        Objective, its change (under ``gap``) and seconds after each E-step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A step costs what your functions cost. Functions cannot be written to a model file;
    keep ``params_``.

    Examples
    --------
    A mixture of two Poisson distributions:

    >>> import numpy as np
    >>> from scipy.stats import poisson
    >>> from certus.mixture import EM
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.poisson(2, 3000), rng.poisson(20, 1000)])
    >>> def log_joint(X, params):
    ...     weights, rates = params
    ...     return np.log(weights) + poisson.logpmf(X[:, None], rates)
    >>> def m_step(X, q):
    ...     return q.mean(axis=0), X @ q / q.sum(axis=0)
    >>> model = EM(None, m_step, log_joint).fit(X, ([0.5, 0.5], [1.0, 10.0]))
    >>> weights, rates = model.params_
    >>> weights.round(2).tolist(), rates.round().tolist(), model.certificate_.met
    ([0.75, 0.25], [2.0, 20.0], True)
    """

    def __init__(
        self,
        e_step: Callable[[Any, Any], Any] | None,
        m_step: Callable[[Any, Any], Any],
        log_joint: Callable[[Any, Any], Any] | None = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
        max_time: float | None = None,
    ) -> None:
        self.e_step = e_step
        self.m_step = m_step
        self.log_joint = log_joint
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time

    def fit(self, X: MatrixLike, start: Any) -> Any:
        """Fit, starting from ``start``.

        Parameters
        ----------
        X : object
            The data, handed to your functions as it is.
        start : object
            Parameters to begin with, as ``m_step`` returns them. To go on after a fit,
            pass ``params_``.
        """
        return self._climb(X, start)

    @certified_fit
    def _climb(self, X: MatrixLike, start: Any) -> Any:
        _check_parameters(self)
        self.start_ = copy.deepcopy(start)
        monitor = Monitor(self, X, None, None, self.max_time)
        params, level, after = start, -math.inf, start
        status = Status.MAX_ITER
        # Counts as fitted from here on.
        self.params_, self.log_likelihood_, self.n_iter_ = params, level, 0
        try:
            q, found = self._expect(X, start)
            for steps in range(self.max_iter + 1):
                if math.isnan(found) or found == math.inf:
                    status = Status.DIVERGED
                    break
                params, change, level = after, abs(found - level), found
                self.params_, self.log_likelihood_ = params, level
                self.n_iter_ = steps
                stop = monitor.step(level, change, lambda: {"params_": self.params_})
                if stop is not None:
                    status = stop
                    break
                if steps == self.max_iter and not change < self.tol:
                    break
                # What the next step changes is what the certificate states.
                after = self.m_step(X, q)
                q, found = self._expect(X, after)
                if max(change, abs(found - level)) < self.tol:
                    status = Status.SOLVED
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        self.converged_ = status is Status.SOLVED
        self.history_ = monitor.history
        monitor.close({"params_": self.params_})
        return Fitted(Evidence("em"), X, None, None, status)

    def _expect(self, X: MatrixLike, params: Any) -> tuple[Any, float]:
        q, rows = self.posterior(X, params)
        return q, float(rows.mean())

    def posterior(self, X: MatrixLike, params: Any) -> tuple[Any, Array]:
        """The E-step: the posterior, and log p(xᵢ | params) of each row.

        Parameters
        ----------
        X : object
            Data as in ``fit``.
        params : object
            Parameters, for example ``params_``.
        """
        if self.e_step is None:
            if self.log_joint is None:
                raise ValueError("EM needs e_step or log_joint; both are None.")
            joint = np.asarray(self.log_joint(X, params), dtype=np.float64)
            if joint.ndim != 2:
                raise ValueError(
                    "log_joint must return an array of rows × states, got shape "
                    f"{joint.shape}."
                )
            rows = np.asarray(logsumexp(joint, axis=1))
            return np.exp(joint - rows[:, None]), rows
        found = self.e_step(X, params)
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(
                "e_step must return two things: the posterior, and the log-likelihood "
                "of each row."
            )
        rows = np.asarray(found[1], dtype=np.float64)
        if rows.ndim != 1 or len(rows) == 0:
            raise ValueError(
                "e_step must return one log-likelihood per row, got shape "
                f"{rows.shape}."
            )
        return found[0], rows


def _check_parameters(model: EM) -> None:
    for name in ("e_step", "m_step", "log_joint"):
        value = getattr(model, name)
        if not callable(value) and (value is not None or name == "m_step"):
            raise TypeError(f"{name} must be a function, got {value!r}.")
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 0, integer=True)
    check_number("max_time", model.max_time, none=True)
