"""``certus lm``: language models; what the commands do is in ``language_models.py``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from certus.cli import options

lm = typer.Typer(
    name="lm",
    help="Language models: fit, sample, count bits per byte, compress.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


class Kind(StrEnum):
    """Which model to fit."""

    transformer = "transformer"
    ngram = "ngram"


@lm.command()
def fit(
    texts: options.Texts,
    model: Annotated[
        Kind, typer.Option(help="transformer, or ngram, which only counts.")
    ] = Kind.transformer,
    max_time: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1.0, help="Train for this long."),
    ] = 600.0,
    settings: options.Settings = None,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            min=0,
            help="Length of the samples that are shown as the model learns; 0 for "
            "none. Default: 120 on a terminal, 0 in a pipe.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Save the run here, and continue it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model file. Default: TEXT's name.certus"),
    ] = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> int:
    """Learn to continue texts, and write a model file.

    Each file is a document. A part of the text is held out; while the model learns,
    its bits per byte are shown beside what counting and compressing need. Ctrl-C
    keeps what was learnt so far.
    """
    from certus.cli import language_models

    request = language_models.TextFit(
        kind=model.value,
        max_time=max_time,
        settings=settings or (),
        sample=sample,
        checkpoint=checkpoint,
        seed=seed,
    )
    return language_models.fit(texts, request, out, as_json)


@lm.command()
def sample(
    model: options.ModelFile,
    prompt: Annotated[
        str, typer.Option(metavar="TEXT", help="What the text begins with.")
    ] = "",
    tokens: Annotated[
        int, typer.Option(metavar="N", min=0, help="The most tokens to write.")
    ] = 500,
    temperature: Annotated[
        float,
        typer.Option(
            min=0.0, help="Below 1 for safer text; 0 takes the most probable token."
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Draw from the K most probable tokens."),
    ] = None,
    top_p: Annotated[
        float,
        typer.Option(
            metavar="P",
            min=0.0,
            max=1.0,
            help="Draw from the fewest tokens with this probability together.",
        ),
    ] = 1.0,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> int:
    """Write a text that begins with a prompt."""
    from certus.cli import language_models

    rule = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    return language_models.sample(model, prompt, tokens, rule, seed, as_json)


@lm.command()
def bits(
    model: options.ModelFile,
    texts: options.Texts,
    level: Annotated[
        options.Level,
        typer.Option(help="quick checks a part of a long text; full checks all."),
    ] = options.Level.quick,
    explain: options.Explain = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Write a page: the text coloured by surprise, use of context, "
            "attention.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Count the bits that a model needs for each byte of a text, and check them.

    The verifier counts the bytes of the files, computes the probabilities with code
    of its own, and says what it proved.
    """
    from certus.cli import language_models

    return language_models.bits(model, texts, level.value, explain, report, as_json)


@lm.command()
def compress(
    model: options.ModelFile,
    text: Annotated[Path, typer.Argument(metavar="FILE", help="Any file.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: FILE.lm"),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Compress a file with a language model.

    The same model file restores it with certus lm decompress. The size of the model is
    not counted.
    """
    from certus.cli import language_models

    return language_models.compress(model, text, out, as_json)


@lm.command()
def decompress(
    model: options.ModelFile,
    packed: Annotated[
        Path, typer.Argument(metavar="FILE", help="What certus lm compress wrote.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: FILE without .lm"),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Restore a file that was compressed with the same model.

    A checksum is compared: the file is restored byte by byte, or an error says why not.
    """
    from certus.cli import language_models

    return language_models.decompress(model, packed, out, as_json)
