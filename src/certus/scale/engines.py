"""The engines under their public name."""

from certus.engines import Dask as Dask
from certus.engines import Processes as Processes
