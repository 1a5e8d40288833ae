"""Predictions after each stage of boosting, beside those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.ensemble

import certus
from certus import ensemble

RNG = np.random.default_rng(0)
X = np.where(RNG.random((300, 3)) < 0.1, np.nan, RNG.normal(size=(300, 3)))
Y = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2
TARGETS = {
    "numbers": Y,
    "counts": np.floor(Y - Y.min()),
    "two": np.where(Y > 0.5, "yes", "no"),
    "three": np.array(["low", "mid", "top"])[np.digitize(Y, [0.0, 1.0])],
}


@pytest.mark.parametrize("what", TARGETS)
def test_stages_agree_with_those_of_scikit_learn(what, tmp_path):
    labels = what in ("two", "three")
    name = f"HistGradientBoosting{'Classifier' if labels else 'Regressor'}"
    more = {"loss": "poisson"} if what == "counts" else {}
    options = {"max_iter": 7, "random_state": 0, **more}
    theirs = getattr(sklearn.ensemble, name)(**options).fit(X, TARGETS[what])
    fitted = getattr(ensemble, name)(**options).fit(X, TARGETS[what])
    certus.save(fitted, tmp_path / "boosted.certus")
    asked = ["staged_predict"]
    asked += ["staged_predict_proba", "staged_decision_function"] if labels else []
    for model in (fitted, certus.load(tmp_path / "boosted.certus")):
        for method in asked:
            stages = [list(getattr(one, method)(X)) for one in (model, theirs)]
            assert len(stages[0]) == 7
            for mine, expected in zip(*stages, strict=True):
                if mine.dtype.kind == "f":
                    np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-12)
                else:
                    assert (mine == expected).all()
            last = getattr(model, method.removeprefix("staged_"))(X)
            if last.dtype.kind == "f":
                np.testing.assert_allclose(stages[0][-1], last, rtol=1e-12)
            else:
                assert (stages[0][-1] == last).all()
