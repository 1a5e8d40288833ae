"""
From text to preferences
========================

InstructGPT's path on a small world, in a minute or two: a network reads stories, learns
to answer from demonstrations of mixed quality, a reward model learns from preferences
between its answers, and PPO moves the answers towards a larger reward. The reward
that the preferences come from is known here, so that each stage can be judged by it.

The divergence from the fine-tuned model is exact at each token, and the certificate
says how far each stage is from its reference.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.language import PPO, FineTuned, LanguageModel, RewardModel

rng = np.random.default_rng(0)
PEOPLE = ["Ann", "Bob", "Eva", "Max", "Zoe", "Tom", "Ida", "Leo"]
THINGS = ["tea", "milk", "rice", "soup", "fish", "cake", "ham", "plum", "salt", "corn"]
PROMPTS = [f"Q: {thing}? A:" for thing in THINGS]

# %%
# The world
# ---------
# Stories to read, in which questions are rare; demonstrations, not always good; and a
# person who likes the right thing, politeness and brevity.


def story():
    a, b = rng.choice(PEOPLE, 2, replace=False)
    t, u = rng.choice(THINGS, 2, replace=False)
    some = [f"{a} wants {t}. {b} has {u}.", f"{a} eats {t} and {u}."]
    some += [f"{b} brings {t}. {a} is glad.", f"{a} asks {b} for {t}. {b} brings {t}."]
    some += [f"Q: {t}? A: here is {t}.", f"Q: {t}? A: {t}, please enjoy."]
    return str(rng.choice(some, p=[0.27, 0.26, 0.2, 0.2, 0.05, 0.02]))


def demonstration(thing):
    other = rng.choice(THINGS)
    some = [f" here is {thing}.", f" {thing}, please enjoy.", f" no {thing} today."]
    return str(rng.choice([*some, f" here is {other}."], p=[0.4, 0.15, 0.25, 0.2]))


def human(prompt, answer):
    thing = prompt.split()[-2].rstrip("?")
    right = thing in answer and "no " not in answer
    brief = answer.endswith(".") and len(answer) < 30
    return 0.5 * right + 0.3 * ("please" in answer) + 0.2 * brief


# %%
# Read, then imitate
# ------------------

text = " ".join(story() for _ in range(4000))
base = LanguageModel(
    320, layers=2, width=64, heads=4, context=48, max_iter=400, random_state=0
).fit(text)
asked = rng.choice(THINGS, 400)
questions = [f"Q: {thing}? A:" for thing in asked]
sft = FineTuned(base, max_iter=150, random_state=0)
sft.fit(questions, [demonstration(thing) for thing in asked])

# %%
# What people prefer
# ------------------
# Two answers to each question, of which a person prefers one, with errors. The reward
# model is a head on the states of the fine-tuned network: a logistic regression, whose
# certificate proves that no other head is better.

many = PROMPTS * 40
a, b = ([g.text for g in sft.generate_many(many, 14, random_state=i)] for i in (1, 2))
pairs = [(x, y, z) for x, y, z in zip(many, a, b) if y != z and y and z]
gains = np.array([human(x, y) - human(x, z) for x, y, z in pairs])
first = rng.random(len(pairs)) < 1 / (1 + np.exp(-8 * gains))
reward = RewardModel(sft, random_state=0).fit(
    [x for x, _, _ in pairs],
    [y if one else z for (_, y, z), one in zip(pairs, first)],
    [z if one else y for (_, y, z), one in zip(pairs, first)],
)
print(reward.certificate_)

# %%
# Tune
# ----
# PPO and PPO-ptx, which also keeps the probability of the stories high.

words = {"beta": 0.2, "max_tokens": 14, "max_iter": 40, "random_state": 0}
ppo = PPO(sft, reward, **words).fit(PROMPTS)
ptx = PPO(sft, reward, ptx=1.0, **words).fit(PROMPTS, text)
print(ppo.certificate_)
ppo.side_by_side()

# %%
# Each stage, judged by the person
# --------------------------------

stages = {"GPT": base, "SFT": sft, "PPO": ppo, "PPO-ptx": ptx}
means, bits = [], []
for model in stages.values():
    answers = [g.text for g in model.generate_many(many, 14, random_state=3)]
    means.append(np.mean([human(x, y) for x, y in zip(many, answers)]))
    bits.append(model.bits_per_byte(text[:4000]))

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.4))
left.bar(list(stages), means, color="#30638e")
left.set_ylabel("mean true reward")
middle.bar(list(stages), bits, color="#d1495b")
middle.set_ylabel("bits per byte of stories")
ppo.frontier().plot(right)
fig.tight_layout()
