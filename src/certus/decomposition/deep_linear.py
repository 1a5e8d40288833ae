"""Deep linear networks, and how their modes are learnt one after the other.

    min over W₁ … W_L of  (1/2n) Σ‖y − W_L ⋯ W₁x − b‖²

The network is one matrix, but gradient descent on its layers differs from that on the
matrix. With x centred and whitened the loss is ½‖W_L ⋯ W₁ − Γ‖² plus a constant, with Γ
= (1/n) Σ y xᵀ = Σ_r σ_r u_r v_rᵀ. From small balanced layers each mode a_r = u_rᵀ W_L ⋯
W₁ v_r follows da/dt = L·a^(2 − 2/L)·(σ_r − a): it waits, rises within a time of order
1/σ_r, and stays. Strong modes are learnt first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    require_finite,
    validate_data,
)
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence
from certus.decomposition.deep_linear_training import (
    DeepLinearTraining,
    begin,
    carry_over,
    whiten,
)
from certus.decomposition.modes import draw_modes
from certus.diagnostics import Diagnosed
from certus.diagnostics.linear_networks import gradient_claims
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class DeepLinearNetwork(Diagnosed, MultiOutputMixin, RegressorMixin, Estimator):
    """A network of linear layers, trained by gradient descent.

    Objective
    ---------
    min over W₁ … W_L, b of (1/2n) Σᵢ ‖yᵢ − W_L ⋯ W₁xᵢ − b‖².

    Certificate
    -----------
    ``loss_excess`` (PROVED): loss above the least that any matrix of the narrowest
    layer's rank reaches, as a share of that of the best constant; ``tol`` bounds it.
    REFUSED beyond 2,000 rows and columns. ``layers`` (PROVED): ``coef_`` is the product
    of the layers. ``gradient_norm`` (MEASURED). Three passes over the data.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(32,)
        Number of units in each hidden layer. () means a single layer.
    learning_rate : float, default=0.3
        Step size. It is given as a share of 1/(L·σ^(2 − 2/L)) with σ the strongest
        mode. Above 2 it diverges.
    init : {"random", "modes"}, default="random"
        How the first layers are chosen. Small random layers; or balanced ones along the
        modes of the data, from where the curves of :func:`mode_strength` hold exactly.
    start : float, default=1e-3
        Strength of the modes at the start, as a share of the strongest one's limit.
    tol : float, default=1e-6
        Target of the certificate's primary claim. It bounds the excess of the loss.
    max_iter : int, default=50000
        Maximum number of iterations.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the first layers.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    weights_ : list of ndarray
        The layers, first to last, in the units of X and y.
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Their product.
    intercept_ : float or ndarray of shape (n_targets,)
        b.
    singular_values_ : ndarray of shape (n_modes,)
        σ_r: where each mode would end without a bottleneck.
    modes_ : ndarray of shape (n_records, n_modes)
        Strength a_r of each mode along the training, every ten steps.
    times_ : ndarray of shape (n_records,)
        Time of the gradient flow at each record: steps times their length.
    n_iter_ : int
        Steps taken.
    history_ : dict
        The loss, its excess (under ``gap``) and seconds at each record.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    X is centred and whitened first, so that steps depend on the modes alone and not on
    the units of the columns; the first layer absorbs it. After one pass of n·d² and an
    eigendecomposition a step costs the product of neighbouring widths.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.decomposition import DeepLinearNetwork
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> Y = X @ rng.normal(size=(5, 3))
    >>> model = DeepLinearNetwork((8,), random_state=0).fit(X, Y)
    >>> [W.shape for W in model.weights_], model.certificate_.met
    ([(8, 5), (3, 8)], True)
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (32,),
        *,
        learning_rate: float = 0.3,
        init: str = "random",
        start: float = 1e-3,
        tol: float = 1e-6,
        max_iter: int = 50_000,
        random_state: RandomState = None,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.init = init
        self.start = start
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any) -> Any:
        """Train on rows and targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        """
        hidden = _check_parameters(self)
        before = self.weights_ if self.warm_start and hasattr(self, "weights_") else []
        X, y, _ = self._dense_X_y(X, y)
        problem = whiten(X, y.reshape(len(y), -1).astype(np.float64))
        widths = (problem.gamma.shape[1], *hidden, problem.gamma.shape[0])
        monitor = Monitor(self, X, y, None, self.max_time)
        layers = carry_over(before, problem, widths) or begin(self, problem, widths)
        training = DeepLinearTraining(problem, layers, y.ndim == 1, X.dtype)
        status = training.run(self, monitor)
        for name, value in training.attributes().items():
            setattr(self, name, value)
        self.singular_values_ = problem.limits * problem.unit
        self.modes_ = np.array(training.modes) * problem.unit
        slower = problem.unit ** (2 - 2 / len(layers))
        self.times_ = np.array(training.times) / slower
        self.n_iter_ = training.steps
        self.history_ = monitor.history
        monitor.close(training.attributes())
        measured = self._to_measure(None, X, y)
        return Fitted(Evidence("deep_linear"), X, y, None, status, measured=measured)

    def _measured(
        self,
        witness: Any,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        return gradient_claims(X, y, self.weights_, self.coef_)

    def _dense_X_y(self, X: MatrixLike, y: Any) -> tuple[Any, Any, None]:
        X, y = validate_data(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2,
            ensure_all_finite=False,
        )
        require_finite(X, type(self).__name__)
        require_finite(y.reshape(len(y), -1), type(self).__name__)
        return X, y, None

    def predict(self, X: MatrixLike) -> Array:
        """Predicted targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def plot_modes(self, ax: Any = None) -> Any:
        """Draw the strength of each mode along the training, and the theory's curves.

        A curve begins at the start if ``init="modes"``, else where its mode has reached
        a twentieth of its limit: until then small random layers are not yet aligned.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        check_is_fitted(self)
        return draw_modes(self, ax)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def _check_parameters(model: DeepLinearNetwork) -> tuple[int, ...]:
    hidden = model.hidden_layer_sizes
    if isinstance(hidden, str) or not np.iterable(hidden):
        raise TypeError(
            f"hidden_layer_sizes must be a sequence of widths, got {hidden!r}."
        )
    for width in hidden:
        check_number("hidden_layer_sizes", width, 1, integer=True)
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_choice("init", model.init, ("random", "modes"))
    check_number("start", model.start, 0, 1, open_low=True)
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("max_time", model.max_time, none=True)
    return tuple(int(width) for width in hidden)
