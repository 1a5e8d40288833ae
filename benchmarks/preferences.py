"""InstructGPT's pipeline on a small world: ``python -m benchmarks.preferences``.

Pre-training on stories and dialogues, fine-tuning on demonstrations of mixed quality, a
reward model from noisy preferences between drawn answers, PPO and PPO-ptx with that
reward. Judged by the reward that the preferences come from, which no model sees, over
three seeds; the settings were chosen on others. ``--certificates`` also bounds how far
the policies are from the best one. ``--look`` shows when a learnt reward leads astray,
``--gap`` what the certificate says where the truth is known, ``--lengths`` what it says
of short words, and ``--speed`` times steps of DPO, PPO and GRPO beside trl's.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import certus
from benchmarks.encoders import by_file
from benchmarks.preferences_draws import (
    certificate,
    certificate_table,
    divergence,
    lengths,
)
from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.language import PPO, FineTuned, LanguageModel, RewardModel

RESULTS = Path(__file__).parent / "results" / "preferences.md"
PEOPLE = ["Ann", "Bob", "Eva", "Max", "Zoe", "Tom", "Ida", "Leo"]
THINGS = ["tea", "milk", "rice", "soup", "fish", "cake", "ham", "plum", "salt", "corn"]
THINGS += ["jam", "bread", "egg", "pie", "nut", "beef", "leek", "mint", "lime", "kale"]
PROMPTS = [f"Q: {thing}? A:" for thing in THINGS]
SHOWN = "Q: milk? A: milk, please enjoy. Q: cake? A: cake, please enjoy. "
MOST, DRAWS, SEEDS = 18, 40, 3
#: Pairs drawn for each prompt. A person chooses with log-odds of SHARP times the
#: difference of the true reward; these are the units of the learnt reward, in which the
#: price of a nat is BETA.
PAIRS, SHARP, BETA = 100, 5.0, 0.5
#: Shares of plain, polite, refusing and wrong answers: in text, in demonstrations.
WEB, SHOWED = [0.25, 0.1, 0.35, 0.3], [0.5, 0.25, 0.15, 0.1]
PIPELINE = """\
Pre-training on stories and dialogues, fine-tuning on demonstrations of mixed quality, a
reward model from noisy preferences between drawn answers, PPO and PPO-ptx with that
reward. Judged by the reward that the preferences come from, which no model sees. The
settings were chosen on other seeds (10 and 11). KL is the mean over 240 answers of the
stage, summed over the vocabulary at each token; a prompt with examples is not what SFT
was asked, so there is no KL there. CPU seconds are those of the fits."""
PAIRED = """\
Differences of the mean reward between stages, with 95 % intervals in which a prompt
counts as one draw: 20 prompts, 40 answers of each stage to each. A tie is a difference
whose interval over all seeds contains 0."""
LOOKED = """\
When a learnt reward leads astray, seed 10: PPO's true and learnt rewards in its first,
middle and last ten iterations of sixty. A learnt reward is measured in log-odds: where
the true reward of one answer is larger by 1 than that of another, a person prefers it
with log-odds of 5."""
STAGES = ("GPT", "prompted", "SFT", "PPO", "PPO-ptx")
#: A stage, and the one that it is compared with.
COMPARED = (
    ("prompted", "GPT"),
    ("SFT", "prompted"),
    ("PPO", "SFT"),
    ("PPO-ptx", "SFT"),
    ("PPO-ptx", "PPO"),
)
PACKAGES = ("certus", "numpy", "scipy", "torch", "numba")


def spoken(rng: np.random.Generator, thing: str, shares: list[float]) -> str:
    """An answer: plain, polite, a refusal, or the wrong thing."""
    some = (f" here is {thing}.", f" {thing}, please enjoy.", f" no {thing} today.")
    return str(rng.choice([*some, f" here is {rng.choice(THINGS)}."], p=shares))


def document(rng: np.random.Generator) -> str:
    """A story, or questions to one person, who has a manner."""
    a, b = rng.choice(PEOPLE, 2, replace=False)
    t, u = rng.choice(THINGS, 2, replace=False)
    if rng.random() < 0.5:
        some = (
            f"{a} wants {t}. {b} has {u}.",
            f"{a} eats {t} and {u}.",
            f"{b} brings {t}. {a} is glad.",
            f"{a} asks {b} for {t}. {b} brings {t}.",
        )
        return str(rng.choice(some))
    manner = rng.choice(4, p=WEB)
    shares = 0.65 * np.array(WEB) + 0.35 * np.eye(4)[manner]
    asked = rng.choice(THINGS, rng.integers(1, 5), replace=False)
    return " ".join(f"Q: {x}? A:{spoken(rng, x, shares)}" for x in asked)


def human(prompt: str, answer: str) -> float:
    """The true reward, between 0 and 1: the right thing, polite, and to the point."""
    thing = prompt.split()[-2].rstrip("?")
    right = thing in answer and "no " not in answer
    polite, brief = "please" in answer, answer.endswith(".") and len(answer) < 30
    return 0.5 * right + 0.3 * polite + 0.2 * brief


def answers_of(
    model: Any, seed: int, shown: str = "", draws: int = DRAWS
) -> list[tuple[str, str]]:
    """Prompts and answers, ``draws`` to each prompt."""
    asked = [prompt for prompt in PROMPTS for _ in range(draws)]
    made = model.generate_many([shown + p for p in asked], MOST, random_state=seed)
    return [(prompt, each.text) for prompt, each in zip(asked, made)]


def preferences(
    model: Any, rng: np.random.Generator, draws: int = PAIRS, shown: str = ""
) -> tuple[list[str], ...]:
    """Pairs of drawn answers, ranked with the errors of a person."""
    seeds = rng.integers(2**31, size=2).tolist()
    both = [answers_of(model, seed, shown, draws) for seed in seeds]
    prompts, chosen, rejected = [], [], []
    for (x, a), (_, b) in zip(*both):
        if a != b and a and b:
            gain = human(x, a) - human(x, b)
            first = rng.random() < 1 / (1 + np.exp(-SHARP * gain))
            prompts.append(x)
            chosen.append(a if first else b)
            rejected.append(b if first else a)
    return prompts, chosen, rejected


def accuracy(reward: Any, pairs: tuple[list[str], ...]) -> float:
    """How often the learnt reward orders two answers as the true one does."""
    x, a, b = pairs
    gain = np.array([human(*i) - human(*j) for i, j in zip(zip(x, a), zip(x, b))])
    learnt = reward.predict(x, a) - reward.predict(x, b)
    return float(np.mean((learnt * gain > 0)[gain != 0]))


class World(NamedTuple):
    """What comes before the rewards."""

    texts: list[str]
    new: list[str]
    gpt: LanguageModel
    sft: FineTuned
    marks: list[float]


def world(seed: int, rng: np.random.Generator) -> World:
    """Read texts, then imitate demonstrations."""
    texts, new = ([document(rng) for _ in range(n)] for n in (4000, 200))
    marks = [time.process_time()]
    gpt = LanguageModel(
        320,
        n_layers=2,
        width=64,
        heads=4,
        context=64,
        max_iter=1000,
        batch_size=16,
        random_state=seed,
    ).fit(texts)
    marks += [time.process_time()] * 2
    asked = [THINGS[i] for i in rng.integers(len(THINGS), size=400)]
    shown = [spoken(rng, thing, SHOWED) for thing in asked]
    sft = FineTuned(gpt, max_iter=150, random_state=seed)
    sft.fit([f"Q: {thing}? A:" for thing in asked], shown)
    return World(texts, new, gpt, sft, [*marks, time.process_time()])


def learnt_reward(sft: Any, pairs: tuple[list[str], ...], seed: int) -> RewardModel:
    """The network of the fine-tuned model, trained whole, with a head."""
    words: dict[str, Any] = {"train": "all", "max_iter": 400, "batch_size": 32}
    return RewardModel(sft, **words, random_state=seed).fit(*pairs)


def policy(sft: Any, reward: Any, seed: int, **more: Any) -> PPO:
    """PPO with the settings of all stages."""
    words = {"beta": BETA, "max_tokens": MOST, "max_iter": 60, "n_iter_no_change": 100}
    return PPO(sft, reward, random_state=seed, **{**words, **more})


class Stage(NamedTuple):
    """What is measured of a stage."""

    rewards: list[float]  # the mean of each prompt's answers
    bits: float
    kl: float | None
    agreement: float
    seconds: float


def pipeline(seed: int, certify: bool = False) -> tuple[dict[str, Stage], list[Any]]:
    """Each stage measured, and what the certificate says of PPO and PPO-ptx."""
    rng = np.random.default_rng(seed)
    texts, new, gpt, sft, marks = world(seed, rng)
    models: dict[str, Any] = {"GPT": gpt, "prompted": gpt, "SFT": sft}
    reward = learnt_reward(sft, preferences(sft, rng), seed)
    models["PPO"] = policy(sft, reward, seed).fit(PROMPTS)
    marks.append(time.process_time())
    models["PPO-ptx"] = policy(sft, reward, seed, ptx=1.0).fit(PROMPTS, texts)
    marks.append(time.process_time())
    found = {}
    for name, spent in zip(STAGES, np.diff(marks)):
        model, fresh = models[name], np.random.default_rng(seed + 1000)
        shown = SHOWN if name == "prompted" else ""
        true = [human(x, y) for x, y in answers_of(model, 1, shown)]
        known = not shown and name != "SFT"
        found[name] = Stage(
            np.reshape(true, (len(PROMPTS), DRAWS)).mean(axis=1).tolist(),
            model.bits_per_byte(new),
            divergence(model, sft, PROMPTS, MOST) if known else None,
            accuracy(reward, preferences(model, fresh, DRAWS, shown)),
            float(spent),
        )
    lines = []
    if certify:  # the price of a nat, in units of the true reward
        for name in ("PPO", "PPO-ptx"):
            two = (models[name], sft)
            row = certificate(*two, human, BETA / SHARP, PROMPTS, MOST)
            lines.append((name, seed, row))
            print(name, seed, row, flush=True)
    return found, lines


def table(every: dict[int, dict[str, Stage]]) -> list[str]:
    """The rows of all seeds, and their means."""
    heads = ["stage", *(f"reward, seed {seed}" for seed in every)]
    heads += ["mean reward", "bits/byte of new texts", "KL to SFT"]
    heads += ["pairs ordered by the learnt reward", "CPU s"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in STAGES:
        rows = [each[name] for each in every.values()]
        rewards = [float(np.mean(row.rewards)) for row in rows]
        near = [row.kl for row in rows if row.kl is not None]
        cells = [name, *(f"{reward:.3f}" for reward in rewards)]
        cells += [f"{np.mean(rewards):.3f}", f"{np.mean([r.bits for r in rows]):.3f}"]
        cells += [f"{np.mean(near):.2f}" if near else "–"]
        cells += [f"{np.mean([r.agreement for r in rows]):.2f}"]
        cells += [f"{np.mean([r.seconds for r in rows]):.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def comparisons(every: dict[int, dict[str, Stage]]) -> list[str]:
    """Differences between stages, in pairs by prompt."""
    heads = ["stage", "beyond", *(f"seed {seed}" for seed in every), "all seeds"]
    lines = [
        "| " + " | ".join([*heads, "verdict"]) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for name, other in COMPARED:
        apart = [
            np.subtract(each[name].rewards, each[other].rewards)
            for each in every.values()
        ]
        found = [by_file(d, PROMPTS) for d in (*apart, np.mean(apart, axis=0))]
        low, high = found[-1][1:]
        verdict = "higher" if low > 0 else "lower" if high < 0 else "tie"
        shown = [f"{d:+.3f} ({a:+.3f} to {b:+.3f})" for d, a, b in found]
        lines.append("| " + " | ".join([name, other, *shown, verdict]) + " |")
    return lines


def where() -> list[str]:
    """Machine, versions and load, as a paragraph."""
    load = os.getloadavg()[0]
    text = describe_machine(machine(PACKAGES)).strip()
    return ["", f"{text} Load of the machine when this began: {load:.1f} processes."]


def measured(seed: int) -> tuple[dict[str, Stage], list[Any]]:
    """The pipeline of a seed, in a process of its own."""
    warnings.simplefilter("ignore", certus.base.UncertifiedWarning)
    with certus.config_context(certify="never"):
        return pipeline(seed, "--certificates" in sys.argv)


class Watched:
    """A reward that notes the true and the learnt one of each iteration."""

    def __init__(self, score: Callable[..., Any]) -> None:
        self.score = score
        self.means: list[tuple[float, float]] = []

    def predict(self, prompts: list[str], answers: list[str]) -> Any:
        """The learnt rewards."""
        found = np.asarray(self.score(prompts, answers), float)
        true = np.mean([human(x, y) for x, y in zip(prompts, answers)])
        self.means.append((float(true), float(found.mean())))
        return found


def look(seed: int = 10) -> list[str]:
    """PPO with rewards of different quality and prices: the true reward on its way."""
    rng = np.random.default_rng(seed)
    sft = world(seed, rng).sft
    fresh = preferences(sft, np.random.default_rng(seed + 1000), DRAWS)
    few, many = preferences(sft, rng, 4), preferences(sft, rng)
    rewards: dict[str, Any] = {
        f"head, {len(few[0])} pairs": RewardModel(sft, random_state=seed).fit(*few),
        f"head, {len(many[0])} pairs": RewardModel(sft, random_state=seed).fit(*many),
        f"network, {len(many[0])} pairs": learnt_reward(sft, many, seed),
        "the true one": None,
    }
    heads = ["reward", "β", "right on SFT's pairs", "on PPO's", "true reward at 1–10"]
    heads += ["21–30", "51–60", "learnt at 1–10", "51–60", "KL"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, reward in rewards.items():
        for beta in (0.02, BETA):
            lines.append(_seen(name, reward, beta, sft, fresh, seed))
            print(lines[-1], flush=True)
    return lines


def _seen(name: str, reward: Any, beta: float, sft: Any, fresh: Any, seed: int) -> str:
    """A row of the table of looks."""

    def true(prompts: list[str], answers: list[str]) -> list[float]:
        return [SHARP * human(x, y) for x, y in zip(prompts, answers)]

    seen = Watched(true if reward is None else reward.predict)
    tuned = policy(sft, seen, seed, beta=beta).fit(PROMPTS)
    means = np.array(seen.means[:60])
    cells = [name, f"{beta:g}", "1.00", "1.00"]
    if reward is not None:
        own = preferences(tuned, np.random.default_rng(seed + 1001), DRAWS)
        cells[2:] = [f"{accuracy(reward, pairs):.2f}" for pairs in (fresh, own)]
    stretches = (means[:10, 0], means[20:30, 0], means[50:, 0])
    cells += [f"{part.mean():.2f}" for part in stretches]
    cells += [f"{part.mean():.2f}" for part in (means[:10, 1], means[50:, 1])]
    return "| " + " | ".join([*cells, f"{tuned.history_['kl'][-1]:.2f}"]) + " |"


def write(heading: str, lines: list[str]) -> None:
    """Put a section into the results; the others stay as they are."""
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Preferences\n"
    titles = ["Pipeline", "Certificates of the pipeline", "Rewards", "Certificate"]
    titles += ["Answers of some tokens", "Speed"]
    parts = dict.fromkeys(titles, "")
    for part in old.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        parts[title] = body.strip()
    parts[heading] = "\n".join(lines)
    kept = [f"## {title}\n\n{body}\n" for title, body in parts.items() if body]
    RESULTS.write_text("\n".join(["# Preferences\n", *kept]), encoding="utf-8")


def run_pipeline(seeds: list[int]) -> None:
    """Run the seeds side by side; seeds other than 0, 1, 2 only print."""
    place = where()
    with ProcessPoolExecutor(min(len(seeds), os.cpu_count() or 1)) as pool:
        found = dict(zip(seeds, pool.map(measured, seeds)))
    every = {seed: stages for seed, (stages, _) in found.items()}
    lines = [*PIPELINE.splitlines(), "", *table(every), "", *PAIRED.splitlines(), ""]
    lines += [*comparisons(every), *place]
    print("\n".join(lines), flush=True)
    rows = [row for _, some in found.values() for row in some]
    drawn = [*certificate_table(rows), *place] if rows else []
    print("\n".join(drawn), flush=True)
    if seeds == list(range(SEEDS)):
        write("Pipeline", lines)
        if drawn:
            write("Certificates of the pipeline", drawn)


def main() -> None:
    """Run what is asked for and write it."""
    warnings.simplefilter("ignore", certus.base.UncertifiedWarning)
    seeds = [int(arg) for arg in sys.argv[1:] if arg.isdigit()] or list(range(SEEDS))
    with certus.config_context(certify="never"):
        if "--speed" in sys.argv:
            from benchmarks.preferences_speed import speed

            write("Speed", speed())
        elif "--lengths" in sys.argv:
            place = where()
            write("Answers of some tokens", [*lengths(), *place])
        elif "--gap" in sys.argv:
            from benchmarks.preferences_gap import certificate_lines

            place = where()
            write("Certificate", [*certificate_lines(), *place])
        elif "--look" in sys.argv:
            place = where()
            write("Rewards", [*LOOKED.splitlines(), "", *look(), *place])
        else:
            run_pipeline(seeds)


if __name__ == "__main__":
    main()
