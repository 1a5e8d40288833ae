"""Classifiers and regressors of sequences, by recurrent networks.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s,   f(x) = V h + c

where h is the state of an LSTM, a GRU or an Elman network after it has read x, or the
mean of its states. Sequences have any length, and elements that are tokens or numbers.
"""

from __future__ import annotations

from typing import Any, Unpack

from certus.base import certified_fit
from certus.neural_network.parameters import (
    LabelOptions,
    RecurrentClassifierOptions,
    RecurrentOptions,
    RecurrentRegressorOptions,
    TrainingOptions,
    trained_with,
)
from certus.neural_network.recurrent import SequenceInput
from certus.neural_network.row_targets import ClassTargets, NumberTargets
from certus.typing import ArrayLike, MatrixLike


@trained_with(
    RecurrentOptions,
    TrainingOptions,
    LabelOptions,
    learning_rate=5e-3,
    clip=1.0,
    batch_size=64,
)
class RecurrentClassifier(SequenceInput, ClassTargets):
    """Classifies sequences by a recurrent network.

    X is a list of sequences of any length, each of shape (time,) with tokens (strings
    or whole numbers) or numbers, or of shape (time, features); a text is the sequence
    of its characters. Or X is an array of shape (samples, time, features) or (samples,
    time), or a column of lists.

    Objective
    ---------
    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s with the cross entropy ℓ = −Σₖ tₖ log softmax(f)ₖ.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED.

    Parameters
    ----------
    pooling : {"last", "mean"}, default="last"
        Which states the prediction is made from. The last state of a sequence, or the
        mean of all.
    {shared}

    Attributes
    ----------
    module_ : certus.neural_network.modules.Recurrent
        The trained network, in evaluation mode.
    classes_ : ndarray
        Classes.
    tokens_ : list
        The vocabulary, where elements are tokens; token i is number i + 1 to the
        network, and those the fit did not see are 0, which carries no information.
    {fitted}

    Notes
    -----
    A float32 X is computed with in float32, in half the time; other numbers in float64,
    tokens in float32. Standardise numbers. Gradients are clipped, and memories begin
    with durations up to the longest sequence
    (:meth:`certus.neural_network.modules.Recurrent.remember`), so that dependencies
    over a hundred steps are learnt. Batches hold sequences of similar length, in an
    order drawn from ``random_state``. An epoch costs O(elements·width·(width +
    inputs)).

    Examples
    --------
    >>> from certus.neural_network import RecurrentClassifier
    >>> words = ["good film", "bad film", "not bad", "not good", "good", "bad"]
    >>> model = RecurrentClassifier(width=16, random_state=0, max_iter=200)
    >>> _ = model.fit([w.split() for w in words], [1, 0, 1, 0, 1, 0])
    >>> model.predict([["not", "bad", "film"], ["not", "good", "film"]])
    array([1, 0])
    """

    def __init__(
        self,
        *,
        pooling: str = "last",
        **shared: Unpack[RecurrentClassifierOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences.
        y : array-like of shape (n_samples,)
            Classes; or columns of labels, or distributions over classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each sequence.
        X_val, y_val : optional
            Sequences to stop by, with their targets.

        Returns
        -------
        estimator
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)


@trained_with(
    RecurrentOptions,
    TrainingOptions,
    learning_rate=5e-3,
    clip=1.0,
    batch_size=64,
)
class RecurrentRegressor(SequenceInput, NumberTargets):
    """Predicts numbers from sequences, by a recurrent network.

    X is as for :class:`certus.neural_network.RecurrentClassifier`.

    Objective
    ---------
    Σ sᵢ ½‖yᵢ − f(xᵢ; θ)‖² / Σ s, the square its mean over columns of y.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralRegressor`, all of it MEASURED.

    Parameters
    ----------
    pooling : {"last", "mean"}, default="last"
        Which states the prediction is made from. The last state of a sequence, or the
        mean of all.
    {shared}

    Attributes
    ----------
    module_ : certus.neural_network.modules.Recurrent
        The trained network, in evaluation mode.
    tokens_ : list
        The vocabulary, where elements are tokens; token i is number i + 1 to the
        network, and those the fit did not see are 0, which carries no information.
    {fitted}

    Notes
    -----
    A float32 X is computed with in float32, in half the time; other numbers in float64,
    tokens in float32. Standardise numbers. Gradients are clipped, and memories begin
    with durations up to the longest sequence
    (:meth:`certus.neural_network.modules.Recurrent.remember`), so that dependencies
    over a hundred steps are learnt. Batches hold sequences of similar length, in an
    order drawn from ``random_state``. An epoch costs O(elements·width·(width +
    inputs)).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import RecurrentRegressor
    >>> X = [np.arange(n) / 5 for n in (1, 2, 3, 4, 5, 6)]
    >>> y = [x.sum() for x in X]
    >>> model = RecurrentRegressor(width=8, max_iter=500, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        pooling: str = "last",
        **shared: Unpack[RecurrentRegressorOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each sequence.
        X_val, y_val : optional
            Sequences to stop by, with their targets.

        Returns
        -------
        estimator
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)
