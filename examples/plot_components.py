"""
Principal components, and a network that finds them
===================================================

A linear autoencoder compresses 64 pixels to a few numbers and restores them. Nobody
tells it about eigenvectors, and nothing forces its weights to be orthogonal. Yet it
finds the span of the principal components, with the same error.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import subspace_angles
from sklearn.datasets import load_digits

from certus.decomposition import PCA, DeepLinearNetwork, LinearAutoencoder

X, labels = load_digits(return_X_y=True)
k = 8
pca = PCA(k).fit(X)
network = LinearAutoencoder(k, random_state=0).fit(X)
print(pca.certificate_)
print(network.certificate_)
angle = subspace_angles(pca.components_.T, network.decoder_).max()
print(f"largest angle between the two spans: {angle:.1e}")

# %%
# Top: the components, ordered by how much they explain. Middle: columns of the decoder,
# mixtures of the same directions. Bottom: digits, and their reconstructions by both.

figure, axes = plt.subplots(4, k, figsize=(9.6, 5.4), layout="constrained")
restored = pca.inverse_transform(pca.transform(X[:k]))
again = network.inverse_transform(network.transform(X[:k]))
rows = (pca.components_, network.decoder_.T, X[:k], again)
names = ("components", "decoder", "digits", f"through {k} numbers")
for line, images, name in zip(axes, rows, names):
    for axis, image in zip(line, images):
        signed = image.min() < -5 or np.abs(image).max() < 2
        limit = np.abs(image).max()
        axis.imshow(
            image.reshape(8, 8),
            cmap="RdBu_r" if signed else "gray_r",
            vmin=-limit if signed else 0,
            vmax=limit if signed else 16,
        )
        axis.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, rotation=0, ha="right", va="center")
print(
    f"largest difference of a restored pixel: {abs(restored - again).max():.1e} of 16"
)
plt.show()

# %%
# Left: during training the loss falls to half the sum of the eigenvalues left out. No
# encoder and decoder of this width can do better. Right: a deep linear network that
# learns to name the digits learns one direction after the other, strong ones first.

values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
least = values[k:].sum() / 2
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
excess = np.array(network.history_["objective"]) - least
left.semilogy(1 + np.arange(len(excess)), np.maximum(excess, 1e-14), color="C0")
left.set(xlabel="step", ylabel="loss above the minimum")
deep = DeepLinearNetwork((16,), learning_rate=0.05, random_state=0).fit(
    X, np.eye(10)[labels]
)
deep.plot_modes(right)
plt.show()
