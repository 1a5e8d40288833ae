"""Reading tables, encoding their columns, and pipelines from table to prediction.

``read_table`` reads files, ``TableEncoder`` turns a table into numbers by a few
visible rules, ``TablePipeline`` joins it to a model, and ``load_example`` is a table to
try them on.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "ColumnView": "encoder",
    "MISSING_MARKERS": "cells",
    "SUPPORTED": "reader",
    "TableError": "errors",
    "guess_task": "target",
    "load_example": "example",
    "read_table": "reader",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
