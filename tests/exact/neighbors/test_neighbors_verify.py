"""The checker of neighbours: what it proves, and what it does not let pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import neighbors as theirs
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import certus
from certus.certificate import Status, Strength
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor

Array = np.ndarray


@pytest.fixture
def table() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 6))
    return X, rng.integers(0, 3, 250)


def test_claims_of_a_good_fit(table: Any) -> None:
    X, y = table
    found = KNeighborsClassifier(3).fit(X, y).certificate_
    assert found.primary == "nearest_neighbours" and found.met
    assert found.status is Status.SOLVED and found.value < 1e-12
    claim = found["nearest_neighbours"]
    assert claim.strength is Strength.PROVED and "64 of 250" in claim.detail
    assert found["training_rows"].met and found["training_rows"].value == 0


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_distances_of_the_verifier(table: Any, metric: str, form: Any) -> None:
    from certus.verify.neighbors import READERS, _distances

    X, _ = table
    X = X * (np.abs(X) > 0.5)
    stated = READERS["KNeighborsClassifier"](KNeighborsClassifier(metric=metric))
    row = _distances(stated, form(X))
    assert row is not None
    expected = pairwise_distances(X[3:4], X, metric=metric)[0]
    np.testing.assert_allclose(row(3), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_tiny_sparse_distances_keep_their_digits(p: float) -> None:
    """Near copies of a long row: nothing may be lost by subtracting its norm."""
    from certus.verify.neighbors import READERS, _distances

    rng = np.random.default_rng(0)
    base = 1e3 * rng.normal(size=40) * (rng.uniform(size=40) < 0.5)
    X = np.tile(base, (30, 1))
    X += 1e-6 * rng.normal(size=X.shape) * (rng.uniform(size=X.shape) < 0.3)
    stated = READERS["KNeighborsClassifier"](KNeighborsClassifier(p=p))
    row = _distances(stated, sparse.csr_matrix(X))
    assert row is not None
    gaps = np.abs(X - X[7]).astype(np.longdouble)
    exact = (gaps**p).sum(axis=1) ** (1 / np.longdouble(p))
    np.testing.assert_allclose(row(7), exact.astype(float), rtol=1e-13)


@pytest.mark.parametrize("p", [1.3, 3.0, 10.0])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_weighted_minkowski_of_the_verifier(table: Any, p: float, form: Any) -> None:
    from scipy.spatial.distance import cdist

    from certus.verify.neighbors import READERS, _distances

    X, _ = table
    w = np.linspace(0.1, 3, 6)
    model = KNeighborsClassifier(p=p, metric_params={"w": list(w)})
    row = _distances(READERS["KNeighborsClassifier"](model), form(X))
    assert row is not None
    expected = cdist(X[3:4], X, "minkowski", p=p, w=w)[0]
    np.testing.assert_allclose(row(3), expected, rtol=1e-11)


# -- what must not pass -------------------------------------------------------------


class Wrong(KNeighborsClassifier):
    """Spoils the answer in one way or another."""

    how = ""

    def kneighbors(
        self, X: Any = None, n_neighbors: Any = None, return_distance: bool = True
    ) -> Any:
        distances, rows = super().kneighbors(X, n_neighbors)
        if self.how == "farther":  # the next but one instead of the last
            more, names = super().kneighbors(X, rows.shape[1] + 1)
            distances[:, -1], rows[:, -1] = more[:, -1], names[:, -1]
        elif self.how == "twice":
            rows[:, -1] = rows[:, 0]
        elif self.how == "outside":
            rows[:, -1] = self.n_samples_fit_
        elif self.how == "distances":
            distances = distances * 1.01
        return (distances, rows) if return_distance else rows


@pytest.mark.parametrize("how", ["farther", "twice", "outside", "distances"])
def test_a_wrong_answer_is_refuted(table: Any, how: str) -> None:
    X, y = table
    model = Wrong(4).fit(X, y)
    assert model.certificate_.met
    model.how = how
    found = certus.certify(model, X, y)
    assert found.met is False and found.status is Status.REFUTED
    assert found.value is not None and found.value > 0


@pytest.mark.parametrize("what", ["row", "label"])
def test_a_changed_model_is_refuted(table: Any, what: str) -> None:
    X, y = table
    model = KNeighborsClassifier(4).fit(X, y)
    if what == "row":
        model._fit_X = model._fit_X.copy()
        model._fit_X[200, 1] += 1e-9
    else:
        model._y = model._y.copy()
        model._y[200] = (model._y[200] + 1) % 3
    found = certus.certify(model, X, y)
    assert found.met is False and found.status is Status.REFUTED
    assert found["training_rows"].value == 1


def test_other_data_are_recognised(table: Any) -> None:
    X, y = table
    model = KNeighborsClassifier(4).fit(X, y)
    for other in ((X[::-1], y[::-1]), (X[:200], y[:200]), (X + 1e-3, y)):
        found = certus.certify(model, *other)
        assert found.met is False and found.status is Status.TOL_NOT_REACHED
        assert "not those of the fit" in " ".join(found[found.primary].assumptions)
    with pytest.raises(ValueError, match="5 columns"):
        certus.certify(model, X[:, :5], y)
    with pytest.raises(ValueError, match="label"):
        certus.certify(model, X, y + 7)


def test_ties_are_not_mistakes() -> None:
    X = np.repeat(np.arange(5.0), 20)[:, None]
    model = theirs.KNeighborsRegressor(7).fit(X, X[:, 0])
    found = certus.certify(model, X, X[:, 0])
    assert found.met  # whichever of the copies it returns


def test_unknown_distances_are_refused_but_the_rows_are_checked(table: Any) -> None:
    X, y = table
    for model in (
        KNeighborsClassifier(3, metric="cosine"),
        KNeighborsClassifier(3, metric=lambda a, b: np.abs(a - b).sum()),
    ):
        found = model.fit(X[:60], y[:60]).certificate_
        assert found.status is Status.SOLVED and found.primary == "training_rows"
        assert found["nearest_neighbours"].strength is Strength.REFUSED


def test_precomputed_distances_are_read_off(table: Any) -> None:
    X, y = table
    D = pairwise_distances(X)
    model = KNeighborsClassifier(3, metric="precomputed").fit(D, y)
    assert model.certificate_.met
    plain = KNeighborsClassifier(3).fit(X, y)
    assert np.array_equal(model.predict(D[:40]), plain.predict(X[:40]))


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float32, np.float16])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_rows_kept_in_another_precision_are_other_rows(
    table: Any, ours: bool, dtype: Any, form: Any
) -> None:
    X, y = table
    kind = KNeighborsClassifier if ours else theirs.KNeighborsClassifier
    model = kind(3, algorithm="brute").fit(form(X), y)
    model._fit_X = form(X.astype(dtype)) if form is np.asarray else model._fit_X
    if form is not np.asarray:
        model._fit_X = form(X.astype(np.int64 if dtype == np.float16 else dtype))
    found = certus.certify(model, form(X), y)
    assert found["training_rows"].met is False and found.met is False
    assert found["training_rows"].value == len(X)


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(
    "change",
    [{"p": 1}, {"metric": "chebyshev"}, {"metric_params": {"w": [9, 1, 1, 1, 1, 0]}}],
)
def test_a_distance_changed_after_the_fit(table: Any, ours: bool, change: Any) -> None:
    X, y = table
    kind = KNeighborsClassifier if ours else theirs.KNeighborsClassifier
    model = kind(4).fit(X, y)
    assert certus.certify(model, X, y).met
    found = certus.certify(model.set_params(**change), X, y)
    assert found.met is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("effective_metric_", "no distance"),
        ("effective_metric_", None),
        ("effective_metric_params_", 7),
    ],
)
def test_a_corrupted_distance_of_the_model_is_named(
    table: Any, name: str, value: Any
) -> None:
    X, y = table
    model = KNeighborsClassifier().fit(X, y)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=f"{name} .*fit the model again"):
        certus.certify(model, X, y)


@pytest.mark.parametrize("k", [1, 7])
def test_another_number_of_neighbours_is_judged_as_it_is(table: Any, k: int) -> None:
    X, y = table
    model = KNeighborsClassifier(4).fit(X, y).set_params(n_neighbors=k)
    found = certus.certify(model, X, y)
    assert found.met and f"the {k} found" in found["nearest_neighbours"].detail


def test_sample_weight_is_refused(table: Any) -> None:
    X, y = table
    for kind in (KNeighborsClassifier, theirs.KNeighborsClassifier):
        with pytest.raises(ValueError, match="takes no sample_weight"):
            certus.certify(kind().fit(X, y), X, y, np.ones(len(y)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_sparse_small_integers_do_not_wrap(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 100, size=(80, 6))
    y = rng.normal(size=80)
    model = KNeighborsRegressor(3).fit(sparse.csr_matrix(X.astype(float)), y)
    assert certus.certify(model, sparse.csr_matrix(X.astype(dtype)), y).met


@pytest.mark.parametrize("scale", [1e-200, 1e-165, 1e165, 1e300])
def test_distances_at_the_ends_of_the_range(table: Any, scale: float) -> None:
    X, y = table
    model = KNeighborsClassifier(3, algorithm="brute").fit(X, y)
    names = model.kneighbors(X)[1]
    model = Wrong(3, algorithm="brute").fit(X * scale, y)
    np.testing.assert_array_equal(model.kneighbors(X * scale)[1], names)
    assert certus.certify(model, X * scale, y).met
    model.how = "farther"
    assert certus.certify(model, X * scale, y).met is False


# -- leaving one out ----------------------------------------------------------------


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_leave_one_out_is_measured(table: Any, weights: str) -> None:
    X, y = table
    model = KNeighborsClassifier(5, weights=weights).fit(X, y)
    claim = certus.certify(model, X, y, level="full")["leave_one_out"]
    assert claim.strength is Strength.MEASURED
    assert claim.value == pytest.approx(1 - model.score(None, y))
    loo = cross_val_predict(
        KNeighborsClassifier(5, weights=weights), X, y, cv=LeaveOneOut()
    )
    assert claim.value == pytest.approx((loo != y).mean())
    line = KNeighborsRegressor(5, weights=weights).fit(X, X[:, :2])
    claim = certus.certify(line, X, X[:, :2], level="full")["leave_one_out"]
    gaps = line.predict(None) - X[:, :2]
    assert claim.value == pytest.approx(np.sqrt(np.mean(gaps**2)))


def test_leave_one_out_with_copies_and_too_few_rows() -> None:
    X = np.repeat(np.arange(4.0), 10)[:, None]
    y = np.repeat([0, 1, 2, 3], 10)
    model = KNeighborsClassifier(3).fit(X, y)
    assert certus.certify(model, X, y, level="full")["leave_one_out"].value == 0
    alone = KNeighborsClassifier(5).fit(X[:5], y[:5])
    claim = certus.certify(alone, X[:5], y[:5], level="full")["leave_one_out"]
    assert claim.strength is Strength.REFUSED


# -- scikit-learn's models ----------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree"])
@pytest.mark.parametrize("options", [{}, {"p": 1}, {"metric": "chebyshev"}, {"p": 3}])
@pytest.mark.parametrize("several", [False, True])
def test_models_of_scikit_learn(
    table: Any, algorithm: str, options: Any, several: bool
) -> None:
    X, y = table
    if several:
        y = np.column_stack([y, y[::-1]])
    for name in ("KNeighborsClassifier", "KNeighborsRegressor"):
        model = getattr(theirs, name)(4, algorithm=algorithm, **options).fit(X, y)
        found = certus.certify(model, X, y, level="full")
        assert found.met, found
        assert found.model == f"sklearn {name}"
        same = getattr(certus.neighbors, name)(4, **options).fit(X, y)
        left = certus.certify(same, X, y, level="full")["leave_one_out"]
        assert found["leave_one_out"].value == pytest.approx(left.value)
        worse = certus.certify(model, X + 1e-3, y, level="full")
        assert "leave_one_out" not in worse
        worse = certus.certify(model, X + 1e-3, y)
        assert worse.met is False


def test_neighbours_lost_to_rounding_are_found_out() -> None:
    """Far from the origin, products in float64 no longer tell near rows apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 30)) + 1e9
    y = rng.normal(size=500)
    model = theirs.KNeighborsRegressor(5, algorithm="brute").fit(X, y)
    found = certus.certify(model, X, y)
    assert found.met is False
    assert "KNeighborsRegressor" in found["nearest_neighbours"].fix
    ours = KNeighborsRegressor(5, algorithm="brute").fit(X, y)
    assert ours.certificate_.met
    assert certus.certify(ours, X, y, level="full").met
