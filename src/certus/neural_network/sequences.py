"""Classifiers and regressors of sequences, by recurrent networks.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s,   f(x) = V h + c

where h is the state of an LSTM, a GRU or an Elman network after it has read x, or the
mean of its states. Sequences have any length, and elements that are tokens or numbers.
"""

from __future__ import annotations

from typing import Any

from certus.base import certified_fit
from certus.neural_network.parameters import documented, keep
from certus.neural_network.reading import ClassTargets, NumberTargets
from certus.neural_network.recurrent import SequenceInput


@documented
class RecurrentClassifier(SequenceInput, ClassTargets):
    """Tells classes of sequences apart, by a recurrent network.

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
    hidden : int, default=64
        Numbers in a state, in each direction.
    cell : {"lstm", "gru", "rnn"}, default="lstm"
        Kind of recurrence: long short-term memory, gated unit, or Elman's.
    layers : int, default=1
        How many recurrences stand on each other.
    bidirectional : bool, default=False
        Read backwards as well.
    dropout : float, default=0.0
        Share of the numbers that training leaves out above each layer.
    embedding : "auto", int or None, default="auto"
        How many numbers stand for a token. Elements are tokens where sequences hold
        strings, and where they are lists of integers; arrays and lists of real numbers
        hold measurements. An int says tokens, None measurements, whatever the form.
        "auto" takes min(hidden, 64) numbers.
    pooling : {"last", "mean"}, default="last"
        Predict from the state at the end of a sequence, or from the mean of all.
    {training}
    label_smoothing : float, default=0.0
        Share of each target that is spread over all classes.
    class_weight : dict or "balanced", default=None
        Weights of classes; they multiply ``sample_weight``.

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
    order drawn from ``random_state``. An epoch costs O(elements·hidden·(hidden +
    inputs)).

    Examples
    --------
    >>> from certus.neural_network import RecurrentClassifier
    >>> words = ["good film", "bad film", "not bad", "not good", "good", "bad"]
    >>> model = RecurrentClassifier(hidden=16, random_state=0, max_iter=200)
    >>> _ = model.fit([w.split() for w in words], [1, 0, 1, 0, 1, 0])
    >>> model.predict([["not", "bad", "film"], ["not", "good", "film"]])
    array([1, 0])
    """

    def __init__(
        self,
        *,
        hidden: int = 64,
        cell: str = "lstm",
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        embedding: Any = "auto",
        pooling: str = "last",
        optimizer: Any = "adam",
        learning_rate: float = 5e-3,
        schedule: Any = None,
        warmup: float = 0.0,
        weight_decay: float = 0.0,
        label_smoothing: float = 0.0,
        class_weight: Any = None,
        augment: Any = None,
        clip: float | None = 1.0,
        average: Any = None,
        batch_size: int | None = 64,
        max_iter: int = 100,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        max_time: float | None = None,
        checkpoint: Any = None,
        warm_start: bool = False,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Any:
        """Train.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences.
        y : array-like of shape (n_samples,)
            Classes; or columns of labels, or distributions over classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the sequences.
        X_val, y_val : optional
            Sequences to stop by, with their targets.

        Returns
        -------
        estimator
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)


@documented
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
    hidden : int, default=64
        Numbers in a state, in each direction.
    cell : {"lstm", "gru", "rnn"}, default="lstm"
        Kind of recurrence: long short-term memory, gated unit, or Elman's.
    layers : int, default=1
        How many recurrences stand on each other.
    bidirectional : bool, default=False
        Read backwards as well.
    dropout : float, default=0.0
        Share of the numbers that training leaves out above each layer.
    embedding : "auto", int or None, default="auto"
        How many numbers stand for a token. Elements are tokens where sequences hold
        strings, and where they are lists of integers; arrays and lists of real numbers
        hold measurements. An int says tokens, None measurements, whatever the form.
        "auto" takes min(hidden, 64) numbers.
    pooling : {"last", "mean"}, default="last"
        Predict from the state at the end of a sequence, or from the mean of all.
    {training}

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
    order drawn from ``random_state``. An epoch costs O(elements·hidden·(hidden +
    inputs)).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import RecurrentRegressor
    >>> X = [np.arange(n) / 5 for n in (1, 2, 3, 4, 5, 6)]
    >>> y = [x.sum() for x in X]
    >>> model = RecurrentRegressor(hidden=8, max_iter=500, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        hidden: int = 64,
        cell: str = "lstm",
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        embedding: Any = "auto",
        pooling: str = "last",
        optimizer: Any = "adam",
        learning_rate: float = 5e-3,
        schedule: Any = None,
        warmup: float = 0.0,
        weight_decay: float = 0.0,
        augment: Any = None,
        clip: float | None = 1.0,
        average: Any = None,
        batch_size: int | None = 64,
        max_iter: int = 100,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        max_time: float | None = None,
        checkpoint: Any = None,
        warm_start: bool = False,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Any:
        """Train.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the sequences.
        X_val, y_val : optional
            Sequences to stop by, with their targets.

        Returns
        -------
        estimator
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)
