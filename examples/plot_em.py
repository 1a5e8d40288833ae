"""
How EM increases the likelihood
===============================

Each E-step makes the lower bound touch the log-likelihood, and each M-step raises the
bound. So the likelihood can only go up. Where it ends depends on where it starts.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import certus
from certus.mixture import EM, GaussianMixture

# %%
# With one unknown we can draw this: two components of unit variance and equal weight at
# −μ and +μ. For a fixed posterior q the lower bound is a parabola in μ; its top is the
# M-step.

rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(-1.6, 1, 200), rng.normal(1.6, 1, 200)])


def log_joint(x, mu):
    """log p(x, z | μ) for z = left, right."""
    return np.log(0.5) + norm.logpdf(x[:, None], np.array([-mu, mu]))


def m_step(x, q):
    return float(np.mean((q[:, 1] - q[:, 0]) * x))


model = EM(None, m_step, log_joint, tol=1e-9).fit(x, 0.15)
print(model.certificate_)

grid = np.linspace(0, 2.6, 200)
likelihood = [model.posterior(x, mu)[1].mean() for mu in grid]


def lower_bound(at):
    """E_q log(p(x, z | μ)/q) over the grid, for the posterior q at ``at``."""
    q, _ = model.posterior(x, at)
    entropy = -np.sum(q * np.log(q), axis=1).mean()
    return [np.sum(q * log_joint(x, mu), axis=1).mean() + entropy for mu in grid]


figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax.plot(grid, likelihood, color="black", label="log-likelihood")
mu = 0.15
for step, colour in enumerate(("C0", "C1", "C2")):
    ax.plot(grid, lower_bound(mu), color=colour, label=f"bound {step + 1}")
    ax.plot(mu, model.posterior(x, mu)[1].mean(), "o", color=colour)
    mu = m_step(x, model.posterior(x, mu)[0])
ax.set(xlabel="μ", ylabel="mean over rows", title="Each bound touches the likelihood")
ax.set_ylim(-2.85, -1.95)
ax.legend(frameon=False, loc="upper left")

# %%
# A mixture of four Gaussians from ten starts. Every run goes up, but not all reach the
# same value. The certificate is about one run: another step gains nothing.

means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [4.0, 3.0]])
X = np.concatenate([rng.normal(m, (0.9, 0.6), (120, 2)) for m in means])
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
with certus.config_context(on_uncertified="ignore"):
    for seed in range(10):
        run = GaussianMixture(
            4, init_params="random_from_data", tol=1e-7, max_iter=500, random_state=seed
        ).fit(X)
        rise = run.history_["objective"]
        ax.semilogx(range(1, len(rise)), rise[1:], color="C0", alpha=0.5, lw=1.2)
        ax.plot(len(rise) - 1, rise[-1], "o", color="C0", ms=4)
ax.set(xlabel="EM step", ylabel="mean log-likelihood", title="Ten starts")
plt.show()

# %%
# Level "full" repeats the fit from its recorded start and looks for a drop.

best = GaussianMixture(4, tol=1e-7, max_iter=300, random_state=0).fit(X)
print(certus.certify(best, X, level="full"))
