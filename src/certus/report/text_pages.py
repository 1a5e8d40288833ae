"""The report on a language model and a text: what was counted, and three pictures.

Which tokens surprise the model, whether it helps to see more of the text, and where the
heads of its network look. One HTML page: no script, nothing from elsewhere.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from certus.certificate import Certificate, Claim, Strength
from certus.config import show_versions
from certus.meanings import explain
from certus.report.document import written
from certus.report.figures import NARROW, WIDE
from certus.report.page import SECTIONS, claim_line, template, tied
from certus.report.svg import Plot, Scale, nice_ticks, text_width, tick_labels
from certus.results import Result
from certus.wording import clean, number, shorten

if TYPE_CHECKING:
    from certus.language import AttentionMaps, ContextUse, Surprise

__all__ = ["TextReport", "text_report"]

#: Tokens of the text that the page shows, and that the maps of attention show.
SHOWN, LOOKED_AT = 5_000, 40
_MEANINGS = {
    "proved": "anyone can check it again on this text",
    "statistical": "true for new texts, with the stated probability",
    "measured": "observed on this text, without a guarantee",
}


@dataclass(frozen=True)
class TextReport(Result):
    """What can be said about a language model and a text; from :func:`text_report`.

    Attributes
    ----------
    title, verdict : str
        The model; its bits per byte in a sentence.
    certificate : Certificate
        The verifier's, on this text.
    surprise : Surprise
        The bits of each token.
    context_use : ContextUse or None
        Bits per byte by how far back a network sees; None for models without one, and
        for texts of less than two tokens.
    attention : AttentionMaps or None
        Where the heads look in the first tokens of the text.
    params, versions : dict
        The model's parameters; the libraries.
    """

    title: str
    verdict: str
    certificate: Certificate
    surprise: Surprise
    context_use: ContextUse | None
    attention: AttentionMaps | None
    params: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained page: no script, nothing loaded from elsewhere.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well.
        """
        return written(_page(self), path)

    def __str__(self) -> str:
        return f"{self.verdict}\n\n{self.certificate}"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style from that of the notebook.
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox '
            'style="width:100%;height:48rem;border:0" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )


def text_report(
    model: Any, texts: Any, *, certificate: Certificate | None = None
) -> TextReport:
    """Count and check the bits of a text, and draw what the model does with it.

    Parameters
    ----------
    model : LanguageModel, NGramModel or MixtureOfModels
        A fitted model of text.
    texts : str, bytes, Path, or a list of these
        A text, or documents, that the model was not fitted to.
    certificate : Certificate, optional
        What ``certus.certify(model, texts)`` returned, if you have it already.

    Returns
    -------
    TextReport
        With ``to_html(path)`` for a page.

    Examples
    --------
    >>> from certus.language import NGramModel
    >>> from certus.report import text_report
    >>> model = NGramModel(3).fit("the cat sat on the mat. " * 20)
    >>> report = text_report(model, "the cat sat on the hat.")
    >>> "Which parts surprise the model?" in report.to_html()
    True
    """
    from certus.certifying import certify

    found = certify(model, texts) if certificate is None else certificate
    surprise = model.surprise(texts)
    use = maps = None
    if hasattr(model, "context_use"):
        maps = model.attention(b"".join(surprise.tokens[:LOOKED_AT]))
        if len(surprise.ids) > 1:
            use = model.context_use(texts)
    name = type(model).__name__
    params = {k: shorten(repr(v)) for k, v in model.get_params(deep=False).items()}
    return TextReport(
        title=f"{name}: bits per byte of a text",
        verdict=f"{name} needs {surprise.bits_per_byte:.3f} bits for each of the "
        f"{surprise.n_bytes:,} bytes of this text.",
        certificate=found,
        surprise=surprise,
        context_use=use,
        attention=maps,
        params=params,
        versions=show_versions(),
    )


def _page(report: TextReport) -> str:
    from markupsafe import Markup

    from certus import __version__
    from certus.language.views.colouring import coloured_block

    claims, n = report.certificate.claims, len(report.surprise.ids)
    tokens, bits = report.surprise.tokens[:SHOWN], report.surprise.bits[:SHOWN]
    use, maps = report.context_use, report.attention
    # What is marked as markup escapes its own text.
    page: str = template("text_page.html").render(
        version=__version__,
        report=report,
        title=report.title,
        verdict=report.verdict,
        params=report.params,
        versions=report.versions,
        lists=[
            (title, _MEANINGS[name], [claim_line(claim, name) for claim in some])
            for name, title, _ in SECTIONS
            if (some := [claim for claim in claims if _section(claim) == name])
        ],
        text=Markup(coloured_block("", tokens, bits)),
        shown=len(tokens),
        hidden=n - len(tokens),
        drawing="" if use is None else Markup(_both_drawings(use)),
        numbers=None if use is None else _numbers(use),
        maps="" if maps is None else Markup(maps.pictures()),
        heads=None if maps is None else _numbers(maps),
        words=explain(claims),
        certificate=clean(str(report.certificate)),
    )
    return tied(page)


def _section(claim: Claim) -> str:
    """The list in which a claim stands; what is refused stands with what is proved."""
    return {
        Strength.STATISTICAL: "statistical",
        Strength.MEASURED: "measured",
    }.get(claim.strength, "proved")


def _numbers(result: Any) -> tuple[list[str], list[list[str]]]:
    """The table of a result: a head and rows of text."""
    columns = result._columns()
    rows = [
        [number(float(cell)).replace("-", "−") for cell in row]
        for row in zip(*columns.values())
    ]
    return [name.replace("_", " ") for name in columns], rows


def _both_drawings(use: ContextUse) -> str:
    """Bits per byte by the tokens seen, for a page and for a phone."""
    title = "Does it help to see more of the text?"
    said = f"{use.verdict} {use._notes()[0]}"
    return "".join(
        _drawing(use, width).render("context", title, said, style)
        for style, width in (("wide", WIDE), ("narrow", NARROW))
    )


def _drawing(use: ContextUse, width: float) -> Plot:
    seen = [float(k) for k in use.contexts]
    low, high = use.low.tolist(), use.high.tolist()
    if use.n_places < 2:  # a single place has no interval
        low = high = use.bits.tolist()
    marks = nice_ticks(max(0.0, min(low)), max(high), 6)
    labels = tick_labels(marks)
    left = 10 + max(map(text_width, labels))
    x = Scale(seen[0] / 1.15, seen[-1] * 1.15, log=True)
    plot = Plot(width, 300, x, Scale(marks[0], marks[-1]), (30, 18, 46, left))
    plot.y_axis(marks, labels, "bits per byte, with an interval of 95 %")
    plot.x_axis(seen, [f"{k:,.0f}" for k in seen], "tokens that the network sees")
    plot.band(seen, [max(marks[0], value) for value in low], high, "first")
    plot.line(seen, use.bits.tolist(), "first")
    plot.dots(seen, use.bits.tolist(), "first")
    return plot
