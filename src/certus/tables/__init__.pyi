# Written by `make stubs` from the rows of the package; do not edit.
from certus.tables.encoder import ColumnView as ColumnView
from certus.tables.cells import MISSING_MARKERS as MISSING_MARKERS
from certus.tables.reader import SUPPORTED as SUPPORTED
from certus.tables.encoder import TableEncoder as TableEncoder
from certus.tables.errors import TableError as TableError
from certus.tables.pipeline import TablePipeline as TablePipeline
from certus.tables.target import guess_task as guess_task
from certus.tables.example import load_example as load_example
from certus.tables.reader import read_table as read_table
