"""Models whose attributes were overwritten: an error names the attribute."""

import copy
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import neighbors as theirs
from sklearn.decomposition import NMF

import certus
from certus.linear_model import Perceptron
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor
from certus.recommend import ImplicitALS, MatrixFactorization
from certus.text import BagOfWords, Cooccurrence, GloVe

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(40, 4)), RNG.integers(0, 3, 40)
RATINGS = sparse.csr_matrix(RNG.integers(1, 6, (20, 10)).astype(float))
TEXTS = ["a b c d", "a b", "c d a"] * 5
FACTORS = ("users_", "items_", "user_factors_", "item_factors_")
MODELS: list[tuple[Any, tuple[Any, ...], tuple[str, ...]]] = [
    (KNeighborsClassifier(3), (X, LABELS), ("_fit_X", "_y", "classes_")),
    (KNeighborsRegressor(3), (X, X[:, 0]), ("_fit_X", "_y", "n_samples_fit_")),
    (theirs.KNeighborsClassifier(3), (X, LABELS), ("_fit_X", "_y", "classes_")),
    (
        MatrixFactorization(2, random_state=0),
        (RATINGS,),
        (*FACTORS, "mean_", "user_biases_", "item_biases_"),
    ),
    (ImplicitALS(2, random_state=0), (RATINGS,), FACTORS),
    (
        GloVe(2, min_count=1, random_state=0),
        (TEXTS,),
        ("vocabulary_", "word_factors_", "context_factors_", "word_biases_"),
    ),
    (BagOfWords(), (TEXTS,), ("vocabulary_",)),
    (Cooccurrence(), (TEXTS,), ("vocabulary_",)),
    (
        Perceptron(max_iter=2, random_state=0),
        (X, LABELS),
        ("coef_", "intercept_", "classes_"),
    ),
    (NMF(2, random_state=0), (np.abs(X),), ("components_", "reconstruction_err_")),
]
#: What the verifier reads where an attribute is kept under a private name.
PUBLIC = {"_fit_X": r"rows_|_fit_X", "_y": r"targets_|_y"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "data", "names"), MODELS)
def test_malformed_input_is_named(
    model: Any, data: tuple[Any, ...], names: tuple[str, ...]
) -> None:
    model = copy.copy(model).fit(*data)
    for name in names:
        for bad in (None, "text", {}, object(), np.array(["a", "b"]).reshape(1, 1, 2)):
            broken = copy.copy(model)
            setattr(broken, name, bad)
            for level in ("quick", "full"):
                with pytest.raises(ValueError, match=PUBLIC.get(name, name)) as error:
                    certus.certify(broken, *data, level=level)
                assert "it again" in str(error.value)


@pytest.mark.parametrize("bad", [None, "text", {}, np.zeros(3), np.zeros((2, 2, 2))])
def test_pairs_that_are_not_a_matrix_are_refused(bad: Any) -> None:
    model = Cooccurrence().fit(TEXTS)
    model.matrix_ = bad
    assert certus.certify(model, TEXTS).met is False
