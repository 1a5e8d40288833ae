"""``certus explain``: a model file, rows, and what each column contributed.

Writes a table with a line for each row and column, and a page. Columns and labels are
spelt as in the user's files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from certus.cli import DONE, MISSED, files
from certus.cli.applying import columns_of, read_model, read_rows
from certus.cli.machine import say_json
from certus.cli.screen import Stop, progress, remark, say, say_certificate
from certus.wording import number, shorten

_SHOWN = 8


def explain(
    model_path: Path,
    path: Path,
    background: Path | None,
    out: Path | None,
    page: Path | None,
    encoding: str | None,
    as_json: bool,
) -> int:
    """Explain, write table and page, and say what was found; returns the exit code."""
    from certus.explanations import explain as divide
    from certus.report import explained_page

    table = out or path.with_name(f"{files.stem(path)}_contributions.csv")
    page = page or path.with_name(f"{files.stem(path)}_contributions.html")
    for place, option in ((table, "--out"), (page, "--page")):
        files.check_place(place, (model_path, path, background), option)
    with progress(3 if background is None else 4) as step:
        model, split = read_model(model_path, step)
        X, remarks = columns_of(model, read_rows(path, step, encoding).frame)
        behind = None
        if background is not None:
            behind, _ = columns_of(model, read_rows(background, step, encoding).frame)
        elif len(X) == 1:
            raise Stop(
                f"{path.name} has one row, and a contribution is a difference from "
                "other rows. Name a table to compare with: --background FILE",
                code=2,
            )
        step("explaining")
        try:
            found = divide(model, X, behind, random_state=0)  # repeats
        except (TypeError, ValueError) as error:
            raise Stop(str(error)) from None
    found = _spelt(found, split)
    files.write(table, found.to_frame().write_csv())
    files.write(page, explained_page(found, title=path.name))
    met = found.certificate.met is not False
    code = DONE if met else MISSED
    if as_json:
        data = {**found.to_dict(), "table": str(table), "page": str(page)}
        say_json({**data, "remarks": remarks, "exit_code": code})
        return code
    for text in remarks:
        remark(text)
    _say(found, path.name, len(X) if behind is None else None)
    say(f"wrote {table} and {page}")
    return code


def _spelt(found: Any, split: Any) -> Any:
    """Labels as in the file of the fit."""
    spelling = (split or {}).get("spelling", {})
    outputs = tuple(str(spelling.get(name, name)) for name in found.outputs)
    unit = found.unit
    for before, after in zip(found.outputs, outputs):
        unit = unit.replace(f"of {before}", f"of {after}")
    return replace(found, outputs=outputs, unit=unit)


def _say(found: Any, file: str, same: int | None) -> None:
    say(f"{shorten(file)}  {found.verdict}", style="bold", hang=4)
    if same is not None:
        say("the rows themselves are the background; --background names others")
    say()
    k = found.output()
    sizes = abs(found.values[:, :, k]).mean(axis=0)
    for name in found.top()[:_SHOWN]:
        size = float(sizes[found.columns.index(name)])
        say(f"{shorten(name, 30):<30} {number(size):>9}", indent=2)
    more = len(found.columns) - _SHOWN
    if more > 0:
        say(f"{more:,} more columns are in the table", indent=2, style="dim")
    say(f"mean size of the contributions to the {found.unit}", indent=2, style="dim")
    say()
    say_certificate(found.certificate)
