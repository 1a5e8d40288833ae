"""``certus synth``: a table in; synthetic rows and what they are worth out.

Rows are held out by coins before anything is learnt. Generators are compared on the
same held-out rows; one that copies is not taken. With ``--like`` rows of somebody
else's generator are examined instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from certus.cli import DONE, MISSED, files
from certus.cli.machine import say_json
from certus.cli.screen import Stop, out, progress, remark, say, say_claims
from certus.wording import clean, shorten

__all__ = ["SynthRequest", "examine_rows", "run"]

#: Claims that the screen shows; the report has all.
_SHOWN = (
    *("memorised", "exact_copies", "holdout_unseen", "membership", "told_apart"),
    *("columns_agree", "pairs_agree", "useful"),
)
#: Rows that are drawn with --epsilon, where --rows does not say how many.
_PRIVATE_ROWS = 1_000


class SynthRequest(NamedTuple):
    """What the user asked for, beyond the table."""

    rows: int | None = None
    model: str = "auto"
    given: Sequence[str] = ()
    target: str | None = None
    epsilon: float | None = None
    domain: Sequence[str] = ()
    force: bool = False
    seed: int | None = None
    encoding: str | None = None


def run(
    path: Path,
    request: SynthRequest,
    place: Path | None,
    report_path: Path | None,
    as_json: bool,
) -> int:
    """Learn the table, draw rows, write them, and say what is known of them."""
    from certus.synth import MODELS
    from certus.tables import read_table

    place = place or Path(f"{files.stem(path)}-synthetic.csv")
    page = report_path or place.with_suffix(".html")
    for file, option in ((place, "--out"), (page, "--report")):
        files.check_place(file, [path], option)
    _check_page(page)
    if request.model not in ("auto", *MODELS):
        listed = ", ".join(["auto", *MODELS])
        raise Stop(f"--model must be one of {listed}, got {request.model!r}.", code=2)
    if request.epsilon is not None and request.seed is not None:
        raise Stop(
            "--seed cannot be used with --epsilon: whoever knows the seed can subtract "
            "the noise.",
            code=2,
        )
    with progress(4 if request.epsilon is None else 3) as step:
        step("reading")
        frame = read_table(path, announce=remark, encoding=request.encoding)
        given = _conditions(request.given, frame, "--given")
        domains = _conditions(request.domain, frame, "--domain")
        _require_target(request.target, frame, path)
        step("learning")
        model = _fitted(frame, request, domains)
        step("drawing")
        # The number of rows is known from the data, hence not private.
        usual = frame.height if request.epsilon is None else _PRIVATE_ROWS
        made = model.sample(request.rows or usual, given=given)
        if request.epsilon is None:
            step("examining")
            found = model.examine(frame, made, given=given)
    if request.epsilon is not None:
        return _private(model, made, path, place, as_json)
    # The rows that are written answer for themselves; the generator must pass as well.
    stopped = model.flagged_ or found.flagged
    code = MISSED if stopped or _missed(found) else DONE
    written = [] if stopped and not request.force else [place, page]
    about = _about(frame.height, made.height, found, given)
    if written:
        files.write(place, made.write_csv())
        title = f"{path.name}, model {model.model_}"
        files.write(page, _page_of(found, title, model, about))
    if as_json:
        more = {"model": model.model_, "comparison": model.comparison_}
        more["generator_flagged"] = model.flagged_
        names = [str(file) for file in written]
        say_json(found.to_dict() | more | {"wrote": names, "exit_code": code})
        return code
    size = f"{frame.height:,} rows × {frame.width:,} columns"
    say(f"{shorten(path.name)}  {size}", style="bold")
    held = int(model.held_out_.sum())
    say(
        f"{frame.height - held:,} rows to learn from; {held:,} were held out at "
        "random, for the claims only",
        indent=2,
        hang=2,
    )
    for note in model.notes_:
        say(note, indent=2, hang=2)
    say()
    _say_comparison(model.comparison_, model.model_)
    say()
    say(about, hang=2)
    _say_found(found, [c for c in model.certificate_.claims if c.name == "best_tree"])
    say()
    if written:
        say(f"wrote {place} ({made.height:,} rows), {page}")
        return code
    say(f"{_culprit(model, request.model)} training rows: nothing was written.", hang=2)
    say("fix: use more rows; or --force, if you may release copies.", indent=2)
    return code


def _about(height: int, drawn: int, found: Any, given: dict[str, Any]) -> str:
    """Which rows were examined, and what they were compared with."""
    told = f"The {drawn:,} rows drawn for the file, examined:"
    if not given:
        return told
    if found.n_real + found.n_holdout == height:
        return (
            f"{told[:-1]} beside all rows of the table, because few of them meet the "
            "conditions:"
        )
    return (
        f"{told[:-1]} beside the {found.n_real:,} training rows and the "
        f"{found.n_holdout:,} held-out rows that meet the conditions:"
    )


def _culprit(model: Any, asked: str) -> str:
    """Who copies, in the words before "training rows"."""
    if not model.flagged_:
        return "these rows copy"
    return "every generator copies" if asked == "auto" else f"{model.model_} copies"


def _fitted(frame: Any, request: SynthRequest, domains: dict[str, Any]) -> Any:
    from certus.config import config_context
    from certus.synth import TableSynthesizer

    seed = 0 if request.seed is None else request.seed
    model = TableSynthesizer(
        request.model,
        target=request.target,
        epsilon=request.epsilon,
        domains=domains or None,
        random_state=seed if request.epsilon is None else None,
    )
    with config_context(on_uncertified="ignore"):
        return model.fit(frame)


def _private(model: Any, made: Any, path: Path, place: Path, as_json: bool) -> int:
    """Write private rows, and nothing else that the data had a part in."""
    files.write(place, made.write_csv())
    claims = model.certificate_.claims
    code = DONE if all(claim.met for claim in claims) else MISSED
    if as_json:
        told = {"claims": [claim.to_dict() for claim in claims], "wrote": [str(place)]}
        say_json({"model": "tree", "exit_code": code} | told)
        return code
    say(f"{shorten(path.name)}  a tree with differential privacy", style="bold")
    say_claims(claims)
    say()
    say(f"wrote {place} ({made.height:,} rows)")
    say(
        "Only this file may be released. How good its rows are was not examined, "
        "because such numbers are computed from the data without noise; --like does "
        "it for your own eyes.",
        indent=2,
        hang=2,
    )
    return code


def examine_rows(
    path: Path,
    like: Path,
    holdout: Path | None,
    request: SynthRequest,
    page: Path | None,
    as_json: bool,
) -> int:
    """Examine rows that another generator made."""
    from certus.generative import examine
    from certus.tables import read_table

    if holdout is None:
        raise Stop(
            "--like needs --holdout FILE: rows of the same kind that the generator "
            "never saw. Without them nobody can say whether rows lie too near to "
            "training rows.",
            code=2,
        )
    page = page or Path(f"{files.stem(like)}-examined.html")
    files.check_place(page, [path, like, holdout], "--report")
    _check_page(page)
    with progress(1) as step:
        step("examining")
        tables = [
            read_table(file, encoding=request.encoding) for file in (path, holdout)
        ]
        found = examine(
            *(*tables, read_table(like)),  # written by a generator, as UTF-8
            target=request.target,
            random_state=0 if request.seed is None else request.seed,
        )
    code = MISSED if _missed(found) else DONE
    files.write(page, _page_of(found, f"{like.name}, made from {path.name}"))
    if as_json:
        say_json(found.to_dict() | {"wrote": [str(page)], "exit_code": code})
        return code
    _say_found(found, [])
    say()
    say(f"wrote {page}")
    return code


def _page_of(found: Any, title: str, model: Any = None, about: str = "") -> str:
    from certus.report import sample_report

    more: dict[str, Any] = {}
    if model is not None:
        claims = model.certificate_.claims
        notes = [
            about.rstrip(":") + ". The table that compares generators is about other "
            "draws, as many from each as there are training rows.",
            *model.notes_,
        ]
        more = {"comparison": model.comparison_, "notes": notes, "claims": claims}
    page: str = sample_report(found, title=title, **more).to_html()
    return page


def _missed(found: Any) -> bool:
    return any(claim.met is False for claim in found.claims)


def _say_found(found: Any, more: Sequence[Any]) -> None:
    say(found.verdict, style="bold", hang=2)
    say_claims([_brief(c) for c in (*found.claims, *more) if _is_shown(c)])
    say(
        'No number of rows can show that rows are "indistinguishable" or "anonymous".',
        indent=2,
        hang=2,
    )


def _is_shown(claim: Any) -> bool:
    unasked = claim.name == "useful" and claim.strength.value == "refused"
    quiet = claim.name == "holdout_unseen" and claim.met
    shown = claim.name in _SHOWN or claim.name == "best_tree"
    return shown and not unasked and not quiet


def _brief(claim: Any) -> Any:
    """A claim without its formula and assumptions, which the report has."""
    from dataclasses import replace

    return replace(claim, objective="", assumptions=())


def _say_comparison(rows: Sequence[dict[str, Any]], chosen: str) -> None:
    from rich.table import Table

    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("  model", "told apart", "columns", "useful", "nearest", "copies", ""):
        table.add_column(head, no_wrap=True)
    for row in rows:
        useful = "–"
        if row["synthetic_score"] is not None:
            useful = f"{row['synthetic_score']:.2f} of {row['real_score']:.2f}"
        auc = row["told_apart_auc"]
        mark = "→" if row["model"] == chosen else " "
        table.add_row(
            f"{mark} {clean(row['model'])}",
            "–" if auc is None else f"{auc:.2f}",
            f"{row['shapes']:.3f}",
            useful,
            f"{100 * row['nearest_share']:.1f} %",
            f"{row['copies']:,}",
            "✗ copies" if row["flagged"] else "",
            style="bold" if row["model"] == chosen else "",
        )
    out().print(table)


# -- options --------------------------------------------------------------------------


def _check_page(page: Path) -> None:
    if page.suffix.lower() != ".html":
        raise Stop(f"--report {page} must end in .html.", code=2)
    files.check_report(page)


def _require_target(target: str | None, frame: Any, path: Path) -> None:
    from certus.tables.errors import did_you_mean

    if target is not None and target not in frame.columns:
        hint = did_you_mean(target, frame.columns)
        raise Stop(f'{path.name} has no column "{shorten(target)}".{hint}', code=2)


def _conditions(texts: Sequence[str], frame: Any, option: str) -> dict[str, Any]:
    """``sex=F`` as a value, ``age=30..40`` as a range, ``sex=F,M`` as a list."""
    from certus.tables.errors import did_you_mean

    found: dict[str, Any] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark:
            raise Stop(f"{option} must be COLUMN=VALUE, got {text!r}.", code=2)
        if name not in frame.columns:
            hint = did_you_mean(name, frame.columns)
            raise Stop(f'{option}: there is no column "{shorten(name)}".{hint}', code=2)
        found[name] = _value_of(value, frame[name].dtype, option)
    return found


def _value_of(text: str, dtype: Any, option: str) -> Any:
    low, mark, high = text.partition("..")
    if dtype.is_temporal() and option == "--given":
        return (low, high) if mark else text
    if dtype.is_numeric() or dtype.is_temporal():
        try:
            return (float(low), float(high)) if mark else float(text)
        except ValueError:
            raise Stop(
                f"{option}: {text!r} must be a number, or a range such as 30..40.",
                code=2,
            ) from None
    if option == "--domain":
        return text.split(",")
    if str(dtype) == "Boolean":
        return text.lower() == "true"
    return text
