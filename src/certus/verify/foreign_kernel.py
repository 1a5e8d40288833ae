"""Kernel machines that scikit-learn fitted, stated as evidence.

Each by the objective it minimises: SVC and SVR weigh the sum of losses with C beside
½‖f‖² and leave the intercept free, KernelRidge has alpha·‖f‖² beside the sum of squares
and no intercept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Evidence
from certus.verify.foreign_common import NOTE, TOL


def svc(model: Any) -> tuple[Evidence, str]:
    """C·Σ s·max(0, 1 − yz) + ½‖f‖² for each pair of classes."""
    pairs = len(model.classes_) > 2
    params = {
        "target": "one_vs_one" if pairs else "signs",
        "class_weight": model.class_weight,
        "class_counts": "rows",
    }
    return _support(model, t.Hinge(1.0), "SVC", params)


def svr(model: Any) -> tuple[Evidence, str]:
    """C·Σ s·max(0, |y − z| − epsilon) + ½‖f‖²."""
    loss = t.EpsilonInsensitive(float(model.epsilon))
    return _support(model, loss, "SVR", {"target": "numbers"})


def _support(
    model: Any, loss: t.Loss, ours: str, params: dict[str, Any]
) -> tuple[Evidence, str]:
    C = float(model.C)
    penalty: t.Penalty = t.NoPenalty() if np.isinf(C) else t.L2(1.0 / C)
    name = model.kernel
    gamma, coef0 = float(getattr(model, "_gamma", 0.0)), float(model.coef0)
    kernel = _named(name, gamma, coef0, float(model.degree))
    if kernel is None:
        kernel = t.Given(name)
    smaller = f"tol={float(model.tol) / 1000:.0e}, or certus.kernel.{ours}"
    common = {"intercept": "free", "tol": TOL, "fix": smaller}
    return Evidence("kernel", (loss, penalty, kernel), {**common, **params}), NOTE


def kernel_ridge(model: Any) -> tuple[Evidence, str]:
    """½Σ s(y − z)² + ½·alpha·‖f‖²; one alpha for each target is allowed."""
    alphas = np.ravel(np.asarray(model.alpha, dtype=float))
    plain = bool(np.all(alphas == 0))
    penalty: t.Penalty = t.NoPenalty() if plain else t.L2(float(alphas[0]))
    columns = model.X_fit_.shape[1]
    gamma = 1.0 / columns if model.gamma is None else float(model.gamma)
    kernel = None
    if isinstance(model.kernel, str):
        kernel = _named(model.kernel, gamma, float(model.coef0), float(model.degree))
    if kernel is None:
        kernel = t.Given(model._get_kernel)
    params: dict[str, Any] = {"target": "numbers", "intercept": "none", "tol": TOL}
    params["fix"] = "a larger alpha, or certus.kernel.KernelRidge"
    if len(alphas) > 1:
        params["alphas"] = [float(a) for a in alphas]
    return Evidence("kernel", (t.Squared(), penalty, kernel), params), NOTE


def _named(name: Any, gamma: float, coef0: float, degree: float) -> t.Kernel | None:
    """scikit-learn's kernel of that name as a term, if it is one of ours."""
    match name:
        case "linear":
            return t.Linear()
        case "poly" | "polynomial":
            whole = int(degree) if degree.is_integer() else degree
            return t.Polynomial(whole, coef0, gamma)  # type: ignore[arg-type]
        case "rbf":
            return t.Gaussian(gamma)
        case "laplacian":
            return t.Laplace(gamma, 1)
        case "sigmoid":
            return t.Sigmoid(gamma, coef0)
        case "precomputed":
            return t.Precomputed()
    return None


#: By scikit-learn's class name.
STATEMENTS: dict[str, Callable[[Any], tuple[Evidence, str]]] = {
    "SVC": svc,
    "SVR": svr,
    "KernelRidge": kernel_ridge,
}
