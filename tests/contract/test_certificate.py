"""Certificates as data: round trips, rendering, and attempts to forge one.

What a certificate says must survive JSON, fit a terminal, be safe in a page, and
change when the model, the data or the witness behind it is tampered with.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import certus
from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.evidence import LinearWitness, RatingsWitness
from certus.linear_model import Lasso, LogisticRegression, Ridge
from certus.testing.checks import assert_certified, example
from certus.testing.instances import instances
from certus.testing.problems import separable
from certus.unwrapping import innermost

Array = np.ndarray
numbers = st.none() | st.floats(allow_nan=False)
words = st.text(max_size=200)
plain = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | numbers | words


@st.composite
def claims(draw: Any) -> Claim:
    strength = draw(st.sampled_from(Strength))
    promise = strength in (Strength.PROVED, Strength.STATISTICAL)
    return Claim(
        draw(st.sampled_from(["duality_gap", "stationarity", "coverage", "x" * 30])),
        strength,
        draw(numbers),
        draw(numbers),
        draw(st.booleans() | st.none()) if promise else None,
        draw(words),
        draw(words),
        tuple(draw(st.lists(words, max_size=3))),
        draw(st.none() | st.floats(0.001, 0.5)),
        draw(st.floats(0, 1)),
        draw(words),
        draw(words),
    )


@st.composite
def certificates(draw: Any) -> Certificate:
    found = tuple(draw(st.lists(claims(), min_size=1, max_size=4)))
    params = draw(st.dictionaries(st.text(max_size=12), plain, max_size=4))
    witness = RatingsWitness(draw(st.integers(0, 9)), draw(st.floats(allow_nan=False)))
    evidence = Evidence("ratings", witness)
    return Certificate(
        model=draw(words),
        params=params,
        claims=found,
        primary=found[0].name,
        status=draw(st.sampled_from(Status)),
        origin=draw(st.sampled_from(["fit", "certify", "file"])),
        n_samples=draw(st.integers(0, 10**9)),
        n_features=draw(st.integers(0, 10**6)),
        fingerprint={"shape": [3, 4], "x": draw(st.floats(allow_nan=False))},
        seconds=draw(st.floats(0, 1e4)),
        fit_seconds=draw(st.none() | st.floats(0, 1e4)),
        evidence=draw(st.sampled_from([None, evidence])),
    )


# -- round trips and rendering ------------------------------------------------------


@given(certificates())
def test_json_round_trip(certificate: Certificate) -> None:
    text = json.dumps(certificate.to_dict(), allow_nan=False)
    assert Certificate.from_dict(json.loads(text)) == certificate


@given(certificates())
def test_text_fits_a_terminal(certificate: Certificate) -> None:
    lines = str(certificate).split("\n")
    assert max(map(len, lines)) <= 80, max(lines, key=len)


@given(certificates())
def test_html_is_escaped(certificate: Certificate) -> None:
    claim = dataclasses.replace(
        certificate.claims[0],
        detail="<script>alert(1)</script>",
        objective="a < b & c",
        fix='<img src="x">',
    )
    bad = dataclasses.replace(certificate, model="<b>Model</b>", claims=(claim,))
    page = bad._repr_html_()
    for tag in ("<script", "<img", "<b>"):
        assert tag not in page
    assert "&lt;script&gt;" in page and "a &lt; b &amp; c" in page


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("estimator", instances(), ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("level", ["quick", "full"])
def test_real_certificates_render_and_return(estimator: Any, level: str) -> None:
    X, y = example(estimator)
    model = estimator.fit(X, y)
    for found in (model.certificate_, certus.certify(model, X, y, level=level)):
        text = str(found)
        assert max(map(len, text.splitlines())) <= 80
        headline = " ".join(text.split())  # wherever its lines break
        size = f"{X.shape[0]} rows × {X.shape[1]} columns"
        assert type(innermost(model)).__name__ in text and size in headline
        copy = Certificate.from_dict(json.loads(json.dumps(found.to_dict())))
        assert str(copy) == text and copy.met == found.met


def test_every_status_and_strength_renders() -> None:
    claim = Claim("duality_gap", Strength.PROVED, 1e-3, 1e-6, False, detail="above")
    for status in Status:
        made = Certificate("Ridge", {}, (claim,), "duality_gap", status)
        assert str(made).splitlines()[0].startswith("Ridge()")
    for strength in Strength:
        met = True if strength in (Strength.PROVED, Strength.STATISTICAL) else None
        made = dataclasses.replace(claim, strength=strength, met=met, delta=0.05)
        assert made.mark in "✓·–" and (made.basis or strength is Strength.REFUSED)


def test_long_names_have_a_line_of_their_own() -> None:
    claim = Claim("a_claim_with_a_long_name", Strength.PROVED, detail="word " * 40)
    made = Certificate("M" * 90, {}, (claim,), claim.name, Status.SOLVED)
    lines = str(made).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[1:] == [*claim.label.split(), "proved"] for line in lines)


# -- meaning ------------------------------------------------------------------------


def test_only_claims_with_a_target_can_be_met() -> None:
    for strength in (Strength.MEASURED, Strength.REFUSED):
        for met in (True, False):
            with pytest.raises(ValueError, match="met=None"):
                Claim("x", strength, met=met)
    claims = (
        Claim("first", Strength.PROVED, 0.5, 0.1, False),
        Claim("second", Strength.PROVED, 0.0, 0.1, True),
    )
    made = Certificate("m", {}, claims, "first", Status.SOLVED)
    assert made.met is False and made.value == 0.5
    assert dataclasses.replace(made, primary="second").met is True
    assert "second" in made and "third" not in made
    with pytest.raises(KeyError, match="first, second"):
        made["third"]


def test_certificates_are_frozen() -> None:
    X, y = example(Ridge())
    found = Ridge().fit(X, y).certificate_
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.status = Status.SOLVED
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.claims[0].met = True


# -- forgeries ----------------------------------------------------------------------


@pytest.fixture
def fitted() -> tuple[Any, Array, Array]:
    X, y = example(Lasso())
    return Lasso(0.1).fit(X, y), X, y


def test_a_claim_that_was_edited_is_refuted(fitted: Any) -> None:
    model, X, y = fitted
    model.coef_ = model.coef_ + 0.05  # a worse model, with the certificate kept
    assert model.certificate_.met
    found = certus.certify(model, X, y)
    assert found.status is Status.REFUTED and found.met is False
    assert "REFUTED" in str(found)


def test_a_tampered_value_does_not_help(fitted: Any) -> None:
    model, X, y = fitted
    stated = model.certificate_
    model.coef_ = model.coef_ * 1.1
    better = dataclasses.replace(stated.claims[0], value=0.0, allowance=1e9)
    model.certificate_ = dataclasses.replace(
        stated, claims=(better, *stated.claims[1:])
    )
    assert certus.certify(model, X, y).status is Status.REFUTED


def test_swapped_rows_columns_and_weights_are_noted(fitted: Any) -> None:
    model, X, y = fitted
    rng = np.random.default_rng(0)
    others = [
        (X[:, ::-1], y, None),
        (X, rng.permutation(y), None),
        (X + 0.1 * rng.normal(size=X.shape), y, None),
        (X, y, rng.uniform(0.1, 3, len(y))),
        (X[:40], y[:40], None),
    ]
    for A, b, s in others:
        found = certus.certify(model, A, b, s)
        assert found.met is False and found.status is Status.TOL_NOT_REACHED
        assert "not those of the fit" in " ".join(found.claims[0].assumptions)
    assert certus.certify(model, X, y).met


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_forged_witness_is_refuted(level: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] + rng.logistic(size=80) > 0).astype(int)  # not separable
    model = LogisticRegression(C=np.inf).fit(X, y)
    stated = model.certificate_
    assert stated.status is Status.UNDECIDED
    forged = [
        np.array([[1.0], [0], [0], [0]]),
        np.zeros((4, 1)),
        np.full((4, 1), np.nan),
        np.ones((3, 1)),
    ]
    for direction in forged:
        witness = LinearWitness(direction=direction)
        evidence = dataclasses.replace(stated.evidence, witness=witness)
        claim = Claim("stationarity", Strength.REFUSED, detail="no minimiser exists")
        model.certificate_ = dataclasses.replace(
            stated, evidence=evidence, claims=(claim,), status=Status.NO_MINIMISER
        )
        found = certus.certify(model, X, y, level=level)
        assert found.status is Status.REFUTED
        assert found["stationarity"].strength is not Strength.REFUSED


def test_a_true_witness_is_confirmed_and_its_absence_does_not_matter() -> None:
    X, y, direction = separable("quasi", n=40)
    with certus.config_context(on_uncertified="ignore"):
        model = LogisticRegression(C=np.inf).fit(X, y)
    stated = model.certificate_
    assert certus.certify(model, X, y).status is Status.NO_MINIMISER
    for witness in (LinearWitness(), LinearWitness(direction=3 * direction)):
        evidence = dataclasses.replace(stated.evidence, witness=witness)
        model.certificate_ = dataclasses.replace(stated, evidence=evidence)
        found = certus.certify(model, X, y, level="full")
        assert found.status is Status.NO_MINIMISER


def test_parameters_state_the_objective_and_evidence_does_not(fitted: Any) -> None:
    model, X, y = fitted
    old = {"kind": "linear", "terms": [["L1", {"alpha": 0.5}]], "params": {"tol": 1.0}}
    evidence = Evidence.from_dict(old)
    model.certificate_ = dataclasses.replace(model.certificate_, evidence=evidence)
    assert certus.certify(model, X, y).met
    found = certus.certify(model.set_params(alpha=0.5), X, y)
    assert found.met is False and "0.5·‖w‖₁" in found.claims[0].objective


def test_a_file_is_stated_until_rechecked(fitted: Any, tmp_path: Any) -> None:
    model, X, y = fitted
    other = certus.load(model.save(tmp_path / "lasso.certus"))
    text = " ".join(str(other.certificate_).split())
    assert "stated, not rechecked" in text
    assert "stated, not rechecked" in other.certificate_._repr_html_()
    rechecked = certus.certify(other, X, y)
    assert rechecked.met and "not rechecked" not in str(rechecked)
    other.coef_ = other.coef_ + 0.05
    assert certus.certify(other, X, y).status is Status.REFUTED


def test_missing_or_misfit_data_are_errors(fitted: Any) -> None:
    model, X, y = fitted
    for A, b, message in [
        (X[:, :3], y, "columns"),
        (X, y[:-1], "rows"),
        (X, None, "y is missing"),
        (X[:0], y[:0], "no rows"),
        (X * np.nan, y, "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            certus.certify(model, A, b)
    with pytest.raises(ValueError, match="level"):
        certus.certify(model, X, y, level="deep")


def test_labels_fit_their_column():
    from certus.meanings import CLAIMS

    long = [word for row in CLAIMS.values() for word in row[:2] if len(word) > 10]
    assert not long


@pytest.mark.parametrize(
    ("kind", "dtype", "size"),
    [
        ("linear", "float64", "2,000 rows × 3 columns"),
        ("ratings", "float64", "2,000 users × 3 items"),
        ("word_counts", "text", "2,000 documents × 3 words"),
        ("glove", "counts", "2,000 words × 3 contexts"),
        ("text_classifier", "str", "2,000 documents ·"),
    ],
)
def test_sizes_are_written_in_words_that_fit_the_data(kind, dtype, size):
    claim = Claim("shape", Strength.MEASURED)
    made = Certificate(
        *("M", {}, (claim,), "shape", Status.SOLVED),
        n_samples=2000,
        n_features=3,
        fingerprint={"dtype": dtype},
        evidence=Evidence(kind),
    )
    assert f"M() · {size}" in made.headline
    again = Certificate.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again.headline.startswith(made.headline.split(" · checked")[0])


def test_at_a_prompt_a_certificate_shows_its_words():
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    certificate = Ridge().fit(X, y).certificate_
    assert repr(certificate) == str(certificate)


def test_assert_certified_is_for_test_suites() -> None:
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40.0)
    model = Ridge().fit(X, y)
    assert assert_certified(model, X, y).met
    weights = np.arange(1.0, 41.0)
    assert_certified(Ridge().fit(X, y, weights), X, y, weights, level="full")
    model.coef_ = model.coef_ * 1.01
    with pytest.raises(AssertionError, match=r"(?s)^Ridge\(\) is not certified.*✗"):
        assert_certified(model, X, y)
