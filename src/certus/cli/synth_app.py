"""The options of ``certus synth``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli import load_tables, options


def synth(
    data: options.Table,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows to draw. Default: as many as DATA has; 1,000 with --epsilon.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, tree, copula, autoregressive, flow, diffusion or cart.",
        ),
    ] = "auto",
    given: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="A condition on all rows: sex=F or age=30..40. Can be repeated.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Report how well this column can be predicted."
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Examine these rows, made elsewhere from DATA, and draw none.",
        ),
    ] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For --like: rows that the generator never saw."
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="EPSILON", help="Budget of differential privacy."),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=RANGE",
            help="For --epsilon: age=0..120 or sex=F,M. Can be repeated.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write rows even if they are copies.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV file. Default: DATA's name-synthetic.csv"
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML page. Default: as --out, with .html"),
    ] = None,
    seed: options.Seed = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> int:
    """Draw rows like those of a table, and say what they are worth.

    Some rows are held out at random, for the claims alone: whether rows are copies,
    whether a classifier tells them apart, how far each column agrees, and how much
    worse a model is that learns from them. The rows that are to be written answer for
    themselves: if they copy, or every generator does, nothing is written without
    --force, and the exit code is 3.

    With --epsilon, rows come from a tree with differential privacy, and nothing else
    that was computed from the data is written.
    """
    load_tables()
    from certus.cli import synthesising

    request = synthesising.SynthRequest(
        rows=rows,
        model=model,
        given=given or (),
        target=target,
        epsilon=epsilon,
        domain=domain or (),
        force=force,
        seed=seed,
        encoding=encoding,
    )
    if like is not None:
        return synthesising.examine_rows(data, like, holdout, request, report, as_json)
    return synthesising.run(data, request, out, report, as_json)
