"""Options and arguments that several commands have, each in one place."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Level(StrEnum):
    """How much a check may cost."""

    quick = "quick"
    full = "full"


Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say what the words mean.")]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A .certus file.")]
Table = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="CSV, TSV, Parquet, Feather or JSON lines."),
]
Tables = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...",
        help="CSV, TSV, Parquet, Feather or JSON lines; several Parquet files in their "
        "order.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory for a large table, such as 2GB, beyond that of an idle command.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Read blocks on this Dask cluster, such as tcp://host:8786.",
    ),
]
Texts = Annotated[
    list[Path], typer.Argument(metavar="TEXT...", help="Text files; any bytes serve.")
]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Default: the one in the model file."),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of a CSV file, such as cp1251. Default: UTF-8 or Windows-1252.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the model, as name=value. Can be repeated.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**32 - 1,
        help="The random seed; the same seed gives the same result. Default: 0.",
    ),
]
