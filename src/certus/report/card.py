"""An audit as a model card: Markdown with a head of metadata, as model hubs read it.

It says what the numbers say and no more. What only people know (who may use the model,
for what, and whom it may harm) is left as a question, not filled in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from certus.certificate import Claim
from certus.report.document import Audit
from certus.report.markdown import escape
from certus.wording import clean

__all__ = ["render"]

_QUESTIONS = (
    "What is the model used for, and what must it not be used for?",
    "Who is affected by its predictions, and how can they object?",
    "Where do the rows come from, and whom do they leave out?",
)


def render(audit: Audit) -> str:
    """The card as Markdown text."""
    data = audit.data
    parts = [
        _head(audit),
        f"# {escape(audit.title)}",
        escape(audit.verdict),
        "## The model\n\n" + _model(audit),
        "## The rows\n\n" + _rows(audit),
        "## How good it is\n\n" + _claims((*audit.statistical, *audit.measured)),
        "## What is proved of the fit\n\n" + _claims(audit.proved),
        "## What this rests on\n\n" + _list(map(escape, audit.assumed)),
        "## What the numbers do not say\n\n" + _list([*_QUESTIONS, *_limits(audit)]),
    ]
    if data.get("notes"):
        notes = _list(map(escape, data["notes"]))
        parts.insert(5, f"What was noticed about the columns:\n\n{notes}")
    return "\n\n".join(parts) + "\n"


def _head(audit: Audit) -> str:
    """Metadata in YAML; JSON strings are YAML strings."""
    data, task = audit.data, audit.data.get("task", "")
    lines = {
        "library_name": "certus",
        "tags": ["tabular", f"tabular-{task}"] if task else ["tabular"],
        "pipeline_tag": f"tabular-{task}" if task else "tabular",
        "target": data.get("target", ""),
        "certus_version": audit.versions.get("certus", ""),
    }
    body = "\n".join(f"{name}: {json.dumps(value)}" for name, value in lines.items())
    return f"---\n{body}\n---"


def _model(audit: Audit) -> str:
    found = audit.comparison
    lines = [f"Class: `{clean(audit.certificate.model)}`"]
    lines += [f"`{name}` = {escape(value)}" for name, value in audit.params.items()]
    if found is not None:
        others = len(found["table"]) - 1
        lines.append(f"chosen by {escape(found['measure'])} among {others + 1} models")
    return _list(lines)


def _rows(audit: Audit) -> str:
    data = audit.data
    lines = [
        f"{data.get('training_rows', 0):,} training rows × {data.get('columns', 0):,} "
        "columns",
    ]
    if data.get("unseen_rows"):
        lines.append(f"{data['unseen_rows']:,} {escape(data['unseen_kind'])}")
    if data.get("target"):
        spread = escape(data.get("spread", ""))
        lines.append(f"target: “{escape(data['target'])}” ({spread})")
    if data.get("summary"):
        lines.append(escape(data["summary"]))
    return _list(lines)


def _claims(claims: Sequence[Claim]) -> str:
    return _list(
        f"**{escape(claim.label)}**: {escape(claim.detail)}"
        + (f" ({claim.basis})" if claim.basis else "")
        for claim in claims
    )


def _limits(audit: Audit) -> list[str]:
    """What was not looked at, by what the audit holds."""
    names = {claim.name for claim in (*audit.statistical, *audit.measured)}
    limits = []
    kinds = {figure.kind for figure in audit.figures}
    if "groups" not in kinds:
        limits.append("Groups of people were not compared.")
    if "threat" not in kinds:
        limits.append("Nothing is said about rows that somebody changes on purpose.")
    if not {"error_rate", "large_error", "coverage"} & names:
        limits.append("No statement about new rows is guaranteed.")
    return limits


def _list(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- – nothing"
