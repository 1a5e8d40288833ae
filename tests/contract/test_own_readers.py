"""A fault in what the solvers read does not reach the certificate."""

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certus.cluster import KMeans
from certus.linear_model import Lasso, LogisticRegression, Ridge
from certus.svm import SVC

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=80)
LABELS = np.where(Y + RNG.normal(size=80) > 0, "yes", "no")
S = RNG.uniform(0.1, 5.0, 80)

MODELS = [
    (LogisticRegression(), LABELS),
    (Ridge(), Y),
    (Lasso(0.05), Y),
    (KMeans(3, random_state=0), None),
    (SVC(), LABELS),
]
every = pytest.mark.parametrize(
    ("model", "y"), MODELS, ids=[type(m).__name__ for m, _ in MODELS]
)


@every
@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_weights_that_a_solver_reads_wrongly(
    model: Any, y: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from certus._core import rows

    assert model.fit(X, y, sample_weight=S).certificate_.met
    plain = rows.row_weights
    for module in [m for name, m in sys.modules.items() if name.startswith("certus")]:
        if getattr(module, "row_weights", None) is plain:
            monkeypatch.setattr(
                module, "row_weights", lambda *args: np.square(plain(*args))
            )
    assert not model.fit(X, y, sample_weight=S).certificate_.met


@every
@pytest.mark.parametrize("form", [list, tuple, "series", np.float32])
def test_forms_of_targets_and_weights(model: Any, y: Any, form: Any) -> None:
    def given(values: Any) -> Any:
        if values is None or form is np.float32:
            return values if values is None or values is LABELS else np.float32(values)
        if form == "series":
            return pd.Series(values, index=RNG.permutation(80) * 7)
        return form(values.tolist())

    model.fit(X, given(y), sample_weight=given(S))
    assert model.certificate_.met
