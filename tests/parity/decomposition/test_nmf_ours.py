"""Our NMF beside scikit-learn's: start, quality, penalties, planted faults."""

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF as Theirs

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.decomposition import NMF, non_negative_factorization

Array = np.ndarray
RNG = np.random.default_rng(0)
X = RNG.random((60, 4)) @ RNG.random((4, 20)) + 0.1 * RNG.random((60, 20))


def theirs(data: Any, k: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Theirs(k, random_state=0, **options).fit(data)


def ours(data: Any, k: int, **options: Any) -> Any:
    options = {"max_iter": 2_000, "random_state": 0, **options}
    return NMF(k, **options).fit(data)


def objective(model: Any, data: Array) -> float:
    """As scikit-learn documents it."""
    W, H = model.transform(data), model.components_
    n, d = data.shape
    share = model.l1_ratio
    alphas = (d * model.alpha_W, n * model.alpha_W)
    if model.alpha_H != "same":
        alphas = (d * model.alpha_W, n * model.alpha_H)
    cost = sum(
        a * (share * F.sum() + (1 - share) / 2 * np.sum(F**2))
        for a, F in zip(alphas, (W, H))
    )
    return float(np.sum((data - W @ H) ** 2) / 2 + cost)


def test_parameters_attributes_and_methods_are_those_of_scikit_learn() -> None:
    own = inspect.signature(NMF).parameters
    for key, value in inspect.signature(Theirs).parameters.items():
        assert own[key].default == value.default
    mine, other = ours(X, 4), theirs(X, 4)
    public = {k for k in dir(other) if not k.startswith("_")}
    assert public <= {k for k in dir(mine) if not k.startswith("_")}
    assert mine.get_feature_names_out().tolist() == ["nmf0", "nmf1", "nmf2", "nmf3"]


@pytest.mark.parametrize("init", ["random", "nndsvd", "nndsvda", "nndsvdar"])
def test_one_round_from_the_same_start(init: str) -> None:
    """After a round the factors are near theirs: the start is the same."""
    with certus.config_context(on_uncertified="ignore"):
        mine = NMF(4, init=init, random_state=3, max_iter=1).fit(X)
    assert mine.certificate_.status is Status.MAX_ITER
    assert mine.n_iter_ == 1
    full = NMF(4, init=init, random_state=3, max_iter=5_000, tol=1e-6).fit(X)
    assert full.certificate_.met
    assert full.reconstruction_err_ <= 1.3 * theirs(X, 4, init=init).reconstruction_err_


@pytest.mark.parametrize("k", [8, 16])
def test_digits_are_solved_at_least_as_well(k: int) -> None:
    data = load_digits().data
    mine, other = ours(data, k), theirs(data, k)
    assert mine.certificate_.met
    assert mine.reconstruction_err_ <= other.reconstruction_err_ * 1.01


@pytest.mark.parametrize(
    "options",
    [
        {"alpha_W": 0.01},
        {"alpha_W": 0.01, "l1_ratio": 1.0},
        {"alpha_W": 0.01, "l1_ratio": 0.5},
        {"alpha_W": 0.01, "alpha_H": 0.02, "l1_ratio": 0.3},
    ],
)
def test_penalties_are_those_of_scikit_learn(options: dict[str, Any]) -> None:
    mine = ours(X, 4, tol=1e-8, max_iter=20_000, **options)
    other = theirs(X, 4, tol=1e-8, max_iter=20_000, **options)
    assert mine.certificate_.met
    assert certus.certify(other, X).claims[0].value < 1e-4
    # Not convex: another minimum may be found, not one that is much worse.
    assert objective(mine, X) <= objective(other, X) * 1.03


def test_transform_is_the_best_weights() -> None:
    model = ours(X, 4)
    best = np.array([nnls(model.components_.T, row)[0] for row in X])
    np.testing.assert_allclose(model.transform(X), best, atol=1e-7)
    np.testing.assert_allclose(
        model.inverse_transform(best), best @ model.components_, rtol=1e-12
    )
    assert model.reconstruction_err_ == pytest.approx(
        np.linalg.norm(X - best @ model.components_), rel=1e-6
    )
    np.testing.assert_array_equal(
        NMF(4, max_iter=2000, random_state=0).fit_transform(X), model.transform(X)
    )


def test_other_forms_of_rows_are_read() -> None:
    dense = ours(X, 4)
    thin = ours(sparse.csr_matrix(X), 4)
    np.testing.assert_allclose(thin.components_, dense.components_, rtol=1e-5)
    assert thin.certificate_.met
    single = ours(X.astype(np.float32), 4)
    assert single.components_.dtype == np.float32
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    assert single.certificate_.met
    with certus.config_context(on_uncertified="ignore"):
        zero = ours(np.zeros((5, 4)), 2, init="random")
    assert not zero.transform(np.zeros((5, 4))).any()


def test_a_start_given_by_the_user_is_used() -> None:
    W, H = RNG.random((60, 3)), RNG.random((3, 20))
    model = NMF(init="custom", max_iter=2_000).fit(X, W=W, H=H)
    assert model.n_components_ == 3 and model.certificate_.met
    with pytest.raises(ValueError, match="needs W and H"):
        NMF(3, init="custom").fit(X)
    with pytest.raises(ValueError, match="must have shapes"):
        NMF(3, init="custom").fit(X, W=W.T, H=H)


def test_hostile_input_is_refused() -> None:
    with pytest.raises(ValueError, match="Negative values"):
        NMF(2).fit(-X)
    with pytest.raises(NotImplementedError, match="beta_loss"):
        NMF(2, beta_loss="kullback-leibler", solver="mu").fit(X)
    with pytest.raises(ValueError, match="init='random'"):
        NMF(30, init="nndsvd").fit(X)
    with pytest.raises(ValueError, match="n_components"):
        NMF(0).fit(X)
    with pytest.warns(UncertifiedWarning, match="may gain"):
        NMF(4, max_iter=1, tol=1e-9).fit(X)


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
def test_scales_change_nothing(scale: float) -> None:
    with certus.config_context(on_uncertified="ignore"):
        model = ours(scale * X, 4, init="random")
    if 1e-50 < scale < 1e50:
        assert model.certificate_.met
    model.components_ = model.components_[:, ::-1]
    assert not certus.certify(model, scale * X).met


def test_planted_faults_are_not_certified() -> None:
    def fitted() -> Any:
        return ours(X, 4, tol=1e-6, max_iter=20_000)

    assert certus.certify(fitted(), X).met
    wrong = fitted()
    wrong.components_ = wrong.components_ + 0.1 * RNG.random(wrong.components_.shape)
    assert not certus.certify(wrong, X).met
    wrong = fitted()
    wrong.components_[2] = 0.0
    assert not certus.certify(wrong, X).met
    assert not certus.certify(fitted().set_params(alpha_H=0.1), X).met
    assert not certus.certify(fitted(), X[:, ::-1]).met
    assert not certus.certify(fitted(), np.rint(X).astype(np.int8)).met
    assert not certus.certify(fitted(), X**2).met


def test_the_function_gives_the_factors_of_the_class() -> None:
    X = np.random.default_rng(3).random((12, 5))
    options: dict[str, Any] = {"init": "random", "random_state": 1, "alpha_W": 0.01}
    W, H, n_iter = non_negative_factorization(X, n_components=3, **options)
    model = NMF(3, **options)
    np.testing.assert_array_equal(W, model.fit_transform(X))
    np.testing.assert_array_equal(H, model.components_)
    assert n_iter == model.n_iter_
    again, same, _ = non_negative_factorization(X, H=H, update_H=False, **options)
    np.testing.assert_array_equal(again, W)
    np.testing.assert_array_equal(same, H)
    with pytest.raises(ValueError, match="H must have the shape"):
        non_negative_factorization(X, H=H[:, :4], update_H=False)
    with pytest.raises(ValueError, match="needs H"):
        non_negative_factorization(X, update_H=False)


def test_starts_that_are_not_used_or_of_another_type_are_named() -> None:
    X = np.random.default_rng(3).random((6, 5))
    W, H = X[:, :2], X[:2]
    with pytest.warns(RuntimeWarning, match="W and H were not used"):
        NMF(2, random_state=0).fit(X, W=W, H=H)
    with pytest.warns(RuntimeWarning, match="W was not used"):
        non_negative_factorization(X, W=W, H=H, update_H=False)
    with pytest.raises(TypeError, match="H should have the same dtype as X, float64"):
        NMF(2, init="custom").fit(X, W=W, H=H.astype(np.float32))
    with pytest.raises(ValueError, match="must have a positive entry"):
        NMF(2, init="custom").fit(X, W=W, H=0 * H)
