"""Hostile data for the nearest neighbours: refused in a sentence, or right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone, is_classifier

import certus
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor
from certus.testing.checks import example

every = pytest.mark.parametrize(
    "estimator",
    [KNeighborsClassifier(), KNeighborsRegressor()],
    ids=lambda e: type(e).__name__,
)


def fit_right(estimator: Any, X: Any, y: Any) -> Any:
    """Fit; the certificate is met at both levels."""
    model = clone(estimator).fit(X, y)
    assert model.certificate_.met, model.certificate_
    assert certus.certify(model, X, y, level="full").met
    return model


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y", "query"])
def test_nan_and_infinity(estimator: Any, where: str, bad: float) -> None:
    X, y = example(estimator)
    model, Q = clone(estimator), X[:5].copy()
    if where == "X":
        X[3, 1] = bad
    elif where == "y":
        y = y.astype(float)
        y[3] = bad
    else:
        Q[2, 1] = bad
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"NaN|infinity|nan|inf"):
        model.predict(Q) if where == "query" else model.fit(X, y)


@every
@pytest.mark.parametrize(
    "X",
    [
        np.empty((0, 4)),
        np.empty((5, 0)),
        np.zeros(5),
        np.zeros((5, 2, 2)),
        np.array([["a", "b"]] * 5),
        np.zeros((5, 2), dtype=complex),
        None,
        "table",
    ],
    ids=[
        "no-rows",
        "no-columns",
        "one-axis",
        "three",
        "text",
        "complex",
        "none",
        "word",
    ],
)
def test_unusable_X(estimator: Any, X: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        clone(estimator).fit(X, np.array([0, 1, 0, 1, 1]))
    assert len(str(caught.value)) < 700


@every
def test_unusable_y(estimator: Any) -> None:
    X, y = example(estimator)
    words = np.array(["yes", "no"] * 30)
    for bad in (y[:-1], None, np.zeros((60, 2, 2)), y.astype(complex)):
        with pytest.raises((ValueError, TypeError)):
            clone(estimator).fit(X, bad)
    with pytest.raises(ValueError, match="toarray"):
        clone(estimator).fit(X, sparse.csr_matrix(y.reshape(-1, 1)))
    if is_classifier(estimator):
        with pytest.raises(ValueError, match=r"[Cc]ontinuous"):
            clone(estimator).fit(X, np.linspace(0, 1, 60))
        assert set(fit_right(estimator, X, words).predict(X)) == {"yes", "no"}
    else:
        with pytest.raises(ValueError, match="KNeighborsClassifier"):
            clone(estimator).fit(X, words)


BAD = {
    "n_neighbors": [0, -3, 1.5, "a", None],
    "weights": ["far", 3],
    "algorithm": ["tree", 3],
    "leaf_size": [0, 2.5],
    "p": [0, -1, "a", float("nan")],
    "metric": ["euclid", 3],
    "metric_params": [[1], {"q": 2}, {"w": [1.0]}, {"w": [-1.0, 1, 1, 1]}],
}


@every
@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_parameters_are_named(estimator: Any, name: str) -> None:
    X, y = example(estimator)
    for value in BAD[name]:
        model = clone(estimator).set_params(**{name: value})
        with pytest.raises((ValueError, TypeError), match=f"(?i){name}") as caught:
            model.fit(X, y)
        assert len(str(caught.value)) < 250


@every
def test_more_neighbours_than_rows(estimator: Any) -> None:
    X, y = example(estimator)
    model = clone(estimator).set_params(n_neighbors=61).fit(X, y)
    with pytest.raises(ValueError, match="n_neighbors = 61, n_samples_fit = 60"):
        model.predict(X)
    assert model.kneighbors(X, 60)[1].shape == (60, 60)
    with pytest.raises(ValueError, match="n_neighbors < n_samples_fit"):
        model.kneighbors(n_neighbors=60)
    for bad, error in ((0, ValueError), (-2, ValueError), (2.5, TypeError)):
        with pytest.raises(error):
            model.kneighbors(X, bad)


@every
def test_one_row_one_column_one_class(estimator: Any) -> None:
    model = clone(estimator).set_params(n_neighbors=1)
    one = fit_right(model, [[3.0]], [7])
    assert list(one.predict([[0.0], [9.0]])) == [7, 7]
    with pytest.raises(ValueError, match="n_neighbors < n_samples_fit"):
        one.predict(None)
    same = fit_right(model, np.arange(9.0)[:, None], np.full(9, 4))
    assert set(same.predict([[-1.0], [100.0]])) == {4}


@every
@pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
def test_all_rows_alike(estimator: Any, algorithm: str) -> None:
    _, y = example(estimator, n=400)
    model = clone(estimator).set_params(algorithm=algorithm)
    model = fit_right(model, np.ones((400, 4)), y)
    distances, rows = model.kneighbors(np.zeros((50, 4)))
    assert (rows == np.arange(5)).all() and (distances == 2.0).all()


@every
def test_duplicates_with_opposite_targets(estimator: Any) -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 4)), 2, axis=0)
    y = np.tile([0, 1], 30)
    model = fit_right(clone(estimator).set_params(n_neighbors=2), X, y)
    expected = 0 if is_classifier(estimator) else 0.5
    assert (model.predict(X) == expected).all()


@every
@pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
@pytest.mark.parametrize("size", [1e300, 1e150, 1e8, 1e-8, 1e-150, 1e-300])
def test_extreme_scales(estimator: Any, algorithm: str, size: float) -> None:
    X, y = example(estimator, n=300)
    model = clone(estimator).set_params(algorithm=algorithm)
    scaled, plain = fit_right(model, X * size, y), fit_right(model, X, y)
    (a, rows), (b, expected) = (
        scaled.kneighbors(X[:60] * size),
        plain.kneighbors(X[:60]),
    )
    assert np.array_equal(rows, expected)
    np.testing.assert_allclose(a, b * size, rtol=1e-9)


@every
@pytest.mark.parametrize("p", [1, 3, 30, np.inf])
@pytest.mark.parametrize("size", [1e250, 1e-250])
def test_extreme_scales_of_other_metrics(estimator: Any, p: float, size: float) -> None:
    X, y = example(estimator)
    model = clone(estimator).set_params(p=p)
    scaled, plain = fit_right(model, X * size, y), fit_right(model, X, y)
    (a, rows), (b, expected) = scaled.kneighbors(X * size), plain.kneighbors(X)
    assert np.array_equal(rows, expected)
    np.testing.assert_allclose(a, b * size, rtol=1e-9)


@every
@given(powers=st.lists(st.integers(-150, 150), min_size=4, max_size=4))
@settings(max_examples=15)
def test_columns_of_mixed_scales(estimator: Any, powers: list[int]) -> None:
    X, y = example(estimator)
    fit_right(estimator, X * 10.0 ** np.array(powers), y)


@every
def test_a_constant_column_does_not_hide_a_tiny_one(estimator: Any) -> None:
    X, y = example(estimator)
    wide = np.column_stack([np.ones(60), X * 1e-170])
    plain = fit_right(estimator, X, y)
    assert np.array_equal(
        fit_right(estimator, wide, y).kneighbors(wide)[1], plain.kneighbors(X)[1]
    )


@every
@pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_rows_of_every_size_at_once(estimator: Any, algorithm: str, form: Any) -> None:
    """Squares of most of these differences are zero in float64."""
    if form is not np.asarray and algorithm == "kd_tree":
        return
    X = np.ldexp(1.0, -np.arange(1000))[:, None]
    y = np.arange(1000) % 3
    model = clone(estimator).set_params(n_neighbors=3, algorithm=algorithm)
    distances, rows = fit_right(model, form(X), y).kneighbors(form(X))
    middle = np.arange(1, 998)  # half as far to smaller ones than to the next larger
    assert np.array_equal(rows[1:998, 0], middle)
    assert np.array_equal(rows[1:998, 1:], np.column_stack([middle + 1, middle + 2]))
    np.testing.assert_allclose(distances[1:998, 1], X[1:998, 0] / 2)


@every
@pytest.mark.parametrize("offset", [1e6, 1e12])
def test_a_large_offset_costs_no_neighbour(estimator: Any, offset: float) -> None:
    rng = np.random.default_rng(0)
    X = np.rint(100 * rng.normal(size=(400, 12)))
    y = rng.integers(0, 3, 400)
    model, plain = (fit_right(estimator, Z, y) for Z in (X + offset, X))
    assert np.array_equal(model.kneighbors(X + offset)[1], plain.kneighbors(X)[1])


@every
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_, np.float16])
def test_small_types_do_not_overflow(estimator: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    high = 2 if dtype is np.bool_ else 100
    X = rng.integers(0, high, (60, 3)).astype(dtype)
    _, y = example(estimator)
    model = fit_right(estimator, X, y)
    plain = fit_right(estimator, X.astype(float), y)
    assert np.array_equal(model.kneighbors(X)[1], plain.kneighbors(X.astype(float))[1])


@every
def test_huge_integers(estimator: Any) -> None:
    X = np.random.default_rng(0).integers(-(2**62), 2**62, (60, 3))
    fit_right(estimator, X, example(estimator)[1])


@every
@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_keep_their_names(estimator: Any, library: Any) -> None:
    X, y = example(estimator)
    names = ["age", "bmi", "dose", "weight"]
    frame = library.DataFrame(dict(zip(names, X.T)))
    model = fit_right(estimator, frame, y)
    assert list(model.feature_names_in_) == names
    assert len(model.predict(frame)) == 60
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])


@every
def test_read_only_and_strided_data(estimator: Any) -> None:
    X, y = example(estimator)
    plain = fit_right(estimator, X, y).kneighbors(X)[1]
    X.flags.writeable = y.flags.writeable = False
    for other in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        assert np.array_equal(
            fit_right(estimator, other, y).kneighbors(other)[1], plain
        )


def test_weights_that_ignore_every_neighbour() -> None:
    X, y = np.arange(6.0)[:, None], [0, 0, 1, 1, 0, 1]
    for cls, words in (
        (KNeighborsClassifier, "zero weights"),
        (KNeighborsRegressor, "sum to zero"),
    ):
        model = cls(2, weights=lambda d: np.zeros_like(d)).fit(X, y)
        with pytest.raises(ValueError, match=words):
            model.predict(X)


def test_many_classes_do_not_need_a_table_of_all_votes() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20_000, 2)), np.arange(20_000) // 3
    model = KNeighborsClassifier(1).fit(X, y)
    assert np.array_equal(model.predict(X[:5000]), y[:5000])


MEMORY = """
    import resource
    import numpy as np
    from certus.neighbors import KNeighborsRegressor
    rng = np.random.default_rng(0)
    def go(n, d, m):
        X = rng.standard_normal((n, d))
        model = KNeighborsRegressor(10, algorithm="brute").fit(X, X[:, 0])
        model.predict(X[:m] + 0.1)
        return X.nbytes
    go(2000, 20, 50)
    pages = int(open("/proc/self/statm").read().split()[1])
    before = pages * resource.getpagesize()
    size = go(1_000_000, 50, 400)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print((peak - before) / size)
"""


@pytest.mark.slow
def test_a_million_rows_take_three_times_their_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY)],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3.0  # X itself and the model's copy included


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_interrupts_are_obeyed(metric: str) -> None:
    """Ctrl-C ends a long search between two calls of a loop."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 60))
    model = KNeighborsRegressor(5, metric=metric, algorithm="brute").fit(X, X[:, 0])
    model.kneighbors(X[:300])  # compiled, and imported, before the clock starts

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    start = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.kneighbors(X)  # half a minute or more
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.perf_counter() - start < 3.0  # generous: machines are busy
    assert model.kneighbors(X[:1])[1][0, 0] == 0
