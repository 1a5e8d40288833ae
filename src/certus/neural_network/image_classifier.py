"""What classifiers of images share: a fit on arrays or on a folder, and its score."""

from __future__ import annotations

from typing import Any, Self

from certus.base import certified_fit
from certus.neural_network import image_reading
from certus.neural_network.image_input import ImageInput
from certus.neural_network.row_targets import ClassTargets
from certus.typing import ArrayLike, MatrixLike


class ImageClassifier(ImageInput, ClassTargets):
    """Learns the classes of images; abstract. A subclass builds the network."""

    @certified_fit
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
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
        ImageClassifier
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
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
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
        ImageClassifier
            Itself.
        """
        if not hasattr(self, "module_"):
            self._learn_scale(X, sample_weight)
        return super().partial_fit(X, y, classes, sample_weight)

    def score(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
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

    def _opened(
        self, X: MatrixLike, y: ArrayLike | None, reset: bool
    ) -> tuple[Any, Any]:
        """X as pixels, and y from the names of subfolders where it is not given."""
        if not image_reading.is_files(X):
            return X, y
        X, names = self._files(X, reset)
        if y is None and names is None:
            raise ValueError(
                "y is missing: pass it, or a folder with one subfolder for each class."
            )
        return X, names if y is None else y
