"""Non-negative, weighted, grouped and multi-task least squares against references."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn import linear_model as sk
from sklearn.base import clone
from sklearn.datasets import load_linnerud

import certus
from certus import linear_model as ours
from certus._solvers import blocks
from certus._solvers.blocks import BlockProblem
from certus._solvers.design import Design
from certus._solvers.problem import SolverLimits, Start
from certus.certificate import Status
from certus.objectives import Group
from certus.objectives.terms import L1

Array = np.ndarray
SHAPES = [(120, 20), (40, 90)]
forms = pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_matrix, sparse.csc_array]
)
weighted = pytest.mark.parametrize("weights", [False, True])


def data(n: int, d: int, tasks: int = 3) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8) + 0.5
    W = np.zeros((d, tasks))
    W[:6] = rng.normal(size=(6, tasks))
    Y = X @ W + 3 + rng.normal(size=(n, tasks))
    return X, Y, rng.uniform(0.2, 2.0, n)


# -- non-negative ------------------------------------------------------------------


@forms
@weighted
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("name", "options", "atol"),
    [
        ("LinearRegression", {}, 1e-8),
        ("Ridge", {"alpha": 3.0}, 1e-5),  # scikit-learn's L-BFGS
        ("Lasso", {"alpha": 0.05}, 1e-5),
        ("ElasticNet", {"alpha": 0.05}, 1e-5),
        ("ElasticNet", {"alpha": 0.05, "l1_ratio": 0.0}, 1e-4),
    ],
)
@pytest.mark.filterwarnings("ignore:Coordinate descent without L1")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_positive_is_that_of_scikit_learn(
    name: str, options: Any, atol: float, intercept: bool, weights: bool, form: Any
) -> None:
    X, Y, s = data(120, 20)
    options = {**options, "positive": True, "fit_intercept": intercept}
    s_used = s if weights else None
    mine = getattr(ours, name)(**options, tol=1e-10).fit(form(X), Y[:, 0], s_used)
    tight = {} if name == "LinearRegression" else {"tol": 1e-12, "max_iter": 100_000}
    theirs = getattr(sk, name)(**options, **tight).fit(X, Y[:, 0], s_used)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=atol)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, atol=20 * atol)
    assert mine.coef_.min() >= 0 and mine.certificate_.met


@pytest.mark.parametrize("shape", SHAPES)
def test_non_negative_least_squares_is_scipys(shape: tuple[int, int]) -> None:
    X, Y, _ = data(*shape)
    X = X * np.geomspace(1e-3, 1e3, shape[1])  # columns of every size
    model = ours.LinearRegression(positive=True, fit_intercept=False).fit(X, Y)
    for k in range(Y.shape[1]):
        best = nnls(X, Y[:, k])[1]
        assert np.linalg.norm(Y[:, k] - X @ model.coef_[k]) <= best * (1 + 1e-9)
    assert model.certificate_.met


def test_a_constant_column_gets_nothing() -> None:
    X, Y, _ = data(120, 20)
    X[:, 4] = 1e6
    model = ours.LinearRegression(positive=True).fit(X, Y[:, 0])
    assert model.coef_[4] == 0.0 and model.certificate_.met


@pytest.mark.parametrize("name", ["LassoCV", "ElasticNetCV"])
def test_positive_paths_are_those_of_scikit_learn(name: str) -> None:
    X, Y, _ = data(120, 20)
    options: Any = {"positive": True, "alphas": 15, "cv": 3}
    mine = getattr(ours, name)(**options, tol=1e-10).fit(X, Y[:, 0])
    theirs = getattr(sk, name)(**options, tol=1e-10, max_iter=100_000).fit(X, Y[:, 0])
    assert mine.alpha_ == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(mine.mse_path_, theirs.mse_path_, rtol=1e-5)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-5)
    grid, coefs, _ = ours.enet_path(X, Y[:, 0], alphas=5, positive=True, tol=1e-10)
    other, reference, _ = sk.enet_path(X, Y[:, 0], alphas=5, positive=True, tol=1e-12)
    np.testing.assert_allclose(grid, other)
    np.testing.assert_allclose(coefs, reference, atol=1e-5)


def test_a_positive_classifier_is_that_of_scikit_learn() -> None:
    X, Y, _ = data(120, 20)
    codes = np.digitize(Y[:, 0], np.quantile(Y[:, 0], [0.3, 0.6]))
    mine = ours.RidgeClassifier(positive=True).fit(X, codes)
    theirs = sk.RidgeClassifier(positive=True, tol=1e-10).fit(X, codes)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-5)
    assert mine.certificate_.met


# -- weighted ----------------------------------------------------------------------


@forms
@weighted
@pytest.mark.parametrize("shape", SHAPES)
def test_a_weighted_lasso_is_a_lasso_of_scaled_columns(
    shape: tuple[int, int], weights: bool, form: Any
) -> None:
    X, Y, s = data(*shape)
    level = np.geomspace(0.1, 10, shape[1])
    s_used = s if weights else None
    mine = ours.WeightedLasso(0.1, weights=level, tol=1e-10).fit(
        form(X), Y[:, 0], s_used
    )
    reference = sk.Lasso(0.1, tol=1e-13, max_iter=100_000)
    reference.fit(X / level, Y[:, 0], s_used)
    np.testing.assert_allclose(mine.coef_, reference.coef_ / level, atol=1e-5)
    assert mine.certificate_.met


def test_wrong_weights_are_refused() -> None:
    X, Y, _ = data(120, 20)
    with pytest.raises(ValueError, match="3 entries for 20 columns"):
        ours.WeightedLasso(weights=[1.0, 2.0, 3.0]).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"weights\[0\]"):
        ours.WeightedLasso(weights=np.zeros(20)).fit(X, Y[:, 0])


# -- groups ------------------------------------------------------------------------


def group_violation(model: Any, X: Array, y: Array, s: Array | None) -> float:
    """How far the gradient is from the subdifferential, by the definition."""
    share = np.full(len(y), 1 / len(y)) if s is None else s / s.sum()
    r = y - X @ model.coef_ - model.intercept_
    g = -X.T @ (share * r)
    worst = abs(float(share @ r)) if model.fit_intercept else 0.0
    for k in range(model.groups_.max() + 1):
        part = model.groups_ == k
        w, size = model.coef_[part], float(np.linalg.norm(model.coef_[part]))
        if size > 0:
            worst = max(worst, float(np.linalg.norm(g[part] + model.alpha * w / size)))
        else:
            worst = max(worst, float(np.linalg.norm(g[part])) - model.alpha)
    return worst


@forms
@weighted
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", [0.3, 0.03])
def test_group_lasso_meets_its_conditions(
    alpha: float, shape: tuple[int, int], intercept: bool, weights: bool, form: Any
) -> None:
    X, Y, s = data(*shape)
    order = np.random.default_rng(1).permutation(shape[1])
    groups = [order[i : i + 4].tolist() for i in range(0, shape[1], 4)]
    model = ours.GroupLasso(groups, alpha=alpha, fit_intercept=intercept, tol=1e-12)
    s_used = s if weights else None
    model.fit(form(X), Y[:, 0], s_used)
    assert group_violation(model, X, Y[:, 0], s_used) <= 1e-5 * alpha
    used = [np.count_nonzero(model.coef_[group]) for group in groups]
    assert set(used) <= {0, *(len(group) for group in groups)}
    assert model.certificate_.met


def test_groups_of_one_column_are_a_lasso() -> None:
    X, Y, _ = data(40, 90)
    mine = ours.GroupLasso(1, alpha=0.1, tol=1e-12).fit(X, Y[:, 0])
    np.testing.assert_allclose(
        mine.coef_, ours.Lasso(0.1, tol=1e-12).fit(X, Y[:, 0]).coef_, atol=1e-6
    )


def test_groups_are_given_as_skglm_takes_them() -> None:
    X, Y, _ = data(120, 20)
    same = [5, [5, 5, 5, 5], [list(range(i, i + 5)) for i in range(0, 20, 5)]]
    fits = [ours.GroupLasso(groups, alpha=0.1).fit(X, Y[:, 0]) for groups in same]
    for fit in fits:
        np.testing.assert_array_equal(fit.groups_, np.arange(20) // 5)
        np.testing.assert_array_equal(fit.coef_, fits[0].coef_)
    for wrong in (7, [10, 9], [[0, 1], [1, 2]], [], 0):
        with pytest.raises(ValueError, match="group"):
            ours.GroupLasso(wrong).fit(X, Y[:, 0])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_sets_without_a_gram_matrix(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from certus._solvers import working_set

    X, Y, _ = data(40, 90)
    usual = ours.MultiTaskLasso(0.1, tol=1e-9).fit(X, Y)
    monkeypatch.setattr(working_set, "GRAM_SIDE", 0)
    bare = ours.MultiTaskLasso(0.1, tol=1e-9).fit(form(X), Y)
    np.testing.assert_allclose(bare.coef_, usual.coef_, atol=1e-5)
    assert bare.certificate_.met


def test_a_solver_of_blocks_needs_blocks() -> None:
    data = Design(np.eye(3), None, False), np.ones((3, 1))
    with pytest.raises(NotImplementedError, match="of L1; missing: blocks"):
        BlockProblem(*data, L1(0.1))
    problem = BlockProblem(*data, Group(10.0, (0, 0, 1)))
    found = blocks.solve(problem, Start(), SolverLimits(1e-6, 10))
    assert found.status is Status.SOLVED and not found.primal.any()


def test_a_warm_start_may_end_at_zero() -> None:
    X, Y, _ = data(40, 9)
    model = ours.MultiTaskLasso(0.1, warm_start=True).fit(X, Y)
    assert model.coef_.any()
    assert not model.set_params(alpha=1e3).fit(X, Y).coef_.any()


# -- several tasks -----------------------------------------------------------------


@forms
@weighted
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MultiTaskLasso", {"alpha": 0.1}),
        ("MultiTaskElasticNet", {"alpha": 0.1}),
        ("MultiTaskElasticNet", {"alpha": 0.1, "l1_ratio": 0.9}),
    ],
)
def test_tasks_are_those_of_scikit_learn(
    *,
    name: str,
    options: Any,
    shape: tuple[int, int],
    intercept: bool,
    weights: bool,
    form: Any,
) -> None:
    X, Y, s = data(*shape)
    s_used = s if weights else None
    options = {**options, "fit_intercept": intercept}
    mine = getattr(ours, name)(**options, tol=1e-12).fit(form(X), Y, s_used)
    theirs = getattr(sk, name)(**options, tol=1e-13, max_iter=100_000)
    theirs.fit(X, Y, s_used)
    assert mine.coef_.shape == theirs.coef_.shape
    assert np.shape(mine.intercept_) == np.shape(theirs.intercept_)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(mine.predict(X), theirs.predict(X), atol=1e-4)
    assert mine.certificate_.met


@pytest.mark.parametrize("name", ["MultiTaskLassoCV", "MultiTaskElasticNetCV"])
def test_chosen_strengths_are_those_of_scikit_learn(name: str) -> None:
    X, Y = load_linnerud(return_X_y=True)
    options: Any = {"alphas": 12, "cv": 4}
    if name == "MultiTaskElasticNetCV":
        options["l1_ratio"] = [0.2, 0.9]
    mine = getattr(ours, name)(**options, tol=1e-10).fit(X, Y)
    theirs = getattr(sk, name)(**options, tol=1e-11, max_iter=100_000).fit(X, Y)
    assert mine.alpha_ == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(mine.alphas_, theirs.alphas_)
    np.testing.assert_allclose(mine.mse_path_, theirs.mse_path_, rtol=1e-5)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    assert mine.certificate_.met


def test_one_task_of_a_flat_target_is_refused_as_in_scikit_learn() -> None:
    X, Y, _ = data(120, 20)
    with pytest.raises(ValueError, match="For mono-task outputs, use Lasso"):
        ours.MultiTaskLasso().fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="For mono-task outputs, use LassoCV"):
        ours.MultiTaskLassoCV().fit(X, Y[:, 0])


def test_a_warm_start_goes_on_from_there() -> None:
    X, Y, _ = data(40, 90)
    for model, y in (
        (ours.MultiTaskLasso(0.05, warm_start=True), Y),
        (ours.GroupLasso(3, alpha=0.05, warm_start=True), Y[:, 0]),
        (ours.WeightedLasso(0.05, warm_start=True), Y[:, 0]),
    ):
        assert model.fit(X, y).n_iter_ > model.fit(X, y).n_iter_


# -- certificates ------------------------------------------------------------------

JUDGED = [
    (ours.LinearRegression(positive=True), False),
    (ours.Ridge(0.5, positive=True), False),
    (ours.Lasso(0.1, positive=True), False),
    (ours.ElasticNet(0.1, positive=True), False),
    (ours.WeightedLasso(0.1, weights=np.linspace(0.5, 2.0, 20)), False),
    (ours.GroupLasso(4, alpha=0.1), False),
    (ours.MultiTaskLasso(0.1), True),
    (ours.MultiTaskElasticNet(0.1), True),
    (ours.MultiTaskLassoCV(alphas=5, cv=3), True),
]


@pytest.mark.parametrize(("model", "several"), JUDGED, ids=lambda v: type(v).__name__)
def test_planted_faults_are_found(model: Any, several: bool) -> None:
    X, Y, s = data(120, 20)
    y = Y if several else Y[:, 0]
    model = clone(model).fit(X, y, s)
    assert certus.certify(model, X, y, s).met
    honest, b = model.coef_.copy(), model.intercept_
    largest = np.unravel_index(np.abs(honest).argmax(), honest.shape)
    for change in (-2.0, 0.0, 0.9, 1.1):
        model.coef_ = honest.copy()
        model.coef_[largest] *= change
        assert certus.certify(model, X, y, s).met is not True
    model.coef_, model.intercept_ = honest, b + 1.0
    assert certus.certify(model, X, y, s).met is not True
    model.intercept_ = b
    assert certus.certify(model, X, y).met is not True  # other weights
    if "alpha" in model.get_params():
        model.set_params(alpha=3 * model.alpha)
        assert certus.certify(model, X, y, s).met is not True


@pytest.mark.parametrize("name", ["Lasso", "LinearRegression"])
def test_unconstrained_coefficients_are_not_passed_off_as_positive(name: str) -> None:
    X, Y, _ = data(120, 20)
    model = getattr(ours, name)().fit(X, -Y[:, 0])
    assert model.coef_.min() < 0
    assert certus.certify(model.set_params(positive=True), X, -Y[:, 0]).met is not True


def test_certify_judges_models_of_scikit_learn_in_the_same_way() -> None:
    X, Y, _ = data(120, 20)
    for model, y in (
        (sk.MultiTaskLasso(0.1, tol=1e-10, max_iter=10_000), Y),
        (sk.MultiTaskElasticNet(0.1, tol=1e-10, max_iter=10_000), Y),
        (sk.Lasso(0.1, positive=True, tol=1e-10, max_iter=10_000), Y[:, 0]),
        (sk.LinearRegression(positive=True), Y[:, 0]),
    ):
        assert certus.certify(model.fit(X, y), X, y).value <= 1e-6


def test_a_positive_fit_without_residual_is_certified() -> None:
    # The square of a residual of nothing but rounding vanishes.
    model = ours.LinearRegression(positive=True).fit([[1.0], [2.0]], [1.0, 2.0])
    assert model.certificate_.met
    np.testing.assert_allclose(model.coef_, [1.0])
