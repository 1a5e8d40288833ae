"""Neural networks as estimators, each fit with a certificate.

Names are imported when they are first used, so that nothing here needs torch before a
network is built.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "Muon": "muon",
    "SignSGD": "optim",
    "augment": "",
    "bootstrap_counts": "ensemble",
    "freeze": "transfer",
    "jacobian": "differentiation",
    "jvp": "differentiation",
    "load_backbone": "transfer",
    "majority_vote": "distributed",
    "max_norm": "optim",
    "monte_carlo": "dropout",
    "most_uncertain": "active",
    "operator_norms": "operator_norm",
    "read_images": "image_reading",
    "replace_head": "transfer",
    "vjp": "differentiation",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
