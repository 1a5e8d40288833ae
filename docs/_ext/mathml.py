"""Formulas as MathML, which browsers draw themselves: no script, no network.

docutils brings the translation from LaTeX. This adds the spaces that LaTeX would add,
and hands the result to Sphinx's HTML.
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

_SPACE = '<mspace width="0.17em"></mspace>'
_BAR = re.compile(r'<mo( class="mathopen")?>([|‖])</mo>')


def _spaced(formula: str) -> str:
    """Separate "mean a", which browsers would join, and let bars stay as they are."""
    formula = re.sub(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>[(\[])", _SPACE, formula)
    formula = formula.replace("<mo>'</mo>", '<mo lspace="0" rspace="0.1em">′</mo>')
    depth = 0

    def bar(found: re.Match[str]) -> str:
        nonlocal depth
        if found[1]:
            depth += 1
            return (
                f'<mo class="mathopen" form="prefix" stretchy="false">{found[2]}</mo>'
            )
        if not depth:  # a relation, as in kl(q ‖ p)
            return found[0]
        depth -= 1
        return f'<mo form="postfix" stretchy="false">{found[2]}</mo>'

    return _BAR.sub(bar, formula)


def _formula(node: Any, as_block: bool) -> str:
    try:
        return _spaced(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        logger.warning("%s in: %s", error, node.astext(), location=node)
        return f"<code>{html.escape(node.astext())}</code>"


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(_formula(node, as_block=False))
    raise nodes.SkipNode


def _block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="formula">{_formula(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Offer ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
