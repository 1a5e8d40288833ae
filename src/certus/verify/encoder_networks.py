"""Encoders as arrays: a perceptron or a convolutional network, run again in float64.

    vectors_agree   the largest |transform(x) − f(x)|, as a share of 1 + the largest |f|

f is computed here from the model's configuration, its weights and what it has learnt
about the scale of X, with balls that hold every rounding error: convolutions as
products of windows, maxima of balls by their ends, √x within r/√(x − r). So a stale
kernel, a network left in training mode, weights of half precision or rows that are
scaled in another way are found. Networks of other kinds are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.deciding import Number, U, gamma
from certus.verify.stating import Refusal, require

#: Rows that are computed again on each level.
SOME = {"quick": 8, "full": 128}
#: Largest difference, as a share of 1 + the largest entry: float32 and some layers.
NEAR = 1e-4
#: Added to the variance in a group normalisation.
NORM_FLOOR = 1e-5


def agreement_claim(model: Any, X: Any, level: str, unit: bool = False) -> Claim:
    """Whether vectors, ``unit`` if of length 1, are those of the stored weights."""
    name = "vectors_agree"
    config, weights = dict(model.config_), model.weights_
    try:
        rows = _scaled(dict(model.inputs_), X, SOME[level])
        run = NETWORKS.get(config.get("network", ""))
        if run is None:
            raise Refusal("its network is not one that is computed again here")
        found = run(config, _finite(weights), rows)
    except Refusal as refusal:
        return bd.refused(name, refusal.reason, 'module="auto" for images or rows')
    n = len(found.x)
    said = np.asarray(model.transform(X[:n]), dtype=np.float64)
    require(said.shape == found.x.shape, "it does not give each row a vector")
    own, off = _unit(found) if unit else (found.x, found.r)
    size = 1 + float(np.abs(own).max())
    apart = float(np.abs(own - said).max()) if np.isfinite(said).all() else math.inf
    number = Number(apart / size, (float(off.max()) + 4 * U * apart) / size)
    return bd.proved(
        *(name, number, NEAR),
        f"the vectors of {n} rows are those of the stored weights, {apart / size:.1e} "
        "off",
        missed=f"a vector is {apart / size:.2g} away from that of the stored weights",
        objective="largest |transform(x) − f(x)| / (1 + largest |f|), f the network in "
        "float64",
        theorem="the network was run again from its configuration and weights, its "
        "rounding bounded for each entry",
        fix="restore the model file, or fit again",
    )


def _finite(weights: Mapping[str, Any]) -> dict[str, Array]:
    found = {k: np.asarray(w, dtype=np.float64) for k, w in weights.items()}
    sound = all(np.isfinite(w).all() for w in found.values())
    require(sound, "its weights are not numbers")
    return found


def _unit(z: ErrorBall) -> tuple[Array, Array]:
    """Rows of length 1, and how far an entry may be off."""
    size = np.linalg.norm(z.x, axis=1, keepdims=True)
    off = np.linalg.norm(z.r, axis=1, keepdims=True)
    room = size * (1 - gamma(z.x.shape[1] + 2)) - off
    own = z.x / np.where(size > 0, size, 1.0)
    lost = 2.01 * off / np.where(room > 0, room, np.nan) + gamma(z.x.shape[1] + 6)
    return own, np.where(room > 0, lost, np.inf) + np.zeros_like(own)


# -- rows -----------------------------------------------------------------------------


def _scaled(learnt: Mapping[str, Any], X: Any, many: int) -> ErrorBall:
    """Some rows or images (n, channels, height, width), less the mean, by the scale."""
    if learnt["kind"] not in ("rows", "images") or not hasattr(X, "shape"):
        raise Refusal("sequences and files are not computed again")
    x = np.asarray(X[:many] if not hasattr(X, "iloc") else X.iloc[:many], dtype=float)
    mean, scale = (np.asarray(learnt[k], dtype=np.float64) for k in ("mean", "scale"))
    if learnt["kind"] == "images":
        shape, first, _ = learnt["layout"]
        if math.prod(x.shape[1:]) != math.prod(shape):
            raise Refusal("images that were resized are not computed again")
        x = x.reshape(len(x), *shape)
        if len(shape) == 2:
            x = x[:, None]
        elif not first:
            x = np.moveaxis(x, 3, 1)
        mean, scale = mean[:, None, None], scale[:, None, None]
    return (ErrorBall(x) - mean) / np.broadcast_to(scale, x.shape)


# -- networks -------------------------------------------------------------------------


def _perceptron(
    config: Mapping[str, Any], w: Mapping[str, Array], x: ErrorBall
) -> ErrorBall:
    """A multilayer perceptron with ReLU."""
    plain = config["activation"] == "relu" and config["normalization"] is None
    if not plain or config.get("residual") or config.get("dense"):
        raise Refusal("its layers are not plain ones with ReLU")
    hidden = config["hidden"]
    count = 1 if isinstance(hidden, int) else len(tuple(hidden))
    for i in range(count):
        key = f"layers.{i}.linear"
        x = x.times(w[f"{key}.weight"], w[f"{key}.bias"]).clip(0.0, math.inf)
    return x.times(w["output.weight"], w["output.bias"])


def _convolutional(
    config: Mapping[str, Any], w: Mapping[str, Array], x: ErrorBall
) -> ErrorBall:
    """Stages of convolution, pooling, group normalisation and ReLU; two layers."""
    height, width = config["image_shape"]
    for i, filters in enumerate(config["channels"]):
        kernel = (1 if height == 1 else 3, 1 if width == 1 else 3)
        pool = (min(2, height), min(2, width))
        W, b = w[f"features.{4 * i}.weight"], w[f"features.{4 * i}.bias"]
        require(W.shape[2:] == kernel and len(W) == filters, "a filter has other sizes")
        x = _pooled(_convolved(x, W, b), pool)
        scale, shift = (w[f"features.{4 * i + 2}.{p}"] for p in ("weight", "bias"))
        x = _normalised(x, _groups(int(filters)), scale, shift).clip(0.0, math.inf)
        height, width = height // pool[0], width // pool[1]
    x = ErrorBall(x.x.reshape(len(x.x), -1), x.r.reshape(len(x.x), -1))
    x = x.times(w["hidden.weight"], w["hidden.bias"]).clip(0.0, math.inf)
    return x.times(w["output.weight"], w["output.bias"])


NETWORKS = {"MLP": _perceptron, "ConvNet": _convolutional}


def _convolved(x: ErrorBall, W: Array, b: Array) -> ErrorBall:
    """A convolution that keeps the size, as a product with all windows."""
    kernel = W.shape[2:]
    edge = [(0, 0), (0, 0), *((k // 2, k // 2) for k in kernel)]
    flat = []
    for part in (x.x, x.r):
        seen = np.lib.stride_tricks.sliding_window_view(
            np.pad(part, edge), kernel, axis=(2, 3)
        )  # (n, channels, height, width, kernel)
        flat.append(np.moveaxis(seen, 1, 3))
    shape = flat[0].shape[:3]
    balls = ErrorBall(*(part.reshape(*shape, -1) for part in flat))
    y = balls.times(W.reshape(len(W), -1), b)
    return ErrorBall(np.moveaxis(y.x, 3, 1), np.moveaxis(y.r, 3, 1))


def _pooled(x: ErrorBall, pool: tuple[int, int]) -> ErrorBall:
    """Maxima over windows: no farther apart than the entries are."""
    n, c, height, width = x.x.shape
    rows, columns = height // pool[0], width // pool[1]
    shape = (n, c, rows, pool[0], columns, pool[1])
    best = [
        part[:, :, : rows * pool[0], : columns * pool[1]].reshape(shape).max((3, 5))
        for part in (x.x, x.r)
    ]
    return ErrorBall(*best)


def _normalised(x: ErrorBall, groups: int, scale: Array, shift: Array) -> ErrorBall:
    """Each group of channels less its mean, divided by its deviation."""
    shape = x.x.shape
    flat = ErrorBall(*(p.reshape(shape[0], groups, -1) for p in (x.x, x.r)))
    m = flat.x.shape[2]
    mean = flat.sum() / float(m)
    centred = flat - mean[..., None]
    spread = _root((centred * centred).sum() / float(m) + NORM_FLOOR)
    y = centred / spread[..., None]
    y = ErrorBall(y.x.reshape(shape), y.r.reshape(shape))
    return y * scale[:, None, None] + shift[:, None, None]


def _root(v: ErrorBall) -> ErrorBall:
    """The square root of numbers of at least ``NORM_FLOOR``."""
    y, room = np.sqrt(v.x), v.x - v.r
    r = v.r / np.sqrt(np.where(room > 0, room, np.nan)) + 4 * U * y
    return ErrorBall(y, np.where(room > 0, r, np.inf))


def _groups(channels: int) -> int:
    """Groups of four channels or so, as many as divide them."""
    return next(g for g in range(max(1, channels // 4), 0, -1) if channels % g == 0)
