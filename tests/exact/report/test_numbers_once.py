"""A report says each number once, and gives a reason beside a different one."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import certus
from certus.linear_model import LogisticRegression, Ridge
from certus.report import predictions

#: What a caption says where its number may differ from the one of the sealed rows.
REASONS = ("values may differ", "differs from that of all", "another average")


def amounts():
    X, y = load_diabetes(return_X_y=True)
    return X, y, Ridge()


def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    return X, X[:, 0] + rng.normal(size=800) > 1.3, LogisticRegression()


@pytest.fixture(
    scope="module",
    params=[(amounts, False), (labels, False), (amounts, True), (labels, True)],
    ids=["amounts", "labels", "amounts, refitted", "labels, refitted"],
)
def pair(request):
    draw, refit = request.param
    X, y, model = draw()
    found = certus.compare(X, y, models=[model], refit=refit)
    with pytest.MonkeyPatch.context() as patch:
        # Columns are shuffled on a sample of the sealed rows, as in larger tables.
        patch.setattr(predictions, "_SHUFFLED", 60)
        report = certus.audit(
            found.model, X, y, comparison=found, max_time=10, random_state=0
        )
    return found, report


def test_no_line_stands_twice(pair):
    _, report = pair
    lines = [
        (claim.label, claim.detail)
        for claim in (*report.proved, *report.statistical, *report.measured)
    ]
    assert len(lines) == len(set(lines))
    values = [claim.detail.partition(" ")[0] for claim in report.measured]
    assert len(values) == len(set(values))


def test_another_value_of_the_metric_has_a_reason_beside_it(pair):
    found, report = pair
    label = found.metric.label
    shown = found.risk[0].detail.split()[0].rstrip(",;")
    assert shown in report.verdict
    told = 0
    for figure in report.figures:
        numbers = re.findall(rf"{label}[^.]*? from ([\d.,]+) to", figure.answer)
        for number in numbers:
            told += 1
            same = float(number.replace(",", "")) == pytest.approx(
                float(shown.replace(",", "")), rel=5e-3
            )
            assert same or any(reason in figure.caption for reason in REASONS), figure
    assert told  # the importance of columns starts from the error of the model


def test_a_refitted_page_says_which_model_its_numbers_are_about(pair):
    """Sealed rows judged the model before; the intervals are those of the one after."""
    found, report = pair
    page = re.sub(r"\s+", " ", report.to_html())
    told = "the model before" in page
    assert told == found.refitted
    coverages = [c for c in report.statistical if c.name == "coverage"]
    assert len(coverages) == 1
    assert ("CV+" in (coverages[0].objective + coverages[0].theorem)) == found.refitted


def test_the_table_of_models_says_what_its_errors_are(pair):
    _, report = pair
    page = re.sub(r"\s+", " ", report.to_html())
    assert "mean ± standard deviation over the folds, measured on" in page
    caption = next(f.caption for f in report.figures if f.kind == "importance")
    measure = report.comparison["metric_label"]
    assert caption.lower().count(f"{measure.lower()}, {measure.lower()}") == 0
