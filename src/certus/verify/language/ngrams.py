"""N-gram models: probabilities that sum to one, counts that are those of the text.

A model is a tree of runs of tokens with shares and backoffs,

    p(w | h) = share(hw) + backoff(h) p(w | h′),   h′ = h without its first token,

1/n_tokens below the empty run. If share, backoff ≥ 0 and abs(backoff(h) + Σ share(hw)
− 1) ≤ eₖ for all contexts of length k, then by induction abs(Σ_w p(w | h) − 1) ≤
(1 + e₀)(1 + e₁)… − 1 for every context, seen or not: unseen ones are passed on whole.

The tree is the judged object, and the index too: the runs that end at each position
are found by bisection, one length after the other. They are counted again with
``bincount``, the tokens before a run by counting the longer runs that end in it.

Rounding: products and sums of numbers ≥ 0 keep p right to a share of γ₃ₖ₊₂ for k
contexts; its logarithm is then off by at most twice that plus 9 u abs(log p).
"""

from __future__ import annotations

import hashlib
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma
from certus.verify.language import models
from certus.verify.language.drift import Bounded
from certus.verify.stating import Checked, Given, require

#: How far a sum of probabilities may be from one; a share or discount from ours.
SUM, SHARE = 1e-9, 1e-12
#: Tokens up to which all counts are taken again at level "quick"; and tokens at a time.
QUICK, BLOCK = 1 << 18, 1 << 17
FALLBACK = (0.5, 1.0, 1.5)
FIX = "fit again, or restore the model file"


class Statement(NamedTuple):
    """The longest runs, and the bytes of each token."""

    order: int
    tokens: list[bytes]
    end: int


def _ngrams(model: Any) -> Statement:
    tokenizer = model.tokenizer_
    tokens = [bytes(token) for token in tokenizer.tokens]
    return Statement(int(model.order), tokens, int(tokenizer.special[models.END]))


READERS = {"NGramModel": _ngrams}


class RunTree(NamedTuple):
    """The runs, checked for being a tree."""

    starts: Array
    first: Array
    token: Array
    suffix: Array
    counts: Array
    share: Array
    backoff: Array
    parent: Array  # the run without its last token
    n_tokens: int
    keys: Array  # parent · n_tokens + last token of all but the empty run, rising


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Sums of probabilities, bits of the text; of the training text, its counts."""
    bd.refuse_weights(model, given.sample_weight)
    documents, order = models.documents_of(given.X), stated.order
    marks = fingerprints.of_texts(documents, np.zeros(len(documents)))
    each = [np.asarray(model.tokenizer_.encode(text)) for text in documents]
    counted = models.bytes_claim(stated.tokens, stated.end, each, documents)
    if not counted.met:
        return [counted], bd.status_of(counted), marks
    tree = _tree(model, order, len(stated.tokens))
    claims, end = [_sum_claim(tree)], stated.end
    ids = np.append(models.joined(each, end)[1:], end)
    digest = hashlib.sha256(ids.astype("<i4").tobytes()).digest()
    seen = getattr(given.witness, "digest", None)
    known = seen is not None and np.asarray(seen).tobytes() == digest
    long = known and given.level != "full" and len(ids) > QUICK
    most = min(3, order) if long else order
    passed = _read(tree, ids, end, most)
    if most == order:
        claims.append(_bits_claim(documents, order, passed.bits[:-1]))
    claims.append(counted)
    if known:
        claims.append(_counts_claim(tree, passed, most))
    return claims, bd.verdict(claims), marks


def _tree(model: Any, order: int, V: int) -> RunTree:
    """The arrays of a model, maybe from a file."""
    whole = ("starts_", "first_", "last_tokens_", "suffixes_", "counts_")
    starts, first, token, suffix, count = (
        np.asarray(getattr(model, name)).astype(np.int64) for name in whole
    )
    share, backoff = np.asarray(model.shares_), np.asarray(model.backoffs_)
    n = len(token)
    sizes = {len(each) for each in (suffix, count, share, backoff, first[:-1])}
    sound = sizes == {n} and len(starts) == order + 2 and n > 0
    require(sound, "its arrays of runs have different lengths")
    ends = starts[0] == 0 and starts[1] == 1 and starts[-1] == n
    rising = bool(np.all(np.diff(starts) >= 0)) and bool(np.all(np.diff(first) >= 0))
    sound = ends and rising and first[0] == 1 and first[-1] == n
    # The continuations of runs of one length are the runs of the next one.
    sound = sound and bool(np.all(first[starts[:-1]] == starts[1:]))
    sound = sound and token.min() >= 0 and token.max() < V
    require(bool(sound), "its runs are not a tree")
    parent = np.concatenate([[0], np.repeat(np.arange(n), np.diff(first))])
    keys = parent[1:] * V + token[1:]
    tree = RunTree(starts, first, token, suffix, count, share, backoff, parent, V, keys)
    require(bool(np.all(np.diff(tree.keys) > 0)), "its runs are not in order")
    numbers = np.isfinite(share).all() and np.isfinite(backoff).all()
    sound = numbers and share.min() >= 0 and backoff.min() >= 0 and count.min() >= 0
    require(bool(sound), "some of its shares are not numbers of at least zero")
    require(_suffixes_fit(tree), "the runs that it backs off to are wrong")
    return tree


def _suffixes_fit(tree: RunTree) -> bool:
    """The suffix of hw is that of h, followed by w; of a single token, nothing."""
    one, suffix = slice(0, tree.starts[2]), tree.suffix
    if suffix.min() < 0 or suffix.max() >= len(suffix) or suffix[one].any():
        return False
    rest = slice(tree.starts[2], None)
    after = tree.parent[suffix[rest]] == suffix[tree.parent[rest]]
    same = tree.token[suffix[rest]] == tree.token[rest]
    return bool(np.all(after & same & (suffix[rest] > 0)))


def _sums(tree: RunTree, values: Array) -> Array:
    """Sums over the continuations of each run."""
    n = len(tree.token)
    return np.bincount(tree.parent[1:], values[1:].astype(float), minlength=n)


def _sum_claim(tree: RunTree) -> Claim:
    off = np.abs(_sums(tree, tree.share) + tree.backoff - 1.0)
    rounding = gamma(int(np.diff(tree.first).max()) + 2) * 2
    worst, slack = 1.0, 1.0
    for begin, end in zip(tree.starts[:-2], tree.starts[1:-1]):
        most = float(off[begin:end].max(initial=0.0))
        worst, slack = worst * (1 + most), slack * (1 + most + rounding)
    found = Number(worst - 1, slack - worst + 4 * U)
    contexts = int(tree.starts[-2])
    return bd.proved(
        *("probabilities_sum", found, SUM),
        f"Σ p(w | h) is within {found.most:.0e} of one for every context h "
        f"({contexts:,} contexts were summed)",
        missed=f"Σ p(w | h) may be {found.most:.1e} away from one",
        fix=FIX,
        objective="largest abs(Σ_w p(w | h) − 1) over all contexts h",
        theorem="share(hw), backoff(h) ≥ 0 and backoff(h) + Σ_w share(hw) = 1 up to "
        "this, for each context; by induction over its length",
    )


# -- a text -----------------------------------------------------------------------


class TextPass(NamedTuple):
    """What one pass over a text finds: bits of its tokens, and counts of its runs."""

    bits: Array
    counts: Array
    whole: bool  # every run of the text is in the tree


def _read(tree: RunTree, ids: Array, end: int, most: int) -> TextPass:
    """Find the runs of up to ``most`` tokens that end at each token."""
    line, bits = np.concatenate([[end], ids]), np.empty(len(ids))
    count, whole = np.zeros(int(tree.starts[most + 1]), np.int64), True
    for begin in range(1, len(line), BLOCK):
        start = max(0, begin - most)
        part = line[start : begin + BLOCK]
        reach, own = _reach(part, end), begin - start
        runs = _runs(tree, part, reach, most)
        reach, p = reach[own:], np.full(len(part) - own, 1.0 / tree.n_tokens)
        for k in range(most):
            context, run = runs[k][own - 1 : -1], runs[k + 1][own:]
            share = np.where(run >= 0, tree.share[run], 0.0)
            known = (context >= 0) & (reach > k)
            p = np.where(known, tree.backoff[context] * p + share, p)
            whole = whole and bool(np.all(run[reach > k] >= 0))
            count += np.bincount(run[run >= 0], minlength=len(count))
        bits[begin - 1 : begin - 1 + len(p)] = -np.log2(p)
    return TextPass(bits, count, whole)


def _runs(tree: RunTree, line: Array, reach: Array, most: int) -> list[Array]:
    """The run of 0, 1, … ``most`` tokens that ends at each place; −1: unknown."""
    found, keys = [np.zeros(len(line), np.int64)], tree.keys
    for k in range(1, most + 1):
        before = np.concatenate([[0 if k == 1 else -1], found[-1][:-1]])
        asked = before * tree.n_tokens + line
        low, high = tree.starts[k] - 1, tree.starts[k + 1] - 1
        at = low + np.searchsorted(keys[low:high], asked)
        at = np.minimum(at, len(keys) - 1)
        known = (before >= 0) & (keys[at] == asked) & (reach >= k)
        found.append(np.where(known, at + 1, -1))
    return found


def _reach(line: Array, end: int) -> Array:
    """Tokens from the end before its document, or the first token, to each place."""
    place = np.arange(len(line))
    last = np.maximum.accumulate(np.where(line == end, place, 0))
    return place - np.concatenate([[0], last[:-1]]) + 1


def _bits_claim(documents: list[bytes], order: int, bits: Array) -> Claim:
    total, n = math.fsum(bits), len(bits)
    rounding = 4 * n * gamma(3 * order + 2) + 12 * U * math.fsum(np.abs(bits))
    size, many = sum(map(len, documents)), len(documents)
    found = Number(total / size, rounding / size)
    ends = f" and {many - 1:,} ends of text" if many > 1 else ""
    return bd.proved(
        *("bits_per_byte", found, None),
        f"{found.value:.4f} bits per byte for {size:,} bytes{ends}",
        objective="−Σ log₂ p(xₜ | x_{<t}) / bytes of the text; the first token follows "
        "an end of text",
        theorem="the tokens decode to exactly these bytes; each p was computed again "
        "from the shares and backoffs of the model",
    )


# -- drafts -----------------------------------------------------------------------


class CountedProposer(NamedTuple):
    """An n-gram model that proposed tokens to a network."""

    tree: RunTree
    order: int
    end: int


def counted_draft(config: Any, weights: Any) -> CountedProposer:
    """The draft of a generation, from the arrays in its record."""
    order, V = int(config["order"]), int(config["n_tokens"])
    tree = _tree(SimpleNamespace(**weights), order, V)
    return CountedProposer(tree, order, int(config["end"]))


def scores_behind(draft: CountedProposer, stream: Array, begun: int) -> Bounded:
    """Log p of all tokens at the places from ``begun`` on, (n, V), and its rounding."""
    tree, order = draft.tree, draft.order
    reach = _reach(stream, draft.end)
    runs = np.stack(_runs(tree, stream, reach, order - 1))
    found = []
    for place in range(begun, len(stream)):
        p = np.full(tree.n_tokens, 1.0 / tree.n_tokens)
        for context in runs[: int(reach[place]), place - 1]:
            if context < 0:
                break
            p *= tree.backoff[context]
            after = slice(tree.first[context], tree.first[context + 1])
            p[tree.token[after]] += tree.share[after]
        found.append(np.log(p))
    lp = np.array(found)
    off = 2 * gamma(3 * order + 2) + 9 * U * np.abs(lp).max(axis=1)
    return Bounded(lp, off)


# -- counts -----------------------------------------------------------------------


def _counts_claim(tree: RunTree, passed: TextPass, most: int) -> Claim:
    """Counts of the training text; of all runs only if ``most`` is the order."""
    order, n = len(tree.starts) - 2, len(passed.counts)
    count, whole = passed.counts.copy(), passed.whole
    count[0] = tree.counts[0]
    # Each run occurs; so the runs that end in a shorter one are what stands before it.
    whole = whole and bool(np.all(count[1:] > 0))
    left = np.bincount(tree.suffix[tree.starts[2] : n], minlength=n)
    short = int(tree.starts[order if most == order else most])
    count[1:short] = np.where(left > 0, left, count)[1:short]
    counted = n if most == order else short
    wrong = count[:counted] != tree.counts[:counted]
    if most == order:
        share, backoff = _shares(tree, count)
        off = np.abs(share - tree.share) + np.abs(backoff - tree.backoff)
        wrong |= off > SHARE
    bad = int(wrong.sum()) if whole else n - 1
    what = f"the counts and discounts of all {counted - 1:,} runs"
    if most < order:
        what = f"the counts of the {counted - 1:,} runs of up to {most - 1} tokens"
    return bd.proved(
        *("ngram_counts", Number(float(bad)), 0.0),
        f"{what} agree with the text",
        missed=f"{bad:,} runs of tokens do not agree with the text",
        fix=FIX,
        objective="c(hw): occurrences of the longest runs, different tokens before "
        "shorter ones",
        theorem="every run was found in the text, and counted, again; discounts from "
        "counts of counts (Chen and Goodman)",
    )


def _shares(tree: RunTree, count: Array) -> tuple[Array, Array]:
    """Modified Kneser–Ney's shares and backoffs, from counts."""
    taken = np.zeros(len(count))
    for begin, end in zip(tree.starts[1:-1], tree.starts[2:]):
        some = count[begin:end]
        n = [float(np.sum(some == c)) for c in range(5)]
        D: tuple[float, ...] = (0.0, *FALLBACK)
        if min(n[1:]) > 0:
            y = n[1] / (n[1] + 2 * n[2])
            found = [c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3)]
            D = (0.0, *found) if min(found) >= 0 else D
        taken[begin:end] = np.array(D)[np.minimum(some, 3)]
    total = _sums(tree, count)
    total[total == 0] = np.inf
    share = np.zeros(len(count))
    share[1:] = (count - taken)[1:] / total[tree.parent[1:]]
    return share, np.where(total < np.inf, _sums(tree, taken) / total, 1.0)
