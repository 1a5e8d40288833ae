"""The perceptron: what the notes prove about it, on our own runs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.multiclass import OneVsOneClassifier

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.linear_model import Perceptron
from certus.testing.toys import or_table, spam_emails, xor_table


def plain(**options):
    """The algorithm of the notes: rows in order, until none is wrong."""
    return Perceptron(shuffle=False, tol=None, **options)


def augmented(X):
    return np.column_stack([X, np.ones(len(X))])


def separable_data(seed, n=40, d=3, gap=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4 * n, d))
    w, b = rng.normal(size=d), 0.2
    z = (X @ w + b) / np.linalg.norm(w)
    sides = [np.flatnonzero(side * z > gap)[: n // 2] for side in (-1, 1)]
    keep = rng.permutation(np.concatenate(sides))
    return X[keep], np.sign(z[keep]).astype(int)


def by_hand(X, y, epochs=1000):
    """The algorithm in eight lines, with everything it passes through."""
    A, w, path = augmented(X), np.zeros(X.shape[1] + 1), []
    for _ in range(epochs):
        wrong = 0
        for i in range(len(y)):
            if y[i] * (A[i] @ w) <= 0:
                before, w = w, w + y[i] * A[i]
                path.append((i, before, w))
                wrong += 1
        if not wrong:
            break
    return w, path


def widest_margin(A, y):
    """Largest γ with y⟨a, u⟩ ≥ γ, ‖u‖ = 1, by a general solver."""
    M = y[:, None] * A
    start = np.linalg.lstsq(M, np.ones(len(y)), rcond=None)[0]
    found = minimize(
        lambda w: w @ w / 2,
        start,
        jac=lambda w: w,
        constraints={"type": "ineq", "fun": lambda w: M @ w - 1, "jac": lambda w: M},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    u = found.x / np.linalg.norm(found.x)
    return float((M @ u).min())


@pytest.mark.catalog("CLS-04", "CLS-12")
def test_the_or_function_is_learned():
    X, y = or_table()
    model = plain().fit(X, y)
    assert model.score(X, y) == 1.0
    w, path = by_hand(X, y)
    np.testing.assert_array_equal(np.append(model.coef_, model.intercept_), w)
    assert model.mistakes_.sum() == len(path)
    assert model.certificate_.status is Status.SOLVED
    assert model.certificate_.primary == "mistake_bound" and model.certificate_.met


@pytest.mark.catalog("CLS-04")
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_separable_data_end_without_errors(seed, shuffle):
    X, y = separable_data(seed)
    model = Perceptron(shuffle=shuffle, tol=None, max_iter=10_000, random_state=0).fit(
        X, y
    )
    assert model.score(X, y) == 1.0 and model.certificate_.met
    signs = np.where(y == 1, 1.0, -1.0)
    total = augmented(X).T @ (model.mistakes_[:, 0] * signs)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), total)


def test_no_update_from_zero_would_never_start():
    """Updating only where y·z < 0, as one sheet prints, leaves w = 0 for ever."""
    X, y = or_table()
    w = np.zeros(3)
    assert not any(y_i * (a @ w) < 0 for a, y_i in zip(augmented(X), y))
    assert plain().fit(X, y).mistakes_.sum() > 0


@pytest.mark.catalog("CLS-05", "CLS-06")
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_what_an_update_does(seed):
    X, y = separable_data(seed % 50, n=25, d=2, gap=0.2)
    A = augmented(X)
    w, path = by_hand(X, y)
    room = 0.0
    for i, before, after in path:
        rise = y[i] * (A[i] @ after) - y[i] * (A[i] @ before)
        assert rise == pytest.approx(X[i] @ X[i] + 1, rel=1e-12)
        room += A[i] @ A[i]
        assert after @ after <= room * (1 + 1e-12)
    model = plain(max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), w)
    growth = model.certificate_["norm_growth"]
    assert growth.met and growth.value == pytest.approx(w @ w / room)
    unit = X / np.sqrt(np.max(np.sum(A * A, axis=1)))
    small = plain(max_iter=100_000, fit_intercept=False).fit(unit, y)
    if small.score(unit, y) == 1.0:
        assert np.sum(small.coef_**2) <= small.mistakes_.sum()


@pytest.mark.catalog("CLS-07")
@pytest.mark.parametrize("seed", range(8))
def test_novikov(seed):
    X, y = separable_data(seed, gap=0.25)
    A = augmented(X)
    radius, gamma = np.linalg.norm(A, axis=1).max(), widest_margin(A, y)
    for order in range(4):
        model = Perceptron(tol=None, random_state=order, max_iter=10_000).fit(X, y)
        made = model.mistakes_.sum()
        assert made <= (radius / gamma) ** 2
        claim = model.certificate_["mistake_bound"]
        w = np.append(model.coef_, model.intercept_)
        found = (y * (A @ w)).min() / np.linalg.norm(w)
        assert claim.strength is Strength.PROVED and claim.met
        assert claim.value == made
        assert claim.target == pytest.approx((radius / found) ** 2)
        assert claim.target >= (radius / gamma) ** 2 * (1 - 1e-6)


@pytest.mark.catalog("CLS-07")
def test_novikov_on_the_unit_ball():
    X, y = separable_data(3)
    A = augmented(X) / np.linalg.norm(augmented(X), axis=1).max()
    model = plain(max_iter=100_000, fit_intercept=False).fit(A, y)
    assert model.mistakes_.sum() <= widest_margin(A, y) ** -2


@pytest.mark.catalog("CLS-08")
def test_the_perceptron_is_stochastic_gradient_descent_on_its_loss():
    X, y = separable_data(1)
    A, w = augmented(X), np.zeros(4)
    for _ in range(3):
        for a, y_i in zip(A, y):
            z = y_i * (a @ w)
            w = w - 1.0 * (-y_i * a if z <= 0 else np.zeros(4))  # a subgradient
    model = plain(max_iter=3)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, y)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), w, atol=1e-12)


@pytest.mark.catalog("CLS-10")
def test_the_solution_depends_on_the_order():
    X, y = separable_data(4)
    found = [Perceptron(tol=None, random_state=r).fit(X, y) for r in range(6)]
    assert all(model.score(X, y) == 1.0 for model in found)
    directions = {
        tuple(np.round(m.coef_[0] / np.linalg.norm(m.coef_), 6)) for m in found
    }
    assert len(directions) > 1
    model = plain(warm_start=True, max_iter=10_000).fit(X, y)
    before = model.coef_.copy()
    assert model.fit(X, y).mistakes_.sum() == 0  # a separating w is a fixed point
    np.testing.assert_array_equal(model.coef_, before)


@pytest.mark.catalog("CLS-11", "CLS-13")
def test_xor_cycles_and_the_cycle_is_a_proof():
    X, y = xor_table()
    with pytest.warns(UncertifiedWarning, match="never end"):
        model = plain().fit(X, y)
    found = model.certificate_
    assert found.status is Status.NO_MINIMISER
    assert found[found.primary].strength is Strength.REFUSED
    cycle = found.evidence.witness.cycle
    assert cycle.min() >= 0 and cycle.sum() > 0
    np.testing.assert_array_equal(augmented(X).T @ (cycle * y), np.zeros(3))
    assert certus.certify(model, X, y).status is Status.NO_MINIMISER


@pytest.mark.catalog("CLS-11")
def test_a_forged_cycle_is_not_believed():
    X, y = xor_table()
    with certus.config_context(on_uncertified="ignore"):
        model = plain().fit(X, y)
    model.certificate_.evidence.witness.cycle[0] += 1
    assert certus.certify(model, X, y).status is not Status.NO_MINIMISER


@pytest.mark.catalog("CLS-11")
def test_xor_stays_bounded_over_many_steps():
    X, y = xor_table()
    A, w, steps = augmented(X), np.zeros(3), [np.zeros(3)]
    for step in range(100_000):
        i = step % 4
        if y[i] * (A[i] @ w) <= 0:
            w = w + y[i] * A[i]
        if i == 3:
            steps.append(w)
    known = np.array(steps)
    assert np.square(known).sum(axis=1).max() < 20
    with certus.config_context(on_uncertified="ignore"):
        for epochs in (1, 2, 3, 5, 8, 40, 25_000):
            model = plain(max_iter=epochs).fit(X, y)
            found = np.append(model.coef_, model.intercept_)
            assert model.n_iter_ <= epochs
            np.testing.assert_array_equal(found, known[model.n_iter_])
    assert model.certificate_.status is Status.NO_MINIMISER


def test_nearly_separable_rows_are_given_a_limit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=200) > 0, 1, -1)
    model = Perceptron(random_state=0).fit(X, y)
    claim = model.certificate_["margin_limit"]
    w = np.append(model.coef_, model.intercept_)
    assert claim.strength is Strength.PROVED
    assert claim.value == pytest.approx(np.linalg.norm(w) / model.mistakes_.sum())
    full = certus.certify(model, X, y, level="full")
    assert full["separation"].strength is Strength.PROVED
    assert full["training_error"].value == pytest.approx(
        1 - model.score(X, y), abs=1e-9
    )


@pytest.mark.catalog("CLS-13")
def test_xor_and_what_separates_it():
    X, y = xor_table()
    grid = np.linspace(-2, 2, 21)
    best = max(
        np.mean(np.where(X @ [a, c] + b > 0, 1, -1) == y)
        for a in grid
        for c in grid
        for b in grid
    )
    assert best == 0.75
    quadratic = np.column_stack([X, X**2, X[:, 0] * X[:, 1]])
    assert plain(max_iter=10_000).fit(quadratic, y).score(quadratic, y) == 1.0
    # Two hidden units, nine parameters.
    hidden = np.maximum(X @ np.array([[1.0, 1.0], [1.0, 1.0]]) + [0.0, -1.0], 0.0)
    np.testing.assert_array_equal(np.sign(hidden @ [1.0, -2.0] - 0.5), y)


@pytest.mark.catalog("CLS-14")
def test_the_spam_example():
    X, y, new = spam_emails()
    model = plain().fit(X, y)
    assert model.mistakes_.sum() == 4
    np.testing.assert_array_equal(model.coef_[0], [0, 2, 0, -1, 1])
    assert model.intercept_[0] == 0
    assert model.decision_function([new])[0] == 2 and model.predict([new])[0] == 1


def blobs(k=4, n=30, seed=0):
    rng = np.random.default_rng(seed)
    angles = 2 * np.pi * np.arange(k) / k
    centres = 6 * np.column_stack([np.cos(angles), np.sin(angles)])
    y = np.repeat(np.arange(k), n)
    return centres[y] + rng.uniform(-1, 1, size=(k * n, 2)), y


@pytest.mark.catalog("CLS-15")
def test_one_against_the_rest():
    X, y = blobs()
    model = Perceptron(tol=None, max_iter=10_000, random_state=0).fit(X, y)
    assert model.coef_.shape == (4, 2) and model.mistakes_.shape == (120, 4)
    assert model.score(X, y) == 1.0 and model.certificate_.met
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(model.predict(X), scores.argmax(axis=1))


@pytest.mark.catalog("CLS-16")
def test_one_against_one():
    X, y = blobs(5)
    rng = np.random.default_rng(1)
    X = X + rng.normal(size=X.shape)  # so that votes tie here and there
    model = Perceptron(multi_class="ovo", random_state=0)
    model.fit(X, y)
    assert model.coef_.shape == (10, 2) and model.certificate_.met is not False
    z = X @ model.coef_.T + model.intercept_
    votes = np.zeros((len(y), 5))
    for column, (i, j) in enumerate(combinations(range(5), 2)):
        winner = np.where(z[:, column] > 0, j, i)
        votes[np.arange(len(y)), winner] += 1
    clear = np.sum(votes == votes.max(axis=1, keepdims=True), axis=1) == 1
    predicted = model.predict(X)
    np.testing.assert_array_equal(predicted[clear], votes.argmax(axis=1)[clear])


@pytest.mark.catalog("CLS-16")
def test_one_against_one_equals_scikit_learn():
    X, y = blobs(5)
    base = plain(max_iter=20)
    with certus.config_context(on_uncertified="ignore"):
        theirs = OneVsOneClassifier(base).fit(X, y)
        ours = plain(max_iter=20, multi_class="ovo").fit(X, y)
    for row, binary in zip(ours.coef_, theirs.estimators_):
        np.testing.assert_allclose(row, binary.coef_[0])
    grid = np.random.default_rng(0).uniform(-8, 8, (500, 2))
    np.testing.assert_array_equal(ours.predict(grid), theirs.predict(grid))


@pytest.mark.catalog("CLS-16")
def test_swapped_pairs_are_negatives_and_scores_differ_from_votes():
    X, y = blobs(3)
    three = plain(multi_class="ovo", max_iter=10_000).fit(X, y)
    for column, (i, j) in enumerate(combinations(range(3), 2)):
        rows = np.isin(y, (i, j))
        swapped = plain(max_iter=10_000).fit(X[rows], np.where(y[rows] == j, -1, 1))
        np.testing.assert_allclose(swapped.coef_[0], -three.coef_[column])
    by_scores = plain(multi_class="ovo", decision="scores", max_iter=10_000).fit(X, y)
    z = X @ by_scores.coef_.T + by_scores.intercept_
    total = np.column_stack([-z[:, 0] - z[:, 1], z[:, 0] - z[:, 2], z[:, 1] + z[:, 2]])
    np.testing.assert_allclose(by_scores.decision_function(X), total)
    grid = np.random.default_rng(0).uniform(-20, 20, (5000, 2))
    assert np.any(by_scores.predict(grid) != three.predict(grid))


# -- the certificate -------------------------------------------------------------------


def test_forged_counts_are_refuted():
    X, y = separable_data(0)
    model = plain(max_iter=10_000).fit(X, y)
    counts = model.certificate_.evidence.witness.mistakes
    counts[0] += 1
    found = certus.certify(model, X, y)
    assert found.status is Status.REFUTED and found.met is False


def test_class_weights_and_step_size():
    X, y = separable_data(5)
    model = plain(class_weight={-1: 2.0, 1: 0.5}, eta0=0.25, max_iter=10_000).fit(X, y)
    each = 0.25 * np.where(y == 1, 0.5, 2.0)
    total = augmented(X).T @ (each * y * model.mistakes_[:, 0])
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), total)
    assert model.certificate_.met
    ones = plain(max_iter=10_000).fit(X, y)
    scaled = plain(eta0=0.25, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(scaled.coef_, 0.25 * ones.coef_)


def test_warm_start_keeps_its_start_as_evidence():
    X, y = separable_data(6)
    model = plain(max_iter=1, warm_start=True)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, y)
        model.fit(X, y)
    assert model.certificate_["update_sum"].met
    assert model.certificate_.evidence.witness.start is not None


def test_penalties_and_sample_weights_are_refused():
    X, y = or_table()
    with pytest.raises(NotImplementedError, match="LinearSVC"):
        Perceptron(penalty="l2").fit(X, y)
    with pytest.raises(TypeError):
        Perceptron(random_state=0).fit(X, y, sample_weight=np.ones(4))


def test_early_stopping_holds_rows_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X[:, 0] + 0.5 * rng.normal(size=300) > 0
    model = Perceptron(
        early_stopping=True, validation_fraction=0.2, random_state=0
    ).fit(X, y)
    assert np.sum(model.mistakes_ > 0) <= 240 and model.n_iter_ < 1000
    assert model.certificate_["update_sum"].met
