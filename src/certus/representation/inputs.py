"""How X is read: images, sequences or table rows, scaled as the fit has learnt.

What a fit learns about X is a plain dictionary, ``inputs_``: the kind of X, the shape
of an image, means and scales, tokens. :func:`learn` makes it, :func:`read` reads other
rows with it, :func:`tensors` gives a network its batches, :func:`default_network` makes
a network for them, and :func:`written` turns inputs of a network into rows like X.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_array
from torch import Tensor, nn

from certus.base import as_array, check_choice, validate_data
from certus.neural_network import image_reading
from certus.neural_network.batches import DenseInputs, NetworkInputs, RaggedInputs
from certus.neural_network.image_input import ImageRows, channel_scale
from certus.neural_network.modules.cnn import ConvNet
from certus.neural_network.modules.mlp import MLP
from certus.neural_network.modules.rnn import Recurrent
from certus.neural_network.ragged import holds_tokens, is_table, listed, read_numbers
from certus.neural_network.tokens import numbered, read_sequences, tokens_of
from certus.typing import Array, Fit, Matrix, MatrixLike

KINDS = ("auto", "images", "rows", "sequences")
#: What a fit has learnt about X.
Learnt = dict[str, Any]
#: Largest number of components of the vector of a token.
EMBEDDING = 64


def kind_of(X: MatrixLike, kind: str, image_shape: tuple[int, ...] | None) -> str:
    """What X holds: "images", "rows" or "sequences".

    Arrays of three or four axes, files, and rows with an ``image_shape`` are images;
    lists of texts or of sequences of unequal length are sequences; tables are rows.
    """
    check_choice("kind", kind, KINDS)
    if kind != "auto":
        return kind
    if image_shape is not None or getattr(X, "ndim", 2) > 2:
        return "images"
    if isinstance(X, np.ndarray) and X.dtype.kind in "UO" and X.ndim == 1:
        first = X[0] if len(X) else ""
        return "sequences" if hasattr(first, "__len__") else "rows"
    if isinstance(X, list | tuple) and len(X):
        if all(isinstance(x, np.ndarray) and x.ndim > 1 for x in X):
            return "images"
        sized = [len(x) for x in X if hasattr(x, "__len__")]
        text = isinstance(X[0], str)
        if text or (len(sized) == len(X) and len(set(sized)) > 1):
            return "sequences"
        axes = np.asarray(X).ndim if len(sized) == len(X) else 2
        return "images" if axes > 2 else "rows"
    return "rows"


def learn(
    model: Any,
    X: Any,
    *,
    kind: str = "auto",
    image_shape: Any = None,
    channels: str | None = None,
    name: str = "X",
) -> tuple[Learnt, Any]:
    """What a fit learns about X, and X as :func:`read` gives it.

    Parameters
    ----------
    model : estimator or None
        If given, it receives the number and the names of the columns.
    X : array-like, list of sequences, or files
        The rows of the fit.
    kind, image_shape, channels
        What the user states about X.
    name : str
        The name of X in messages.
    """
    X = as_array(X)
    found = kind_of(X, kind, image_shape)
    if found == "images":
        return _learn_images(model, X, image_shape, channels)
    if found == "sequences":
        return _learn_sequences(X, name)
    values = _matrix(model, X, name, reset=True)
    if not (values.min(axis=0) < values.max(axis=0)).any():
        raise ValueError(
            f"All rows of {name} are equal, so there is nothing to learn. Pass rows "
            "that differ."
        )
    mean, scale = _column_scale(values)
    return {"kind": "rows", "mean": mean, "scale": scale}, values


def read(model: Any, learnt: Learnt, X: Any, name: str = "X") -> Any:
    """X as an array of rows or images, or as a list of sequences, checked."""
    X = as_array(X)
    if learnt["kind"] == "rows":
        values = _matrix(model, X, name, reset=False)
        if values.shape[1] != len(learnt["mean"]):
            raise ValueError(
                f"{name} has {values.shape[1]} columns, but the fit had "
                f"{len(learnt['mean'])}."
            )
        return values
    if learnt["kind"] == "sequences":
        return _sequences(learnt, X, name)
    images = _images(model, X, learnt["image_shape"], learnt, reset=False)[0]
    if images.shape[1:] != tuple(learnt["sizes"]):
        c, h, w = learnt["sizes"]
        raise ValueError(
            f"Images of {name} must have {_told(c, h, w)}, as in the fit, got "
            f"{_told(*images.shape[1:])}."
        )
    return images


def _told(c: int, h: int, w: int) -> str:
    """Sizes of an image in words."""
    return f"{h} × {w} pixels in {c} channel{'s' if c > 1 else ''}"


def tensors(
    learnt: Learnt,
    values: Array,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
) -> NetworkInputs:
    """The inputs of a network for what :func:`read` gave, scaled."""
    if learnt["kind"] == "images":
        return ImageRows(values, learnt["mean"], learnt["scale"], dtype, device)
    if learnt["kind"] == "rows":
        scaled = (values - learnt["mean"]) / learnt["scale"]
        return DenseInputs(scaled, dtype, device)
    if learnt["tokens"] is not None:
        return RaggedInputs(values, torch.int64, device)
    mean, scale = learnt["mean"], learnt["scale"]
    return RaggedInputs([(x - mean) / scale for x in values], dtype, device)


def default_network(learnt: Learnt, width: int, hidden: tuple[int, ...]) -> nn.Module:
    """A network from the inputs to vectors of ``width`` numbers.

    A :class:`~certus.neural_network.modules.ConvNet` for images, an
    :class:`~certus.neural_network.modules.MLP` for rows, and gated units whose states
    are averaged for sequences.
    """
    if learnt["kind"] == "images":
        channels, height, columns = learnt["sizes"]
        return ConvNet(channels, (height, columns), width, hidden=hidden[-1])
    if learnt["kind"] == "rows":
        return MLP(len(learnt["mean"]), hidden, width)
    tokens = learnt["tokens"]
    return Recurrent(
        len(learnt["mean"]) if tokens is None else len(tokens) + 1,
        hidden[-1],
        width,
        cell="gru",
        embedding=None if tokens is None else min(hidden[-1], EMBEDDING),
        pooling="mean",
    )


def shape_of(learnt: Learnt) -> tuple[int, ...]:
    """The shape of an input: of an image, of a row, or of a step of a sequence."""
    if learnt["kind"] == "images":
        return tuple(learnt["sizes"])
    if learnt["kind"] == "sequences" and learnt["tokens"] is not None:
        return (len(learnt["tokens"]) + 1,)
    return (len(learnt["mean"]),)


def written(learnt: Learnt, inputs: tuple[Tensor, ...]) -> Any:
    """Inputs of a network as rows like those of the fit, which can be read again."""
    x = inputs[0].detach().cpu().numpy()
    if learnt["kind"] == "sequences" and learnt["tokens"] is not None:
        words = ["", *learnt["tokens"]]  # the first one is unknown to every fit
        ends = inputs[1].tolist()
        return [[words[i] for i in row[:n]] for row, n in zip(x.tolist(), ends)]
    mean, scale = (np.asarray(learnt[name]) for name in ("mean", "scale"))
    if learnt["kind"] == "sequences":
        full = x.astype(np.float64) * scale + mean
        return [row[:n] for row, n in zip(full, inputs[1].tolist())]
    if learnt["kind"] == "rows":
        return x.astype(np.float64) * scale + mean
    images = x.astype(np.float64) * scale[:, None, None] + mean[:, None, None]
    shape, first, flat = learnt["layout"]
    if len(shape) == 2:
        images = images[:, 0]
    elif not first:
        images = np.moveaxis(images, 1, 3)
    return images.reshape(len(images), -1) if flat else images


# -- rows and images ------------------------------------------------------------------


def _matrix(model: Fit, X: MatrixLike, name: str, reset: bool) -> Array:
    """Table rows as a float64 matrix."""
    least = 2 if reset else 1
    options: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": least}
    if model is not None:
        return np.asarray(validate_data(model, X, reset=reset, **options))
    X = X if hasattr(X, "columns") else np.asarray(X)
    if X.ndim == 1:
        X = X.reshape(-1, 1)
    return np.asarray(check_array(X, input_name=name, **options))


def _column_scale(values: Array) -> tuple[Array, Array]:
    """Mean and deviation of each column; 1 where it is constant."""
    largest = np.maximum(np.abs(values).max(axis=0), 1e-300)  # squares stay in range
    shares = values / largest
    mean = shares.mean(axis=0)
    scale = np.sqrt(np.square(shares - mean).mean(axis=0))
    constant = scale <= 1e-12 * np.abs(mean)
    constant |= values.min(axis=0) == values.max(axis=0)
    return mean * largest, np.where(constant, 1.0, scale * largest)


def _learn_images(
    model: Any, X: Matrix, image_shape: Any, channels: Any
) -> tuple[Learnt, Array]:
    image_reading.check_image_shape(image_shape)
    told = {"channels": channels, "layout": None}
    images, layout = _images(model, X, image_shape, told, reset=True)
    if len(images) < 2:
        raise ValueError("X must hold at least 2 images, got n_samples = 1.")
    if (images == images[:1]).all():
        raise ValueError(
            "All images of X are equal, so there is nothing to learn. Pass images that "
            "differ."
        )
    mean, scale = channel_scale(images, np.ones(len(images)))
    learnt = {
        "kind": "images",
        "sizes": tuple(int(side) for side in images.shape[1:]),
        "image_shape": image_shape,
        "channels": channels,
        "layout": layout,
        "mean": mean,
        "scale": scale,
    }
    return learnt, images


def _images(
    model: Fit,
    X: MatrixLike,
    image_shape: tuple[int, ...] | None,
    told: Learnt,
    reset: bool,
) -> tuple[Array, Any]:
    """Images (n, channels, height, width) and how they came: shape, order, flat."""
    if image_reading.is_files(X):
        colour = None if reset else told["sizes"][0] > 1
        X = image_reading.read_images(X, image_shape=image_shape, colour=colour)[0]
    found = image_reading.as_images(X, image_shape, told["channels"])
    if found is not None:
        images, layout = found
        known: Any = (tuple(layout.shape), bool(layout.first), False)
        if reset and model is not None:
            columns = images.reshape(len(images), -1)
            validate_data(model, columns, skip_check_array=True)
    else:
        X = _flat(model, X, reset)
        if reset:
            layout = image_reading.layout_of(X.shape[1:], image_shape, told["channels"])
            known = (tuple(layout.shape), bool(layout.first), True)
        else:
            known = told["layout"]
            layout = image_reading.Layout(tuple(known[0]), known[1])
        images = image_reading.arranged(X, layout)
    if images.dtype.kind == "f":
        assert_all_finite(images, input_name="X")
    return images, known


def _flat(model: Fit, X: MatrixLike, reset: bool) -> Array:
    if model is None:
        return np.asarray(check_array(X, ensure_all_finite=False))
    options: dict[str, Any] = {"ensure_all_finite": False}
    return np.asarray(validate_data(model, X, reset=reset, **options))


# -- sequences ------------------------------------------------------------------------


def _learn_sequences(X: MatrixLike, name: str) -> tuple[Learnt, list[Array]]:
    cells = _cells(X, name)
    if len(cells) and all(hasattr(x, "__len__") and len(x) == 0 for x in cells):
        raise ValueError(
            f"All sequences of {name} are empty, so there is nothing to learn. Pass "
            "sequences that differ."
        )
    if holds_tokens(cells):
        sequences = read_sequences(cells, name)
        learnt: Learnt = {"kind": "sequences", "tokens": tokens_of(sequences)}
        if len(sequences) < 2 or all(x == sequences[0] for x in sequences):
            _refuse_equal(name)
        return learnt, _sequences(learnt, X, name)
    values = list(read_numbers(cells, None, name))
    steps = np.concatenate(values).astype(np.float64)
    if not len(steps) or len(values) < 2:
        _refuse_equal(name)
    if all(np.array_equal(x, values[0]) for x in values):
        _refuse_equal(name)
    mean, scale = _column_scale(steps)
    return {"kind": "sequences", "tokens": None, "mean": mean, "scale": scale}, values


def _refuse_equal(name: str) -> None:
    raise ValueError(
        f"{name} must hold at least 2 sequences that differ; there is nothing to learn "
        "from fewer."
    )


def _cells(X: MatrixLike, name: str) -> Any:
    if not is_table(X):
        return listed(X, name)
    cells = np.asarray(X)
    if cells.dtype.kind in "fiub":
        if cells.ndim not in (2, 3):
            raise ValueError(
                f"{name} must be a list of sequences, or an array of shape (samples, "
                f"time) or (samples, time, features), got {cells.ndim} axes."
            )
        return cells[:, :, None] if cells.ndim == 2 else cells
    return list(cells)


def _sequences(learnt: Learnt, X: MatrixLike, name: str) -> list[Array]:
    cells = _cells(X, name)
    if learnt["tokens"] is None:
        return list(read_numbers(cells, len(learnt["mean"]), name))
    return numbered(read_sequences(cells, name), learnt["tokens"], first=1, unknown=0)
