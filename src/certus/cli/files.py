"""Where the commands write: checked before the work, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from certus.cli.screen import Stop

#: Marks a page as ours, so that nobody else's page is overwritten unasked.
GENERATOR = '<meta name="generator" content="certus'

_SUFFIXES = (".gz", ".csv", ".tsv", ".parquet", ".feather", ".arrow", ".ipc", ".jsonl")


_REPORTS = {".html": "to_html", ".md": "to_markdown", ".json": "to_json"}


def stem(path: Path) -> str:
    """A file's name without the endings of a table.

    Examples
    --------
    >>> stem(Path("data/houses.csv.gz"))
    'houses'
    """
    name = path.name
    for suffix in (*_SUFFIXES, ".ndjson"):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
    return name


def check_place(path: Path, inputs: Iterable[Path | None], option: str) -> None:
    """Refuse, before any work, a place that cannot or should not be written."""
    for source in inputs:
        if source is not None and _same(path, source):
            raise Stop(
                f"{option} {path} would overwrite the input. Name another file.", code=2
            )
    folder = path.parent
    if path.is_dir():
        raise Stop(f"{path} is a folder. Name a file: {option} {path / 'NAME'}")
    if path.exists() and not path.is_file():
        raise Stop(f"{path} is a device or a pipe. Name a file: {option} NAME")
    if not folder.is_dir():
        raise Stop(f"there is no folder {folder}. Create it, or change {option}.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise Stop(f"{path} cannot be written: permission denied. Change {option}.")


def check_report(path: Path) -> None:
    """Refuse an unknown ending, and a page that certus did not write."""
    if path.suffix.lower() not in _REPORTS:
        raise Stop(
            f"--report {path} must end in .html, .md or .json; the ending sets the "
            "format.",
            code=2,
        )
    if path.is_file() and path.suffix.lower() == ".html":
        with path.open("rb") as file:
            head = file.read(1000)
        if GENERATOR.encode() not in head:
            raise Stop(
                f"{path} exists and was not written by certus. Choose another file "
                "for the report: --report FILE"
            )


def write_report(path: Path, report: Any) -> None:
    """Write an audit as its ending says: a page, Markdown or JSON."""
    write(path, getattr(report, _REPORTS[path.suffix.lower()])())


def _same(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return Path(os.path.abspath(a)) == Path(os.path.abspath(b))


def write(path: Path, content: str | bytes) -> None:
    """Write text or bytes whole or not at all."""
    from certus.persist import ModelFileError
    from certus.persist.container import write_atomically

    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        write_atomically(path, data)
    except ModelFileError as error:
        raise Stop(f"{path} {error}") from None
