"""Tree ensembles as plain arrays: what a boosting or a forest has learnt, and no more.

All trees share one list of nodes. A row x starts at a root and goes left where

    x[feature] ≤ threshold                  a number
    bit int(x[feature]) of a set is 1       a category
    missing_left                            NaN
    other_left                              a category outside of the set's bits

until it reaches a leaf, whose values are added:

    scores(x) = baseline + Σ over trees value[leaf(x)] / divisor
    predict(x) = link(scores(x))

Libraries that compare with < are read as ≤ of the next smaller number, so there is one
rule. The arrays are data: nothing here knows which library has fitted them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from certus.typing import Array

#: From scores to predictions.
LINKS = ("identity", "logistic", "softmax", "exp", "shares")

_TYPES = {
    **dict.fromkeys(("feature", "left", "right", "category", "roots"), np.int32),
    **dict.fromkeys(("threshold", "value", "baseline"), np.float64),
    **dict.fromkeys(("missing_left", "other_left"), np.bool_),
    "output": np.int32,
    "bits": np.uint32,
}


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """The nodes of all trees, and how their leaves become a prediction.

    Attributes
    ----------
    feature : array of int32, shape (n_nodes,)
        The column that a node compares; −1 in a leaf.
    threshold : array of float64, shape (n_nodes,)
        Rows with x ≤ threshold go left.
    left, right : arrays of int32, shape (n_nodes,)
        Numbers of the children; −1 in a leaf. A child comes after its parent.
    value : array of float64, shape (n_nodes, n_values)
        What a leaf adds. One value for the tree's own output, or one for each output.
    missing_left : array of bool, shape (n_nodes,)
        Whether NaN goes left.
    other_left : array of bool, shape (n_nodes,)
        Whether a category without a bit (negative, or too large) goes left.
    category : array of int32, shape (n_nodes,)
        Row of ``bits`` for a node that looks up a category, else −1.
    bits : array of uint32, shape (n_sets, n_words)
        Sets of categories that go left; category c is bit c % 32 of word c // 32.
    roots : array of int32, shape (n_trees,)
        First node of each tree; trees are stored one after the other.
    output : array of int32, shape (n_trees,)
        The output that a tree adds to; −1 if its leaves have one value for each.
    baseline : array of float64, shape (n_outputs,)
        Scores before the first tree.
    n_features : int
        Columns of X.
    link : {"identity", "logistic", "softmax", "exp", "shares"}
        From scores to predictions. "shares" are probabilities already.
    divisor : float
        The sum over trees is divided by it: the number of trees in a forest.
    per_stage : int
        Trees of one stage of boosting: tree i belongs to stage i // per_stage.
    single : bool
        Whether rows are rounded to float32 before they are compared.
    """

    feature: Array
    threshold: Array
    left: Array
    right: Array
    value: Array
    missing_left: Array
    other_left: Array
    category: Array
    bits: Array
    roots: Array
    output: Array
    baseline: Array
    n_features: int
    link: str = "identity"
    divisor: float = 1.0
    per_stage: int = 1
    single: bool = False

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            given = np.asarray(getattr(self, name))
            array: Array = np.ascontiguousarray(given, dtype=kind)
            if array.dtype != given.dtype and not np.array_equal(array, given):
                raise ValueError(f"{name} must hold {np.dtype(kind).name}.")
            array = array.view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        _check(self)

    @property
    def n_trees(self) -> int:
        """How many trees."""
        return len(self.roots)

    @property
    def n_outputs(self) -> int:
        """Scores of a row: 1, or one for each class or target."""
        return len(self.baseline)

    @property
    def leaves(self) -> Array:
        """Whether a node is a leaf."""
        return self.feature < 0

    def scores(self, X: Any) -> Array:
        """Sums of leaves, before the link; shape (n_samples, n_outputs).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; categories as their codes; NaN where a value is missing.

        Returns
        -------
        array of float64
        """
        from certus.tree_predicting import scores

        return scores(self, X)

    def apply(self, X: Any) -> Array:
        """The leaf that each row reaches in each tree; shape (n_samples, n_trees).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As for :meth:`scores`.

        Returns
        -------
        array of int32
            Numbers of nodes.
        """
        from certus.tree_predicting import apply

        return apply(self, X)

    def predict(self, X: Any) -> Array:
        """Numbers, shape (n_samples,); or probabilities, shape (n_samples, n_classes).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As for :meth:`scores`.

        Returns
        -------
        array of float64
        """
        from certus.tree_predicting import linked

        return linked(self.link, self.scores(X))

    def stages(self, first: int, last: int) -> TreeEnsemble:
        """The same ensemble with the trees of some stages only.

        Parameters
        ----------
        first, last : int
            Stages ``first`` to ``last − 1``.

        Returns
        -------
        TreeEnsemble
            It shares the nodes with this one.
        """
        some = slice(first * self.per_stage, last * self.per_stage)
        changed = {"roots": self.roots[some], "output": self.output[some]}
        return TreeEnsemble(**{**self.as_dict(), **changed})

    def as_dict(self) -> dict[str, Any]:
        """Names and values of the fields, as the constructor takes them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _check(found: TreeEnsemble) -> None:
    """Refuse arrays that are not trees; compiled code follows them without looking."""
    n = len(found.feature)
    whole = {"feature", "threshold", "left", "right", "missing_left", "other_left"}
    for name in (*sorted(whole), "category"):
        _require(getattr(found, name).shape == (n,), f"{name} must have {n} entries")
    _require(
        found.value.ndim == 2 and len(found.value) == n, f"value must have {n} rows"
    )
    _require(found.bits.ndim == 2, "bits must have one row per set")
    _require(found.baseline.ndim == 1 and found.n_outputs > 0, "baseline is empty")
    trees = found.roots.ndim == 1 and found.output.shape == found.roots.shape
    _require(trees, "roots and output must have one entry per tree")
    inner = np.flatnonzero(found.feature >= 0)
    for side in (found.left[inner], found.right[inner]):
        # A child after its parent: no walk can turn in a circle.
        _require(bool(np.all((side > inner) & (side < n))), "a child is out of place")
    columns = found.feature < found.n_features
    _require(bool(columns.all()), f"a node uses a column beyond {found.n_features}")
    sets = (found.category >= -1) & (found.category < len(found.bits))
    _require(bool(sets.all()), "a node uses a set of categories that is missing")
    roots = (found.roots >= 0) & (found.roots < n)
    _require(bool(roots.all()), "a root is out of place")
    shared = found.value.shape[1] == found.n_outputs
    most = -1 if not len(found.output) else int(found.output.max())
    each = bool(np.all(found.output >= 0)) and found.value.shape[1] == 1
    _require(most < found.n_outputs and (each or shared), "output does not fit value")
    if not each:
        _require(bool(np.all(found.output == -1)), "output must be −1 in every tree")
    _require(found.link in LINKS, f"link must be one of {', '.join(LINKS)}")
    _require(found.divisor > 0 and found.per_stage > 0, "divisor must be positive")
    _require(not np.isnan(found.threshold[inner]).any(), "a threshold is NaN")


def _require(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(f"These arrays do not form tree ensembles: {what}.")
