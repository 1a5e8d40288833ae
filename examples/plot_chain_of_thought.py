"""
Why writing the steps down helps
================================

A network is asked for the last digit of a sum of six digits. One copy is trained to
answer at once, the other to write down the sum so far after each digit. Both see the
same sums, for the same number of epochs.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.neural_network import Seq2Seq

rng = np.random.default_rng(0)
digits = rng.integers(10, size=(4500, 6))
so_far = digits.cumsum(axis=1) % 10
asked = ["".join(map(str, row)) for row in digits]
targets = {
    "answers at once": [str(row[-1]) for row in so_far],
    "step by step": ["".join(map(str, row)) for row in so_far],
}
print("asked", asked[0], {name: y[0] for name, y in targets.items()})

# %%
# An answer counts if its last digit is right, whatever stands before it. Answering at
# once is hardly better than guessing one digit out of ten: all six digits have to be
# added in as many layers as the network has. Step by step, each token is the one before
# it plus one digit.

shares = {}
for name, y in targets.items():
    model = Seq2Seq(
        network="transformer", width=32, n_layers=2, max_iter=10, random_state=0
    ).fit(asked[:4000], y[:4000])
    found = model.predict(asked[4000:])
    shares[name] = np.mean([a[-1:] == b[-1] for a, b in zip(found, y[4000:])])
    print(f"{name}: {shares[name]:.1%} of 500 new sums are right")

# %%
# The same in a picture; the line is what guessing reaches.

figure, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
ax.barh(list(shares), list(shares.values()), color=["#c44e52", "#4c72b0"])
ax.axvline(0.1, color="black", linestyle=":", linewidth=1)
ax.set_xlim(0, 1)
ax.set_xlabel("share of right answers")
plt.show()
