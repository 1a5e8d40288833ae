"""What the certificate of a policy says where the truth is known.

A policy over 50 answers, tuned by DPO's loss on pairs of its reference's answers: its
win rate rises, and it can still end below its reference. And 5,000 answers with rewards
in [0, 1], 10,000 draws: the bound on the gap to the best policy beside the gap.
"""

import math
from typing import Any

import numpy as np
import torch

from certus.language import optimal_policy, policy_gap
from certus.language.tuning.policy_losses import PreferenceLoss, Preferences
from certus.verify.language.policies import Asked, Units, excess, gap_claim

SEEDS, ANSWERS = 3, 50
#: Pairs and steps of DPO. Few pairs have their optimum at infinity: each answer that
#: won all its comparisons goes there, further with each step. Many have a finite one.
RUNS = ((5_000, 100), (5_000, 1500), (50_000, 100))


class Bandit(torch.nn.Module):
    """One token, the same law everywhere."""

    def __init__(self, start: np.ndarray) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(start))

    def states(self, tokens: Any) -> tuple[Any, None]:
        """The scores at each place."""
        return self.theta.expand(*tokens.shape, -1), None

    def scores(self, states: Any) -> Any:
        """The scores of all answers."""
        return states


def tuned(n_pairs: int, steps: int, seed: int, beta: float) -> tuple[np.ndarray, ...]:
    """The policy, its reference and the reward; some answers of it are rare."""
    rng = np.random.default_rng(seed)
    lq = 1.5 * rng.normal(size=ANSWERS)
    q, r = np.exp(lq) / np.exp(lq).sum(), rng.normal(size=ANSWERS)
    pairs = rng.choice(ANSWERS, size=(n_pairs, 2), p=q)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    first = rng.random(len(pairs)) < 1 / (1 + np.exp(-np.diff(-r[pairs]).ravel()))
    chosen = np.where(first, *pairs.T)
    y = torch.from_numpy(np.concatenate([chosen, pairs.sum(axis=1) - chosen])[:, None])
    log_q = torch.from_numpy(np.log(q))
    batch = Preferences(
        (y,), y, None, torch.ones_like(y, dtype=torch.bool), log_q[y[:, 0]]
    )
    module, loss = Bandit(np.log(q)), PreferenceLoss(beta)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(module, batch)["loss"].backward()
        optimizer.step()
    p = torch.softmax(module.theta, dim=0).detach().numpy()
    return p / p.sum(), q, r


def win_rate(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
    """How often an answer of p is preferred to one of q."""
    return float(p @ (1 / (1 + np.exp(r[None, :] - r[:, None]))) @ q)


def flags(beta: float = 0.5) -> list[str]:
    """Rows: gaps of DPO and of doing nothing, win rates, and what the claim says."""
    heads = (
        "| pairs | steps | seed | gap | doing nothing | KL | of the best | win rate |"
    )
    lines = [heads + " of the best | claim |", "|---" * 10 + "|"]
    for n, steps in RUNS:
        for seed in range(SEEDS):
            p, q, r = tuned(n, steps, seed, beta)
            best = optimal_policy(q, r, beta)
            found, idle = (policy_gap(x, q, r, beta) for x in (p, q))
            kl = found["kl_to_reference"].value
            wins = (win_rate(x, q, r) for x in (p, best.probabilities))
            cells = [f"{n:,}", f"{steps:,}", str(seed)]
            cells += [f"{found.value:.4f}", f"{idle.value:.3f}"]
            cells += [f"{kl:.2f}", f"{float(best.kl):.2f}", *(f"{w:.3f}" for w in wins)]
            lines.append("| " + " | ".join(cells) + f" | {_word(found.met)} |")
            print(lines[-1], flush=True)
    return lines


def _word(met: bool | None) -> str:
    return "met" if met else "missed: worse than its own reference"


def near(beta: float, answers: int = 5_000) -> tuple[np.ndarray, ...]:
    """A policy near to the best one, a floored reference, rewards in [0, 1]."""
    rng = np.random.default_rng(0)
    q = np.exp(rng.normal(size=answers))
    q = 0.99 * q / q.sum() + 0.01 / answers
    r = np.clip(0.5 + 0.175 * rng.normal(size=answers), 0, 1)
    p = optimal_policy(q, r, beta).probabilities
    p = p * np.exp(0.28 * rng.normal(size=answers))
    return p / p.sum(), q, r


def drawn(p: np.ndarray, q: np.ndarray, r: np.ndarray, n: int, seed: int) -> Units:
    """Answers of both, as the verifier draws them from networks."""
    rng = np.random.default_rng(seed)
    y, z = (rng.choice(len(law), n, p=law) for law in (p, q))
    ratio = np.log(p / q)
    same = np.full(n, float(p @ ratio))
    return Units(np.zeros(n, int), same, ratio[y], ratio[z], r[y], r[z], 0.0)


def bounds(n: int = 10_000) -> list[str]:
    """Rows: the gap, its bound over seeds, and the gap of doing nothing."""
    lines = ["| β | gap | bound, three seeds | doing nothing |", "|---|---|---|---|"]
    for beta in (0.5, 0.2, 0.1):
        p, q, r = near(beta)
        true, idle = (excess(np.log(x), np.log(q), r, beta).value for x in (p, q))
        asked = Asked(beta, math.log(len(q) / 0.01), 1, (0.0, 1.0), 0.05)
        claims = (gap_claim(drawn(p, q, r, n, i), asked) for i in range(SEEDS))
        every = np.array([claim.value for claim in claims], float)
        text = f"{every.min():.4f}–{every.max():.4f}"
        lines.append(f"| {beta} | {true:.4f} | {text} | {idle:.4f} |")
        print(lines[-1], flush=True)
    return lines


def certificate_lines() -> list[str]:
    """The section of the results."""
    torch.set_num_threads(1)
    what = (__doc__ or "").splitlines()[2:5]
    return [*what, "", *flags(), "", "Bounds, for answers of one token:", "", *bounds()]
