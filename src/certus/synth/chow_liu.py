"""The tree distribution with the largest likelihood, over columns of cells.

Problem: of all P(x) = P(x_r) ∏ P(x_j | x_parent(j)), maximise Σᵢ log P(xᵢ). The edges
are a maximum spanning tree of the mutual information, found in one pass over pairs.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_number,
    generator_of,
    validate_data,
)
from certus.certificate import Evidence
from certus.generative.trees import TreeLaw, chow_liu
from certus.typing import Array, ArrayLike, RandomState

__all__ = ["ChowLiuTree"]


class ChowLiuTree(Model):
    """The best tree of dependences between columns of categories.

    Objective
    ---------
    max over trees of Σ I(x_j; x_parent(j)), the mutual information of the edges, which
    is the largest likelihood of a tree (Chow and Liu).

    Certificate
    -----------
    ``best_tree`` (PROVED): how much more a best tree has, in nats per row.
    ``tree_tables`` (PROVED): the tables are the smoothed counts of the rows.

    Parameters
    ----------
    smoothing : float, default=0.0
        Rows by which each table is pulled towards the marginal. More keep a cell of one
        or two rows from repeating them.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Attributes
    ----------
    parents_ : ndarray of shape (n_features,)
        The parent of each column, −1 for the root.
    order_ : ndarray of shape (n_features,)
        The columns, each after its parent.
    tables_ : list of ndarray
        P(x_j) of the root, and P(x_j | parent) with a row for each cell of the parent.
    n_cells_ : ndarray of shape (n_features,)
        Cells of each column.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.synth import ChowLiuTree
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 3, 500)
    >>> b = (a + (rng.random(500) < 0.1)) % 3
    >>> X = np.column_stack([a, b, rng.integers(0, 2, 500)])
    >>> tree = ChowLiuTree(random_state=0).fit(X)
    >>> tree.certificate_.met, tree.sample(2).shape
    (True, (2, 3))
    """

    def __init__(
        self, *, smoothing: float = 0.0, random_state: RandomState = None
    ) -> None:
        self.smoothing = smoothing
        self.random_state = random_state

    @certified_fit
    def fit(self, X: ArrayLike, y: object = None) -> Fitted:
        """Count the cells, and keep the best tree.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Cells: whole numbers from 0.
        y : object, default=None
            Not used; accepted for compatibility with scikit-learn.
        """
        check_number("smoothing", self.smoothing)
        codes = self._cells(X, reset=True)
        sizes = (codes.max(axis=0) + 1).tolist()
        law = chow_liu(codes, sizes, float(self.smoothing))
        self.parents_, self.order_, self.tables_ = law
        self.n_cells_ = np.array(sizes)
        return Fitted(Evidence("tree"), codes, None)

    def _cells(self, X: ArrayLike, reset: bool = False) -> Array:
        values = validate_data(self, X, dtype=np.float64, reset=reset)
        if (
            (values < 0).any()
            or (values != np.floor(values)).any()
            or values.max() > 1e6
        ):
            raise ValueError(
                "X must hold the numbers of cells: whole numbers from 0 to 1,000,000."
            )
        return np.asarray(values.astype(np.int64))

    def score_samples(self, X: ArrayLike) -> Array:
        """The log-probability of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Cells; one that the fit never saw has probability zero.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        codes = self._cells(X)
        known = np.asarray((codes < self.n_cells_).all(axis=1))
        found = self._law().log_prob(np.where(known[:, None], codes, 0))
        return np.where(known, found, -np.inf)

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> Array:
        """Draw rows of cells.

        Parameters
        ----------
        n_samples : int, default=1
            Rows.
        random_state : int, RandomState or None, default=None
            Seed or generator of all random numbers. None means that of the tree.

        Returns
        -------
        ndarray of shape (n, n_features)
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        rng = generator_of(self.random_state if random_state is None else random_state)
        return self._law().draw([np.ones((n_samples, k)) for k in self.n_cells_], rng)

    def _law(self) -> TreeLaw:
        return TreeLaw(self.parents_, self.order_, self.tables_)
