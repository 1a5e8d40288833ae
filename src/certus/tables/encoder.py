"""A table to a matrix: numbers, categories, dates and texts become float columns.

The same few rules for every table, visible column by column, learnt from the training
rows only and saved with the model. Standardised columns z = (x − mean)/sd make a
penalty mean the same for each of them.
"""

from __future__ import annotations

import html
import warnings
from collections import Counter
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_consistent_length, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from certus.base import validate_data
from certus.tables.apply import EncodedColumns, encode_column, level_codes, scaled
from certus.tables.errors import TableError, did_you_mean, quoted
from certus.tables.frame import (
    Column,
    Table,
    column_names,
    is_frame,
    table_from_array,
    table_from_frame,
)
from certus.tables.levels import fold_of_rows, target_columns
from certus.tables.matrix import dense_matrix, distinct, sparse_matrix
from certus.tables.plan import (
    ColumnRules,
    Plan,
    add_statistics,
    feature_labels,
    is_used,
    is_wide,
    plan_column,
)
from certus.tables.target import guess_task, read_target
from certus.typing import ArrayLike, MatrixLike

__all__ = ["ColumnView", "TableEncoder"]

_ARRAY_CHECKS: dict[str, Any] = {"dtype": None, "ensure_all_finite": False}

# Below this many columns a dense matrix costs little; above it, a matrix of which
# fewer than a fifth of the entries differ from zero is cheaper to keep sparse.
_WIDE = 100
_DENSITY = 0.2

#: Rows must differ from one another for folds by their cells to be even. Where they do
#: not, a category keeps this many times ``max_categories`` levels instead of averages.
_DISTINCT = 0.5
_WIDER = 10


class ColumnView(NamedTuple):
    """What became of one column of the training table."""

    name: str
    kind: str
    treatment: str
    note: str


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a data frame, or a two-dimensional array, into a float64 matrix.

    ==========  ==============================================================
    column      becomes
    ==========  ==============================================================
    number      itself, standardised; gaps are filled by the median, and a
                0/1 column marks them if there were any in training
    category    (text or a categorical type) one 0/1 column for each of the
                ``max_categories`` most frequent levels, one for all others if
                there are more, one for "missing" if that was seen; with more
                levels and a target, the average target of other rows with the
                same level, shrunk towards that of all rows
    boolean     0 or 1
    date        days since the earliest training date, and since up to 16 later
                ones, at which a trend may bend; month, day of the week and hour;
                season and time of day as sines and cosines, where the training
                rows cover a year, or days
    free text   (several words, mostly distinct) words, pairs of words and runs of
                3 to 5 letters, weighted by rarity; or their leading directions
    ==========  ==============================================================

    Left out, with a note: constant and empty columns, and identifiers: single words
    with nearly one value per row, and whole numbers with one value per row in a column
    named like an identifier. To keep text as categories, cast it to a categorical type;
    to keep a number, rename it.

    Parameters
    ----------
    scale : bool, default=True
        Bring numbers and parts of dates to mean 0 and standard deviation 1 on the
        training rows, so that a penalty treats them alike whatever their units. The 0/1
        columns stay as they are.
    max_categories : int or None, default=30
        Levels that get a column of their own, the most frequent first, ties in
        alphabetical order; None for all of them. With more levels and a target, average
        targets take their place.
    sparse_output : bool or "auto", default="auto"
        "auto" gives a CSR matrix if there are 100 output columns or more and at
        most a fifth of the entries can differ from zero, decided in ``fit``.
    text : {"ngrams", "components", "drop"}, default="ngrams"
        What becomes of free text: sparse columns for its terms, which suit linear
        models; 30 dense ones for their leading singular directions; or nothing.

    Attributes
    ----------
    columns_ : list of ColumnView
        Name, kind, treatment and note of each column of the training table.
    notes_ : list of str
        The remarks among them, one sentence each.
    plans_ : list of dict
        What was learnt, in plain types.
    sparse_ : bool
        Whether ``transform`` gives a sparse matrix.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    At ``transform``, named columns may come in any order; columns unknown in training
    are ignored, and so are columns that were left out. A level not seen in training
    goes to the column of the others if there is one, and else to none. :meth:`check`
    says which of this would happen to a frame.

    Average targets leak nothing: a hash of its cells, which needs no target, puts each
    row into one of ten folds, and it gets the averages of the nine others. New rows are
    treated in the same way, so that ``transform`` of the training rows gives the matrix
    that the model was fitted on.

    With ``sample_weight``, rows of weight zero are not looked at, and the median, mean,
    standard deviation and counts of levels are those of repeated rows.

    Examples
    --------
    >>> import polars as pl
    >>> from certus.tables import TableEncoder
    >>> frame = pl.DataFrame({"rooms": [1, 2, None], "town": ["Bath", "York", "Bath"]})
    >>> encoder = TableEncoder(scale=False).fit(frame)
    >>> encoder.get_feature_names_out().tolist()
    ['rooms', 'rooms (missing)', 'town=Bath', 'town=York']
    >>> encoder.transform(frame)[2].tolist()
    [1.5, 1.0, 1.0, 0.0]
    >>> encoder.check(pl.DataFrame({"town": ["Rome"], "rooms": [3]}))
    ['"town" has 1 row with a category not seen in training ("Rome"): encoded as none
    of the known categories.']
    """

    def __init__(
        self,
        *,
        scale: bool = True,
        max_categories: int | None = 30,
        sparse_output: bool | str = "auto",
        text: str = "ngrams",
    ) -> None:
        self.scale = scale
        self.max_categories = max_categories
        self.sparse_output = sparse_output
        self.text = text

    # --- fitting --------------------------------------------------------------

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None
    ) -> Self:
        """Learn how each column is encoded.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
            The training table.
        y : series or array of shape (n_samples,), optional
            Labels or amounts, which categories with many levels are averaged over.
        sample_weight : array of shape (n_samples,), optional
            Row weights. They are not negative. An integer weight equals repetition.

        Returns
        -------
        TableEncoder
            Itself.
        """
        self._learn(X, y, sample_weight)
        return self

    def fit_transform(
        self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None
    ) -> Any:
        """Fit to a table and return its matrix; reads the table only once.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_outputs)
        """
        return self._assemble(self._learn(X, y, sample_weight), [])

    def _learn(
        self, X: MatrixLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> Table:
        self._check_params()
        table = self._read_training_table(X)
        weight = _checked_weight(sample_weight, table.height)
        columns = table.columns
        if weight is not None and not weight.all():
            positive = pl.Series(weight > 0)
            columns = [c._replace(values=c.values.filter(positive)) for c in columns]
            y = None if y is None else read_target(y)[0][weight > 0]
            weight = weight[weight > 0]
        if len(columns[0].values) < 2:
            raise TableError(
                "A table needs at least 2 rows to learn from, got n_samples = 1."
            )
        rules = ColumnRules(self.scale, self.max_categories, self.text, y is not None)
        self.plans_ = [plan_column(column, weight, rules) for column in columns]
        if y is not None and any("statistics" in plan for plan in self.plans_):
            self._average(columns, y, weight, rules)
        self.notes_ = [plan["note"] for plan in self.plans_ if plan["note"]]
        if not self._used():
            raise TableError("No column can be used. " + " ".join(self.notes_[:5]))
        self.sparse_ = self._choose_sparse()
        return table

    def _average(
        self,
        columns: list[Column],
        y: ArrayLike,
        weight: Any | None,
        rules: ColumnRules,
    ) -> None:
        """Average the target over the levels of categories that have many."""
        target = np.asarray(read_target(y)[0])
        check_consistent_length(target, columns[0].values)
        used = [(p, c) for p, c in zip(self.plans_, columns) if is_used(p)]
        keys = [encode_column(plan, column, []).keys for plan, column in used]
        folds, share = fold_of_rows(keys)
        T, names = target_columns(target, guess_task(target) == "classification")
        for at, (plan, column) in enumerate(zip(self.plans_, columns)):
            if "statistics" not in plan:
                continue
            if share < _DISTINCT or target.ndim > 1:
                limit = _WIDER * (rules.max_categories or 1)
                wider = rules._replace(max_categories=limit, averages=False)
                self.plans_[at] = plan_column(column, weight, wider)
                continue
            codes = level_codes(plan, column.values.cast(pl.String), [])
            self.plans_[at] = add_statistics(plan, codes, folds, T, names, weight)

    def _check_params(self) -> None:
        limit = self.max_categories
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 1):
            raise ValueError(
                f"max_categories must be a positive integer or None, got {limit!r}."
            )
        if self.sparse_output not in (True, False, "auto"):
            raise ValueError(
                f'sparse_output must be True, False or "auto", '
                f"got {self.sparse_output!r}."
            )
        if self.text not in ("ngrams", "components", "drop"):
            raise ValueError(
                f"text must be 'ngrams', 'components' or 'drop', got {self.text!r}."
            )

    def _read_training_table(self, X: MatrixLike) -> Table:
        if not is_frame(X):
            array = validate_data(self, _keep_types(X), **_ARRAY_CHECKS)
            names = [f"x{i}" for i in range(array.shape[1])]
            self.named_ = False
            return table_from_array(array, names)
        table = table_from_frame(X)
        width = len(table.columns)
        if width == 0 or table.height == 0:
            what = "feature(s)" if width == 0 else "sample(s)"
            raise TableError(
                f"Found a table with 0 {what} (shape=({table.height}, {width})) "
                "while a minimum of 1 is required."
            )
        self.named_ = True
        self.n_features_in_ = width
        names = [column.name for column in table.columns]
        self.feature_names_in_ = np.array(names, dtype=object)
        return table

    def _used(self) -> list[Plan]:
        return [plan for plan in self.plans_ if is_used(plan)]

    def _choose_sparse(self) -> bool:
        if self.sparse_output != "auto":
            return bool(self.sparse_output)
        plans = self._used()
        if any("blocks" in p and "directions" not in p for p in plans):
            return True
        widths = [len(feature_labels(plan)) for plan in plans]
        filled = [1 if is_wide(p) else w for p, w in zip(plans, widths)]
        return sum(widths) >= _WIDE and sum(filled) <= _DENSITY * sum(widths)

    # --- applying -------------------------------------------------------------

    def transform(self, X: MatrixLike) -> Any:
        """Encode a table with the columns of the training table, in any order.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
            The table; an array is matched by position.

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_outputs)
        """
        check_is_fitted(self)
        return self._assemble(self._match(X, []), [])

    def check(self, X: MatrixLike) -> list[str]:
        """Say what ``transform`` would ignore, fill or convert in a table.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)

        Returns
        -------
        list of str
            One sentence per remark; empty if the table is like the training table.
        """
        check_is_fitted(self)
        remarks: list[str] = []
        table = self._match(X, remarks)
        self._encode(table, remarks)
        return remarks

    def unseen(self, X: MatrixLike) -> list[str]:
        """Say for each row what the training table had nothing like.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)

        Returns
        -------
        list of str
            One text for each row, empty where nothing is new. Numbers beyond those of
            training, new categories, and gaps where there were none are named.

        Examples
        --------
        >>> import polars as pl
        >>> from certus.tables import TableEncoder
        >>> frame = pl.DataFrame({"rooms": [1, 2, 5], "town": ["Bath", "York", "Bath"]})
        >>> new = pl.DataFrame({"rooms": [3, 9], "town": ["York", "Rome"]})
        >>> TableEncoder().fit(frame).unseen(new)
        ['', 'rooms = 9 is above 5; town = "Rome" is new']
        """
        from certus.tables.unseen import unseen_by_row

        plans, encoded = self._encoded_one_by_one(X)
        return unseen_by_row(plans, encoded, len(encoded[0].cells))

    def cells(self, X: MatrixLike) -> tuple[list[Plan], list[Any]]:
        """Plans of the columns that are used, and their cells in a table.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)

        Returns
        -------
        plans : list of dict
        cells : list of ndarray or polars.Series
            Numbers, with NaN for gaps, and days since 1970 for dates; or text.
        """
        plans, encoded = self._encoded_one_by_one(X)
        return plans, [columns.cells for columns in encoded]

    def _encoded_one_by_one(
        self, X: MatrixLike
    ) -> tuple[list[Plan], list[EncodedColumns]]:
        check_is_fitted(self)
        table = self._match(X, [])
        found = {column.name: column for column in table.columns}
        plans = self._used()
        return plans, [encode_column(p, found[p["name"]], []) for p in plans]

    def _match(self, X: MatrixLike, remarks: list[str]) -> Table:
        """Bring the columns of a table into the order of training."""
        names = [plan["name"] for plan in self.plans_]
        if not is_frame(X):
            array = validate_data(self, _keep_types(X), reset=False, **_ARRAY_CHECKS)
            return table_from_array(array, names)
        present = column_names(X)
        used = [plan["name"] for plan in self._used()]
        table = table_from_frame(X, used if self.named_ else None)
        if table.height == 0:
            raise TableError(
                f"Found a table with 0 sample(s) (shape=(0, {len(present)})) "
                "while a minimum of 1 is required."
            )
        if not self.named_:
            return self._match_by_position(table, names)
        found = {column.name: column for column in table.columns}
        extra = [name for name in present if name not in set(names)]
        for name in used:
            if name not in found:
                hint = did_you_mean(name, extra) or " Add it, or refit without it."
                raise TableError(
                    f'The table has no column "{name}", which the model was fitted on.'
                    f"{hint}"
                )
        if extra:
            word = "column" if len(extra) == 1 else "columns"
            remarks.append(f"Ignored {word} not seen in training: {quoted(extra)}.")
        ordered = [found[name] for name in names if name in found]
        return Table(ordered, True, table.height)

    def _match_by_position(self, table: Table, names: list[str]) -> Table:
        width = len(table.columns)
        if width != self.n_features_in_:
            raise TableError(
                f"X has {width} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        warnings.warn(
            f"X has feature names, but {type(self).__name__} was fitted without "
            "feature names",
            UserWarning,
            stacklevel=4,
        )
        columns = [c._replace(name=name) for c, name in zip(table.columns, names)]
        return Table(columns, True, table.height)

    def _encode(self, table: Table, remarks: list[str]) -> list[EncodedColumns]:
        found = {column.name: column for column in table.columns}
        plans = self._used()
        encoded = [encode_column(plan, found[plan["name"]], remarks) for plan in plans]
        tables = [plan["statistics"] for plan in plans if "statistics" in plan]
        if not tables:
            return encoded
        keys = [columns.keys for columns in encoded]
        folds, _ = fold_of_rows(keys, len(tables[0]))
        return [
            _averages(plan, columns, folds) if "statistics" in plan else columns
            for plan, columns in zip(plans, encoded)
        ]

    def _assemble(self, table: Table, remarks: list[str]) -> Any:
        encoded = self._encode(table, remarks)
        widths = [len(feature_labels(plan)) for plan in self._used()]
        build = sparse_matrix if self.sparse_ else dense_matrix
        return build(encoded, widths, table.height)

    # --- looking at it --------------------------------------------------------

    @property
    def has_text_(self) -> bool:
        """Whether a column of free text is used."""
        check_is_fitted(self)
        return any("blocks" in plan for plan in self.plans_)

    @property
    def columns_(self) -> list[ColumnView]:
        """What became of each column of the training table."""
        check_is_fitted(self)
        return [
            ColumnView(p["name"], p["kind"], p["treatment"], p["note"])
            for p in self.plans_
        ]

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the output columns, such as ``rooms`` or ``town=Bath``.

        Parameters
        ----------
        input_features : array of str, optional
            Names for the columns of a training table that had none.

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self)
        plans = self.plans_
        if input_features is not None:
            given = [str(name) for name in input_features]
            if self.named_ and given != [plan["name"] for plan in plans]:
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(given) != len(plans):
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({len(plans)}), got {len(given)}"
                )
            plans = [plan | {"name": name} for plan, name in zip(plans, given)]
        labels = [
            label for plan in plans if is_used(plan) for label in feature_labels(plan)
        ]
        return np.array(distinct(labels), dtype=object)

    def summary(self) -> str:
        """Count the columns by kind, in one line.

        Returns
        -------
        str
            For example ``"9 numbers, 1 category; 2 columns have gaps"``.
        """
        check_is_fitted(self)
        plural = {"category": "categories"}
        counts = Counter(plan["kind"] for plan in self._used())
        parts = [
            f"{count:,} {kind if count == 1 else plural.get(kind, kind + 's')}"
            for kind in ("number", "category", "boolean", "date", "text")
            if (count := counts[kind])
        ]
        text = ", ".join(parts)
        gaps = sum(bool(plan["missing"]) for plan in self._used())
        if gaps:
            text += f"; {gaps:,} column{'s have' if gaps > 1 else ' has'} gaps"
        aside = [plan["name"] for plan in self.plans_ if not is_used(plan)]
        return text + (f"; not used: {quoted(aside)}" if aside else "")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        params = ", ".join(
            f"{name}={value!r}" for name, value in self.get_params(False).items()
        )
        return f"{type(self).__name__}({params})"

    def __str__(self) -> str:
        if not hasattr(self, "plans_"):
            return repr(self)
        views = self.columns_
        wide = min(max(len(view.name) for view in views), 30)
        lines = [f"{v.name:<{wide}}  {v.kind:<10}  {v.treatment}" for v in views]
        return "\n".join([repr(self), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        diagram = str(estimator_html_repr(self))
        if not hasattr(self, "plans_"):
            return diagram
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in view) + "</tr>"
            for view in self.columns_
        )
        head = "".join(f"<th>{title}</th>" for title in ColumnView._fields)
        return (
            f"{diagram}<details open><summary>{html.escape(self.summary())}</summary>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            "</details>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _averages(plan: Plan, columns: EncodedColumns, folds: Any) -> EncodedColumns:
    """The average targets of the levels, over the folds that a row is not in."""
    known = np.zeros(len(folds), dtype=bool)
    table = plan["statistics"]
    return EncodedColumns(
        [
            scaled(plan, part, table[folds, columns.codes, part["at"]], known)
            for part in plan["parts"]
        ]
    )


def _keep_types(X: MatrixLike) -> Any:
    """Nested lists as objects: NumPy would turn [1, "a"] into two strings."""
    if not isinstance(X, list | tuple):
        return X
    array = np.array(X, dtype=object)
    if array.ndim == 1 and any(isinstance(row, list | tuple) for row in X):
        raise TableError("The rows of the table differ in length.")
    return array


def _checked_weight(sample_weight: ArrayLike | None, n: int) -> Any | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    check_consistent_length(weight, np.empty(n))
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("Sample weights must be finite and not negative.")
    if not weight.any():
        raise ValueError("Sample weights must not be all zero: no row would count.")
    return weight
