"""Free text: words, pairs of words and runs of letters, weighted by how rare they are.

Each row of text becomes two vectors of length one: of its words and pairs of words, and
of the runs of three to five letters inside its words. A linear model takes them as they
are, sparse; other models take their leading singular directions. What occurs in one
training row only says nothing about another, and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from scipy import sparse
from scipy.sparse.linalg import svds
from sklearn.feature_extraction.text import CountVectorizer

__all__ = ["COMPONENTS", "encode_text", "is_free_text", "plan_text_column"]

#: Singular directions for models that cannot take thousands of columns.
COMPONENTS = 30
#: Most words and pairs, and most runs of letters, that get a column: the most frequent.
MOST_TERMS = 5_000
_ROWS = 50_000  # from which the terms are learnt
_FEWEST = 30  # rows
_SEVERAL = 3.0  # words on average
_LONG = 40  # characters on average

_SHAPES: dict[str, dict[str, Any]] = {
    "words": {
        "analyzer": "word",
        "ngram_range": (1, 2),
        "token_pattern": r"(?u)\b\w+\b",
    },
    "letters": {"analyzer": "char_wb", "ngram_range": (3, 5)},
}


def is_free_text(known: pl.Series, distinct: int) -> bool:
    """Whether cells are written one by one rather than taken from a list."""
    if len(known) < _FEWEST or 10 * distinct < 3 * len(known):
        return False
    words = 1 + known.str.count_matches(r"\s\S").mean()  # type: ignore[operator]
    letters = known.str.len_chars().mean()
    long = float(letters or 0) >= _LONG  # type: ignore[arg-type]
    return bool(words >= _SEVERAL) or (long and bool(words >= 2))


def plan_text_column(text: pl.Series, dense: bool) -> dict[str, Any] | None:
    """Terms of a column with their weights; None where no term comes back."""
    cells = _plain(text.gather_every(max(1, len(text) // _ROWS)))
    blocks: dict[str, Any] = {}
    for shape, options in _SHAPES.items():
        counter = CountVectorizer(
            **options, min_df=2, max_features=MOST_TERMS, dtype=np.float64
        )
        try:
            counts = counter.fit_transform(cells)
        except ValueError:  # no term comes back
            continue
        rows = np.bincount(counts.indices, minlength=counts.shape[1])
        blocks[shape] = {
            "terms": counter.get_feature_names_out().tolist(),
            "rarity": np.log((1 + counts.shape[0]) / (1 + rows)) + 1,
        }
    if not blocks:
        return None
    plan: dict[str, Any] = {"blocks": blocks}
    return plan | _directions(plan, cells) if dense else plan


def _directions(plan: dict[str, Any], cells: list[str]) -> dict[str, Any]:
    """Leading right singular vectors, and the scale at which they are used."""
    Z = _terms(plan, cells)
    k = min(COMPONENTS, min(Z.shape) - 1)
    if k < 1:
        V = np.ones((Z.shape[1], 1)) / np.sqrt(Z.shape[1])
    else:
        # The start is fixed: the same rows always give the same directions.
        start = np.random.default_rng(0).normal(size=min(Z.shape))
        _, s, Vt = svds(Z, k=k, v0=start)
        V = Vt[np.argsort(-s)].T
        V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])] < 0, -1, 1)
    spread = np.asarray(Z @ V).std(axis=0)
    return {"directions": V, "spread": float(spread.max()) or 1.0}


def encode_text(plan: dict[str, Any], text: pl.Series) -> Any:
    """The rows as a sparse matrix of terms, or as a dense one of directions."""
    Z = _terms(plan, _plain(text))
    if "directions" not in plan:
        return Z
    return np.asarray(Z @ plan["directions"]) / plan["spread"]


def _plain(text: pl.Series) -> list[str]:
    return text.fill_null("").to_list()


def _terms(plan: dict[str, Any], cells: list[str]) -> Any:
    blocks = []
    for shape, learnt in plan["blocks"].items():
        terms = learnt["terms"]
        counter = CountVectorizer(**_SHAPES[shape], vocabulary=terms, dtype=np.float64)
        counts = counter.transform(cells).tocsr()
        counts.data = (1 + np.log(counts.data)) * learnt["rarity"][counts.indices]
        length = np.sqrt(counts.multiply(counts).sum(axis=1)).A1
        length[length == 0] = 1.0
        blocks.append(sparse.diags(1 / length) @ counts)
    return sparse.hstack(blocks, format="csr")
