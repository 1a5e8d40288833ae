"""The losses of policies: preferences, the clipped ratio, and exact divergences.

    J(π) = E_x [E_{y~π} r(x, y) − β Σₜ KL(π‖ρ) at token t],   ρ = (1 − η) π_ref + η/V

    ∇J = E Σₜ [Aₜ ∇log π(yₜ) − β ∇KLₜ],   Aₜ = r − β Σ_{s>t} KLₛ − baseline

The divergence at a token is a sum over the whole vocabulary. It depends on the tokens
before it, so that those after a token count towards its advantage; its own gradient is
exact. The baseline of an answer comes from the other answers to the same prompt: it
does not depend on the answer, and a shift of the reward for each prompt cancels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from certus.language.training import next_token_loss
from certus.language.tuning.answers import answer_scores, summed
from certus.neural_network.batches import Batch
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import evaluating


class Rollout(NamedTuple):
    """Answers that a policy drew, as one batch, and what each of their tokens needs.

    The first four are those of a :class:`Batch`; ``pretraining`` is one of windows of
    text, or None.
    """

    inputs: tuple[Tensor, ...]
    y: Tensor
    s: Tensor | None
    extra: Tensor
    old: Tensor  # (tokens,): log-probability when the token was drawn
    advantage: Tensor  # (tokens,)
    reference: Tensor  # (tokens, n_tokens): log ρ
    pretraining: Batch | None = None


class Preferences(NamedTuple):
    """Chosen answers, then the rejected ones, and their log ρ."""

    inputs: tuple[Tensor, ...]
    y: Tensor
    s: Tensor | None
    extra: Tensor
    reference: Tensor  # (2 · pairs,)


def floored(log_probs: Tensor, floor: float) -> Tensor:
    """Log((1 − η) p + η/V) over the last axis."""
    if not floor:
        return log_probs
    least = math.log(floor / log_probs.shape[-1])
    return torch.logaddexp(
        log_probs + math.log1p(-floor), torch.full_like(log_probs, least)
    )


@torch.no_grad()
def reference_laws(network: Any, batch: Any, floor: float) -> Tensor:
    """Log ρ of all tokens at the places of the answers, (tokens, n_tokens)."""
    with evaluating(network):
        scores = answer_scores(network, batch).scores
    return floored(F.log_softmax(scores, dim=-1), floor)


def divergences(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p‖q) at each place, a sum over the vocabulary.

    Each term is p log(p/q) − p + q, none of which is negative; the last two cancel in
    the sum, and in the gradient.
    """
    p = log_p.exp()
    return (p * (log_p - log_q) - p + log_q.exp()).sum(dim=-1)


def clipped_surrogate(
    log_probs: Tensor, old: Tensor, advantage: Tensor, clip_ratio: float
) -> Tensor:
    """Min(ρA, clip(ρ, 1 − ε, 1 + ε)A) of each token, ρ = exp(log_probs − old).

    Its gradient at ρ = 1 is A ∇log π. It is zero where the ratio is already further
    than ε in the direction that A favours.
    """
    ratio = (log_probs - old).exp()
    near = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    return torch.minimum(ratio * advantage, near * advantage)


def to_go(values: Tensor, row: Tensor, n: int) -> Tensor:
    """The sum over the later tokens of the same answer, the token itself excluded."""
    total = summed(values, row, n)
    before = torch.cumsum(values, dim=0)
    first = torch.cat([total.new_zeros(1), torch.cumsum(total, 0)[:-1]])
    return total[row] - (before - first[row])


def advantages(
    reward: Tensor, kl: Tensor, row: Tensor, group: int, beta: float
) -> Tensor:
    """Aₜ = Gₜ minus the mean of the other answers' Gₜ, Gₜ = r − β Σ_{s>t} KLₛ.

    Parameters
    ----------
    reward : Tensor of shape (answers,)
        Groups of ``group`` answers to the same prompt stand behind each other. With one
        answer for each prompt, all other answers are the baseline.
    kl : Tensor of shape (tokens,)
        The exact divergence at each token.
    row : int Tensor of shape (tokens,)
        The answer that each token belongs to, in ascending order.
    group : int
        Answers to each prompt.
    beta : float
        β.
    """
    n = len(reward)
    many = group if group > 1 else n
    count = torch.bincount(row, minlength=n)
    first = torch.cat([count.new_zeros(1), torch.cumsum(count, 0)[:-1]])
    place = torch.arange(len(row), device=row.device) - first[row]
    longest = int(count.max())
    # (answers, places): what an answer still gets at each place; behind its end, r.
    left = torch.zeros(n, longest, dtype=reward.dtype, device=reward.device)
    left[row, place] = -beta * to_go(kl, row, n).to(reward.dtype)
    left += reward[:, None]
    grouped = left.view(n // many, many, longest)
    others = (grouped.sum(dim=1, keepdim=True) - grouped) / max(1, many - 1)
    if many == 1:
        others = torch.zeros_like(grouped)
    return (grouped - others).view(n, longest)[row, place]


def group_advantages(reward: Tensor, row: Tensor, group: int) -> Tensor:
    """(r − mean)/std over the answers to the same prompt; 0 where all are equal."""
    grouped = reward.view(-1, group)
    off = grouped - grouped.mean(dim=1, keepdim=True)
    spread = off.square().mean(dim=1, keepdim=True).sqrt()
    # Equal rewards differ by rounding at most, which must not be blown up.
    same = spread <= 1e-6 * (1e-30 + grouped.abs().amax(dim=1, keepdim=True))
    scaled = torch.where(same, torch.zeros_like(off), off / spread.clamp_min(1e-30))
    return scaled.view(-1)[row]


class PolicyLoss:
    """−(clipped surrogate) + β·KL + γ·(loss on text), for each answer of a rollout.

    Parameters
    ----------
    beta : float
        Weight of the divergence from the reference.
    clip_ratio : float
        ε of the clipped ratio.
    ptx : float
        γ, the weight of −log p for each token of the pre-training text.
    """

    def __init__(self, beta: float, clip_ratio: float, ptx: float = 0.0) -> None:
        self.beta, self.clip_ratio, self.ptx = beta, clip_ratio, ptx

    def __call__(self, module: Any, batch: Rollout) -> Losses:
        """The losses of a rollout; the module's own dropout stays off."""
        n = len(batch.y)
        with evaluating(module):
            found = answer_scores(module, Batch(*batch[:4]))
            lp = F.log_softmax(found.scores, dim=-1)
            taken = lp.gather(1, found.wanted[:, None])[:, 0]
            gain = clipped_surrogate(
                taken, batch.old, batch.advantage, self.clip_ratio
            ).sum()
            loss = (self.beta * divergences(lp, batch.reference).sum() - gain) / n
            losses = {"loss": loss}
            if batch.pretraining is not None:
                more = next_token_loss(module, batch.pretraining)["loss"]
                losses = {"loss": loss + self.ptx * more, "text_loss": more}
        return losses


class PreferenceLoss:
    """Mean −log σ(β log π/ρ(chosen) − β log π/ρ(rejected)).

    Parameters
    ----------
    beta : float
        β.
    """

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def __call__(self, module: Any, batch: Preferences) -> Losses:
        """The loss of some pairs, and the share that is ranked as given."""
        margin = self.margins(module, batch)
        right = (margin.detach() > 0).to(margin.dtype).mean()
        return {"loss": -F.logsigmoid(margin).mean(), "accuracy": right}

    def margins(self, module: Any, batch: Preferences) -> Tensor:
        """The difference of β log π/ρ between both answers of each pair."""
        with evaluating(module):
            found = answer_scores(module, Batch(*batch[:4]))
            lp = -F.cross_entropy(found.scores, found.wanted, reduction="none")
        ratio = summed(lp, found.row, len(batch.y)) - batch.reference
        chosen, rejected = ratio.chunk(2)
        return self.beta * (chosen - rejected)
