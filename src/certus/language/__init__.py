"""Language models and tokenisers that count their bytes."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "AnswerComparison": "policy_results",
    "AttentionMaps": "attention_maps",
    "Contamination": "copies",
    "ContextUse": "context_use",
    "DraftRecord": "generation",
    "ExtractionRate": "copies",
    "Generation": "generation",
    "LongestCopy": "copies",
    "OptimalPolicy": "policy_results",
    "PolicyFrontier": "policy_results",
    "Surprise": "surprise",
    "TrainingProgress": "progress",
    "baselines": "simple_means",
    "bits_difference": "findings",
    "contamination": "copies",
    "decoding_gap": "findings",
    "entropy_excess": "findings",
    "extraction_rate": "copies",
    "longest_copy": "copies",
    "optimal_policy": "policies",
    "policy_gap": "policies",
    "preference_accuracy": "preferences",
    "read_gpt2": "huggingface",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
