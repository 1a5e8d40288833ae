"""The report on synthetic rows: what was found, column by column, and a comparison.

One HTML page: no script, nothing from elsewhere. Fidelity and usefulness stand beside
copying, because a copier is the best at both.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from certus.certificate import Claim
from certus.config import show_versions
from certus.generative import Examination
from certus.meanings import explain
from certus.report.document import written
from certus.report.figures import NARROW, WIDE
from certus.report.page import SECTIONS, claim_line, template, tied
from certus.report.svg import Plot, Scale, fit_text, nice_ticks, text_width, tick_labels
from certus.results import Result

__all__ = ["SampleReport", "sample_report"]

#: Columns that the drawing shows, the worst ones.
_SHOWN = 30
_ROW = 22.0
_MEANINGS = {
    "proved": "anyone can check it again, or it cannot be shown at all",
    "statistical": "true for new rows, with the stated probability",
    "measured": "observed on these rows, without a guarantee",
}


@dataclass(frozen=True)
class SampleReport(Result):
    """What can be said about synthetic rows; from :func:`sample_report`.

    Attributes
    ----------
    title, verdict : str
        The generator and its table; the finding in a sentence.
    examination : Examination
        Claims and distances.
    comparison : tuple of dict
        The generators that were compared, as in ``TableSynthesizer.comparison_``.
    claims : tuple of Claim
        All claims, those about the generator among them.
    notes : tuple of str
        What you should know about some columns.
    versions : dict
        The libraries.
    """

    title: str
    verdict: str
    examination: Examination
    comparison: tuple[Mapping[str, Any], ...] = ()
    claims: tuple[Claim, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained page: no script, nothing loaded from elsewhere.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well.
        """
        return written(_page(self), path)

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style from that of the notebook.
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox '
            'style="width:100%;height:48rem;border:0" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )


def sample_report(
    examination: Examination,
    *,
    title: str = "Synthetic rows",
    comparison: Sequence[Mapping[str, Any]] = (),
    claims: Sequence[Claim] = (),
    notes: Sequence[str] = (),
) -> SampleReport:
    """Make a page of an examination.

    Parameters
    ----------
    examination : Examination
        What :func:`certus.generative.examine` found.
    title : str
        What the rows are.
    comparison : list of dict, optional
        ``TableSynthesizer.comparison_``.
    claims : list of Claim, optional
        Claims about the generator itself; they follow those of the examination.
    notes : list of str, optional
        Remarks about columns.

    Returns
    -------
    SampleReport
        With ``to_html(path)`` for a page.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import examine
    >>> from certus.report import sample_report
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> found = examine(X[:100], X[100:200], X[200:], random_state=0)
    >>> "Do the columns agree?" in sample_report(found).to_html()
    True
    """
    known = {claim.name for claim in examination.claims}
    more = tuple(claim for claim in claims if claim.name not in known)
    return SampleReport(
        title,
        examination.verdict,
        examination,
        tuple(comparison),
        (*examination.claims, *more),
        tuple(notes),
        show_versions(),
    )


def _page(report: SampleReport) -> str:
    from markupsafe import Markup

    from certus import __version__

    found = report.examination
    lists = [
        (title, _MEANINGS[name], [claim_line(claim, name) for claim in some])
        for name, title, _ in SECTIONS
        if (some := [claim for claim in report.claims if _section(claim) == name])
    ]
    # The drawings escape their own text.
    page: str = template("sample_page.html").render(
        version=__version__,
        report=report,
        title=report.title,
        verdict=report.verdict,
        versions=report.versions,
        lists=lists,
        drawing=Markup(_both_drawings(found)),
        numbers=_numbers(found.columns),
        pairs_table=_numbers(sorted(found.pairs, key=lambda p: -p.value)[:_SHOWN]),
        comparison=_comparison(report.comparison),
        words=explain(report.claims),
    )
    return tied(page)


def _section(claim: Claim) -> str:
    """The list in which a claim stands; refusals stand with what is proved."""
    kind = claim.strength.value
    return kind if kind in ("statistical", "measured") else "proved"


def _numbers(rows: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    head = ["", "observed", "at least", "at most"]
    return head, [
        [row.name, f"{row.value:.3f}", f"{row.low:.3f}", f"{row.high:.3f}"]
        for row in rows
    ]


def _comparison(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The generators beside one another, or nothing."""
    if not rows:
        return None
    head = [
        "generator",
        "columns",
        "told apart (AUC)",
        "useful",
        "nearest is a training row",
    ]
    head += ["exact copies", "seconds", "finding"]
    return head, [
        [
            row["model"],
            f"{row['shapes']:.3f}",
            "–" if row["told_apart_auc"] is None else f"{row['told_apart_auc']:.3f}",
            _both(row),
            f"{100 * row['nearest_share']:.1f} %",
            f"{row['copies']:,}",
            f"{row['seconds']:.2f}",
            "✗ copies" if row["flagged"] else "✓ not flagged",
        ]
        for row in rows
    ]


def _both(row: Mapping[str, Any]) -> str:
    if row["synthetic_score"] is None:
        return "–"
    return f"{row['synthetic_score']:.3f} of {row['real_score']:.3f}"


def _both_drawings(found: Examination) -> str:
    title = "Do the columns agree?"
    said = "The distance of each column between synthetic and held-out rows."
    return "".join(
        _drawing(found, width).render("columns", title, said, style)
        for style, width in (("wide", WIDE), ("narrow", NARROW))
    )


def _drawing(found: Examination, width: float) -> Plot:
    """A line for each column: its band, and the distance observed."""
    shown = sorted(found.columns, key=lambda column: -column.value)[:_SHOWN]
    room = width / 3
    names = [fit_text(column.name, room) for column in shown]
    left = 12 + max(map(text_width, names))
    marks = nice_ticks(0.0, max(column.high for column in shown), 5)
    height = 60 + _ROW * len(shown)
    y = Scale(len(shown) - 0.5, -0.5)
    plot = Plot(width, height, Scale(0.0, marks[-1]), y, (10, 22, 46, left))
    plot.x_axis(marks, tick_labels(marks), "distance: 0 is perfect, 1 is the largest")
    for i, column in enumerate(shown):
        at = plot.y(i)
        plot.text(left - 8, at + 4, names[i], anchor="end")
        plot.line([column.low, column.high], [i, i], "first")
    plot.dots([c.value for c in shown], range(len(shown)), "first")
    return plot
