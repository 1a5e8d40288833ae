"""Gaussian components: parameters, their four kinds of covariance, and both EM steps.

    E:  r[i, k] = π_k N(x_i; μ_k, Σ_k) / Σ_l π_l N(x_i; μ_l, Σ_l)
    M:  π_k = Σᵢ r / n,   μ_k = Σᵢ r·x / Σᵢ r,   Σ_k = Σᵢ r (x − μ_k)(x − μ_k)ᵀ / Σᵢ r

Inside, "full" and "tied" are K matrices, "diag" and "spherical" K rows of variances, in
float64; scikit-learn's shapes appear only in :func:`to_public`. One pass over the rows
yields the log-likelihood and the sums the M-step needs, block by block.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from certus._core.rounding import EPS
from certus._core.threads import Stop, run_blocks, slices
from certus._solvers.block_design import require_sound
from certus.blocks import RowBlock, is_blocks, total
from certus.mixture import gaussian_kernels as kernels
from certus.typing import Array

KINDS = ("full", "tied", "diag", "spherical")
#: Rows that a kernel sees at once; how many numbers the sums of all tasks may take.
BLOCK, ROOM = 1024, 1 << 24
#: A component on fewer rows than this has no useful mean and stays unchanged.
DEAD = 1e-12
#: Relative error of a covariance beyond which its sums are taken again.
LOSS = 1e-8


class Components(NamedTuple):
    """π, μ, Σ, and U with Σ⁻¹ = UUᵀ; U and Σ are matrices, or rows of a diagonal."""

    weights: Array
    means: Array
    covariances: Array
    roots: Array


class MixtureSums(NamedTuple):
    """Of one pass: Σ log-likelihood, Σ r, and moments about ``about``."""

    total: float
    sizes: Array
    first: Array
    second: Array
    about: Array


class Singular(Exception):
    """A covariance has no inverse; ``component`` says whose."""

    def __init__(self, component: int) -> None:
        super().__init__(f"component {component}")
        self.component = component


def is_matrix(kind: str) -> bool:
    """Whether components of this kind have matrices for covariances."""
    return kind in ("full", "tied")


# -- E-step -----------------------------------------------------------------------


def _constants(theta: Components) -> Array:
    """Log π_k + log det U_k − d/2·log 2π."""
    d = theta.means.shape[1]
    roots = theta.roots
    if roots.ndim == 3:
        roots = np.diagonal(roots, axis1=1, axis2=2)
    with np.errstate(divide="ignore"):
        log_weights = np.log(theta.weights)
    return log_weights + np.log(roots).sum(axis=1) - 0.5 * d * math.log(2 * math.pi)


class _Room(NamedTuple):
    """Scratch of one thread's task."""

    A: Array
    D: Array
    Y: Array
    rows: Array


def _room(k: int, d: int) -> _Room:
    return _Room(
        np.empty((BLOCK, k)),
        np.empty((BLOCK, d)),
        np.empty((BLOCK, d)),
        np.empty(BLOCK),
    )


def _joint(block: Array, theta: Components, constants: Array, room: _Room) -> Array:
    A = room.A[: len(block)]
    if theta.roots.ndim == 3:
        kernels.joint_full(
            block, theta.means, theta.roots, constants, room.D, room.Y, A
        )
    else:
        kernels.joint_diag(block, theta.means, theta.roots, constants, A)
    return A


def _plain(X: Array, rows: slice) -> Array:
    return np.ascontiguousarray(X[rows], dtype=np.float64)


def _shares(
    block: Array, theta: Components, constants: Array, hard: bool, room: _Room
) -> tuple[Array, float]:
    """Responsibilities of a block of rows, and Σ log-likelihood."""
    R, level = _joint(block, theta, constants, room), room.rows[: len(block)]
    if hard:
        kernels.choose(R, level)
    else:
        kernels.subtract_top(R, level)
        np.exp(R, out=R)
        kernels.normalise(R, level)
    return R, float(level.sum())


def log_joint(X: Array, theta: Components) -> Array:
    """Log π_k N(x_i; μ_k, Σ_k), an array of rows × components."""
    k, d = theta.means.shape
    out = np.empty((X.shape[0], k))
    constants = _constants(theta)

    def work(task: slice, stop: Stop) -> None:
        room = _room(k, d)
        for rows in slices(task.stop - task.start, BLOCK):
            if stop():
                return
            here = slice(task.start + rows.start, task.start + rows.stop)
            out[here] = _joint(_plain(X, here), theta, constants, room)

    run_blocks(work, _tasks(X.shape[0], 1))
    return out


def mean_likelihood(X: Array, theta: Components, hard: bool = False) -> float:
    """The objective at ``theta``, without the sums of an M-step."""
    if is_blocks(X):
        return float(total(X, _likelihood_of, theta, hard)) / X.shape[0]
    constants = _constants(theta)
    tasks = _tasks(X.shape[0], 1)
    totals = np.zeros(len(tasks))

    def work(number: int, stop: Stop) -> None:
        room, task = _room(*theta.means.shape), tasks[number]
        for start in range(task.start, task.stop, BLOCK):
            if stop():
                return
            block = _plain(X, slice(start, min(start + BLOCK, task.stop)))
            totals[number] += _shares(block, theta, constants, hard, room)[1]

    run_blocks(work, range(len(tasks)))
    return float(totals.sum() / X.shape[0])


# -- one pass ---------------------------------------------------------------------


def _tasks(n: int, numbers: int) -> list[slice]:
    """Slices of whole blocks, as many as their sums fit into memory.

    They do not depend on the number of threads, so neither does a result.
    """
    count = min(32, max(2, ROOM // max(1, numbers)))
    return slices(n, BLOCK * max(1, -(-n // (BLOCK * count))))


def run_pass(
    X: Array, theta: Components, hard: bool = False, about: Array | None = None
) -> MixtureSums:
    """E-step at ``theta`` and the sums of the M-step, about its means by default."""
    about = theta.means if about is None else about
    if is_blocks(X):
        found: MixtureSums = total(X, _pass_of, theta, hard, about)
        return found._replace(about=about)
    constants = _constants(theta)

    def fill(block: Array, rows: slice, room: _Room) -> tuple[Array, float]:
        return _shares(block, theta, constants, hard, room)

    matrix = theta.covariances.ndim == 3
    return _reduce(X, about, matrix, fill, len(theta.weights))


def rows_of_block(block: RowBlock) -> Array:
    """X of a block, without NaN or inf and without weights."""
    if block.s is not None:
        raise ValueError("This model takes no sample_weight; leave it out of blocks.")
    X = np.asarray(block.X)
    require_sound(X, np.ones(1))
    return X


def _pass_of(
    block: RowBlock, theta: Components, hard: bool, about: Array
) -> MixtureSums:
    return run_pass(rows_of_block(block), theta, hard, about)


def _likelihood_of(block: RowBlock, theta: Components, hard: bool) -> float:
    X = rows_of_block(block)
    return mean_likelihood(X, theta, hard) * len(X)


def sums_of(X: Array, R: Array, about: Array, matrix: bool) -> MixtureSums:
    """The sums of the M-step for responsibilities that are given."""

    def fill(block: Array, rows: slice, room: _Room) -> tuple[Array, float]:
        return _plain(R, rows), 0.0

    return _reduce(X, about, matrix, fill, R.shape[1])


def _reduce(X: Array, about: Array, matrix: bool, fill: Any, k: int) -> MixtureSums:
    """Map over blocks, add in their order."""
    n, d = X.shape
    shape = (k, d, d) if matrix else (k, d)
    tasks = _tasks(n, math.prod(shape))
    parts: list[Any] = [None] * len(tasks)

    def work(number: int, stop: Stop) -> None:
        room, total = _room(k, d), 0.0
        sizes, first, second = np.zeros(k), np.zeros((k, d)), np.zeros(shape)
        task = tasks[number]
        for part in slices(task.stop - task.start, BLOCK):
            if stop():
                return
            rows = slice(task.start + part.start, task.start + part.stop)
            block = _plain(X, rows)
            R, likelihood = fill(block, rows, room)
            total += likelihood
            if matrix:
                kernels.moments_full(block, about, R, room.D, sizes, first, second)
            else:
                kernels.moments_diag(block, about, R, sizes, first, second)
        parts[number] = (total, sizes, first, second)

    run_blocks(work, range(len(tasks)))
    total, sizes, first, second = 0.0, np.zeros(k), np.zeros((k, d)), np.zeros(shape)
    for part in parts:
        total += part[0]
        sizes += part[1]
        first += part[2]
        second += part[3]
    return MixtureSums(total, sizes, first, second, about)


# -- M-step -----------------------------------------------------------------------


def new_means(sums: MixtureSums, before: Array) -> Array:
    """Σ r·x / Σ r; a component without rows stays where it is."""
    alive = sums.sizes > DEAD
    shift = sums.first / np.where(alive, sums.sizes, 1.0)[:, None]
    return np.where(alive[:, None], sums.about + shift, before)


def maximise(
    sums: MixtureSums, kind: str, reg_covar: float, before: Components
) -> Components:
    """The M-step; components without rows keep mean and shape, with weight 0."""
    if not all(np.isfinite(part).all() for part in sums):
        raise OverflowError("a sum of squares is infinite")
    alive = sums.sizes > DEAD
    sizes = np.where(alive, sums.sizes, 1.0)
    weights = np.where(alive, sums.sizes, 0.0)
    shift = sums.first / sizes[:, None]
    if is_matrix(kind):
        outer = shift[:, :, None] * shift[:, None, :]
        spread = sums.second / sizes[:, None, None] - outer
    else:
        spread = sums.second / sizes[:, None] - shift**2
    if kind == "tied":
        pooled = np.tensordot(weights, spread, axes=1) / weights.sum()
        spread = np.repeat(pooled[None], len(sizes), axis=0)
        alive = np.ones_like(alive)
    elif kind == "spherical":
        spread = np.repeat(spread.mean(axis=1)[:, None], spread.shape[1], axis=1)
    which = alive.reshape(-1, *[1] * (spread.ndim - 1))
    covariances = np.where(
        which, add_to_diagonal(spread, reg_covar), before.covariances
    )
    return Components(
        weights / weights.sum(),
        new_means(sums, before.means),
        covariances,
        inverse_roots(covariances, tied=kind == "tied"),
    )


def _moved(theta: Components, shift: Array) -> float:
    """Largest squared move of a mean, in units of its new standard deviations."""
    if theta.roots.ndim == 3:
        moved = np.matmul(shift[:, None, :], theta.roots)[:, 0]
    else:
        moved = shift * theta.roots
    return float(np.square(moved).sum(axis=1).max())


def add_to_diagonal(covariances: Array, amount: float) -> Array:
    """Σ + amount·I."""
    if covariances.ndim == 2:
        return covariances + amount
    out = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    d = out.shape[1]
    out[:, np.arange(d), np.arange(d)] += amount
    return out


def inverse_roots(covariances: Array, tied: bool = False) -> Array:
    """U, upper triangular, with Σ⁻¹ = UUᵀ; :class:`Singular` if there is none."""
    if covariances.ndim == 2:
        bad = ~(covariances > 0).all(axis=1)
        if bad.any():
            raise Singular(int(np.argmax(bad)))
        return np.asarray(1.0 / np.sqrt(covariances))
    if tied:
        one = inverse_roots(covariances[:1])
        return np.repeat(one, len(covariances), axis=0)
    roots = np.empty_like(covariances)
    d = covariances.shape[1]
    for k, covariance in enumerate(covariances):
        try:
            lower = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise Singular(k) from None
        # A pivot that is rounding beside its variance says that there is no inverse.
        pivots = np.square(np.diag(lower)) / np.diag(covariance)
        if not pivots.min() > 4 * d * EPS:
            raise Singular(k)
        roots[k] = solve_triangular(lower, np.eye(d), lower=True).T
    return roots


def em_step(
    X: Array, theta: Components, kind: str, reg_covar: float, hard: bool = False
) -> tuple[Components, float]:
    """One EM step: the next parameters, and the mean log-likelihood of ``theta``.

    Sums about the old means lose digits where a mean moves by many of its new standard
    deviations; they are then taken again, about the new means.
    """
    sums = run_pass(X, theta, hard)
    bound = sums.total / X.shape[0]
    means = new_means(sums, theta.means)
    try:
        found = maximise(sums, kind, reg_covar, theta)
        if _moved(found, means - theta.means) * EPS * means.shape[1] < LOSS:
            return found, bound
    except Singular:
        if np.array_equal(means, theta.means):
            raise
    sums = run_pass(X, theta, hard, about=means)
    return maximise(sums, kind, reg_covar, theta), bound


# -- scikit-learn's shapes --------------------------------------------------------


def public_shape(kind: str, k: int, d: int) -> tuple[int, ...]:
    """Of ``covariances_``, ``precisions_`` and ``precisions_cholesky_``."""
    return {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[kind]


def to_public(theta: Components, kind: str, dtype: Any) -> dict[str, Array]:
    """``weights_`` … ``precisions_cholesky_`` in scikit-learn's shapes."""
    covariances, roots = theta.covariances, theta.roots
    if kind == "tied":
        covariances, roots = covariances[0], roots[0]
    elif kind == "spherical":
        covariances, roots = covariances[:, 0], roots[:, 0]
    precisions = roots @ np.swapaxes(roots, -1, -2) if is_matrix(kind) else roots**2
    found = {
        "weights_": theta.weights,
        "means_": theta.means,
        "covariances_": covariances,
        "precisions_": precisions,
        "precisions_cholesky_": roots,
    }
    return {name: value.astype(dtype) for name, value in found.items()}


def expand(values: Any, kind: str, k: int, d: int) -> Array:
    """Covariances, precisions or roots from scikit-learn's shapes to ours."""
    values = np.asarray(values, dtype=np.float64)
    if kind == "tied":
        return np.repeat(values[None], k, axis=0)
    if kind == "spherical":
        return np.repeat(values[:, None], d, axis=1)
    return np.array(values)


def from_public(model: Any, kind: str) -> Components:
    """The parameters of a fitted model, in float64 and our shapes."""
    means = np.array(model.means_, dtype=np.float64)
    k, d = means.shape
    return Components(
        np.array(model.weights_, dtype=np.float64),
        means,
        expand(model.covariances_, kind, k, d),
        np.ascontiguousarray(expand(model.precisions_cholesky_, kind, k, d)),
    )
