"""The rounding of float64, in one place; the verifier has its own."""

from __future__ import annotations

import numpy as np

#: Distance from 1 to the next number of float64, 2⁻⁵².
EPS = float(np.finfo(np.float64).eps)
#: Share of a number that a few hundred operations may lose.
ROUNDING = 1e3 * EPS
