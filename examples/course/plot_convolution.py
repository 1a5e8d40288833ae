"""
Convolution, from integrals to layers
=====================================

A convolution is an integral that commutes with shifts. On a grid it becomes a matrix,
waves are its eigenvectors, and with a kernel of a few pixels it is a layer of a
network.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn import functional as F

rng = np.random.default_rng(0)

# %%
# **An integral operator** (Tf)(u) = ∫ H(u, t) f(t) dt is a matrix on a grid. With
# H = min(u, t) it solves −g″ = f.

t = np.linspace(0, 1, 2001)
share = np.full(len(t), t[1] - t[0])
share[[0, -1]] /= 2
g = np.minimum.outer(t, t) @ (share * np.sin(t))
np.testing.assert_allclose(g, np.sin(t) - t * np.cos(1), atol=1e-6)

# %%
# **Convolution** (f ∗ h)(u) = ∫ h(u − t) f(t) dt: the density of a sum of independent
# quantities. Gaussians stay Gaussian and their variances add; a box becomes a tent,
# then ever more like a bell.
#
# **The Fourier transform** turns it into a product. exp(−πt²) is its own transform.

t = np.linspace(-6, 6, 1201)
dt = t[1] - t[0]


def bell(t, variance):
    return np.exp(-(t**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


both = np.convolve(bell(t, 0.3), bell(t, 0.5), "same") * dt
np.testing.assert_allclose(both, bell(t, 0.8), atol=1e-12)

box = (np.abs(t) < 0.5).astype(float)
sums = [box]
for _ in range(3):
    sums.append(np.convolve(sums[-1], box, "same") * dt)

u = np.linspace(-2, 2, 401)
wave = np.exp(-2j * np.pi * np.outer(u, t))
fixed = (wave @ np.exp(-np.pi * t**2) * dt).real
np.testing.assert_allclose(fixed, np.exp(-np.pi * u**2), atol=1e-12)
product = (wave @ sums[0] * dt) * (wave @ sums[1] * dt)
np.testing.assert_allclose(wave @ sums[2] * dt, product, atol=1e-4)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for k, density in enumerate(sums, start=1):
    left.plot(t, density, label=f"{k} box" + "es" * (k > 1))
    right.plot(u, (wave @ density * dt).real, label=f"transform, power {k}")
left.set(title="A box, convolved with itself", xlim=(-2.5, 2.5))
right.set(title="Its Fourier transform, multiplied by itself", xlabel="frequency")
left.legend()
right.legend()

# %%
# **A layer** holds several kernels for several channels. Five kernels of 3 × 3 × 3
# give five maps and have 5·27 + 5 weights. A stride keeps every s-th output.

layer = torch.nn.Conv2d(3, 5, 3)
assert layer(torch.zeros(1, 3, 8, 8)).shape == (1, 5, 6, 6)
assert sum(p.numel() for p in layer.parameters()) == 5 * 27 + 5
x = torch.randn(1, 3, 9, 9)
every = layer(x)[:, :, ::2, ::2]
torch.testing.assert_close(F.conv2d(x, layer.weight, layer.bias, stride=2), every)

# %%
# **Pooling** keeps the largest or the mean of each window. Slopes go back to the
# largest alone, or to all pixels alike. Over the whole map it leaves one number.

image = np.add.outer(np.sin(np.arange(8)), np.cos(np.arange(8) / 2))
x = torch.tensor(image[None, None], requires_grad=True)
pools = {"largest": F.max_pool2d(x, 2), "mean": F.avg_pool2d(x, 2)}
figure, axes = plt.subplots(2, 2, figsize=(6, 5.6), layout="constrained")
for (name, out), row in zip(pools.items(), axes, strict=True):
    (slope,) = torch.autograd.grad(out.sum(), x)
    row[0].imshow(out.detach().numpy()[0, 0])
    row[0].set_title(f"{name} of each 2 × 2 window")
    row[1].imshow(slope.numpy()[0, 0], vmin=0, vmax=1, cmap="Greys")
    row[1].set_title("where its slopes go")
    for ax in row:
        ax.set_axis_off()
torch.testing.assert_close(F.adaptive_avg_pool2d(x, 1)[0, 0, 0, 0], x.mean())
torch.testing.assert_close(F.adaptive_max_pool2d(x, 1)[0, 0, 0, 0], x.max())
plt.show()
