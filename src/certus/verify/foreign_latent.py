"""Clusterings, mixtures and factorisations that scikit-learn fitted, as evidence.

Each by what it minimises or maximises; the checkers are those of our own models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certus.certificate import Evidence
from certus.verify.foreign_common import NOTE


def _gaussian_mixture(model: Any) -> tuple[Evidence, str]:
    params = {
        "covariance_type": model.covariance_type,
        "assignment": "soft",
        "tol": float(model.tol),
        "reg_covar": float(model.reg_covar),
        "fix": f"raise max_iter (now {model.max_iter}), or go on with warm_start=True",
    }
    return Evidence("mixture", (), params), NOTE


def _factor_analysis(model: Any) -> tuple[Evidence, str]:
    params = {
        "noise": "diagonal",
        "tol": float(model.tol),
        "saturated": model.n_components is None,
        "fix": f"raise max_iter (now {model.max_iter}), svd_method='lapack', or "
        "certus.factor.FactorAnalysis",
    }
    return Evidence("gaussian_factors", (), params), NOTE


def _nmf(model: Any) -> tuple[Evidence, str]:
    """scikit-learn scales the penalties by the other side's length."""
    beta = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}
    share, d = float(model.l1_ratio), model.components_.shape[1]
    same = isinstance(model.alpha_H, str)
    own, other = float(model.alpha_W), model.alpha_W if same else model.alpha_H
    params = {
        "beta": beta.get(model.beta_loss, model.beta_loss),
        "tol": float(model.tol),
        "on_W": [d * own * share, d * own * (1 - share)],
        "on_H_per_row": [float(other) * share, float(other) * (1 - share)],
        "fix": f"a smaller tol (now {float(model.tol):g}) and a larger max_iter",
    }
    return Evidence("nonnegative", (), params), NOTE


#: By scikit-learn's class name.
STATEMENTS: dict[str, Callable[[Any], tuple[Evidence, str]]] = {
    "FactorAnalysis": _factor_analysis,
    "GaussianMixture": _gaussian_mixture,
    "NMF": _nmf,
}
