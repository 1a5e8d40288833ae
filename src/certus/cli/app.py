"""The commands and their options; what they do is in the modules beside this one.

Those modules are imported inside the commands, so that ``certus --help`` is quick.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from certus.cli import load_tables

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

_Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
_ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A .certus file.")]
_Table = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="CSV, TSV, Parquet, Feather or JSON lines."),
]


class Level(StrEnum):
    """How much a check may cost."""

    quick = "quick"
    full = "full"


@app.callback(invoke_without_command=True)
def entry(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say which one.")] = False,
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
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="A table; the bundled example if left out."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to predict.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Fit this one only; see certus list."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Its parameters; repeat."),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="MODULE:CLASS", help="Another candidate; repeat."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Rows of one value stay on one side."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Judge on rows later than those learnt."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to leave out; repeat."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Use it though it determines the target; repeat."
        ),
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.0, help="Begin no further fit after this."
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
            help=".html, .md or .json. Default: a page.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="Of split and models. Default: 0."),
    ] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Write none.")] = False,
    as_json: _Json = False,
) -> int:
    """Compare models on a table, keep the best, and say what can be said of it.

    A fifth of the rows is sealed first. Candidates are compared on 5 folds of the
    others; the sealed rows are opened once, for the chosen one. Writes a model file and
    a report. Ctrl-C keeps what is complete.
    """
    load_tables()
    from certus.cli import fitting

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
    )
    return fitting.run(data, target, plan, out, report, not no_files, as_json)


@app.command()
def predict(
    model: _ModelFile,
    data: _Table,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV file. Default: stdout.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="A column for each label's probability.")
    ] = False,
    as_json: _Json = False,
) -> int:
    """Predict the rows of a table with a fitted model.

    Columns may come in any order. Extra columns are ignored and unknown categories
    count as none of the known; both are said on stderr. A missing column is an error.
    """
    load_tables()
    from certus.cli import applying

    return applying.predict(model, data, out, proba, as_json)


@app.command()
def certify(
    model: _ModelFile,
    data: _Table,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Default: the one in the model file."),
    ] = None,
    level: Annotated[
        Level, typer.Option(help="full may cost as much as a fit.")
    ] = Level.quick,
    as_json: _Json = False,
) -> int:
    """Recompute a model's certificate on a table.

    If the table is the one that "certus fit" divided, the certificate is judged on
    its training rows and the risk on its sealed rows.

    Exit code 3 if it misses its target, is refused or undecided (numbers about a
    network promise nothing), 4 if the data is that of the fit and the certificate's
    statement is not true of it.
    """
    load_tables()
    from certus.cli import applying

    return applying.certify(model, data, target, level.value, as_json)


@app.command()
def audit(
    model: _ModelFile,
    data: _Table,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Default: the one in the model file."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=".html, .md or .json. Default: MODEL-audit.html"
        ),
    ] = None,
    sensitive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Compare groups by this column; repeat for combinations.",
        ),
    ] = None,
    threat: Annotated[
        str | None,
        typer.Option(
            metavar="NORM:RADIUS",
            help="Accuracy if rows are changed, as in linf:0.1, l2:1 or l1:2.",
        ),
    ] = None,
    as_json: _Json = False,
) -> int:
    """Report on a model: what is proved, statistical, measured and assumed.

    If the table is the one that "certus fit" divided, the proof is about its training
    rows and the risk about its sealed rows; other rows are taken as new ones.
    """
    load_tables()
    from certus.cli import auditing

    return auditing.audit(model, data, target, report, as_json, sensitive, threat)


@app.command("list")
def list_(
    models: Annotated[
        bool, typer.Option("--models", help="The models of certus fit (default).")
    ] = False,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="SECTION", help="A section of the catalog, or all."),
    ] = None,
    as_json: _Json = False,
) -> int:
    """List the models, or what the catalog holds."""
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
        bool, typer.Option("--write", help="Change the scripts; else print a diff.")
    ] = False,
) -> int:
    """Import from certus what a script imports from scikit-learn.

    Only imports of names that certus has are changed. What remains with scikit-learn
    works beside it; certus.certify says what it can judge of such a model.
    """
    from certus.cli import migrating

    return migrating.migrate(scripts, write)
