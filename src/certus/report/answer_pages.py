"""The report on a tuned policy: its answers beside those of its base.

What the verifier found, the answers to some prompts before and after, and the reward
against the exact divergence during the fit. One HTML page: no script, nothing from
elsewhere. Prompts and answers are text from outside, and are escaped.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.certificate import Certificate
from certus.config import show_versions
from certus.meanings import explain
from certus.report.document import written
from certus.report.figures import NARROW, WIDE
from certus.report.page import SECTIONS, claim_line, template, tied
from certus.report.svg import Plot, Scale, nice_ticks, text_width, tick_labels
from certus.results import Result
from certus.wording import clean, number, shorten

if TYPE_CHECKING:
    from certus.language import AnswerComparison, PolicyFrontier

__all__ = ["AnswerReport", "answer_report"]

_MEANINGS = {
    "proved": "anyone can check it again on these prompts",
    "statistical": "true for new answers, with the stated probability",
    "measured": "observed on these answers, without a guarantee",
}


@dataclass(frozen=True)
class AnswerReport(Result):
    """A tuned policy and its base, side by side; from :func:`answer_report`.

    Attributes
    ----------
    title, verdict : str
        The policy; what tuning did to its answers, in a sentence.
    certificate : Certificate
        That of the fit.
    answers : AnswerComparison
        Answers of the base and of the policy.
    frontier : PolicyFrontier or None
        Reward against divergence during the fit; None for policies without a reward.
    params, versions : dict
        The policy's parameters; the libraries.
    """

    title: str
    verdict: str
    certificate: Certificate
    answers: AnswerComparison
    frontier: PolicyFrontier | None
    params: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained page: no script, nothing loaded from elsewhere.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well.
        """
        return written(_page(self), path)

    def __str__(self) -> str:
        return f"{self.verdict}\n\n{self.certificate}"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style from that of the notebook.
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox '
            'style="width:100%;height:48rem;border:0" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )


def answer_report(policy: Any) -> AnswerReport:
    """Put the answers of a tuned policy beside those of its base.

    Parameters
    ----------
    policy : DPO, PPO or GRPO
        A fitted policy.

    Returns
    -------
    AnswerReport
        With ``to_html(path)`` for a page.

    Examples
    --------
    >>> from certus.language import GRPO, LanguageModel
    >>> from certus.report import answer_report
    >>> small = {"n_layers": 1, "width": 16, "heads": 2, "context": 16}
    >>> base = LanguageModel(**small, max_iter=3, random_state=0).fit("ab " * 50)
    >>> def reward(prompt, answer):
    ...     return float("b" in answer)
    >>> policy = GRPO(base, reward, max_tokens=4, max_iter=1, random_state=0)
    >>> report = answer_report(policy.fit(["a", "b"]))
    >>> "What did the reward cost?" in report.to_html()
    True
    """
    if not hasattr(policy, "side_by_side"):
        name = type(policy).__name__
        raise TypeError(f"Pass a fitted DPO, PPO or GRPO, not {name}.")
    found, name = policy.side_by_side(), type(policy).__name__
    looked = policy.frontier() if hasattr(policy, "frontier") else None
    params = {k: shorten(repr(v)) for k, v in policy.get_params(deep=False).items()}
    return AnswerReport(
        title=f"{name}: answers before and after",
        verdict=_verdict(name, found),
        certificate=policy.certificate_,
        answers=found,
        frontier=looked,
        params=params,
        versions=show_versions(),
    )


def _verdict(name: str, found: AnswerComparison) -> str:
    n = len(found.prompt)
    told = f"{name}: answers to {n:,} prompts before and after tuning"
    if n and np.isfinite([*found.reward_before, *found.reward]).all():
        before, after = (
            number(float(np.mean(part))) for part in (found.reward_before, found.reward)
        )
        told += f", with a mean reward of {before} and of {after}"
    far = number(float(np.mean(found.kl))) if n else "0"
    return f"{told}; {far} nats from the base on average."


def _page(report: AnswerReport) -> str:
    from markupsafe import Markup

    from certus import __version__

    claims, looked = report.certificate.claims, report.frontier
    # The drawings escape their own text, the template all other text.
    page: str = template("answer_page.html").render(
        version=__version__,
        title=report.title,
        verdict=report.verdict,
        params=report.params,
        versions=report.versions,
        lists=[
            (title, _MEANINGS[name], [claim_line(claim, name) for claim in some])
            for name, title, _ in SECTIONS
            if (some := [c for c in claims if _section(c) == name])
        ],
        answers=_answers(report.answers),
        numbers=_numbers(report.answers, ("reward_before", "reward", "kl")),
        gain="" if looked is None else _gain(looked),
        drawing="" if looked is None else Markup(_both_drawings(looked)),
        looks=None if looked is None else _numbers(looked, tuple(looked._columns())),
        words=explain(claims),
        certificate=clean(str(report.certificate)),
    )
    return tied(page)


def _section(claim: Any) -> str:
    """The list in which a claim stands; what is refused stands with what is proved."""
    kind: str = claim.strength.value
    return kind if kind in ("statistical", "measured") else "proved"


def _answers(found: AnswerComparison) -> list[dict[str, str]]:
    """Prompts with both answers, as the template shows them."""
    columns = found._columns()

    def reward(value: float) -> str:
        return f" · reward {_signed(value)}" if math.isfinite(value) else ""

    return [
        {
            "prompt": clean(str(prompt)) or "(an empty prompt)",
            "before": clean(before) or "(an empty answer)",
            "after": clean(after) or "(an empty answer)",
            "before_reward": reward(old),
            "after_reward": f"{reward(new)} · KL {_signed(kl)}",
        }
        for prompt, before, after, old, new, kl in zip(*columns.values())
    ]


def _signed(value: float) -> str:
    return number(float(value)).replace("-", "−") if math.isfinite(value) else "–"


def _numbers(found: Any, names: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    """Some columns of a result as a table, with a number for each row."""
    columns = found._columns()
    rows = zip(*(columns[name] for name in names))
    return ["", *(name.replace("_", " ") for name in names)], [
        [f"{i:,}", *map(_signed, row)] for i, row in enumerate(rows, start=1)
    ]


def _gain(looked: PolicyFrontier) -> str:
    size = number(abs(looked.gain))
    way = "rose" if looked.gain > 0 else "fell" if looked.gain < 0 else "moved"
    return (
        f"The objective, reward − {number(looked.beta)}·KL, {way} by {size} from the "
        "first look to the last."
    )


def _both_drawings(looked: PolicyFrontier) -> str:
    """Reward against divergence, for a page and for a phone."""
    title, said = "What did the reward cost?", _gain(looked)
    return "".join(
        _drawing(looked, width).render("frontier", title, said, style)
        for style, width in (("wide", WIDE), ("narrow", NARROW))
    )


def _drawing(looked: PolicyFrontier, width: float) -> Plot:
    kl, reward = looked.kl.tolist(), looked.reward.tolist()
    low, high = looked.reward_low.tolist(), looked.reward_high.tolist()
    start = reward[0] - looked.beta * kl[0]
    even = [start, start + looked.beta * max(kl)]
    marks = nice_ticks(min([*low, *even]), max([*high, *even]), 6)
    far = nice_ticks(0.0, max([*kl, 1e-6]), 6 if width > NARROW else 4)
    labels = tick_labels(marks)
    left = 10 + max(map(text_width, labels))
    plot = Plot(
        *(width, 300, Scale(far[0], far[-1]), Scale(marks[0], marks[-1])),
        (30, 18, 46, left),
    )
    plot.y_axis(marks, labels, "mean reward, with an interval of 95 %")
    plot.x_axis(far, tick_labels(far), "KL to the base, nats for each answer")
    # A run may come back to a smaller KL, so that a band would cross itself.
    for x, a, b in zip(kl, low, high):
        plot.rule((plot.x(x), plot.y(a)), (plot.x(x), plot.y(b)), "bar first")
    plot.line([0.0, max(kl)], even, "third")
    plot.line(kl, reward, "first")
    plot.dots(kl, reward, "first")
    return plot
