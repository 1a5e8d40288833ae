"""Names that we share with scikit-learn: the same parameters, attributes and methods.

What we have beside theirs is listed here and told in the rows of the registry.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from certus.cli.migrating import shared
from certus.registry import ESTIMATORS, differences

SHARED = {
    name: (
        getattr(import_module(f"certus.{home}"), name),
        getattr(import_module(f"sklearn.{home}"), name),
    )
    for home in ("cluster", "mixture", "decomposition", "neural_network")
    for name in shared(home)
}
CLASSES = sorted(name for name in SHARED if inspect.isclass(SHARED[name][0]))
#: Parameters that theirs do not have; every class may have ``max_time``.
PERCEPTRON = {"engine", "dropout", "normalization", "residual", "checkpoint", "device"}
ROBUST = {"adversarial", "adversarial_steps", "alpha_operator_norm", "lipschitz"}
MORE = {
    "GaussianMixture": {"assignment"},
    "FactorAnalysis": {"warm_start"},
    "BernoulliRBM": {"warm_start"},
    "MLPClassifier": PERCEPTRON | ROBUST | {"class_weight"},
    "MLPRegressor": PERCEPTRON | {"normalize_y"},
}
#: Parameters whose default differs.
CHANGED = {
    "TruncatedSVD": {"algorithm", "tol"},
    "FactorAnalysis": {"random_state"},
}
#: Attributes that tell how the fit went.
FOUND = {"certificate_", "history_", "n_iter_", "solver_", "solver_reason_"}
FOUND |= {"best_epoch_", "fit_random_state_"}
X, y = load_iris(return_X_y=True)


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def described(value: Any) -> Any:
    """Shape and type of an array, or of each array of a list."""
    if isinstance(value, list) and any(np.ndim(part) for part in value):
        return [described(part) for part in value]
    return np.shape(value), np.asarray(value).dtype


def test_the_expected_classes_are_in_the_list() -> None:
    assert {"KMeans", "GaussianMixture", "PCA", "TruncatedSVD"} <= set(CLASSES)
    assert {"FactorAnalysis", "kmeans_plusplus"} <= set(SHARED)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_parameters_are_those_of_scikit_learn_in_its_order(name: str) -> None:
    ours, theirs = (parameters(one) for one in SHARED[name])
    more = {"max_time"} | MORE.get(name, set())
    assert [key for key in ours if key not in more] == list(theirs)
    for key, parameter in theirs.items():
        assert ours[key].kind == parameter.kind, key
        if key in CHANGED.get(name, ()):
            assert ours[key].default != parameter.default, key
        else:
            assert ours[key].default == parameter.default, key
    for key in ours.keys() - theirs.keys():
        assert ours[key].kind is inspect.Parameter.KEYWORD_ONLY, key


@pytest.mark.parametrize("name", CLASSES)
def test_fitted_attributes_have_their_names_shapes_and_types(name: str) -> None:
    if name.startswith("MLP"):
        options = {"hidden_layer_sizes": 5, "tol": 0.1, "random_state": 0}
        ours, theirs = (one(**options).fit(X, y) for one in SHARED[name])
    else:
        enough = {"NMF": {"max_iter": 2000}, "MiniBatchKMeans": {"tol": 1.0}}
        options = enough.get(name, {})
        ours, theirs = (one(2, **options).fit(X) for one in SHARED[name])
    mine, other = (
        {key for key in vars(model) if key.endswith("_") and key[0] != "_"}
        for model in (ours, theirs)
    )
    assert other <= mine
    assert mine - other <= FOUND
    for key in other - {"loglike_", "lower_bounds_"}:  # a number for each step
        one, two = (described(getattr(model, key)) for model in (ours, theirs))
        assert one == two, key


@pytest.mark.parametrize("name", CLASSES)
def test_methods_take_the_arguments_of_scikit_learn(name: str) -> None:
    ours, theirs = SHARED[name]
    assert public(theirs) <= public(ours)
    for key in public(theirs):
        if not inspect.isroutine(getattr(theirs, key)):
            continue
        mine, other = (parameters(getattr(one, key)) for one in (ours, theirs))
        if key.endswith("_request"):  # all by keyword, in the order of the alphabet
            assert other.keys() <= mine.keys(), key
            continue
        other = {n: p for n, p in other.items() if p.kind is not p.VAR_KEYWORD}
        assert list(mine)[: len(other)] == list(other), key
        for part, parameter in other.items():
            assert mine[part].default == parameter.default, (key, part)


@pytest.mark.parametrize("name", sorted(MORE.keys() | CHANGED.keys()))
def test_the_row_says_what_differs(name: str) -> None:
    [text] = [text for rows, text in differences() if ESTIMATORS[name] in rows]
    for key in MORE.get(name, set()) | CHANGED.get(name, set()):
        assert re.search(rf"`{key}\b", text), key
