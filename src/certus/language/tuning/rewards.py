"""Rewards of answers: states of a network, a head on them, and the pairwise loss.

    r(x, y) = wᵀφ(x, y),   loss −log σ(r(x, y⁺) − r(x, y⁻))

for a chosen answer y⁺ and a rejected one y⁻. φ is the last layer's vector at the last
token of the answer, or the mean of the vectors from which the tokens of the answer and
its end are predicted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus import config
from certus.language.tuning.answers import AnswerPairs
from certus.language.tuning.tuned import WORTH_HOLDING, PairRows
from certus.linear_model import LogisticRegression
from certus.neural_network.batches import Batch
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import evaluating
from certus.typing import Array

POOLING = ("last", "mean")
#: Tokens whose states are computed together.
TOGETHER = 1 << 13


def answer_states(network: Any, batch: Batch, pooling: str) -> Tensor:
    """φ of each pair of a batch, (rows, width); with gradients."""
    mask: Any = batch.extra
    states, _ = network.states(*batch.inputs)
    if pooling == "mean":
        shares = mask / mask.sum(dim=1, keepdim=True)
        return torch.einsum("bt,btd->bd", shares.to(states.dtype), states)
    last = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(dim=1)
    return states[torch.arange(len(states), device=last.device), last]


class RewardNetwork(nn.Module):
    """A network and a head that starts at zero, so that the first loss is log 2."""

    def __init__(self, network: nn.Module, width: int, pooling: str) -> None:
        super().__init__()
        self.network, self.pooling = network, pooling
        self.head = nn.Parameter(torch.zeros(width))

    def forward(self, batch: Batch) -> Tensor:
        """The reward of each pair of a batch."""
        return answer_states(self.network, batch, self.pooling) @ self.head


def pairwise_loss(module: nn.Module, batch: Batch) -> Losses:
    """Mean −log σ(r⁺ − r⁻); the first half of the rows are the chosen answers."""
    chosen, rejected = module(batch).chunk(2)
    return {"loss": F.softplus(rejected - chosen).mean()}


def rows_of_choices(
    pairs: AnswerPairs, chosen: Array, device: torch.device | str
) -> PairRows:
    """Some choices as rows; pair i and pair n + i answer the same prompt."""
    n, numbers = len(pairs) // 2, torch.as_tensor(chosen)

    def fetch(rows: Any) -> Batch:
        some = numbers[torch.as_tensor(rows)]
        return pairs.fetch(torch.cat([some, some + n]), device)._replace(s=None)

    lengths = torch.maximum(pairs.lengths[:n], pairs.lengths[n:])
    return PairRows(fetch, lengths[numbers])


@torch.no_grad()
def all_states(network: Any, pairs: AnswerPairs, pooling: str) -> Array:
    """φ of all pairs in float64, (pairs, width); equal pairs are computed once."""
    device = next(network.parameters()).device
    known: dict[tuple[bytes, int], int] = {}
    for stream, begin in zip(pairs.streams, pairs.begins.tolist()):
        known.setdefault((stream.tobytes(), begin), len(known))
    keys = zip(pairs.streams, pairs.begins.tolist())
    number = np.array([known[stream.tobytes(), begin] for stream, begin in keys])
    first = torch.from_numpy(np.unique(number, return_index=True)[1])
    found = np.empty((len(first), network.config["width"]))
    order = pairs.lengths[first].argsort(stable=True)
    with evaluating(network):
        for part in order.split(max(1, TOGETHER // int(pairs.lengths.max()))):
            states = answer_states(network, pairs.fetch(first[part], device), pooling)
            found[part.numpy()] = states.double().cpu().numpy()
    return found[number]


def fitted_head(D: Array, alpha: float, tol: float) -> tuple[Array, int]:
    """The head w that minimises mean log(1 + exp(−Dw)) + ½·alpha·‖w‖²; iterations.

    A logistic regression without an intercept. A row and its negative with the other
    label have the same loss, so that each row is given once with either label.
    """
    sign = np.where(np.arange(len(D)) % 2, -1.0, 1.0)
    if len(D) == 1:
        D, sign = np.vstack([D, D]), np.array([1.0, -1.0])
    model = LogisticRegression(
        C=1 / (alpha * len(D)), fit_intercept=False, tol=tol / 10, max_iter=10_000
    )
    with config.config_context(certify="never"):
        model.fit(D * sign[:, None], sign)
    return np.asarray(model.coef_, dtype=np.float64)[0], int(np.max(model.n_iter_))


def hold_out(
    prompts: list[bytes], share: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Rows to fit and to judge by: whole prompts, or rows where all have one prompt.

    All rows of a prompt stand on one side, so that the judged prompts are new ones.
    Nothing is held out of fewer than 20 prompts or rows.
    """
    known = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
    unit = np.array([known[prompt] for prompt in prompts])
    if len(known) == 1:
        unit = np.arange(len(prompts))
    n = int(unit.max()) + 1
    many = max(1, round(share * n)) if share and n >= WORTH_HOLDING else 0
    left = np.isin(unit, rng.permutation(n)[:many])
    return np.flatnonzero(~left), np.flatnonzero(left)
