"""Tables larger than memory, and work on several machines.

>>> import numpy as np
>>> import certus
>>> rows = certus.scale.blocks(np.arange(20.0).reshape(10, 2), np.arange(10.0))
>>> rows
<10 rows × 2 columns in 1 block>

Pass the result of :func:`blocks` to ``fit`` and :func:`certus.certify` in place of X.
"""

from certus.lazy import exports

__all__, __getattr__, __dir__ = exports(
    "certus.scale",
    {
        "Blocks": "sources",
        "Dask": "engines",
        "Processes": "engines",
        "blocks": "sources",
    },
)
