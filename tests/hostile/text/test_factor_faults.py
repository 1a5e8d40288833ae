"""Planted faults in factorisations and counts: none may pass as proved.

Integers that wrap, weights that are passed over, parameters changed after the fit,
scales at which squares vanish; wrong factors, swapped users, miscounted words.
"""

import copy
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import NMF

import certus
from certus.certificate import Status, Strength
from certus.recommend import ImplicitALS, MatrixFactorization
from certus.text import BagOfWords, Cooccurrence, GloVe
from certus.text.words import sentences, tokenize
from certus.verify import ratings, stating, texts
from certus.verify.rating_entries import read

DOCUMENTS = [
    "the cat sat on the mat and the dog ran",
    "a dog ran up the hill. The cat didn't!",
    "cat and dog and bird",
    "the bird flew over the hill",
] * 5
INTEGERS = ["uint8", "int8", "uint16", "int16", "int32"]


def some_ratings(n=30, m=20, seed=0):
    rng = np.random.default_rng(seed)
    known = rng.random((n, m)) < 0.5
    known[:, 0] = known[0] = True
    values = rng.integers(1, 6, known.sum()).astype(float)
    return sparse.csr_matrix((values, np.nonzero(known)), (n, m))


def forged(model, **changes):
    model = copy.copy(model)
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def refused(model, *data, **options):
    """No claim is proved and met where the model is wrong."""
    found = certus.certify(model, *data, **options)
    assert found.met is not True, found
    assert found.status is not Status.SOLVED


# -- integers ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense"])
def test_small_integers_are_ratings_like_others(dtype, form):
    X = some_ratings()
    X.data *= 25
    model = MatrixFactorization(3, random_state=0, max_iter=500).fit(X)
    whole = X.toarray()
    whole[whole == 0] = np.nan
    Y = whole if form == "dense" else X.astype(dtype).asformat(form)
    found = certus.certify(model, Y)
    assert found.met
    assert found.value == certus.certify(model, X).value
    again = MatrixFactorization(3, random_state=0, max_iter=500).fit(Y)
    np.testing.assert_allclose(again.user_factors_, model.user_factors_)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_counts_stored_twice_do_not_wrap_when_added(dtype):
    X = sparse.coo_matrix(some_ratings())
    twice = (np.tile(X.row, 60), np.tile(X.col, 60))
    small = sparse.coo_matrix((np.tile(X.data, 60).astype(dtype), twice), X.shape)
    large = sparse.csr_matrix(X) * 60
    options = {"random_state": 0, "max_iter": 300, "alpha": 0.05}
    one, other = (ImplicitALS(2, **options).fit(data) for data in (small, large))
    np.testing.assert_allclose(one.user_factors_, other.user_factors_, rtol=1e-9)
    assert certus.certify(one, large).met
    assert certus.certify(one, small).value == certus.certify(one, large).value


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_integers_of_a_factorisation_without_signs(dtype, form):
    X = np.random.default_rng(0).integers(0, 120, (40, 12)).astype(float)
    model = NMF(3, tol=1e-4, max_iter=2000, random_state=0).fit(X)
    model.tol = 1e-3
    found = certus.certify(model, form(X.astype(dtype)))
    assert found["components_gap"].value == pytest.approx(
        certus.certify(model, X)["components_gap"].value, rel=1e-9
    )
    refused(forged(model, components_=1.3 * model.components_), form(X.astype(dtype)))


# -- weights ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [BagOfWords(), Cooccurrence(), GloVe(2, min_count=1, random_state=0)]
)
def test_texts_take_no_weights(model):
    model.fit(DOCUMENTS)
    with pytest.raises(ValueError, match="no sample_weight"):
        certus.certify(model, DOCUMENTS, sample_weight=np.ones(len(DOCUMENTS)))


def test_counts_take_no_weights():
    X = some_ratings()
    model = ImplicitALS(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="no sample_weight"):
        certus.certify(model, X, sample_weight=X)


def test_weights_belong_to_their_places():
    X = some_ratings()
    weights = X.copy()
    weights.data = np.random.default_rng(1).uniform(0.1, 5, X.nnz)
    model = MatrixFactorization(2, random_state=0, max_iter=500)
    model.fit(X, sample_weight=weights)
    assert certus.certify(model, X, sample_weight=weights).met
    refused(model, X)
    X = sparse.csr_matrix(np.array([[1.0, 2.0, np.nan], [np.nan, np.nan, 5.0]]))
    X = sparse.csr_matrix((np.ones(3), [0, 1, 2], [0, 2, 3]), (2, 3))
    model = MatrixFactorization(1, random_state=0).fit(X)
    moved = sparse.csr_matrix((np.ones(3), [0, 1, 2], [0, 1, 3]), (2, 3))
    with pytest.raises(ValueError, match="different places"):
        certus.certify(model, X, sample_weight=moved)
    for bad in (-1.0, 0.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"above 0|NaN"):
            certus.certify(model, X, sample_weight=X * bad)


# -- parameters changed after the fit ---------------------------------------------


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.01},
        {"alpha": 500.0},
        {"alpha_items": 0.01},
        {"alpha_biases": 500.0},
        {"penalty_scale": "ratings"},
        {"biases": False},
        {"n_components": 5},
        {"n_components": 2},
        {"tol": 1e-12},
    ],
)
def test_factors_are_not_those_of_other_parameters(change, level):
    X = some_ratings()
    model = MatrixFactorization(3, random_state=0, max_iter=500).fit(X)
    assert certus.certify(model, X, level=level).met
    refused(model.set_params(**change), X, level=level)


@pytest.mark.parametrize(
    "change",
    [{"count_weight": 40.0}, {"alpha": 30.0}, {"n_components": 4}, {"n_components": 2}],
)
def test_counts_are_not_those_of_other_parameters(change):
    X = some_ratings()
    model = ImplicitALS(3, random_state=0, max_iter=500).fit(X)
    assert certus.certify(model, X).met
    refused(model.set_params(**change), X)


def test_senseless_parameters_are_refused():
    X = some_ratings()
    model = MatrixFactorization(3, random_state=0).fit(X)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            certus.certify(model.set_params(alpha=bad), X)


@pytest.mark.parametrize(
    "change",
    [
        {"x_max": 1.0},
        {"weight_power": 0.0},
        {"window": 2},
        {"weighting": "flat"},
        {"symmetric": False},
        {"biases": False},
        {"n_components": 3},
        {"min_count": 6},
    ],
)
def test_vectors_are_not_those_of_other_parameters(change):
    model = GloVe(2, min_count=1, x_max=20, solver="als", random_state=0, max_iter=500)
    model.fit(DOCUMENTS)
    assert certus.certify(model, DOCUMENTS).met
    refused(model.set_params(**change), DOCUMENTS)


@pytest.mark.parametrize(
    "change",
    [
        {"min_count": 6},
        {"max_words": 3},
        {"tokenizer": "whitespace"},
        {"ngram_range": (1, 2)},
        {"ngram_range": (2, 2)},
    ],
)
def test_words_are_not_those_of_other_parameters(change):
    model = BagOfWords().fit(DOCUMENTS)
    assert certus.certify(model, DOCUMENTS).met
    refused(model.set_params(**change), DOCUMENTS)
    rare = BagOfWords(min_count=6).fit(DOCUMENTS)
    refused(rare.set_params(min_count=1), DOCUMENTS)
    few = BagOfWords(max_words=3).fit(DOCUMENTS)
    refused(few.set_params(max_words=None), DOCUMENTS)


@pytest.mark.parametrize(
    "change",
    [
        {"window": 2},
        {"context": "document"},
        {"context": "sentence"},
        {"weighting": "harmonic"},
        {"symmetric": False},
        {"min_count": 6},
    ],
)
def test_pairs_are_not_those_of_other_parameters(change):
    model = Cooccurrence().fit(DOCUMENTS)
    assert certus.certify(model, DOCUMENTS).met
    refused(model.set_params(**change), DOCUMENTS)


@pytest.mark.parametrize(
    "change", [{"alpha_W": 0.5}, {"alpha_H": 0.5, "l1_ratio": 1.0}, {"tol": 1e-14}]
)
def test_components_are_not_those_of_other_parameters(change):
    X = np.random.default_rng(0).random((40, 12))
    model = NMF(3, tol=1e-5, max_iter=5000, random_state=0).fit(X)
    model.tol = 1e-3
    assert certus.certify(model, X).met
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(model.set_params(**change), X)
    with pytest.raises(ValueError, match="components"):
        certus.certify(model.set_params(n_components=5), X)


# -- scales -----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-200, 1e-165, 1e-150, 1e-30, 1e30, 1e140])
@pytest.mark.parametrize("biases", [True, False])
def test_factors_at_any_scale_are_judged_or_undecided(scale, biases):
    X = some_ratings() * scale
    options = {"biases": biases, "random_state": 0, "alpha": 1e-3 * scale}
    with certus.config_context(on_uncertified="ignore"):
        model = MatrixFactorization(2, max_iter=2, **options).fit(X)
    wrong = forged(model, item_factors_=np.full_like(model.item_factors_, scale**0.5))
    with np.errstate(all="ignore"):
        refused(wrong, X)


@pytest.mark.parametrize("scale", [1e-170, 1e-150, 1e-100, 1e100])
def test_components_at_any_scale_are_judged_or_undecided(scale):
    X = np.random.default_rng(0).random((40, 12))
    model = NMF(3, tol=1e-4, max_iter=2000, random_state=0).fit(X)
    W = model.transform(X)
    model.components_ = model.components_ * scale**0.5 * 1.3
    model.transform = lambda rows: W * scale**0.5
    with np.errstate(all="ignore"):
        refused(model, X * scale)


def test_rounding_that_hides_everything_leaves_factors_undecided():
    X = some_ratings()
    model = MatrixFactorization(2, biases=False, random_state=0, max_iter=300).fit(X)
    W, Z = np.ones((30, 2)), np.ones((20, 2))
    W[:, 0], Z[:, 1] = 1e9, -1e9  # products of 1e9 that cancel
    found = certus.certify(forged(model, user_factors_=W, item_factors_=Z), X)
    assert found.met is not True
    exact = np.longdouble(0)
    for u, i, x in zip(*X.nonzero(), X.data):
        z = np.longdouble(W[u]) @ np.longdouble(Z[i])
        exact += (np.longdouble(x) - z) ** 2 / 2
    exact += 2.5 * (np.sum(W**2) + np.sum(Z**2))
    assert found["objective"].value == pytest.approx(float(exact), rel=1e-9)


# -- planted faults ---------------------------------------------------------------


@pytest.mark.parametrize("cls", [MatrixFactorization, ImplicitALS])
@pytest.mark.parametrize("level", ["quick", "full"])
def test_wrong_factors_swapped_users_wrong_biases(cls, level):
    X = some_ratings()
    model = cls(3, random_state=0, max_iter=500).fit(X)
    swapped = model.user_factors_[::-1]
    refused(forged(model, user_factors_=swapped), X, level=level)
    refused(forged(model, item_factors_=1.2 * model.item_factors_), X, level=level)
    one = model.user_factors_.copy()
    one[3] = one[3] + 1.0
    refused(forged(model, user_factors_=one), X, level=level)
    if cls is MatrixFactorization:
        bias = model.item_biases_ + 0.3
        refused(forged(model, item_biases_=bias), X, level=level)
        refused(forged(model, user_biases_=model.user_biases_[::-1]), X, level=level)
    refused(model, X[::-1], level=level)


def test_one_wrong_row_of_many_vectors_is_found_at_quick():
    rng = np.random.default_rng(0)
    counts = np.exp(rng.normal(size=(300, 3)) @ rng.normal(size=(3, 40)))
    model = GloVe(3, solver="als", random_state=0, max_iter=300).fit_counts(counts)
    assert certus.certify(model, counts).met
    W = model.word_factors_.copy()
    W[137] += 3.0  # not among rows that a sample of some hundred would hold
    refused(forged(model, word_factors_=W, vectors_=W), counts)


@pytest.mark.parametrize("level", ["quick", "full"])
def test_miscounted_words_and_a_permuted_vocabulary(level):
    model = BagOfWords().fit(DOCUMENTS)
    for name in ("counts_", "document_counts_"):
        wrong = getattr(model, name).copy()
        wrong[0] += 1
        refused(forged(model, **{name: wrong}), DOCUMENTS, level=level)
    words = model.vocabulary_
    swapped = [words[1], words[0], *words[2:]]
    refused(forged(model, vocabulary_=swapped), DOCUMENTS, level=level)
    refused(forged(model, n_documents_=3), DOCUMENTS, level=level)
    refused(forged(model, vocabulary_=[*words[:-1], "zebra"]), DOCUMENTS, level=level)
    pairs = Cooccurrence(weighting="harmonic").fit(DOCUMENTS)
    assert certus.certify(pairs, DOCUMENTS, level=level).met
    matrix = pairs.matrix_.copy()
    matrix.data[0] *= 1 + 1e-6
    refused(forged(pairs, matrix_=matrix), DOCUMENTS, level=level)


def test_the_tokenizer_of_the_model_has_no_say():
    model = BagOfWords().fit(DOCUMENTS)
    model._contexts = lambda texts: iter([["zebra"]])
    model._sources = lambda texts: ["zebra"]
    assert certus.certify(model, DOCUMENTS).met


# -- readers, written twice -------------------------------------------------------

HOSTILE = [
    "",
    "Don't 'quote' rock''n'roll x_1 O’Neill ’tis 'n' it's' ''a'' a'''b",
    "naïve Ünïcödé İstanbul ẞtraße ﬁ ǅ résumé",
    "e\u0301te\u0301 हिन्दी में ก็ a\u200db \u0301alone zero\u00a0width",
    "日本語。そうです！はい？ 42½ ²³ Ⅷ 1,000.5 — em–dash…",
    "tab\tnew\nline\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028 nul\x00byte \ud800",
    "One. Two! Three?\n\nFour… “Five.” (Six.) Seven.eight e.g. nine",
    "".join(map(chr, range(1, 1500))),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_both_readers_split_texts_alike(text):
    assert texts.split(text) == tokenize(text)
    stated = texts.Statement(sentences=True)
    assert list(texts.contexts(stated, [text])) == [
        tokenize(part) for part in sentences(text)
    ]


def test_both_readers_split_random_characters_alike():
    rng = np.random.default_rng(0)
    codes = [rng.integers(1, top, 400) for top in (128, 1000, 0x3000, 0x1F000) * 8]
    for line in codes:
        text = "".join(chr(c) for c in line if not 0xD800 <= c < 0xE000)
        assert texts.split(text) == tokenize(text)


# -- rounding, each bound by itself -----------------------------------------------


@pytest.mark.parametrize("form", ["explicit", "implicit"])
@pytest.mark.parametrize("seed", range(5))
def test_gradients_and_objectives_are_within_their_bounds(form, seed):
    rng = np.random.default_rng(seed)
    X = some_ratings(25, 15, seed)
    cls = MatrixFactorization if form == "explicit" else ImplicitALS
    model = cls(4, max_iter=1, tol=None, random_state=seed).fit(X)
    for scale in (1.0, 1e4):
        # Nearly equal entries round alike, and large factors that cancel round most.
        W = scale * (1 + 1e-3 * rng.standard_normal((25, 4))) * [1, -1, 1, -1]
        Z = scale * (1 + 1e-3 * rng.standard_normal((15, 4)))
        at = forged(model, user_factors_=W, item_factors_=Z)
        stated = stating.state(at, ratings.READERS)
        matrix, s = read(at, X, None, None, form == "implicit")
        found = ratings.Evaluated(at, stated, matrix, s)
        value, gradients = _in_long_double(at, found, matrix)
        assert abs(found.value - float(value)) <= found.rounding
        for k in (0, 1):
            sizes = found.problem.bound(k, found.e, found.point)
            off = np.linalg.norm((found.slopes[k] - gradients[k]).astype(float), axis=1)
            assert np.all(off <= sizes.steps * sizes.gradient)
            assert np.all(off >= 0) and off.max() > 0


def _in_long_double(model, found, matrix):
    """Objective and gradients of the halved problems, with eleven bits more."""
    W, Z, b, c = (np.asarray(part, dtype=np.longdouble) for part in found.point)
    users = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    items = matrix.indices
    z = np.einsum("ij,ij->i", W[users], Z[items])
    penalties = [np.longdouble(p) for p in found.stated.penalties]
    if found.stated.count_weight is None:
        v = matrix.data.astype(np.longdouble) - np.longdouble(float(model.mean_))
        e = z + b[users] + c[items] - v
        value = 0.5 * np.sum(e**2)
        slope, rows = e, [np.column_stack(part) for part in ((W, b), (Z, c))]
        other = [np.column_stack([F, np.ones(len(F))]) for F in (Z, W)]
        sizes = [np.array([p] * 4 + [penalties[2]]) for p in penalties[:2]]
        grams = [0.0, 0.0]
    else:
        s = np.longdouble(found.stated.count_weight) * matrix.data.astype(np.longdouble)
        e, slope, rows, other = z - 1, s * (z - 1) - 1, [W, Z], [Z, W]
        value = np.sum((1 + s) * e**2) - np.sum(z**2) + np.sum((W.T @ W) * (Z.T @ Z))
        sizes = [np.full(4, p) for p in penalties[:2]]
        grams = [Z.T @ Z, W.T @ W]
    gradients = []
    for k, places in enumerate((users, items)):
        g = rows[k] * sizes[k]
        value += found.problem.twice / 2 * np.sum(rows[k] * g)
        g = g + (rows[k] @ grams[k] if found.stated.count_weight is not None else 0.0)
        np.add.at(g, places, slope[:, None] * other[k][(items, users)[k]])
        gradients.append(g)
    return value, gradients


def test_an_unknown_gain_is_not_met():
    rng = np.random.default_rng(0)
    X = some_ratings()
    model = MatrixFactorization(2, biases=False, random_state=0, tol=1e-9, max_iter=9)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X)
    W = 1e8 * np.column_stack([np.ones(30), -np.ones(30)])
    Z = 1e8 * (1 + 1e-9 * rng.standard_normal((20, 2)))
    claim = certus.certify(forged(model, user_factors_=W, item_factors_=Z), X).claims[0]
    assert claim.strength is Strength.PROVED and claim.met is not True
