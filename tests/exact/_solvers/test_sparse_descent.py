"""Working sets: descent on sparse columns, and on rows in single precision."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso as SkLasso

from certus._solvers import lasso, lines, working_set
from certus._solvers.design import Design
from certus.linear_model import ElasticNet, Lasso


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_descent_on_sparse_columns_equals_the_dense_solution(
    monkeypatch: pytest.MonkeyPatch, l1_ratio: float, intercept: bool, weighted: bool
) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(1.0, 1.0, (80, 30)) * (rng.random((80, 30)) < 0.3)
    y = X @ rng.normal(size=30) + 5 + rng.normal(size=80)
    s = rng.uniform(0.5, 2.0, 80) if weighted else None
    options = {"alpha": 0.05, "l1_ratio": l1_ratio, "fit_intercept": intercept}
    dense = ElasticNet(**options, tol=1e-12).fit(X, y, s)
    kernel, calls = lasso.descend_sparse, []

    def watched(*args: Any) -> Any:
        _, values, _, rows, starts, mean, _, w, r, shift, _ = args
        A = sparse.csc_array((values, rows, starts), (80, len(w))).toarray() - mean
        before = r + shift + A @ w
        result = kernel(*args)
        calls.append(np.abs(r + result[2] + A @ w - before).max())
        return result

    monkeypatch.setattr(lasso, "SMALL", 0)
    monkeypatch.setattr(working_set.WorkingSet, "form_gram", lambda self: None)
    monkeypatch.setattr(lasso, "descend_sparse", watched)
    ours = ElasticNet(**options, tol=1e-10).fit(sparse.csc_array(X), y, s)
    assert calls, "the kernel under test was not used"
    assert max(calls) < 1e-10, "the residual is not that of the coefficients"
    assert ours.certificate_.met
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=1e-4)


@pytest.mark.parametrize("sparse_columns", [False, True])
def test_rows_in_single_precision_follow_the_working_set(
    sparse_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_set, "HALF_SIDE", 2)
    X = np.random.default_rng(0).normal(size=(50, 12))
    design = Design(sparse.csc_matrix(X) if sparse_columns else X, None, True)
    held = working_set.WorkingSet(design)
    A = X - X.mean(axis=0)

    def agree() -> None:
        if held.G is None:
            held.form_gram()
        k, true = len(held.members), A.T @ A / len(A)
        assert held.rows.dtype == np.float32
        expected = true[np.ix_(held.members, held.members)]
        np.testing.assert_allclose(held.rows[:k, :k], expected, atol=1e-6)

    held.append(np.array([7, 2, 5]))
    agree()
    held.append(np.array([0, 11]))  # the border must reach both ways
    agree()
    held.keep(np.array([True, False, True, False, True]))
    agree()
    held.append(np.array([4, 9]))
    agree()


@pytest.mark.parametrize("tol", [1e-6, 1e-12])
def test_descent_in_single_precision_reaches_any_gap(
    tol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_set, "HALF_SIDE", 2)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 200))
    y = X[:, :5].sum(axis=1) + rng.normal(size=60)
    model = Lasso(alpha=0.02, tol=tol).fit(X, y)
    assert model.certificate_.met
    reference = SkLasso(alpha=0.02, tol=1e-13, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=10 * tol**0.5)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_products_by_runs_of_lines_are_those_of_the_whole(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "RUN", 16)
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(90, 60)) * (rng.random((90, 60)) < 0.1)
    dense[:, 7] = dense[13] = 1.0  # lines with more entries than a run
    X = sparse.csr_array(dense).asformat(form)
    x = rng.normal(size=60 if form == "csr" else 90)
    runs = lines.runs_of(X.indptr)
    assert len(runs) > 3
    assert [i for run in runs for i in range(run.start, run.stop)] == list(
        range(len(X.indptr) - 1)
    )
    plain = dense if form == "csr" else dense.T
    np.testing.assert_allclose(lines.line_products(X, x), plain @ x, atol=1e-12)
