"""Additive models: faults are found, and shapes are what they say."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import certus
from certus.additive import AdditiveClassifier, AdditiveRegressor
from certus.certificate import Strength

RNG = np.random.default_rng(0)
X = np.round(RNG.uniform(-3, 3, size=(300, 4)), 3)
X[:, 3] = RNG.integers(0, 5, size=300)
X[::17, 1] = np.nan
MEAN = np.sin(X[:, 0]) + 0.5 * np.nan_to_num(np.abs(X[:, 1]), nan=2.0) + (X[:, 3] == 2)
Y = MEAN + 0.2 * RNG.normal(size=300)
TARGETS = {
    "squared_error": Y,
    "poisson": np.floor(np.exp(0.5 * MEAN)),
    "gamma": np.exp(Y),
    "two": Y > 1,
    "three": np.digitize(Y, [0.5, 1.5]),
}


def made(kind: str, **options: object) -> certus.base.Model:
    options = {"categorical_features": [3], "max_bins": 12, **options}
    if kind in ("two", "three"):
        return AdditiveClassifier(**options)
    return AdditiveRegressor(kind, **options)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("interactions", [0, [(0, 2)]])
def test_every_loss_is_solved_and_proved(kind: str, interactions: object) -> None:
    model = made(kind, interactions=interactions).fit(X, TARGETS[kind])
    first = model.certificate_[model.certificate_.primary]
    assert first.name == "duality_gap" and first.strength is Strength.PROVED
    assert model.certificate_.met and first.value < 1e-6


def test_a_given_alpha_is_least_squares_on_augmented_rows() -> None:
    y, alpha = TARGETS["squared_error"], 0.3
    model = AdditiveRegressor(alpha=alpha, interactions=0, max_bins=8).fit(X[:, [0]], y)
    edges, cells = model.bin_edges_[0][0], len(model.shapes_[0])
    place = 1 + (X[:, [0]] >= edges).sum(axis=1)
    hot = np.eye(cells)[place] / np.sqrt(len(y))
    D = np.diff(np.eye(cells), axis=0)[1:] * np.sqrt(alpha / cells)
    R = np.eye(cells) * np.sqrt(0.01 * alpha / cells)
    A = np.vstack([hot, D, R])
    A = np.hstack(
        [
            A,
            np.r_[np.full(len(y), 1 / np.sqrt(len(y))), np.zeros(len(D) + cells)][
                :, None
            ],
        ]
    )
    target = np.r_[y / np.sqrt(len(y)), np.zeros(len(D) + cells)]
    w = np.linalg.lstsq(A, target, rcond=None)[0]
    np.testing.assert_allclose(model.shapes_[0], w[:-1], atol=1e-9)
    assert model.intercept_ == pytest.approx(w[-1])


def test_contributions_add_up_and_have_mean_zero() -> None:
    for kind in ("squared_error", "three"):
        model = made(kind).fit(X, TARGETS[kind])
        parts = model.contributions(X)
        score = (
            model.predict(X) if kind == "squared_error" else model.decision_function(X)
        )
        np.testing.assert_allclose(
            model.baseline_ + parts.sum(axis=1), score, atol=1e-12
        )
        np.testing.assert_allclose(parts.mean(axis=0), 0.0, atol=1e-12)


def test_weights_equal_repetition() -> None:
    s = RNG.integers(0, 3, size=len(X))
    once = made("squared_error").fit(X, Y, sample_weight=s)
    again = made("squared_error").fit(np.repeat(X, s, axis=0), np.repeat(Y, s))
    assert once.terms_ == again.terms_
    np.testing.assert_allclose(once.predict(X), again.predict(X), atol=1e-7)


def test_a_pair_that_acts_together_is_found() -> None:
    A = RNG.uniform(-1, 1, size=(600, 5))
    y = 3 * A[:, 1] * A[:, 4] + A[:, 0] + 0.2 * RNG.normal(size=600)
    model = AdditiveRegressor(max_bins=16).fit(A, y)
    assert (1, 4) in model.terms_ and model.score(A, y) > 0.9
    assert AdditiveRegressor(max_bins=16, interactions=0).fit(A, y).score(A, y) < 0.6


def test_a_value_not_seen_in_training_adds_nothing() -> None:
    model = made("squared_error", interactions=0).fit(X, Y)
    row = X[:1].copy()
    row[0, 3] = 17.0
    found = model.predict(row) - model.intercept_
    rest = model.contributions(row)[0] + model.term_means_
    assert rest[3] == 0.0 and found == pytest.approx(rest.sum())
    model = AdditiveRegressor(max_bins=9).fit(X[:, :1], Y)
    assert model.predict([[np.nan]]) == pytest.approx(model.intercept_)


# -- planted faults -----------------------------------------------------------------


def moved_value(model: AdditiveRegressor) -> None:
    model.shapes_[0][3] += 0.01


def moved_alpha(model: AdditiveRegressor) -> None:
    model.smoothing_[0] *= 1.5


def moved_shrinkage(model: AdditiveRegressor) -> None:
    model.shrinkage_[2] *= 30.0


def moved_edge(model: AdditiveRegressor) -> None:
    model.bin_edges_[0][0][4] += 1e-9


def moved_edge_far(model: AdditiveRegressor) -> None:
    edges, values = model.bin_edges_[0][0], np.unique(X[:, 0])
    at = np.searchsorted(values, edges[4])
    edges[4] = values[at] / 2 + values[at + 1] / 2


def moved_constant(model: AdditiveRegressor) -> None:
    model.intercept_ += 0.01


def moved_category(model: AdditiveRegressor) -> None:
    model.bin_edges_[3][0][-1] = 9.0


FAULTS = (
    *(moved_value, moved_alpha, moved_shrinkage, moved_edge, moved_edge_far),
    *(moved_constant, moved_category),
)


@pytest.fixture(scope="module")
def fitted() -> AdditiveRegressor:
    return made("squared_error", interactions=0).fit(X, Y)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fitted: AdditiveRegressor, fault: object) -> None:
    assert certus.certify(fitted, X, Y).met
    model = copy.deepcopy(fitted)
    fault(model)
    assert certus.certify(model, X, Y).met is False


def test_shapes_in_float32_and_a_lost_penalty_are_refused(
    fitted: AdditiveRegressor,
) -> None:
    model = copy.deepcopy(fitted)
    model.shapes_ = [shape.astype(np.float32) for shape in model.shapes_]
    with pytest.raises(ValueError, match="float64"):
        certus.certify(model, X, Y)
    model = copy.deepcopy(fitted)
    model.shrinkage_[0] = 0.0
    with pytest.raises(ValueError, match="no L2 penalty"):
        certus.certify(model, X, Y)


def test_an_edited_file_is_found(fitted: AdditiveRegressor, tmp_path: object) -> None:
    path = fitted.save(tmp_path / "model.certus")
    np.testing.assert_array_equal(certus.load(path).predict(X), fitted.predict(X))
    assert certus.certify(certus.load(path), X, Y).met
    whole = bytearray(path.read_bytes())
    whole[-100] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(certus.persist.ModelFileError):
        certus.load(path)


@pytest.mark.parametrize("kind", ["squared_error", "poisson", "two"])
def test_monotone_columns_are_proved_and_a_wrong_step_is_found(kind: str) -> None:
    signs = [1, 0, -1, 0]
    model = made(kind, monotonic_cst=signs).fit(X, TARGETS[kind])
    claim = model.certificate_["monotone_columns"]
    assert model.certificate_.met and claim.strength is Strength.PROVED
    assert not any({0, 2} & set(pair) for pair in model.terms_ if len(pair) == 2)
    rows = np.repeat(X[:1], 50, axis=0)
    rows[:, 0] = np.linspace(-4, 4, 50)
    score = model.contributions(rows).sum(axis=1)
    assert (np.diff(score) >= -1e-12).all() and np.ptp(score) > 0
    shape = model.shapes_[0]
    shape[5] = np.nextafter(shape[4], -np.inf)
    found = certus.certify(model, X, TARGETS[kind])
    assert found["monotone_columns"].met is False and not found.met


def test_a_monotone_shape_of_one_column_is_isotonic_regression_with_a_penalty() -> None:
    x, y = X[:, :1], -X[:, 0] + 0.1 * RNG.normal(size=300)
    model = AdditiveRegressor(monotonic_cst=[1], max_bins=9).fit(x, y)
    np.testing.assert_allclose(model.predict(x), y.mean())  # against the data: constant


def test_a_monotone_column_joins_no_pair() -> None:
    with pytest.raises(ValueError, match="must not be in any pair"):
        made("two", monotonic_cst=[1, 0, 0, 0], interactions=[(0, 1)]).fit(X, Y > 1)
    with pytest.raises(NotImplementedError, match="more than two classes"):
        made("three", monotonic_cst=[1, 0, 0, 0]).fit(X, TARGETS["three"])


def test_the_range_of_a_box_is_that_of_all_cells_in_it() -> None:
    rng = np.random.default_rng(1)
    A = rng.integers(0, 6, size=(400, 3)).astype(float)
    y = A[:, 0] * A[:, 1] - A[:, 2] ** 2 / 3 + A[:, 1] * A[:, 2] + rng.normal(size=400)
    low, high = np.array([1.0, 0.0, 2.0]), np.array([4.0, 3.0, 5.0])
    grid = np.stack(np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(low, high))))
    rows = grid.reshape(3, -1).T
    for pairs, exact in (([], True), ([(0, 1), (1, 2)], True)):
        model = AdditiveRegressor(interactions=pairs).fit(A, y)
        found, score = model.score_range(low, high), model.predict(rows)
        assert found.exact is exact and found.low <= score.min() <= score.max()
        assert score.max() <= found.high
        assert found.most == pytest.approx(score.max(), abs=1e-9)
        assert found.least == pytest.approx(score.min(), abs=1e-9)
        assert found.high - found.most < 1e-9
    circle = [(0, 1), (1, 2), (0, 2)]
    model = AdditiveRegressor(interactions=circle).fit(A, y)
    found, score = model.score_range(low, high), model.predict(rows)
    assert found.low <= score.min() and score.max() <= found.high
    assert score.min() - 1e-9 <= found.least and found.most <= score.max() + 1e-9


def test_each_class_has_a_range_of_its_own() -> None:
    rng = np.random.default_rng(3)
    A = rng.integers(0, 5, size=(300, 2)).astype(float)
    kinds = (A[:, 0] * A[:, 1] % 3).astype(int)
    model = AdditiveClassifier(interactions=[(0, 1)]).fit(A, kinds)
    low, high = np.array([1.0, 0.0]), np.array([3.0, 2.0])
    grid = np.stack(np.meshgrid(np.arange(1, 4), np.arange(3)), axis=-1).reshape(-1, 2)
    found, scores = model.score_range(low, high), model.decision_function(grid)
    assert found.exact.all()
    np.testing.assert_allclose(found.least, scores.min(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.most, scores.max(axis=0), atol=1e-12)
    holes = np.concatenate([grid, [[np.nan, a] for a in range(3)]])
    scores = model.decision_function(holes)
    found = model.score_range(low, high, missing=[True, False])
    np.testing.assert_allclose(found.least, scores.min(axis=0), atol=1e-12)


def test_bands_cover_the_shape_and_pictures_are_drawn() -> None:
    import matplotlib

    matplotlib.use("Agg")
    rng = np.random.default_rng(2)
    A = rng.uniform(-3, 3, size=(600, 3))
    truth = np.sin(A[:, 0])
    y = truth + A[:, 1] * A[:, 2] + 0.3 * rng.normal(size=600)
    model = AdditiveRegressor(max_bins=20, interactions=[(1, 2)]).fit(A, y)
    cells = np.digitize(A[:, 0], model.bin_edges_[0][0]) + 1
    off = np.abs(model.contributions(A)[:, 0] - (truth - truth.mean()))
    assert np.mean(off <= 2 * model.shape_std_[0][cells] + 0.1) > 0.9
    assert len(model.plot_shapes().axes) == 7  # six places, and a scale of colours
    kinds = AdditiveClassifier(max_bins=6).fit(
        A[:, :1], np.digitize(truth, [-0.5, 0.5])
    )
    assert len(kinds.plot_shapes(label=1).axes) == 1
    matplotlib.pyplot.close("all")


def test_a_fit_obeys_its_limits_and_keeps_its_history() -> None:
    model = made("two")
    with pytest.warns(certus.base.UncertifiedWarning):
        model.set_params(max_time=0.0).fit(X, TARGETS["two"])
    assert model.certificate_.status.value == "time_limit"
    assert model.predict(X).shape == (300,) and len(model.history_["seconds"]) == 1
