"""InstructGPT's pipeline on a small world: ``python -m benchmarks.preferences``.

Pre-training on stories, fine-tuning on demonstrations of mixed quality, a reward model
from noisy preferences between drawn answers, PPO and PPO-ptx with that reward. Judged
by the reward that the preferences come from, which no model sees, over three seeds.
With ``--speed`` beside trl: a step of DPO and an iteration of PPO on the same model.
"""

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import certus
from certus.language import PPO, FineTuned, LanguageModel, RewardModel

RESULTS = Path(__file__).parent / "results" / "preferences.md"
PEOPLE = ["Ann", "Bob", "Eva", "Max", "Zoe", "Tom", "Ida", "Leo"]
THINGS = ["tea", "milk", "rice", "soup", "fish", "cake", "ham", "plum", "salt", "corn"]
PROMPTS = [f"Q: {thing}? A:" for thing in THINGS]
SHOWN = "Q: milk? A: milk, please enjoy. Q: cake? A: cake, please enjoy. "
MOST, DRAWS, SEEDS = 14, 40, 3
STAGES = ("GPT", "prompted", "SFT", "PPO", "PPO-ptx")


def story(rng: np.random.Generator) -> str:
    """A sentence or two of the text that a model is trained on first."""
    a, b = rng.choice(PEOPLE, 2, replace=False)
    t, u = rng.choice(THINGS, 2, replace=False)
    some = (
        f"{a} wants {t}. {b} has {u}.",
        f"{a} eats {t} and {u}.",
        f"{b} brings {t}. {a} is glad.",
        f"{a} asks {b} for {t}. {b} brings {t}.",
        f"Q: {t}? A: here is {t}.",
        f"Q: {t}? A: {t}, please enjoy.",
    )
    return str(rng.choice(some, p=[0.27, 0.26, 0.2, 0.2, 0.05, 0.02]))


def demonstration(rng: np.random.Generator, thing: str) -> str:
    """What a person answers, not always well."""
    other = rng.choice(THINGS)
    some = (f" here is {thing}.", f" {thing}, please enjoy.", f" no {thing} today.")
    return str(rng.choice([*some, f" here is {other}."], p=[0.4, 0.15, 0.25, 0.2]))


def human(prompt: str, answer: str) -> float:
    """The true reward, between 0 and 1: the right thing, polite, and to the point."""
    thing = prompt.split()[-2].rstrip("?")
    right = thing in answer and "no " not in answer
    polite, brief = "please" in answer, answer.endswith(".") and len(answer) < 30
    return 0.5 * right + 0.3 * polite + 0.2 * brief


def answers_of(model: Any, seed: int, shown: str = "") -> list[tuple[str, str]]:
    """Prompts and answers, ``DRAWS`` to each prompt."""
    asked = [prompt for prompt in PROMPTS for _ in range(DRAWS)]
    made = model.generate_many([shown + p for p in asked], MOST, random_state=seed)
    return [(prompt, each.text) for prompt, each in zip(asked, made)]


def preferences(sft: Any, rng: np.random.Generator) -> tuple[list[str], ...]:
    """Pairs of drawn answers, ranked with the errors of a person."""
    both = [answers_of(sft, int(rng.integers(2**31))) for _ in range(2)]
    prompts, chosen, rejected = [], [], []
    for (x, a), (_, b) in zip(*both):
        if a != b and a and b:
            gain = human(x, a) - human(x, b)
            first = rng.random() < 1 / (1 + np.exp(-8 * gain))
            prompts.append(x)
            chosen.append(a if first else b)
            rejected.append(b if first else a)
    return prompts, chosen, rejected


def pipeline(seed: int) -> dict[str, dict[str, float]]:
    """The mean reward, bits per byte of new stories and CPU seconds of each stage."""
    rng = np.random.default_rng(seed)
    text = " ".join(story(rng) for _ in range(4000))
    new = " ".join(story(rng) for _ in range(150))
    marks, models = [time.process_time()], {}
    words: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "context": 48}
    base = LanguageModel(320, **words, max_iter=400, batch_size=16, random_state=seed)
    models["GPT"] = models["prompted"] = base.fit(text)
    marks += [time.process_time()] * 2
    asked = [THINGS[i] for i in rng.integers(len(THINGS), size=400)]
    shown = [demonstration(rng, thing) for thing in asked]
    sft = FineTuned(base, max_iter=150, random_state=seed)
    models["SFT"] = sft.fit([f"Q: {thing}? A:" for thing in asked], shown)
    marks.append(time.process_time())
    reward = RewardModel(sft, random_state=seed).fit(*preferences(sft, rng))
    for name, ptx in (("PPO", 0.0), ("PPO-ptx", 1.0)):
        tuned = PPO(
            sft,
            reward,
            beta=0.2,
            ptx=ptx,
            max_tokens=MOST,
            max_iter=60,
            n_iter_no_change=100,
            random_state=seed,
        )
        models[name] = tuned.fit(PROMPTS, text if ptx else None)
        marks.append(time.process_time())
    found = {}
    for name, spent in zip(STAGES, np.diff([marks[0], *marks[1:]])):
        drawn = answers_of(models[name], 1, SHOWN if name == "prompted" else "")
        rewards = [human(x, y) for x, y in drawn]
        found[name] = {
            "reward": float(np.mean(rewards)),
            "bits": models[name].bits_per_byte(new),
            "kl": float(np.mean(getattr(models[name], "samples_", {"kl": 0})["kl"])),
            "seconds": float(spent),
        }
    return found


def table(every: list[dict[str, dict[str, float]]]) -> list[str]:
    """The rows of all seeds, and their means."""
    heads = ["stage", *(f"reward, seed {i}" for i in range(len(every)))]
    heads += ["mean reward", "bits/byte of new stories", "KL to SFT", "CPU s"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in STAGES:
        rows = [each[name] for each in every]
        mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        cells = [name, *(f"{row['reward']:.3f}" for row in rows)]
        cells += [f"{mean['reward']:.3f}", f"{mean['bits']:.3f}", f"{mean['kl']:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{mean['seconds']:.0f}"]) + " |")
    return lines


def main() -> None:
    """Run the seeds, or one of them, and write the table."""
    warnings.simplefilter("ignore", certus.base.UncertifiedWarning)
    if "--speed" in sys.argv:
        from benchmarks.preferences_speed import speed

        lines = speed()
        old = RESULTS.read_text(encoding="utf-8").split("## Speed")[0].rstrip()
        RESULTS.write_text(old + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
        return
    seeds = [int(arg) for arg in sys.argv[1:] if arg.isdigit()] or list(range(SEEDS))
    with certus.config_context(certify="never"):
        every = [pipeline(seed) for seed in seeds]
    for each in every:
        print(each, flush=True)
    if len(seeds) == SEEDS:
        head = ["# Preferences", "", *(__doc__ or "").splitlines()[2:5], ""]
        RESULTS.write_text("\n".join([*head, *table(every), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
