"""
Inequalities, sums and determinants
===================================

The algebra that proofs of learning theory lean on, checked on numbers.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import quad

rng = np.random.default_rng(0)

# %%
# **Hölder's inequality**: v·u ≤ ‖v‖ₚ‖u‖ᵩ with 1/p + 1/q = 1, and Cauchy–Schwarz for
# p = q = 2. On the circle of all v with ‖v‖ₚ = 1 the largest v·u is ‖u‖ᵩ, reached
# where abs(v)ᵖ is in proportion to abs(u)ᵠ and the signs agree.

u = np.array([2.0, 1.0])
angle = np.linspace(0, 2 * np.pi, 1441)
circle = np.column_stack([np.cos(angle), np.sin(angle)])
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for ax, p in zip(axes, [1.5, 2.0, 3.0], strict=True):
    q = p / (p - 1)
    v = circle / np.linalg.norm(circle, p, axis=1)[:, None]
    best = np.sign(u) * np.abs(u) ** (q - 1)
    best /= np.linalg.norm(best, p)
    assert (v @ u <= np.linalg.norm(u, q) + 1e-12).all()
    assert np.isclose(best @ u, np.linalg.norm(u, q), rtol=1e-12)
    ax.plot(*v.T, label="‖v‖ = 1")
    ax.set_title(f"p = {p:g}")
    ax.plot(*zip([0, 0], u, strict=True), "--", color="grey", label="u")
    ax.plot(*best, "o", color="tab:red", label="largest v·u")
    ax.set_aspect("equal")
axes[0].legend(loc="lower right")

# %%
# **Geometric sums** a + ar + … + arⁿ = a(1 − rⁿ⁺¹)/(1 − r) are what momentum and
# moving averages keep of the past: with r = 0.9, ten times the slope in the end.

r, slope = 0.9, 1.0
velocity, kept = 0.0, []
for _ in range(50):
    velocity = r * velocity + slope
    kept.append(velocity)
k = np.arange(1, 51)
np.testing.assert_allclose(kept, slope * (1 - r**k) / (1 - r))

# %%
# **Calculus.** log(1 + x) ≈ x with an error of x²/2, integration by parts, and the
# square of a sum.

x = np.logspace(-4, 0, 60)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
left.plot(k, kept)
left.axhline(1 / (1 - r), color="grey", linestyle="--")
left.set(title="Momentum on a constant slope", xlabel="step")
right.loglog(x, x - np.log1p(x), label="x − log(1 + x)")
right.loglog(x, x**2 / 2, "--", label="x²/2")
right.legend()

np.testing.assert_allclose((x - np.log1p(x))[:10] / (x**2 / 2)[:10], 1, atol=0.01)
whole = quad(lambda s: s**2 * np.cos(s), 0, 2)[0]
parts = 4 * np.sin(2.0) - quad(lambda s: 2 * s * np.sin(s), 0, 2)[0]
assert np.isclose(whole, parts)
a = rng.normal(size=9)
pairs = sum(a[i] * a[j] for i, j in itertools.combinations(range(9), 2))
assert np.isclose(a.sum() ** 2, np.sum(a**2) + 2 * pairs)

# %%
# **Determinants** multiply: det AB = det A · det B, det Aᵀ = det A, det A⁻¹ = 1/det A.
#
# **Trace inner products** ⟨A, B⟩ = tr AᵀB move a factor to the other side, transposed:
# ⟨AB, C⟩ = ⟨B, AᵀC⟩ = ⟨A, CBᵀ⟩. Backpropagation is made of nothing else.

A, B, C = rng.normal(size=(3, 4, 4))
assert np.isclose(np.linalg.det(A @ B), np.linalg.det(A) * np.linalg.det(B))
assert np.isclose(np.linalg.det(A.T), np.linalg.det(A))
assert np.isclose(np.linalg.det(np.linalg.inv(A)), 1 / np.linalg.det(A))
inner = np.sum(A @ B * C)
assert np.isclose(inner, np.sum(B * (A.T @ C)))
assert np.isclose(inner, np.sum(A * (C @ B.T)))
plt.show()
