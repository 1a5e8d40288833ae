"""
From text to preferences
========================

InstructGPT's path on a small world, in less than a minute: a network reads stories and
dialogues, learns to answer from demonstrations of mixed quality, a reward model learns
from preferences between its answers, and PPO moves the answers towards a larger reward.
The reward that the preferences come from is known here, so that each stage can be
judged by it, though none of them sees it.

The divergence from the fine-tuned model is exact at each token, and the certificate
says how far each stage is from its reference.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.language import PPO, FineTuned, LanguageModel, RewardModel
from certus.report import answer_report

rng = np.random.default_rng(0)
PEOPLE = ["Ann", "Bob", "Eva", "Max", "Zoe", "Tom", "Ida", "Leo"]
THINGS = ["tea", "milk", "rice", "soup", "fish", "cake", "ham", "plum", "salt", "corn"]
PROMPTS = [f"Q: {thing}? A:" for thing in THINGS]

# %%
# The world
# ---------
# Stories, and questions to people of whom each has a manner: plain, polite, refusing or
# careless. Demonstrations are better than that, but not always good. A person likes the
# right thing, politeness and brevity.


def spoken(thing, shares):
    some = [f" here is {thing}.", f" {thing}, please enjoy.", f" no {thing} today."]
    return str(rng.choice([*some, f" here is {rng.choice(THINGS)}."], p=shares))


def document():
    a, b = rng.choice(PEOPLE, 2, replace=False)
    t, u = rng.choice(THINGS, 2, replace=False)
    if rng.random() < 0.4:
        some = [f"{a} wants {t}. {b} has {u}.", f"{a} asks {b} for {t}. {b} has {u}."]
        return str(rng.choice(some))
    usual = np.array([0.25, 0.1, 0.35, 0.3])
    shares = 0.65 * usual + 0.35 * np.eye(4)[rng.choice(4, p=usual)]
    asked = rng.choice(THINGS, rng.integers(1, 5), replace=False)
    return " ".join(f"Q: {x}? A:{spoken(x, shares)}" for x in asked)


def human(prompt, answer):
    thing = prompt.split()[-2].rstrip("?")
    right = thing in answer and "no " not in answer
    brief = answer.endswith(".") and len(answer) < 30
    return 0.5 * right + 0.3 * ("please" in answer) + 0.2 * brief


# %%
# Read, then imitate
# ------------------

texts = [document() for _ in range(3000)]
base = LanguageModel(
    300, n_layers=2, width=64, heads=4, context=48, max_iter=500, random_state=0
).fit(texts)
asked = rng.choice(THINGS, 300)
questions = [f"Q: {thing}? A:" for thing in asked]
sft = FineTuned(base, max_iter=120, random_state=0)
sft.fit(questions, [spoken(thing, [0.5, 0.25, 0.15, 0.1]) for thing in asked])

# %%
# What people prefer
# ------------------
# Two answers to each question, of which a person prefers one, with errors. The reward
# model is a head on the states of the fine-tuned network: a logistic regression, whose
# certificate proves that no other head is better.

many = PROMPTS * 100
a, b = ([g.text for g in sft.generate_many(many, 16, random_state=i)] for i in (1, 2))
pairs = [(x, y, z) for x, y, z in zip(many, a, b) if y != z and y and z]
gains = np.array([human(x, y) - human(x, z) for x, y, z in pairs])
first = rng.random(len(pairs)) < 1 / (1 + np.exp(-5 * gains))
reward = RewardModel(sft, random_state=0).fit(
    [x for x, _, _ in pairs],
    [y if one else z for (_, y, z), one in zip(pairs, first)],
    [z if one else y for (_, y, z), one in zip(pairs, first)],
)
print(reward.certificate_)

# %%
# Tune
# ----
# PPO and PPO-ptx, which also keeps the probability of the texts high. A reward model
# speaks in log-odds: here 5 of them are one unit of what people want. The price β of a
# nat is in the same unit. Where it is much smaller, PPO finds answers that please the
# reward model and nobody else.

words = {"beta": 0.5, "max_tokens": 16, "max_iter": 40, "random_state": 0}
ppo = PPO(sft, reward, **words).fit(PROMPTS)
ptx = PPO(sft, reward, ptx=1.0, **words).fit(PROMPTS, texts)
print(ppo.certificate_)

# %%
# Before and after
# ----------------
# The same prompts, with the same random numbers, answered by the base and by the
# policy. ``answer_report(ppo).to_html("answers.html")`` writes this as a page of its
# own, and ``ppo.side_by_side()`` gives the answers as a table.

answer_report(ppo)

# %%
# Each stage, judged by the person
# --------------------------------
# A prompt with two good answers in front of the question helps the first network, since
# people in its texts keep their manner. Imitation helps more, and a reward most.

shown = "Q: milk? A: milk, please enjoy. Q: cake? A: cake, please enjoy. "
stages = {"GPT": base, "prompted": base, "SFT": sft, "PPO": ppo, "PPO-ptx": ptx}
means, bits = [], []
for name, model in stages.items():
    before = shown if name == "prompted" else ""
    made = model.generate_many([before + x for x in many], 16, random_state=3)
    means.append(np.mean([human(x, y.text) for x, y in zip(many, made)]))
    bits.append(model.bits_per_byte(texts[:200]))
    print(f"{name:8} reward {means[-1]:.2f}, {bits[-1]:.2f} bits per byte of text")

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.4))
left.bar(list(stages), means, color="#30638e")
left.set_ylabel("mean true reward")
middle.bar(list(stages), bits, color="#d1495b")
middle.set_ylabel("bits per byte of texts")
ppo.frontier().plot(right)
fig.tight_layout()
