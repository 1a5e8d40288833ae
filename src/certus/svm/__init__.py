"""Support vector machines with scikit-learn's names, parameters and attributes.

Linear machines on rows, kernel machines on pairs of rows; each fit has a
``certificate_`` that says whether the problem is solved.
"""

from __future__ import annotations

from certus.lazy import exports

__all__, __getattr__, __dir__ = exports(__name__)
