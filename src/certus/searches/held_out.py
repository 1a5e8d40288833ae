"""Rows that scikit-learn's boosting held out to stop early, drawn again from its seed.

A guess that needs no trust: leaves have the values of their formula on the other rows,
or they have not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.typing import Array, Fit


def held_out_rows(model: Fit, y: Any) -> Array | None:
    """Their numbers; None if ``random_state`` is not an integer."""
    from sklearn.model_selection import train_test_split
    from sklearn.utils import check_random_state

    seed = model.random_state
    if not isinstance(seed, int | np.integer) or model.validation_fraction is None:
        return None
    drawn = check_random_state(seed).randint(np.iinfo(np.uint32).max, dtype="u8")
    y = np.asarray(y).ravel()
    rows: Array = train_test_split(
        np.arange(len(y)),
        test_size=model.validation_fraction,
        stratify=y if hasattr(model, "classes_") else None,
        random_state=drawn,
    )[1]
    return np.sort(rows)
