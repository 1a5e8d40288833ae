"""The model card says what the report says, with metadata that hubs can read."""

from __future__ import annotations

import json

import pytest
from sklearn.datasets import load_breast_cancer

import certus
from certus.linear_model import LogisticRegression

HOSTILE = "<script>alert('x')</script> | *_`"


@pytest.fixture(scope="module")
def report():
    X, y = load_breast_cancer(return_X_y=True)
    model = LogisticRegression(C=0.1).fit(X[:300, :4], y[:300])
    rows = {"X_test": X[300:, :4], "y_test": y[300:]}
    return certus.audit(
        model,
        X[:300, :4],
        y[:300],
        **rows,
        target=HOSTILE,
        max_time=0.2,
        random_state=0,
    )


def test_card_has_metadata_and_every_claim(report, tmp_path):
    card = report.to_model_card(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == card
    _, head, body = card.split("---\n", 2)
    found = dict(line.split(": ", 1) for line in head.strip().splitlines())
    assert json.loads(found["library_name"]) == "certus"
    assert json.loads(found["pipeline_tag"]) == "tabular-classification"
    for claim in (*report.statistical, *report.proved):
        assert claim.label in body
    assert "300 training rows × 4 columns" in body
    assert "`C` = 0.1" in body


def test_card_asks_what_only_people_know_and_escapes_names(report):
    card = report.to_model_card()
    assert "What is the model used for" in card
    assert "Groups of people were not compared." in card
    assert "<script>" not in card.split("---\n", 2)[2]
