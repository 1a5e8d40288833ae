"""How images are read: from files, arrays of any layout, or flattened rows.

All of them become one array (images, channels, height, width) in the dtype they came
in. If it is not clear where the channels are, or which common size images should have,
an error asks for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from certus.base import check_choice
from certus.typing import MatrixLike

#: Lengths of an axis that are taken as channels by default.
CHANNELS = (1, 3, 4)
#: Names that files of images end in; others are ignored.
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
)
#: Rows at least this long, and a square number, are taken for square images.
LEAST_SQUARE = 16


class Layout(NamedTuple):
    """How each image is laid out before its channels are put first."""

    shape: tuple[int, ...]  # (height, width), or with channels, as it came
    first: bool  # whether channels come first

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        if len(self.shape) == 2:
            return 1, self.shape[0], self.shape[1]
        a, b, c = self.shape
        return (a, b, c) if self.first else (c, a, b)


def read_images(
    source: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    image_shape: Sequence[int] | None = None,
    colour: bool | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Read image files: a folder with a subfolder for each class, or a list of paths.

    Parameters
    ----------
    source : str, Path or list of them
        A folder whose subfolders are classes; a folder of images; or files. Subfolders
        and files are taken in the order of their names; other files, and those
        that begin with a dot, are skipped.
    image_shape : (int, int), optional
        Height and width to which all images are resized. Without it, unequal sizes are
        refused.
    colour : bool, optional
        Whether to read red, green and blue. By default they are read if any image has
        colours. Transparency is left out.

    Returns
    -------
    X : ndarray of shape (images, height, width) or (images, height, width, 3)
        Pixels, uint8.
    y : ndarray of shape (images,) or None
        Names of subfolders, if there are any.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from PIL import Image
    >>> from certus.neural_network import read_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, grey in (("dark", 0), ("light", 250)):
    ...         (Path(folder) / name).mkdir()
    ...         image = Image.fromarray(np.full((4, 4), grey, np.uint8))
    ...         image.save(Path(folder) / name / "1.png")
    ...     X, y = read_images(folder)
    >>> X.shape, y.tolist()
    ((2, 4, 4), ['dark', 'light'])
    """
    files, labels = _find(source)
    images = [_open(path) for path in files]
    check_image_shape(image_shape)
    if colour is None:
        colour = any(image.ndim == 3 for image in images)
    planes = [np.atleast_3d(_coloured(image, colour)) for image in images]
    first = [np.moveaxis(image, 2, 0) for image in planes]
    X = stacked(first, image_shape, [path.name for path in files])
    X = np.ascontiguousarray(np.moveaxis(X, 1, 3)) if colour else X[:, 0]
    return X, None if labels is None else np.asarray(labels)


def is_files(
    X: Any,
) -> TypeGuard[str | PathLike[str] | Iterable[str | PathLike[str]]]:
    """Whether X names files rather than holding pixels."""
    if isinstance(X, str | os.PathLike):
        return True
    if type(X).__name__ == "Series":
        X = list(X)
    first = X[0] if isinstance(X, list | tuple | np.ndarray) and len(X) else None
    return isinstance(first, str | os.PathLike)


def stacked(
    images: list[Any], image_shape: Sequence[int] | None, names: list[str]
) -> np.ndarray:
    """Images (channels, height, width) of one or several sizes as one array."""
    if image_shape is not None:
        images = [resized(image, image_shape) for image in images]
    shapes = [np.shape(image) for image in images]
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None and shapes[odd][0] != shapes[0][0]:
        raise ValueError(
            f"{names[0]} has {shapes[0][0]} channels, but {names[odd]} has "
            f"{shapes[odd][0]}. All images must have the same number of channels."
        )
    if odd is not None:
        raise ValueError(
            f"Images have different sizes: {_words(shapes[0][1:])} ({names[0]}) and "
            f"{_words(shapes[odd][1:])} ({names[odd]}). Pass image_shape=(height, "
            "width) to resize them all."
        )
    return np.stack(images)


def as_images(
    X: Any, image_shape: Sequence[int] | None, channels: str | None
) -> tuple[np.ndarray, Layout] | None:
    """Images (n, channels, height, width), and how they were laid out.

    X is an array of three or four axes, or a list of images of any size. None if it is
    neither: rows and tables are for scikit-learn's validation.
    """
    several = isinstance(X, list | tuple)
    loose = several or (isinstance(X, np.ndarray) and X.dtype.kind == "O")
    if loose and len(X) and all(_axes(image) > 1 for image in X):
        parts = [_numeric(np.asarray(image)) for image in X]
        if len({image.shape for image in parts}) > 1:
            parts = [
                arranged(image[None], layout_of(image.shape, None, channels))[0]
                for image in parts
            ]
            names = [f"number {i}" for i in range(len(parts))]
            images = stacked(parts, image_shape, names)
            return images, Layout(images.shape[1:], True)
        X = np.stack(parts)
    if _axes(X) < 3:
        return None
    X = _numeric(np.asarray(X))
    if X.size == 0:
        raise ValueError(f"X has shape {X.shape}, so it holds no pixels.")
    layout = layout_of(X.shape[1:], None, channels)
    images = arranged(X, layout)
    if image_shape is None or images.shape[2:] == sides_of(image_shape):
        return images, layout
    images = stacked(list(images), image_shape, [])
    return images, Layout(images.shape[1:], True)


def _axes(X: MatrixLike) -> int:
    found = getattr(X, "ndim", None)
    try:
        return np.asarray(X).ndim if found is None else int(found)
    except ValueError:  # lists of unequal lengths
        return 0


def _numeric(X: np.ndarray) -> np.ndarray:
    """Pixels in a dtype that torch knows."""
    if X.dtype.kind not in "fiubO":
        raise ValueError(f"X must hold pixels as numbers, got {X.dtype}.")
    if X.dtype.type in (np.uint8, np.int32, np.int64, np.float32, np.float64):
        return X
    try:
        return X.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError("X must hold pixels as numbers.") from None


def resized(image: np.ndarray, image_shape: Sequence[int]) -> np.ndarray:
    """An image (channels, h, w), bilinearly, and smoothed where it shrinks."""
    import torch
    from torch.nn import functional as F

    height, width = sides_of(image_shape)
    if image.shape[1:] == (height, width):
        return image
    x = torch.as_tensor(image.astype(np.float64))[None]  # (1, channels, h, w)
    y = F.interpolate(x, (height, width), mode="bilinear", antialias=True)[0].numpy()
    return np.rint(y).astype(image.dtype) if image.dtype.kind in "iu" else y


def sides_of(image_shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of what the user calls the shape of an image."""
    return layout_of(tuple(image_shape), None, None).sizes[1:]


def layout_of(
    shape: tuple[int, ...], image_shape: Sequence[int] | None, channels: str | None
) -> Layout:
    """How images of these shapes are laid out; asks where it cannot be known.

    Parameters
    ----------
    shape : tuple of int
        Of one row, without the first axis.
    image_shape : tuple of int or None
        What the user says of rows that are flattened.
    channels : None, "first" or "last"
        What the user says of channels.
    """
    check_choice("channels", channels, (None, "first", "last"))
    if len(shape) == 1:
        if image_shape is not None:
            return _told(shape[0], image_shape, channels)
        side = math.isqrt(shape[0])
        square = side * side == shape[0] and shape[0] >= LEAST_SQUARE
        third = math.isqrt(shape[0] // 3)
        if not square and third >= 8 and 3 * third * third == shape[0]:
            raise ValueError(
                f"Rows of {shape[0]} numbers may be colour images. Pass "
                f"image_shape={(3, third, third)} or {(third, third, 3)}, or "
                f"{(1, shape[0])} for rows that are not images."
            )
        return Layout((side, side) if square else (1, shape[0]), False)
    if len(shape) == 2:
        return Layout(shape, False)
    if len(shape) != 3:
        raise ValueError(
            f"X has {len(shape) + 1} axes; pass images as (n, height, width), with "
            "channels as a fourth axis, or flattened as (n, pixels)."
        )
    if channels is not None:
        return Layout(shape, channels == "first")
    first, last = shape[0] in CHANNELS, shape[2] in CHANNELS
    if first == last:
        raise ValueError(
            f"Images of shape {_words(shape)} may have their channels first or last. "
            'Pass channels="first" or channels="last".'
        )
    return Layout(shape, first)


def _told(pixels: int, image_shape: Sequence[int], channels: str | None) -> Layout:
    if len(image_shape) == 3:
        # As for images, because a row has the order of its array.
        layout = layout_of(tuple(image_shape), None, channels)
    else:
        layout = Layout(tuple(image_shape), False)
    if math.prod(layout.shape) != pixels:
        raise ValueError(
            f"Rows of {pixels} pixels cannot be images of {_words(image_shape)}. "
            "Correct image_shape."
        )
    return layout


def arranged(X: np.ndarray, layout: Layout) -> np.ndarray:
    """Images (n, channels, height, width) from rows or arrays of this layout."""
    X = X.reshape(len(X), *layout.shape)
    if len(layout.shape) == 2:
        return X[:, None]
    return X if layout.first else np.moveaxis(X, 3, 1)


def check_image_shape(image_shape: Sequence[int] | None) -> None:
    """Raise an error unless it is None, or two or three whole numbers."""
    if image_shape is None:
        return
    try:
        sides = [int(side) for side in image_shape]
        fine = len(sides) in (2, 3) and min(sides) > 0 and sides == list(image_shape)
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ValueError(
            "image_shape must be (height, width), or the same with channels, got "
            f"{image_shape!r}."
        )


# -- files ------------------------------------------------------------------------


def _find(
    source: str | PathLike[str] | Iterable[str | PathLike[str]],
) -> tuple[list[Path], list[str] | None]:
    """Files, and the names of their classes if they are in subfolders."""
    if not isinstance(source, str | os.PathLike):
        if not isinstance(source, Iterable) or isinstance(source, bytes):
            raise TypeError(f"Pass a folder or a list of files; got {source!r}.")
        paths = [Path(path) for path in source]
        if not paths:
            raise ValueError("The list of images is empty.")
        return paths, None
    folder = Path(source)
    if not folder.is_dir():
        if folder.is_file():
            return [folder], None
        raise FileNotFoundError(f"There is no folder {str(folder)!r}.")
    kept = [p for p in sorted(folder.iterdir()) if not p.name.startswith((".", "__"))]
    classes = [path for path in kept if path.is_dir()]
    loose = _images_in(kept)
    if classes and loose:
        raise ValueError(
            f"{str(folder)!r} holds both subfolders and images ({loose[0].name}). Move "
            "each image into the subfolder of its class."
        )
    if not classes:
        if not loose:
            raise ValueError(f"{str(folder)!r} holds no images.")
        return loose, None
    files, labels = [], []
    for path in classes:
        found = _images_in(sorted(path.iterdir()))
        if not found:
            raise ValueError(f"The subfolder {str(path)!r} holds no images. Remove it.")
        files += found
        labels += [path.name] * len(found)
    return files, labels


def _images_in(paths: list[Path]) -> list[Path]:
    return [
        path
        for path in paths
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]


def _open(path: Path) -> np.ndarray:
    """Pixels of one file: (height, width), or (height, width, 3) if it has colours."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError(
            "Reading image files needs Pillow: pip install pillow."
        ) from error
    try:
        with Image.open(path) as image:
            if image.mode in ("F", "I") and image.format != "PNG":
                raise ValueError("its pixels are not bytes; pass them as an array")
            if image.mode.startswith("I"):
                return (np.asarray(image) // 257).astype(np.uint8)
            upright = ImageOps.exif_transpose(image)
            grey = image.mode in ("1", "L", "LA")
            return np.asarray(upright.convert("L" if grey else "RGB"))
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {str(path)!r}.") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise ValueError(
            f"{str(path)!r} cannot be read as an image ({reason[0]}). Repair or "
            "remove it."
        ) from error


def _coloured(image: np.ndarray, colour: bool) -> np.ndarray:
    if colour and image.ndim == 2:
        return np.repeat(image[:, :, None], 3, axis=2)
    if not colour and image.ndim == 3:
        # The luma of ITU-R 601, as Pillow and most others take it.
        grey = image.astype(np.float64) @ [0.299, 0.587, 0.114]
        return np.rint(grey).astype(np.uint8)
    return image


def _words(shape: Sequence[int]) -> str:
    return " × ".join(str(side) for side in shape)
