"""``certus list``: the models of the command line, and the catalog of certus."""

from __future__ import annotations

from typing import Any

from certus.cli.machine import say_json
from certus.cli.models import MODELS
from certus.cli.screen import Stop, out, say


def models(as_json: bool) -> int:
    """List the models by name."""
    if as_json:
        say_json(
            [
                {
                    "name": row.command,
                    "class": f"certus.{row.home}.{row.name}",
                    "predicts": row.predicts,
                    "line": row.line,
                }
                for row in MODELS.values()
            ]
        )
        return 0
    table = _table("model", "predicts", "how")
    for row in MODELS.values():
        table.add_row(row.command, row.predicts, row.line)
    out().print(table)
    say()
    say("certus fit DATA --target COLUMN --model NAME   (certus list --catalog all)")
    return 0


def catalog(section: str, as_json: bool) -> int:
    """List the catalog's sections, or the items of one of them."""
    from certus.testing.items import catalog as items
    from certus.testing.items import sections

    if section.lower() == "all":
        return _sections(as_json)
    known = {s.key: s for s in sections()}
    found = known.get(section.upper()) or next(
        (s for s in sections() if str(s.number) == section), None
    )
    if found is None:
        from certus.tables.errors import did_you_mean

        hint = did_you_mean(section, known) or " See: certus list --catalog all"
        raise Stop(f'the catalog has no section "{section}".{hint}', code=2)
    rows = [item for item in items() if item.section == found.key]
    if as_json:
        say_json([{**item._asdict(), "exists": _exists(item.name)} for item in rows])
        return 0
    say(f"{found.number}. {found.title}", style="bold")
    table = _table("id", "what", "name")
    for item in rows:
        name = item.name if _exists(item.name) else "–"
        table.add_row(item.id, item.title, "a fact" if item.kind == "fact" else name)
    out().print(table)
    return 0


def _sections(as_json: bool) -> int:
    from certus.testing.items import catalog as items
    from certus.testing.items import sections

    have: dict[str, int] = {}
    for item in items():
        have[item.section] = have.get(item.section, 0) + _exists(item.name)
    if as_json:
        say_json([{**s._asdict(), "existing": have[s.key]} for s in sections()])
        return 0
    done = [s for s in sections() if s.done]
    table = _table("section", "about", "items", "named")
    for s in sections():
        table.add_row(s.key, s.title, str(s.n_items), str(have[s.key] or "–"))
    out().print(table)
    shown, every = (sum(s.n_items for s in some) for some in (done, sections()))
    say()
    say(f"{shown} of {every} items are shown to hold by a test")
    say("certus list --catalog SECTION shows the items of one section")
    return 0


def _exists(name: str) -> bool:
    from certus.testing.items import resolve

    if not name:
        return False
    try:
        resolve(name)
    except LookupError:
        return False
    except ImportError as error:  # it exists, and needs PyTorch
        return isinstance(error.__cause__ or error, ModuleNotFoundError)
    return True


def _table(*heads: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
