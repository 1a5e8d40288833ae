"""Language models and tokenisers that count their bytes."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "AnswerComparison": "tuning.policy_results",
    "AttentionMaps": "views.attention_maps",
    "Contamination": "copies",
    "ContextUse": "views.context_use",
    "DraftRecord": "decoding.generation",
    "ExtractionRate": "copies",
    "Generation": "decoding.generation",
    "LongestCopy": "copies",
    "OptimalPolicy": "tuning.policy_results",
    "PolicyFrontier": "tuning.policy_results",
    "Surprise": "views.surprise",
    "TrainingProgress": "progress",
    "baselines": "simple_means",
    "bits_difference": "findings",
    "contamination": "copies",
    "decoding_gap": "findings",
    "entropy_excess": "findings",
    "extraction_rate": "copies",
    "longest_copy": "copies",
    "optimal_policy": "tuning.policies",
    "policy_gap": "tuning.policies",
    "preference_accuracy": "tuning.preferences",
    "read_gpt2": "huggingface",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
