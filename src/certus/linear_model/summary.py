"""The table of a fit: coefficients with standard errors, tests and intervals.

Plain data that prints as text and HTML; made by ``certus.linear_model.summarise``,
which raises :class:`SummaryRefused` where the theory behind the numbers does not hold.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from certus.results import TableResult, draw_intervals
from certus.typing import Array, Axes

_WIDTH = 80


class SummaryRefused(ValueError):
    """The theory behind standard errors does not hold for this model and data."""


@dataclass(frozen=True, eq=False)
class Summary(TableResult):
    """Coefficients with standard errors, tests and intervals; prints as a table.

    Parameters
    ----------
    model : str
        Class of the model.
    names : tuple of str
        One per row of the table: "(intercept)", then the features; repeated for every
        class but the first where there are three or more.
    classes : tuple of str
        Class that each row describes; empty for fewer than three classes.
    coef, standard_errors, statistic, p_values : ndarray of shape (n_rows,)
        Estimates, and the two-sided test that each is zero.
    conf_int : ndarray of shape (n_rows, 2)
        Intervals of level 1 − ``delta``.
    kind : {"t", "z"}
        Distribution of ``statistic``.
    log_likelihood : float
        At the maximum, summed over rows, with its constants (those of binomial counts
        too). NaN for a Tweedie power between 1 and 2, which has no closed form.
    deviance : float
        Twice what the log-likelihood is below that of a model that meets every row; for
        least squares the sum of squared residuals.
    n_samples, df_resid : float
        Rows (sum of the frequencies), and rows less coefficients.
    delta : float
        Failure probability: the chance that the statement does not hold. The level of
        the intervals is 1 − delta.
    notes : tuple of str
        What the numbers rest on.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import LinearRegression
    >>> X, y = load_diabetes(return_X_y=True, scaled=False)
    >>> print(LinearRegression().fit(X[:, 2:4], y).summary(X[:, 2:4], y))
    LinearRegression · 442 rows · 439 degrees of freedom · log-likelihood -2435.74
    AIC 4877.49 · BIC 4889.76 · deviance 1.5831e+06
                               coef    std err        t      p       2.5%      97.5%
    (intercept)              -203.6      22.23   -9.158 <0.001     -247.3     -159.9
    x0                        8.519     0.7047   12.089 <0.001      7.134      9.904
    x1                        1.385     0.2251    6.152 <0.001     0.9423      1.827
    """

    model: str
    names: tuple[str, ...]
    classes: tuple[str, ...]
    coef: Array
    standard_errors: Array
    statistic: Array
    p_values: Array
    conf_int: Array
    kind: str
    log_likelihood: float
    deviance: float
    n_samples: float
    df_resid: float
    delta: float
    notes: tuple[str, ...]

    @property
    def aic(self) -> float:
        """Akaike's criterion, −2·log-likelihood + 2·coefficients."""
        return 2 * self.coef.size - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion, −2·log-likelihood + coefficients·log(rows)."""
        price = math.log(self.n_samples)
        return price * self.coef.size - 2 * self.log_likelihood

    @property
    def _headline(self) -> str:
        return (
            f"{self.model} · {count(self.n_samples)} rows · {count(self.df_resid)} "
            f"degrees of freedom · log-likelihood {self.log_likelihood:.2f}"
        )

    @property
    def _criteria(self) -> str:
        known = f"AIC {self.aic:.2f} · BIC {self.bic:.2f} · "
        known = known if math.isfinite(self.aic) else ""
        return f"{known}deviance {self.deviance:.6g}"

    @property
    def _heads(self) -> tuple[str, ...]:
        low, high = 50 * self.delta, 100 - 50 * self.delta
        return ("coef", "std err", self.kind, "p", f"{low:.4g}%", f"{high:.4g}%")

    def _cells(self, i: int) -> tuple[str, ...]:
        low, high = self.conf_int[i]
        size = abs(self.statistic[i])
        test = f"{self.statistic[i]:{'.3f' if size < 1e3 else '.2g'}}"
        p = "<0.001" if self.p_values[i] < 5e-4 else f"{self.p_values[i]:.3f}"
        coef, error, low, high = (
            f"{v:.4g}" if len(f"{v:.4g}") < 11 else f"{v:.3g}"  # columns stay apart
            for v in (self.coef[i], self.standard_errors[i], low, high)
        )
        return coef, error, test, p, low, high

    def __str__(self) -> str:
        widths = (11, 11, 9, 7, 11, 11)

        def line(name: str, cells: tuple[str, ...]) -> str:
            name = name if len(name) <= 20 else name[:19] + "…"
            return f"{name:<20}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths))

        lines = textwrap.wrap(self._headline, _WIDTH, subsequent_indent="    ")
        lines.append(self._criteria)
        lines.append(line("", self._heads))
        for i, name in enumerate(self.names):
            if self.classes and (i == 0 or self.classes[i] != self.classes[i - 1]):
                lines.append(textwrap.shorten(f"class {self.classes[i]}", _WIDTH))
            lines.append(line(name, self._cells(i)))
        for note in self.notes:
            lines += textwrap.wrap(note, _WIDTH, subsequent_indent="  ")
        return "\n".join(lines)

    def _columns(self) -> Mapping[str, Any]:
        low, high = self.conf_int.T
        return {
            **({"class": self.classes} if self.classes else {}),
            "name": self.names,
            "coef": self.coef,
            "standard_error": self.standard_errors,
            "statistic": self.statistic,
            "p_value": self.p_values,
            "low": low,
            "high": high,
        }

    def _table(self) -> Iterable[Sequence[str]]:
        yield "", *self._heads
        prefix = [f"class {c}: " for c in self.classes] or [""] * len(self.names)
        for i, name in enumerate(self.names):
            yield prefix[i] + name, *self._cells(i)

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the coefficients with their intervals; returns the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        """
        names = [cells[0] for cells in self._table()][1:]
        low, high = self.conf_int.T
        return draw_intervals(names, self.coef, low, high, "coefficient", ax)


def count(value: float) -> str:
    """A number of rows, which weights may make fractional."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def refuse(reason: str) -> NoReturn:
    """Raise an error that says why there is no summary."""
    raise SummaryRefused(reason)
