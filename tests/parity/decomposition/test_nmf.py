"""scikit-learn's NMF, certified: each factor's gap against its true optimum."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls
from sklearn.decomposition import NMF

import certus
from certus.certificate import Strength
from certus.objectives import NonNegative as Penalty
from certus.verify.nonnegative import gap

RNG = np.random.default_rng(0)
X = RNG.random((60, 4)) @ RNG.random((4, 20)) + 0.1 * RNG.random((60, 20))


def fit(data=X, k=4, **options):
    options = {"tol": 1e-9, "max_iter": 20_000, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NMF(k, init="nndsvda", random_state=0, **options).fit(data)


def value(X, W, H, penalty):
    cost = penalty.l1 * W.sum() + 0.5 * penalty.l2 * np.sum(W**2)
    return 0.5 * np.sum((X - W @ H) ** 2) + cost


def best(X, H, penalty):
    """min over W ≥ 0 by active sets; the penalties as further rows."""
    k = len(H)
    A = np.vstack([H.T, np.sqrt(penalty.l2) * np.eye(k)])
    rows = []
    for x in X:
        b = np.concatenate([x, np.zeros(k)])
        # a·Σw enters through the linear term, as a shift of b: Aᵀs = −a
        s = np.linalg.lstsq(A.T, np.full(k, -penalty.l1), rcond=None)[0]
        rows.append(nnls(A, b + s)[0])
    return np.array(rows)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.5]))
def test_the_gap_bounds_what_the_best_factor_gains(seed, l1, l2):
    rng = np.random.default_rng(seed)
    H, penalty = rng.random((3, 7)) * (rng.random((3, 7)) < 0.7), Penalty(l1, l2)
    Y = rng.random((5, 7))
    optimum = best(Y, H, penalty)
    least = value(Y, optimum, H, penalty)
    for W in (rng.random((5, 3)), optimum, optimum + 1e-4 * rng.random((5, 3))):
        gains = value(Y, W, H, penalty) - least
        found = gap(Y, H, W, penalty)
        assert found.value + found.rounding >= gains - 1e-12
    assert gap(Y, H, optimum, penalty).value < 1e-9
    assert gap(sparse.csr_matrix(Y), H, optimum, penalty).value < 1e-9


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha_W": 0.003, "l1_ratio": 0.0},
        {"alpha_W": 0.003, "l1_ratio": 0.5},
        {"alpha_W": 0.001, "alpha_H": 0.002, "l1_ratio": 0.7},
    ],
)
def test_a_tight_fit_is_certified(options):
    model = fit(**options)
    model.tol = 1e-7  # what it is judged by; what it was fitted with was tighter
    certificate = certus.certify(model, X)
    assert certificate.met and certificate.status == "solved"
    for name in ("components_gap", "weights_gap"):
        claim = certificate[name]
        assert claim.strength is Strength.PROVED and claim.met
        assert "nothing is said about the global minimum" in " ".join(claim.assumptions)
    assert certificate["stationarity"].strength is Strength.MEASURED
    assert certificate["stationarity"].value < 1e-5
    wrong = fit(**options)
    wrong.components_ = wrong.components_ * 1.05
    assert certus.certify(wrong, X).met is False


def test_the_gap_of_a_loose_fit_is_what_an_exact_update_gains():
    model = fit(tol=1e-2)
    certificate = certus.certify(model, X)
    W, H = model.transform(X), model.components_
    plain = Penalty(0.0, 0.0)
    exact = best(X.T, W.T, plain).T
    gains = value(X, W, H, plain) - value(X, W, exact, plain)
    claim = certificate["components_gap"]
    assert gains / (0.5 * np.sum(X**2)) <= claim.value
    loose, tight = certificate, certus.certify(fit(), X)
    assert tight["components_gap"].value < 0.1 * loose["components_gap"].value


def test_sparse_rows_and_pipelines():
    S = sparse.random(80, 30, 0.2, "csr", random_state=0)
    model = fit(S, k=3)
    model.tol = 1e-5
    one = certus.certify(model, S)
    other = certus.certify(model, S.toarray())
    assert one["components_gap"].value == pytest.approx(
        other["components_gap"].value, abs=1e-9
    )


@pytest.mark.parametrize("loss", ["kullback-leibler", "itakura-saito", 0.5, 1.5])
def test_other_divergences_are_measured(loss):
    options = {"solver": "mu", "beta_loss": loss, "max_iter": 3000}
    early = fit(tol=1e-2, **options)
    late = fit(tol=1e-8, **options)
    values = []
    for model in (early, late):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # transform runs out of iterations
            certificate = certus.certify(model, X)
        claim = certificate["stationarity"]
        assert claim.strength is Strength.MEASURED and certificate.met is None
        values.append(claim.value)
    assert values[1] < 0.5 * values[0]
    late.components_ = late.components_[:, ::-1].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert certus.certify(late, X)["stationarity"].value > 10 * values[1]
    weights = early.transform(X)
    late.transform = lambda rows: weights
    assert "overrides transform" in str(certus.certify(late, X))


def test_senseless_input_is_refused():
    model = fit()
    with pytest.raises(ValueError, match="negative values"):
        certus.certify(model, -X)
    with pytest.raises(ValueError, match="columns"):
        certus.certify(model, X[:, :5])
    with pytest.raises(ValueError, match="sample_weight"):
        certus.certify(model, X, sample_weight=np.ones(60))
    model.components_ = -model.components_
    with pytest.raises(ValueError, match="Fit the model again"):
        certus.certify(model, X)
