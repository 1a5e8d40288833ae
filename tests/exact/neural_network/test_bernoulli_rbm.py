"""Boltzmann machines: scikit-learn's weights, and likelihoods against the truth."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.neural_network import BernoulliRBM as Theirs

import certus
from certus.certificate import Status, Strength
from certus.neural_network import BernoulliRBM
from certus.verify import boltzmann

RNG = np.random.default_rng(0)
X = (RNG.random((60, 12)) < RNG.random(12)).astype(float)
X[:, 6:] = X[:, :6]  # something to learn


def brute_force(model, rows):
    """Log p of rows by all pairs of visible and hidden states."""
    W, c, b = model.components_, model.intercept_hidden_, model.intercept_visible_

    def weights(v):
        hidden = product((0.0, 1.0), repeat=len(c))
        return math.fsum(
            math.exp(b @ v + c @ h + h @ W @ v) for h in map(np.array, hidden)
        )

    visible = product((0.0, 1.0), repeat=len(b))
    total = math.fsum(weights(np.array(v)) for v in visible)
    return np.array([math.log(weights(v) / total) for v in rows])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_weights_and_scores_are_those_of_scikit_learn(form):
    options = {"n_components": 7, "n_iter": 4, "batch_size": 9, "random_state": 3}
    ours, theirs = (cls(**options).fit(form(X)) for cls in (BernoulliRBM, Theirs))
    for name in (
        "components_",
        "intercept_hidden_",
        "intercept_visible_",
        "h_samples_",
    ):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), atol=1e-12
        )
    one, two = (each.transform(form(X)) for each in (ours, theirs))
    np.testing.assert_allclose(one, two, rtol=1e-9)
    # scikit-learn flips one entry of a row at random: ours is the mean over all.
    draws = [theirs.set_params(random_state=i).score_samples(X) for i in range(400)]
    error = np.std(draws, axis=0) / 20 + 1e-9
    assert (
        np.abs(ours.score_samples(form(X)) - np.mean(draws, axis=0)) < 5 * error
    ).all()
    theirs.set_params(random_state=3)
    np.testing.assert_array_equal(ours.gibbs(X), theirs.gibbs(X))


def test_partial_fits_are_those_of_scikit_learn():
    ours, theirs = (cls(5, random_state=1) for cls in (BernoulliRBM, Theirs))
    for part in np.array_split(X, 4):
        ours.partial_fit(part[:10])
        theirs.partial_fit(part[:10])
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-12)
    assert not hasattr(ours, "certificate_")


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 1), (4, 4)])
def test_the_likelihood_is_that_of_all_states(shape):
    h, v = shape
    rows = (RNG.random((30, v)) < 0.4).astype(float)
    model = BernoulliRBM(h, learning_rate=0.5, random_state=0).fit(rows)
    model.components_ += RNG.normal(size=(h, v))
    truth = brute_force(model, rows)
    np.testing.assert_allclose(model.log_likelihood(rows), truth, rtol=1e-10)
    every = np.array(list(product((0.0, 1.0), repeat=v)))
    assert np.exp(model.log_likelihood(every)).sum() == pytest.approx(1.0, abs=1e-12)
    claim = certus.certify(model, rows)["exact_likelihood"]
    assert claim.strength is Strength.PROVED
    assert 0 < claim.allowance < 1e-10
    assert abs(claim.value - claim.allowance + truth.mean()) <= claim.allowance


@pytest.mark.parametrize("scale", [1.0, 40.0, 400.0])
def test_both_sums_agree_for_weights_of_any_size(scale):
    model = BernoulliRBM(11, random_state=0).fit(X)
    model.components_ = scale * RNG.normal(size=(11, 12))
    model.intercept_hidden_ = scale * RNG.normal(size=11)
    found = certus.certify(model, X)["exact_likelihood"]
    own = -float(model.log_likelihood(X).mean())
    assert found.value == pytest.approx(own, rel=1e-10)


def test_the_certificate_of_the_machine_of_scikit_learn():
    theirs = Theirs(6, n_iter=20, random_state=0).fit(X)
    ours = BernoulliRBM(6, n_iter=20, random_state=0).fit(X)
    found = certus.certify(theirs, X)
    assert found["exact_likelihood"].value == pytest.approx(ours.certificate_.value)
    assert (
        "independent columns" in found.claims[0].detail
        and found.status is Status.SOLVED
    )


def machine_of_blocks(wide, scale):
    """20 hidden units, each with columns of its own: log Z is a sum over units."""
    rng = np.random.default_rng(wide)
    rows = (rng.random((50, wide)) < 0.4).astype(float)
    model = BernoulliRBM(20, n_iter=1, random_state=0).fit(rows)
    owners = rng.integers(20, size=wide)
    model.components_ = np.where(
        owners == np.arange(20)[:, None], scale * rng.normal(size=(20, wide)), 0.0
    )
    model.intercept_hidden_ = c = rng.normal(size=20)
    model.intercept_visible_ = b = scale * rng.normal(size=wide)
    truth = 0.0
    for j in range(20):
        fields = b[owners == j], (b + model.components_[j])[owners == j]
        off, on = (np.logaddexp(0.0, each).sum() for each in fields)
        truth += np.logaddexp(off, c[j] + on)
    return model, rows, float(truth)


@pytest.mark.parametrize(("wide", "scale"), [(100, 1.0), (100, 50.0), (784, 1.0)])
def test_all_states_of_20_units_are_added_up_at_once(wide, scale):
    model, rows, truth = machine_of_blocks(wide, scale)
    claim = model.certificate_["exact_likelihood"]
    assert claim.strength is Strength.PROVED  # the fit already adds up all of them
    claim = certus.certify(model, rows)["exact_likelihood"]
    energy = model._free_energy(rows).mean()
    assert "1,048,576 states" in claim.detail
    off = abs(claim.value - claim.allowance - energy - truth)
    assert off <= claim.allowance < 1e-11 * truth


def test_large_weights_of_20_units_are_added_up_at_level_full(monkeypatch):
    model, rows, truth = machine_of_blocks(12, 400.0)
    monkeypatch.setattr(boltzmann, "QUICK_WIDE", 0)
    found = certus.certify(model, rows)
    assert "level='full'" in found["annealed_bound"].fix
    found = certus.certify(model, rows, level="full")["exact_likelihood"]
    energy = model._free_energy(rows).mean()
    assert abs(found.value - found.allowance - energy - truth) <= found.allowance


def grown(model, more):
    """The same law with hidden units that do nothing: Z is 2^more times as large."""
    big = BernoulliRBM(len(model.components_) + more, random_state=0)
    big.fit(np.zeros((2, model.n_features_in_)))
    big.components_ = np.vstack(
        [model.components_, np.zeros((more, model.n_features_in_))]
    )
    big.intercept_hidden_ = np.append(model.intercept_hidden_, np.zeros(more))
    big.intercept_visible_ = model.intercept_visible_
    return big


@pytest.mark.parametrize("seed", range(4))
def test_above_20_units_one_side_is_bounded(seed):
    rng = np.random.default_rng(seed)
    rows = (rng.random((40, 26)) < 0.3).astype(float)
    model = BernoulliRBM(9, n_iter=5, random_state=seed).fit(rows)
    model.components_ += 0.7 * rng.normal(size=(9, 26))
    truth = -float(model.log_likelihood(rows).mean())
    found = certus.certify(grown(model, 16), rows)
    bound, guess = found["annealed_bound"], found["annealed_estimate"]
    assert bound.strength is Strength.STATISTICAL and bound.delta == 0.05
    assert guess.strength is Strength.MEASURED
    assert bound.value <= truth
    assert guess.value == pytest.approx(truth, abs=0.5)
    with pytest.raises(ValueError, match="at most 20 units"):
        grown(model, 16).log_partition()


def test_training_raises_the_likelihood():
    start = BernoulliRBM(6, n_iter=0, random_state=0).fit(X)
    end = BernoulliRBM(6, n_iter=60, random_state=0).fit(X)
    assert end.certificate_.value < start.certificate_.value - 1.0
    assert len(end.history_["objective"]) == 60


def test_rows_without_a_likelihood_are_refused():
    model = BernoulliRBM(3, random_state=0).fit(X / 2)
    claim = model.certificate_["exact_likelihood"]
    assert claim.strength is Strength.REFUSED and "zeros and ones" in claim.detail
    with pytest.raises(ValueError, match="only zeros and ones"):
        model.log_likelihood(X / 2)


def test_a_run_that_diverges_says_so():
    with pytest.warns(certus.base.UncertifiedWarning, match="lower learning_rate"):
        model = BernoulliRBM(3, learning_rate=1e308, random_state=0).fit(X)
    assert model.certificate_.status is Status.DIVERGED


def test_a_file_a_limit_and_forged_weights(tmp_path):
    with pytest.warns(certus.base.UncertifiedWarning, match="stopped at max_time"):
        model = BernoulliRBM(4, max_time=0.0, random_state=0).fit(X)
    assert len(model.history_["objective"]) == 1
    assert model.certificate_.status is Status.TIME_LIMIT
    back = certus.load(model.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    before = certus.certify(back, X).value
    back.components_ = back.components_ + 1.0
    moved = certus.certify(back, X).value
    assert moved != before
    assert moved == pytest.approx(-float(back.log_likelihood(X).mean()), rel=1e-10)
    for name in ("components_", "intercept_hidden_", "intercept_visible_"):
        for bad in (None, "text", np.zeros(3), np.zeros((2, 2, 2))):
            broken = certus.load(tmp_path / "m.certus")
            setattr(broken, name, bad)
            with pytest.raises(ValueError, match=name):
                certus.certify(broken, X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 0}, "n_components must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"n_iter": -1}, "n_iter must be"),
    ],
)
def test_a_wrong_parameter_gets_a_clear_message(change, message):
    with pytest.raises(ValueError, match=message):
        BernoulliRBM(**change).fit(X)
