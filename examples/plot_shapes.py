"""
A curve for each column
=======================

An additive model predicts by a sum of shapes: one for each column, and for a few pairs.
The shapes are the whole model, and its certificate bounds how far they are from the
best ones.
"""

import numpy as np

from certus.additive import AdditiveRegressor

rng = np.random.default_rng(0)
X = np.column_stack([rng.uniform(-3, 3, (800, 4)), rng.integers(0, 4, 800)])
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 2 * (X[:, 3] > 1) + (X[:, 4] == 2)
y += 0.5 * rng.normal(size=800)

# %%
# The shape of the fourth column must not fall; the certificate proves that it does not.
# The last column has categories. The pair of columns 1 and 2 is found by the fit.

signs = [0, 0, 0, 1, 0]
model = AdditiveRegressor(
    monotonic_cst=signs, categorical_features=[4], max_bins=32
).fit(X, y)
print(model.certificate_)

# %%
# Bands are two standard deviations wide on each side.

model.plot_shapes()

# %%
# The score of every row of a box lies between these ends.

found = model.score_range([-1, -1, -1, -3, 0], [1, 1, 1, 0, 3])
print(f"{found.low:.2f} to {found.high:.2f}, exact: {found.exact}")
