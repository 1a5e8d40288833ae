"""
Robust losses and outliers
==========================

A growing share of the rows is moved far away. How much do the fitted slopes change, and
how much does a single row count?
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.linear_model import HuberRegressor, LinearRegression, RobustRegressor

# %%
# The data: one column, a true slope of 2, and errors of size one half. The wrong rows
# are on the right and far below, where they pull most.

rng = np.random.default_rng(0)
n = 300
x = rng.uniform(-2, 2, n)
clean = 2 * x + 1 + 0.5 * rng.normal(size=n)


def spoiled(share):
    """The target with a share of its rows, those of the largest x, moved down."""
    y = clean.copy()
    wrong = np.argsort(-x)[: int(share * n)]
    y[wrong] = -15 + rng.normal(size=len(wrong))
    return y


models = {
    "squares": LinearRegression(),
    "absolute": RobustRegressor("absolute"),
    "Huber, threshold = 1": RobustRegressor("huber", threshold=1.0),
    "Huber, scale fitted": HuberRegressor(alpha=0),
    "Tukey, threshold = 2": RobustRegressor("tukey", threshold=2.0),
}
colours = ["0.6", "C0", "C1", "C2", "C3"]

# %%
# Left: the fits with One row in ten moved. Right: the slope as the share grows. Losses
# that grow linearly change gradually and then fail. Tukey's loss does not change at all
# at first; then it jumps, because it is not convex.

shares = np.linspace(0, 0.4, 21)
slopes = {name: [] for name in models}
for share in shares:
    y = spoiled(share)
    for name, model in models.items():
        slopes[name].append(model.fit(x[:, None], y).coef_[0])

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4))
y = spoiled(0.1)
left.plot(x, y, ".", color="0.75", markersize=4)
line = np.array([-2.0, 2.0])
for (name, model), colour in zip(models.items(), colours):
    model.fit(x[:, None], y)
    left.plot(line, model.predict(line[:, None]), color=colour, label=name)
    right.plot(shares, slopes[name], color=colour, marker=".", label=name)
right.axhline(2, color="0.8", linewidth=0.8, zorder=0)
left.set(xlabel="x", ylabel="y", title="One row in ten moved")
right.set(xlabel="share of rows moved", ylabel="slope", title="True slope: 2")
left.legend(frameon=False, fontsize=8, loc="lower left")
figure.tight_layout()

# %%
# How much each row counts: its weight in the least-squares fit with the same solution.
# Huber's weights fall like one over the residual, Tukey's to exactly zero.

figure, axis = plt.subplots(figsize=(6, 3.2))
residuals = np.linspace(-6, 6, 401)
for loss, threshold, colour in (("huber", 1.0, "C1"), ("tukey", 2.0, "C3")):
    model = RobustRegressor(loss, threshold=threshold).fit(x[:, None], clean)
    y_shown = np.concatenate([clean, model.intercept_ + residuals])
    x_shown = np.concatenate([x, np.zeros(401)])
    tiny = np.concatenate([np.ones(n), np.full(401, 1e-9)])
    shown = RobustRegressor(loss, threshold=threshold)
    shown.fit(x_shown[:, None], y_shown, sample_weight=tiny)
    axis.plot(
        residuals, shown.weights_[n:], color=colour, label=f"{loss}, {threshold:g}"
    )
axis.axhline(1, color="0.6", label="squares")
axis.set(xlabel="residual", ylabel="weight of the row")
axis.legend(frameon=False)
figure.tight_layout()

# %%
# The convex fits are proved to be minimal. Tukey's is a stationary point, and with
# ``level="full"`` its curvature shows that it is a local minimum.

import certus

y = spoiled(0.1)
print(models["absolute"].fit(x[:, None], y).certificate_)
print(
    certus.certify(
        models["Tukey, threshold = 2"].fit(x[:, None], y), x[:, None], y, level="full"
    )
)
