"""What the words of a certificate mean: one sentence for each claim and each term.

``certificate.explain()``, ``certus certify --explain`` and the report take their
sentences from here. A new kind of claim needs a row in :data:`CLAIMS`; a test finds
the names of claims in the source and asks for it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

__all__ = ["CLAIMS", "STRENGTHS", "TERMS", "ClaimWords", "explain", "label"]


class ClaimWords(NamedTuple):
    """How a claim is labelled, at most ten characters, and what it means."""

    met: str
    missed: str
    meaning: str


_WORDS = ClaimWords

CLAIMS = {
    # -- language models ----------------------------------------------------------
    "bits_per_byte": _WORDS(
        "bits/byte",
        "bits/byte",
        "How many bits the model needs for each byte of this text; fewer are better.",
    ),
    "bytes_counted": _WORDS(
        "bytes",
        "bytes",
        "The tokens that were scored stand for exactly the bytes of the text.",
    ),
    "stated_bits": _WORDS(
        "confirmed",
        "differs",
        "How far the model's own bits per byte are from those counted here.",
    ),
    "agreement": _WORDS(
        "confirmed",
        "differs",
        "How far the model's log-probability of a token is from that of its weights, "
        "computed again.",
    ),
    "causality": _WORDS(
        "causal",
        "leaks",
        "How much tokens that come later change the probability of earlier ones.",
    ),
    "replay": _WORDS(
        "replayed",
        "differs",
        "How far the recorded random numbers are from the intervals of the tokens that "
        "were drawn with them.",
    ),
    "cache": _WORDS(
        "cache",
        "cache",
        "How much remembering earlier tokens changes the log-probability of later "
        "ones.",
    ),
    "speculative_gap": _WORDS(
        "draft",
        "draft",
        "How far the law of tokens that a small model drafts is from that of the large "
        "model.",
    ),
    "decoding_gap": _WORDS(
        "search",
        "search",
        "How much more probable another continuation of the prompt can be, in "
        "log-probability.",
    ),
    "entropy_excess": _WORDS(
        "excess",
        "excess",
        "How many bits for each symbol the model needs above the least possible.",
    ),
    "bits_difference": _WORDS(
        "difference",
        "difference",
        "How many more bits for each byte the first model needs than the second, for "
        "the median document.",
    ),
    "total_difference": _WORDS(
        "in total",
        "in total",
        "How many more bits for each byte the first model needs than the second.",
    ),
    # -- solved or not ------------------------------------------------------------
    "duality_gap": _WORDS(
        "solved",
        "not solved",
        "No other coefficients can lower the objective by more than this, as a share "
        "of the loss of the best constant prediction.",
    ),
    "backward_error": _WORDS(
        "solved",
        "not solved",
        "The coefficients are the exact solution for data that differ from yours by "
        "this share at most.",
    ),
    "backward_gap": _WORDS(
        "solved",
        "not solved",
        "For data that differ from yours by this share at most, no other coefficients "
        "can lower the objective by more than this share.",
    ),
    "likelihood_gap": _WORDS(
        "solved",
        "not solved",
        "No other parameters have a log-likelihood that is higher by more than this.",
    ),
    "loss_excess": _WORDS(
        "solved",
        "not solved",
        "No other weights of this shape have a loss that is lower by more than this.",
    ),
    "components_gap": _WORDS(
        "components",
        "components",
        "With the weights fixed, no other components lower the objective by more than "
        "this.",
    ),
    "weights_gap": _WORDS(
        "weights",
        "weights",
        "With the components fixed, no other weights lower the objective by more than "
        "this.",
    ),
    "global_gap": _WORDS(
        "global gap",
        "global gap",
        "No other factors, however they are found, can lower the objective by more "
        "than this.",
    ),
    "oracle_gap": _WORDS(
        "search",
        "search",
        "How much another round of the search could still gain, as far as it has "
        "found.",
    ),
    # -- converged or not ---------------------------------------------------------
    "stationarity": _WORDS(
        "stationary",
        "stationary",
        "The size of the gradient at the solution: it is zero at a minimum, but also "
        "at other flat points.",
    ),
    "newton_decrement": _WORDS(
        "next step",
        "next step",
        "How much one more step of Newton's method is expected to lower the objective.",
    ),
    "gradient_norm": _WORDS(
        "gradient",
        "gradient",
        "The length of the gradient of the training loss: near a minimum it is close "
        "to zero.",
    ),
    "gradient_ratio": _WORDS(
        "gradient",
        "gradient",
        "The gradient used in training, compared with finite differences of the loss: "
        "1 means that they agree.",
    ),
    "centre_shift": _WORDS(
        "converged",
        "unfinished",
        "How far another step would move the cluster centres; the result may still "
        "depend on the start.",
    ),
    "step_gain": _WORDS(
        "converged",
        "unfinished",
        "How much another step of the method would improve the objective; a better "
        "solution may exist elsewhere.",
    ),
    "half_step_gain": _WORDS(
        "converged",
        "unfinished",
        "How much solving for one side again, with the other side fixed, would improve "
        "the objective; a better solution may exist elsewhere.",
    ),
    "remaining_gain": _WORDS(
        "remaining",
        "remaining",
        "How much solving for one side exactly, with the other side fixed, would still "
        "improve the objective.",
    ),
    "monotone": _WORDS(
        "monotone",
        "got worse",
        "The fit was repeated from its recorded start, and no step made the objective "
        "worse.",
    ),
    # -- what the solution looks like ---------------------------------------------
    "shape": _WORDS(
        "shape",
        "shape",
        "How many coefficients are not zero, and at level='full' how well the columns "
        "determine them.",
    ),
    "objective": _WORDS(
        "objective", "objective", "The value of the objective, recomputed."
    ),
    "outliers": _WORDS(
        "outliers",
        "outliers",
        "How many rows lie so far from the fit that their influence is limited.",
    ),
    "curvature": _WORDS(
        "curvature",
        "curvature",
        "The smallest curvature of the objective: if it is positive and the gradient "
        "is zero, this is a local minimum.",
    ),
    "smallest_curvature": _WORDS(
        "curvature",
        "curvature",
        "The smallest curvature of the loss: if it is negative, some direction still "
        "leads down.",
    ),
    "largest_curvature": _WORDS(
        "curvature",
        "curvature",
        "The largest curvature of the loss, which limits how long gradient steps may "
        "be.",
    ),
    "support": _WORDS(
        "support",
        "support",
        "How many training rows the model needs for its predictions.",
    ),
    "margin": _WORDS(
        "margin", "margin", "The distance of the nearest row from the boundary."
    ),
    "dead_units": _WORDS(
        "dead units",
        "dead units",
        "How many units of the network give zero for every training row, so that they "
        "learn nothing.",
    ),
    "layers": _WORDS(
        "layers",
        "layers",
        "The stated matrix was compared with the product of the layers.",
    ),
    "mean": _WORDS(
        "mean", "mean", "The stated mean was compared with the mean of the rows."
    ),
    "measured": _WORDS(
        "measured", "measured", "What was observed, without a guarantee."
    ),
    "parts": _WORDS(
        "parts", "parts", "Whether the sizes of the model match its parameters."
    ),
    "refused": _WORDS("refused", "refused", "Why nothing can be said."),
    # -- perceptrons --------------------------------------------------------------
    "update_sum": _WORDS(
        "weights",
        "weights",
        "The weights were recomputed as the sum of the recorded updates.",
    ),
    "mistake_bound": _WORDS(
        "mistakes",
        "mistakes",
        "The number of mistakes in training, and the largest number that the margin "
        "allows.",
    ),
    "norm_growth": _WORDS(
        "growth",
        "growth",
        "The squared length of the weights, compared with the largest value that the "
        "updates allow.",
    ),
    "margin_limit": _WORDS(
        "margin",
        "margin",
        "No hyperplane can keep all rows farther from the boundary than this.",
    ),
    "separation": _WORDS(
        "separation",
        "separation",
        "Whether a hyperplane can separate the classes; for fairness, whether error "
        "rates agree between groups.",
    ),
    # -- clusters, mixtures and factors -------------------------------------------
    "nearest_centres": _WORDS(
        "nearest", "misplaced", "Whether each row is labelled with its nearest centre."
    ),
    "inertia": _WORDS(
        "inertia", "inertia", "The sum of squared distances to the centres, recomputed."
    ),
    "collapse": _WORDS(
        "collapse",
        "collapsed",
        "Whether a component has shrunk to a single point or lost its rows.",
    ),
    "parameters": _WORDS(
        "parameters",
        "parameters",
        "Whether weights, covariances and precisions fit together.",
    ),
    "elbo": _WORDS(
        "bound",
        "bound",
        "Whether the probabilities of the components are the exact ones, so that the "
        "lower bound on the log-likelihood is attained.",
    ),
    "log_likelihood": _WORDS(
        "likelihood", "likelihood", "The log-likelihood of the rows, recomputed."
    ),
    "noise_variances": _WORDS(
        "noise",
        "no noise",
        "Whether every column has noise of its own; without it the likelihood has no "
        "maximum.",
    ),
    "ritz_residual": _WORDS(
        "accurate",
        "inaccurate",
        "How far the stated singular values may be from the true ones, as a share of "
        "the largest.",
    ),
    "orthonormality": _WORDS(
        "orthogonal",
        "skewed",
        "Whether the components are perpendicular to each other and of length 1.",
    ),
    "captured_variance": _WORDS(
        "captured",
        "captured",
        "The share of the variance that the components capture, recomputed.",
    ),
    "largest": _WORDS(
        "largest",
        "missed",
        "Whether a direction that was left out has more variance than one that was "
        "kept.",
    ),
    "eckart_young": _WORDS(
        "best",
        "not best",
        "Whether any other components of the same number capture more variance.",
    ),
    "reconstruction": _WORDS(
        "error", "error", "The difference between X and its reconstruction, recomputed."
    ),
    # -- neighbours ---------------------------------------------------------------
    "nearest_neighbours": _WORDS(
        "nearest", "missed", "Whether the neighbours found are the nearest rows."
    ),
    "within_radius": _WORDS(
        "within",
        "misplaced",
        "Whether the neighbours found are exactly the rows within the radius.",
    ),
    "training_rows": _WORDS(
        "same rows",
        "other rows",
        "Whether the model stores the rows and targets that you passed.",
    ),
    "leave_one_out": _WORDS(
        "held out",
        "held out",
        "The error on training rows when each is left out of its own prediction.",
    ),
    # -- losses and errors --------------------------------------------------------
    "training_loss": _WORDS(
        "loss", "loss", "The mean loss on the training rows, recomputed."
    ),
    "sample_loss": _WORDS(
        "loss", "loss", "The mean loss on a sample of the training pairs, recomputed."
    ),
    "reported_loss": _WORDS(
        "confirmed", "differs", "The loss that the fit reported was computed again."
    ),
    "training_error": _WORDS(
        "error", "error", "The share of training rows that the model gets wrong."
    ),
    "validation_loss": _WORDS(
        "held out", "held out", "The loss on rows that were not used for training."
    ),
    "validation_score": _WORDS(
        "held out", "held out", "The score on rows that were not used for training."
    ),
    "pairs_told_apart": _WORDS(
        "ranking", "ranking", "How often the true word scores higher than a random one."
    ),
    "composition": _WORDS(
        "averages",
        "mismatch",
        "Whether the vectors of words are the averages of the vectors of their parts.",
    ),
    "vectors": _WORDS(
        "vectors", "vectors", "Whether the vectors in use are those of the fit."
    ),
    "word_counts": _WORDS(
        "counts", "miscounted", "The words of the documents were counted again."
    ),
    "roundtrip": _WORDS(
        "round trip", "text lost", "Every sequence of bytes comes back from its tokens."
    ),
    "text_restored": _WORDS(
        "restored", "text lost", "Your texts came back byte by byte."
    ),
    "unreachable_tokens": _WORDS(
        "unused", "unused", "How many tokens no text can contain."
    ),
    "vocabulary": _WORDS(
        "vocabulary", "vocabulary", "Whether the rule for keeping words was followed."
    ),
    "cooccurrence_counts": _WORDS(
        "pairs", "miscounted", "The pairs of words in the documents were counted again."
    ),
    # -- language -----------------------------------------------------------------
    "longest_copy": _WORDS(
        "copy",
        "copy",
        "The longest run of bytes that the text has in common with the other one.",
    ),
    "contamination": _WORDS(
        "shared",
        "shared",
        "The share of rows that have a long run of bytes in common with the training "
        "text.",
    ),
    "extraction_rate": _WORDS(
        "extracted",
        "extracted",
        "How often the model continues a passage of the text exactly.",
    ),
    "mixing_gap": _WORDS(
        "best mix",
        "not best",
        "No other weights of the models can lower the bits per byte of this text by "
        "more than this.",
    ),
    "probabilities_sum": _WORDS(
        "sum of p",
        "sum of p",
        "How far the probabilities of all next tokens are from a sum of one, after any "
        "text.",
    ),
    "ngram_counts": _WORDS(
        "counts",
        "miscounted",
        "The runs of tokens of the training text were counted again.",
    ),
    # -- new rows -----------------------------------------------------------------
    "risk": _WORDS("risk", "risk", "What can be said about errors on new rows."),
    "error_rate": _WORDS(
        "error",
        "error",
        "The share of new rows that the model will get wrong, estimated from held-out "
        "rows.",
    ),
    "mean_loss": _WORDS(
        "loss", "loss", "The average loss on new rows, estimated from held-out rows."
    ),
    "large_error": _WORDS(
        "error",
        "error",
        "How often the error on new rows exceeds a threshold, estimated from held-out "
        "rows.",
    ),
    "held_out": _WORDS(
        "held out", "held out", "The error on rows that each fold left out in turn."
    ),
    "test_error": _WORDS(
        "test error", "test error", "The error on rows that were not used for training."
    ),
    "union_bound": _WORDS(
        "together",
        "together",
        "How far any of the measured errors can be from the true one, for all models "
        "at once.",
    ),
    "pac_bayes_bound": _WORDS(
        "risk",
        "no bound",
        "The share of new rows that the model will get wrong, bounded from the "
        "training rows alone.",
    ),
    "gibbs_error": _WORDS(
        "error",
        "error",
        "The share of training rows that a randomly drawn classifier gets wrong.",
    ),
    "kl_divergence": _WORDS(
        "divergence",
        "divergence",
        "How much the fit moved the distribution of classifiers away from its start "
        "(the Kullback–Leibler divergence).",
    ),
    "coverage": _WORDS(
        "coverage",
        "coverage",
        "How often intervals or sets contain the true value, on average over "
        "calibrations.",
    ),
    "coverage_floor": _WORDS(
        "at least",
        "at least",
        "How often intervals or sets contain the true value, with these calibration "
        "rows.",
    ),
    # -- groups -------------------------------------------------------------------
    "covariance": _WORDS(
        "removed",
        "remains",
        "Whether the columns still correlate with the sensitive attribute.",
    ),
    "mean_kept": _WORDS(
        "mean kept", "mean moved", "Whether the columns kept their means."
    ),
    "removed_variance": _WORDS(
        "changed",
        "changed",
        "The share of the columns' variance that was removed with the attribute.",
    ),
    "explained_variance": _WORDS(
        "explained",
        "explained",
        "The share of the score's variance that the sensitive attribute explains.",
    ),
    "criterion_difference": _WORDS(
        "difference",
        "difference",
        "The largest difference between groups in the rates that were to be equal.",
    ),
    "independence": _WORDS(
        "groups", "groups", "Whether groups get positive decisions equally often."
    ),
    "sufficiency": _WORDS(
        "groups", "groups", "Whether a decision or score means the same in each group."
    ),
    # -- changed rows -------------------------------------------------------------
    "certified_accuracy": _WORDS(
        "robust",
        "robust",
        "The share of rows for which it is proved that no allowed change makes the "
        "prediction wrong.",
    ),
    "attacked_accuracy": _WORDS(
        "attacked",
        "attacked",
        "The share of rows that no attack could fool; a stronger attack may fool more.",
    ),
    "robust_accuracy": _WORDS(
        "robust",
        "robust",
        "The accuracy on new rows when rows may change within the threat.",
    ),
    "masked_gradients": _WORDS(
        "gradients",
        "gradients",
        "Whether attacks with gradients miss changes that simpler attacks find.",
    ),
}

STRENGTHS = {
    "proved": "An inequality that anyone can check again on this data; rounding errors "
    "are included.",
    "statistical": "True for new rows with the stated probability, if the assumptions "
    "hold.",
    "measured": "A number that was observed, without a guarantee.",
    "refused": "Nothing can be claimed; the line says why.",
}

_UNDECIDED = "A target was set, but rounding errors are too large to tell if it is met."

#: A pattern to look for in the texts of a claim, the term, and its meaning.
TERMS: tuple[tuple[str, str, str], ...] = (
    (
        "duality gap",
        "duality gap",
        "The objective minus a lower bound on its minimum, so it is at least as large "
        "as the distance to the minimum.",
    ),
    (
        "weak duality|dual point",
        "weak duality",
        "A rule that gives a lower bound on a minimum from any admissible point of a "
        "second problem, the dual problem.",
    ),
    (
        "best constant|the median",
        "best constant",
        "The best prediction that ignores the columns; its loss is the unit of the "
        "gap.",
    ),
    (
        r"asked for",
        "asked for",
        "The target, set by the parameter tol or its default.",
    ),
    (
        r"‖w‖₁",
        "‖w‖₁",
        "The sum of the absolute values of the coefficients.",
    ),
    (r"‖w‖²", "‖w‖²", "The sum of the squares of the coefficients."),
    (r"mean|Σ", "mean, Σ", "The weighted mean, or the sum, over the rows."),
    (
        "rounding",
        "rounding",
        "The error of floating-point arithmetic, for which certus adds an upper bound.",
    ),
    ("condition number", "condition number", "How strongly errors can be magnified."),
    ("hyperplane", "hyperplane", "A flat boundary: a line, a plane, and so on."),
    (
        "convex combination",
        "convex combination",
        "An average of rows with weights that are not negative.",
    ),
    (
        "exchangeable",
        "exchangeable",
        "The order of the rows tells nothing: any order is equally likely.",
    ),
    (
        r"\bEM\b",
        "EM",
        "Expectation–maximisation: it assigns rows to components, then refits the "
        "components, and repeats.",
    ),
    ("posterior", "posterior", "Probabilities after the data have been seen."),
    ("σ", "σ", "A singular value: how far the data reach along a component."),
    (
        "Heywood",
        "Heywood case",
        "A column that the factors explain almost completely.",
    ),
    (
        "Clopper|Bernstein|Hoeffding",
        "Clopper–Pearson, Bernstein, Hoeffding",
        "Methods that give intervals for a rate or a mean without assuming a "
        "distribution.",
    ),
    (
        "union bound",
        "union bound",
        "Several statements hold at once with the sum of their failure probabilities.",
    ),
    ("nats", "nats", "Units of information, with natural logarithms."),
    (
        "Lipschitz",
        "Lipschitz constant",
        "How much an output can change when the input changes by one unit.",
    ),
    (
        "positive semidefinite",
        "positive semidefinite",
        "A matrix K with vᵀKv ≥ 0 for every vector v, as kernels must have.",
    ),
)


def label(name: str, missed: bool) -> str:
    """One or two words for a claim of this name."""
    words = CLAIMS.get(name)
    if words is None:
        return name.replace("_", " ")
    return words.missed if missed else words.met


def explain(claims: Any) -> list[tuple[str, str]]:
    """Words and their meanings: labels, then strengths, then terms that occur.

    Examples
    --------
    >>> from certus.certificate import Claim, Strength
    >>> found = Claim("margin", Strength.MEASURED, 1.0, detail="0.5 (‖w‖² = 4)")
    >>> [word for word, _ in explain([found])]
    ['margin', 'measured', '‖w‖²']
    """
    found: dict[str, str] = {}
    for claim in claims:
        if claim.undecided:
            found.setdefault(claim.label, _UNDECIDED)
        elif claim.name in CLAIMS and claim.strength.value != "refused":
            found.setdefault(claim.label, CLAIMS[claim.name].meaning)
    for claim in claims:
        name = claim.strength.value
        found.setdefault(name, STRENGTHS[name])
    text = "\n".join(
        "\n".join((claim.detail, claim.objective, claim.theorem, *claim.assumptions))
        for claim in claims
    )
    for pattern, term, meaning in TERMS:
        if re.search(pattern, text):
            found.setdefault(term, meaning)
    return list(found.items())
