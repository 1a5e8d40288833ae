"""Faults in tree ensembles that a certificate must find, one of each kind."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import certus
from certus.certificate import Status
from certus.ensemble import HistGradientBoostingRegressor
from certus.persist.container import ModelFileError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
X[:, 2] = RNG.integers(0, 12, 400)
Y = np.sin(2 * X[:, 0]) + X[:, 1] + (X[:, 2] % 3 == 1) + 0.1 * RNG.normal(size=400)


def fitted(**options):
    model = HistGradientBoostingRegressor(max_iter=10, **options)
    return model.fit(X, Y)


def changed(trees, name, place, value):
    array = getattr(trees, name).copy()
    array[place] = value
    return replace(trees, **{name: array})


def deep_leaf(trees):
    """A leaf of the last tree with the most splits above it."""
    depth = {int(trees.roots[-1]): 0}
    for node in range(int(trees.roots[-1]), len(trees.feature)):
        if trees.feature[node] >= 0:
            for child in (trees.left[node], trees.right[node]):
                depth[int(child)] = depth[node] + 1
    leaves = [node for node in depth if trees.feature[node] < 0]
    return max(leaves, key=lambda node: depth[node])


def test_a_changed_leaf_is_found():
    model = fitted()
    leaf = deep_leaf(model.trees_)
    value = model.trees_.value[leaf, 0]
    model.trees_ = changed(model.trees_, "value", leaf, value * 1.01 + 1e-4)
    found = certus.certify(model, X, Y)
    assert found.status is Status.REFUTED and found["leaf_values"].met is False


def test_a_moved_threshold_is_found():
    model = fitted()
    trees = model.trees_
    root = int(trees.roots[-1])
    column = np.sort(X[:, trees.feature[root]])
    at = np.searchsorted(column, trees.threshold[root])
    model.trees_ = changed(trees, "threshold", root, column[min(at + 1, 399)])
    found = certus.certify(model, X, Y)
    assert found.status is Status.REFUTED and found["leaf_values"].met is False


def test_a_swapped_set_of_categories_is_found():
    model = fitted(categorical_features=[2])
    trees = model.trees_
    assert model.certificate_.met and len(trees.bits)
    model.trees_ = replace(trees, bits=~trees.bits)
    found = certus.certify(model, X, Y)
    assert found.status is Status.REFUTED and found["leaf_values"].met is False


def test_a_constraint_violated_in_one_deep_leaf_is_found():
    model = fitted(monotonic_cst=[0, 1, 0])
    assert model.certificate_["monotone_trees"].met
    trees = model.trees_
    inner = np.flatnonzero(trees.feature == 1)
    node = int(inner[-1])  # the last split of the column
    leaf = int(trees.right[node])
    while trees.feature[leaf] >= 0:
        leaf = int(trees.left[leaf])
    low = trees.value[trees.leaves].min() - 1.0
    model.trees_ = changed(trees, "value", leaf, low)
    claim = certus.certify(model, X, Y)["monotone_trees"]
    assert claim.met is False and "moves the wrong way" in claim.detail
    # The claim names two rows that anyone can try.
    named = re.findall(r"\{([^}]*)\}", claim.detail)
    rows = np.zeros((2, X.shape[1]))
    for row, cells in zip(rows, named, strict=True):
        for column, value in re.findall(r"(\d+): ([^,]+)", cells):
            row[int(column)] = float(value)
    assert (np.delete(rows[0], 1) == np.delete(rows[1], 1)).all()
    assert rows[0, 1] < rows[1, 1]
    first, second = model.predict(rows)
    assert first - second == pytest.approx(claim.value, abs=1e-9) and first > second


def test_an_edited_file_is_found(tmp_path):
    model, path = fitted(), tmp_path / "model.certus"
    model.save(path)
    whole = bytearray(path.read_bytes())
    where = whole.find(model.trees_.value.tobytes()[:64])
    assert where > 0
    whole[where + 3] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(ModelFileError):
        certus.load(path)


def test_a_model_with_other_answers_is_found():
    """The arrays are those of the fit, but another tree answers."""
    from sklearn.ensemble import HistGradientBoostingRegressor as Theirs

    model = Theirs(max_iter=5).fit(X, Y)
    nodes = model._predictors[0][0].nodes
    assert certus.certify(model, X, Y).met
    leaf = int(np.flatnonzero(nodes["is_leaf"])[0])
    nodes["value"][leaf] += 1e-3
    assert certus.certify(model, X, Y)["leaf_values"].met is False
