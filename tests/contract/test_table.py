"""The table estimators keep scikit-learn's contract."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from certus.table import TableEncoder, TablePipeline

CHECKED = [
    TableEncoder(),
    TablePipeline(model=Ridge()),
    TablePipeline(model=RidgeClassifier()),
    TablePipeline(model=LogisticRegression(solver="newton-cholesky", tol=1e-12)),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
