"""The verifier: small, plain NumPy float64, with its own formulas.

It imports no solver, no estimator family and no compiled kernel. From the fitted
parameters, the evidence and the data it recomputes each claim; a bug in a solver, a
stale kernel or swapped data can make a certificate fail, never lie.
"""

from certus.verify.adversarial import distance_claim
from certus.verify.amounts import large_error_claim
from certus.verify.comparing import no_sealed_rows, union_claim
from certus.verify.conformal import seen_in_fit
from certus.verify.decisions import Costs, cost_claims, recall_claims
from certus.verify.explained import ToldShares, explained_claims
from certus.verify.explained_flips import Flip, flip_claims
from certus.verify.explained_mixing import Played
from certus.verify.graph_networks import node_accuracy_claim
from certus.verify.judging import check, judge
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.chains import (
    decoding_claim,
    difference_claims,
    excess_claim,
)
from certus.verify.language.copies import contamination, copy_claim
from certus.verify.language.policies import answer_logs
from certus.verify.language.policies import claims_of_draws as policy_claims_of_draws
from certus.verify.language.policies import listed_claims as policy_claims
from certus.verify.language.rewards import preference_claims
from certus.verify.panel import Said, panel_claims, panel_shares
from certus.verify.privacy import privacy_claims
from certus.verify.probes import probe_claims
from certus.verify.ranges import ScoreRange, score_range
from certus.verify.robustness import (
    Proof,
    accuracy_claim,
    among,
    lipschitz_constant,
    prove_robust,
    refuted,
    unproved,
)
from certus.verify.sample_laws import (
    sample_claims,
    told_apart_claim,
    unprovable,
    useful_claim,
)
from certus.verify.together import DeltaShares
from certus.verify.tree_robustness import prove_trees

#: The public interface: other packages use these names only, not the modules.
__all__ = [
    "Costs",
    "DeltaShares",
    "Flip",
    "PlainNetwork",
    "Played",
    "Proof",
    "Said",
    "ScoreRange",
    "ToldShares",
    "accuracy_claim",
    "among",
    "answer_logs",
    "check",
    "contamination",
    "copy_claim",
    "cost_claims",
    "decoding_claim",
    "difference_claims",
    "distance_claim",
    "excess_claim",
    "explained_claims",
    "flip_claims",
    "judge",
    "large_error_claim",
    "lipschitz_constant",
    "no_sealed_rows",
    "node_accuracy_claim",
    "panel_claims",
    "panel_shares",
    "policy_claims",
    "policy_claims_of_draws",
    "preference_claims",
    "privacy_claims",
    "probe_claims",
    "prove_robust",
    "prove_trees",
    "recall_claims",
    "refuted",
    "sample_claims",
    "score_range",
    "seen_in_fit",
    "told_apart_claim",
    "union_claim",
    "unprovable",
    "unproved",
    "useful_claim",
]
