# Written by `make stubs` from the rows of the package; do not edit.
from certus.monitoring.columns import ColumnMove as ColumnMove
from certus.monitoring.coverage import CoverageWatch as CoverageWatch
from certus.monitoring.watching import Watch as Watch
from certus.monitoring.watching import watch as watch
