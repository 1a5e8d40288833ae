"""An audit as Markdown: the same words, the figures as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from certus.certificate import Claim
from certus.report.document import Audit
from certus.report.figures import table
from certus.report.page import SECTIONS, words_of
from certus.wording import clean, number

__all__ = ["escape", "render"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def render(audit: Audit) -> str:
    """The report as Markdown text."""
    parts = [f"# {_text(audit.verdict)}", "## What is known, and how well"]
    for name, title, meaning in SECTIONS:
        parts.append(f"### {title}\n\n*{meaning}*")
        parts.append(_list(map(_claim, getattr(audit, name))))
    parts.append("### Assumed\n\n*the lists above depend on this; it was not checked*")
    parts.append(_list(map(_text, audit.assumed)))
    if audit.comparison is not None:
        parts += _comparison(audit)
    for figure in audit.figures:
        parts.append(f"## {figure.question}\n\n{_text(figure.answer)}")
        parts.append(_table(*table(figure)))
        parts.append(f"*{_text(figure.caption)}*")
    parts += _details(audit)
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(words: str) -> str:
    """Words from anywhere, as words: no markup, no HTML, one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(words).split()))


_text = escape


def _claim(claim: Claim) -> str:
    line = f"{claim.mark} **{_text(claim.label)}**: {_text(claim.detail)}"
    if claim.basis:
        line += f" ({claim.basis})"
    notes = [claim.objective] if claim.objective else []
    notes += [f"fix: {claim.fix}"] if claim.fix else []
    return "  \n  ".join([line, *map(_text, notes)])


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- – nothing"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    lines[0] = [_text(cell) for cell in head]
    lines[2:] = [[_text(cell) for cell in row] for row in lines[2:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _comparison(audit: Audit) -> list[str]:
    found = audit.comparison or {}
    folds = found["split"]["folds"]
    head = ["model", f"{found['metric_label']} ({folds} folds)", "time", "solved"]
    remark, chosen = _text(found["verdict"]), _text(found["chosen"])
    return [
        "## Which model was chosen?",
        (
            f"{chosen[:1].upper()}{chosen[1:]}, because it is the best by this metric "
            "among the models of certus."
        )
        + (f" {remark[:1].upper()}{remark[1:]}" if remark else ""),
        _table(head, found["table"]),
        f"*{_text(found['measure'])}; {found['better']} is better; mean ± standard "
        "deviation over the folds.*",
        *_trials(found),
    ]


def _trials(found: Mapping[str, Any]) -> list[str]:
    """What was tried on a part of the rows, if anything was."""
    if not found.get("trials"):
        return []
    head = ["model", "tried on", found["metric_label"], "what came of it"]
    return ["Tried on a part of the rows first:", _table(head, found["trials"])]


def _details(audit: Audit) -> list[str]:
    data = audit.data
    sizes = f"{data['training_rows']:,} training rows"
    if data["unseen_rows"]:
        sizes += f", {data['unseen_rows']:,} {data['unseen_kind']}"
    parts = ["## Details"]
    if audit.left_out:
        parts.append(f"Left out: {_text('; '.join(audit.left_out))}.")
    words = f"{sizes}, {data['columns']:,} columns; {data['task']}"
    target = f" on “{_text(data['target'])}”" if data["target"] else ""
    parts.append(f"{words}{target} ({_text(data['spread'])}).")
    if data["coefficients"]:
        found = data["coefficients"]
        head = [
            "column",
            *(h or "coefficient" for h in found["heads"]),
            "standard deviation",
        ]
        cells = zip(found["names"], found["values"], found["sd"])
        rows = [[n, *map(number, values), number(sd)] for n, values, sd in cells]
        parts.append(_table(head, rows))
    parts.append(_table(["parameter", "value"], audit.params.items()))
    parts.append(_table(["word", "meaning"], words_of(audit)))
    fence = "```"
    while fence in str(audit.certificate):
        fence += "`"
    parts.append(f"{fence}text\n{clean(str(audit.certificate))}\n{fence}")
    parts.append(_table(["package", "version"], audit.versions.items()))
    return parts
