"""InstructGPT's pipeline on a small world: ``python -m benchmarks.preferences``.

Pre-training on stories and dialogues, fine-tuning on demonstrations of mixed quality, a
reward model from noisy preferences between drawn answers, PPO and PPO-ptx with that
reward. Judged by the reward that the preferences come from, which no model sees, over
three seeds; the settings were chosen on others. ``--look`` shows when a learnt
reward leads astray, ``--gap`` what the certificate says where the truth is known, and
``--speed`` times steps of DPO, PPO and GRPO beside trl's.
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import certus
from certus.language import PPO, FineTuned, LanguageModel, RewardModel

RESULTS = Path(__file__).parent / "results" / "preferences.md"
PEOPLE = ["Ann", "Bob", "Eva", "Max", "Zoe", "Tom", "Ida", "Leo"]
THINGS = ["tea", "milk", "rice", "soup", "fish", "cake", "ham", "plum", "salt", "corn"]
THINGS += ["jam", "bread", "egg", "pie", "nut", "beef", "leek", "mint", "lime", "kale"]
PROMPTS = [f"Q: {thing}? A:" for thing in THINGS]
SHOWN = "Q: milk? A: milk, please enjoy. Q: cake? A: cake, please enjoy. "
MOST, DRAWS, SEEDS = 18, 40, 3
#: Pairs drawn for each prompt; how surely a person sees a difference of reward; the
#: price of a nat, in units of the learnt reward: SHARP of them are one of the true one.
PAIRS, SHARP, BETA = 100, 5.0, 0.5
#: Shares of plain, polite, refusing and wrong answers: in text, in demonstrations.
WEB, SHOWED = [0.25, 0.1, 0.35, 0.3], [0.5, 0.25, 0.15, 0.1]
PIPELINE = """\
Pre-training on stories and dialogues, fine-tuning on demonstrations of mixed quality, a
reward model from noisy preferences between drawn answers, PPO and PPO-ptx with that
reward. Judged by the reward that the preferences come from, which no model sees. The
settings were chosen on other seeds (10 and 11)."""
LOOKED = """\
When a learnt reward leads astray, seed 10: PPO's true and learnt rewards in its first,
middle and last ten iterations of sixty. Rewards are in units of log-odds; a difference
of 1 in the true reward is 5 of them."""
STAGES = ("GPT", "prompted", "SFT", "PPO", "PPO-ptx")


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
    model: Any, rng: np.random.Generator, draws: int = PAIRS
) -> tuple[list[str], ...]:
    """Pairs of drawn answers, ranked with the errors of a person."""
    seeds = rng.integers(2**31, size=2).tolist()
    both = [answers_of(model, seed, draws=draws) for seed in seeds]
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


def pipeline(seed: int) -> dict[str, dict[str, float]]:
    """The mean reward, bits per byte of new texts and CPU seconds of each stage."""
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
        drawn = answers_of(model, 1, SHOWN if name == "prompted" else "")
        kl = getattr(model, "samples_", {"kl": [0.0]})["kl"]
        found[name] = {
            "reward": float(np.mean([human(x, y) for x, y in drawn])),
            "bits": model.bits_per_byte(new),
            "kl": float(np.mean(kl)),
            "agreement": accuracy(reward, preferences(model, fresh, DRAWS)),
            "seconds": float(spent),
        }
    return found


def table(every: dict[int, dict[str, dict[str, float]]]) -> list[str]:
    """The rows of all seeds, and their means."""
    heads = ["stage", *(f"reward, seed {seed}" for seed in every)]
    heads += ["mean reward", "bits/byte of new texts", "KL to SFT"]
    heads += ["pairs ordered by the learnt reward", "CPU s"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in STAGES:
        rows = [each[name] for each in every.values()]
        mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        cells = [name, *(f"{row['reward']:.3f}" for row in rows)]
        cells += [f"{mean['reward']:.3f}", f"{mean['bits']:.3f}", f"{mean['kl']:.2f}"]
        cells += [f"{mean['agreement']:.2f}", f"{mean['seconds']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


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
    parts = dict.fromkeys(["Pipeline", "Rewards", "Certificate", "Speed"], "")
    for part in old.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        parts[title] = body.strip()
    parts[heading] = "\n".join(lines)
    kept = [f"## {title}\n\n{body}\n" for title, body in parts.items() if body]
    RESULTS.write_text("\n".join(["# Preferences\n", *kept]), encoding="utf-8")


def main() -> None:
    """Run what is asked for and write it; seeds other than 0, 1, 2 only print."""
    warnings.simplefilter("ignore", certus.base.UncertifiedWarning)
    seeds = [int(arg) for arg in sys.argv[1:] if arg.isdigit()] or list(range(SEEDS))
    with certus.config_context(certify="never"):
        if "--speed" in sys.argv:
            from benchmarks.preferences_speed import speed

            write("Speed", speed())
        elif "--gap" in sys.argv:
            from benchmarks.preferences_gap import certificate_lines

            write("Certificate", certificate_lines())
        elif "--look" in sys.argv:
            write("Rewards", [*LOOKED.splitlines(), "", *look()])
        else:
            every = {seed: pipeline(seed) for seed in seeds}
            lines = table(every)
            print("\n".join(lines), flush=True)
            if seeds == list(range(SEEDS)):
                write("Pipeline", [*PIPELINE.splitlines(), "", *lines])


if __name__ == "__main__":
    main()
