"""From a file or data frame to a matrix, and from there to predictions.

``read_table`` reads files, ``TableEncoder`` turns a table into numbers by a few
visible rules, ``TablePipeline`` joins it to a model, and ``load_example`` is a table to
try them on.
"""

from certus.tables.cells import MISSING_MARKERS
from certus.tables.encoder import ColumnView, TableEncoder
from certus.tables.errors import TableError
from certus.tables.example import load_example
from certus.tables.pipeline import TablePipeline, guess_task
from certus.tables.reader import SUPPORTED, read_table

__all__ = [
    "MISSING_MARKERS",
    "SUPPORTED",
    "ColumnView",
    "TableEncoder",
    "TableError",
    "TablePipeline",
    "guess_task",
    "load_example",
    "read_table",
]
