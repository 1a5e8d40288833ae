"""Deep linear networks: gradients, modes that rise one by one, and the optimum."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from sklearn.linear_model import LinearRegression

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.decomposition import DeepLinearNetwork, mode_strength
from certus.decomposition.deep_linear_training import descend, partial_products, whiten
from certus.verify import linear_networks


def rows(n=300, d=6, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    A = rng.normal(size=(d, p)) * np.linspace(2, 0.3, p)
    return X, X @ A + rng.normal(size=(n, p)) - 1


def reduced_rank_loss(X, Y, rank):
    """Least squares, then the leading directions of its predictions."""
    Xc, Yc = X - X.mean(axis=0), Y - Y.mean(axis=0)
    fitted = Xc @ np.linalg.lstsq(Xc, Yc, rcond=None)[0]
    V = np.linalg.svd(fitted, full_matrices=False)[2][:rank].T
    return 0.5 * np.sum((Yc - fitted @ V @ V.T) ** 2) / len(X)


def loss(model, X, Y):
    return 0.5 * np.sum((Y - model.predict(X)) ** 2) / len(X)


# -- the theory ---------------------------------------------------------------------


@pytest.mark.catalog("NN-58")
def test_whitened_rows_reduce_the_loss_to_a_distance():
    X, Y = rows()
    p = whiten(X, Y)
    Z, Yc = (X - p.mean) @ p.there, Y - p.centre
    np.testing.assert_allclose(Z.T @ Z / len(X), np.eye(6), atol=1e-10)
    np.testing.assert_allclose(p.gamma * p.unit, Yc.T @ Z / len(X), atol=1e-10)
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(10):
        T = rng.normal(size=(4, 6))
        fit = 0.5 * np.sum((Yc - Z @ T.T) ** 2) / len(X)
        differences.append(fit - 0.5 * np.sum((T - p.gamma * p.unit) ** 2))
    np.testing.assert_allclose(differences, differences[0], rtol=1e-9)


@pytest.mark.catalog("NN-59")
@pytest.mark.parametrize("widths", [(5, 4), (5, 3, 4), (5, 3, 6, 4)])
def test_a_step_is_along_the_gradient(widths):
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    gamma = rng.normal(size=(widths[-1], widths[0]))

    def value(layers):
        return 0.5 * np.sum((partial_products(layers)[-1] - gamma) ** 2)

    parts = partial_products(layers)
    moved = descend(layers, parts, parts[-1] - gamma, 1.0)
    for i, W in enumerate(layers):
        slope = np.zeros_like(W)
        for index in np.ndindex(W.shape):
            for sign in (1, -1):
                other = [V.copy() for V in layers]
                other[i][index] += sign * 1e-6
                slope[index] += sign * value(other) / 2e-6
        np.testing.assert_allclose(W - moved[i], slope, atol=1e-6)


@pytest.mark.catalog("NN-59")
@pytest.mark.parametrize("steps", [1, 40, 400])
def test_loss_of_a_network_in_the_basis_of_the_modes(steps):
    """Over whitened rows ½‖DC − Γ‖² is ½Σ(d_r·c_r − σ_r)² + ½Σ_{r≠q}(d_r·c_q)²."""
    X, Y = rows()
    Xc, Yc = X - X.mean(axis=0), Y - Y.mean(axis=0)
    Z = np.linalg.svd(Xc, full_matrices=False)[0] * np.sqrt(len(X))
    model = DeepLinearNetwork(
        (3,), start=0.3, max_iter=steps, tol=1e-12, random_state=0
    )
    with certus.config_context(on_uncertified="ignore"):
        model.fit(Z, Yc)
    C, D = model.weights_
    U, s, Vt = np.linalg.svd(Yc.T @ Z / len(X))
    np.testing.assert_allclose(model.singular_values_, s, rtol=1e-9)
    d, c = U.T @ D, C @ Vt.T  # rows d_r, columns c_r
    inner = d @ c
    own = 0.5 * sum((inner[r, r] - s[r]) ** 2 for r in range(4))
    across = 0.5 * sum(inner[r, q] ** 2 for r in range(4) for q in range(6) if r != q)
    rest = 0.5 * (np.sum(Yc**2) / len(X) - np.sum(s**2))  # what no matrix explains
    assert across > 1e-9
    assert own + across + rest == pytest.approx(loss(model, Z, Yc), rel=1e-12)
    assert own + across + rest == pytest.approx(model.history_["objective"][-1])
    np.testing.assert_allclose(model.modes_[-1], np.diag(inner), atol=1e-9)


@pytest.mark.catalog("NN-60")
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_curves_solve_their_equation(depth):
    s, a0 = 1.7, 0.02
    t = np.linspace(0, 12, 60)
    run = solve_ivp(
        lambda _, a: depth * a ** (2 - 2 / depth) * (s - a),
        (0, 12),
        [a0],
        t_eval=t,
        rtol=1e-10,
        atol=1e-13,
    )
    np.testing.assert_allclose(mode_strength(t, s, a0, depth), run.y[0], rtol=1e-6)
    assert mode_strength(0.0, s, a0, depth) == pytest.approx(a0)
    assert mode_strength(1e4, s, a0, depth) == pytest.approx(s)


@pytest.mark.catalog("NN-60")
def test_two_layers_by_the_formula_of_the_notes():
    s, a0, t = 2.0, 0.01, np.linspace(0, 3, 7)
    grown = np.exp(2 * s * t)
    known = s * grown / (grown - 1 + s / a0)
    np.testing.assert_allclose(mode_strength(t, s, a0), known, rtol=1e-12)


@pytest.mark.catalog("NN-60")
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5), (5, 5, 7)])
def test_training_from_balanced_layers_follows_the_curves(hidden):
    X, Y = rows()
    start = 0.01 if len(hidden) < 3 else 0.1  # four small layers wait for long
    model = DeepLinearNetwork(
        hidden, init="modes", start=start, learning_rate=2e-3, tol=1e-2
    ).fit(X, Y)
    depth, strongest = len(hidden) + 1, model.singular_values_[0]
    for r, s in enumerate(model.singular_values_):
        curve = mode_strength(model.times_, s, start * strongest, depth)
        off = np.abs(model.modes_[:, r] - curve).max()
        assert off < 1e-3 * strongest


@pytest.mark.catalog("NN-60")
def test_strong_modes_are_learnt_first_from_random_layers():
    X, Y = rows()
    model = DeepLinearNetwork(
        (10,), start=1e-4, learning_rate=0.02, random_state=0
    ).fit(X, Y)
    half = [
        int(np.argmax(model.modes_[:, r] > 0.5 * s))
        for r, s in enumerate(model.singular_values_)
    ]
    assert half == sorted(half)
    assert half[0] < half[1] < half[2] < half[3]
    np.testing.assert_allclose(
        model.modes_[-1], model.singular_values_, atol=2e-2 * model.singular_values_[0]
    )


# -- the estimator ------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(), (8,), (8, 9)])
def test_wide_networks_reach_least_squares(hidden):
    X, Y = rows()
    model = DeepLinearNetwork(hidden, tol=2e-11, start=0.05, random_state=0).fit(X, Y)
    known = LinearRegression().fit(X, Y)
    np.testing.assert_allclose(model.coef_, known.coef_, atol=1e-3)
    np.testing.assert_allclose(model.intercept_, known.intercept_, atol=1e-3)
    assert model.certificate_.met
    product = model.weights_[0]
    for W in model.weights_[1:]:
        product = W @ product
    np.testing.assert_allclose(product, model.coef_)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_bottleneck_reaches_the_best_matrix_of_its_rank(rank):
    X, Y = rows()
    model = DeepLinearNetwork((rank,), tol=1e-9, random_state=0).fit(X, Y)
    least = reduced_rank_loss(X, Y, rank)
    size = 0.5 * Y.var(axis=0).sum()
    assert loss(model, X, Y) == pytest.approx(least, abs=1e-8 * size)
    assert np.linalg.matrix_rank(model.coef_, tol=1e-10) == rank
    claim, true = model.certificate_["loss_excess"], (loss(model, X, Y) - least) / size
    assert claim.value - claim.allowance == pytest.approx(true, abs=1e-12)
    assert claim.value >= true
    assert claim.allowance < 1e-10
    assert model.history_["objective"][-1] == pytest.approx(loss(model, X, Y))


def test_one_target_and_more_columns_than_rows():
    X, Y = rows(n=30, d=50, p=1)
    model = DeepLinearNetwork(tol=1e-10, random_state=0).fit(X, Y[:, 0])
    assert model.coef_.shape == (50,)
    assert model.predict(X).shape == (30,)
    assert model.certificate_.met
    assert model.score(X, Y[:, 0]) > 0.999


def test_units_change_neither_steps_nor_predictions():
    X, Y = rows()
    scale = 10.0 ** np.arange(-9, 9, 3)
    one = DeepLinearNetwork((8,), init="modes").fit(X, Y)
    two = DeepLinearNetwork((8,), init="modes").fit(X * scale, 1e6 * Y)
    assert one.n_iter_ == two.n_iter_
    np.testing.assert_allclose(two.predict(X * scale), 1e6 * one.predict(X), rtol=1e-6)
    np.testing.assert_allclose(two.times_ * 1e6, one.times_, rtol=1e-8)


@pytest.mark.parametrize("change", ["coef", "layer", "intercept", "nan"])
def test_changed_parameters_are_refuted(change):
    X, Y = rows()
    model = DeepLinearNetwork((8,), random_state=0).fit(X, Y)
    if change == "intercept":
        model.intercept_ = model.intercept_ + 0.1
    elif change == "layer":
        model.weights_ = [model.weights_[0], 1.1 * model.weights_[1]]
        assert not certus.certify(model, X, Y)["layers"].met
        return
    else:
        model.coef_ = model.coef_ + (0.1 if change == "coef" else np.nan)
    assert certus.certify(model, X, Y).met is False


def test_a_saddle_is_refuted():
    """Without its first mode the network is at rest, and not at its best."""
    X, Y = rows()
    model = DeepLinearNetwork((2,), tol=1e-9, random_state=0).fit(X, Y)
    p = whiten(X, Y)
    W1 = p.V[:, 1:3].T @ p.there.T
    W2 = p.U[:, 1:3] * p.limits[1:3] * p.unit
    model.weights_, model.coef_ = [W1, W2], W2 @ W1
    model.intercept_ = p.centre - model.coef_ @ p.mean
    found = certus.certify(model, X, Y)
    assert found.status is Status.REFUTED
    assert found["gradient_norm"].value < 1e-10
    assert found["layers"].met


def test_a_step_too_long_diverges_and_says_so():
    X, Y = rows()
    with pytest.warns(UncertifiedWarning, match="learning_rate"):
        model = DeepLinearNetwork(
            (8,), learning_rate=5.0, max_iter=5000, random_state=0
        ).fit(X, Y)
    assert model.certificate_.met is False


def test_limits_and_warm_start():
    X, Y = rows()
    model = DeepLinearNetwork((8,), max_iter=30, warm_start=True, random_state=0)
    with pytest.warns(UncertifiedWarning, match="max_iter"):
        model.fit(X, Y)
    assert model.n_iter_ == 30
    assert len(model.times_) == len(model.modes_) == 4
    before = model.modes_[-1]
    model.set_params(max_iter=50_000).fit(X, Y)
    np.testing.assert_allclose(model.modes_[0], before, rtol=1e-6, atol=1e-9)
    assert model.certificate_.met


def test_figure():
    pytest.importorskip("matplotlib").use("Agg")
    X, Y = rows()
    ax = DeepLinearNetwork((3,), init="modes").fit(X, Y).plot_modes()
    # four modes, and curves for the three that have room
    assert len(ax.lines) == 7
    assert DeepLinearNetwork((8, 8), random_state=0).fit(X, Y).plot_modes(ax) is ax


def test_the_problem_is_what_the_parameters_say():
    X, Y = rows()
    model = DeepLinearNetwork((2,), random_state=0).fit(X, Y)
    assert certus.certify(model, X, Y).met
    model.set_params(hidden_layer_sizes=(3,))
    found = certus.certify(model, X, Y)
    assert found.met is False
    assert not found["parts"].met
    model.set_params(hidden_layer_sizes=(2,), tol=1e-15)
    assert certus.certify(model, X, Y).met is False
    with pytest.raises(ValueError, match="takes no sample_weight"):
        certus.certify(model, X, Y, np.ones(len(X)))


@pytest.mark.parametrize("scale", [1e-160, 1e140])
def test_sizes_whose_squares_leave_the_range(scale):
    X, Y = rows()
    model = DeepLinearNetwork((2,), random_state=0).fit(X, Y)
    model.weights_[0] = model.weights_[0] / scale
    model.coef_ = model.coef_ / scale
    value = certus.certify(model, X * scale, Y)["loss_excess"].value
    assert value == pytest.approx(model.certificate_.value, rel=1e-3)
    model.coef_ = model.coef_ * 1.01
    assert certus.certify(model, X * scale, Y)["loss_excess"].met is False


@pytest.mark.parametrize("name", ["coef_", "intercept_", "weights_"])
@pytest.mark.parametrize("value", [None, "three", np.ones(7), [np.ones(3), None]])
def test_attributes_that_no_fit_sets_are_named(name, value):
    X, Y = rows()
    model = DeepLinearNetwork((8,), random_state=0).fit(X, Y)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=f"^{name} of this .* Fit it again"):
        certus.certify(model, X, Y)


def exact_loss(X, Y, own):
    """½ mean ‖y − W_L…W₁(x − before) − after‖² in fractions."""
    X, Y, *parts = (
        np.vectorize(Fraction, otypes=[object])(part)
        for part in (X, Y, own.before, own.after, *own.layers)
    )
    z = X - parts[0]
    for W in parts[2:]:
        z = z @ W.T
    return np.square(Y - z - parts[1]).sum() / (2 * len(X))


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("far", [0.0, 1.0, 1e5, 1e9])
def test_the_loss_is_within_its_rounding(far, encoded):
    """Of good and bad weights, in units of all sizes, against exact arithmetic."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        n, d = rng.integers(2, 12), rng.integers(1, 5)
        X = (rng.normal(size=(n, d)) + far) * 10.0 ** rng.integers(-40, 40)
        Y = X if encoded else X @ rng.normal(size=(d, 2)) + rng.normal(size=(n, 2))
        k = Y.shape[1]
        if encoded:
            U = np.linalg.svd(X - X.mean(axis=0))[2][:2]
            layers, before, after = [U, U.T], X.mean(axis=0), X.mean(axis=0)
        else:
            P = np.linalg.lstsq(X - X.mean(axis=0), Y - Y.mean(axis=0))[0].T
            layers, before = [P], np.zeros(d)
            after = Y.mean(axis=0) - P @ X.mean(axis=0)
        if rng.random() < 0.5:
            after = after + rng.normal(size=k) * np.abs(after).max()
        own = linear_networks.Chain(layers, before, after, 2.0**-52, layers)
        found = linear_networks._loss(X, Y, own)
        true = exact_loss(X, Y, own) * Fraction(found.units[1]) ** 2
        assert abs(Fraction(found.value.value) - true) <= Fraction(found.value.rounding)
