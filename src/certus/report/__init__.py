"""The report on a fitted model: what is proved, likely, measured and assumed.

``audit`` gathers certificate, error on new rows and a few figures; the ``Audit`` it
returns is plain data and renders as HTML, Markdown and JSON.
"""

from certus.report.auditing import audit
from certus.report.document import Audit, Figure

__all__ = ["Audit", "Figure", "audit"]
