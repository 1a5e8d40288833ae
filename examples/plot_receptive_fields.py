"""
What a unit of a convolutional network sees
===========================================

A unit looks at a few pixels, and a unit of a later layer looks at such units. The size
of its window on the image follows from kernel sizes and strides. It is the region where
the derivative of the unit with respect to the image is not zero. Below: filters learnt
from digits.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from certus.neural_network import ConvNetClassifier
from certus.neural_network.modules import receptive_field

# %%
# Three convolutions with pooling between them, on an image of 32 × 32 pixels. After
# each one, automatic differentiation gives the derivative of the middle unit. Outside
# the square, which the formula :math:`r_{l-1} = s_l r_l + (k_l - s_l)` predicts, it is
# exactly zero. Inside, the middle counts most, because more paths lead there.

with torch.random.fork_rng():
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 8, 3, padding=1),
        nn.AvgPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.AvgPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
    ]

figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.5), layout="constrained")
for axis, depth in zip(axes, (1, 3, 5)):
    image = torch.zeros(1, 1, 32, 32, requires_grad=True)
    maps = nn.Sequential(*layers[:depth])(image)
    middle = maps.shape[2] // 2
    slopes = [
        torch.autograd.grad(unit, image, retain_graph=True)[0][0, 0].abs()
        for unit in maps[0, :, middle, middle]
    ]
    seen = torch.stack(slopes).mean(dim=0).numpy()
    rows = np.flatnonzero(seen.any(axis=1))
    size = receptive_field(layers[:depth])
    print(f"after {depth} layers: formula {size}, slopes {rows[-1] - rows[0] + 1}")
    axis.imshow(np.where(seen > 0, seen / seen.max(), np.nan), cmap="viridis")
    corner = rows[0] - 0.5
    axis.add_patch(
        plt.Rectangle((corner, corner), size, size, fill=False, ec="tab:red", lw=2)
    )
    axis.set_title(
        f"{depth} layer{'s'[: depth > 1]}: {size} × {size} pixels", loc="left"
    )
    axis.set_xticks([])
    axis.set_yticks([])
figure.suptitle("Derivative of one unit by each pixel; red: the formula")
plt.show()

# %%
# The filters of the first layer after training on 8 × 8 digits, and the output of this
# layer for one digit. The network has learnt edges in all directions by itself.

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
model = ConvNetClassifier(max_iter=10, random_state=0).fit(X, y)
print(f"held-out accuracy {model.score(X_test, y_test):.3f}")

first = model.module_.features[0]
filters = first.weight.detach().numpy()[:, 0]
order = np.argsort(-np.abs(filters).sum(axis=(1, 2)))[:16]  # the strongest
scaled = (X_test[:1].reshape(1, 1, 8, 8) - model.mean_) / model.scale_
with torch.no_grad():
    answers = torch.relu(first(torch.as_tensor(scaled).float()))[0].numpy()

figure = plt.figure(figsize=(9.6, 3.9), layout="constrained")
left, centre, right = figure.subfigures(1, 3, width_ratios=(4, 2, 4))
for part, images, title, colours in (
    (left, filters[order], "strongest filters, 3 × 3", "RdBu_r"),
    (right, answers[order], "their outputs", "magma"),
):
    part.suptitle(title)
    # Zero is white where signs matter, dark where there are none.
    top = np.abs(images).max()
    low = -top if colours == "RdBu_r" else 0
    for axis, image in zip(part.subplots(4, 4).flat, images):
        axis.imshow(image, cmap=colours, vmin=low, vmax=top)
        axis.axis("off")
centre.suptitle(f"a digit: {y_test[0]}")
axis = centre.subplots()
axis.imshow(X_test[0].reshape(8, 8), cmap="gray_r")
axis.axis("off")
plt.show()
