"""
Word vectors from Python's own documentation
============================================

The documentation strings of the standard library are a small corpus of two hundred
thousand words. Words that occur in similar contexts get similar vectors.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.decomposition import PCA
from certus.text import SkipGram, stdlib_docstrings

texts = stdlib_docstrings(packages=True)
print(f"{len(texts):,} strings, {sum(len(t.split()) for t in texts):,} words")

# %%
# A corpus this small needs more passes and larger steps than one of billions of words.
# ``deterministic=True`` uses one thread, so that this page is always the same.

model = SkipGram(
    64,
    subsample=1e-4,
    max_iter=30,
    learning_rate=0.05,
    min_count=8,
    deterministic=True,
    random_state=0,
).fit(texts)
print(model.certificate_)

# %%
# The reported loss is recomputed from the vectors. This is what the vectors know:

for word in ("file", "socket", "thread", "dictionary", "error", "day"):
    near = ", ".join(other for other, _ in model.most_similar(word, n=5))
    print(f"{word:12} {near}")
for a, b, c in (("read", "write", "input"), ("width", "height", "x")):
    print(f"{a} is to {b} as {c} is to {model.analogy(a, b, c, n=1)[0][0]}")

# %%
# A map: words of five kinds, projected on the two directions in which they vary most.

kinds = {
    "time": "month year hour weekday datetime",
    "network": "socket server port host connection",
    "threads": "thread lock semaphore process",
    "files": "file directory open read descriptor",
    "text": "string character unicode decode bytes",
}
known = set(model.vocabulary_)
words = {k: [w for w in text.split() if w in known] for k, text in kinds.items()}
every = [w for group in words.values() for w in group]
V = np.stack([model.vector(w) for w in every])
V /= np.linalg.norm(V, axis=1, keepdims=True)
places = PCA(2).fit_transform(V)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 5), width_ratios=(3, 2), layout="constrained"
)
start = 0
for colour, (kind, group) in enumerate(words.items()):
    x, y = places[start : start + len(group)].T
    left.plot(x, y, "o", color=f"C{colour}", ms=3, label=kind)
    for word, a, b in zip(group, x, y):
        left.annotate(
            word,
            (a, b),
            (3, 2),
            textcoords="offset points",
            fontsize=9,
            color=f"C{colour}",
        )
    start += len(group)
left.set(xticks=[], yticks=[], title="Five kinds of words")
left.margins(0.14)
left.legend(frameon=False, fontsize=8, loc="lower left")
epochs = range(1, 1 + len(model.history_["objective"]))
right.plot(epochs, model.history_["running_loss"], color="0.7", label="while training")
right.plot(epochs, model.history_["objective"], color="C0", label="of the fixed sample")
right.set(xlabel="pass over the corpus", ylabel="loss per pair", title="Loss")
right.legend(frameon=False)
plt.show()
