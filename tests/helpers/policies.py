"""Policies that are tables of scores: small enough that all answers can be listed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import nn

from certus.language.tuning.policy_base import answer_pairs
from certus.language.tuning.policy_losses import Rollout, divergences, reference_laws


class Table(nn.Module):
    """Scores of the next token that depend on the last one; the last is the end."""

    def __init__(self, n_tokens: int, seed: int = 0, size: float = 1.0) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(seed)
        start = size * torch.randn(n_tokens, n_tokens, generator=made).double()
        self.theta = nn.Parameter(start)
        self.end = n_tokens - 1

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, None]:
        return self.theta[tokens], None

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        return states


def all_answers(n_tokens: int, length: int) -> list[np.ndarray]:
    """Every answer: ended by the last token, or of the full length."""
    end, found = n_tokens - 1, []
    for size in range(1, length + 1):
        for y in itertools.product(range(n_tokens), repeat=size):
            if end not in y[:-1] and (y[-1] == end or size == length):
                found.append(np.array(y))
    return found


def exact_objective(
    module: Table, reference: Table, reward: Any, beta: float, length: int, floor: float
) -> torch.Tensor:
    """J by listing all answers; differentiable."""
    V, J = len(module.theta), torch.zeros((), dtype=torch.float64)
    lp = torch.log_softmax(module.theta, dim=1)
    q = (1 - floor) * torch.softmax(reference.theta.detach(), dim=1) + floor / V
    for y in all_answers(V, length):
        before = [module.end, *y[:-1]]
        log_pi = sum(lp[a, b] for a, b in zip(before, y))
        log_q = sum(q[a, b].log() for a, b in zip(before, y))
        J = J + log_pi.exp() * (reward(y) - beta * (log_pi - log_q))
    return J


def drawn(module: Table, n: int, length: int, rng: np.random.Generator) -> list[Any]:
    """Answers of a table, token by token."""
    P = torch.softmax(module.theta, dim=1).detach().numpy().cumsum(axis=1)
    found = []
    for u in rng.random((n, length)):
        y, last = [], module.end
        for number in u:
            last = min(int(np.searchsorted(P[last], number, side="right")), module.end)
            y.append(last)
            if last == module.end:
                break
        found.append(np.array(y))
    return found


def rollout(
    module: Table, reference: Table, answers: list[Any], advantage: Any, floor: float
) -> Rollout:
    """Answers as a rollout; ``advantage(kl, row)`` gives those of the tokens."""
    nothing = [np.zeros(0, np.int64)] * len(answers)
    batch = answer_pairs(nothing, answers, module.end, 64).fetch(
        np.arange(len(answers))
    )
    log_q = reference_laws(reference, batch, floor)
    mask: Any = batch.extra
    with torch.no_grad():
        lp = torch.log_softmax(module.theta[batch.inputs[0]][mask], dim=-1)
    row = mask.nonzero()[:, 0]
    kl = divergences(lp, log_q)
    old = lp.gather(1, batch.y[mask][:, None])[:, 0]
    return Rollout(batch.inputs, batch.y, None, mask, old, advantage(kl, row), log_q)
