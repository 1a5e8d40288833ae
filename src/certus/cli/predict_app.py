"""The options of ``certus predict``, ``certus explain`` and ``certus watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli import load_tables, options

Coverage = Annotated[
    float | None,
    typer.Option(
        "--interval",
        metavar="SHARE",
        help="Add an interval, or a set of labels, that contains the truth for this "
        "share of new rows, such as 0.9.",
    ),
]


def predict(
    model: options.ModelFile,
    data: options.Table,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV file. Default: stdout.")
    ] = None,
    interval: Coverage = None,
    proba: Annotated[
        bool,
        typer.Option(
            "--proba", help="Add a column with the probability of each label."
        ),
    ] = False,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Copy this column of DATA to the output. Can be repeated.",
        ),
    ] = None,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen",
            help="Add a column with the values that are unlike all training rows.",
        ),
    ] = False,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> int:
    """Predict the rows of a table with a fitted model.

    Columns may be in any order. Extra columns are ignored, and unknown categories
    count as none of the known ones; stderr says so. A missing column is an error.
    Labels are spelt as in the file of the fit.
    """
    load_tables()
    from certus.cli import predicting

    wanted = predicting.Wanted(interval, proba, tuple(key or ()), unseen, encoding)
    return predicting.predict(model, data, out, wanted, as_json)


def explain(
    model: options.ModelFile,
    data: options.Table,
    background: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows to compare with, such as training rows. Default: DATA itself.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV file. Default: DATA_contributions.csv."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Page. Default: DATA_contributions.html."),
    ] = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> int:
    """Say what each column contributed to each prediction.

    The contributions of a row add up to its prediction, which is checked. Writes a
    table with a line for each row and column, and a page with drawings.
    """
    load_tables()
    from certus.cli import explaining

    return explaining.explain(model, data, background, out, page, encoding, as_json)


def watch(
    model: options.ModelFile,
    data: options.Table,
    target: options.Target = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column with the time of each row."),
    ] = None,
    in_order: Annotated[
        bool,
        typer.Option(
            "--in-order", help="The rows are in the order in which they came."
        ),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SHARE",
            help="Share of rows that intervals or sets should contain.",
        ),
    ] = 0.9,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> int:
    """Compare new rows with those of the fit, and say what still holds.

    Says which columns moved and by how much, with intervals. If DATA has the target,
    it also judges the coverage of intervals or sets; with --time or --in-order, by a
    test that can be repeated after every row. The exit code is 3 if it is established
    that coverage is lost.
    """
    load_tables()
    from certus.cli import watching

    if time is not None and in_order:
        raise typer.BadParameter("use either --time or --in-order")
    order = watching.Order(time, in_order)
    return watching.watch(model, data, target, order, interval, encoding, as_json)
