"""Hostile rows for the models of a covariance: a right answer, or a sentence."""

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.decomposition import (
    DeepLinearNetwork,
    FactorAnalysis,
    LinearAutoencoder,
    ProbabilisticPCA,
)

MODELS = [
    FactorAnalysis(2),
    ProbabilisticPCA(2),
    ProbabilisticPCA(2, solver="em", random_state=0),
    LinearAutoencoder(2, random_state=0),
    LinearAutoencoder(2, solver="lbfgs", random_state=0),
    DeepLinearNetwork((4,), random_state=0),
]
every = pytest.mark.parametrize("model", MODELS, ids=lambda m: repr(m)[:40])


def rows(n=80, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + rng.normal(size=(n, d))
    return X, X[:, :1] * [1.0, -0.5] + rng.normal(size=(n, 2))


def fit_honestly(model, X, Y):
    """Fit; what is missed is missed aloud, and the verifier agrees with itself."""
    model = clone(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y)
    strange = [w for w in caught if not issubclass(w.category, UncertifiedWarning)]
    assert not strange, [str(w.message) for w in strange]
    found = model.certificate_
    assert (found.status is Status.SOLVED and found.met is not False) or caught
    assert certus.certify(model, X, Y).met == found.met
    return model


def output(model, X):
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


# -- refused --------------------------------------------------------------------------


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_values_are_refused(model, bad):
    X, Y = rows()
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        clone(model).fit(X, Y)
    fitted = clone(model).fit(*rows())
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        output(fitted, X)


@every
@pytest.mark.parametrize(
    "shape", [(0, 4), (5, 0), (1, 6)], ids=["no rows", "no columns", "one row"]
)
def test_nothing_to_learn_from(model, shape):
    with pytest.raises(ValueError, match="minimum of"):
        clone(model).fit(np.ones(shape), np.ones((shape[0], 2)))


@every
def test_sparse_rows_are_refused(model):
    X, Y = rows()
    with pytest.raises(TypeError, match=r"(?i)sparse"):
        clone(model).fit(sparse.csr_matrix(X), Y)


@every
def test_other_columns(model):
    X, Y = rows()
    fitted = clone(model).fit(X, Y)
    with pytest.raises(ValueError, match="features"):
        output(fitted, X[:, :4])
    with pytest.raises(ValueError, match="columns"):
        certus.certify(fitted, X[:, :4], Y)


@every
@pytest.mark.parametrize("scale", [1e180, 1e-180])
def test_squares_beyond_the_range(model, scale):
    X, Y = rows()
    with pytest.raises(ValueError, match="StandardScaler"):
        clone(model).fit(scale * X, Y)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (FactorAnalysis(-1), "n_components"),
        (FactorAnalysis(1.5), "n_components"),
        (FactorAnalysis(tol=-1), "tol"),
        (FactorAnalysis(max_iter=0), "max_iter"),
        (FactorAnalysis(svd_method="fast"), "svd_method"),
        (FactorAnalysis(rotation="promax"), "rotation"),
        (FactorAnalysis(noise_variance_init=[1.0, 2.0]), "noise_variance_init"),
        (FactorAnalysis(noise_variance_init=np.zeros(6)), "noise_variance_init"),
        (ProbabilisticPCA(solver="svd"), "solver"),
        (ProbabilisticPCA(n_components=7), "n_components"),
        (LinearAutoencoder(7), "n_components"),
        (LinearAutoencoder(solver="adam"), "solver"),
        (DeepLinearNetwork(hidden_layer_sizes=4), "hidden_layer_sizes"),
        (DeepLinearNetwork(hidden_layer_sizes=(0,)), "hidden_layer_sizes"),
        (DeepLinearNetwork(hidden_layer_sizes="wide"), "hidden_layer_sizes"),
        (DeepLinearNetwork(learning_rate=0), "learning_rate"),
        (DeepLinearNetwork(init="zeros"), "init"),
        (DeepLinearNetwork(start=2.0), "start"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_bad_parameters_are_named(model, name):
    with pytest.raises((TypeError, ValueError), match=name) as caught:
        model.fit(*rows())
    assert len(str(caught.value)) < 200


# -- solved ---------------------------------------------------------------------------


@every
@pytest.mark.parametrize("scale", [1e100, 1e-100, 1e7])
def test_huge_and_tiny_units(model, scale):
    X, Y = rows()
    fitted = fit_honestly(model, scale * X, Y)
    assert np.isfinite(output(fitted, scale * X)).all()
    assert fitted.certificate_.met


@every
def test_far_from_the_origin(model):
    X, Y = rows()
    near, far = fit_honestly(model, X, Y), fit_honestly(model, X + 1e6, Y + 1e5)
    assert far.certificate_.met
    if hasattr(near, "get_covariance"):
        np.testing.assert_allclose(
            near.get_covariance(), far.get_covariance(), atol=1e-3
        )


@every
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e8 + 0.3])
def test_a_constant_column(model, value):
    X, Y = rows()
    wide = np.column_stack([X, np.full(len(X), value)])
    fitted = fit_honestly(model, wide, Y)
    assert fitted.certificate_.met
    assert np.isfinite(output(fitted, wide)).all()
    if isinstance(model, FactorAnalysis):
        plain = clone(model).fit(X)
        np.testing.assert_allclose(plain.noise_variance_, fitted.noise_variance_[:-1])
        notes = fitted.certificate_["noise_variances"].assumptions
        assert "column 6" in notes[0]


@every
def test_repeated_columns_are_handled(model):
    X, Y = rows()
    fitted = fit_honestly(model, np.column_stack([X, X]), Y)
    assert np.isfinite(output(fitted, np.column_stack([X, X]))).all()


def test_nearly_repeated_columns_are_reported_as_left_out():
    X, Y = rows()
    near = X[:, :1] + 3e-6 * np.random.default_rng(1).normal(size=(80, 1))
    found = fit_honestly(
        DeepLinearNetwork((4,), random_state=0), np.column_stack([X, near]), Y
    )
    notes = found.certificate_["loss_excess"].assumptions
    assert "1 directions" in notes[0]
    assert (
        not DeepLinearNetwork((4,), random_state=0)
        .fit(X, Y)
        .certificate_["loss_excess"]
        .assumptions
    )


@every
def test_nothing_varies(model):
    X = np.full((20, 4), 3.0)
    fitted = fit_honestly(model, X, np.ones((20, 2)))
    assert np.isfinite(output(fitted, X)).all()


@every
@pytest.mark.parametrize("shape", [(5, 6), (3, 400), (2, 6)])
def test_few_rows(model, shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    fitted = fit_honestly(model, X, rng.normal(size=(shape[0], 2)))
    assert np.isfinite(output(fitted, X)).all()


@every
def test_one_column(model):
    X, Y = rows(d=1)
    small = clone(model)
    if hasattr(model, "n_components"):
        small.set_params(n_components=1)
    assert fit_honestly(small, X, Y).certificate_.met


@pytest.mark.parametrize("k", [0, 6])
@pytest.mark.parametrize("model", MODELS[:5], ids=lambda m: repr(m)[:40])
def test_no_factors_and_all_factors(model, k):
    X, _ = rows()
    fitted = fit_honestly(clone(model).set_params(n_components=k), X, None)
    assert fitted.certificate_.met
    assert fitted.transform(X).shape == (80, k)


@every
def test_integers_frames_and_orders(model):
    X, Y = rows()
    X = np.round(5 * X)
    plain = clone(model).fit(X, Y)
    for other in (X.astype(int), np.asfortranarray(X), X.tolist()):
        again = clone(model).fit(other, Y)
        np.testing.assert_allclose(output(again, X), output(plain, X), atol=1e-6)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = clone(model).fit(frame, Y)
    assert list(named.feature_names_in_) == list("abcdef")
    assert certus.certify(named, frame, Y).met


@every
def test_single_precision(model):
    X, Y = rows()
    single = fit_honestly(model, X.astype(np.float32), Y.astype(np.float32))
    assert output(single, X.astype(np.float32)).dtype == np.float32
    double = clone(model).fit(X, Y)
    assert single.certificate_.met
    np.testing.assert_allclose(
        np.abs(output(single, X)), np.abs(output(double, X)), atol=2e-2
    )


@every
def test_one_thread_or_two(model):
    X, Y = rows(n=3000, d=40)
    found = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads):
            found.append(clone(model).fit(X, Y))
    assert found[0].n_iter_ == found[1].n_iter_
    one, two, again = (output(m, X) for m in found)
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-7)
    np.testing.assert_array_equal(two, again)


@every
def test_files(model, tmp_path):
    X, Y = rows()
    fitted = clone(model).fit(X, Y)
    back = certus.load(fitted.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(output(back, X), output(fitted, X))
    assert back.certificate_.origin == "file"
    assert certus.certify(back, X, Y).met
    assert certus.certify(back, X, Y, level="full").met


def test_memory_is_that_of_the_covariance():
    """A million cells times ten: the rows are never copied whole."""
    code = """
    import resource, numpy as np
    from certus.decomposition import FactorAnalysis
    X = np.random.default_rng(0).normal(size=(400_000, 25))
    FactorAnalysis(2, tol=1e3).fit(X[:1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    FactorAnalysis(2, tol=1e3).fit(X)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(run.stdout) < 40  # MB; X has 80
