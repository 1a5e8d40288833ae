"""Sparse working sets without a Gram matrix: descent on the columns themselves."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from certus.convex import lasso
from certus.linear import ElasticNet


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
    monkeypatch.setattr(lasso.WorkingSet, "form_gram", lambda self: None)
    monkeypatch.setattr(lasso, "descend_sparse", watched)
    ours = ElasticNet(**options, tol=1e-10).fit(sparse.csc_array(X), y, s)
    assert calls, "the kernel under test was not used"
    assert max(calls) < 1e-10, "the residual is not that of the coefficients"
    assert ours.certificate_.met
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=1e-4)
