"""
What a language model finds surprising, and where it looks
==========================================================

A language model gives each token a probability. Its surprise, −log₂ p, is what the
token costs in bits; the sum over a text, divided by its bytes, is the number by which
models are compared. Here a small network learns sentences in which the last word
depends on a word far before it.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.language import LanguageModel

rng = np.random.default_rng(0)
sounds = {"cat": "meows", "dog": "barks", "cow": "moos", "duck": "quacks"}
places = ["in the old house", "by the river", "on the hill", "behind the barn"]


def sentence():
    animal = rng.choice(list(sounds))
    return f"The {animal} {rng.choice(places)} {sounds[animal]}. "


text = "".join(sentence() for _ in range(2000))
new = "".join(sentence() for _ in range(60))
model = LanguageModel(
    n_layers=2, width=64, heads=2, context=64, max_iter=250, random_state=0
).fit(text)
print(f"{model.bits_per_byte(new):.3f} bits per byte")

# %%
# Most letters are certain. A sentence costs two bits for its animal and two for its
# place, and nothing for the sound, because the animal decides it. Only the first letter
# costs more: few beginnings of a text were seen in training. In a notebook
# ``model.surprise(new)`` shows the text itself, coloured by its bits.

sentences = "The dog by the river barks. The cow on the hill moos. "
figure, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
model.surprise(sentences).plot(ax)
plt.show()

# %%
# A sentence that breaks the rule costs much more, and exactly where it breaks it.

figure, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
model.surprise("The dog by the river barks. The cow on the hill barks. ").plot(ax)
plt.show()

# %%
# Does the network use its context? The same tokens are predicted from fewer tokens
# before them. With 16 letters it often cannot see the animal any more.

found = model.context_use(new)
print(found.verdict)
found.plot()
plt.show()

# %%
# Where the heads of attention look: each row is the letter that was read last, and each
# column one that is looked at. ``plot(layer=2, head=1)`` draws a single head with its
# letters. Weights show what a head mixes in; they do not explain a prediction.

model.attention("The duck on the hill quacks.").plot()
plt.show()
