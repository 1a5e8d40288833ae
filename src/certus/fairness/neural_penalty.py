"""For networks: a penalty on the part of the outputs that an attribute explains.

    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·Σ Cov(u, z)²   over the rows of a batch

with the scores z and columns u of mean zero and unit covariance that span what the
attribute explains.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from sklearn.base import clone
from torch import Tensor

from certus._core.rows import row_weights
from certus.base import Fitted
from certus.certificate import Claim, Evidence
from certus.diagnostics import measure
from certus.diagnostics.networks import count_rows
from certus.fairness.attribute import basis_of
from certus.neural_network.batches import Batch
from certus.neural_network.objective import Change, Targets, weighted_mean
from certus.neural_network.run import Losses
from certus.typing import Array, ArrayLike, Fit, MatrixLike


def explained_variance(z: Tensor, u: Tensor, s: Tensor | None) -> Tensor:
    """Σ Cov(u, z)² over columns of u and scores; of two scores, their difference."""
    z = z.reshape(len(z), -1)  # (rows, scores)
    if z.shape[1] == 2:
        z = z[:, 1:] - z[:, :1]
    elif z.shape[1] > 2:  # free up to a constant for each row
        z = z - z.mean(dim=1, keepdim=True)
    share = (
        torch.full_like(z[:, :1], 1 / len(z)) if s is None else (s / s.sum())[:, None]
    )
    u = u.to(z.dtype)
    centred = u - (share * u).sum(dim=0)  # (rows, columns)
    covariance = centred.T @ (share * z)  # (columns, scores)
    return covariance.square().sum()


def with_penalty(alpha: float, U: Array) -> Change:
    """The targets of a network with the penalty beside its loss."""

    def change(targets: Targets) -> Targets:
        def objective(module: Any, batch: Batch) -> Losses:
            z = module(*batch.inputs)
            loss = weighted_mean(targets.loss(z, batch.y), batch.s)
            extra: Any = batch.extra
            part = explained_variance(z, extra, batch.s)
            return {"loss": loss + 0.5 * alpha * part, "explained": part}

        return targets._replace(objective=objective, extra=torch.as_tensor(U))

    return change


def fit_network(
    model: Any,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    sensitive: MatrixLike,
) -> Fitted:
    """Train a clone of ``model.estimator`` into ``model.estimator_``."""
    network = clone(model.estimator)
    if hasattr(network, "engine"):
        if network.engine == "explicit":
            raise ValueError(
                "engine='explicit' cannot add this penalty. Set engine='auto' to "
                "train with torch."
            )
        network.set_params(engine="torch")
    A = model._read_sensitive(X, sensitive)
    s = row_weights(sample_weight, len(A))
    if hasattr(network, "_learn_scale"):  # images are scaled before they are read
        network._learn_scale(X, sample_weight)
    change = with_penalty(float(model.alpha), basis_of(A, s))
    done: Fitted = network._fit(X, y, sample_weight, None, None, change)
    model.estimator_ = network
    if hasattr(network, "n_features_in_"):
        model.n_features_in_ = network.n_features_in_
    found = done.evidence
    evidence = Evidence("penalised_network", witness=found.witness)
    measured = partial(measure_network, model, found.witness, X, y, sample_weight, A)
    return Fitted(evidence, X, y, sample_weight, done.status, A, measured)


def measure_network(
    model: Fit,
    witness: Any,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    A: Array,
    level: str = "quick",
) -> list[Claim]:
    """Numbers about the whole objective of a network, penalty included."""
    s = row_weights(sample_weight, len(A))
    change = with_penalty(float(model.alpha), basis_of(A, s))
    network = model.estimator_

    def at(rows: Any) -> Any:
        return network._stated(X, y, sample_weight, rows, change)

    record = network._recorded(witness, X)
    return measure(at, count_rows(X, y), sample_weight, record, level)
