"""Models without a guarantee about their optimum: networks, embeddings, classifiers.

Their numbers are computed outside the verifier, by the model's public ``diagnose`` or,
for perceptrons of scikit-learn, by the caller; the verifier accepts only MEASURED ones.
This module has the fingerprints of the data, and the numbers that can be counted again
exactly:

- ``counts_[w]`` is how often the word w occurs in the texts;
- the vector of a word is the mean of k rows, its own and those of its n-grams. Sums of
  k float32 numbers are rounded in float64 by at most (k + 1)·2⁻⁵² of the largest entry
  for each mean, which is added to the difference found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import LEADING_LOSSES, Claim, Status, Strength
from certus.typing import Fit
from certus.verify import stating, texts
from certus.verify.attributes import attribute_of, not_lent
from certus.verify.data import marks_of
from certus.verify.deciding import Number, U, proved
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Largest difference between a vector and the mean of its rows: rounding to float32.
COMPOSITION = 1e-5
#: Number of words whose vectors are recomputed at level "quick".
COMPOSED = 64
TINY = float(np.finfo(np.float32).tiny)


class Statement(NamedTuple):
    """There is no target. ``of`` is what the data hold: rows, a corpus, or texts.

    ``"penalised"`` are rows whose attribute the loss depends on.
    """

    of: str = "rows"


def _network(model: Fit) -> Statement:
    """Of a network; scikit-learn's does not say which rows it held out."""
    held = getattr(model, "early_stopping", False) and model.solver != "lbfgs"
    if held and not stating.is_ours(model):
        raise stating.Refusal(
            "with early_stopping=True the held-out rows are unknown, and so is the "
            "objective",
            "early_stopping=False",
        )
    return Statement()


READERS: dict[str, stating.Reader] = {
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), _network),
    **dict.fromkeys(
        (
            *("NeuralClassifier", "NeuralRegressor", "ConvNetClassifier"),
            *("RecurrentClassifier", "RecurrentRegressor", "SequenceTagger"),
            *("Seq2Seq", "MultiTaskNetwork", "Distilled", "ConsistentClassifier"),
            *("TextConvClassifier", "ViTClassifier"),
        ),
        lambda model: Statement(),
    ),
    **dict.fromkeys(
        ("SkipGram", "FastTextVectors", "DocumentVectors"),
        lambda model: Statement("corpus"),
    ),
    "FastTextClassifier": lambda model: Statement("texts"),
}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """The fingerprint of the data; for words, also the counts, computed again."""
    _, X, y, sample_weight, level, sensitive = given
    if stated.of == "corpus":
        return _check_words(model, X, level)
    if stated.of == "texts":
        seen = list(X)
        codes = reading.codes(y, np.asarray(model.classes_), len(seen))
        return [], Status.UNDECIDED, fingerprints.of_texts(seen, codes)
    claims, marks = [], marks_of(X, y, sample_weight)
    # Without the attribute there is no loss to measure.
    if stated.of == "penalised" and attribute_of(model, sensitive, X) is None:
        what = "loss with a penalty on the attribute"
        claims.append(not_lent("penalised_loss", what))
    return claims, Status.UNDECIDED, marks


def _check_words(model: Fit, X: object, level: str) -> Checked:
    corpus = texts.read(model, X)
    claims = texts.stated_counts_claims(model, corpus)
    if hasattr(model, "subword_vectors_"):
        claims.append(_composition_claim(model, level))
    claims.sort(key=lambda claim: claim.met is not False)  # missed claims come first
    missed = bool(claims) and claims[0].met is False
    status = Status.TOL_NOT_REACHED if missed else Status.UNDECIDED
    return claims, status, corpus.fingerprint


def join(
    claims: list[Claim], status: Status, numbers: Sequence[Claim]
) -> tuple[list[Claim], Status]:
    """Put the numbers first if there is no target, and last if there is one."""
    strong = [claim.name for claim in numbers if claim.strength != Strength.MEASURED]
    if strong:
        raise ValueError(f"{strong[0]} must be MEASURED outside the verifier.")
    if not (claims or numbers):
        said = "nothing is proved, and nothing was measured"
        return [Claim("measured", Strength.REFUSED, detail=said)], status
    if numbers and numbers[0].name in LEADING_LOSSES:
        value = numbers[0].value
        if value is not None and not math.isfinite(value):
            return [*numbers, *claims], Status.DIVERGED
    leads = status is Status.UNDECIDED and all(claim.met for claim in claims)
    return [*numbers, *claims] if leads else [*claims, *numbers], status


# -- vectors of words from those of their n-grams ---------------------------------


def _composition_claim(model: Fit, level: str) -> Claim:
    """Whether the vectors of some words are the means of their rows."""
    some = texts.sample(len(model.vocabulary_), level, COMPOSED)
    table, worst, longest = np.asarray(model.subword_vectors_), 0.0, 0
    behind = {int(b): len(model.vocabulary_) + i for i, b in enumerate(model.buckets_)}
    for i in some:
        at = [i, *_pieces(model.vocabulary_[i], model.ngrams_, behind)]
        off = math.inf
        if max(at) < len(table):
            rows = table[at].astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):
                off = float(np.abs(rows.mean(axis=0) - model.vectors_[i]).max())
                off /= max(float(np.abs(rows).max()), TINY)
        worst = max(worst, off if math.isfinite(off) else math.inf)
        longest = max(longest, len(at))
    many = f"{len(some):,} words"
    return proved(
        *("composition", Number(worst, 2 * (longest + 1) * U), COMPOSITION),
        f"the vectors of {many} are the averages of their n-grams' vectors",
        missed=f"among {many}, a vector is not the average of its n-grams' vectors",
        objective="z_w = mean of the rows of the word and of its character n-grams",
        theorem="n-grams were found and hashed again; differences as a share of the "
        "largest entry",
        fix="fit again, or restore the model file",
    )


def _pieces(word: str, recipe: Any, behind: dict[int, int]) -> list[int]:
    """Rows of the n-grams of a word between its marks, ``<`` and ``>``."""
    (_, (shortest, longest), n_buckets), marked = recipe, f"<{word}>"
    out = []
    for n in range(shortest, min(longest, len(marked)) + 1):
        for i in range(len(marked) - n + 1):
            alone = n == 1 and i in (0, len(marked) - 1)
            bucket = _hash(marked[i : i + n]) % n_buckets
            if not alone and bucket in behind:
                out.append(behind[bucket])
    return out


def _hash(text: str) -> int:
    """FNV-1a, 32 bits, of the UTF-8 bytes."""
    h = 2166136261
    for byte in text.encode("utf-8", "surrogatepass"):
        h = (h ^ byte) * 16777619 % 2**32
    return h
