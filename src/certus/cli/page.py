"""The page a fit leaves: one file, one column, nothing loaded from elsewhere.

Verdict first, then the certificate with its marks, the result table, the coefficients
as bars, the data, and what to try next. Light and dark follow the reader's preference.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from certus.wording import clean, number, shorten

if TYPE_CHECKING:
    from certus.cli.fitting import Result

__all__ = ["render"]

_MOST_BARS = 15


class Bar(NamedTuple):
    """One coefficient: label, place and width in a drawing 100 wide, number."""

    label: str
    x: float
    width: float
    value: str
    sign: str


def render(result: Result) -> str:
    """The page as HTML text."""
    import jinja2

    from certus import __version__
    from certus.cli.fitting import next_steps, rows

    certificate = result.pipeline.certificate_
    source = files("certus.cli").joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    bars, zeros = _bars(result)
    encoder = result.pipeline.encoder_
    return environment.from_string(source).render(
        version=__version__,
        result=result,
        data=result.data,
        title=f"{clean(result.data.target)} · {result.model.name}",
        verdict=verdict(result),
        certificate=certificate,
        summary=encoder.summary(),
        notes=[clean(note) for note in encoder.notes_],
        columns=[[clean(cell) for cell in view] for view in encoder.columns_],
        rows=rows(result),
        bars=bars,
        zeros=zeros,
        middle=_middle(bars),
        meaning=_meaning(result),
        steps=[clean(step) for step in next_steps(result)],
    )


def verdict(result: Result) -> list[str]:
    """One or two sentences that a newcomer understands."""
    from certus.certificate import Strength

    certificate = result.pipeline.certificate_
    claim = certificate[certificate.primary]
    name, target = result.model.name, f"“{shorten(result.data.target)}”"
    if claim.strength is Strength.REFUSED:
        first = f"Nothing can be promised about this {name} model of {target}."
    elif claim.met is False:
        first = f"The {name} model of {target} is not solved to the accuracy asked for."
    elif claim.met:
        first = (
            f"The {name} model of {target} is solved, and a separate verifier has "
            f"recomputed the proof on all {result.data.X.height:,} rows."
        )
    else:
        first = f"The {name} model of {target}: {claim.detail}."
    return [first, _error_sentence(result)]


def _error_sentence(result: Result) -> str:
    error = result.error
    if not error.model:
        return f"How well it predicts is not known: {error.reason}."
    ours = sum(error.model) / len(error.model)
    theirs = sum(error.constant) / len(error.constant)
    better = "better" if error.beats_constant else "no better"
    if error.task == "classification":
        return (
            f"On rows held out in turn it was wrong in {100 * ours:.1f} % of cases, "
            f"{better} than always saying the most frequent label "
            f"({100 * theirs:.1f} %)."
        )
    return (
        f"On rows held out in turn it was off by {number(ours)} (root mean square), "
        f"{better} than always saying the mean ({number(theirs)})."
    )


def _bars(result: Result) -> tuple[list[Bar], int]:
    """The largest coefficients as bars, and how many of all are zero; or none."""
    import numpy as np

    coef = getattr(result.pipeline.model_, "coef_", None)
    if coef is None:  # kernel machines and neighbours have none
        return [], 0
    coef = np.atleast_2d(np.asarray(coef, dtype=float))
    # Several classes: one bar for the size over all of them.
    values = coef[0] if len(coef) == 1 else np.linalg.norm(coef, axis=0)
    values = np.where(np.isfinite(values), values, 0.0)
    names = result.pipeline.encoder_.get_feature_names_out()
    order = np.argsort(-np.abs(values), kind="stable")[:_MOST_BARS]
    shown = values[order]
    low, high = min(0.0, shown.min()), max(0.0, shown.max())
    scale = 100.0 / ((high - low) or 1.0)
    bars = [
        Bar(
            label=shorten(str(names[i]), 34),
            x=round(scale * (min(values[i], 0.0) - low), 3),
            width=round(max(scale * abs(values[i]), 0.3), 3),
            value=number(values[i]).replace("-", "−"),
            sign="minus" if values[i] < 0 else "plus",
        )
        for i in order
    ]
    return bars, int((values == 0).sum())


def _middle(bars: list[Bar]) -> float:
    """Where zero is: the end of every bar to the left, the start of the others."""
    left = [bar.x + bar.width for bar in bars if bar.sign == "minus"]
    return round(max(left), 3) if left else 0.0


def _meaning(result: Result) -> str:
    """What a bar says, in the units of the encoded columns."""
    if result.data.task == "regression":
        linked = result.model.name in ("poisson", "glm")
        score = "score behind the " if linked else ""  # on the scale of their link
        what = f"Change of the {score}predicted “{shorten(result.data.target)}”"
    elif len(result.pipeline.classes_) == 2:
        label = shorten(str(result.pipeline.classes_[1]), 24)
        what = f"Change of the score for “{label}”"
    else:
        what = "Size of the change of the scores, over all labels,"
    total = len(result.pipeline.encoder_.get_feature_names_out())
    shown = f" The {_MOST_BARS} largest of {total:,}." if total > _MOST_BARS else ""
    return (
        f"{what} when a number rises by one standard deviation, or a category or mark "
        f"applies, all else equal.{shown}"
    )
