"""The numbers and sentences of an audit, against independent computations."""

import dataclasses
import json
import re
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.calibration import calibration_curve
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix, r2_score, root_mean_squared_error
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_score,
    validation_curve,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import certus
from certus.calibration import PlattClassifier
from certus.linear_model import Lasso, LassoCV, Perceptron, Ridge
from certus.linear_model import LogisticRegression as OurLogistic
from certus.report import Audit
from certus.report.curves import _learning_answer, on_rows
from certus.report.figures import draw
from certus.report.predictions import calibration, confusion, importance
from certus.report.rows import PredictionTask, TableRows
from certus.report.svg import Scale, nice_ticks, tick_labels
from certus.selection import METRICS
from certus.tables import TablePipeline
from certus.text import FastTextClassifier

HOSTILE = "<script>alert('x')</script> & \"|*_`\x1b[31m"
AMOUNTS = PredictionTask(False, "amount", METRICS["rmse"])


@pytest.fixture(scope="module")
def diabetes() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def report(diabetes: tuple[np.ndarray, np.ndarray]) -> Audit:
    X, y = diabetes
    model = Ridge(alpha=0.1).fit(X[:300], y[:300])
    cv = KFold(5, shuffle=True, random_state=1)
    return certus.audit(
        model,
        X[:300],
        y[:300],
        X_test=X[300:],
        y_test=y[300:],
        cv=cv,
        target="level",
        random_state=0,
    )


# ---- figures against scikit-learn ------------------------------------------------


def test_confusion_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["a", "b", "c"], 200, p=[0.6, 0.3, 0.1]).astype(object)
    guess = np.where(rng.random(200) < 0.7, truth, rng.choice(["a", "b", "c"], 200))
    figure = confusion(TableRows(None, truth), guess, "rows")
    assert figure.data["labels"] == ["a", "b", "c"]
    assert figure.data["counts"] == confusion_matrix(truth, guess).tolist()
    wrong = int((truth != guess).sum())
    assert figure.answer.startswith(f"{wrong} of 200 rows are wrong")


def test_confusion_puts_the_rarest_labels_together() -> None:
    rng = np.random.default_rng(1)
    truth = rng.choice(14, 900, p=np.arange(14, 0, -1) / 105)
    guess = np.where(rng.random(900) < 0.8, truth, rng.choice(14, 900))
    figure = confusion(TableRows(None, truth), guess, "rows")
    counts = np.array(figure.data["counts"])
    full = confusion_matrix(truth, guess)
    kept = [int(label) for label in figure.data["labels"][:-1]]
    rest = [label for label in range(14) if label not in kept]
    assert len(kept) == 10 and figure.data["labels"][-1] == "4 others"
    assert counts[:-1, :-1].tolist() == full[np.ix_(kept, kept)].tolist()
    assert counts[-1, -1] == full[np.ix_(rest, rest)].sum()
    assert counts.sum() == 900


@pytest.mark.parametrize("ties", [False, True])
def test_calibration_equals_scikit_learn(ties: bool) -> None:
    rng = np.random.default_rng(2)
    share = rng.beta(0.5, 0.8, 400)
    share = np.round(share, 1) if ties else share
    truth = (rng.random(400) < share**1.5).astype(int)
    shares = np.column_stack([1 - share, share])
    figure = calibration(TableRows(None, truth), shares, np.array([0, 1]), "rows")
    theirs = calibration_curve(truth, share, n_bins=10, strategy="quantile")
    np.testing.assert_allclose(figure.data["observed"], theirs[0])
    np.testing.assert_allclose(figure.data["predicted"], theirs[1])
    assert sum(figure.data["counts"]) == 400
    data = figure.data
    for n, rate, low, high in zip(
        data["counts"], data["observed"], data["low"], data["high"]
    ):
        exact = stats.binomtest(round(n * rate), n).proportion_ci(0.95, "exact")
        np.testing.assert_allclose([low, high], [exact.low, exact.high], atol=1e-9)


def test_calibration_of_several_labels_is_that_of_the_label_predicted() -> None:
    rng = np.random.default_rng(3)
    shares = rng.dirichlet([1, 2, 3], 300)
    classes = np.array(["p", "q", "r"], dtype=object)
    truth = np.array([rng.choice(classes, p=row) for row in shares], dtype=object)
    figure = calibration(TableRows(None, truth), shares, classes, "rows")
    hit = truth == classes[shares.argmax(axis=1)]
    observed, predicted = calibration_curve(
        hit, shares.max(axis=1), n_bins=10, strategy="quantile"
    )
    np.testing.assert_allclose(figure.data["observed"], observed)
    np.testing.assert_allclose(figure.data["predicted"], predicted)
    assert "Yes, as far as these rows can tell" in figure.answer


def test_probabilities_off_by_much_are_reported() -> None:
    share = np.repeat([0.1, 0.9], 200)
    truth = np.tile([0, 1], 200)
    shares = np.column_stack([1 - share, share])
    figure = calibration(TableRows(None, truth), shares, np.array([0, 1]), "rows")
    assert figure.answer.startswith("Not exactly")
    assert "40 percentage points" in figure.answer


def test_importance_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((400, 4))
    y = X @ [3.0, 1.0, 0.3, 0.0] + 0.5 * rng.standard_normal(400)
    model = LinearRegression().fit(X, y)
    model.coef_[3] = 0.0
    figure, _ = importance(model, TableRows(X, y, "rows"), AMOUNTS, 60.0, rng)
    assert figure is not None
    theirs = permutation_importance(
        model, X, y, scoring="neg_root_mean_squared_error", n_repeats=50, random_state=0
    )
    assert figure.data["names"] == ["x0", "x1", "x2", "x3"]
    spread = 4 * theirs.importances_std / np.sqrt(5) + 1e-12
    assert (np.abs(figure.data["mean"] - theirs.importances_mean) < spread).all()
    assert figure.data["mean"][3] == 0.0
    assert figure.answer.startswith("“x0” most")


@pytest.mark.parametrize("kind", ["numpy", "pandas", "polars"])
def test_importance_shuffles_one_column_of_any_table(kind: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 2))
    y = X[:, 1].copy()
    make = {
        "numpy": lambda: X,
        "pandas": lambda: pd.DataFrame(X, columns=["a", "b"]),
        "polars": lambda: pl.DataFrame(X, schema=["a", "b"]),
    }[kind]

    class Second(BaseEstimator, RegressorMixin):
        def predict(self, table):
            return np.asarray(table)[:, 1]

    table = make()
    figure, _ = importance(Second(), TableRows(table, y, "rows"), AMOUNTS, 60.0, rng)
    assert figure is not None
    names, means = figure.data["names"], figure.data["mean"]
    assert names[0] in ("b", "x1") and means[0] > 1 and means[1] == 0.0
    np.testing.assert_array_equal(np.asarray(table), X)  # the user's is untouched


# ---- curves against scikit-learn -------------------------------------------------


def test_learning_curve_ends_in_the_cross_validated_error(report, diabetes) -> None:
    X, y = diabetes
    cv = KFold(5, shuffle=True, random_state=1)
    scores = -cross_val_score(
        Ridge(alpha=0.1), X[:300], y[:300], cv=cv, scoring="neg_root_mean_squared_error"
    )
    data = report.figure("learning").data
    assert data["sizes"][-1] == 240
    assert [b // a for a, b in zip(data["sizes"], data["sizes"][1:])] == [2] * 4
    np.testing.assert_allclose(data["held_out"]["mean"][-1], scores.mean())
    np.testing.assert_allclose(data["held_out"]["sd"][-1], scores.std(ddof=1))
    constant = [
        np.sqrt(np.mean((y[b] - y[a].mean()) ** 2)) for a, b in cv.split(y[:300])
    ]
    np.testing.assert_allclose(data["constant"], np.mean(constant))
    claim = next(c for c in report.measured if c.name == "held_out")
    np.testing.assert_allclose(claim.value, scores.mean())
    assert claim.met is None


def test_validation_curve_equals_scikit_learn(report, diabetes) -> None:
    X, y = diabetes
    data = report.figure("validation").data
    assert data["used"] == 0.1 and len(data["values"]) == 7
    training, held_out = validation_curve(
        Ridge(),
        X[:300],
        y[:300],
        param_name="alpha",
        param_range=data["values"],
        cv=KFold(5, shuffle=True, random_state=1),
        scoring="neg_root_mean_squared_error",
    )
    np.testing.assert_allclose(data["held_out"]["mean"], -held_out.mean(axis=1))
    np.testing.assert_allclose(data["training"]["mean"], -training.mean(axis=1))
    best = data["values"][int(np.argmax(held_out.mean(axis=1)))]
    assert data["best"] == best


def test_a_wrong_penalty_is_refuted(diabetes) -> None:
    X, y = diabetes
    model = Ridge(alpha=1000.0).fit(X, y)
    figure = certus.audit(model, X, y, random_state=0).figure("validation")
    assert figure.answer.startswith("No: alpha = ")
    chosen = LassoCV(cv=3, alphas=20).fit(X, y)
    right = certus.audit(chosen, X, y, random_state=0).figure("validation")
    assert right.answer.startswith("Yes")
    assert right.data["used"] == pytest.approx(chosen.alpha_)


def test_more_rows_help_only_where_they_do() -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((1200, 60))
    y = X.sum(axis=1) + rng.standard_normal(1200)
    few = certus.audit(
        Ridge(0.01).fit(X[:150], y[:150]), X[:150], y[:150], random_state=0
    )
    assert few.figure("learning").answer.startswith("Probably")
    one = X[:, :1]
    many = certus.audit(Ridge(0.01).fit(one, y), one, y, random_state=0)
    answer = many.figure("learning").answer
    assert answer.startswith("Not much") and "a richer model" in answer


def test_a_model_that_names_rows_of_its_own_is_refitted_on_fewer() -> None:
    """Such as boosting that was calibrated on one fold of the training rows."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:300] / X.max(axis=0), y[:300]
    rows = np.random.default_rng(0).permutation(300)
    model = PlattClassifier(OurLogistic(), cv=[(rows[:200], rows[200:])])
    report = certus.audit(model.fit(X, y), X, y, random_state=0)
    assert report.figure("learning").data["sizes"][-1] == 240
    index = np.sort(rows[50:290])
    (train, test), *none = on_rows(clone(model), index, 300).cv
    assert not none
    np.testing.assert_array_equal(index[train], rows[50:200])
    np.testing.assert_array_equal(index[test], rows[200:290])
    # Places that are not among these rows say nothing about them.
    assert on_rows(clone(model), np.arange(40), 50).cv == 2


def test_a_curve_that_ends_early_does_not_answer() -> None:
    falling = np.array([[4.0, 4.1], [2.0, 2.1]])
    told = [100, 200], 3_200, falling, falling / 9, AMOUNTS
    answer = _learning_answer(*told)
    assert answer.startswith("There was no time to tell") and "3,200 rows" in answer
    assert _learning_answer(told[0], 200, *told[2:]).startswith("Probably")


def test_no_name_of_an_axis_is_cut_on_a_phone(report) -> None:
    drawn = draw(report.figure("learning"))
    assert "…" not in drawn and "training rows, doubled at each step" in drawn


def test_curves_do_not_look_at_the_test_rows(report, diabetes) -> None:
    X, y = diabetes
    model = Ridge(alpha=0.1).fit(X[:300], y[:300])
    cv = KFold(5, shuffle=True, random_state=1)
    other = certus.audit(
        model,
        X[:300],
        y[:300],
        X_test=-X[300:],
        y_test=0 * y[300:],
        cv=cv,
        random_state=0,
    )
    for kind in ("learning", "validation"):
        ours, theirs = report.figure(kind).data, other.figure(kind).data
        assert ours["held_out"] == theirs["held_out"]
        assert ours["training"] == theirs["training"]
    # The threshold of the promise about amounts comes from training rows only.
    names = [claim.objective.partition(":")[0] for claim in other.statistical]
    assert names == [claim.objective.partition(":")[0] for claim in report.statistical]
    assert report.figure("residuals").data != other.figure("residuals").data


# ---- claims ----------------------------------------------------------------------


def test_errors_on_test_rows_equal_scikit_learn(report, diabetes) -> None:
    X, y = diabetes
    guess = Ridge(alpha=0.1).fit(X[:300], y[:300]).predict(X[300:])
    claim, _, share, *_ = report.measured
    assert (claim.name, share.name) == ("rmse", "r2")
    assert claim.value == pytest.approx(root_mean_squared_error(y[300:], guess))
    assert share.value == pytest.approx(r2_score(y[300:], guess))
    cuts = np.quantile(y[300:] - guess, [0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(report.figure("residuals").data["quantiles"], cuts)


def test_promise_about_labels_is_the_exact_interval() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:400], y[:400])
    report = certus.audit(
        model,
        X[:400],
        y[:400],
        X_test=X[400:],
        y_test=y[400:],
        metric="error",
        random_state=0,
    )
    wrong = int((model.predict(X[400:]) != y[400:]).sum())
    # Half of delta is spent on the metric asked for, the rest on the others.
    exact = stats.binomtest(wrong, 169).proportion_ci(0.975, "exact")
    claim = report.statistical[0]
    assert claim.value == pytest.approx(exact.high)
    assert claim.delta == 0.05 and "95 % sure" in report.verdict
    assert "169 of 169 test rows" in claim.objective
    matrix = confusion_matrix(y[400:], model.predict(X[400:]))
    assert report.figure("confusion").data["counts"] == matrix.tolist()


def test_without_rows_kept_aside_there_is_no_claim(diabetes) -> None:
    X, y = diabetes
    report = certus.audit(Ridge().fit(X, y), X, y, random_state=0)
    (claim,) = report.statistical
    assert claim.mark == "–" and "used in the fit" in claim.detail
    assert "on rows held out in turn" in report.verdict
    assert "better than always predicting the mean" in report.verdict
    assert (
        "each predicted by a model fitted without it"
        in report.figure("residuals").caption
    )


def test_rows_of_the_fit_are_recognised(diabetes) -> None:
    X, y = diabetes
    model = Ridge().fit(X, y)
    assert (
        certus.audit(model, X, y, random_state=0)
        .assumed[0]
        .startswith("the training rows are")
    )
    other = certus.audit(model, X[::-1], y[::-1], random_state=0)
    assert other.assumed[0].startswith("X and y are not the rows")
    theirs = certus.audit(LinearRegression().fit(X, y), X, y, random_state=0)
    assert theirs.assumed[0].endswith("the model has no record to compare with")
    unseen = certus.audit(model, X_test=X, y_test=y, random_state=0)
    assert unseen.assumed[0].startswith("the certificate is the one made at the fit")
    assert "not rechecked" in unseen.certificate.headline
    assert [figure.kind for figure in unseen.figures] == ["residuals", "importance"]
    assert unseen.left_out[0].startswith("learning curve")


def test_a_constant_is_not_beaten_by_noise() -> None:
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((80, 20)), rng.standard_normal(80)
    report = certus.audit(Ridge(1e-6).fit(X, y), X, y, random_state=0)
    assert "no better than always predicting the mean" in report.verdict


def test_refusals_come_first() -> None:
    X = np.linspace(-1, 1, 60)[:, None]
    y = (X[:, 0] > 0).astype(int)
    with certus.config_context(on_uncertified="ignore"):
        model = OurLogistic(C=np.inf).fit(X, y)
    report = certus.audit(model, X, y, random_state=0)
    assert "has no optimal solution" in report.verdict
    assert report.proved[0].mark == "–"
    bayes = GaussianNB().fit(X, y)
    assert "has no proof" in certus.audit(bayes, X, y, random_state=0).verdict
    lazy = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1, tol=1e9))
    X, y = load_breast_cancer(return_X_y=True)
    missed = certus.audit(lazy.fit(X, y), X, y, random_state=0)
    assert "is not solved to the accuracy asked for" in missed.verdict
    assert missed.proved[0].mark == "✗" and missed.met is False


def test_weights_are_certified_and_not_refitted(diabetes) -> None:
    X, y = diabetes
    weight = np.random.default_rng(8).uniform(0.5, 2.0, len(y))
    model = Ridge().fit(X, y, sample_weight=weight)
    report = certus.audit(model, X, y, sample_weight=weight, random_state=0)
    assert report.met and report.assumed[0].startswith("the training rows are")
    assert report.left_out[0] == "learning curve: refitting would ignore the weights"
    assert "so errors look smaller" in report.figure("residuals").caption


# ---- comparison ------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared():
    from certus.tables import load_example

    frame, target = load_example()
    X, y = frame.drop(target), frame[target]
    return X, y, certus.compare(X, y, models=[Ridge(), Lasso(0.5)])


def test_comparison_joins_the_report(compared) -> None:
    X, y, found = compared
    report = certus.audit(found.model, X, y, comparison=found, random_state=0)
    assert report.comparison["chosen"] == found.chosen
    assert report.comparison["table"] == [list(row) for row in found.table()]
    assert {c.name for c in report.statistical} <= {c.name for c in found.risk}
    assert report.certificate.n_samples == len(found.split.training)
    assert report.data["unseen_rows"] == len(found.split.sealed)
    assert (
        f"{len(found.split.sealed)} sealed rows" in report.figure("residuals").caption
    )
    page = report.to_html()
    for row in found.rows:
        assert row.name in page
    guess = found.model.predict(X[found.split.sealed])
    error = root_mean_squared_error(y[found.split.sealed].to_numpy(), guess)
    assert report.measured[0].value == pytest.approx(error)


def test_curves_use_the_folds_of_the_comparison(compared) -> None:
    X, y, found = compared
    model = found.best.model
    errors = []
    for train, test in found.split.folds:
        guess = clone(model).fit(X[train], y[train]).predict(X[test])
        errors.append(root_mean_squared_error(y[test].to_numpy(), guess))
    report = certus.audit(found.model, X, y, comparison=found, random_state=0)
    ours = report.figure("learning").data["held_out"]
    # Folds differ by a row in length, and the curve keeps to the shortest.
    assert ours["mean"][-1] == pytest.approx(np.mean(errors), rel=2e-3)
    assert ours["sd"][-1] == pytest.approx(np.std(errors, ddof=1), rel=0.05)


def test_the_split_of_a_file_gives_the_same_parts(compared) -> None:
    X, y, found = compared
    one = certus.audit(found.model, X, y, comparison=found, random_state=0)
    two = certus.audit(found.model, X, y, split=found.record(), random_state=0)
    for kind in ("residuals", "importance"):
        assert one.figure(kind).data["rows"] == two.figure(kind).data["rows"]
    assert one.figure("residuals").data == two.figure("residuals").data
    assert two.certificate.n_samples == len(found.split.training)
    shared = [claim for claim in one.statistical if claim in two.statistical]
    assert any(claim.name == "large_error" for claim in shared)


def test_a_win_of_another_library_comes_first(compared) -> None:
    X, y, found = compared
    best = found.best
    errors = tuple(error / 2 for error in best.errors)
    theirs = dataclasses.replace(best, name="forest", kind="foreign", errors=errors)
    rows = [row for row in found.rows if row.kind != "foreign"]
    beaten = dataclasses.replace(found, rows=(*rows, theirs))
    assert beaten.beaten
    report = certus.audit(found.model, X, y, comparison=beaten, random_state=0)
    assert report.verdict.lower().startswith("forest is better than every certus model")


def test_other_rows_than_those_compared_are_refused(compared) -> None:
    X, y, found = compared
    with pytest.raises(ValueError, match="Pass the same table"):
        certus.audit(found.model, X[:100], y[:100], comparison=found)
    with pytest.raises(ValueError, match="Pass only one of"):
        certus.audit(found.model, X, y, comparison=found, X_test=X, y_test=y)


# ---- documents -------------------------------------------------------------------


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def hostile() -> Audit:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((120, 2))
    labels = np.where(X[:, 0] + 0.3 * rng.standard_normal(120) > 0, HOSTILE, "<b>")
    frame = pl.DataFrame({HOSTILE: X[:, 0], "<img src=x onerror=y>": X[:, 1]})
    y = pl.Series(f"target {HOSTILE}", labels.tolist())
    model = TablePipeline(estimator=OurLogistic()).fit(frame[:80], y[:80])
    return certus.audit(
        model, frame[:80], y[:80], X_test=frame[80:], y_test=y[80:], random_state=0
    )


def test_hostile_names_stay_text(hostile: Audit) -> None:
    page = Page(hostile.to_html())
    assert not {"script", "img", "b", "iframe", "link", "object"} & set(page.tags)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert not {"src", "srcset", "action"} & {name for name, _ in page.attributes}
    links = [value for name, value in page.attributes if name == "href"]
    assert all(re.fullmatch(r"#[a-z_]+", link) for link in links)  # of this page
    assert page.text.count("<script>alert") >= 3
    assert "\x1b" not in page.text
    frame = Page(hostile._repr_html_())
    assert frame.tags == ["iframe"]
    assert dict(frame.attributes)["srcdoc"] == hostile.to_html()


def test_markdown_is_sane(hostile: Audit, report: Audit) -> None:
    for audit in (hostile, report):
        text = audit.to_markdown()
        outside = "".join(text.split("```")[::2])
        assert "<script>" not in outside.replace("\\<script\\>", "")
        assert "\x1b" not in text
        assert text.startswith("# ") and text.endswith("\n")
        heads = [line for line in text.splitlines() if line.startswith("## ")]
        assert heads[0] == "## What is known, and how well"
        assert heads[1:-1] == [f"## {figure.question}" for figure in audit.figures]
        width = None
        for line in text.splitlines():
            cells = line.replace("\\|", "").count("|") if line.startswith("|") else None
            assert cells is None or width in (None, cells)
            width = cells


def test_json_round_trip(report: Audit, hostile: Audit) -> None:
    for audit in (report, hostile):
        again = Audit.from_dict(json.loads(audit.to_json()))
        assert again.to_dict() == audit.to_dict()
        assert again.to_html() == audit.to_html()
        assert again.to_markdown() == audit.to_markdown()


def test_order_of_the_page(report: Audit) -> None:
    text = Page(report.to_html()).text.replace("\u00a0", " ")
    parts = ["Statistical", "Measured", "Proved", "Assumed"]
    parts += [figure.question for figure in report.figures] + ["Details", "Versions"]
    body = text[text.index(report.verdict) :]
    # The list of contents comes first, with the questions and a link to each.
    head, _, rest = body.partition("What is known, and how well")
    for figure in report.figures:
        assert figure.question in head
        assert report.to_html().count(f'href="#{figure.kind}"') == 1
        assert report.to_html().count(f'id="{figure.kind}"') == 1
    body = report.verdict + rest
    places = [body.index(part) for part in parts]
    assert places == sorted(places) and body.startswith(report.verdict)


def test_every_figure_is_labelled(report: Audit, hostile: Audit) -> None:
    for audit in (report, hostile):
        page = Page(audit.to_html())
        assert page.tags.count("svg") == 2 * len(audit.figures)
        assert page.tags.count("title") == 1 + 2 * len(audit.figures)
        assert page.tags.count("desc") == 2 * len(audit.figures)
        ids = [value for name, value in page.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        for figure in audit.figures:
            assert figure.question.endswith("?") and figure.answer.endswith(".")
            assert f"{figure.data['rows']:,}" in figure.caption


def test_written_files_are_the_text(report: Audit, tmp_path) -> None:
    for name, method in (
        ("html", "to_html"),
        ("md", "to_markdown"),
        ("json", "to_json"),
    ):
        path = tmp_path / f"r.{name}"
        assert getattr(report, method)(path) == path.read_text(encoding="utf-8")
    with pytest.raises(certus.persist.ModelFileError, match="could not be written"):
        report.to_html(tmp_path / "none" / "r.html")


# ---- models of all kinds ---------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        KNeighborsClassifier(7),
        GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1.0]}, cv=3),
        make_pipeline(StandardScaler(), OurLogistic()),
        RandomForestClassifier(10, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_several_labels_and_kinds_of_model(model) -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    # All folds, however busy the machine is.
    report = certus.audit(
        model.fit(X, y), X, y, cv=cv, metric="error", max_time=200, random_state=0
    )
    kinds = [figure.kind for figure in report.figures]
    tuned = [] if isinstance(model, RandomForestClassifier) else ["validation"]
    assert kinds == ["learning", *tuned, "calibration", "confusion", "importance"]
    assert report.title.endswith("“target”")
    assert report.figure("confusion").data["rows"] == 150
    errors = 1 - cross_val_score(model, X, y, cv=cv)
    found = report.figure("learning").data["held_out"]["mean"][-1]
    assert found == pytest.approx(errors.mean())


def test_sparse_columns_are_shown_by_their_coefficients() -> None:
    rng = np.random.default_rng(10)
    X = sparse.random(200, 60, 0.05, format="csc", random_state=0)
    y = X @ np.r_[5.0, np.zeros(59)] + 0.1 * rng.standard_normal(200)
    report = certus.audit(Lasso(0.001).fit(X, y), X, y, random_state=0)
    figure = report.figure("coefficients")
    assert figure.data["names"][0] == "x0"
    sd = np.std(X[:, [0]].toarray())
    coef = Lasso(0.001).fit(X, y).coef_
    assert figure.data["mean"][0] == pytest.approx(coef[0] * sd)
    assert report.data["coefficients"]["values"][0] == [pytest.approx(coef[0])]


class Slow(RegressorMixin, BaseEstimator):
    """A mean that takes its time."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, X, y):
        time.sleep(5e-4 * len(y))
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_time_is_kept_and_the_cut_is_reported() -> None:
    rng = np.random.default_rng(11)
    X, y = rng.standard_normal((2000, 3)), rng.standard_normal(2000)
    model = Slow().fit(X, y)
    start = time.perf_counter()
    report = certus.audit(model, X, y, max_time=2.0, random_state=0)
    assert time.perf_counter() - start < 8.0
    assert "The time limit stopped it" in report.figure("learning").caption
    assert report.figure("learning").data["sizes"][-1] < 1600
    said = [report.figure("validation").caption] if len(report.figures) > 3 else []
    assert any("time" in line for line in [*said, *report.left_out])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [1.0, np.nan, 2.0]}, "no value .NaN. in 1 rows"),
        ({"y": [1.0, 2.0]}, "they must be equal"),
        ({"X": np.empty((0, 1)), "y": []}, "has no rows"),
        ({"y": None}, "Only one of X, y"),
        ({"X": None, "y": None}, "Pass X, y"),
        ({"y": np.ones((3, 2))}, "single target"),
        ({"model": KMeans(1)}, "neither a classifier nor a regressor"),
        (
            {"model": FastTextClassifier(random_state=0)},
            "takes texts, but an audit needs a table",
        ),
        ({"max_time": 0.0}, "max_time must be above 0"),
        ({"model": Ridge()}, "not fitted yet"),
    ],
)
def test_hostile_input_is_an_error_that_helps(arguments, message) -> None:
    X, y = np.arange(3.0)[:, None], [0.0, 1.0, 2.5]
    model = arguments.pop("model", Ridge().fit(X, y))
    given = {"X": X, "y": y} | arguments
    with pytest.raises(ValueError, match=message):
        certus.audit(model, **given)


def test_huge_amounts_have_finite_errors(diabetes) -> None:
    X, y = diabetes
    scale = 1e200
    with certus.config_context(on_uncertified="ignore"):  # squares overflow
        model = Ridge().fit(X, scale * y)
    huge = certus.audit(model, X, scale * y, random_state=0)
    plain = certus.audit(Ridge().fit(X, y), X, y, random_state=0)
    assert huge.to_html() and huge.to_json()
    for part in ("mean", "sd"):
        one, two = (a.figure("learning").data["held_out"][part] for a in (huge, plain))
        np.testing.assert_allclose(np.array(one) / scale, two)


def test_a_penalty_that_is_switched_off_is_not_questioned() -> None:
    X, y = load_iris(return_X_y=True)
    report = certus.audit(Perceptron(random_state=0).fit(X, y), X, y, random_state=0)
    assert "validation" not in [figure.kind for figure in report.figures]
    assert "calibration: the model gives no probabilities" in report.left_out


def test_three_rows_are_enough_for_a_report() -> None:
    X, y = np.arange(3.0)[:, None], [0.0, 1.0, 2.5]
    report = certus.audit(Ridge().fit(X, y), X, y, random_state=0)
    assert "not known" in report.verdict and report.to_html()
    assert any("too few rows" in line for line in report.left_out)


# ---- drawing ---------------------------------------------------------------------


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.integers(2, 8), st.booleans())
def test_ticks_cover_the_interval(low, width, most, percent) -> None:
    high = low + width
    ticks = nice_ticks(low, high, most)
    slack = 1e-6 * (high - low) + 1e-9 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack and ticks[-1] >= high - slack
    assert ticks == sorted(set(ticks)) and 2 <= len(ticks) <= max(most, 3)
    labels = tick_labels(ticks, percent)
    assert len(labels) == len(ticks)


def test_scales_spread_evenly_or_by_powers() -> None:
    assert [Scale(0, 4).share(v) for v in (0, 1, 4)] == [0, 0.25, 1]
    log = Scale(1, 100, log=True)
    np.testing.assert_allclose([log.share(v) for v in (1, 10, 100)], [0, 0.5, 1])


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_looked_at_by_samples() -> None:
    rng = np.random.default_rng(12)
    X = rng.standard_normal((100_000, 30))
    score = X @ rng.standard_normal(30) + rng.standard_normal(100_000)
    frame = pl.DataFrame(X, schema=[f"c{i}" for i in range(30)])
    y = pl.Series("sign", np.where(score > 0, "plus", "minus").tolist())
    model = TablePipeline(estimator=OurLogistic()).fit(frame[:80_000], y[:80_000])
    report = certus.audit(
        model,
        frame[:80_000],
        y[:80_000],
        X_test=frame[80_000:],
        y_test=y[80_000:],
        random_state=0,
    )
    assert len(report.figures) == 5
    assert "5,000 of 20,000 test rows" in report.figure("calibration").caption
    # Fewer than 2,000 where the machine is busy: the figure has a budget of seconds.
    found = re.search(r"on ([\d,]+) test rows", report.figure("importance").caption)
    assert found and 100 <= int(found[1].replace(",", "")) <= 2_000
    assert len(report.to_html()) < 300_000
