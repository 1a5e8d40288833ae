"""Approximation: which functions come as close as one likes, and how fast."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.special import comb

from certus.kernel_ridge import KernelRidge
from certus.kernels import feature_dimension, feature_map, gram
from certus.linear_model import LinearRegression
from certus.neural_network.modules import MLP, activation, piecewise_linear_network
from certus.objectives import Polynomial
from certus.svm import SVR
from helpers.weights import set_weights, values

GRID = np.linspace(0, 1, 2001)
#: Continuous functions on [0, 1], each with its modulus of continuity.
FUNCTIONS = {
    "corner": (lambda x: np.abs(x - 0.5), lambda d: np.minimum(d, 0.5)),
    "root": (np.sqrt, np.sqrt),
    "wave": (lambda x: np.sin(7 * x), lambda d: np.minimum(7 * d, 2)),
}


def unit(name, z):
    return activation(name)(torch.from_numpy(z)).numpy()


def least_distance(columns, y):
    """Sup distance of y from the span of some columns, by linear programming."""
    one = np.ones((len(y), 1))
    rows = np.block([[columns, -one], [-columns, -one]])
    cost = np.r_[np.zeros(columns.shape[1]), 1.0]
    return linprog(cost, rows, np.r_[y, -y], bounds=(None, None)).fun


# -- uniform approximation ----------------------------------------------------------


@pytest.mark.catalog("THY-12")
def test_a_dense_class_enters_every_tube():
    """Denseness: for each ε some g of the class is within ε of f everywhere.

    Support vector regression looks for exactly that g.
    """
    x = np.linspace(-1, 1, 101)[:, None]
    y = np.abs(x[:, 0])

    def farthest(eps, **options):
        model = SVR(C=1e3, epsilon=eps, **options).fit(x, y)
        assert model.certificate_.met
        return np.abs(model.predict(x) - y).max()

    widths = (0.2, 0.05, 0.0125)
    errors = [farthest(eps, kernel="rbf", gamma=20.0) for eps in widths]
    assert all(e <= 1.01 * eps for e, eps in zip(errors, widths))
    # Lines are not dense: none is closer to ∣x∣ than ½, and one is as close.
    for eps in widths:
        assert farthest(eps, kernel="linear") >= 0.5 - 1e-6
    assert farthest(0.5, kernel="linear") <= 0.5 + 1e-6


@pytest.mark.catalog("THY-13")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bernstein_polynomials_converge_at_their_rate(name):
    """The features of (xᵀx')ⁿ at (x, 1 − x) are Bernstein's basis, but for a factor."""
    f, modulus = FUNCTIONS[name]
    rows, errors = np.column_stack([GRID, 1 - GRID]), []
    for n in (4, 16, 64, 256):
        k = np.arange(n, -1, -1)  # the power of x in each monomial
        basis = feature_map(Polynomial(n, coef0=0.0), rows) * np.sqrt(comb(n, k))
        np.testing.assert_allclose(basis.sum(axis=1), 1, rtol=1e-9)
        np.testing.assert_allclose(basis @ (k / n), GRID, atol=1e-9)
        errors.append(np.abs(basis @ f(k / n) - f(GRID)).max())
        assert errors[-1] <= 1.5 * modulus(n**-0.5)
    assert all(b < a for a, b in pairwise(errors))
    assert errors[-1] < 0.11


def fitted(features, y):
    """Least-squares fit by the columns of a matrix: its largest error."""
    model = LinearRegression(fit_intercept=False, solver="svd").fit(features, y)
    return np.abs(model.predict(features) - y).max()


@pytest.mark.catalog("THY-14")
@pytest.mark.parametrize("name", ["logistic", "tanh", "softplus"])
def test_units_that_are_not_polynomials_fit_ever_better(name):
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 500)
    y = np.exp(-x) * np.sin(5 * x)
    a, b = rng.normal(size=(2, 64)) * 4
    errors = [fitted(unit(name, np.outer(x, a[:m]) + b[:m]), y) for m in (4, 16, 64)]
    assert errors[0] > 10 * errors[1] > 20 * errors[2]
    assert errors[2] < 1e-2


@pytest.mark.catalog("THY-14")
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_units_that_are_polynomials_stop_fitting(degree):
    """Units (ax + b)ᵏ are a polynomial kernel at (x, 1); k + 1 of them are enough."""
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 500)
    y = np.exp(-x) * np.sin(5 * x)
    rows, weights = np.column_stack([x, np.ones(500)]), rng.normal(size=(64, 2))
    kernel = Polynomial(degree, coef0=0.0)
    assert feature_dimension(kernel, 2) == degree + 1
    known = fitted(np.polynomial.chebyshev.chebvander(x, degree), y)
    assert known > 0.3
    for m in (degree + 1, 16, 64):
        units = gram(kernel, rows, weights[:m])
        model = LinearRegression(fit_intercept=False, solver="svd").fit(units, y)
        assert model.rank_ == degree + 1
        found = np.abs(model.predict(units) - y).max()
        assert found == pytest.approx(known, rel=1e-6)
    # The same space without units: the machine of that kernel.
    machine = KernelRidge(1e-3, kernel=kernel).fit(rows, y)
    assert np.abs(machine.predict(rows) - y).max() == pytest.approx(known, rel=1e-3)


@pytest.mark.catalog("THY-15")
def test_products_are_sums_of_ridge_functions():
    """A polynomial kernel at a fixed x' is a ridge function (x'ᵀx)ᵏ."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 2))
    squares = gram(Polynomial(2, coef0=0.0), X, [[1.0, 1.0], [1.0, -1.0]])
    product = (squares[:, 0] - squares[:, 1]) / 4
    np.testing.assert_allclose(product, X[:, 0] * X[:, 1], atol=1e-15)
    # Every polynomial of a degree: powers along as many directions span them.
    for degree in (2, 3, 5):
        angles = np.pi * np.arange(degree + 1) / (degree + 1)
        ways = np.column_stack((np.cos(angles), np.sin(angles)))
        ridges = gram(Polynomial(degree, coef0=0.0), X, ways)
        for i in range(degree + 1):
            monomial = X[:, 0] ** i * X[:, 1] ** (degree - i)
            assert fitted(ridges, monomial) < 1e-11
        mixed = X[:, 0] * X[:, 1] ** (degree - 1)
        assert fitted(ridges[:, :-1], mixed) > 1e-2  # one direction too few


@pytest.mark.catalog("THY-16")
def test_one_dimension_is_enough_for_more():
    x, y = np.random.default_rng(0).uniform(-1, 1, size=(2, 3000))
    for m in (5, 17, 65):
        knots = np.linspace(-2, 2, m)
        square = piecewise_linear_network(knots, knots**2)
        one = np.abs(np.interp(GRID * 4 - 2, knots, knots**2) - (GRID * 4 - 2) ** 2)
        product = (values(square, x + y) - values(square, x - y)) / 4
        assert np.abs(product - x * y).max() <= one.max() / 4 + 1e-12
    assert np.abs(product - x * y).max() < 3e-4


@pytest.mark.catalog("THY-16")
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_two_dimensions_by_units_of_a_layer(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = np.sin(3 * X[:, 0] * X[:, 1])
    W, b = rng.normal(size=(2, 400)), rng.normal(size=400)
    errors = [fitted(unit(name, X @ W[:, :m] + b[:m]), y) for m in (10, 60, 400)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.catalog("THY-22")
@pytest.mark.parametrize("name", ["relu", "absolute"])
def test_bent_units_fit_on_compact_sets_alone(name):
    x = np.linspace(-10, 10, 4001)
    errors = []
    for m in (10, 40, 160):
        knots = np.linspace(-10, 10, m)
        columns = np.column_stack((unit(name, x[:, None] - knots), x, np.ones_like(x)))
        errors.append(fitted(columns, np.sin(x)))
    assert errors[0] > 8 * errors[1] > 64 * errors[2]
    # On the whole line each of them is affine far out, and sine is not: no line comes
    # much closer to it than zero does.
    long = np.linspace(0, 200, 4001)
    lines = np.column_stack((long, np.ones_like(long)))
    assert least_distance(lines, np.sin(long)) > 0.98
    for hidden in [(20,), (20, 20, 20)]:
        net = MLP(1, hidden, 1, activation=name).double()
        far = 1e6 + np.linspace(0, 100, 1001)
        for t in (far, -far):
            y = values(net, t)
            np.testing.assert_allclose(np.diff(y, 2), 0, atol=1e-6)
            assert np.abs(y - np.sin(t)).max() >= 0.99


# -- rates --------------------------------------------------------------------------


@pytest.mark.catalog("THY-17")
@pytest.mark.parametrize("n", [1, 3, 10])
def test_barrons_bound_holds_in_any_dimension(n):
    """The steps of Barron's proof, drawn at random, for g(x) = exp(−‖x‖²/2).

    Its transform is the density of N(0, I), so that C = E‖ω‖. On a ball of radius r,
    g(x) − g(0) is the mean of 2rC·sin(ρt)·1{s ω·x/ρ > t} with the sign turned, where ω
    has the density ρ = ‖ω‖ times the normal one, t is uniform on (0, r), and s = ±1.
    """
    rng = np.random.default_rng(n)
    r, C = 2.0, math.sqrt(2) * math.gamma((n + 1) / 2) / math.gamma(n / 2)
    X = rng.normal(size=(400, n))
    X *= r * rng.uniform(size=(400, 1)) ** (1 / n) / np.linalg.norm(X, axis=1)[:, None]
    g = np.exp(-0.5 * (X**2).sum(axis=1)) - 1

    def steps(m):
        way = rng.normal(size=(n, m))
        way /= np.linalg.norm(way, axis=0)
        rho = np.sqrt(rng.chisquare(n + 1, size=m))
        t, s = rng.uniform(0, r, size=m), rng.choice([-1.0, 1.0], size=m)
        return -2 * r * C * np.sin(rho * t), unit("heaviside", s * (X @ way) - t)

    drawn, best, sizes = [], [], np.array([8, 32, 128])
    for m in sizes:
        errors, fits = [], []
        for _ in range(40):
            height, on = steps(m)
            errors.append(np.mean((on @ height / m - g) ** 2))
            w = np.linalg.lstsq(on, g, rcond=None)[0]
            fits.append(np.mean((on @ w - g) ** 2))
        drawn.append(np.mean(errors))
        best.append(np.mean(fits))
        assert best[-1] <= drawn[-1] <= (2 * r * C) ** 2 / m
    slope = np.polyfit(np.log(sizes), np.log(drawn), 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)
    assert np.polyfit(np.log(sizes), np.log(best), 1)[0] <= -1 + 0.05


@pytest.mark.catalog("THY-18")
def test_differences_of_steep_sigmoids_are_boxes():
    x = np.linspace(-1, 2, 300_001)
    box = (x > 0.2) & (x < 0.7)
    for steep in (50.0, 100.0, 200.0):
        net = MLP(1, (2,), 1, activation="logistic").double()
        edges = [-0.2 * steep, -0.7 * steep]
        set_weights(net, ([[steep], [steep]], edges), ([[1.0, -1.0]], [0.0]))
        distance = np.abs(values(net, x) - box).mean() * 3
        # Each flank costs ∫∣σ(kx) − 1{x > 0}∣dx = 2 log 2/k.
        assert distance == pytest.approx(4 * math.log(2) / steep, rel=0.01)


@pytest.mark.catalog("THY-18")
def test_boxes_in_the_plane_need_a_threshold():
    t = (np.arange(800) + 0.5) / 800
    X = np.column_stack([axis.ravel() for axis in np.meshgrid(t, t)])
    inside = (np.abs(X - 0.5) < 0.2).all(axis=1)
    bare, cut = [], []
    for steep in (20.0, 80.0, 320.0):
        flanks = steep * np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        bumps = flanks, -steep * np.array([0.3, 0.7, 0.3, 0.7])
        total = np.array([[1.0, -1.0, 1.0, -1.0]])
        cross = MLP(2, (4,), 1, activation="logistic").double()
        set_weights(cross, bumps, (total, [0.0]))
        bare.append(np.abs(values(cross, X) - inside).mean())
        box = MLP(2, (4, 1), 1, activation="logistic").double()
        set_weights(box, bumps, (steep * total, [-1.5 * steep]), ([[1.0]], [0.0]))
        cut.append(np.abs(values(box, X) - inside).mean())
    assert min(bare) > 0.5  # the arms of the cross stay
    assert cut[0] > 2 * cut[1] > 4 * cut[2]
    assert cut[2] < 0.01


@pytest.mark.catalog("THY-18")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_of_boxes_err_by_the_width_of_one(name):
    f, modulus = FUNCTIONS[name]
    for m in (8, 32, 128):
        edges, steep = np.arange(1, m) / m, 1e5
        heights = f((np.arange(m) + 0.5) / m)
        net = MLP(1, (m - 1,), 1, activation="logistic").double()
        flanks = np.full((m - 1, 1), steep), -steep * edges
        set_weights(net, flanks, (np.diff(heights)[None], [heights[0]]))
        error = np.abs(values(net, GRID) - f(GRID))
        away = np.abs(GRID[:, None] - edges).min(axis=1) > 1e-3
        assert error[away].max() <= modulus(0.5 / m) + 1e-9
        assert error.mean() <= modulus(0.5 / m)


@pytest.mark.catalog("THY-19")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_broken_lines_come_as_close_as_the_function_is_continuous(name):
    f, modulus = FUNCTIONS[name]
    errors = []
    for m in (4, 16, 64, 256):
        knots = np.linspace(0, 1, m + 1)
        net = piecewise_linear_network(knots, f(knots))
        errors.append(np.abs(values(net, GRID) - f(GRID)).max())
        assert errors[-1] <= modulus(1 / m)
        if name == "wave":  # two derivatives: h²/8 times the largest second one
            assert errors[-1] <= 49 / (8 * m**2) + 1e-12
    if name == "wave":
        np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 16, rtol=0.15)
    assert errors[-1] < 0.02
