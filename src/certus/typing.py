"""Types that every part of certus speaks of."""

from typing import Any

import numpy as np

#: An array of any shape and type.
Array = np.ndarray[Any, np.dtype[Any]]

#: Where random numbers come from; None for numbers that differ from call to call.
RandomState = int | np.random.RandomState | np.random.Generator | None
