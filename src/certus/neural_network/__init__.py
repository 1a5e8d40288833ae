"""Networks as estimators: trained by a loop one can read, with a certificate.

Names are imported when they are first used, so that nothing here needs torch before a
network is built.
"""

from __future__ import annotations

from certus.lazy import lazily

#: Public names, and the modules they live in.
_WHERE = {
    "ConvNetClassifier": "images",
    "read_images": "pictures",
    "MLPClassifier": "mlp",
    "MLPRegressor": "mlp_regressor",
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
    "operator_norms": "operator_norm",
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
__getattr__, __dir__ = lazily(__name__, _WHERE, __all__)
