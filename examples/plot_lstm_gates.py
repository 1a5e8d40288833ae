"""
What the gates of an LSTM do
============================

The network reads a sequence of numbers, one of which is marked, and must name it at the
end. The gates have to learn when to write to memory and when to keep it.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.neural_network import RecurrentRegressor

length = 30


def marked(n, rng):
    """Numbers between −1 and 1 beside a mark; the target is the marked number."""
    values = rng.uniform(-1, 1, (n, length)).astype(np.float32)
    marks = np.zeros_like(values)
    marks[np.arange(n), rng.integers(0, length - 8, n)] = 1
    return np.stack([values, marks], axis=2), (values * marks).sum(axis=1)


rng = np.random.default_rng(0)
X, y = marked(3000, rng)
X_test, y_test = marked(500, rng)
model = RecurrentRegressor(
    width=2, learning_rate=0.02, schedule="cosine", max_iter=40, random_state=0
).fit(X, y)
print(f"R² on new sequences: {model.score(X_test, y_test):.3f}")
print(model.certificate_)

# %%
# ``gates`` returns, step by step, the gates, the memory C and the state of each unit.
# Of the two units, we look at the one whose input gate opens more at the mark:

inside = model.gates(X_test)
marks = X_test[:, :, 1].argmax(axis=1)
openings = np.stack([g["input"][m] for g, m in zip(inside, marks)]).mean(axis=0)
elsewhere = np.concatenate([g["input"] for g in inside]).mean(axis=0)
unit = int(np.argmax(openings - elsewhere))
print(f"input gate {openings[unit]:.2f} at the mark, {elsewhere[unit]:.2f} on average")

# %%
# At the mark this gate opens and the number is written. Elsewhere it is nearly closed
# and the forget gate is near one, so the memory hardly changes: Cᵗ = f ∗ Cᵗ⁻¹ + i ∗ C̃.

shown = int(np.flatnonzero((marks == 9) & (abs(y_test) > 0.6))[0])
values, mark = X_test[shown].T
at = int(mark.argmax())
figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
axes[0].bar(range(length), values, color="0.8")
axes[0].bar(at, values[at], color="C3", label="marked")
axes[0].set(ylabel="input", ylim=(-1.1, 1.1))
axes[0].legend(loc="upper right", frameon=False)
for name, colour in (("input", "C3"), ("forget", "C0"), ("output", "C2")):
    axes[1].plot(inside[shown][name][:, unit], color=colour, marker=".", label=name)
axes[1].set(ylabel="gates of the unit", ylim=(-0.05, 1.05))
axes[1].legend(loc="upper right", bbox_to_anchor=(1, 0.8), frameon=False)
axes[2].plot(inside[shown]["memory"][:, unit], color="k", marker=".")
axes[2].set(ylabel="memory C", xlabel="step")
for ax in axes:
    ax.axvline(at, color="C3", lw=1, ls=":")
    ax.spines[["top", "right"]].set_visible(False)

# %%
# Both gates of that unit over all test sequences, aligned at the mark.

window = np.arange(-5, 8)
near = [(g, m) for g, m in zip(inside, marks) if m >= 5]
figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for name, colour in (("input", "C3"), ("forget", "C0")):
    lined = np.stack([g[name][m + window, unit] for g, m in near])
    low, middle, high = np.quantile(lined, [0.1, 0.5, 0.9], axis=0)
    ax.fill_between(window, low, high, color=colour, alpha=0.2, lw=0)
    ax.plot(window, middle, color=colour, marker=".", label=f"{name} gate")
ax.axvline(0, color="0.5", lw=1, ls=":")
ax.set(xlabel="steps after the mark", ylabel="median and 10–90 %", ylim=(-0.05, 1.05))
ax.legend(loc="center right", frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
