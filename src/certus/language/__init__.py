"""Language models and tokenisers that count their bytes."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "TrainingProgress": "progress",
    "baselines": "simple_means",
    "bits_difference": "findings",
    "decoding_gap": "findings",
    "entropy_excess": "findings",
    "read_gpt2": "huggingface",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
