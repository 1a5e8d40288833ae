"""The losses of joint embeddings, on the vectors a and b of two views of each row.

    simclr   −mean log [exp(cᵢⱼ/τ) / Σ_{k ≠ i} exp(cᵢₖ/τ)], c cosines of all 2B vectors
    byol     mean of 2 − 2 cos(p(aᵢ), b′ᵢ), b′ from a moving average of the networks
    barlow   [Σₖ (1 − Cₖₖ)² + λ Σ_{k ≠ l} Cₖₗ²]/d, C the correlations between a and b
    vicreg   25 mean (a − b)² + 25 mean max(0, 1 − deviation) + Σ_{k ≠ l} Sₖₗ²/d

Each is a plain function of two tensors (batch, d).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

#: λ of "barlow", and the weights of "vicreg".
OFF_DIAGONAL, ALIKE, VARIED = 0.005, 25.0, 25.0
#: Added to variances before a root.
VARIANCE_FLOOR = 1e-4

METHODS = ("simclr", "byol", "barlow", "vicreg")


def nt_xent(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of SimCLR."""
    z = F.normalize(torch.cat([a, b]), dim=1)
    s = (z @ z.T / temperature).fill_diagonal_(-math.inf)
    at = torch.arange(len(s), device=s.device).roll(len(a))
    return F.cross_entropy(s, at)


def matched(a: Tensor, b: Tensor, scale: Tensor | float, same: Tensor | None) -> Tensor:
    """The loss of CLIP: rows find their partners among the others, and the reverse.

    ``same`` is true where two rows have the same partner; both count as correct.
    """
    s = scale * (F.normalize(a, dim=1) @ F.normalize(b, dim=1).T)
    if same is None:
        y = torch.arange(len(s), device=s.device)
        return 0.5 * (F.cross_entropy(s, y) + F.cross_entropy(s.T, y))
    share = same.to(s.dtype) / same.sum(dim=1, keepdim=True)
    return 0.5 * (F.cross_entropy(s, share) + F.cross_entropy(s.T, share))


def alignment(p: Tensor, b: Tensor) -> Tensor:
    """The mean of 2 − 2 cos; smallest if pairs are equal, as for constant vectors."""
    return 2 - 2 * F.cosine_similarity(p, b, dim=1).mean()


def barlow(a: Tensor, b: Tensor) -> Tensor:
    """Correlations of components: 1 with their own, 0 with others."""
    n, d = a.shape
    x, y = (
        (v - v.mean(dim=0)) / (v.var(dim=0, correction=0) + VARIANCE_FLOOR).sqrt()
        for v in (a, b)
    )
    square = (x.T @ y / n - torch.eye(d, device=a.device, dtype=a.dtype)).square()
    own = square.diagonal().sum()
    return ((1 - OFF_DIAGONAL) * own + OFF_DIAGONAL * square.sum()) / d


def vicreg(a: Tensor, b: Tensor) -> Tensor:
    """Low if pairs are alike, rows vary, and components are uncorrelated."""
    near = (a - b).square().mean()
    wide, apart = a.new_zeros(()), a.new_zeros(())
    for v in (a, b):
        c = v - v.mean(dim=0)
        S = c.T @ c / max(1, len(v) - 1)
        wide = wide + F.relu(1 - (S.diagonal() + VARIANCE_FLOOR).sqrt()).mean() / 2
        apart = apart + (S.square().sum() - S.diagonal().square().sum()) / v.shape[1]
    return ALIKE * near + VARIED * wide + apart


def of_views(method: str, a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """The loss of a method that needs only the vectors of two views."""
    if method == "simclr":
        return nt_xent(a, b, float(temperature))
    return barlow(a, b) if method == "barlow" else vicreg(a, b)
