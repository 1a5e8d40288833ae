"""
Round clusters, and clusters that are not round
===============================================

k-means assigns each row to the nearest centre, as if all clusters were balls of the
same size. A mixture of Gaussians learns their shapes and says how sure it is. How many
clusters are there? The elbow of the inertia gives one answer, BIC another.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.metrics import adjusted_rand_score

from certus.cluster import KMeans, elbow
from certus.mixture import GaussianMixture

# %%
# Three elongated clusters side by side.

rng = np.random.default_rng(0)
shape = np.array([[3.0, 0.0], [1.2, 0.35]])
centres = np.array([[0.0, 0.0], [0.5, 2.6], [-0.5, -2.6]])
X = np.concatenate([rng.normal(size=(300, 2)) @ shape + c for c in centres])
truth = np.repeat([0, 1, 2], 300)

kmeans = KMeans(3, n_init=10, random_state=0).fit(X)
mixture = GaussianMixture(3, n_init=10, tol=1e-6, max_iter=500, random_state=0).fit(X)
print(kmeans.certificate_)
print(mixture.certificate_)

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4), sharey=True, layout="constrained")
for axis, model, name in zip(axes, (kmeans, mixture), ("k-means", "mixture")):
    labels = model.predict(X)
    agree = adjusted_rand_score(truth, labels)
    axis.scatter(*X.T, s=5, c=[f"C{k}" for k in labels], alpha=0.6, lw=0)
    axis.set_title(f"{name}: agreement with the truth {agree:.2f}", loc="left")
    axis.set_xlabel("first column")
axes[0].plot(*kmeans.cluster_centers_.T, "kx", ms=9, mew=2)
for mean, covariance in zip(mixture.means_, mixture.covariances_):
    values, vectors = np.linalg.eigh(covariance)
    axes[1].add_patch(
        Ellipse(
            mean,
            *(4 * np.sqrt(values)),
            angle=np.degrees(np.arctan2(*vectors[::-1, 0])),
            fill=False,
            lw=1.5,
        )
    )
axes[0].set_ylabel("second column")
plt.show()

# %%
# How many clusters? For five round clusters the inertia bends at five. BIC, which needs
# a likelihood, has its minimum there.

spots = np.array([[-6, -5], [6, -5], [0, 1], [-6, 6], [6, 6]])
Y = np.concatenate([rng.normal(c, 0.9, (150, 2)) for c in spots])
found = elbow(Y, range(1, 11), random_state=0)
bic = [
    GaussianMixture(k, n_init=3, tol=1e-5, max_iter=1000, random_state=0).fit(Y).bic(Y)
    for k in found.ks
]

figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
found.plot(axes[0])
axes[1].plot(found.ks, bic, "o-", color="C1")
axes[1].plot(found.ks[np.argmin(bic)], min(bic), "o", ms=12, mfc="none", mec="black")
axes[1].set(xlabel="number of components", ylabel="BIC")
axes[1].set_title(f"minimum at {found.ks[np.argmin(bic)]}", loc="left")
plt.show()
