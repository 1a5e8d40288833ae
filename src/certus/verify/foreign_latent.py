"""Clusterings, mixtures and factorisations that scikit-learn fitted, as evidence.

Each by what it minimises or maximises; the checkers are those of our own models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certus.certificate import Evidence
from certus.verify.foreign_common import NOTE


def _factor_analysis(model: Any) -> tuple[Evidence, str]:
    params = {
        "noise": "diagonal",
        "tol": float(model.tol),
        "saturated": model.n_components is None,
        "fix": f"raise max_iter (now {model.max_iter}), svd_method='lapack', or "
        "certus.factor.FactorAnalysis",
    }
    return Evidence("gaussian_factors", (), params), NOTE


#: By scikit-learn's class name.
STATEMENTS: dict[str, Callable[[Any], tuple[Evidence, str]]] = {
    "FactorAnalysis": _factor_analysis,
}
