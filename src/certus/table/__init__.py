"""From a file or data frame to a matrix, and from there to predictions.

``read_table`` reads files, ``TableEncoder`` turns a table into numbers by a few
visible rules, ``TablePipeline`` joins it to a model, and ``load_example`` is a table to
try them on.
"""

from certus.table.cells import MISSING_MARKERS
from certus.table.encoder import ColumnView, TableEncoder
from certus.table.errors import TableError
from certus.table.example import load_example
from certus.table.pipeline import TablePipeline, guess_task
from certus.table.reader import SUPPORTED, read_table

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
