"""
Functions made of flat pieces
=============================

ReLU and maxout networks give functions that are affine on each of finitely many
pieces. The convex ones are maxima of affine functions, and all others are differences
of two convex ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

rng = np.random.default_rng(0)

# %%
# **A polyhedral function** is the largest of some affine functions a·x + b. Its value
# is the lowest point above x that lies in all half-spaces t ≥ a·x + b; and it is the
# support function of the points (a, b), so that only corners of their hull matter.

planes = rng.normal(size=(12, 3))
corners = planes[ConvexHull(planes).vertices]
for x in rng.normal(size=(10, 2)):
    heights = planes[:, :2] @ x + planes[:, 2]
    lowest = linprog([1.0], -np.ones((12, 1)), -heights, bounds=(None, None)).fun
    assert np.isclose(lowest, heights.max())
    assert np.isclose((corners @ [*x, 1.0]).max(), heights.max())

# %%
# **A difference of two convex functions.** Any broken line changes its slope at each
# knot: the changes upwards make one convex function, those downwards the other.

knots, y = np.array([0.0, 1.0, 2.0, 4.0, 5.0]), np.array([0.0, 2.0, -1.0, 1.0, 0.0])
slopes = np.diff(y) / np.diff(knots)
changes = np.diff(slopes)
t = np.linspace(0, 5, 400)
bends = np.maximum(t[:, None] - knots[1:-1], 0)
up = y[0] + slopes[0] * t + bends @ np.maximum(changes, 0)
down = bends @ np.maximum(-changes, 0)
np.testing.assert_allclose(up - down, np.interp(t, knots, y), atol=1e-12)
for convex in (up, down):
    assert (np.diff(convex, 2) >= -1e-12).all()

# %%
# **Hinges.** In n dimensions maxima of n + 1 affine functions are enough: longer ones
# are signed sums of them. On a line, the largest of three lines is the sum of two
# maxima of two, less the line they share.

first, middle, last = -t + 1, 0.3 * t - 1, 2 * t - 6
longest = np.maximum(np.maximum(first, middle), last)
hinges = np.maximum(first, middle) + np.maximum(middle, last) - middle
np.testing.assert_allclose(hinges, longest, atol=1e-12)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.5), layout="constrained")
left.plot(t, up - down, color="black", label="a broken line")
left.plot(t, up, label="its turns upwards")
left.plot(t, down, label="less its turns downwards")
left.legend()
for name, line in {"first": first, "middle": middle, "last": last}.items():
    right.plot(t, line, "--", label=name)
right.plot(t, longest, color="black", label="largest of the three")
right.set_ylim(-3, 5)
right.legend()
plt.show()
