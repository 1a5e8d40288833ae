"""Witnesses: what a fit leaves to make the verifier's work short, as bare data.

A witness never says what was minimised: that the verifier reads from the model's public
parameters. A dual point, a direction along which no minimum exists, the counts of
mistakes, the start of a run: each is checked before it is used, and a wrong one can
only make a certificate fail.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class LinearWitness(NamedTuple):
    """Of a linear model: slopes dℓ/dz at a minimum, or a direction without an end.

    ``dual`` has one column for each problem; ``direction`` is (w, b) with b last.
    """

    dual: Array | None = None
    direction: Array | None = None


#: By the kind that a model file names.
WITNESSES: dict[str, type[Any]] = {"linear": LinearWitness}
