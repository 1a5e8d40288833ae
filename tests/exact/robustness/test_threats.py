"""Threat models: projections, steepest steps and worst rows against programmes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from scipy.stats import ks_2samp, kstest

from certus.robustness import ThreatModel
from certus.threat import row_norms

torch = pytest.importorskip("torch")

NORMS = [1, 1.5, 2, 3, math.inf]


def cases(seed, count=20, d=5):
    """Rows, points around them, and a threat whose ball and box both bind at times."""
    rng = np.random.default_rng(seed)
    low, high = -rng.uniform(0.1, 1.5, d), rng.uniform(0.1, 1.5, d)
    X = rng.uniform(low, high, (count, d))
    points = X + rng.standard_normal((count, d)) * rng.choice([0.1, 1, 5], (count, 1))
    return X, points, low, high, rng


def largest(g, x, threat):
    """The largest gᵀv over ball and box, by a linear programme in v = x + a − b."""
    d = len(x)
    room = threat.high - x, x - threat.low
    if threat.norm == math.inf:
        ends = [(0, min(r, threat.radius)) for r in np.concatenate(room)]
        sums = None, None
    else:
        ends = [(0, r) for r in np.concatenate(room)]
        sums = np.ones((1, 2 * d)), [threat.radius]
    found = linprog(-np.concatenate([g, -g]), *sums, bounds=ends)
    return g @ x - found.fun


@pytest.mark.catalog("ADV-11")
@pytest.mark.parametrize("p", [1, math.inf])
def test_no_allowed_row_is_nearer_than_the_projection(p):
    """The variational inequality of a projection, its maximum by linear programming."""
    X, points, low, high, _ = cases(0)
    threat = ThreatModel(p, 0.7, low, high)
    P = threat.project(points, X)
    assert (threat.distances(P, X) <= 0.7 + 1e-9).all()
    np.testing.assert_allclose(np.clip(P, low, high), P, atol=1e-12)
    for x, point, found in zip(X, points, P):
        away = point - found
        assert largest(away, x, threat) <= away @ found + 1e-6 * (
            1 + np.abs(away).sum()
        )


@pytest.mark.catalog("ADV-11")
def test_l2_projection_solves_the_quadratic_programme():
    X, points, low, high, _ = cases(1)
    threat = ThreatModel("l2", 0.7, low, high)
    P = threat.project(points, X)
    for x, point, found in zip(X, points, P):
        ball = {"type": "ineq", "fun": lambda v, x=x: 0.49 - (v - x) @ (v - x)}
        best = minimize(
            lambda v, point=point: ((v - point) ** 2).sum(),
            x,
            bounds=list(zip(low, high)),
            constraints=ball,
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(found, best.x, atol=2e-5)


@pytest.mark.catalog("ADV-11")
def test_projections_without_a_box_have_their_closed_forms():
    X, points, _, _, _ = cases(2)
    D = points - X
    np.testing.assert_allclose(
        ThreatModel("linf", 0.5).project(points, X) - X, np.clip(D, -0.5, 0.5)
    )
    size = np.linalg.norm(D, axis=1, keepdims=True)
    np.testing.assert_allclose(
        ThreatModel("l2", 0.5).project(points, X) - X,
        D * np.minimum(1, 0.5 / size),
        rtol=1e-6,
    )
    for d, found in zip(D, ThreatModel("l1", 0.5).project(points, X) - X):
        # The simplex algorithm: sort, and subtract what makes the sum right.
        u = np.sort(np.abs(d))[::-1]
        tau = (np.cumsum(u) - 0.5) / np.arange(1, len(u) + 1)
        tau = max(tau[np.flatnonzero(u > tau)[-1]], 0.0) if u.sum() > 0.5 else 0.0
        np.testing.assert_allclose(
            found, np.sign(d) * np.maximum(np.abs(d) - tau, 0), atol=1e-9
        )


@pytest.mark.parametrize("p", NORMS)
def test_allowed_rows_are_their_own_projection(p):
    X, _, low, high, rng = cases(3)
    threat = ThreatModel(p, 0.7, low, high)
    inside = threat.draw(X, rng)
    np.testing.assert_allclose(threat.project(inside, X), inside, atol=1e-12)


@pytest.mark.catalog("ADV-05", "ADV-10")
@pytest.mark.parametrize("p", NORMS)
def test_the_steepest_step_attains_the_dual_norm(p):
    """max_{‖v‖_p ≤ 1} vᵀg = ‖g‖_q, for gradients of any scale."""
    rng = np.random.default_rng(4)
    for scale in (1e-200, 1e-3, 1.0, 1e150):
        G = rng.standard_normal((30, 7)) * scale
        threat = ThreatModel(p, 1.0)
        v = threat.steepest(G)
        np.testing.assert_allclose(row_norms(v, p), 1, rtol=1e-12)
        attained = np.einsum("nd,nd->n", v, G / scale)
        np.testing.assert_allclose(attained, row_norms(G / scale, threat.dual))
    assert 1 / p + 1 / threat.dual == pytest.approx(1)
    assert not threat.steepest(np.zeros((2, 3))).any()


@pytest.mark.catalog("ADV-05")
@pytest.mark.parametrize("p", [1, math.inf])
def test_worst_row_solves_the_linear_programme(p):
    X, _, low, high, rng = cases(5)
    threat = ThreatModel(p, 0.9, low, high)
    G = rng.standard_normal(X.shape)
    G[3] = 0
    worst = threat.worst(X, G)
    assert (threat.distances(worst, X) <= 0.9 + 1e-12).all()
    for x, g, found in zip(X, G, worst):
        assert g @ found == pytest.approx(largest(g, x, threat), abs=1e-9)


@pytest.mark.catalog("ADV-05")
@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_worst_row_in_a_ball_and_a_box(p):
    X, _, low, high, rng = cases(6, count=8)
    threat = ThreatModel(p, 0.9, low, high)
    G = rng.standard_normal(X.shape)
    worst = threat.worst(X, G)
    assert (threat.distances(worst, X) <= 0.9 + 1e-9).all()
    for x, g, found in zip(X, G, worst):

        def room(v, x=x):
            return 0.9**p - (np.abs(v - x) ** p).sum()

        best = minimize(
            lambda v, g=g: -g @ v,
            x + 0.01 * np.sign(g),
            bounds=list(zip(low, high)),
            constraints={"type": "ineq", "fun": room},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert g @ found == pytest.approx(-best.fun, abs=2e-5)


@pytest.mark.parametrize("p", [1, 2, 20, math.inf])
def test_radii_that_attacks_need(p):
    """Not beyond the diagonal of the box, nor where single precision ends."""
    X = np.full((2, 3, 4), 128.0, dtype=np.float32)
    diagonal = 255 * (12 ** (1 / p) if p < math.inf else 1)
    threat = ThreatModel(p, 1e300, 0, np.full((3, 4), 255))
    for radius in (1e300, math.inf):
        found = threat.within(radius).reachable(X)
        assert found.radius == pytest.approx(diagonal)
    assert threat.within(7.0).reachable(X).radius == 7.0
    assert 1e4 < ThreatModel(p, 1e300).reachable(X).radius < 1e13
    assert np.isfinite(row_norms(X, p)).all()
    with pytest.raises(ValueError, match="no bound"):
        ThreatModel(p, math.inf).reachable(X)


def test_worst_row_in_the_whole_box():
    """An infinite radius leaves the corners of the box."""
    X, low, high = np.array([[0.2, 0.5], [0.9, 0.1]]), 0.0, 1.0
    G = np.array([[1.0, -2.0], [-1.0, 3.0]])
    for p in NORMS:
        worst = ThreatModel(p, math.inf, low, high).worst(X, G)
        np.testing.assert_allclose(worst, [[1.0, 0.0], [0.0, 1.0]], atol=1e-8)
    with pytest.raises(ValueError, match="no bound"):
        ThreatModel(2, math.inf).worst(X, G)


@pytest.mark.catalog("ADV-10")
@pytest.mark.parametrize("p", NORMS)
def test_draws_are_uniform_in_the_ball(p):
    """Radii have distribution tᵈ; entries are those of rejection sampling."""
    rng = np.random.default_rng(7)
    X, d = np.full((6000, 3), 5.0), 3
    D = (ThreatModel(p, 0.5).draw(X, rng) - X) / 0.5
    sizes = row_norms(D, p)
    assert kstest(sizes, lambda t: np.clip(t, 0, 1) ** d).pvalue > 1e-4
    cube = rng.uniform(-1, 1, (30000, d))
    kept = cube[row_norms(cube, p) <= 1]
    for way in ([1, 0, 0], [0.3, -0.7, 0.5]):
        assert ks_2samp(D @ way, kept @ way).pvalue > 1e-4


@pytest.mark.parametrize("p", NORMS)
def test_tensors_give_what_arrays_give(p):
    X, points, low, high, rng = cases(8)
    threat = ThreatModel(p, 0.7, low, high)
    tensors = [torch.as_tensor(A) for A in (points, X)]
    np.testing.assert_allclose(threat.project(*tensors), threat.project(points, X))
    G = rng.standard_normal(X.shape)
    np.testing.assert_allclose(
        threat.steepest(torch.as_tensor(G)), threat.steepest(G), rtol=1e-12
    )
    found = threat.worst(tensors[1], torch.as_tensor(G))
    np.testing.assert_allclose(found, threat.worst(X, G), atol=1e-9)
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    np.testing.assert_allclose(threat.draw(tensors[1], one), threat.draw(X, other))
    single = threat.project(*(A.float() for A in tensors))
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, threat.project(points, X), atol=2e-5)


@pytest.mark.parametrize("p", NORMS)
def test_images_are_one_long_vector(p):
    rng = np.random.default_rng(9)
    X = rng.uniform(0, 1, (4, 2, 3, 3))
    points = X + rng.standard_normal(X.shape)
    threat = ThreatModel(p, 0.7, 0, 1)
    flat = threat.project(points.reshape(4, -1), X.reshape(4, -1))
    np.testing.assert_array_equal(threat.project(points, X).reshape(4, -1), flat)
    assert threat.steepest(points).shape == threat.draw(X, rng).shape == X.shape


@pytest.mark.parametrize("p", NORMS)
def test_no_rows_and_whole_numbers(p):
    threat, rng = ThreatModel(p, 0.7), np.random.default_rng(0)
    none = np.zeros((0, 4))
    assert threat.project(none, none).shape == threat.draw(none, rng).shape == (0, 4)
    assert threat.steepest(none).shape == (0, 4)
    assert threat.contains(none, none).shape == (0,)
    whole = np.zeros((2, 4), dtype=np.uint8)
    assert threat.project(whole + 1.0, whole).max() <= 0.7
    assert 0 < row_norms(threat.draw(whole, rng), p).max() <= 0.7


@pytest.mark.parametrize("p", NORMS)
@settings(max_examples=30, deadline=None)
@given(
    exponent=st.integers(-150, 150),
    radius=st.floats(1e-3, 1e3),
    seed=st.integers(0, 10**6),
)
def test_projection_of_points_at_any_scale(p, exponent, radius, seed):
    """However far the point, its projection is on the sphere and in its direction."""
    D = np.random.default_rng(seed).standard_normal((1, 6))
    threat, X = ThreatModel(p, radius), np.zeros((1, 6))
    found = threat.project(D * 10.0**exponent, X)
    size = row_norms(D, p)[0] * 10.0**exponent
    assert threat.distances(found, X)[0] == pytest.approx(min(size, radius), rel=1e-9)
    assert (found * D >= 0).all()


def test_objects_that_are_not_threats_are_refused():
    for norm in ("l3", 0.5, None, math.nan):
        with pytest.raises(ValueError, match="norm must be"):
            ThreatModel(norm, 1.0)
    for radius in (-1, math.nan, "far"):
        with pytest.raises(ValueError, match="radius must be"):
            ThreatModel("l2", radius)
    with pytest.raises(ValueError, match="low must not be above high"):
        ThreatModel("l2", 1.0, [0, 2], [1, 1])
    with pytest.raises(ValueError, match="NaN"):
        ThreatModel("l2", 1.0, low=math.nan)
    for text in ("linf", "linf:", "cube:1", "l2:-1"):
        with pytest.raises(ValueError, match="is not a threat"):
            ThreatModel.parse(text)
    assert ThreatModel.parse("l2:1.5", 0, 1) == ThreatModel(2, 1.5, 0, 1)
    assert ThreatModel.parse("Linf: 0.1") == ThreatModel("linf", 0.1)
    with pytest.raises(
        ValueError, match=r"1 of 2 rows lie outside the box \(the first is row 1"
    ):
        ThreatModel("l2", 1.0, 0, 1).check_rows([[0.5], [2.0]])


@pytest.mark.parametrize("p", NORMS)
def test_allowed_changes_have_no_slack(p):
    threat = ThreatModel(p, 1.0, high=1.0)
    beside = 1 + 2.0**-50
    rows = np.array([[1.0, 0.0], [beside, 0.0], [-1.0, 0.0], [-beside, 0.0]])
    found = threat.contains(rows, np.zeros((4, 2)))
    assert found.tolist() == [True, False, True, False]


@pytest.mark.parametrize("p", NORMS)
def test_the_worst_row_without_a_box(p):
    threat, G = ThreatModel(p, 2.0), np.array([[3.0, -4.0, 0.0]])
    D = threat.worst(np.ones((1, 3)), G) - 1
    assert (D * G).sum() == pytest.approx(2 * np.linalg.norm(G[0], threat.dual))


@pytest.mark.catalog("ADV-11")
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])
def test_fixed_entries_stay_and_the_others_move_as_if_alone(p):
    """With entries fixed, the threat is that to the rows without them."""
    rng = np.random.default_rng(0)
    X, Y, G = rng.uniform(size=(3, 30, 6))
    fixed = np.array([False, True, False, False, True, False])
    whole = ThreatModel(p, 0.4, 0.0, 1.0, fixed=fixed)
    alone = ThreatModel(p, 0.4, 0.0, 1.0)
    rest = (A[:, ~fixed] for A in (X, Y, G))
    x, y, g = rest
    pairs = (
        (whole.project(Y, X), alone.project(y, x)),
        (whole.worst(X, G - 0.5), alone.worst(x, g - 0.5)),
        (X + whole.steepest(G - 0.5), x + alone.steepest(g - 0.5)),
    )
    for found, expected in pairs:
        assert (found[:, fixed] == X[:, fixed]).all()
        np.testing.assert_allclose(found[:, ~fixed], expected, atol=1e-12)
    drawn = whole.draw(X, rng)
    assert (drawn[:, fixed] == X[:, fixed]).all() and whole.contains(drawn, X).all()
    drawn[:, 1] += 1e-9
    assert not whole.contains(drawn, X).any()
    assert (
        whole.within(math.inf).bounded(X).radius
        == alone.within(math.inf).bounded(x).radius
    )
    # Rows may lie outside the box where they are fixed.
    X[:, 1] = 7.0
    whole.check_rows(X)
    with pytest.raises(ValueError, match="outside the box"):
        alone.check_rows(X)


@pytest.mark.parametrize("fixed", [[0, 1], "a", [0.5]])
def test_fixed_entries_are_given_as_true_and_false(fixed):
    with pytest.raises(ValueError, match="fixed must be True or False"):
        ThreatModel("l2", 1.0, fixed=fixed)


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_rows_that_did_not_move_stay_beside_those_that_went_far(p):
    X = np.array([[0.5, 0.5], [0.5, 0.5]])
    threat = ThreatModel(p, 30.0)
    found = threat.project(X + np.array([[0.0, 0.0], [1e3, 0.0]]), X)
    np.testing.assert_allclose(found, [[0.5, 0.5], [30.5, 0.5]])
    assert (threat.worst(X, np.array([[0.0, 0.0], [1.0, 0.0]]))[0] == X[0]).all()
