"""Counts beside scikit-learn's CountVectorizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from certus.text import BagOfWords, stdlib_docstrings


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return stdlib_docstrings()[:800]


@pytest.mark.parametrize(
    "options", [{}, {"binary": True}, {"ngram_range": (1, 2)}, {"ngram_range": (2, 3)}]
)
def test_the_same_counts_in_another_order(options: Any, texts: list[str]) -> None:
    pattern = r"(?u)\w+(?:['’]\w+)*"
    theirs = CountVectorizer(token_pattern=pattern, **options)
    Y = theirs.fit_transform(texts)
    ours = BagOfWords(**options)
    X = ours.fit_transform(texts)
    assert sorted(ours.vocabulary_) == theirs.get_feature_names_out().tolist()
    order = [theirs.vocabulary_[word] for word in ours.get_feature_names_out()]
    assert (Y[:, order] != X).nnz == 0
    few = ours.transform(texts[:5]).toarray()
    np.testing.assert_array_equal(few, theirs.transform(texts[:5]).toarray()[:, order])
