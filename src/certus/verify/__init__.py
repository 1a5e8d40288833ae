"""The verifier: small, plain NumPy float64, with its own formulas.

It imports no solver, no estimator family and no compiled kernel. From the fitted
parameters, the evidence and the data it recomputes each claim; a bug in a solver, a
stale kernel or swapped data can make a certificate fail, never lie.
"""

from __future__ import annotations

from certus.lazy import exports

#: The public interface: other packages use these names only, not the modules.
_WHERE = {
    "Costs": "decisions",
    "DeltaShares": "together",
    "Flip": "explained_flips",
    "PlainNetwork": "language.attention",
    "Played": "explained_mixing",
    "Proof": "robustness",
    "Said": "panel",
    "ScoreRange": "ranges",
    "ToldShares": "explained",
    "accuracy_claim": "robustness",
    "among": "robustness",
    "answer_logs": "language.policies",
    "check": "judging",
    "contamination": "language.copies",
    "copy_claim": "language.copies",
    "cost_claims": "decisions",
    "decoding_claim": "language.chains",
    "difference_claims": "language.chains",
    "distance_claim": "adversarial",
    "excess_claim": "language.chains",
    "explained_claims": "explained",
    "flip_claims": "explained_flips",
    "judge": "judging",
    "large_error_claim": "amounts",
    "lipschitz_constant": "robustness",
    "no_sealed_rows": "comparing",
    "node_accuracy_claim": "graph_networks",
    "panel_claims": "panel",
    "panel_shares": "panel",
    "policy_claims": "language.policies",
    "policy_claims_of_draws": "language.policies",
    "preference_claims": "language.rewards",
    "privacy_claims": "privacy",
    "probe_claims": "probes",
    "prove_robust": "robustness",
    "prove_trees": "tree_robustness",
    "recall_claims": "decisions",
    "refuted": "robustness",
    "sample_claims": "sample_laws",
    "score_range": "ranges",
    "seen_in_fit": "conformal",
    "told_apart_claim": "sample_laws",
    "union_claim": "comparing",
    "unprovable": "sample_laws",
    "unproved": "robustness",
    "useful_claim": "sample_laws",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
