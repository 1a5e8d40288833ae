"""
What a network looks at when it reverses a word
===============================================

A recurrent encoder reads a word, and a decoder writes it backwards. With attention the
decoder takes a weighted mean of the encoder's states in each step. These weights can be
looked at.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.neural_network import Seq2Seq

rng = np.random.default_rng(0)
letters = list("abcdefghijklmnopqrstuvwxyz")
words = ["".join(rng.choice(letters, size=n)) for n in rng.integers(3, 13, 4000)]
model = Seq2Seq(width=48, max_iter=25, random_state=0)
model.fit(words[:3900], [w[::-1] for w in words[:3900]])
print(model.certificate_)

# %%
# Nobody told the network where to look, or how long a word is. It writes words that it
# has never seen, letter by letter, and says how sure it is about each whole word.

asked = ["certificate", "attention", "backward"]
for word, found, log_p in zip(
    asked,
    model.predict(asked),
    model.log_probability(asked, [w[::-1] for w in asked]),
):
    print(f"{word:12} {found:12} probability of the right answer {np.exp(log_p):.3f}")
unseen = words[3900:]
print(f"{model.score(unseen, [w[::-1] for w in unseen]):.1%} of the letters are right")

# %%
# Each row is a letter that is written, each column a letter that was read. The weights
# are on the other diagonal: the network looks at the last letter first, however long
# the word is.

looks = model.attention_weights(asked)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.8), layout="constrained")
for ax, word, weights, found in zip(axes, asked, looks, model.predict(asked)):
    image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    ax.set_xticks(range(len(word)), word)
    ax.set_yticks(range(len(found)), found)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("read")
axes[0].set_ylabel("written")
figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
plt.show()
