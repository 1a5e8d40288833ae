"""Fits that are thrown away are not certified: ``config_context(certify="never")``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import certus
from certus import base
from certus.cli import main
from certus.cluster import KMeans
from certus.linear_model import Lasso, LassoCV, LogisticRegressionCV, Ridge, RidgeCV
from certus.mixture import GaussianMixture
from certus.selection import bias_variance

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4))
y = X @ [1.0, -2.0, 0.0, 0.0] + 0.3 * rng.normal(size=120)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The class of every model that a fit hands to the verifier."""
    seen: list[str] = []
    judge = base.judge

    def counting(model: Any, *args: Any, **options: Any) -> Any:
        seen.append(type(model).__name__)
        return judge(model, *args, **options)

    monkeypatch.setattr(base, "judge", counting)
    yield seen


def test_never_leaves_no_certificate_and_does_not_warn(judged: list[str]) -> None:
    model = Lasso(alpha=1e-3).fit(X, y)
    exact = model.coef_
    with certus.config_context(certify="never"):
        model.fit(X, y)
        np.testing.assert_array_equal(model.coef_, exact)
        assert not hasattr(model, "certificate_")  # nor that of the fit before
        Lasso(alpha=1e-3, max_iter=1, tol=1e-14).fit(X, y)  # a warning is an error here
    assert judged == ["Lasso"]
    assert certus.certify(model, X, y).met
    assert model.fit(X, y).certificate_.met


def test_such_a_model_can_be_saved_and_judged_later(tmp_path: Path) -> None:
    with certus.config_context(certify="never"):
        model = KMeans(3, random_state=0).fit(X)
    again = certus.load(model.save(tmp_path / "model.certus"))
    assert not hasattr(again, "certificate_")
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    assert certus.certify(model, X).met and certus.certify(again, X).met


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="got 'sometimes'"):
        certus.set_config(certify="sometimes")
    assert certus.get_config()["certify"] == "always"


def test_searches_certify_their_result_alone(judged: list[str]) -> None:
    LassoCV(cv=3).fit(X, y)
    RidgeCV(cv=3).fit(X, y)
    LogisticRegressionCV(cv=3).fit(X, y > 0)
    assert judged == ["LassoCV", "RidgeCV", "LogisticRegressionCV"]


def test_starts_and_repetitions_are_not_certified(judged: list[str]) -> None:
    GaussianMixture(2, random_state=0).fit(X)
    bias_variance(Lasso(0.1), lambda r: (X, y), X, y, 0.09, n_repeats=5)
    assert judged == ["GaussianMixture"]


def test_the_command_certifies_what_it_shows(judged: list[str], tmp_path: Path) -> None:
    """The two models that are written, before and after the refit, and no other."""
    table = tmp_path / "rows.csv"
    rows = np.column_stack([X, y])
    np.savetxt(table, rows, delimiter=",", header="a,b,c,d,y", comments="")
    out, page = str(tmp_path / "m.certus"), str(tmp_path / "m.html")
    command = ["fit", str(table), "--target", "y", "--model", "lasso"]
    assert main([*command, "--out", out, "--report", page]) == 0
    assert judged == ["Lasso", "Lasso"]
    model = certus.load(out)
    assert model.certificate_.met and "solved" in Path(page).read_text("utf-8")


def test_a_comparison_certifies_each_model_once(judged: list[str]) -> None:
    """A fold of each, for the column "solved", and then the one that is chosen."""
    found = certus.compare(X, y, models=[Lasso(0.1), Ridge()])
    chosen = next(row for row in found.rows if row.name == found.chosen)
    assert sorted(judged) == sorted(["Lasso", "Ridge", type(chosen.model).__name__])
    assert (chosen.solved, chosen.gap) == (True, found.certificate.value)
    assert all(row.solved for row in found.rows if row.kind == "certus")
