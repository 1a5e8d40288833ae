"""Data forms, pipelines, searches and refusals of models fitted by scikit-learn."""

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    MultiTaskLasso,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus import certify
from certus import linear_model as ours
from certus.certificate import Certificate, Strength
from certus.unwrapping import unwrap

Array = np.ndarray

RNG = np.random.default_rng(0)
N, D = 120, 5
X = RNG.normal(size=(N, D)) + 0.3
Y = X @ RNG.normal(size=D) + 1 + RNG.normal(size=N)
Y2 = np.column_stack([Y, Y**2])
TWO = np.where(X[:, 0] + RNG.normal(size=N) > 0.6, "b", "a")

TIGHT: dict[str, Any] = {"tol": 1e-10, "max_iter": 20_000}


def fit(model: Any, data: Any, y: Array, s: Array | None = None) -> Any:
    """Fit a copy, without the library's own opinion on convergence."""
    model = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return model.fit(data, y) if s is None else model.fit(data, y, sample_weight=s)


def judged(
    model: Any, y: Array, s: Array | None = None, data: Any = X, **options: Any
) -> Certificate:
    return certify(fit(model, data, y, s), data, y, s, **options)


# -- data forms, pipelines, searches ----------------------------------------------


@pytest.mark.parametrize(
    "model, y",
    [
        (LinearRegression(tol=1e-12), Y),
        (Ridge(tol=1e-10), Y),
        (Lasso(alpha=0.1, tol=1e-10), Y),
        (LogisticRegression(tol=1e-10, max_iter=1000), TWO),
        (LogisticRegression(solver="liblinear", tol=1e-10), TWO),
        (LogisticRegression(solver="saga", **TIGHT), TWO),
    ],
    ids=str,
)
def test_sparse_data(model: Any, y: Array) -> None:
    thin = sparse.csr_matrix(np.where(np.abs(X) < 0.5, 0, X))
    assert judged(model, y, data=thin).met


@pytest.mark.parametrize("model", [Ridge(), Lasso(alpha=0.1, tol=1e-6)], ids=str)
def test_single_precision(model: Any) -> None:
    found = judged(model, Y.astype(np.float32), data=X.astype(np.float32))
    assert found.met and found["duality_gap"].allowance > 0


def test_pipelines_and_searches() -> None:
    steps = make_pipeline(StandardScaler(), LogisticRegression(**TIGHT))
    found = judged(steps, TWO)
    assert found.met and found.model == "sklearn LogisticRegression"
    nested = make_pipeline(StandardScaler(), steps)
    assert judged(nested, TWO).met
    assert judged(make_pipeline(Ridge()), Y).met
    grid = GridSearchCV(steps, {"logisticregression__C": [0.1, 1.0]}, cv=3)
    assert judged(grid, TWO).met
    chance = RandomizedSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, n_iter=2, cv=3)
    assert judged(make_pipeline(StandardScaler(), chance), Y).met
    loose = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1))
    assert judged(loose, TWO).met is False


def test_subclasses_count_as_their_parent() -> None:
    class Mine(Ridge):
        pass

    assert judged(Mine(), Y).met


def test_other_data_are_named_in_the_certificate() -> None:
    model = Lasso(alpha=0.1, **TIGHT).fit(X, Y)
    found = certify(model, X[:60], Y[:60])
    claim = found["duality_gap"]
    assert claim.met is False and claim.label == "not solved"
    assert claim.assumptions == ("for the data and weights you passed",)
    assert "wrong" not in str(found)
    assert "certus.linear_model.Lasso" in claim.fix


def test_the_suggested_fix_names_the_limit_that_was_reached() -> None:
    ran_out = judged(LogisticRegression(max_iter=2), TWO)["duality_gap"].fix
    assert ran_out == "max_iter=20, or certus.linear_model.LogisticRegression"
    loose = judged(LogisticRegression(tol=0.1), TWO)["duality_gap"].fix
    assert loose == "tol=1e-04, or certus.linear_model.LogisticRegression"


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_column_names_are_compared(frame: Any) -> None:
    table = frame({f"x{j}": X[:, j] for j in range(D)})
    model = Ridge().fit(pd.DataFrame({f"x{j}": X[:, j] for j in range(D)}), Y)
    assert certify(model, table, Y).met
    assert certify(model, X, Y).met
    order = [f"x{j}" for j in (1, 0, 2, 3, 4)]
    with pytest.raises(ValueError, match="another order"):
        certify(model, table[order], Y)
    with pytest.raises(ValueError, match="lacks x4"):
        certify(model, table[order[:-1]], Y)
    with pytest.raises(ValueError, match="fitted on 5"):
        certify(model, X[:, :3], Y)


# -- refusals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, y, reason",
    [
        (GaussianNB(), TWO, "GaussianNB"),
        (SGDClassifier(early_stopping=True), TWO, "early_stopping"),
        (SGDRegressor(early_stopping=True), Y, "early_stopping"),
        (MLPClassifier((3,), early_stopping=True), TWO, "early_stopping"),
        (SGDClassifier(learning_rate="pa1", eta0=1.0), TWO, "passive-aggressive"),
        (
            RidgeClassifier(class_weight="balanced"),
            (Y2 > 1).astype(int),
            "several labels",
        ),
        (
            LogisticRegressionCV(
                Cs=2, cv=3, refit=False, l1_ratios=(0,), scoring="neg_log_loss"
            ),
            TWO,
            "averages over folds",
        ),
    ],
    ids=lambda value: str(value) if hasattr(value, "fit") else "",
)
def test_problems_that_cannot_be_stated_are_refused(
    model: Any, y: Array, reason: str
) -> None:
    found = judged(model, y)
    claim = found[found.primary]
    assert claim.strength is Strength.REFUSED and found.met is None
    assert reason in claim.detail and claim.fix
    assert "120 rows" in found.headline


@pytest.mark.parametrize(
    "model, y",
    [
        (MultiTaskLasso(alpha=0.1, tol=1e-12), Y2),
        (LinearRegression(positive=True), Y),
        (Lasso(alpha=0.1, tol=1e-12, positive=True), Y),
        (Ridge(tol=1e-12, max_iter=10_000, positive=True), Y),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_cones_and_tasks_are_judged(model: Any, y: Array) -> None:
    found = certify(model.fit(X, y), X, y)
    assert found.met and found[found.primary].strength is Strength.PROVED
    model.coef_ = 1.01 * model.coef_
    assert certify(model, X, y).met is False


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (QuantileRegressor(), {"alpha": np.inf}),
        (QuantileRegressor(), {"alpha": np.nan}),
        (QuantileRegressor(), {"quantile": np.nan}),
        (Lasso(), {"alpha": np.inf}),
        (Ridge(), {"alpha": np.inf}),
        (SGDRegressor(), {"penalty": "l3"}),
        (SGDRegressor(), {"loss": np.inf}),
        (ours.RobustRegressor(), {"loss": "l3"}),
        (ours.GeneralizedLinearModel(), {"family": "stable"}),
        (ours.WeightedLasso(), {"weights": [1.0, 1, 1, 1, np.inf]}),
        (ours.GroupLasso(groups=1), {"alpha": np.inf}),
    ],
    ids=str,
)
@pytest.mark.parametrize("level", ["quick", "full"])
def test_parameters_without_a_meaning_are_refused(
    model: Any, changes: dict[str, Any], level: str
) -> None:
    """Set after a fit, none of them ends in an error of a library underneath."""
    found = fit(model, X, Y).set_params(**changes)
    try:
        claim = certify(found, X, Y, level=level).claims[0]
    except ValueError as error:
        assert "finite" in str(error) or "out of range" in str(error)
    else:
        assert claim.strength is Strength.REFUSED and claim.fix


def test_a_refusal_lists_what_is_supported() -> None:
    found = judged(GaussianNB(), TWO)
    assert "LogisticRegression" in found["refused"].fix


@pytest.mark.parametrize(
    "model",
    [Ridge(), RandomForestClassifier(), make_pipeline(StandardScaler(), Ridge())],
)
def test_unfitted_models(model: Any) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        certify(model, X, Y)


def test_searches_without_a_model() -> None:
    search = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=3, refit=False)
    with pytest.raises(ValueError, match="refit=False"):
        certify(search.fit(X, Y), X, Y)
    with pytest.raises(ValueError, match="not fitted"):
        certify(GridSearchCV(Ridge(), {"alpha": [1.0]}), X, Y)


def test_a_pipeline_without_a_model() -> None:
    steps = make_pipeline(StandardScaler(), "passthrough").fit(X)
    with pytest.raises(ValueError, match="passthrough"):
        certify(steps, X, Y)


def test_our_table_pipeline_is_opened() -> None:
    Table = type("TablePipeline", (), {"__module__": "certus.tables.pipeline"})
    pipeline = Table()
    pipeline.encoder_ = StandardScaler().fit(X)
    pipeline.estimator_ = Ridge().fit(pipeline.encoder_.transform(X), Y)
    model, data = unwrap(pipeline, X)
    assert model is pipeline.estimator_ and data.mean() == pytest.approx(0, abs=1e-12)


def test_the_verifier_does_not_import_scikit_learn() -> None:
    code = "import sys, certus.verify.judging as j; names = list(j.READERS); "
    code += "sys.exit('sklearn' in sys.modules or 'SVC' not in names)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
