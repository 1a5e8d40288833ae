"""Classify images by a convolutional network.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s

x is an image less the mean colour of the training images, divided by its deviation; f a
network of :mod:`certus.neural_network.modules` or your own; ℓ the cross entropy.
"""

from __future__ import annotations

from typing import Any, Self, Unpack

from certus.base import certified_fit
from certus.neural_network import image_reading
from certus.neural_network.image_input import ImageInput
from certus.neural_network.parameters import (
    LabelOptions,
    RobustClassifierOptions,
    RobustOptions,
    TrainingOptions,
    trained_with,
)
from certus.neural_network.row_targets import ClassTargets
from certus.typing import ArrayLike, MatrixLike


@trained_with(
    TrainingOptions,
    LabelOptions,
    RobustOptions,
    learning_rate=3e-3,
    schedule="cosine",
    label_smoothing=0.05,
    batch_size=64,
    max_iter=20,
)
class ConvNetClassifier(ImageInput, ClassTargets):
    """Classifies images by a convolutional network.

    X holds images as (n, height, width), with channels last or first as a fourth axis,
    or flattened as (n, pixels); or names a folder with one subfolder for each class.
    Channels are centred and divided by their deviation over the training images, so
    that any scale of pixels will do. Images are computed in float32.

    The default network, :class:`certus.neural_network.modules.ConvNet`, ends its
    training where the cosine schedule does. Learning rate, batch size and number of
    epochs are chosen for it: with them, digits of 8 × 8 and 28 × 28 pixels need far
    fewer epochs than at a constant rate. Its ``label_smoothing`` keeps scores from
    growing without limit and gives fewer errors on held-out images, but less confident
    probabilities.

    Objective
    ---------
    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s, ℓ the cross entropy: −Σₖ tₖ log softmax(f)ₖ, or summed
    over labels −t log σ(f) − (1 − t) log σ(−f).

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED:
    ``training_loss``, ``gradient_norm``, ``gradient_ratio``, ``dead_units``; at level
    ``full`` the smallest and the largest curvature.

    Parameters
    ----------
    module : str, nn.Module or callable, default="auto"
        The network to train, or a function that makes it. "auto" is ``ConvNet`` of
        :mod:`certus.neural_network.modules`; "lenet", "alexnet", "resnet" and
        "densenet" are of that package, too; a module is copied and trained from its
        present weights; ``module(image_shape, n_outputs)``, told channels, height and
        width, makes one.
    image_shape : (int, int) or (int, int, int), default=None
        Of rows that are flattened: height and width, and channels where there are
        several. Without it rows whose length is a square number of at least 16 are
        square images, others images of one line. Images of another size are resized to
        it; without it, unequal sizes are refused.
    channels : None, "first" or "last", default=None
        Where the channels of an image are. By default they are the axis of length 1, 3
        or 4. If that is ambiguous, the fit raises an error.
    {shared}

    Attributes
    ----------
    module_ : nn.Module
        The trained network, in evaluation mode. It takes images that are centred and
        scaled.
    image_shape_ : (int, int, int)
        Channels, height, width.
    mean_, scale_ : ndarray of shape (channels,)
        What is subtracted from each channel, and what it is divided by.
    classes_ : ndarray
        Classes; names of subfolders, where X was a folder.
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.neural_network import ConvNetClassifier
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = ConvNetClassifier(max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> model.image_shape_
    (1, 8, 8)
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    """

    def __init__(
        self,
        module: Any = "auto",
        *,
        image_shape: Any = None,
        channels: str | None = None,
        **shared: Unpack[RobustClassifierOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Any:
        """Train the network.

        Parameters
        ----------
        X : array-like, path or list of paths
            Images; or a folder with a subfolder for each class.
        y : array-like of shape (n_samples,) or (n_samples, n_labels), optional
            Classes, zeros and ones of labels, or distributions over classes. Not
            needed where X is a folder of classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        X_val, y_val : array-like, optional
            Images of your own to stop by; X_val may be a folder too.

        Returns
        -------
        ConvNetClassifier
            Itself.
        """
        fresh = not (self.warm_start and hasattr(self, "module_"))
        X, y = self._opened(X, y, reset=fresh)
        if fresh:
            self._learn_scale(X, sample_weight)
        if X_val is not None:
            X_val, y_val = self._opened(X_val, y_val, reset=False)
        return self._fit(X, y, sample_weight, X_val, y_val)

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Make one epoch over these images, with the optimiser of the last one.

        Mean and deviation of the channels are those of the first call. ``schedule``
        and ``early_stopping`` belong to whole runs. No certificate is left;
        :func:`certus.certify` makes one.

        Parameters
        ----------
        X, y : array-like
            Images and their classes.
        classes : array-like, optional
            All classes there will be; needed in the first call.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        ConvNetClassifier
            Itself.
        """
        if not hasattr(self, "module_"):
            self._learn_scale(X, sample_weight)
        return super().partial_fit(X, y, classes, sample_weight)

    def score(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Share of images predicted right; all labels of a row must be.

        Parameters
        ----------
        X : array-like, path or list of paths
            Images, or a folder with a subfolder for each class.
        y : array-like, optional
            Classes; not needed where X is a folder of classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        float
            Accuracy.
        """
        X, y = self._opened(X, y, reset=False)
        return super().score(X, y, sample_weight)

    def _opened(self, X: MatrixLike, y: ArrayLike, reset: bool) -> tuple[Any, Any]:
        """X as pixels, and y from the names of subfolders where it is not given."""
        if not image_reading.is_files(X):
            return X, y
        X, names = self._files(X, reset)
        if y is None and names is None:
            raise ValueError(
                "y is missing: pass it, or a folder with one subfolder for each class."
            )
        return X, names if y is None else y
