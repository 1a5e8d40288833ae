"""The commands and their options; what they do is in the modules beside this one.

Those modules are imported inside the commands, so that ``certus --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli import load_tables, options
from certus.cli.lm import lm
from certus.cli.predict_app import explain, predict, watch
from certus.cli.synth_app import synth

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

app.add_typer(lm)
app.command()(synth)


@app.callback(invoke_without_command=True)
def entry(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.")
    ] = False,
) -> None:
    """Machine learning that shows its proof.

    Exit codes: 0 done, 1 data or model error, 2 usage, 3 certificate missed, refused
    or undecided, 4 refuted, 130 interrupted.
    """
    if version:
        from certus import __version__

        typer.echo(f"certus {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def fit(
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DATA]...",
            help="A table, which may be several Parquet files; the bundled example if "
            "left out.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to predict.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Fit only this model; certus list shows their names."
        ),
    ] = None,
    settings: options.Settings = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="MODULE:CLASS",
            help="A further model to compare, as module:Class. Can be repeated.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Keep rows with the same value in this column together in splits.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Test on rows that are later than the training rows.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What models are judged by: log_loss, brier, error, balanced_error, "
            "auc, average_precision, f_beta@2, recall@0.9 (at that precision); rmse, "
            "mae, r2, pinball@0.9, poisson, gamma. Default: log_loss, or rmse (mae if "
            "tails are heavy).",
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Of two labels, the one to find. Default: the rarer one.",
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Bounds that the target cannot leave; with them its errors have "
            "intervals with a guarantee.",
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="fp=1,fn=20",
            help="Costs of a false alarm and of a miss: choose the threshold for them.",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the positive rows to find: choose the threshold for it.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to leave out. Can be repeated."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Use this column even if it determines the target. Can be repeated.",
        ),
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(
            "--max-time",
            metavar="SECONDS",
            min=0.0,
            help="Time limit of the whole command.",
        ),
    ] = None,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Fit the chosen model again, to all rows, after the final check. "
            "Default: below 1,000 rows.",
        ),
    ] = None,
    memory: options.Memory = None,
    cluster: options.Cluster = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save finished passes over a large table in this file. If the run "
            "stops, the same command continues from there.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model file. Default: DATA's name.certus"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .html, .md or .json file. Default: an HTML page.",
        ),
    ] = None,
    seed: options.Seed = None,
    encoding: options.Encoding = None,
    no_files: Annotated[
        bool, typer.Option("--no-files", help="Write no files.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Compare models on a table, keep the best, and say how good it is.

    First, a fifth of the rows is set aside (sealed). Models are compared on 5 folds of
    the other rows, and the chosen one is tested once on the sealed rows. Below 1,000
    rows it is then fitted again to all rows. The command writes a model file and a
    report. Ctrl-C keeps the parts that are finished.

    A Parquet or Feather table larger than a quarter of the free memory, or of
    --memory, is read by blocks.
    """
    load_tables()
    from certus.cli import fitting, large

    plan = fitting.FitRequest(
        model=model,
        settings=settings or (),
        also=also or (),
        drop=drop or (),
        keep=keep or (),
        groups=groups,
        time=time,
        seed=seed,
        max_time=max_time,
        encoding=encoding,
        metric=metric,
        positive=positive,
        bounds=fitting.read_bounds(bounds),
        cost=fitting.read_costs(cost),
        recall=recall,
        refit=refit,
    )
    room = large.read_memory(memory)
    found = large.look(data, room, cluster is not None) if data else None
    if found is None:
        for name, value in (("cluster", cluster), ("checkpoint", checkpoint)):
            if value is not None:
                raise typer.BadParameter(
                    f"--{name} is for Parquet and Feather tables read by blocks"
                )
        if data and len(data) > 1:
            raise typer.BadParameter(fitting.several(data[1]))
        path = data[0] if data else None
        return fitting.run(path, target, plan, out, report, not no_files, as_json)
    from certus.cli import fitting_large

    places = (
        (None, None) if no_files else fitting.places_of(found.paths[0], out, report)
    )
    more = fitting_large.LargeRequest(room, cluster, checkpoint)
    return fitting_large.fit(found, target, plan, more, places, as_json)


app.command()(predict)
app.command()(explain)
app.command()(watch)


@app.command()
def certify(
    model: options.ModelFile,
    data: options.Tables,
    target: options.Target = None,
    level: Annotated[
        options.Level,
        typer.Option(help="quick or full; full may take as long as a fit."),
    ] = options.Level.quick,
    explain: options.Explain = False,
    encoding: options.Encoding = None,
    memory: options.Memory = None,
    cluster: options.Cluster = None,
    as_json: options.Json = False,
) -> int:
    """Recompute a model's certificate on a table.

    If this is the table that "certus fit" split, the certificate is checked on its
    training rows, and the error on new rows is estimated on its sealed rows.

    The exit code is 3 if the target is missed, or if the result is refused or
    undecided (numbers about a network are only measured). It is 4 if the data is that
    of the fit and the certificate is not true of it.

    A model that was fitted by blocks is checked by blocks, whatever machines fitted
    it. Its table may be several files, in the order of the fit.
    """
    load_tables()
    from certus.cli import applying, certifying_large

    if certifying_large.by_blocks(model, data):
        return certifying_large.certify(
            model, data, target, level.value, as_json, explain, memory, cluster
        )
    if len(data) > 1:
        raise typer.BadParameter("only a model fitted by blocks takes several files")
    return applying.certify(
        model, data[0], target, level.value, as_json, explain, encoding
    )


@app.command()
def audit(
    model: options.ModelFile,
    data: options.Table,
    target: options.Target = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A .html, .md or .json file. Default: MODEL-audit.html"
        ),
    ] = None,
    sensitive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Compare the groups in this column. Repeat it to combine columns.",
        ),
    ] = None,
    threat: Annotated[
        str | None,
        typer.Option(
            metavar="NORM:RADIUS",
            help="Accuracy when rows may change by this much, as in linf:0.1, l2:1 "
            "or l1:2.",
        ),
    ] = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> int:
    """Report on a model: what is proved, statistical, measured and assumed.

    If this is the table that "certus fit" split, the proof is about its training rows
    and the error on new rows is estimated on its sealed rows. Other rows are treated
    as new rows.
    """
    load_tables()
    from certus.cli import auditing

    return auditing.audit(
        model, data, target, report, as_json, sensitive, threat, encoding
    )


@app.command("list")
def list_(
    models: Annotated[
        bool, typer.Option("--models", help="The models of certus fit (default).")
    ] = False,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="SECTION", help="A section of the catalog, or all."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """List the models, or the contents of the catalog."""
    from certus.cli import listing

    if catalog is not None and models:
        raise typer.BadParameter("use either --models or --catalog")
    if catalog is not None:
        return listing.catalog(catalog, as_json)
    return listing.models(as_json)


@app.command()
def migrate(
    scripts: Annotated[
        list[Path], typer.Argument(metavar="SCRIPT...", help="Python scripts.")
    ],
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Change the scripts. Without it, a diff is printed."
        ),
    ] = False,
) -> int:
    """Import from certus what a script imports from scikit-learn.

    Only imports of names that certus has are changed. What remains with scikit-learn
    works beside it; certus.certify says what it can judge of such a model.
    """
    from certus.cli import migrating

    return migrating.migrate(scripts, write)
