"""An audit as data: a verdict, four lists, a comparison, figures, details.

Everything is numbers and sentences, so that HTML, Markdown and JSON say the same and a
report read back from JSON draws the same page. Drawing is in ``figures``.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certus.certificate import Certificate, Claim
from certus.persist.container import ModelFileError, write_atomically
from certus.results import Result

__all__ = ["Audit", "Figure"]


@dataclass(frozen=True)
class Figure(Result):
    """A question, its answer in a sentence, and the numbers that are drawn.

    Attributes
    ----------
    kind : str
        What is drawn: learning, validation, calibration, confusion, residuals,
        importance, groups, threat.
    question, answer, caption : str
        The title; what the numbers say; which rows they come from.
    data : dict
        The numbers, as lists.
    """

    kind: str
    question: str
    answer: str
    caption: str
    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The figure as JSON-ready data."""
        names = ("kind", "question", "answer", "caption")
        return {**{n: getattr(self, n) for n in names}, "data": dict(self.data)}


@dataclass(frozen=True)
class Audit(Result):
    """What can be said about a model; made by :func:`certus.audit`.

    Attributes
    ----------
    title, verdict : str
        The model and its target; the result in a sentence or two.
    proved, statistical, measured : tuple of Claim
        What was found, by how far it may be relied on; a refusal stands in the list
        that it leaves empty.
    assumed : tuple of str
        Assumptions behind the lists above that were not checked.
    certificate : Certificate
        The verifier's, on the training rows.
    comparison : dict or None
        The candidates, as ``Comparison.to_dict`` gives them.
    figures : tuple of Figure
        Three to five, each with a question.
    left_out : tuple of str
        Which figures are missing, and why.
    data, params, versions : dict
        The rows, the model's parameters, the libraries.
    seconds : float
        What the audit cost.
    """

    title: str
    verdict: str
    proved: tuple[Claim, ...]
    statistical: tuple[Claim, ...]
    measured: tuple[Claim, ...]
    assumed: tuple[str, ...]
    certificate: Certificate
    comparison: Mapping[str, Any] | None = None
    figures: tuple[Figure, ...] = ()
    left_out: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def met(self) -> bool | None:
        """Whether the certificate's primary claim meets its target."""
        return self.certificate.met

    def figure(self, kind: str) -> Figure:
        """The figure of that kind.

        Parameters
        ----------
        kind : str
            For example ``"learning"``.
        """
        for figure in self.figures:
            if figure.kind == kind:
                return figure
        have = ", ".join(figure.kind for figure in self.figures) or "none"
        raise KeyError(f"no figure {kind!r}; this audit has: {have}")

    # ---- JSON --------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON-ready data."""
        return {
            "title": self.title,
            "verdict": self.verdict,
            **{name: [c.to_dict() for c in getattr(self, name)] for name in _LISTS},
            "assumed": list(self.assumed),
            "certificate": self.certificate.to_dict(),
            "comparison": None if self.comparison is None else dict(self.comparison),
            "figures": [figure.to_dict() for figure in self.figures],
            "left_out": list(self.left_out),
            "data": dict(self.data),
            "params": dict(self.params),
            "versions": dict(self.versions),
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Audit:
        """Inverse of :meth:`to_dict`; the evidence's arrays are not kept.

        Parameters
        ----------
        data : dict
            As :meth:`to_dict` gives it, for example read from JSON.
        """
        lists: dict[str, Any] = {
            name: tuple(map(Claim.from_dict, data[name])) for name in _LISTS
        }
        rest = ("title", "verdict", "comparison", "data", "params", "versions")
        return cls(
            **lists,
            **{name: data[name] for name in (*rest, "seconds")},
            assumed=tuple(data["assumed"]),
            left_out=tuple(data["left_out"]),
            certificate=Certificate.from_dict(data["certificate"]),
            figures=tuple(Figure(**figure) for figure in data["figures"]),
        )

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The audit as strict JSON.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well.
        """
        return written(json.dumps(self.to_dict(), indent=2, allow_nan=False), path)

    # ---- for people --------------------------------------------------------------

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained page: no script, nothing loaded from elsewhere.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well.
        """
        from certus.report.page import render

        return written(render(self), path)

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """The same in Markdown, figures as tables.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well.
        """
        from certus.report.markdown import render

        return written(render(self), path)

    def to_model_card(self, path: str | os.PathLike[str] | None = None) -> str:
        """A model card: Markdown with a head of metadata, as model hubs read it.

        Parameters
        ----------
        path : str or path, optional
            Where to write it as well; hubs expect the name README.md.
        """
        from certus.report.card import render

        return written(render(self), path)

    def __str__(self) -> str:
        return f"{self.verdict}\n\n{self.certificate}"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style from that of the notebook.
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox '
            'style="width:100%;height:48rem;border:0" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )


_LISTS = ("proved", "statistical", "measured")


def written(text: str, path: str | os.PathLike[str] | None) -> str:
    """The text, after it was written to the path, if there is one."""
    if path is not None:
        try:
            write_atomically(Path(path), text.encode("utf-8", "replace"))
        except ModelFileError as error:
            raise ModelFileError(f"{Path(path).name} {error}") from error.__cause__
    return text
