"""An audit as one HTML file: no script, no font, no image, nothing from elsewhere."""

from __future__ import annotations

import re
import textwrap
from functools import lru_cache
from importlib.resources import files
from typing import Any

from certus.certificate import Claim
from certus.meanings import explain
from certus.report.document import Audit
from certus.report.figures import draw, table
from certus.wording import clean, number

__all__ = ["SECTIONS", "claim_line", "render", "template", "tied", "words_of"]

#: The lists of claims, predictions first: name, title, what a line in it means.
SECTIONS = (
    (
        *("statistical", "Statistical"),
        "true for new rows; the lines on metrics, thresholds and coverage hold "
        "together with the stated probability",
    ),
    ("measured", "Measured", "observed on this data, without a guarantee"),
    ("proved", "Proved", "anyone can check it again on these rows"),
)
_KINDS = {"✓": "met", "✗": "missed", "–": "refused", "?": "refused", "·": "plain"}


@lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2

    folder = files("certus.report")
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: folder.joinpath(name).read_text(encoding="utf-8")
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def template(name: str) -> Any:
    """A page to be filled in; it may include the other files of this folder."""
    return _environment().get_template(name)


def render(audit: Audit) -> str:
    """The page as HTML text."""
    from markupsafe import Markup

    from certus import __version__

    lists = [
        (title, meaning, [claim_line(claim, name) for claim in getattr(audit, name)])
        for name, title, meaning in SECTIONS
    ]
    # The drawings escape their own text.
    figures = [
        (figure, Markup(draw(figure)), table(figure)) for figure in audit.figures
    ]
    page: str = template("page.html").render(
        version=__version__,
        audit=audit,
        title=clean(audit.title),
        verdict=audit.verdict,
        params=audit.params,
        versions=audit.versions,
        lists=lists,
        figures=figures,
        union=_union(audit),
        trials=(audit.comparison or {}).get("trials", []),
        number=number,
        words=words_of(audit),
        certificate=clean(str(audit.certificate)),
    )
    return tied(page)


def tied(page: str) -> str:
    """The page with each percent sign tied to its number: no line begins with it."""
    return re.sub(r"(?<=\d) %", "\u00a0%", page)


def words_of(audit: Audit) -> list[tuple[str, str]]:
    """The labels and terms of an audit, each with its meaning."""
    return explain([*audit.proved, *audit.statistical, *audit.measured])


def _union(audit: Audit) -> Claim | None:
    """The claim about all candidates at once, if there was a comparison."""
    found = (audit.comparison or {}).get("union")
    return None if found is None else Claim.from_dict(found)


def claim_line(claim: Any, section: str) -> dict[str, Any]:
    """A claim as a line of a list; assumptions have their own list."""
    notes = [claim.objective] if claim.objective else []
    return {
        "mark": claim.mark,
        "kind": _KINDS[claim.mark],
        "label": claim.label,
        "text": claim.detail,
        "basis": "" if claim.basis == section else claim.basis,
        "notes": notes,
        "fix": textwrap.shorten(claim.fix, 140, placeholder=" …"),
    }
