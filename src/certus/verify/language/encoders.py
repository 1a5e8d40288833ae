"""Encoders of text: hidden tokens, cosines of stored vectors, shares of layers.

Nothing is promised about how well an encoder does: its losses are measured. Claimed is
that its numbers are those of its weights and of the texts:

- a masked model's log-probabilities of hidden tokens, from the verifier's own
  transformer, whose rounding ``attention.bounded`` bounds for each position. A score is
  a product of a state with a row of the embeddings, off by at most
  ‖row‖ (e + γ‖state‖), and a log-probability by at most twice the largest of these;
- similarities from stored vectors are cosines of vectors that are computed again. For
  rows of d numbers, a cosine in float64 is off by at most γ_{3d + 8}(1 + |cos|);
- shares of layers are at least 0 and add up to 1, and vectors are that combination.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim, Status
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.language import attention, models
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.scoring import spread
from certus.verify.stating import Checked, Given, require

#: Stretches of text, and texts, that are looked at on level "quick" and "full".
SOME = {"quick": 16, "full": 1_024}
#: Share of tokens that are hidden, and the largest difference of a log-probability.
HIDDEN, NEAR = 0.15, 1e-3
#: Largest difference of a cosine, and of the numbers of a vector as a share.
CLOSE = 1e-9


class Statement(NamedTuple):
    """What kind of encoder; of transformers, the network and the bytes of tokens."""

    kind: str
    config: Mapping[str, Any] = {}
    weights: Mapping[str, Array] = {}
    tokens: tuple[bytes, ...] = ()
    end: int = 0


def _transformer(kind: str) -> Any:
    def read(model: Any) -> Statement:
        tokenizer = model.tokenizer_
        tokens = tuple(bytes(token) for token in tokenizer.tokens)
        end = int(tokenizer.special[models.END])
        return Statement(kind, dict(model.config_), model.weights_, tokens, end)

    return read


READERS = {
    "MaskedLanguageModel": _transformer("masked"),
    "SentenceEncoder": _transformer("sentences"),
    "CharacterEncoder": lambda model: Statement("characters"),
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of an encoder on the texts given."""
    bd.refuse_weights(model, given.sample_weight)
    documents = models.documents_of(given.X)
    marks = fingerprints.of_texts(documents, np.zeros(len(documents)))
    some = [documents[i] for i in spread(len(documents), SOME[given.level])]
    if stated.kind == "characters":
        claims = [_shares_claim(model), _mixed_claim(model, some)]
        return claims, _status(claims), marks
    ids = [np.asarray(model.tokenizer_.encode(text)) for text in documents]
    counted = models.bytes_claim(list(stated.tokens), stated.end, ids, documents)
    if not counted.met:
        return [counted], bd.status_of(counted), marks
    if stated.kind == "sentences":
        claims = [_cosines_claim(model, some), counted]
    else:
        claims = [*_masked_claims(model, stated, ids, SOME[given.level]), counted]
    return claims, _status(claims), marks


def _status(claims: list[Claim]) -> Status:
    """Missed claims come first; without one, nothing was promised about the loss."""
    claims.sort(key=lambda claim: claim.met is not False)
    return Status.TOL_NOT_REACHED if claims[0].met is False else Status.UNDECIDED


# -- hidden tokens --------------------------------------------------------------------


def _masked_claims(
    model: Any, stated: Statement, ids: list[Array], many: int
) -> list[Claim]:
    """The loss at hidden places, and whether the model gives the same numbers."""
    read, mask = PlainNetwork(stated.config, stated.weights), len(stated.tokens)
    require(read.config["kind"] == "encoder", "its network is not an encoder")
    require(read.config["n_tokens"] == mask + 1, "its network has no mask")
    room = read.config["context"] - 1
    rows = [each[i : i + room] for each in ids for i in range(0, len(each), room)]
    rows = [rows[i] for i in spread(len(rows), many)]
    losses, apart, off = [], [0.0], 0.0
    for row in rows:
        rng = np.random.default_rng(len(row))
        places = np.sort(rng.permutation(len(row))[: max(1, round(HIDDEN * len(row)))])
        own, lost = _hidden_log_probs(read, row, places, mask, stated.end)
        said = np.asarray(model.masked_log_probs(row, places), dtype=np.float64)
        require(said.shape == own.shape, "it does not score each hidden token")
        losses += (-own).tolist()
        apart.append(float(np.abs(said - own).max()))
        off = max(off, lost)
    n, loss = len(losses), math.fsum(losses) / len(losses)
    worst = max(apart) if np.isfinite(apart).all() else math.inf
    return [
        bd.measured(
            *("masked_loss", loss),
            f"{loss:.4f} nats for each of {n:,} hidden tokens; without knowledge "
            f"{math.log(mask):.2f}",
            objective="−mean log p(token | tokens that are not hidden) over hidden "
            f"places, {HIDDEN:.0%} of {len(rows):,} stretches; no other place counts",
        ),
        bd.proved(
            *("agreement", Number(worst, off), NEAR),
            f"the model's log-probabilities of {n:,} hidden tokens agree within "
            f"{worst:.1e}",
            missed=f"the model's log-probability of a hidden token is {worst:.2g} away "
            "from that of its weights",
            objective="largest |log p of the model − log p of the verifier|",
            theorem="the network was run again in float64 from its configuration and "
            "weights, its rounding bounded for each position",
            fix="restore the model file, or fit again",
        ),
    ]


def _hidden_log_probs(
    read: PlainNetwork, row: Array, places: Array, mask: int, end: int
) -> tuple[Array, float]:
    """Log p of the tokens at some places that are hidden; how far they may be off."""
    tokens = np.concatenate([[end], row]).astype(np.int64)
    tokens[places + 1] = mask
    found = attention.bounded(read, tokens)
    d = read.config["width"]
    table = read.get("embedding.weight", (mask + 1, d))[:-1]
    x, off = found.x[places + 1], found.off[places + 1]
    lp = attention.log_softmax(x @ table.T)
    far = np.linalg.norm(x, axis=1).max()
    longest = float(np.linalg.norm(table, axis=1).max())
    lost = 2 * 1.01 * longest * (float(off.max()) + gamma(d + 2) * float(far))
    lost += gamma(mask + 8) * (4 + float(np.abs(lp).max()))
    return lp[np.arange(len(places)), row[places]], lost


# -- cosines and mixtures -------------------------------------------------------------


def _cosines_claim(model: Any, texts: list[bytes]) -> Claim:
    """Whether scores from stored vectors are those of vectors computed again."""
    stored = np.asarray(model.transform(texts), dtype=np.float64)
    scores = np.asarray(model.similarity(stored, stored), dtype=np.float64)
    fresh = np.stack([np.asarray(model.transform([text]))[0] for text in texts])
    fresh = fresh.astype(np.float64)
    n, d = len(texts), fresh.shape[1]
    require(scores.shape == (n, n), "it does not compare each text with each")
    sizes = np.linalg.norm(fresh, axis=1)
    unit = fresh / np.where(sizes > 0, sizes, 1.0)[:, None]
    apart = np.abs(scores - unit @ unit.T)
    worst = float(apart.max()) if np.isfinite(apart).all() else math.inf
    return bd.proved(
        *("cosines", Number(worst, 2 * gamma(3 * d + 8)), CLOSE),
        f"{n} passes give all {n * n:,} similarities of {n} texts, {worst:.1e} from "
        "the cosines of new vectors",
        missed=f"a similarity is {worst:.2g} away from the cosine of new vectors",
        objective="largest |similarity of stored vectors − cosine of vectors computed "
        "again, one text at a time|",
        theorem="all pairs of these texts were compared",
        fix="restore the model file, or fit again",
    )


def _shares_claim(model: Any) -> Claim:
    """Whether the weights of the layers are a convex combination."""
    s = np.asarray(model.layer_weights_, dtype=np.float64).ravel()
    sound = s.size > 0 and bool(np.isfinite(s).all())
    off = abs(math.fsum(s.tolist()) - 1.0) if sound else math.inf
    off = max(off, float(-s.min())) if sound else off
    return bd.proved(
        *("layer_shares", Number(off, bd.U * 4), 1e-12),
        f"the weights of {s.size} layers are at least 0 and add up to 1",
        missed=f"the weights of the layers miss a convex combination by {off:.2g}",
        objective="max(|Σ sⱼ − 1|, −min sⱼ)",
        theorem="the weights were added up exactly and rounded once",
        fix="restore the model file, or fit again",
    )


def _mixed_claim(model: Any, texts: list[bytes]) -> Claim:
    """Whether vectors of texts are the stated combination of their layers."""
    s, worst, off = np.asarray(model.layer_weights_, dtype=np.float64), 0.0, 0.0
    for text in texts:
        H = np.asarray(model.layer_vectors(text), dtype=np.float64)
        require(H.ndim == 3 and len(H) == len(s), "it has not one weight for a layer")
        v = np.asarray(model.transform([text]), dtype=np.float64)[0]
        m = max(1, H.shape[1])
        own = np.tensordot(s, H.sum(axis=1) / m, 1)
        apart = np.abs(own - v)
        worst = max(worst, float(apart.max()) if np.isfinite(apart).all() else math.inf)
        size = np.tensordot(np.abs(s), np.abs(H).sum(axis=1) / m, 1)
        off = max(off, 2 * gamma(m + len(s) + 4) * float(size.max(initial=0.0)))
    return bd.proved(
        *("mixed", Number(worst, off), CLOSE),
        f"the vectors of {len(texts)} texts are this combination of their layers, "
        f"{worst:.1e} off",
        missed=f"the vector of a text is {worst:.2g} away from the combination of its "
        "layers",
        objective="largest |vector − Σⱼ sⱼ mean of the words' states in layer j|",
        theorem="the layers' states were averaged and combined again",
        fix="restore the model file, or fit again",
    )
