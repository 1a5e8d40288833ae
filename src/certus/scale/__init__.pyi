# Written by `make stubs` from the rows of the package; do not edit.
from certus.scale.sources import Blocks as Blocks
from certus.scale.engines import Dask as Dask
from certus.scale.engines import Processes as Processes
from certus.scale.sources import blocks as blocks
