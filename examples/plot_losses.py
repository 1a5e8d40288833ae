"""
Losses and their slopes
=======================

A loss decides what a model is penalised for. Here are the losses of regression and of
classification, each with its slope, which is the force that one row exerts on the fit.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus import objectives
from certus.objectives import (
    Absolute,
    ExponentialMargin,
    Hinge,
    Huber,
    Logistic,
    Squared,
    Tukey,
    ZeroOne,
)

robust = [Squared(), Absolute(), Huber(1.0), Tukey(2.0)]
figure = objectives.plot(robust, ["value", "gradient"])
figure.suptitle("How strongly does one residual pull?", x=0.02, ha="left", fontsize=11)
plt.show()

# %%
# The squared error pulls without limit. The absolute error and Huber's loss stop at
# one, and Tukey's loss returns to zero: beyond ``threshold`` a row has no influence at
# all. But Tukey's loss is not convex.

for loss in robust:
    slope = np.abs(objectives.gradient(loss, [1.0, 1e3, 1e6], 0.0))
    print(f"{loss!s:18} convex {objectives.is_convex(loss)!s:6} pulls {slope}")

# %%
# Losses of the margin replace the number of mistakes, which cannot be minimised
# directly. The hinge and the exponential loss lie above it everywhere; the logistic
# loss does if it is divided by log 2.

margins = [ZeroOne(), Hinge(), Hinge(0.0), Logistic(), ExponentialMargin()]
figure = objectives.plot(margins, ["value", "gradient"], reach=2.0)
figure.suptitle("Losses instead of counting mistakes", x=0.02, ha="left", fontsize=11)
plt.show()

# %%
# Does a replacement lead to the right decision? If the positive class has probability
# η, the expected loss of a score a is ηφ(a) + (1 − η)φ(−a). Its minimum should have the
# right sign. The perceptron's loss, ``Hinge(0.0)``, has its minimum at 0 for every η.

scores, eta = np.linspace(-2, 2, 401), 0.7
fig, ax = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
for loss in margins[1:]:
    up, down = objectives.value(loss, 1, scores), objectives.value(loss, -1, scores)
    expected = eta * up + (1 - eta) * down
    best = scores[expected.argmin()]
    word = "calibrated" if objectives.is_calibrated(loss) else "not calibrated"
    (line,) = ax.plot(scores, expected, lw=1.6, label=f"{loss!s}: {word}")
    ax.plot(best, expected.min(), "o", color=line.get_color(), ms=6)
ax.axvline(0.0, color="0.8", lw=0.8, zorder=0)
ax.set_ylim(0, 3.2)
ax.set_xlabel("score a")
ax.set_ylabel("expected loss at η = 0.7")
ax.set_title("Which score is best?", loc="left", fontsize=11)
ax.legend(frameon=False, fontsize=9, loc="upper center")
plt.show()
