"""
A recommender on simulated ratings
==================================

The ratings are drawn from known tastes, so the best possible error is known. Too few
factors miss part of the tastes; too many learn the noise, unless a penalty prevents it.
"""

import matplotlib.pyplot as plt
import numpy as np

import certus
from certus.recommend import MatrixFactorization, evaluate, split_ratings

# %%
# 1,500 people and 400 films, with five tastes, a mean for each person and film, and
# noise of 0.5 stars.

rng = np.random.default_rng(0)
n_users, n_items, noise = 1500, 400, 0.5
tastes = rng.normal(size=(n_users, 5)), 0.45 * rng.normal(size=(n_items, 5))
levels = 0.4 * rng.normal(size=(n_users, 1)) + 0.4 * rng.normal(size=n_items)
true = 3.5 + levels + tastes[0] @ tastes[1].T
popular = rng.random((n_users, n_items)) < 0.16 * np.linspace(0.2, 1.8, n_items)
pairs = np.argwhere(popular)
stars = true[popular] + noise * rng.normal(size=len(pairs))
split = split_ratings(pairs, stars, random_state=0)
print(f"{len(pairs):,} ratings of {n_users * n_items:,} possible")

# %%
# Error on held-out ratings against the number of factors. With almost no penalty the
# objective is nearly flat in many directions, and 50 rounds are not enough. These fits
# would warn; here the warnings are switched off.

ranks = [0, 1, 2, 3, 5, 8, 12, 20, 32]
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for penalty, colour in ((0.1, "C1"), (5.0, "C0")):
    test, train = [], []
    for k in ranks:
        model = MatrixFactorization(
            max(k, 1), alpha=penalty if k else 1e9, random_state=0
        )
        model.set_params(alpha_biases=penalty)
        with certus.config_context(on_uncertified="ignore"):
            model.fit(*split.train)
        errors = [
            np.sqrt(np.mean((model.predict(p) - r) ** 2))
            for p, r in (split.train, split.test)
        ]
        train.append(errors[0])
        test.append(errors[1])
    ax.plot(ranks, test, "o-", color=colour, label=f"penalty {penalty:g}, held out")
    ax.plot(
        ranks, train, "--", color=colour, lw=1, label=f"penalty {penalty:g}, training"
    )
ax.axhline(noise, color="0.5", lw=1)
ax.annotate("noise", (ranks[-1], noise), (0, 4), textcoords="offset points", ha="right")
ax.set(xlabel="factors", ylabel="root mean squared error")
ax.legend(frameon=False, fontsize=8)

# %%
# The model with five factors: its certificate and its recommendations.

model = MatrixFactorization(5, random_state=0).fit(*split.train)
print(model.certificate_)
print(evaluate(model, *split.test, k=10, relevant_from=5))
print(model.recommend(user=7, n=5))
print(model.similar_items(item=3, n=3))

best = model.recommend(user=7, n=50).ids
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax.scatter(
    true[7], model.predict([(7, i) for i in range(n_items)]), s=8, color="0.75", lw=0
)
ax.scatter(
    true[7, best[:10]],
    model.predict([(7, i) for i in best[:10]]),
    s=16,
    color="C0",
    label="ten recommendations",
)
ax.axline((3, 3), slope=1, color="0.5", lw=1)
ax.set(xlabel="true opinion of user 7", ylabel="predicted", title="400 films, one user")
ax.legend(frameon=False)
plt.show()
