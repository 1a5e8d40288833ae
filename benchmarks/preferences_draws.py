"""Certificates of a pipeline's policies, from answers of many tokens.

The gap to the best policy cannot be listed here. It is estimated from many draws, and
bounded from as many as a certificate takes at the levels "quick" and "full".
"""

import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

import certus
from certus.language import PPO, LanguageModel
from certus.language.base import end_of
from certus.language.tuning.policy_base import draw_answers, scores_of
from certus.verify import PlainNetwork
from certus.verify.language.policies import (
    Asked,
    Units,
    drawn_claims,
    drawn_units,
)
from certus.verify.language.policy_draws import Duel
from certus.verify.language.tuned_policies import DELTA, affordable

FLOOR, ANSWERS = 0.01, 240
NAMES = ("gap_to_optimal_policy", "kl_to_reference", "gain_over_reference")
WHAT = """\
Policies judged by the true reward with reward_range=(0, 1) and β = {beta:g}, the price
of a nat in its units; ρ = (1 − {floor})·π_ref + {floor}/V with V = {V}. The draws are
as many as `certify` takes at both levels. The gap of the policy and that of doing
nothing are estimated from the draws of "full". The bound, the interval of KL and that
of the gain J(π) − J(ρ) hold with 95 % each."""


class Certificates(NamedTuple):
    """What is estimated, and bounded at both levels."""

    tokens: int
    V: int
    beta: float
    draws: dict[str, int]
    kl: float
    gap: float
    idle: float
    bounds: dict[str, dict[str, str]]
    seconds: dict[str, float]


def draws_of(
    model: Any, base: Any, reward: Any, prompts: list[str], length: int, n: Any
) -> tuple[Duel, int, Units]:
    """Answers of both; ``n`` is how many, or the level of a certificate."""
    both = [PlainNetwork(dict(m.config_), m.weights_) for m in (model, base)]
    duel = Duel(*both, end_of(base.tokenizer_), FLOOR, length)
    ids = [np.asarray(base.tokenizer_.encode(x), np.int64) for x in prompts]
    many = n if isinstance(n, int) else affordable(duel, ids, n)

    def propose(asked: Any, u: Any, v: Any, reference: bool) -> list[Any]:
        places = np.zeros(u.shape, bool) if v is None else v < FLOOR
        decoder = (base if reference else model).decoder()
        return draw_answers(decoder, list(asked), u, places)

    score = None if reward is None else scores_of(reward)
    tokens = list(base.tokenizer_.tokens)
    return duel, many, drawn_units(duel, ids, prompts, tokens, score, many, propose)


def divergence(model: Any, base: Any, prompts: list[str], length: int) -> float:
    """The mean exact divergence of answers from a base."""
    units = draws_of(model, base, None, prompts, length, ANSWERS)[2]
    return float(units.divergence.mean())


def certificate(
    model: Any, base: Any, reward: Any, beta: float, prompts: list[str], length: int
) -> Certificates:
    """Estimates and bounds."""
    draws, bounds, seconds = {}, {}, {}
    for level in ("quick", "full"):
        start = time.process_time()
        duel, draws[level], units = draws_of(
            model, base, reward, prompts, length, level
        )
        known = (len(prompts), (0.0, 1.0), DELTA, duel.stated)
        claims = drawn_claims(units, Asked(beta, duel.reach, *known))
        bounds[level] = {c.name: c for c in claims}
        seconds[level] = time.process_time() - start
    best = [
        beta * (logsumexp(r / beta) - np.log(len(r)))
        for i in range(len(prompts))
        if len(r := units.reference_reward[units.prompt == i])
    ]
    J = float(np.mean(units.reward - beta * units.divergence))
    top, idle = float(np.mean(best)), float(np.mean(units.reference_reward))
    V = duel.policy.config["n_tokens"]
    shown = {
        level: {name: _shown(name, found[name]) for name in NAMES}
        for level, found in bounds.items()
    }
    kl = float(units.divergence.mean())
    return Certificates(
        *(length, V, beta, draws, kl, top - J, top - idle), shown, seconds
    )


def _shown(name: str, claim: Any) -> str:
    """The ends of an interval, or the bound."""
    if name == NAMES[0]:
        return f"{claim.value:.3f}"
    words = claim.detail.split()
    ends = [words[words.index(each) + 1] for each in ("between", "and")]
    return f"{ends[0]} to {ends[1].rstrip(';')}"


def certificate_table(rows: list[tuple[str, int, Certificates]]) -> list[str]:
    """The section of the results."""
    first = rows[0][2]
    what = WHAT.format(**first._asdict() | {"floor": FLOOR})
    heads = ["policy", "tokens at most", "seed", "level", "draws"]
    heads += ["gap, estimated", "bound"]
    heads += ["doing nothing, estimated", "KL", "interval", "gain", "CPU s"]
    lines = [*what.splitlines(), "", "| " + " | ".join(heads) + " |"]
    lines.append("|---" * len(heads) + "|")
    for name, seed, row in rows:
        for level, n in row.draws.items():
            gap, kl, gain = (row.bounds[level][each] for each in NAMES)
            cells = [name, str(row.tokens), str(seed), level, f"{n:,}"]
            cells += [f"{row.gap:.3f}", gap]
            cells += [f"{row.idle:.3f}", f"{row.kl:.2f}", kl, gain]
            lines.append(
                "| " + " | ".join([*cells, f"{row.seconds[level]:.0f}"]) + " |"
            )
    return lines


# -- words of some length -------------------------------------------------------------

#: Words to answer with; people like the last one.
WORDS = {
    4: ["cat", "dog", "hen", "cow"],
    9: ["kangaroo", "elephant", "antelope", "flamingo"],
}
ASKED = ["a ", "my ", "the "]
SHORT = """\
PPO from networks of one layer of width 32 with 257 tokens, which write words of three
or eight letters; one of four words earns 1, others 0. One seed."""


def of_length(length: int) -> list[tuple[str, int, Certificates]]:
    """The certificate of a policy whose answers have so many tokens."""
    words = WORDS[length]
    texts = [x + y for x in ASKED for y in words] * 6
    shape: dict[str, Any] = {"n_layers": 1, "width": 32, "heads": 2, "context": 16}
    with certus.config_context(certify="never"):
        base = LanguageModel(**shape, max_iter=200, random_state=0).fit(texts)
        options: dict[str, Any] = {"beta": 0.1, "max_tokens": length, "max_iter": 30}
        model = PPO(base, liked, **options, random_state=0).fit(ASKED)
        row = certificate(model, base, liked, 0.1, ASKED, length)
    print(length, row, flush=True)
    return [(f"words of {length - 1} letters", 0, row)]


def liked(prompt: str, answer: str) -> float:
    """1 for the last word of each list."""
    return float(answer in ("cow", "flamingo"))


def lengths() -> list[str]:
    """The section of the results."""
    with ProcessPoolExecutor(len(WORDS)) as pool:
        rows = [row for some in pool.map(of_length, WORDS) for row in some]
    return [*SHORT.splitlines(), "", *certificate_table(rows)]
