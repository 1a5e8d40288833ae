# Written by `make stubs` from the rows of the package; do not edit.
from certus.scale.sources import Blocks as Blocks
from certus.scale.dask import Dask as Dask
from certus.scale.sources import blocks as blocks
