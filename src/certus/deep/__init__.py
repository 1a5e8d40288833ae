"""Networks as estimators: trained by a loop one can read, with a certificate.

Names are imported when they are first used, so that nothing here needs torch before a
network is built.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Public names, and the modules they live in.
_WHERE = {
    "ConvNetClassifier": "images",
    "read_images": "pictures",
    "MLPClassifier": "mlp",
    "MLPRegressor": "mlp",
    "NeuralClassifier": "neural",
    "NeuralRegressor": "neural",
    "BaggedNetworks": "ensemble",
    "ConsistentClassifier": "semisupervised",
    "Distilled": "distillation",
    "MultiTaskNetwork": "multitask",
    "bootstrap_counts": "ensemble",
    "freeze": "transfer",
    "load_backbone": "transfer",
    "monte_carlo": "dropout",
    "most_uncertain": "active",
    "replace_head": "transfer",
    "SignSGD": "optim",
    "majority_vote": "distributed",
    "max_norm": "optim",
    "Seq2Seq": "seq2seq",
    "RecurrentClassifier": "sequences",
    "RecurrentRegressor": "sequences",
    "SequenceTagger": "tagger",
    "jacobian": "differentiation",
    "jvp": "differentiation",
    "vjp": "differentiation",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'certus.deep' has no attribute {name!r}")
    try:
        module = import_module(f"certus.deep.{_WHERE[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f'certus.deep.{name} needs PyTorch: pip install "certus[deep]".'
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
