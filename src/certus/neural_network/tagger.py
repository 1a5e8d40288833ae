"""A class for each element of a sequence, by a recurrent network.

    minimise over θ:  Σᵢₜ sᵢ ℓ(yᵢᵗ, f(xᵢ; θ)ᵗ) / Σᵢₜ sᵢ

with the cross entropy ℓ over all elements of all sequences: long sequences count for
more. What is said of an element depends on those before it and, read both ways, on
those after it.
"""

from __future__ import annotations

from typing import Any, Unpack

from certus.base import certified_fit
from certus.neural_network.parameters import (
    LabelOptions,
    RecurrentClassifierOptions,
    RecurrentOptions,
    TrainingOptions,
    trained_with,
)
from certus.neural_network.recurrent import SequenceInput
from certus.neural_network.tag_targets import Tags
from certus.typing import ArrayLike, MatrixLike


@trained_with(
    RecurrentOptions,
    TrainingOptions,
    LabelOptions,
    bidirectional=True,
    learning_rate=5e-3,
    clip=1.0,
    batch_size=64,
)
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
    {shared}

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
    order drawn from ``random_state``. An epoch costs O(elements·width·(width +
    inputs)).

    Examples
    --------
    >>> from certus.neural_network import SequenceTagger
    >>> X = [["a", "b", "c"], ["c", "c"], ["b"], ["c", "a"], ["b", "c", "c", "a"]]
    >>> y = [["v", "k", "k"], ["k", "k"], ["k"], ["k", "v"], ["k", "k", "k", "v"]]
    >>> model = SequenceTagger(width=8, max_iter=200, random_state=0).fit(X, y)
    >>> model.predict([["a", "c"], []])
    [array(['v', 'k'], dtype='<U1'), array([], dtype='<U1')]
    """

    def __init__(
        self,
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
        y : list of array-like, or array of shape (n_samples, time)
            A class for each element of each sequence.
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

    def _pooling(self) -> None:
        return None  # an output for each element
