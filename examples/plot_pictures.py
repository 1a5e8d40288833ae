"""
Digits from noise
=================

A diffusion model learns to remove noise from small pictures of digits. Begun at pure
noise and asked again and again, it draws new digits of the class that is asked for.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from certus.generative import Diffusion

digits = load_digits()
X, y = digits.images[:1400], digits.target[:1400]
model = Diffusion(batch_size=128, max_iter=2500, random_state=0).fit(X, y)
print(model.certificate_)


def sheet(pictures):
    """Pictures of equal size, side by side, with a gap between them."""
    rows, columns, height, width = pictures.shape
    page = np.full((rows, columns, height + 1, width + 1), np.nan)
    page[:, :, :height, :width] = pictures
    return page.transpose(0, 2, 1, 3).reshape(rows * (height + 1), -1)[:-1, :-1]


# %%
# Eight digits of each class. Guidance a little above 1 draws typical ones. To the right
# of each row is the real picture that is nearest to its last sample: near it, but not
# the same.

model.set_params(guidance=1.2, n_steps=18)
labels = np.repeat(np.arange(10), 8)
made, _ = model.sample(len(labels), y=labels, random_state=0)
last = made.reshape(10, 8, 64)[:, -1]
apart = np.square(last[:, None] - X.reshape(1, -1, 64)).sum(axis=2)
nearest = X[apart.argmin(axis=1)]

figure, (left, right) = plt.subplots(
    1, 2, figsize=(6.6, 6.6), width_ratios=[8, 1], layout="constrained"
)
left.imshow(sheet(made.reshape(10, 8, 8, 8)), cmap="gray_r", vmin=0, vmax=16)
right.imshow(sheet(nearest[:, None]), cmap="gray_r", vmin=0, vmax=16)
left.set_title("Samples", loc="left")
right.set_title("Nearest", loc="left")
for axis in (left, right):
    axis.set_axis_off()
plt.show()

# %%
# The way from noise to a digit: noise levels fall, and at each the network says which
# picture it expects. Below, that picture: first the mean of the class, then a digit.
# The steps are those of ``sampler="ddim"``, written out.

LEVELS = np.geomspace(30, 0.02, 40)
SHOWN = [0, 10, 16, 19, 22, 25, 28, 32, 39]
asked = np.array([0, 3, 6])
rng = np.random.default_rng(1)
x = X.mean() + X.std() * LEVELS[0] * rng.standard_normal((3, 8, 8))
noisy, expected = [], []
for one, other in zip(LEVELS, [*LEVELS[1:], 0.0]):
    D = model.denoise(x, one, asked)
    noisy.append(x)
    expected.append(D)
    x = D + other / one * (x - D)

figure, axes = plt.subplots(3, 1, figsize=(8.6, 6.4), layout="constrained")
for k, axis in enumerate(axes):
    states = np.array([noisy[i][k] for i in SHOWN])
    # Contrast is that of each picture: noise would hide everything else.
    low, high = (f(states, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
    states = 16 * (states - low) / (high - low)
    pictures = np.stack([states, np.array([expected[i][k] for i in SHOWN])])
    axis.imshow(sheet(pictures), cmap="gray_r", vmin=0, vmax=16)
    axis.set_yticks([3.5, 12.5], ["with noise", "expected"])
    axis.set_xticks(9 * np.arange(len(SHOWN)) + 3.5, [])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
axes[-1].set_xticklabels([f"σ = {LEVELS[i]:.2g}" for i in SHOWN])
plt.show()

# %%
# Does it copy? On training rows nothing beats the memoriser, a weighted mean of these
# rows. On pictures that were held out it is poor, and a model that learned is better.

claim = model.certificate_["denoising"]
print(claim.detail)
for part in model.certificate_["denoising_errors"].detail.split(" | "):
    print(part)
