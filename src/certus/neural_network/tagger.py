"""A class for each element of a sequence, by a recurrent network.

    minimise over θ:  Σᵢₜ sᵢ ℓ(yᵢᵗ, f(xᵢ; θ)ᵗ) / Σᵢₜ sᵢ

with the cross entropy ℓ over all elements of all sequences: long sequences count for
more. What is said of an element depends on those before it and, read both ways, on
those after it.
"""

from __future__ import annotations

from typing import Any

from certus.base import certified_fit
from certus.neural_network.parameters import documented, keep
from certus.neural_network.recurrent import SequenceInput
from certus.neural_network.tags import Tags


@documented
class SequenceTagger(SequenceInput, Tags):
    """Predicts a class for each element of a sequence, by a recurrent network.

    X is as for :class:`certus.neural_network.RecurrentClassifier`, and y holds as many
    classes for each sequence as it has elements.

    Objective
    ---------
    Σᵢₜ sᵢ ℓ(yᵢᵗ, f(xᵢ; θ)ᵗ) / Σᵢₜ sᵢ over all elements, ℓ the cross entropy
    −Σₖ tₖ log softmax(f)ₖ.

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
    bidirectional : bool, default=True
        Read backwards as well.
    dropout : float, default=0.0
        Share of the numbers that training leaves out above each layer.
    embedding : "auto", int or None, default="auto"
        How many numbers stand for a token. Elements are tokens where sequences hold
        strings, and where they are lists of integers; arrays and lists of real numbers
        hold measurements. An int says tokens, None measurements, whatever the form.
        "auto" takes min(hidden, 64) numbers.
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
        Classes of elements.
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
    >>> from certus.neural_network import SequenceTagger
    >>> X = [["a", "b", "c"], ["c", "c"], ["b"], ["c", "a"], ["b", "c", "c", "a"]]
    >>> y = [["v", "k", "k"], ["k", "k"], ["k"], ["k", "v"], ["k", "k", "k", "v"]]
    >>> model = SequenceTagger(hidden=8, max_iter=200, random_state=0).fit(X, y)
    >>> model.predict([["a", "c"], []])
    [array(['v', 'k'], dtype='<U1'), array([], dtype='<U1')]
    """

    def __init__(
        self,
        *,
        hidden: int = 64,
        cell: str = "lstm",
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
        embedding: Any = "auto",
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
        y : list of array-like, or array of shape (n_samples, time)
            A class for each element of each sequence.
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

    def _pooling(self) -> None:
        return None  # an output for each element
