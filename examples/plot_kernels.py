"""
Building kernels
================

Sums, products, multiples, exponentials and compositions of kernels are kernels. Here a
curve with a trend and a wave is fitted with a kernel for exactly that. Then a function
that is not a kernel is detected, with a vector that proves it.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.kernel_ridge import KernelRidge
from certus.kernels import gram, mercer_check
from certus.objectives import Composed, Gaussian, Linear, Product, Scaled, Sigmoid, Sum

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 6, 60))[:, None]
truth = lambda u: 0.4 * u + np.sin(2 * np.pi * u)  # noqa: E731
y = truth(x).ravel() + 0.25 * rng.normal(size=60)


# %%
# For a wave of period one, map x onto the circle and use any kernel there.


def circle(u):
    return np.column_stack([np.cos(2 * np.pi * u[:, 0]), np.sin(2 * np.pi * u[:, 0])])


wave = Composed(Gaussian(0.5), circle)
kernels = {
    "Gaussian": Gaussian(2.0),
    "wave": wave,
    "trend + wave": Sum(Scaled(0.2, Linear()), wave),
    "fading wave": Product(wave, Gaussian(0.02)),
}
future = np.linspace(-0.5, 9, 500)[:, None]
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax.plot(x, y, "o", color="0.6", ms=3.5, label="data")
ax.plot(future, truth(future), color="0.75", lw=3, label="truth")
for (name, kernel), colour in zip(kernels.items(), ("C1", "C2", "C0", "C3")):
    model = KernelRidge(alpha=0.3, kernel=kernel).fit(x, y)
    error = np.sqrt(np.mean((model.predict(future) - truth(future).ravel()) ** 2))
    print(f"{name:16s} {model.certificate_['duality_gap'].detail}; error {error:.2f}")
    ax.plot(future, model.predict(future), color=colour, lw=1.2, label=name)
ax.axvspan(6, 9, color="0.95", zorder=-1)
ax.text(6.1, -1.9, "no data here", fontsize=9, color="0.4")
ax.set(xlabel="x", ylabel="y", ylim=(-2.2, 5.2))
ax.set_title("What does each kernel predict beyond the data?", loc="left", fontsize=11)
ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")

# %%
# The hyperbolic tangent of an inner product is often called a kernel. On these rows it
# is not: some eigenvalues are negative, and the eigenvector of the smallest one is the
# proof.

X = rng.normal(size=(40, 2))
tanh = Sigmoid(1.0, coef0=-1.0)
found = mercer_check(tanh, X)
v = found.witness
print(found.reason)
print("recomputed:", round(float(v @ gram(tanh, X) @ v), 4))

figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for name, kernel, marker in (
    ("Gaussian", Gaussian(0.5), "o"),
    ("Gaussian × linear", Product(Gaussian(0.5), Linear()), "^"),
    ("tanh, not a kernel", tanh, "s"),
):
    values = np.linalg.eigvalsh(gram(kernel, X))[::-1]
    ax.plot(range(1, 41), values / values[0], marker, ms=3.5, label=name)
ax.axhline(0, color="0.5", lw=0.8)
ax.set_yscale("symlog", linthresh=1e-4)
ax.set(xlabel="rank of the eigenvalue", ylabel="eigenvalue / largest")
ax.set_title("Is it a kernel? No eigenvalue may be negative", loc="left", fontsize=11)
ax.legend(frameon=False, fontsize=9)
plt.show()
