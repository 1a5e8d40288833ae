"""certus: machine learning that shows its proof.

Public names are imported on first use: ``import certus`` loads neither numba, torch
nor scikit-learn's estimators.
"""

from __future__ import annotations

from certus.lazy import exports

__version__ = "0.1.0"

#: Where each public name lives; the packages below are names as well.
_WHERE = {
    "audit": "report",
    "certify": "certifying",
    "check": "verify",
    "compare": "selection",
    "explain": "explanations",
    "load": "persist",
    "save": "persist",
    "set_config": "config",
    "get_config": "config",
    "config_context": "config",
    "show_versions": "config",
    "Certificate": "certificate",
    "Claim": "certificate",
    "Status": "certificate",
    "Strength": "certificate",
}
_PACKAGES = (
    "additive",
    "bounds",
    "calibration",
    "cluster",
    "decomposition",
    "diagnostics",
    "ensemble",
    "explanations",
    "fairness",
    "generative",
    "graph",
    "kernel_ridge",
    "kernels",
    "language",
    "linear_model",
    "memory",
    "mixture",
    "monitoring",
    "neighbors",
    "neural_network",
    "objectives",
    "optimize",
    "recommend",
    "report",
    "representation",
    "robustness",
    "scale",
    "selection",
    "semi_supervised",
    "svm",
    "synth",
    "tables",
    "testing",
    "text",
    "verify",
)
__all__, __getattr__, __dir__ = exports(
    __name__, {**_WHERE, **dict.fromkeys(_PACKAGES, "")}
)
__all__.append("__version__")
