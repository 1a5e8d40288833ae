"""PAC-Bayes: the formulas, the integral behind a drawn classifier, and its certificate.

Divergences are compared with quadrature and samples, the bounds with one another and
with sums over all outcomes, the fit with scikit-learn's minimiser and finite
differences, and the verifier with forged evidence.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, sparse, stats
from scipy.special import gammaln, ndtr
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression as Reference

import certus
from certus.base import UncertifiedWarning
from certus.bounds import (
    binary_kl,
    binary_kl_lower,
    binary_kl_upper,
    catoni_bound,
    donsker_varadhan,
    gaussian_kl,
    mcallester_bound,
    sampled_bound,
    sampled_error,
    seeger_bound,
)
from certus.certificate import Status, Strength
from certus.linear_model import StochasticLinearClassifier, gibbs, stochastic
from certus.verify import pac_bayes
from certus.verify.pac_bayes import split_rows, win_probability

Array = np.ndarray
shares = st.floats(0, 1)
budgets = st.floats(1e-9, 50)


# -- divergences --------------------------------------------------------------------


@given(shares, budgets)
def test_the_inverses_of_the_binary_divergence(q: float, budget: float) -> None:
    for p in (binary_kl_upper(q, budget), binary_kl_lower(q, budget)):
        assert 0 <= p <= 1
        if 1e-12 < p < 1 - 1e-12:
            assert binary_kl(q, p) == pytest.approx(budget, rel=1e-3, abs=1e-9)
    assert binary_kl_lower(q, budget) <= q <= binary_kl_upper(q, budget)
    assert binary_kl_lower(q, budget) == 1 - binary_kl_upper(1 - q, budget)
    assert binary_kl_upper(q, 2 * budget) >= binary_kl_upper(q, budget)


def test_the_binary_divergence_at_its_ends() -> None:
    assert binary_kl(0.0, 0.0) == binary_kl(1.0, 1.0) == binary_kl(0.3, 0.3) == 0
    assert binary_kl(0.0, 1.0) == binary_kl(0.5, 1.0) == math.inf
    assert binary_kl(0.0, 0.3) == pytest.approx(-math.log(0.7))
    assert binary_kl_upper(0.0, 0.0) == 0 and binary_kl_upper(1.0, 3.0) == 1
    assert binary_kl_upper(0.4, math.inf) == 1 and binary_kl_upper(0.4, 0.0) == 0.4
    assert binary_kl_upper(0.0, 1e-20) == pytest.approx(1e-20)
    assert binary_kl_lower(1.0, 0.1) == pytest.approx(math.exp(-0.1))
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            binary_kl(bad, 0.5)
        with pytest.raises(ValueError, match="at least 0"):
            binary_kl_upper(0.5, -abs(bad))


@pytest.mark.catalog("THY-10")
def test_the_divergence_of_gaussians_by_quadrature_and_by_samples() -> None:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=5), rng.uniform(0.2, 2, 5)
    start, root = rng.normal(size=5), 0.7
    total = 0.0
    for m, s, m0 in zip(mean, std, start):
        q, p = stats.norm(m, s), stats.norm(m0, root)

        def density(x: float, q: Any = q, p: Any = p) -> float:
            return float(q.pdf(x) * (q.logpdf(x) - p.logpdf(x)))

        total += integrate.quad(density, m - 12 * s, m + 12 * s)[0]
    found = gaussian_kl(mean, std, start, root)
    assert found == pytest.approx(total, rel=1e-9)
    draws = rng.normal(mean, std, size=(200_000, 5))
    gaps = stats.norm(mean, std).logpdf(draws) - stats.norm(start, root).logpdf(draws)
    each = gaps.sum(axis=1)
    assert abs(each.mean() - found) < 5 * each.std() / math.sqrt(len(each))


def test_the_divergence_of_gaussians_keeps_its_digits() -> None:
    assert gaussian_kl(1.0, 2.0, 1.0, 2.0) == 0
    step = 2.0**-30  # ½(r² − 1) − ln r = t² − t³/3 + …
    exact = step**2 - step**3 / 3
    assert gaussian_kl(0.0, 1 + step, 0.0, 1.0) == pytest.approx(exact, rel=1e-6)
    with pytest.raises(ValueError, match="positive"):
        gaussian_kl(0.0, 0.0, 0.0, 1.0)


def simplex(k: int) -> Any:
    weights = st.lists(st.floats(0.01, 1), min_size=k, max_size=k)
    return weights.map(lambda w: np.array(w) / np.sum(w))


@pytest.mark.catalog("THY-08")
@given(simplex(4), simplex(4), st.lists(st.floats(-50, 50), min_size=4, max_size=4))
def test_donsker_and_varadhan(q: Array, p: Array, phi: list[float]) -> None:
    kl = float(q @ np.log(q / p))
    assert donsker_varadhan(phi, q, p) <= kl + 1e-12
    best = np.log(q / p) + phi[0]
    assert donsker_varadhan(best, q, p) == pytest.approx(kl, abs=1e-12)


@pytest.mark.catalog("THY-08")
def test_only_the_log_ratio_is_equal_in_donsker_and_varadhan() -> None:
    """Strict away from ln(q/p) + c; states that Q never visits do not count."""
    rng = np.random.default_rng(1)
    q, p = np.array([0.7, 0.3, 0.0]), np.array([0.2, 0.3, 0.5])
    kl = 0.7 * math.log(0.7 / 0.2)
    ratio = np.array([math.log(0.7 / 0.2), 0.0, -800.0])
    assert donsker_varadhan(ratio, q, p) == pytest.approx(kl, abs=1e-12)
    for _ in range(50):
        bump = rng.normal(size=3)
        assert donsker_varadhan(ratio + bump - bump[1], q, p) < kl
    assert donsker_varadhan([1e4, -1e4, 0.0], q, p) < kl  # no overflow
    with pytest.raises(ValueError, match="sum to one"):
        donsker_varadhan([0.0, 0.0], [0.5, 0.6], [0.5, 0.5])
    with pytest.raises(ValueError, match="one length"):
        donsker_varadhan([0.0], [0.5, 0.5], [0.5, 0.5])


# -- the bounds ---------------------------------------------------------------------


@pytest.mark.catalog("THY-09")
def test_mcallester_by_its_formula_and_half_as_wide_as_the_notes() -> None:
    kl, n, delta = 4.2, 700, 0.02
    log = kl + math.log(2 * math.sqrt(n) / delta)
    found = mcallester_bound(0.2, kl, n, delta)
    assert found == pytest.approx(0.2 + math.sqrt(log / (2 * n)), rel=1e-14)
    loose = mcallester_bound(0.2, kl, n, delta, loose=True)
    assert loose == pytest.approx(0.2 + math.sqrt(2 / n * log), rel=1e-14)
    assert loose - 0.2 == pytest.approx(2 * (found - 0.2))


@pytest.mark.catalog("THY-09")
@given(shares, st.floats(0, 100), st.integers(1, 10**6), st.floats(1e-9, 0.5))
def test_the_bounds_are_ordered(error: float, kl: float, n: int, delta: float) -> None:
    tight = seeger_bound(error, kl, n, delta)
    assert error <= tight <= mcallester_bound(error, kl, n, delta) + 1e-9  # Pinsker
    assert tight <= seeger_bound(error, kl, n, delta, priors=3)
    assert seeger_bound(error, kl, n, delta, priors=3) == pytest.approx(
        seeger_bound(error, kl, n, delta / 3), rel=1e-9
    )
    assert error <= catoni_bound(error, kl, n, delta) + 1e-12 <= 1 + 1e-12


@given(st.floats(0.01, 0.6), st.floats(0, 100), st.integers(100, 10**5))
def test_the_best_rate_of_catoni_is_the_inverse_divergence(
    error: float, kl: float, n: int
) -> None:
    """Convex duality: the infimum over all rates has budget (KL + ln(1/δ))/n."""
    delta = 0.05
    exact = binary_kl_upper(error, (kl + math.log(1 / delta)) / n)
    rates = np.geomspace(1e-3, 50, 4000)
    each = [catoni_bound(error, kl, n, delta, rate=float(c)) for c in rates[::40]]
    assert min(each) >= exact - 1e-9
    # A grid pays ln(4000) for its choice and finds the infimum of the rest.
    fair = catoni_bound(error, kl, n, delta * len(rates) / 4001, rate=rates)
    paid = binary_kl_upper(error, (kl + math.log(4001 / delta)) / n)
    assert paid - 1e-9 <= fair <= paid + 2e-3


@pytest.mark.catalog("THY-09")
def test_maurers_constant_by_summing_over_all_outcomes() -> None:
    """E e^{n·kl(p̂‖p)} = Σ C(n,k)(k/n)^k(1−k/n)^{n−k} for every p, at most 2√n."""
    for n in [*range(1, 200), 1000, 10_000]:
        k = np.arange(n + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.where(k > 0, k * np.log(k / n), 0.0)
            log += np.where(k < n, (n - k) * np.log1p(-k / n), 0.0)
        binomial = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        total = float(np.exp(binomial + log).sum())
        assert math.sqrt(n) <= total <= 2 * math.sqrt(n) * (1 + 1e-9)
    p = 0.3
    direct = stats.binom.pmf(range(11), 10, p) @ [
        math.exp(10 * binary_kl(k / 10, p)) for k in range(11)
    ]
    assert direct < 2 * math.sqrt(10)


def test_draws_are_paid_for_inside_delta() -> None:
    errors = np.full(400, 0.15)
    found = sampled_bound(errors, 3.0, 900, 0.05, share=0.1)
    inner = sampled_error(errors, 0.005)
    assert inner == pytest.approx(binary_kl_upper(0.15, math.log(200) / 400))
    assert found == seeger_bound(inner, 3.0, 900, 0.045)
    assert found > seeger_bound(0.15, 3.0, 900, 0.05)
    for bad in ([], [0.5, 1.5], [math.nan]):
        with pytest.raises(ValueError, match="losses"):
            sampled_bound(bad, 1.0, 10)
    with pytest.raises(ValueError, match="share"):
        sampled_bound([0.5], 1.0, 10, share=1.0)


@pytest.mark.parametrize("rule", [seeger_bound, mcallester_bound, catoni_bound])
def test_absurd_arguments_are_refused_and_extremes_bounded(rule: Any) -> None:
    assert rule(0.0, 0.0, 1) <= 1 and rule(1.0, 1e300, 1) == 1
    assert rule(0.5, math.inf, 10) == 1
    for args in ((-0.1, 1, 10), (0.5, -1, 10), (0.5, 1, 0), (math.nan, 1, 10)):
        with pytest.raises(ValueError):
            rule(*args)
    with pytest.raises(ValueError, match="delta"):
        rule(0.5, 1, 10, 0.0)
    with pytest.raises(ValueError, match="priors"):
        rule(0.5, 1, 10, priors=0)


def test_a_rate_must_be_positive() -> None:
    for bad in (0.0, -1.0, [], math.nan):
        with pytest.raises(ValueError, match="rate"):
            catoni_bound(0.5, 1, 10, rate=bad)


# -- the error of a drawn classifier ------------------------------------------------


def exact_win(mean: Array, std: Array, y: int) -> float:
    others = [k for k in range(len(mean)) if k != y]

    def value(t: float) -> float:
        u = (mean[y] - mean[others] + std[y] * t) / std[others]
        return float(np.prod(ndtr(u)) * math.exp(-t * t / 2) / math.sqrt(2 * math.pi))

    return integrate.quad(value, -12, 12, epsabs=1e-12, limit=400)[0]


@pytest.mark.parametrize("spread", [0.02, 0.5, 4.0])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_the_chance_to_be_right_is_bounded_from_below(k: int, spread: float) -> None:
    rng = np.random.default_rng(k)
    mean = rng.normal(size=(200, k))
    std = spread * rng.uniform(0.3, 1.5, (200, k))
    codes = rng.integers(0, k, 200)
    found = win_probability(mean, std, codes)
    exact = np.array([exact_win(m, s, c) for m, s, c in zip(mean, std, codes)])
    assert (found <= exact + 1e-9).all()
    assert (exact - found).max() < 4e-3
    assert (exact - found).mean() < 1e-3


def test_the_chance_to_be_right_in_special_cases() -> None:
    codes = np.array([0, 1])
    z, s = np.array([[0.3], [0.3]]), np.array([[2.0], [2.0]])
    two = win_probability(z, s, codes)
    assert two == pytest.approx([ndtr(-0.15), ndtr(0.15)], abs=1e-15)
    both = win_probability(
        np.column_stack([-z, z]) / 2, np.full((2, 2), 2.0 / math.sqrt(2)), codes
    )
    assert both == pytest.approx(two, abs=1e-3)
    nothing = np.zeros((2, 3))  # no row, no noise: a tie, which counts as wrong
    assert (win_probability(nothing, nothing, codes) == 0).all()
    sure = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert win_probability(sure, nothing, codes) == pytest.approx([1, 0], abs=1e-8)
    steep = np.array([[3.0, 1e-9, 1e-9]])  # far from what a smooth rule can follow
    found = win_probability(np.zeros((1, 3)), steep, np.array([0]))[0]
    assert 0.44 < found <= 0.5


def three_groups(n: int = 240, seed: int = 0, d: int = 4) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, d)) + 2 * np.eye(3, d)[y]
    return X, np.array(["a", "b", "c"])[y]


def error_of_draws(model: Any, X: Array, y: Array, draws: int, seed: int) -> Array:
    """Error of drawn classifiers, by the definition: weights from N(M, σ²), argmax."""
    rng = np.random.default_rng(seed)
    errors = np.empty(draws)
    for i in range(draws):
        W = rng.normal(model.coef_, model.coef_std_)
        b = rng.normal(model.intercept_, model.intercept_std_)
        z = X @ W.T + b
        index = z.argmax(axis=1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(int)
        errors[i] = np.mean(model.classes_[index] != y)
    return errors


@pytest.mark.catalog("THY-11")
@pytest.mark.parametrize("prior", ["half", "zero"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_certificate_is_about_the_classifiers_drawn(
    prior: str, classes: int
) -> None:
    X, y = three_groups()
    if classes == 2:
        y = np.where(y == "a", "a", "b")
    model = StochasticLinearClassifier(prior, random_state=3).fit(X, y)
    found = model.certificate_
    rows = split_rows(len(y), len(y) // 2, found.evidence.witness.seed)[1]
    rows = rows if prior == "half" else np.arange(len(y))
    errors = error_of_draws(model, X[rows], y[rows], 4000, seed=1)
    noise = 5 * errors.std() / math.sqrt(len(errors))
    gibbs = found["gibbs_error"].value
    assert errors.mean() - noise < gibbs < errors.mean() + noise + 2e-3
    own = (
        1
        - model.vote_proba(X[rows])[
            np.arange(len(rows)), np.searchsorted(model.classes_, y[rows])
        ].mean()
    )
    assert own <= gibbs < own + 2e-3
    priors = 10 if prior == "half" else 1
    bound = seeger_bound(gibbs, found["kl_divergence"].value, len(rows), priors=priors)
    assert found.value == pytest.approx(bound, rel=1e-9)
    assert found[found.primary].strength is Strength.STATISTICAL
    assert found[found.primary].delta == 0.05 and found.met


def test_shares_of_votes_are_those_of_predict() -> None:
    X, y = three_groups()
    state = np.random.RandomState(0)
    model = StochasticLinearClassifier("zero", random_state=state).fit(X, y)
    votes = np.zeros((30, 3))
    for _ in range(3000):
        votes += model.predict(X[:30])[:, None] == model.classes_
    shares = model.vote_proba(X[:30])
    assert shares.sum(axis=1) == pytest.approx(np.ones(30))
    assert np.abs(votes / 3000 - shares).max() < 0.045
    assert not np.array_equal(model.predict(X), model.predict(X))
    model.set_params(random_state=7)
    assert np.array_equal(model.predict(X), model.predict(X))


def test_twice_the_bound_covers_the_mean_and_the_vote() -> None:
    """Where one of them errs, at least half of the draws err."""
    X, y = three_groups(600)
    model = StochasticLinearClassifier("zero").fit(X[:300], y[:300])
    shares = model.vote_proba(X)
    right = shares[np.arange(600), np.searchsorted(model.classes_, y)]
    for label in (model.predict_mean(X), model.classes_[shares.argmax(axis=1)]):
        assert (right[label != y] <= 0.5 + 1e-9).all()
        assert np.mean(label != y) <= 2 * (1 - right).mean()
        assert np.mean(label != y) > 0


# -- the prior ----------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_the_prior_is_the_minimiser_on_its_rows_and_sees_no_other(classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes] / 4, y[y < classes]
    model = StochasticLinearClassifier(random_state=5, alpha=1e-3).fit(X, y)
    evidence = model.certificate_.evidence
    seen, counted = split_rows(len(y), len(y) // 2, evidence.witness.seed)
    assert len(np.union1d(seen, counted)) == len(y) == len(seen) + len(counted)
    rows = np.column_stack([X[seen], np.ones(len(seen))])
    rows = rows / math.sqrt(np.mean(np.sum(rows**2, axis=1)))
    reference = Reference(
        C=1 / (1e-3 * len(seen)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(rows, y[seen])
    np.testing.assert_allclose(
        evidence.witness.prior_mean, reference.coef_, rtol=2e-3, atol=2e-3
    )
    other = X.copy()
    other[counted] += np.random.default_rng(0).normal(size=other[counted].shape)
    moved = StochasticLinearClassifier(random_state=5, alpha=1e-3).fit(other, y)
    assert np.array_equal(
        moved.certificate_.evidence.witness.prior_mean,
        evidence.witness.prior_mean,
    )
    assert moved.certificate_.value > model.certificate_.value


def test_the_divergence_is_that_of_the_attributes() -> None:
    X, y = three_groups()
    for prior in ("half", "zero"):
        model = StochasticLinearClassifier(prior, intercept_scaling=2.0).fit(X, y)
        evidence = model.certificate_.evidence
        mean = np.column_stack([model.coef_, model.intercept_ / 2])
        std = np.column_stack([model.coef_std_, model.intercept_std_ / 2])
        centre, length = 0.0, 1.0
        if prior == "half":
            seen, _ = split_rows(len(y), len(y) // 2, evidence.witness.seed)
            length = math.sqrt(np.mean(np.sum(X[seen] ** 2, axis=1) + 4))
            centre = evidence.witness.prior_mean
        root = math.sqrt(model.prior_variance_)
        kl = gaussian_kl(mean * length, std * length, centre, root)
        assert model.certificate_["kl_divergence"].value == pytest.approx(kl, rel=1e-5)


# -- forged evidence ----------------------------------------------------------------


def forge(model: Any, **changes: Any) -> Any:
    """The model with another witness, or other parameters and attributes."""
    evidence = model.certificate_.evidence
    if "prior_mean" in changes:
        witness = evidence.witness._replace(prior_mean=changes.pop("prior_mean"))
        evidence = dataclasses.replace(evidence, witness=witness)
    model.certificate_ = dataclasses.replace(model.certificate_, evidence=evidence)
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def test_forged_evidence_is_refuted() -> None:
    X, y = three_groups()
    model = StochasticLinearClassifier(random_state=0).fit(X, y)
    stated = model.certificate_
    length = math.sqrt(np.mean(np.sum(X**2, axis=1) + 1))
    near = np.column_stack([model.coef_, model.intercept_]) * length
    forgeries: list[dict[str, Any]] = [
        {"prior_mean": near},  # a prior that has seen the rows counted
        {"random_state": 1},  # other rows were the prior's
        {"shuffle": False},
        {"fraction": 0.1},
        {"prior": "zero"},
        {"prior_variance_": 0.1},  # tuned, not from the grid
        {"alpha": 1e-2},
        {"intercept_scaling": 3.0},
        {"prior_mean": np.full_like(near, np.nan)},
        {"prior_mean": None},
        {"prior_mean": near.astype(str)},
    ]
    kept = {**vars(model)}
    for forgery in forgeries:
        vars(model).update(kept)
        found = certus.certify(forge(model, **forgery), X, y)
        assert found.met is False and found.status is Status.REFUTED, forgery
    vars(model).update(kept)
    assert certus.certify(model, X, y).value == stated.value
    for name in ("coef_std_", "intercept_std_"):
        kept = getattr(model, name)
        for bad in (0.0, -1.0, np.nan, np.inf):
            setattr(model, name, np.full_like(kept, bad))
            found = certus.certify(model, X, y)
            assert found.met is False and found.status is Status.REFUTED
        setattr(model, name, kept)


def test_sample_weight_and_parameters_out_of_range() -> None:
    X, y = three_groups()
    model = StochasticLinearClassifier(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        certus.certify(model, X, y, np.ones(len(y)))
    for change in ({"delta": 1.0}, {"delta": 0.0}, {"alpha": -1.0}, {"fraction": 2.0}):
        found = certus.certify(forge(model, **change), X, y)
        assert found.met is None and found.status is Status.UNDECIDED
        model.set_params(delta=0.05, alpha=1e-4, fraction=0.5)


def test_another_delta_is_another_bound() -> None:
    X, y = three_groups()
    model = StochasticLinearClassifier(random_state=0).fit(X, y)
    sure = certus.certify(model.set_params(delta=1e-6), X, y)
    claim = sure["pac_bayes_bound"]
    assert sure.value > model.certificate_.value and claim.delta == 1e-6


def test_rows_of_any_state_are_known_from_the_witness() -> None:
    X, y = three_groups()
    state = np.random.RandomState(3)
    model = StochasticLinearClassifier(random_state=state).fit(X, y)
    assert certus.certify(model, X, y).value == model.certificate_.value


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_small_integers_do_not_wrap(form: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 100, size=(400, 3))
    y = (X[:, 0] > X[:, 1]).astype(int)
    model = StochasticLinearClassifier(random_state=0).fit(X.astype(float), y)
    found = certus.certify(model, form(X.astype(np.int8)), y)
    assert found.value == pytest.approx(model.certificate_.value)


def test_a_prior_that_is_not_at_its_minimum_costs_more() -> None:
    """Within a tenth of a standard deviation it stands, but gains nothing by a shift.

    Moved a little towards the posterior it would save some divergence.
    """
    X, y = three_groups()
    model = StochasticLinearClassifier(random_state=0, alpha=0.1).fit(X, y)
    stated = model.certificate_
    evidence = stated.evidence
    centre = evidence.witness.prior_mean
    seen, _ = split_rows(len(y), len(y) // 2, evidence.witness.seed)
    length = math.sqrt(np.mean(np.sum(X[seen] ** 2, axis=1) + 1))
    way = np.column_stack([model.coef_, model.intercept_]) * length - centre
    size = 0.02 * math.sqrt(model.prior_variance_) / np.linalg.norm(way)
    found = certus.certify(forge(model, prior_mean=centre + size * way), X, y)
    assert found.met
    assert found["kl_divergence"].value >= stated["kl_divergence"].value
    assert found.value >= stated.value


def test_any_posterior_has_its_own_true_bound() -> None:
    """The theorem is uniform over posteriors: other weights, another number."""
    X, y = three_groups()
    model = StochasticLinearClassifier("zero").fit(X, y)
    stated = model.certificate_.value
    model.coef_ = model.coef_ * 1.5
    found = certus.certify(model, X, y)
    assert found.met and found.value > stated


# -- the fit ------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_slopes_of_the_bound_by_finite_differences(classes: int) -> None:
    X, y = three_groups(60)
    codes = np.unique(y, return_inverse=True)[1]
    codes = np.minimum(codes, classes - 1)
    model = StochasticLinearClassifier(random_state=0)
    model.classes_ = np.arange(classes)
    problem = stochastic._plan(model, X, codes).problem
    rng = np.random.default_rng(0)
    shape = problem.centre.shape
    mean = problem.centre + 0.1 * rng.normal(size=shape)
    log, variance = 0.3 * rng.normal(size=shape), 0.25
    slopes = gibbs.bound_at(problem, mean, log, variance)[2]
    step = 1e-5
    for which in (0, 1):
        for _ in range(6):
            way = rng.normal(size=shape)
            ends = []
            for sign in (1, -1):
                point = [mean, log]
                point[which] = point[which] + sign * step * way
                ends.append(gibbs.bound_at(problem, *point, variance)[0])
            rise = (ends[0] - ends[1]) / (2 * step)
            assert rise == pytest.approx(np.vdot(slopes[which], way), rel=1e-5)


@pytest.mark.catalog("THY-11")
def test_the_slopes_are_those_of_reparameterised_draws() -> None:
    """Half of the noise is drawn, z = μ + rT; the other half makes the vote smooth."""
    mean, r, rest = np.array([[0.7], [-0.4]]), 0.8, 0.6
    codes, sign = np.array([1, 0]), np.array([[1.0], [-1.0]])
    exact = gibbs.two_labels(mean, np.full((2, 1), math.hypot(r, rest)), codes)
    T = np.random.default_rng(0).normal(size=400_000)
    t = sign * (mean + r * T) / rest
    density = -sign * np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi) / rest
    assert ndtr(-t).mean(axis=1) == pytest.approx(exact.error, abs=3e-3)
    assert density.mean(axis=1) == pytest.approx(exact.mean[:, 0], abs=3e-3)
    by_r = exact.std[:, 0] * r / math.hypot(r, rest)
    assert (density * T).mean(axis=1) == pytest.approx(by_r, abs=3e-3)


def test_a_learnt_prior_beats_one_that_has_seen_nothing() -> None:
    X, y = load_iris(return_X_y=True)
    half = StochasticLinearClassifier().fit(X / 4, y).certificate_
    zero = StochasticLinearClassifier("zero").fit(X / 4, y).certificate_
    assert half.value < 0.2 < zero.value < 0.4
    assert half["kl_divergence"].value < zero["kl_divergence"].value


def test_the_fit_descends_and_stops_on_request() -> None:
    X, y = three_groups()
    model = StochasticLinearClassifier("zero").fit(X, y)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-12).all() and len(objective) == model.n_iter_
    assert model.certificate_.value == pytest.approx(objective[-1], abs=5e-3)
    early = StochasticLinearClassifier("zero", max_time=0.0)
    with pytest.warns(UncertifiedWarning, match="max_time"):
        early.fit(X, y)
    found = early.certificate_
    assert found.status is Status.TIME_LIMIT and found.met  # the bound is still one
    assert found.value > model.certificate_.value
    warm = StochasticLinearClassifier("zero", warm_start=True).fit(X, y)
    first = warm.n_iter_
    assert warm.fit(X, y).n_iter_ < first
    assert warm.certificate_.value == pytest.approx(model.certificate_.value, abs=1e-4)


def test_ctrl_c_leaves_a_bound() -> None:
    X, y = three_groups()

    class Stop:
        def __init__(self) -> None:
            self.steps = 0

        def setup(self, estimator: Any, context: Any) -> None: ...

        def teardown(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_end(self, estimator: Any, context: Any) -> None:
            self.steps += 1
            if self.steps == 2:
                raise KeyboardInterrupt

    for prior in ("half", "zero"):
        model = StochasticLinearClassifier(prior).set_callbacks(Stop())
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert model.certificate_.status is Status.INTERRUPTED
        assert model.certificate_.value < 1
        assert model.predict(X).shape == y.shape


@pytest.mark.parametrize("factor", [1e-150, 1e-30, 1.0, 1e30, 1e150])
def test_a_common_factor_changes_nothing(factor: float) -> None:
    """Without an intercept scores are compared, not measured."""
    X, y = three_groups()
    for prior in ("half", "zero"):
        model = StochasticLinearClassifier(prior, fit_intercept=False).fit(X, y)
        other = StochasticLinearClassifier(prior, fit_intercept=False)
        other.fit(X * factor, y)
        assert other.certificate_.value == pytest.approx(
            model.certificate_.value, rel=1e-6
        )
        assert np.array_equal(other.predict_mean(X * factor), model.predict_mean(X))


def test_rows_of_zeros_and_absent_classes() -> None:
    X, y = three_groups(40)
    X[::7] = 0.0
    for options in ({"fit_intercept": False}, {"shuffle": False}):
        model = StochasticLinearClassifier(**options)
        order = np.argsort(y, kind="stable")  # the first rows lack a class
        model.fit(X[order], y[order])
        assert model.certificate_.met and 0 < model.certificate_.value < 1
        S = sparse.csr_array(X[order])
        same = StochasticLinearClassifier(**options).fit(S, y[order])
        assert same.certificate_.value == pytest.approx(
            model.certificate_.value, rel=1e-4
        )
        assert same.vote_proba(S) == pytest.approx(model.vote_proba(X[order]), abs=1e-3)


def test_few_rows_and_bad_parameters() -> None:
    X, y = three_groups()
    few = StochasticLinearClassifier().fit(X[:3], ["a", "b", "b"])
    assert few.certificate_.value <= 1 and few.certificate_.met is not False
    with pytest.raises(ValueError, match="one class"):
        StochasticLinearClassifier().fit(X[:1], ["a"])
    for name, bad in (
        ("prior", "quarter"),
        ("fraction", 1.0),
        ("fraction", 0.0),
        ("delta", 1.0),
        ("delta", 0.0),
        ("alpha", 0.0),
        ("intercept_scaling", 0.0),
        ("max_iter", 0),
    ):
        with pytest.raises(ValueError, match=name):
            StochasticLinearClassifier(**{name: bad}).fit(X, y)
    with pytest.raises(ValueError, match="random_state"):
        StochasticLinearClassifier().fit(X, y).calibrate(X, y)
    with pytest.raises(ValueError, match="no sample_weight"):
        certus.certify(few, X[:3], ["a", "b", "b"], np.ones(3))
    with pytest.raises(ValueError, match="shape"):
        certus.certify(few, X[:3, :2], ["a", "b", "b"])


def test_a_bound_of_one_is_refused() -> None:
    """So many columns and so few rows that nothing can be said."""
    model = StochasticLinearClassifier("zero", delta=1e-12)
    model.fit(np.eye(2), ["a", "b"])
    claim = model.certificate_["pac_bayes_bound"]
    assert claim.value <= 1
    model.coef_ = model.coef_ + 1e4
    claim = certus.certify(model, np.eye(2), ["a", "b"])["pac_bayes_bound"]
    assert claim.strength is Strength.REFUSED and "says nothing" in claim.detail


def test_the_verifier_has_its_own_inverse() -> None:
    rng = np.random.default_rng(0)
    for q, budget in zip(rng.uniform(0, 1, 200), rng.exponential(1, 200)):
        found = pac_bayes._invert(float(q), float(budget))
        assert found == pytest.approx(binary_kl_upper(q, budget), abs=1e-14)
    assert pac_bayes._invert(0.0, 0.5) == pytest.approx(1 - math.exp(-0.5))
    assert pac_bayes._invert(1.0, 0.5) == pac_bayes._invert(0.3, math.inf) == 1


@pytest.mark.parametrize("name", ["coef_", "coef_std_", "intercept_", "intercept_std_"])
@pytest.mark.parametrize("value", [None, "three", np.ones(7), np.ones((3, 4), complex)])
def test_attributes_that_no_fit_sets_are_named(name: str, value: Any) -> None:
    X, y = load_iris(return_X_y=True)
    model = StochasticLinearClassifier(max_iter=5)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, y)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=f"^{name} of this .* Fit it again"):
        certus.certify(model, X, y)
