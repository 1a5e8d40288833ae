"""Sheets of samples, and a callback that shows them as a model learns."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from certus.base import check_number
from certus.typing import Array

__all__ = ["SamplePictures", "picture_sheet"]


def picture_sheet(images: Any, *, n_columns: int | None = None) -> Array:
    """Images side by side as one image, with a line of one pixel between them.

    Parameters
    ----------
    images : array-like of shape (n, height, width) or (n, height, width, channels)
        Images of one size, any numbers; channels may also come first.
    n_columns : int, optional
        Images in a row; by default about as many as rows.

    Returns
    -------
    ndarray of uint8
        Grey values from 0 to 255, of shape (height, width) or (height, width, 3). The
        smallest finite number of all images is black, the largest white; infinite
        numbers are like these two, NaN is black.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.generative import picture_sheet
    >>> picture_sheet(load_digits().images[:6], n_columns=3).shape
    (17, 26)
    """
    X = np.asarray(images, dtype=np.float64)
    if X.ndim not in (3, 4) or not X.size:
        raise ValueError(
            "images must have the shape (n, height, width), with or without channels, "
            f"got {X.shape}."
        )
    if X.ndim == 4 and X.shape[1] in (1, 3) and X.shape[-1] not in (1, 3):
        X = np.moveaxis(X, 1, -1)
    if X.ndim == 4 and X.shape[-1] == 1:
        X = X[..., 0]
    seen = X[np.isfinite(X)]
    low, high = (seen.min(), seen.max()) if seen.size else (0.0, 1.0)
    X = np.nan_to_num((np.clip(X, low, high) - low) / ((high - low) or 1.0))
    n, height, width = X.shape[:3]
    columns = int(np.ceil(np.sqrt(n))) if n_columns is None else int(n_columns)
    check_number("n_columns", columns, 1, integer=True)
    rows = -(-n // columns)
    shape = (rows * (height + 1) - 1, columns * (width + 1) - 1, *X.shape[3:])
    sheet = np.full(shape, 0.5)
    for k, image in enumerate(X):
        i, j = k // columns * (height + 1), k % columns * (width + 1)
        sheet[i : i + height, j : j + width] = image
    return np.asarray(np.round(255 * sheet), dtype=np.uint8)


class SamplePictures:
    """Callback that shows samples as a model of images learns; for ``set_callbacks``.

    Every picture is drawn from the same random numbers, so that one sees the same
    samples become clearer.

    Parameters
    ----------
    where : path or callable
        A folder, into which files step_000100.png and so on are written; or a function
        that is called with each sheet, an array of uint8.
    n_samples : int, default=16
        Samples in a picture.
    every : int, default=1
        Epochs between two pictures. An epoch is a pass over the rows of at least 10 and
        at most 100 steps.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.generative import Diffusion, SamplePictures
    >>> sheets = []
    >>> model = Diffusion(hidden_layer_sizes=(16,), n_steps=4, max_iter=20)
    >>> model = model.set_callbacks(SamplePictures(sheets.append, n_samples=4))
    >>> model = model.fit(load_digits().images[:100])
    >>> len(sheets), sheets[-1].shape
    (2, (17, 17))
    """

    def __init__(
        self,
        where: str | PathLike[str] | Callable[[Array], Any],
        *,
        n_samples: int = 16,
        every: int = 1,
    ) -> None:
        self.where, self.n_samples, self.every = where, n_samples, every

    def setup(self, estimator: Any, context: Any) -> None:
        """Check before a fit, not after its first epoch."""
        check_number("n_samples", self.n_samples, 1, integer=True)
        check_number("every", self.every, 1, integer=True)
        if not callable(self.where):
            Path(self.where).mkdir(parents=True, exist_ok=True)

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing is left after a fit."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing is shown before an epoch."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> bool:
        """Show samples; training goes on."""
        history = getattr(fitted_estimator, "history_", None)
        if context.task_name != "step" or not history or not history.get("steps"):
            return False
        if (len(history["steps"]) - 1) % int(self.every):
            return False
        made = fitted_estimator.sample(int(self.n_samples), random_state=0)
        made = made[0] if isinstance(made, tuple) else made
        if made.ndim == 2:  # flat images, if they are square
            side = round(made.shape[1] ** 0.5)
            square = side * side == made.shape[1]
            made = made.reshape(-1, side, side) if square else made[:, None]
        self._show(picture_sheet(made), int(history["steps"][-1]))
        return False

    def _show(self, sheet: Array, step: int) -> None:
        if callable(self.where):
            self.where(sheet)
            return
        from PIL import Image

        Image.fromarray(sheet).save(Path(self.where) / f"step_{step:06d}.png")
