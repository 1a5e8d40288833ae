"""Which models take blocks and files, and what the others say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus.linear_model import LogisticRegression, Ridge
from certus.neighbors import KNeighborsClassifier
from certus.scale import blocks
from certus.svm import SVC, SVR


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    z = X @ [1.0, -2.0, 0.0] + rng.normal(size=400)
    frame = pl.DataFrame(X, schema=list("abc")).with_columns(
        y=pl.Series(z), kind=pl.Series(np.where(z > 0, "in", "out"))
    )
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path / "rows.parquet"


def test_a_path_is_fitted_as_its_blocks(file: Path) -> None:
    columns = list("abc")
    by_path: Any = Ridge().fit(file, target="y", columns=columns)  # type: ignore[call-arg]
    by_blocks = Ridge().fit(blocks(file, "y", columns=columns))
    assert by_path.coef_.tobytes() == by_blocks.coef_.tobytes()
    assert list(by_path.feature_names_in_) == columns
    with pytest.raises(ValueError, match="was fixed when the blocks were made"):
        Ridge().fit(blocks(file, "y"), target="y")  # type: ignore[call-arg]


def test_answers_for_blocks_are_those_for_rows(file: Path) -> None:
    columns = list("abc")
    table = blocks(file, columns=columns)
    X = pl.read_parquet(file).select(columns).to_pandas()
    numbers = Ridge().fit(blocks(file, "y", columns=columns))
    assert np.allclose(numbers.predict(table), numbers.predict(X), rtol=1e-12)
    labels = LogisticRegression().fit(blocks(file, "kind", columns=columns))
    for name in ("predict_proba", "decision_function"):
        found, whole = (getattr(labels, name)(rows) for rows in (table, X))
        assert found.shape == whole.shape and np.allclose(found, whole, rtol=1e-12)
    assert np.array_equal(labels.predict(table), labels.predict(X))
    with pytest.raises(ValueError, match="fitted on a, b, c"):
        numbers.predict(blocks(file, columns=["a", "c", "b"]))


@pytest.mark.parametrize(
    ("model", "other"),
    [(SVC(), "Nystroem"), (SVR(), "Ridge on"), (KNeighborsClassifier(), "Logistic")],
)
def test_models_that_need_all_rows_name_one_that_does_not(
    file: Path, model: Any, other: str
) -> None:
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    for call in (lambda: model.fit(blocks(X, y)), lambda: model.fit(file, target="y")):
        with pytest.raises(TypeError, match=rf"all rows in memory.*{other}"):
            call()
    model.fit(X, y)
    with pytest.raises(TypeError, match="takes rows in memory, not blocks"):
        model.predict(blocks(X))


def test_targets_and_weights_belong_to_the_blocks(file: Path) -> None:
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20.0)
    for more in ({"y": y}, {"sample_weight": y}):
        with pytest.raises(ValueError, match="must be part of the blocks"):
            Ridge().fit(blocks(X, y), **more)
    weighed: Any = Ridge().fit(file, target="y", columns=["b"], sample_weight=None)  # type: ignore[call-arg]
    assert weighed.n_features_in_ == 1
