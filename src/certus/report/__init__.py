"""The report on a fitted model: what is proved, likely, measured and assumed.

``audit`` gathers certificate, error on new rows and a few figures; the ``Audit`` it
returns is plain data and renders as HTML, Markdown and JSON. ``text_report`` does so
for a language model and a text, ``answer_report`` for a policy tuned on preferences,
``sample_report`` for synthetic rows, and ``explained_page`` for contributions of
columns.
"""

from certus.report.answer_pages import AnswerReport, answer_report
from certus.report.auditing import audit
from certus.report.document import Audit, Figure
from certus.report.explained_pages import explained_page
from certus.report.sample_pages import SampleReport, sample_report
from certus.report.text_pages import TextReport, text_report

__all__ = [
    "AnswerReport",
    "Audit",
    "Figure",
    "SampleReport",
    "TextReport",
    "answer_report",
    "audit",
    "explained_page",
    "sample_report",
    "text_report",
]
