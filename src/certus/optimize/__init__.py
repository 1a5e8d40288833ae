"""Optimisers for any function, each with the theorem on its rate.

Every call returns a :class:`Record`: the iterates, why it stopped, the constants and
where they come from, and the rate theorem that applies, with its bound and the observed
value at every step. ``minimize`` chooses by name; each method is also a function.
"""

from certus.optimize.adaptive import adagrad, adam, amsgrad
from certus.optimize.blocks import alternating_minimization
from certus.optimize.constants import estimate_constants
from certus.optimize.descent import clip_gradient, gradient_descent
from certus.optimize.inertia import heavy_ball, momentum, nesterov
from certus.optimize.methods import minimize
from certus.optimize.nonsmooth import subgradient_descent
from certus.optimize.objective import Objective, from_torch
from certus.optimize.problems import (
    least_squares_objective,
    linear_objective,
    logistic_objective,
    quadratic_objective,
)
from certus.optimize.record import Bound, Known, Record, Theorem, average_bounds
from certus.optimize.schedules import (
    Constant,
    InverseSqrt,
    Piecewise,
    RobbinsMonro,
    Sublinear,
)
from certus.optimize.search import bisection, grid_search
from certus.optimize.second_order import newton_method, second_order_test
from certus.optimize.sets import (
    Ball,
    Box,
    HalfSpace,
    Intersection,
    Simplex,
    linear_maximizer,
)
from certus.optimize.signs import sign_descent
from certus.optimize.spectral import power_method
from certus.optimize.splitting import L1Norm, projected_gradient, proximal_gradient
from certus.optimize.stochastic import (
    gradient_noise,
    polyak_average,
    stochastic_gradient_descent,
)
from certus.optimize.stopping import MaxTime, Static, Validation
from certus.optimize.testers import Witness, chord_violation, tangent_violation
from certus.optimize.variance_reduction import svrg, svrg_gradient

__all__ = [
    "Ball",
    "Bound",
    "Box",
    "Constant",
    "HalfSpace",
    "Intersection",
    "InverseSqrt",
    "Known",
    "L1Norm",
    "MaxTime",
    "Objective",
    "Piecewise",
    "Record",
    "RobbinsMonro",
    "Simplex",
    "Static",
    "Sublinear",
    "Theorem",
    "Validation",
    "Witness",
    "adagrad",
    "adam",
    "alternating_minimization",
    "amsgrad",
    "average_bounds",
    "bisection",
    "chord_violation",
    "clip_gradient",
    "estimate_constants",
    "from_torch",
    "gradient_descent",
    "gradient_noise",
    "grid_search",
    "heavy_ball",
    "least_squares_objective",
    "linear_maximizer",
    "linear_objective",
    "logistic_objective",
    "minimize",
    "momentum",
    "nesterov",
    "newton_method",
    "polyak_average",
    "power_method",
    "projected_gradient",
    "proximal_gradient",
    "quadratic_objective",
    "second_order_test",
    "sign_descent",
    "stochastic_gradient_descent",
    "subgradient_descent",
    "svrg",
    "svrg_gradient",
    "tangent_violation",
]
