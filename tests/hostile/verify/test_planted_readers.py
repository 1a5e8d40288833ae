"""Faults planted in the readers of the solvers' side: the certificate must notice.

While both halves shared one reader, its fault moved the solution and the judgement
together, and a model far from the minimum was "solved, proved".
"""

from typing import Any

import numpy as np
import pytest

import certus
from certus._core import rows
from certus.base import UncertifiedWarning
from certus.kernels import KernelLogisticRegression
from certus.linear_model import LogisticRegression, RidgeClassifier
from certus.svm import SVC, LinearSVC

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4)) + 0.3
y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=300) > 1.0).astype(int)

MODELS = [
    LogisticRegression(class_weight="balanced"),
    LogisticRegression(class_weight={0: 0.5, 1: 2.0}),
    RidgeClassifier(class_weight="balanced"),
    LinearSVC(class_weight="balanced"),
    SVC(class_weight="balanced"),
    KernelLogisticRegression(class_weight="balanced"),
]


@pytest.fixture
def cubed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rows.class_weights

    def planted(*given: Any, **options: Any) -> np.ndarray:
        return honest(*given, **options) ** 3

    monkeypatch.setattr(rows, "class_weights", planted)
    monkeypatch.setattr("certus.svm.svc.class_weights", planted)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_class_weights_as_they_are(model: Any) -> None:
    assert model.fit(X, y).certificate_.met


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_cubed_class_weights_are_noticed(model: Any, cubed: None) -> None:
    with certus.config_context(on_uncertified="ignore"):
        found = model.fit(X, y).certificate_
    assert found.met is False, found
    assert found.value > 1e-3


def test_a_fault_is_reported_to_the_user(cubed: None) -> None:
    with pytest.warns(UncertifiedWarning, match="above the minimum"):
        LogisticRegression(class_weight="balanced").fit(X, y)
