"""Estimators that can be diagnosed: numbers about a fit, on data passed again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from certus.certificate import Claim
from certus.typing import ArrayLike


class Diagnosed:
    """Gives an estimator :meth:`diagnose`; subclasses define ``_measured``.

    Examples
    --------
    >>> from certus.certificate import Claim, Strength
    >>> from certus.diagnostics import Diagnosed
    >>> class Mean(Diagnosed):
    ...     def _measured(self, witness, X, y, sample_weight, level):
    ...         return [Claim("mean", Strength.MEASURED, sum(X) / len(X))]
    >>> Mean().diagnose([1.0, 2.0])[0].value
    1.5
    """

    def _measured(
        self,
        witness: Any,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        """Numbers about this fit; ``witness`` is what the fit recorded, if it did."""
        raise NotImplementedError

    def diagnose(
        self, X: Any, y: Any = None, sample_weight: Any = None, level: str = "quick"
    ) -> list[Claim]:
        """Measure the fitted model on rows: loss, gradient, and what else is known.

        Parameters
        ----------
        X : array-like
            Rows, or texts, like those of the fit.
        y : array-like, optional
            Their targets, where the fit had some.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. Those used in ``fit``.
        level : {"quick", "full"}, default="quick"
            At ``"full"`` on more rows, and with the curvature of a network.

        Returns
        -------
        list of Claim
            All MEASURED: numbers without a promise. :func:`certus.certify` puts them
            into a certificate.

        Examples
        --------
        >>> from certus.neural_network import MLPRegressor
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0]
        >>> model = MLPRegressor(hidden_layer_sizes=(8,), solver="lbfgs").fit(X, y)
        >>> loss, gradient = model.diagnose(X, y)[:2]
        >>> loss.name, gradient.name, gradient.strength.value
        ('training_loss', 'gradient_norm', 'measured')
        """
        if level not in ("quick", "full"):
            raise ValueError(f"level must be 'quick' or 'full', got {level!r}.")
        evidence = getattr(getattr(self, "certificate_", None), "evidence", None)
        witness = None if evidence is None else evidence.witness
        return self._measured(witness, X, y, sample_weight, level)

    def _to_measure(
        self, witness: Any, X: Any, y: Any = None, sample_weight: Any = None
    ) -> Callable[[], list[Claim]]:
        """What a fit hands over: the measurement, made when the clock of fit stops."""
        return partial(self._measured, witness, X, y, sample_weight, "quick")
