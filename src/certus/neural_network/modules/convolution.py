"""The arithmetic of convolutional layers, in plain numbers and matrices.

A layer with kernel k, stride s and padding p turns i pixels into

    o = ⌊(i + 2p − k)/s⌋ + 1,

and one of its outputs depends on r_in = s·r_out + (k − s) neighbouring inputs for r_out
neighbouring outputs. A convolution is linear: its matrix has the same number along each
diagonal (Toeplitz), and is circulant only if the image is periodic. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from scipy.linalg import circulant, toeplitz

from certus.neural_network.modules.arguments import require_choice, require_count
from certus.typing import Array, ArrayLike


def output_size(
    size: int,
    kernel: int,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
) -> int:
    """Pixels that a convolution or a pooling leaves along one side.

    Parameters
    ----------
    size : int
        Pixels that go in.
    kernel : int
        Width of the window.
    stride : int, default=1
        Pixels from one window to the next.
    padding : int or {"valid", "same", "full"}, default=0
        Pixels added at either end: none, as many as keep the size, or kernel − 1.
    dilation : int, default=1
        Pixels from one tap of the kernel to the next.

    Returns
    -------
    int
        ⌊(size + 2·padding − kernel)/stride⌋ + 1.

    Examples
    --------
    >>> from certus.neural_network.modules import output_size
    >>> output_size(224, 11, stride=4, padding=2), output_size(224, 11, stride=4)
    (55, 54)
    """
    size, kernel = require_count("size", size), require_count("kernel", kernel)
    stride, dilation = (
        require_count("stride", stride),
        require_count("dilation", dilation),
    )
    width = dilation * (kernel - 1) + 1
    p = _padding(size, width, stride, padding)
    if size + 2 * p < width:
        raise ValueError(
            f"A window of {width} pixels does not fit into {size} pixels with {p} "
            "added at each end. Use more padding, or a smaller kernel."
        )
    return (size + 2 * p - width) // stride + 1


def same_padding(size: int, kernel: int, stride: int = 1) -> int:
    """Padding at either end that leaves as many pixels as went in.

    Parameters
    ----------
    size : int
        Pixels that go in.
    kernel : int
        Width of the window; odd, where the stride is 1.
    stride : int, default=1
        Pixels from one window to the next.

    Returns
    -------
    int
        ⌈(size·(stride − 1) + kernel − stride)/2⌉, which is ⌊kernel/2⌋ for stride 1.

    Examples
    --------
    >>> from certus.neural_network.modules import same_padding
    >>> same_padding(28, 5), same_padding(28, 3, stride=2)
    (2, 15)
    """
    size, kernel = require_count("size", size), require_count("kernel", kernel)
    stride = require_count("stride", stride)
    if stride == 1 and kernel % 2 == 0:
        raise ValueError(
            f"With kernel={kernel}, equal padding at both ends cannot keep the size. "
            "Use an odd kernel."
        )
    return max(0, -(-(size * (stride - 1) + kernel - stride) // 2))


def receptive_field(layers: Any, axis: int = 0) -> int:
    """Pixels along one side that one unit after these layers depends on.

    Parameters
    ----------
    layers : iterable
        From the input on: pairs (kernel, stride), triples (kernel, stride, dilation),
        or torch's convolutions and poolings, also within ``nn.Sequential`` and the
        blocks of :mod:`certus.neural_network.modules`, of which the longest way counts.
        Layers without a window, such as activations and normalisations, count as
        pointwise.
    axis : int, default=0
        The side that counts, where windows are not square.

    Returns
    -------
    int
        r₀ of the recursion r_{l−1} = s_l·r_l + (k_l − s_l), r_L = 1.

    Examples
    --------
    >>> from certus.neural_network.modules import receptive_field
    >>> receptive_field([(5, 1), (2, 2), (5, 1), (2, 2)])  # LeNet's
    16
    >>> from certus.neural_network.modules import ResNet
    >>> receptive_field(ResNet(1, 10).features)
    53
    """
    r = 1
    layers = layers if hasattr(layers, "__iter__") else [layers]
    for kernel, stride in reversed(list(_windows(layers, axis))):
        r = stride * r + (kernel - stride)
    return r


def toeplitz_matrix(h: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix T of a convolution in one dimension: T @ x = h ∗ x.

    Parameters
    ----------
    h : array-like of shape (k,)
        The kernel.
    n : int
        Length of x.
    mode : {"full", "valid", "periodic"}, default="full"
        All n + k − 1 overlaps, the n − k + 1 complete ones, or n with periodic x,
        which makes the matrix circulant.

    Returns
    -------
    ndarray of shape (n + k − 1, n), (n − k + 1, n) or (n, n)
        Constant along diagonals.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network.modules import toeplitz_matrix
    >>> toeplitz_matrix([1, 2], 3)
    array([[1, 0, 0],
           [2, 1, 0],
           [0, 2, 1],
           [0, 0, 2]])
    """
    h, n = np.atleast_1d(np.asarray(h)), require_count("n", n)
    if h.ndim != 1 or h.size == 0:
        raise ValueError(f"h must have one axis, got shape {h.shape}.")
    require_choice("mode", mode, ("full", "valid", "periodic"))
    if mode != "full" and len(h) > n:
        raise ValueError(
            f"A kernel of length {len(h)} is longer than the signal of length {n}; "
            "use mode='full'."
        )
    column = np.concatenate([h, np.zeros(n - 1, dtype=h.dtype)])
    if mode == "periodic":
        return np.asarray(circulant(column[:n]))
    row = np.zeros(n, dtype=h.dtype)
    row[0] = h[0]
    full = np.asarray(toeplitz(column, row))
    return full if mode == "full" else full[len(h) - 1 : n]


def convolution_matrix(
    kernel: ArrayLike,
    image_shape: tuple[int, int],
    *,
    stride: int = 1,
    padding: int | str = 0,
    flip: bool = False,
) -> Array:
    """The matrix W of a convolutional layer: W @ x.ravel() is its output, flattened.

    Doubly block Toeplitz for stride 1. With periodic padding it is block circulant
    with circulant blocks, so that the discrete Fourier transform diagonalises it; with
    any other it is not.

    Parameters
    ----------
    kernel : array-like of shape (height, width)
        Weights; each occurs in W once for every place of the window.
    image_shape : (int, int)
        Height and width of x.
    stride : int, default=1
        Pixels from one window to the next.
    padding : int or {"valid", "same", "full", "periodic"}, default=0
        Zeros added around x; or periodic x.
    flip : bool, default=False
        Networks slide the kernel as it is (cross-correlation); True turns it by half a
        turn, as a convolution does.

    Returns
    -------
    ndarray of shape (outputs, height · width)
        Rows are places of the window, from left to right, then downwards.

    Examples
    --------
    >>> from certus.neural_network.modules import convolution_matrix
    >>> W = convolution_matrix([[1, 2], [3, 4]], (3, 3))
    >>> W.shape, int((W != 0).sum())  # 4 weights, each in 4 places
    ((4, 9), 16)
    """
    kernel = np.asarray(kernel)
    if kernel.ndim != 2 or kernel.size == 0:
        raise ValueError(f"kernel must have two axes, got shape {kernel.shape}.")
    if len(image_shape) != 2:
        raise ValueError(f"image_shape must be (height, width), got {image_shape!r}.")
    kernel = kernel[::-1, ::-1] if flip else kernel
    out, places = [], []  # for each axis: outputs, and the input of each tap or −1
    for size, k in zip(image_shape, kernel.shape):
        reach = _reach(
            require_count("image_shape", size),
            k,
            require_count("stride", stride),
            padding,
        )
        out.append(len(reach))
        places.append(reach)
    rows, columns = image_shape
    W = np.zeros((out[0] * out[1], rows * columns), dtype=kernel.dtype)
    at = np.arange(len(W)).reshape(out)
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            below, right = places[0][:, i], places[1][:, j]
            inside = (below[:, None] >= 0) & (right[None, :] >= 0)
            to = below[:, None] * columns + right[None, :]
            # A periodic kernel wider than the image meets a pixel twice.
            np.add.at(W, (at[inside], to[inside]), kernel[i, j])
    return W


def _reach(size: int, kernel: int, stride: int, padding: int | str) -> Array:
    """The input under each entry of the kernel at each output, (outputs, kernel).

    It is −1 outside of the image.
    """
    taps = np.arange(kernel)
    if padding == "periodic":
        return (stride * np.arange(-(-size // stride))[:, None] + taps) % size
    p = _padding(size, kernel, stride, padding)
    count = output_size(size, kernel, stride, p)
    place = stride * np.arange(count)[:, None] + taps - p
    return np.where((place >= 0) & (place < size), place, -1)


def _padding(size: int, kernel: int, stride: int, padding: int | str) -> int:
    if isinstance(padding, str):
        require_choice("padding", padding, ("valid", "same", "full"))
        if padding == "same":
            return same_padding(size, kernel, stride)
        return kernel - 1 if padding == "full" else 0
    if not isinstance(padding, Integral) or padding < 0:
        raise ValueError(f"padding must be a whole number, got {padding!r}.")
    return int(padding)


def _windows(layers: Any, axis: int) -> Iterable[tuple[int, int]]:
    """(width, stride) of each layer that has a window."""
    for layer in layers:
        if isinstance(layer, tuple | list):
            kernel, stride, dilation = (*layer, 1)[:3]
        elif hasattr(layer, "longest"):
            yield from _windows(layer.longest, axis)
            continue
        elif hasattr(layer, "kernel_size") and not getattr(layer, "transposed", False):
            kernel = _side(layer.kernel_size, axis)
            stride = _side(layer.stride, axis)
            dilation = _side(getattr(layer, "dilation", 1), axis)
        elif hasattr(layer, "__iter__"):
            yield from _windows(layer, axis)
            continue
        elif hasattr(layer, "in_features") or hasattr(layer, "output_size"):
            raise ValueError(
                f"{type(layer).__name__} uses the whole image. Pass only the layers "
                "before it."
            )
        elif list(getattr(layer, "children", list)()) or hasattr(layer, "kernel_size"):
            raise ValueError(
                f"{type(layer).__name__} is not a sequence of windows. Pass the "
                "layers on its longest path, as layers or as pairs (kernel, stride)."
            )
        else:
            continue
        kernel, dilation = (
            require_count("kernel", kernel),
            require_count("dilation", dilation),
        )
        yield dilation * (kernel - 1) + 1, require_count("stride", stride)


def _side(value: Any, axis: int) -> int:
    return value[axis] if isinstance(value, tuple | list) else value
