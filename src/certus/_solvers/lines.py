"""Products with the lines of a sparse matrix, on all available threads.

A line is a row of CSR or a column of CSC: its entries lie together, and what comes out
for one line does not depend on the others. SciPy releases Python's lock in a product
but uses one thread.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from certus._core.threads import run_blocks
from certus.typing import Array

#: Entries of a run of lines, at least: below that threads cost more than they bring.
RUN = 1 << 19
#: Most runs; a few for each thread even out what they take.
RUNS = 8


def runs_of(indptr: Array) -> list[slice]:
    """Runs of lines with about as many entries each.

    Examples
    --------
    >>> import numpy as np
    >>> from certus._solvers.lines import runs_of
    >>> runs_of(np.array([0, 2, 3]))
    [slice(0, 2, None)]
    """
    total = int(indptr[-1])
    count = max(1, min(RUNS, total // RUN))
    inner = np.searchsorted(indptr, np.arange(1, count) * total // count)
    cuts = np.unique([0, *inner, len(indptr) - 1]).tolist()
    return [slice(i, j) for i, j in pairwise(cuts)]


def line_products(A: Any, x: Array) -> Array:
    """The products of all lines with x: A @ x of CSR, Aᵀ @ x of CSC.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from certus._solvers.lines import line_products
    >>> line_products(sparse.csc_array([[1.0, 2.0], [0.0, 3.0]]), np.array([1.0, 1.0]))
    array([1., 5.])
    """
    runs = runs_of(A.indptr)
    if len(runs) <= 1 or x.ndim != 1:
        return np.asarray((A if A.format == "csr" else A.T) @ x)
    out = np.empty(len(A.indptr) - 1)

    def work(run: slice, _: Any) -> None:
        start, stop = A.indptr[run.start], A.indptr[run.stop]
        own = sparse.csr_array((run.stop - run.start, len(x)))
        own.data, own.indices = A.data[start:stop], A.indices[start:stop]  # views
        own.indptr = A.indptr[run.start : run.stop + 1] - start
        out[run] = own @ x

    run_blocks(work, runs)
    return out
