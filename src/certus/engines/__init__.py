"""Engines: where blocks of rows are read and worked on.

An engine has one method, ``run(blocks, work, state)``: the results of
``work(blocks.read(key), *state)`` in the order of ``blocks.keys``. The work depends
only on the address of a block, so an engine may run it anywhere, in any order, and
again. ``certus.scale`` is the public name of this package.
"""

from certus.engines.dask import Dask, is_client
from certus.engines.processes import Processes

__all__ = ["Dask", "Processes", "engine_of"]


def engine_of(given: object) -> object:
    """The engine to use: a Dask client becomes :class:`Dask`."""
    return Dask(given) if is_client(given) else given
