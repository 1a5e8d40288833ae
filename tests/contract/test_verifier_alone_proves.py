"""Every PROVED claim is made inside ``certus.verify``, by whoever it is handed on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression as TheirLogisticRegression

import certus
from certus import cluster, decomposition, linear_model, mixture, neighbors, svm
from certus.certificate import Claim, Strength
from certus.robustness import ThreatModel, robust_accuracy

SOURCES = Path(certus.__file__).parent
OUTSIDE = [
    path
    for path in sorted(SOURCES.rglob("*.py"))
    if path.relative_to(SOURCES).parts[0] != "verify"
]
WEAKER = {"MEASURED", "STATISTICAL", "REFUSED"}


def strengths(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where a claim is made, and of which strength; a name or a call is "?"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Claim"):
            given = {word.arg: word.value for word in node.keywords}
            second = node.args[1] if len(node.args) > 1 else None
            found = given.get("strength", second)
            plain = isinstance(found, ast.Attribute)
            yield node.lineno, found.attr if plain else "?"


def proving(tree: ast.AST) -> Iterator[int]:
    """Lines that use ``Strength.PROVED`` for anything but a comparison."""
    compared = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        named = isinstance(node, ast.Attribute) and node.attr == "PROVED"
        if named and id(node) not in compared:
            yield node.lineno


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda p: str(p.relative_to(SOURCES)))
def test_no_other_module_writes_a_proved_claim(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert list(proving(tree)) == []
    if path.name == "certificate.py":  # reads back what a certificate's data say
        return
    assert [line for line, kind in strengths(tree) if kind not in WEAKER] == []


def proofs(tree: ast.AST) -> list[int]:
    """Lines that make a proof of robustness, or a refusal with the look of one."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Proof")
    ]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda p: str(p.relative_to(SOURCES)))
def test_no_other_module_makes_a_proof_of_robustness(path: Path) -> None:
    assert proofs(ast.parse(path.read_text())) == []
    assert proofs(ast.parse("a = verify.Proof(b, c, refused=True)")) == [1]


def test_the_scan_would_see_one() -> None:
    """Companion: by name, by position, and behind a variable."""
    written = 'Claim("a", Strength.PROVED, 0.0)\nClaim("b", strength=s)\nc.PROVED is d'
    tree = ast.parse(written)
    assert list(proving(tree)) == [1]
    assert [kind for _, kind in strengths(tree)] == ["PROVED", "?"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules that made a PROVED claim with numbers of their own."""
    known: set[Any] = set()
    strangers: list[str] = []
    checked = Claim.__post_init__

    def looking(self: Claim) -> None:
        checked(self)
        if self.strength is not Strength.PROVED:
            return
        frame = sys._getframe(2)  # past the dataclass's own __init__
        while frame.f_globals["__name__"] in ("dataclasses", "certus.certificate"):
            frame = frame.f_back
        numbers = (self.name, self.value, self.target, self.met, self.allowance)
        where = frame.f_globals["__name__"]
        if where.startswith("certus.verify."):
            known.add(numbers)
        elif where == "certus.verify":  # rewords what the checkers found
            assert numbers in known
        elif numbers not in known:
            strangers.append(where)

    monkeypatch.setattr(Claim, "__post_init__", looking)
    return strangers


def test_fits_make_no_proved_claim_themselves(made: list[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * rng.normal(size=80)
    labels = (y > 0).astype(int)
    proved = 0
    for model, target in (
        (linear_model.Ridge(), y),
        (linear_model.Lasso(alpha=0.1), y),
        (linear_model.LogisticRegression(), labels),
        (linear_model.Perceptron(random_state=0), labels),
        (svm.SVC(), labels),
        (neighbors.KNeighborsClassifier(), labels),
        (cluster.KMeans(3, random_state=0), None),
        (mixture.GaussianMixture(2, random_state=0), None),
        (decomposition.PCA(2), None),
    ):
        fitted = model.fit(X) if target is None else model.fit(X, target)
        claims = certus.certify(fitted, X, target).claims + fitted.certificate_.claims
        proved += sum(claim.strength is Strength.PROVED for claim in claims)
    assert made == [] and proved >= 10


def test_audits_prove_nothing_themselves(made: list[str]) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = TheirLogisticRegression().fit(X[:300], y[:300])
    threat = ThreatModel("linf", 0.02)
    found = robust_accuracy(model, X[300:], y[300:], threat, random_state=0)
    assert found.claims[0].strength is Strength.PROVED
    report = certus.audit(
        model,
        X[:300],
        y[:300],
        X_test=X[300:],
        y_test=y[300:],
        threat=threat,
        random_state=0,
    )
    assert "proved" in str(report.to_dict()) and made == []


def test_the_watch_would_see_one(made: list[str]) -> None:
    """Companion: a claim that is made here is a stranger's."""
    Claim("duality_gap", Strength.PROVED, 0.0, 1e-6, True)
    assert made == [__name__]
