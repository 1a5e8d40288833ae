"""The result of ``certus.explain``: contributions, their base, and the certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.certificate import Certificate
from certus.results import TableResult
from certus.typing import Array, MatrixLike
from certus.wording import number

__all__ = ["Contributions"]


@dataclass(frozen=True)
class Contributions(TableResult):
    """What each column contributed to each prediction; from :func:`certus.explain`.

    Attributes
    ----------
    columns, outputs : tuple of str
        Names of the columns, and of the outputs of the model: one output for numbers
        and for two classes, else one for each class.
    unit : str
        Unit of the base value, the contributions and the predictions.
    base : ndarray of shape (n_outputs,)
        The mean output of the model for the background rows.
    values : ndarray of shape (n_rows, n_columns, n_outputs)
        The contributions. With ``base`` they add up to ``predictions``.
    predictions : ndarray of shape (n_rows, n_outputs)
        The outputs of the model for the rows.
    low, high : ndarray or None
        Ends of the intervals of ``values``, if orders were sampled.
    background : int
        Number of background rows.
    way : str
        How the contributions were computed.
    certificate : Certificate
        What was checked about the contributions.

    Examples
    --------
    >>> import certus
    >>> from certus.linear_model import Ridge
    >>> model = Ridge(alpha=0.0).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [1, 0, 3])
    >>> found = certus.explain(model, [[2.0, 2.0]], background=[[0.0, 0.0]])
    >>> print(found)
    1 row, 2 columns: base value -0.333 (1 background row), prediction 3
    """

    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    unit: str
    base: Array
    values: Array
    predictions: Array
    low: Array | None
    high: Array | None
    background: int
    way: str
    certificate: Certificate
    cells: tuple[Sequence[Any], ...] = field(default=(), repr=False)
    told: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.verdict

    @property
    def verdict(self) -> str:
        """The size and the range of the predictions, in a sentence."""
        n, d, _ = self.values.shape
        rows = f"{n:,} row{'s' * (n != 1)}, {d:,} column{'s' * (d != 1)}"
        behind = f"{self.background:,} background row{'s' * (self.background != 1)}"
        if len(self.outputs) > 1:
            return f"{rows}, {len(self.outputs)} outputs, {behind}"
        low, high = float(self.predictions.min()), float(self.predictions.max())
        base, ends = number(float(self.base[0])), f"{number(low)} to {number(high)}"
        ends = f"prediction {number(low)}" if n == 1 else f"predictions {ends}"
        return f"{rows}: base value {base} ({behind}), {ends}"

    @property
    def notes(self) -> tuple[str, ...]:
        """How the contributions were computed, and what was checked."""
        claim = self.certificate[self.certificate.primary]
        return (f"{self.unit}; {self.way}", f"{claim.mark} {claim.detail}")

    def output(self, name: str | int | None = None) -> int:
        """The number of an output, by its name or number.

        Parameters
        ----------
        name : str or int, optional
            By default the last output: the only one, or that of the last class.
        """
        if name is None:
            return len(self.outputs) - 1
        if str(name) in self.outputs:
            return self.outputs.index(str(name))
        if isinstance(name, int) and 0 <= name < len(self.outputs):
            return name
        raise ValueError(
            f"output must be one of {', '.join(self.outputs)}, got {name!r}."
        )

    def top(self, row: int | None = None, output: str | int | None = None) -> list[str]:
        """The columns by the size of their contributions, the largest first.

        Parameters
        ----------
        row : int, optional
            A row; by default the mean size over all rows.
        output : str or int, optional
            Which output, by name or number; by default the last.
        """
        part = np.abs(self.values[:, :, self.output(output)])
        size = part.mean(axis=0) if row is None else part[self._row(row)]
        return [self.columns[j] for j in np.argsort(-size, kind="stable")]

    def _row(self, row: int) -> int:
        n = len(self.values)
        if not -n <= row < n:
            raise ValueError(f"row must be a number from 0 to {n - 1}, got {row!r}.")
        return range(n)[row]

    def _columns(self) -> Mapping[str, Any]:
        """One line for each row, column and output."""
        n, d, k = self.values.shape
        shown = {
            "row": np.repeat(np.arange(n), d * k),
            "output": list(self.outputs) * (n * d),
            "column": np.tile(np.repeat(np.array(self.columns, object), k), n),
            "value": [
                str(self.cells[j][i]) if self.cells else ""
                for i in range(n)
                for j in range(d)
                for _ in range(k)
            ],
            "contribution": self.values.ravel(),
        }
        if k == 1:
            del shown["output"]
        if self.low is not None and self.high is not None:
            shown |= {"low": self.low.ravel(), "high": self.high.ravel()}
        return {key: list(part) for key, part in shown.items()}

    def _table(self) -> Iterable[Sequence[str]]:
        """In a notebook: the columns by their mean size, with a row's contributions."""
        k = self.output()
        yield "column", "mean size", "least", "most"
        for name in self.top():
            part = self.values[:, self.columns.index(name), k]
            numbers = (np.abs(part).mean(), part.min(), part.max())
            yield name, *[number(float(value)) for value in numbers]

    def certify(
        self,
        model: Any,
        X: MatrixLike,
        background: MatrixLike | None = None,
        *,
        level: str = "quick",
        tol: float | None = None,
    ) -> Certificate:
        """Check the contributions again, for the model, rows and background you pass.

        Parameters
        ----------
        model : fitted estimator
            The model that was explained.
        X, background : data frame or array
            The rows and the background rows of the explanation.
        level : {"quick", "full"}, default="quick"
            How many rows are compared with the definition.
        tol : float, optional
            As in :func:`certus.explain`.
        """
        from certus.explanations.explaining import recheck

        return recheck(self.told, model, X, background, tol, level)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: str | None = None,
        row: int = 0,
        column: str | None = None,
        output: str | int | None = None,
    ) -> Any:
        """Draw the contributions.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.
        kind : {"waterfall", "beeswarm", "dependence", "shape"}, optional
            "waterfall" shows one row, from the base value to its prediction; "beeswarm"
            all rows, column by column; "dependence" the values of one column against
            its contributions; "shape" adds a line through the means of neighbouring
            values. By default a waterfall for one row, else a beeswarm.
        row : int, default=0
            The row of a waterfall.
        column : str, optional
            The column of ``"dependence"`` and ``"shape"``; by default the largest.
        output : str or int, optional
            Which output; by default the last.

        Returns
        -------
        matplotlib axes
        """
        from certus.explanations.drawing import draw

        kind = kind or ("waterfall" if len(self.values) == 1 else "beeswarm")
        return draw(self, ax, kind, self._row(row), column, self.output(output))
