"""Piecewise linear functions as networks: hinges, maxima, depth, and skips."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import null_space
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from certus.neural_network import jacobian
from certus.neural_network.modules import MLP, piecewise_linear_network
from helpers.weights import set_weights, values

numbers = st.floats(-100, 100).map(lambda v: round(v, 3))
points = st.lists(
    st.tuples(numbers, numbers), min_size=1, max_size=12, unique_by=lambda p: p[0]
)


# -- one dimension ------------------------------------------------------------------


@pytest.mark.catalog("THY-20")
@given(points)
def test_relus_join_points_by_lines(pairs):
    x, y = np.array(sorted(pairs)).T
    net = piecewise_linear_network(*np.array(pairs).T)
    t = np.concatenate((x, np.linspace(x[0] - 5, x[-1] + 5, 101)))
    net_t, known = values(net, t), np.interp(t, x, y)
    steep = np.abs(np.diff(y) / np.diff(x)).max(initial=1.0)
    np.testing.assert_allclose(net_t, known, atol=1e-12 * steep * 200)


@pytest.mark.catalog("THY-20")
def test_units_are_knots_and_weights_are_changes_of_slope():
    x, y = np.array([-2.0, -1.0, 0.0, 2.0, 4.0]), np.array([1.0, 3.0, 3.0, -1.0, 7.0])
    net = piecewise_linear_network(x, y)
    t = np.arange(-32, 65) / 8  # numbers that are exact in binary
    np.testing.assert_array_equal(values(net, t), np.interp(t, x, y))
    slopes = np.diff(y) / np.diff(x)
    changes = net.output.weight.detach().numpy()[0]
    np.testing.assert_array_equal(changes[1:-1], np.diff(slopes))
    np.testing.assert_array_equal(changes[[0, -1]], [slopes[0], -slopes[-1]])
    # The form of the notes, ax + b + Σ cᵢ(x − xᵢ)₊ with the inner knots alone.
    inside = t[(t >= -2) & (t <= 4)]
    g = slopes[0] * (inside - x[0]) + y[0]
    g = g + np.maximum(inside[:, None] - x[1:-1], 0) @ np.diff(slopes)
    np.testing.assert_array_equal(g, np.interp(inside, x, y))


def test_several_functions_share_their_knots():
    x, Y = [3, 1, 2], np.array([[1.0, 5.0], [0.0, 1.0], [4.0, 2.0]])
    net = piecewise_linear_network(x, Y)
    t = np.linspace(0, 4, 33)
    out = net(torch.from_numpy(t)[:, None]).detach().numpy()
    for k in range(2):
        known = np.interp(t, [1, 2, 3], Y[[1, 2, 0], k])
        np.testing.assert_allclose(out[:, k], known, atol=1e-14)


@pytest.mark.parametrize(
    "x, y, sentence",
    [
        ([], [], "for each knot; got shapes"),
        ([1, 2], [1], "for each knot; got shapes"),
        ([[1, 2]], [[1, 2]], "for each knot; got shapes"),
        ([1, 1], [1, 2], "Knots must be distinct"),
        ([1, np.nan], [1, 2], "must be finite"),
        ([1, 2], [np.inf, 2], "must be finite"),
    ],
)
def test_objects_that_are_not_functions_are_refused(x, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        piecewise_linear_network(x, y)


@pytest.mark.catalog("THY-21")
@given(points.filter(lambda p: len(p) > 1))
def test_absolute_values_approximate_as_well(pairs):
    x, y = np.array(sorted(pairs)).T
    slopes = np.diff(y) / np.diff(x)
    # Half a change of slope for each inner knot; the line itself is ∣x − x₀∣ to the
    # right of x₀.
    c = np.diff(slopes) / 2
    a = slopes[0] + c.sum()
    b = y[0] - np.abs(x[0] - x[1:-1]) @ c
    net = MLP(1, (len(x) - 1,), 1, activation="absolute").double()
    ones = np.ones((len(x) - 1, 1))
    set_weights(net, (ones, -x[:-1]), ([[a, *c]], [b]))
    t = np.linspace(x[0], x[-1], 101)
    steep = np.abs(slopes).max(initial=1.0)
    np.testing.assert_allclose(
        values(net, t), np.interp(t, x, y), atol=1e-12 * steep * 200
    )


@pytest.mark.catalog("THY-23")
@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_twice_a_maximum_is_sum_and_distance(a, b):
    f, g = float(a) / 256, float(b) / 256
    assert 2 * max(f, g) == f + g + abs(f - g)
    assert 2 * min(f, g) == f + g - abs(f - g)
    net = MLP(2, (3,), 1).double()  # hence a ReLU layer: max = g + (f − g)₊
    set_weights(net, ([[1, -1], [0, 1], [0, -1]], [0, 0, 0]), ([[1, 1, -1]], [0]))
    assert values(net, [[f, g]])[0] == max(f, g)


# -- several dimensions -------------------------------------------------------------


def hinges(planes, sign=1):
    """max of affine functions as a signed sum of maxima of at most n + 1 of them.

    n + 2 gradients have two parts I and J whose convex hulls meet. There the values of
    the functions are apart by a constant, so that min over J ≤ max over I, say, and
    Σ_S (−1)^∣S∣ max(I ∪ S) = 0 over all parts S of J: the term of S = J by the others.
    """
    n = planes.shape[1] - 1
    if len(planes) <= n + 1:
        return [(sign, planes)]
    first, rest = planes[: n + 2], planes[n + 2 :]
    weights = null_space(np.vstack((first[:, :-1].T, np.ones(n + 2))))[:, 0]
    if weights @ first[:, -1] < 0:
        weights = -weights
    upper, lower = first[weights > 0], first[weights <= 0]
    out = []
    for size in range(len(lower)):
        for part in combinations(range(len(lower)), size):
            fewer = np.vstack((upper, lower[list(part)], rest))
            even = (len(lower) - size) % 2 == 0
            out += hinges(fewer, -sign if even else sign)
    return out


def maxout(parts, signs, width):
    """The network Σ signᵢ · max over the planes of part i; ``width`` pieces a unit."""
    padded = [planes[np.arange(width) % len(planes)] for planes in parts]
    planes = np.concatenate(padded)
    n = planes.shape[1] - 1
    net = MLP(n, (len(parts),), 1, activation="maxout", pieces=width).double()
    return set_weights(net, (planes[:, :-1], planes[:, -1]), ([signs], [0.0]))


def highest(planes, X):
    """Largest of some affine functions: one maxout unit."""
    return values(maxout([planes], [1.0], len(planes)), X)


@pytest.mark.catalog("THY-24")
@pytest.mark.parametrize("n, k", [(1, 3), (1, 6), (2, 4), (2, 7), (3, 6)])
def test_maxima_are_signed_sums_of_short_hinges(n, k):
    rng = np.random.default_rng(k)
    planes = rng.normal(size=(k, n + 1))
    X = rng.normal(size=(500, n)) * 3
    signs, parts = zip(*hinges(planes))
    assert max(map(len, parts)) <= n + 1 < k
    short = maxout(parts, signs, n + 1)
    known = (X @ planes[:, :-1].T + planes[:, -1]).max(axis=1)
    np.testing.assert_allclose(values(short, X), known, atol=1e-11)
    np.testing.assert_allclose(highest(planes, X), known, atol=1e-14)


@pytest.mark.catalog("THY-24", "THY-26")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_any_such_function_is_a_difference_of_two_maxout_units(n):
    """max over groups of the min over their affine functions: any CPWL function."""
    rng = np.random.default_rng(n)
    L = rng.normal(size=(2, 2, n + 1))
    X = rng.normal(size=(1000, n)) * 3
    known = (np.einsum("gkj,ij->igk", L[..., :-1], X) + L[..., -1]).min(axis=2)
    # min_j l_j = Σ_j l_j − max_j Σ_{i≠j} l_i, and the maxima can be added throughout.
    lows = [planes.sum(axis=0) - planes for planes in L]
    tops = [
        planes.sum(axis=0)
        + sums([low for i, low in enumerate(lows) if i != k] or [np.zeros((1, n + 1))])
        for k, planes in enumerate(L)
    ]
    g, h = np.concatenate(tops), sums(lows)
    net = maxout([g, h], [1.0, -1.0], max(len(g), len(h)))
    np.testing.assert_allclose(values(net, X), known.max(axis=1), atol=1e-12)
    assert not convex(lambda X: values(net, X), X)
    assert convex(lambda X: highest(g, X), X)
    assert convex(lambda X: highest(h, X), X)
    # Hence a signed sum of hinges of at most n + 1 functions.
    signs, parts = zip(*(hinges(g) + hinges(h, -1)))
    short = maxout(parts, signs, n + 1)
    np.testing.assert_allclose(values(short, X), known.max(axis=1), atol=1e-9)


def sums(parts):
    """Planes whose maximum is the sum of the maxima of each part."""
    out = parts[0]
    for part in parts[1:]:
        out = (out[:, None] + part[None]).reshape(-1, out.shape[1])
    return out


def convex(f, X):
    half = len(X) // 2
    A, B = X[:half], X[half:]
    return bool((f((A + B) / 2) <= (f(A) + f(B)) / 2 + 1e-10).all())


@pytest.mark.catalog("THY-26")
def test_changes_of_slope_by_their_sign():
    x, y = np.array([0.0, 1.0, 2.0, 4.0, 5.0]), np.array([0.0, 2.0, -1.0, 1.0, 0.0])
    whole = piecewise_linear_network(x, y)
    up, down = piecewise_linear_network(x, y), piecewise_linear_network(x, y)
    with torch.no_grad():
        up.output.weight.clamp_(min=0)
        down.output.weight.neg_().clamp_(min=0)
        down.output.bias.zero_()
    t = np.linspace(-1, 6, 200)
    np.testing.assert_allclose(
        values(whole, t), values(up, t) - values(down, t), atol=1e-13
    )
    for part in (up, down):
        assert (np.diff(values(part, t), 2) >= -1e-12).all()


@pytest.mark.catalog("THY-25")
def test_a_maxout_unit_is_the_lowest_point_of_its_epigraph():
    rng = np.random.default_rng(0)
    planes = rng.normal(size=(12, 3))
    X = rng.normal(size=(20, 2)) * 3
    corners = planes[ConvexHull(planes).vertices]
    unit = maxout([planes], [1.0], 12)
    fewer = maxout([corners], [1.0], len(corners))
    for x, top, same in zip(X, values(unit, X), values(fewer, X)):
        # Half-spaces t ≥ aᵢx + bᵢ: the least t of their intersection.
        half_spaces = -np.ones((12, 1)), -(planes[:, :2] @ x + planes[:, 2])
        lowest = linprog([1.0], *half_spaces, bounds=(None, None))
        assert lowest.fun == pytest.approx(top, abs=1e-9)
        # The support function of the points (aᵢ, bᵢ), which corners alone decide.
        assert same == pytest.approx(top, abs=1e-12)
    slopes = jacobian(lambda x: unit(x[None])[0], torch.from_numpy(X[0]))
    assert min(np.abs(corners[:, :2] - slopes.numpy()).max(axis=1)) < 1e-12


@pytest.mark.catalog("THY-25")
def test_a_convex_broken_line_is_the_largest_of_its_lines():
    t = np.sort(np.random.default_rng(0).normal(size=9))
    net = piecewise_linear_network(t, t**2)
    slopes = np.diff(t**2) / np.diff(t)
    lines = np.column_stack((slopes, t[:-1] ** 2 - slopes * t[:-1]))
    u = np.linspace(t[0], t[-1], 200)
    np.testing.assert_allclose(highest(lines, u), values(net, u), atol=1e-12)


@pytest.mark.catalog("THY-27")
@pytest.mark.parametrize(
    "f, bend",
    [
        (lambda X: np.sin(3 * X[:, 0]), 9.0),
        (lambda X: np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 1] ** 3, 12.0),
    ],
)
def test_two_maxouts_come_as_close_as_one_likes(f, bend):
    """Tangent planes of f + c‖x‖²/2 and of c‖x‖²/2, both convex."""
    rng = np.random.default_rng(0)
    n = 1 if bend == 9.0 else 2
    X = rng.uniform(-1, 1, size=(2000, n))
    errors = []
    for k in (4, 8, 16):
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, k)] * n), axis=-1)
        P = grid.reshape(-1, n)
        h = 1e-5
        slope = np.stack(
            [(f(P + h * e) - f(P - h * e)) / (2 * h) for e in np.eye(n)], axis=1
        )
        up = planes_at(P, f(P) + bend / 2 * (P**2).sum(axis=1), slope + bend * P)
        down = planes_at(P, bend / 2 * (P**2).sum(axis=1), bend * P)
        net = MLP(n, (2,), 1, activation="maxout", pieces=len(P)).double()
        both = np.concatenate((up, down))
        set_weights(net, (both[:, :-1], both[:, -1]), ([[1.0, -1.0]], [0.0]))
        errors.append(np.abs(values(net, X) - f(X)).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.15


def planes_at(P, value, slope):
    return np.column_stack((slope, value - (slope * P).sum(axis=1)))


# -- depth and skips ----------------------------------------------------------------


def sawtooth(depth):
    """The tent 2(x)₊ − 4(x − ½)₊ applied to itself, two units a layer."""
    net = MLP(1, (2,) * depth, 1).double()
    first, tent = ([[1.0], [1.0]], [0.0, -0.5]), [[2.0, -4.0]]
    inner = (np.repeat(tent, 2, axis=0), [0.0, -0.5])
    return set_weights(net, first, *[inner] * (depth - 1), (tent, [0.0]))


@pytest.mark.catalog("THY-28")
@pytest.mark.parametrize("depth", [1, 2, 5, 10])
def test_each_layer_of_two_units_doubles_the_pieces(depth):
    pieces = 2**depth
    t = np.arange(4 * pieces + 1) / (4 * pieces)
    y = values(sawtooth(depth), t)
    slopes = np.diff(y) * 4 * pieces
    assert set(np.abs(slopes)) == {pieces}
    assert np.count_nonzero(np.diff(slopes)) == pieces - 1
    np.testing.assert_array_equal(y[::4], np.arange(pieces + 1) % 2)
    # One layer needs a unit for each bend, and with them it does.
    knots = np.arange(pieces + 1) / pieces
    shallow = piecewise_linear_network(knots, np.arange(pieces + 1) % 2)
    np.testing.assert_array_equal(values(shallow, t), y)
    changes = shallow.output.weight[0, 1:-1]
    assert np.count_nonzero(changes.detach()) == pieces - 1


@pytest.mark.catalog("THY-28")
def test_a_layer_of_k_units_bends_at_most_k_times():
    for k in (1, 3, 8, 20):
        net = MLP(1, (k,), 1).double()
        with torch.no_grad():
            net.layers[0].linear.bias.normal_()
        t = np.linspace(-60, 60, 200_001)
        y = values(net, t)
        second = np.abs(np.diff(y, 2)) > 1e-9
        # A bend shows at one or two neighbouring points.
        assert 1 <= np.count_nonzero(np.diff(np.flatnonzero(second)) > 1) + 1 <= k
    assert np.abs(values(sawtooth(6), np.arange(65) / 64) - 0.5).min() == 0.5


@pytest.mark.catalog("THY-29")
@pytest.mark.parametrize("hidden", [(4, 4, 4), (6, 3, 5)])
def test_a_residual_network_is_a_plain_one(hidden):
    net = MLP(4, hidden, 2, residual=True).double()
    with torch.no_grad():
        for layer in net.layers:
            layer.linear.bias.normal_()
    # Units (h)₊ and (−h)₊ carry h along, beside those that are added to it.
    pairs, back = [], torch.eye(4, dtype=torch.float64)
    for layer, skip, width in zip(net.layers, net.skips, hidden):
        P = getattr(skip, "weight", torch.eye(width, dtype=torch.float64))
        W, b = layer.linear.weight, layer.linear.bias
        pairs.append((torch.cat((P, -P, W)) @ back, torch.cat((0 * b, 0 * b, b))))
        eye = torch.eye(width, dtype=torch.float64)
        back = torch.cat((eye, -eye, eye), dim=1)
    pairs.append((net.output.weight @ back, net.output.bias))
    plain = MLP(4, [3 * width for width in hidden], 2).double()
    set_weights(plain, *[(W.detach(), b.detach()) for W, b in pairs])
    X = torch.randn(200, 4, dtype=torch.float64) * 3
    assert torch.allclose(plain(X), net(X), rtol=1e-12, atol=1e-12)
