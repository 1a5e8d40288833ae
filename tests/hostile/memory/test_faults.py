"""Planted faults in solvers, parameters, data, dtypes and files of memories."""

import numpy as np
import pytest

import certus
from certus.memory import HopfieldNetwork, ModernHopfield, WillshawMemory, storing
from certus.memory import willshaw_kernels as kernels
from certus.neural_network import BernoulliRBM

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)


def signs(s, n):
    return np.where(RNG.random((s, n)) < 0.5, -1.0, 1.0)


X = signs(5, 30)


# -- the projection rule ----------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rows", [X, np.vstack([X, X[:3], -X[:2]])], ids=["5", "10"])
def test_a_projection_onto_more_than_the_patterns_is_found(intercept, rows):
    model = HopfieldNetwork("projection", fit_intercept=intercept).fit(rows)
    assert model.certificate_["rule_weights"].met
    more = np.vstack([rows, signs(2, 30)])
    other = HopfieldNetwork("projection", fit_intercept=intercept).fit(more)
    model.weights_, model.intercept_ = other.weights_, other.intercept_
    # Each pattern is still mapped to itself, but two further ones are stored.
    assert certus.certify(model, rows)["rule_weights"].met is False


def test_weights_that_fix_the_patterns_without_symmetry_are_found():
    model = HopfieldNetwork("projection").fit(X)
    turn = np.linalg.svd(X)[2][-1]  # at right angles to all patterns
    model.weights_ = model.weights_ + np.outer(RNG.normal(size=30), turn)
    fields = X * (X @ model.weights_.T)
    np.fill_diagonal(model.weights_, 0.0)
    assert np.ptp(fields, axis=0).max() < 1e-9
    assert certus.certify(model, X)["rule_weights"].met is False


@pytest.mark.parametrize("rule", ["hebb", "projection"])
def test_weights_that_are_not_symmetric_are_found_and_have_no_energy(rule):
    model = HopfieldNetwork(rule).fit(X)
    assert model.certificate_["energy_rise"].met
    model.weights_ = model.weights_.copy()
    model.weights_[3, 7] += 1e-6  # in one direction only
    found = certus.certify(model, X)
    assert found["rule_weights"].met is False
    energy = found["energy_rise"]
    assert energy.strength.value == "refused" and "not symmetric" in energy.detail


def test_weights_of_another_dtype_are_found():
    model = HopfieldNetwork("projection").fit(X)
    model.weights_ = model.weights_.astype(np.float16).astype(np.float64)
    assert certus.certify(model, X)["rule_weights"].met is False
    whole = HopfieldNetwork("hebb").fit(X)
    whole.weights_ = whole.weights_.astype(np.float32)  # whole numbers stay the same
    assert certus.certify(whole, X)["rule_weights"].met


# -- solvers ----------------------------------------------------------------------


def doubled_pattern(x, intercept):
    return RIGHT_HEBB(np.vstack([x, x[:1]]), intercept)


def forgot_patterns(x, intercept):
    return RIGHT_PROJECTION(x[:-1], intercept)


RIGHT_HEBB, RIGHT_PROJECTION = storing.hebb, storing.projection


@pytest.mark.parametrize(
    ("rule", "wrong"), [("hebb", doubled_pattern), ("projection", forgot_patterns)]
)
def test_a_solver_that_stores_other_patterns_is_found(monkeypatch, rule, wrong):
    monkeypatch.setattr(storing, rule, wrong)
    assert HopfieldNetwork(rule).fit(X).certificate_["rule_weights"].met is False


def test_radii_that_promise_too_much_are_found(monkeypatch):
    right = storing.radii
    monkeypatch.setattr(storing, "radii", lambda *given: right(*given) + 1)
    for rule in ("hebb", "projection", "margin"):
        found = HopfieldNetwork(rule).fit(X).certificate_
        assert found["repair_radius"].met is False, rule


def test_retrieval_by_or_instead_of_and_is_found(monkeypatch):
    rows = (RNG.random((12, 40)) < 0.15).astype(float)

    def wrong(cues, columns, out):
        out[:] = 0
        for row, cue in enumerate(cues):
            for i in np.flatnonzero(cue):
                out[row] |= columns[i]

    monkeypatch.setattr(kernels, "retrieve", wrong)
    found = WillshawMemory().fit(rows).certificate_
    assert found["recall"].met is False and found.met is False


def test_a_modern_memory_with_an_overstated_guarantee_is_found(monkeypatch):
    from certus.memory import modern

    rows = RNG.normal(size=(30, 8))
    right = modern._radii
    monkeypatch.setattr(modern, "_radii", lambda *given: 1.5 * right(*given))
    assert ModernHopfield().fit(rows).certificate_["repair_radius"].met is False
    monkeypatch.setattr(modern, "_radii", right)
    monkeypatch.setattr(modern, "_needed_beta", lambda *given: 1.0)
    assert ModernHopfield().fit(rows).certificate_["retrieval_error"].met is False


# -- data, dtype, files -----------------------------------------------------------


@pytest.mark.parametrize("model", [HopfieldNetwork(), HopfieldNetwork("projection")])
def test_other_patterns_than_those_stored_are_found(model):
    model.fit(X)
    swapped = X.copy()
    swapped[0, :12] *= -1
    found = certus.certify(model, swapped)
    assert found.met is False and found["rule_weights"].met is False


def test_patterns_kept_in_another_dtype_are_found():
    rows = RNG.normal(size=(12, 6))
    model = ModernHopfield().fit(rows)
    model.patterns_ = model.patterns_.astype(np.float32)
    assert certus.certify(model, rows)["training_rows"].met is False


@pytest.mark.parametrize(
    "model", [HopfieldNetwork("projection"), WillshawMemory(), ModernHopfield()]
)
def test_a_file_written_with_other_numbers_is_found(model, tmp_path):
    rows = np.maximum(X, 0) if isinstance(model, WillshawMemory) else X
    model.fit(rows)
    name = "patterns_" if isinstance(model, ModernHopfield) else "weights_"
    changed = np.array(getattr(model, name))
    changed[2, 3] = 1 - changed[2, 3]
    setattr(model, name, changed)
    again = certus.load(model.save(tmp_path / "changed.certus"))
    found = certus.certify(again, rows)
    assert found.met is False
    assert found.status is certus.certificate.Status.REFUTED


def test_a_likelihood_does_not_come_from_the_solver(monkeypatch):
    from certus.neural_network import rbm_kernels

    rows = (RNG.random((40, 8)) < 0.4).astype(float)
    right = BernoulliRBM(3, random_state=0).fit(rows).certificate_.value
    monkeypatch.setattr(rbm_kernels, "log_sum", lambda *given: 0.0)
    wrong = BernoulliRBM(3, random_state=0).fit(rows)
    assert wrong.certificate_.value == right
    assert -wrong.log_likelihood(rows).mean() != pytest.approx(right)
    wrong.n_components = 4  # a parameter that the weights do not fit
    with pytest.raises(ValueError, match="components_"):
        certus.certify(wrong, rows)


# -- callbacks and limits ---------------------------------------------------------


class Stop:
    """Stops a fit at its second step."""

    steps = 0

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context, **more):
        if context.task_name == "step":
            self.steps += 1
        return self.steps >= 2


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (HopfieldNetwork("margin"), signs(60, 40)),
        (BernoulliRBM(4, n_iter=9, random_state=0), np.maximum(X, 0)),
    ],
)
def test_a_callback_stops_a_memory_and_leaves_it_usable(model, rows):
    spy = Stop()
    model.set_callbacks(spy).fit(rows)
    assert spy.steps == 2 and len(model.history_["objective"]) == 2
    assert model.certificate_.status is certus.certificate.Status.STOPPED
    recalled = model.predict(rows) if hasattr(model, "predict") else model.gibbs(rows)
    assert recalled.shape == rows.shape


class Ends:
    """Counts the beginnings and the ends of fits."""

    begun = ended = 0

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context):
        self.begun += 1

    def on_fit_task_end(self, estimator, context, **more):
        self.ended += 1


@pytest.mark.parametrize("model", [ModernHopfield(), WillshawMemory()])
def test_callbacks_see_a_memory_that_is_stored_at_once(model):
    spy = Ends()
    model.set_callbacks(spy).fit(np.maximum(X, 0))
    assert spy.begun == spy.ended == 1


@pytest.mark.parametrize("more", [{}, {"batch_size": 4}])
def test_two_short_fits_of_a_machine_are_one_long_fit(more, tmp_path):
    rows, options = np.maximum(X, 0), {"random_state": 0, **more}
    whole = BernoulliRBM(4, n_iter=8, **options).fit(rows)
    part = BernoulliRBM(4, n_iter=8, max_time=0.0, **options).fit(rows)
    assert len(part.history_["objective"]) == 1
    part = certus.load(part.save(tmp_path / "part.certus"))
    part.set_params(warm_start=True, n_iter=7, max_time=None).fit(rows)
    for name in ("components_", "intercept_hidden_", "intercept_visible_"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name))
    np.testing.assert_array_equal(part.h_samples_, whole.h_samples_)
    other = part.set_params(n_components=3).fit(rows)  # it begins again
    assert other.components_.shape == (3, 30)


def test_a_memory_of_widest_margin_goes_on_from_its_last_sweep():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((40, 40)) < 0.5, -1.0, 1.0)
    whole = HopfieldNetwork("margin").fit(rows)
    assert whole.n_iter_ >= 20
    part = HopfieldNetwork("margin", max_time=0.0, warm_start=True).fit(rows)
    assert part.certificate_.met is False or part.n_iter_ < whole.n_iter_
    first = part.n_iter_
    part.set_params(max_time=None).fit(rows)
    assert part.certificate_.status is certus.certificate.Status.SOLVED
    assert part.n_iter_ == whole.n_iter_ - first
    np.testing.assert_allclose(part.weights_, whole.weights_, atol=1e-9)
    part.set_params(rule="hebb").fit(rows)
    assert not hasattr(part, "duals_")


def test_memories_do_not_load_torch():
    import subprocess
    import sys

    code = (
        "import sys, numpy as np\n"
        "from certus.memory import *\n"
        "x = np.where(np.random.default_rng(0).random((3, 20)) < .5, -1., 1.)\n"
        "for m in (HopfieldNetwork(), ModernHopfield(), WillshawMemory()):\n"
        "    m.fit(x).predict(x)\n"
        "from certus.neural_network import BernoulliRBM\n"
        "BernoulliRBM(3, n_iter=1).fit(np.maximum(x, 0))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
