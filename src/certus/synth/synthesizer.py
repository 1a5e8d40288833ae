"""Learn a table of mixed columns, and draw rows like it.

Columns become levels in [0, 1] (``levels``), a generator learns rows of levels
(``models``), and levels become cells again. Each row is put among the training rows by
a coin of its own; the others are held out and used for one thing only, to say what the
synthetic rows are worth (:func:`certus.generative.examine`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import polars as pl
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Model,
    check_choice,
    check_number,
    generator_of,
)
from certus.certificate import Certificate, Claim, Status
from certus.generative import Examination, examine
from certus.generative.row_tables import plain_table
from certus.synth.chow_liu import ChowLiuTree
from certus.synth.conditions import box_of, boxes_of_gaps, keep_given
from certus.synth.levels import Plan, encode, place_of
from certus.synth.models import MODELS, generator_from
from certus.synth.private import private_tree
from certus.synth.soundness import require_sound
from certus.synth.steps import (
    compared,
    comparison_row,
    complain_of_copies,
    draw_until,
    form_of,
    frame_from,
    frame_of,
    halves,
    is_baseline,
    learn_levels,
    left_out,
    native,
    nothing_held_out,
    rank,
    rows_of,
)
from certus.tables.errors import TableError, did_you_mean
from certus.tables.frame import Table
from certus.typing import Array, RandomState
from certus.verify import privacy_claims

__all__ = ["TableSynthesizer"]

#: Rows from which on half are held out; below, three tenths.
_MANY = 2_000


class TableSynthesizer(Model):
    """Rows like those of a table, with what they are worth.

    Numbers, whole numbers, labels, booleans and dates may have gaps; zeros and caps
    that many rows share stay exact, rare labels share what is learnt about them, and
    identifiers become running numbers.

    Objective
    ---------
    That of the generator. "tree" is the tree of dependences between cells with the
    largest likelihood. "copula" correlates normal scores. "autoregressive" learns each
    column's cells given those before it, by networks that start at the tree. "flow" and
    "diffusion" learn normal scores. "cart" draws each column from a leaf of a tree on
    those before it and repeats training rows: a baseline that "auto" shows and never
    chooses. "auto" fits all and keeps the one whose rows a classifier tells least from
    held-out rows, among those that are not flagged as copies; without PyTorch it leaves
    out the networks.

    Certificate
    -----------
    The claims of :func:`certus.generative.examine` about as many rows as there are
    training rows, ``memorised`` first; for a tree also ``best_tree``. With ``epsilon``
    instead ``privacy_budget`` and ``released`` (PROVED).

    Parameters
    ----------
    model : {"auto", "tree", "copula", "autoregressive", "flow", "diffusion", "cart"}, \
default="auto"
        Which generator.
    target : str or None, default=None
        Column to predict, for the claim ``useful``.
    validation_fraction : float or None, default=None
        Share of the rows that is held out. None means one half of 2,000 rows or more,
        and three tenths of fewer; 0 holds out none, and nothing is claimed.
    epsilon : float or None, default=None
        Budget of differential privacy. With one, the tree is learnt from all rows
        through noisy counts, nothing else that was computed from them is kept, and
        ``random_state`` must be None: whoever knows the seed can subtract the noise.
    domains : dict or None, default=None
        For ``epsilon``: (low, high) of a number, days since 1970 for a date, and a list
        of labels. What is not given is found and paid from the budget, labels with a δ
        of 1e-6. It must not have been read off the data.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. Models that
        are compared share it.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Attributes
    ----------
    model_ : str
        The generator that was kept.
    examination_ : Examination or None
        What its rows are worth; ``examined_`` holds the same as a dict.
    comparison_ : list of dict
        For each generator: its name, ``flagged``, ``told_apart_auc``, ``shapes``,
        ``nearest_share``, ``copies``, ``synthetic_score`` and ``seconds``.
    flagged_ : bool
        Whether every generator was flagged as a copier.
    columns_ : list of dict
        What was learnt of each column.
    state_ : dict
        The arrays of the generator.
    notes_ : list of str
        What you should know about some columns.
    n_rows_ : int or None
        Training rows; None with ``epsilon``.
    held_out_ : ndarray of bool or None
        Which rows of the table were held out; None with ``epsilon``.
    spent_ : list of dict
        With ``epsilon``: each step that read the rows, and what it cost.
    form_ : {"pandas", "polars", "array"}
        What the table was.

    Examples
    --------
    >>> import polars as pl
    >>> from certus.synth import TableSynthesizer
    >>> from certus.tables import load_example
    >>> table, _ = load_example()
    >>> model = TableSynthesizer("tree", random_state=0).fit(table)
    >>> model.sample(3, given={"age": (40, 50)}).columns == table.columns
    True
    >>> model.examination_.copies
    0
    """

    def __init__(
        self,
        model: str = "auto",
        *,
        target: str | None = None,
        validation_fraction: float | None = None,
        epsilon: float | None = None,
        domains: Mapping[str, Any] | None = None,
        delta: float = 0.05,
        random_state: RandomState = None,
    ) -> None:
        self.model = model
        self.target = target
        self.validation_fraction = validation_fraction
        self.epsilon = epsilon
        self.domains = domains
        self.delta = delta
        self.random_state = random_state

    def fit(self, table: Any, y: object = None) -> Self:
        """Learn from a table.

        Parameters
        ----------
        table : frame, array or path
            At least ten rows.
        y : object, default=None
            Not used; accepted for compatibility with scikit-learn.
        """
        start = time.perf_counter()
        check_choice("model", self.model, ("auto", *MODELS))
        check_number("delta", self.delta, 0.0, 0.5, open_low=True)
        check_number(
            "validation_fraction", self.validation_fraction, 0.0, 0.9, none=True
        )
        check_number("epsilon", self.epsilon, 0.0, open_low=True, none=True)
        read = plain_table(table)
        if self.epsilon is not None:
            return self._fit_private(read, table)
        if read.height < 10:
            raise ValueError(f"table must have at least 10 rows, got {read.height}.")
        rng = generator_of(self.random_state)
        share = self._held_share(read.height)
        inside = rng.random(read.height) >= share  # a coin for each row
        if share > 0 and not 2 <= inside.sum() <= read.height - 2:
            raise ValueError(
                f"validation_fraction={share!r} leaves too few rows on one side."
            )
        names = compared() if self.model == "auto" else [self.model]
        if self.model == "auto" and not share:
            raise ValueError(
                'model="auto" needs held-out rows; set validation_fraction above 0.'
            )
        self.form_ = form_of(table)
        self._choose(read, inside, names, 1 - share, rng)
        self.n_rows_: int | None = int(inside.sum())
        self.held_out_: Array | None = ~inside
        self.certificate_ = self._signed(read, inside, time.perf_counter() - start)
        return self

    def _fit_private(self, read: Table, table: Any) -> Self:
        """Learn a tree from noisy counts, and keep nothing else of the rows."""
        if self.random_state is not None:
            raise ValueError(
                "random_state must be None with epsilon: whoever knows the seed can "
                "subtract the noise."
            )
        if self.model not in ("auto", "tree"):
            raise ValueError(f'epsilon needs model="tree", got {self.model!r}.')
        names = [column.name for column in read.columns]
        for name in self.domains or {}:
            if name not in names:
                hint = did_you_mean(str(name), names)
                raise TableError(
                    f'domains names "{name}", which is not a column.{hint}'
                )
        found = private_tree(
            read, float(self.epsilon or 0), self.domains or {}, np.random.default_rng()
        )
        self.columns_, self.state_, self.spent_ = found
        self.model_, self.form_, self.flagged_ = "tree", form_of(table), False
        self.comparison_: list[dict[str, Any]] = []
        self.examined_: dict[str, Any] | None = None
        self.notes_: list[str] = []
        self.n_rows_, self.held_out_ = None, None
        claims = privacy_claims(
            float(self.epsilon or 0),
            *(self.spent_, self.columns_, self.state_, self.domains or {}),
        )
        status = Status.SOLVED if all(c.met for c in claims) else Status.TOL_NOT_REACHED
        marks = {"shape": [0, len(names)], "dtype": "table"}
        self.certificate_ = Certificate.of(self, (list(claims), status, marks))
        return self

    def _choose(
        self,
        read: Table,
        inside: Array,
        names: list[str],
        coin: float,
        rng: np.random.Generator,
    ) -> None:
        """Fit each generator, examine its rows, and keep the best."""
        train = rows_of(read, inside)
        found: list[Any] = []
        for name in names:
            begin = time.perf_counter()
            plans, state = learn_levels(train, name, rng)
            made = frame_of(
                plans, generator_from(name, state).sample(train.height, rng)
            )
            seconds = time.perf_counter() - begin
            result = None
            if coin < 1:
                parts = halves(read, inside, plans, {})
                result = self._examine(parts, made, plans, coin, len(names), rng)
            found.append((name, plans, state, result, seconds))
        self.comparison_ = [
            comparison_row(*(f[0], *f[3:])) for f in found if f[3] is not None
        ]
        choice = [f for f in found if not is_baseline(f[0])] or found
        best = min(choice, key=rank)
        self.model_, self.columns_, self.state_, result, _ = best
        self.examined_ = None if result is None else result.to_dict()
        self.flagged_ = all(f[3] is not None and f[3].flagged for f in choice)
        self.notes_ = [
            f'"{plan["name"]}" has one value per row and is numbered.'
            for plan in self.columns_
            if plan["kind"] == "identifier"
        ]
        if self.model == "auto":
            self.notes_ += left_out()
        if self.flagged_:
            complain_of_copies(names)

    @property
    def examination_(self) -> Examination | None:
        """What the rows are worth; None if no rows were held out."""
        check_is_fitted(self)
        if self.examined_ is None:
            return None
        return Examination.from_dict(self.examined_)

    def _examine(
        self,
        parts: tuple[pl.DataFrame, pl.DataFrame],
        made: pl.DataFrame,
        plans: list[Plan],
        coin: float,
        models: int,
        rng: np.random.Generator,
    ) -> Examination:
        kept = [p["name"] for p in plans if p["kind"] != "identifier"]
        if not kept:
            raise ValueError("table must have a column that is not an identifier.")
        target = self.target if self.target in (None, *kept) else str(self.target)
        return examine(
            *(part.select(kept) for part in (*parts, made)),
            target=target,
            coin=coin,
            delta=self.delta / models,
            random_state=rng,
        )

    def examine(
        self,
        table: Any,
        synthetic: Any,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: RandomState = None,
    ) -> Examination:
        """Say what rows are worth that were drawn, before they are handed out.

        ``examination_`` is about other draws of the same generator, made by ``fit``.

        Parameters
        ----------
        table : frame, array or path
            The table of the fit, with its rows in the same order.
        synthetic : frame, array or path
            Rows from :meth:`sample`.
        given : dict, optional
            The conditions under which they were drawn. They are compared with the rows
            of the table that meet them, or with all if fewer than 20 training rows or
            held-out rows do.
        random_state : int, RandomState or None, default=None
            Seed or generator of all random numbers. None means that of the model.

        Returns
        -------
        Examination
        """
        check_is_fitted(self)
        if self.held_out_ is None or not self.held_out_.any():
            raise ValueError(
                "no rows were held out, so these rows cannot be examined. Set "
                "validation_fraction=0.3 and no epsilon, or pass held-out rows of your "
                "own to certus.generative.examine."
            )
        read, made = plain_table(table), frame_from(plain_table(synthetic))
        names = [plan["name"] for plan in self.columns_]
        have = [column.name for column in read.columns]
        if have != names or read.height != len(self.held_out_):
            raise TableError(
                f"table must be that of the fit, with {len(self.held_out_):,} rows and "
                f"the same columns, got {read.height:,} rows × {len(have):,} columns."
            )
        if missing := [name for name in names if name not in made.columns]:
            raise TableError(f'synthetic must have a column "{missing[0]}".')
        box_of(self.columns_, given or {})  # complains of unknown columns and values
        parts = halves(read, ~self.held_out_, self.columns_, given or {})
        rng = generator_of(self.random_state if random_state is None else random_state)
        coin = 1 - self._held_share(read.height)
        return self._examine(parts, made, self.columns_, coin, 1, rng)

    def _held_share(self, n: int) -> float:
        """The probability of a row to be held out."""
        if self.validation_fraction is not None:
            return float(self.validation_fraction)
        return 0.5 if n >= _MANY else 0.3

    def _signed(self, read: Table, inside: Array, seconds: float) -> Certificate:
        claims: list[Claim] = []
        if self.examination_ is not None:
            claims += self.examination_.claims
        if self.model_ == "tree":
            claims += self._tree_claims(rows_of(read, inside))
        if not claims:
            claims.append(nothing_held_out())
        marks = {"shape": [self.n_rows_, len(read.columns)], "dtype": "table"}
        status = Status.TOL_NOT_REACHED if claims[0].met is False else Status.SOLVED
        status = Status.UNDECIDED if claims[0].met is None else status
        return Certificate.of(self, (claims, status, marks), fit_seconds=seconds)

    def _tree_claims(self, train: Table) -> tuple[Claim, ...]:
        """What the verifier says about the tree, on cells that are computed again."""
        tree, rng = ChowLiuTree(smoothing=self.state_["smoothing"]), generator_of(0)
        codes = np.column_stack(
            [
                place_of(plan["edges"], encode(plan, column, rng))
                for plan, column in zip(self.columns_, train.columns)
            ]
        )
        tree.fit(codes)
        found: Certificate = tree.certificate_
        return found.claims

    def sample(
        self,
        n_samples: int = 1,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: RandomState = None,
    ) -> Any:
        """Draw rows.

        Parameters
        ----------
        n_samples : int, default=1
            Rows.
        given : dict, optional
            Conditions: a value, or (low, high) for numbers and dates. Trees, copulas
            and autoregressive models draw from the conditional distribution, or nearly;
            others draw until enough rows fit.
        random_state : int, RandomState or None, default=None
            Seed or generator of all random numbers. None means that of the model.

        Returns
        -------
        frame or array
            Of the kind that the model was fitted to.
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        rng = generator_of(self.random_state if random_state is None else random_state)
        require_sound(self.model_, self.columns_, self.state_)
        model = generator_from(self.model_, self.state_)
        low, high = box_of(self.columns_, given or {})
        if not given:
            U = model.sample(n_samples, rng)
        elif hasattr(model, "complete"):
            U = model.complete(
                np.tile(low, (n_samples, 1)), np.tile(high, (n_samples, 1)), rng
            )
        else:
            U = draw_until(model, n_samples, low, high, rng)
        frame = keep_given(frame_of(self.columns_, U), self.columns_, given or {})
        return native(frame, self.form_)

    def impute(self, table: Any, *, random_state: RandomState = None) -> Any:
        """Fill gaps by draws from the distribution of a row, given its other cells.

        Parameters
        ----------
        table : frame, array or path
            With the columns of the fit, in any order.
        random_state : int, RandomState or None, default=None
            Seed or generator of all random numbers. None means that of the model.

        Returns
        -------
        frame or array
            Of the kind that was passed; known cells stay as they are.
        """
        check_is_fitted(self)
        require_sound(self.model_, self.columns_, self.state_)
        model = generator_from(self.model_, self.state_)
        if not hasattr(model, "complete"):
            raise NotImplementedError(
                f'model="{self.model_}" cannot fill gaps; use "tree", "copula" or '
                '"autoregressive".'
            )
        rng = generator_of(self.random_state if random_state is None else random_state)
        read = plain_table(table)
        low, high, gaps, order = boxes_of_gaps(self.columns_, read)
        drawn = frame_of(self.columns_, model.complete(low, high, rng))
        parts = []
        for column in read.columns:
            j = order[column.name]
            new = drawn[column.name].cast(column.values.dtype, strict=False)
            filled = pl.Series(column.name, column.values).zip_with(
                pl.Series(~gaps[:, j]), new
            )
            parts.append(filled)
        return native(pl.DataFrame(parts), form_of(table))
