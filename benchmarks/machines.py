"""Rows for margins, kernel machines, neighbours and robust regression.

Data as generated when the peers were first measured; Huber, quantile and Poisson data
are our own. A fit hands over its model, and each row says how a model is judged:
linear machines by (P − D) with the dual point of one fit of ours, so that a peer which
keeps no dual is not judged by a poor one; kernel machines and regressors by
``certus.certify``; neighbours by the share that differs from a direct search.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.random import default_rng

from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row, ladder, ours
from certus.objectives import Hinge, SquaredHinge
from certus.objectives.terms import L2

# -- data -------------------------------------------------------------------------


@lru_cache(maxsize=1)
def dense_margin(scale: int = 1) -> tuple[Any, Any]:
    """200,000 × 100, condition number 10; labels ±1 from a logistic model."""
    rng, n, d = default_rng(0), 200_000 // scale, 100 // scale
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    s = np.logspace(0, -1, d)
    X = rng.standard_normal((n, d)) @ ((Q * s) @ Q.T)
    X /= X.std(0)
    z = X @ rng.standard_normal(d)
    z *= 1.5 / z.std()
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)


@lru_cache(maxsize=1)
def sparse_margin(scale: int = 1) -> tuple[Any, Any]:
    """50,000 documents over 100,000 words, sublinear tf-idf, 5 % of labels flipped."""
    rng, n, d = default_rng(1), 50_000 // scale, 100_000 // scale
    p = np.arange(1, d + 1) ** -1.05
    lengths = np.maximum(5, rng.lognormal(4.3, 0.5, n).astype(int))
    labels = rng.integers(0, 2, n)
    rng.permutation(d)
    rows = np.repeat(np.arange(n), lengths)
    words = rng.choice(d, lengths.sum(), p=p / p.sum())
    moved = (rng.random(len(words)) < 0.25) & (labels[rows] == 1)
    words = np.where(moved, (7 * words + 13) % d, words)
    X = sp.csr_matrix((np.ones(len(words)), (rows, words)), (n, d))
    X.data = 1 + np.log(X.data)
    frequency = np.bincount(X.indices, minlength=d)
    X = sp.csr_matrix(X @ sp.diags(np.log((1 + n) / (1 + frequency)) + 1))
    X = sp.csr_matrix(sp.diags(1 / np.sqrt(X.multiply(X).sum(axis=1).A1)) @ X)
    labels = np.where(rng.random(n) < 0.05, 1 - labels, labels)
    return X, 2.0 * labels - 1


@lru_cache(maxsize=1)
def rbf(n: int, scale: int = 1, shift: float = 0.45) -> tuple[Any, Any]:
    """n × 30, two overlapping classes that differ in ten means and five scales."""
    rng, n = default_rng(3), n // scale
    y = rng.integers(0, 2, n)
    X = rng.standard_normal((n, 30))
    X[:, :10] += shift * (2 * y[:, None] - 1)
    X[:, 10:15] *= np.where(y[:, None] == 1, 1.25, 1.0)
    return X, y


@lru_cache(maxsize=1)
def perceptron_data(scale: int = 1) -> tuple[Any, Any]:
    """200,000 × 100, nearly separable."""
    rng, n = default_rng(0), 200_000 // scale
    X = rng.standard_normal((n, 100))
    z = X @ rng.standard_normal(100)
    return X, (z / z.std() + 0.4 * rng.standard_normal(n) > 0).astype(int)


@lru_cache(maxsize=1)
def points(d: int, scale: int = 1) -> tuple[Any, Any, Any]:
    """100,000 points and 10,000 queries: 200 clusters, or a cube where d = 3."""
    rng, n, m = default_rng(0), 100_000 // scale, 10_000 // scale
    if d == 3:
        X = rng.random((n + m, 3))
        return X[:n], rng.integers(0, 10, n), X[n:]
    centres = rng.standard_normal((200, d)) * 1.2
    c = rng.integers(0, 200, n + m)
    X = centres[c] + rng.standard_normal((n + m, d))
    return X[:n], c[:n] % 10, X[n:]


@lru_cache(maxsize=1)
def regression(kind: str, scale: int = 1) -> tuple[Any, Any]:
    """100,000 × 50; one response in twenty is far off, or counts, or amounts."""
    rng, n = default_rng(0), 100_000 // scale
    X = rng.standard_normal((n, 50))
    z = X @ rng.standard_normal(50)
    z /= z.std()
    if kind == "counts":
        return X, rng.poisson(np.exp(0.5 * z)).astype(float)
    if kind == "amounts":
        return X, rng.gamma(2.0, np.exp(0.5 * z) / 2)
    if kind == "claims":
        claims = rng.poisson(np.exp(0.5 * z))
        return X, np.where(claims > 0, rng.gamma(np.maximum(2.0 * claims, 1e-9)), 0.0)
    y = z + 0.5 * rng.standard_normal(n)
    far = rng.random(n) < 0.05
    return X, y + far * 20 * rng.standard_normal(n)


def non_negative(scale: int = 1) -> tuple[Any, Any]:
    """5,000 × 200: ten parts and a tenth of noise."""
    rng, n = default_rng(0), 5_000 // scale
    X = rng.random((n, 10)) @ rng.random((10, 200)) + 0.1 * rng.random((n, 200))
    return X, None


# -- judges -----------------------------------------------------------------------


def by_certify(p: Problem, fit: Fit) -> float:
    """The primary claim of a fitted model, whoever fitted it."""
    import certus

    return float(certus.certify(fit.coef, p.X, p.y).value)


def by_our_dual(p: Problem, fit: Fit) -> float:
    """P at the fit less D at the dual point of one tight fit of ours."""
    from certus import check

    dual = _our_dual(p)
    coef = fit.coef.coef_.ravel()
    return float(check(coef, None, p.terms, p.X, p.y, dual=dual).value)


_DUALS: dict[int, Any] = {}


def _our_dual(p: Problem) -> Any:
    if id(p) not in _DUALS:
        model = _svm("certus.svm", p, 1e-7)
        _DUALS[id(p)] = model.certificate_.evidence.witness.dual
    return _DUALS[id(p)]


def share_of_errors(p: Problem, fit: Fit) -> float:
    """Share of training rows that are misclassified."""
    return float(np.mean(fit.coef.predict(p.X) != p.y))


def wrong_neighbours(p: Problem, fit: Fit) -> float:
    """Share of neighbours that are not those of a tree search in float64."""
    from scipy.spatial import cKDTree

    some = np.arange(0, len(p.queries), 20)
    _, true = cKDTree(p.X).query(p.queries[some], k=fit.coef.shape[1])
    return float(np.mean(np.sort(fit.coef[some]) != np.sort(true)))


# -- contenders -------------------------------------------------------------------


def handed_over(model: Any) -> Fit:
    certificate = getattr(model, "certificate_", None)
    seconds = None if certificate is None else float(certificate.seconds)
    return Fit(model, certificate_seconds=seconds)


def _svm(module: str, p: Problem, tol: float, **options: Any) -> Any:
    loss = "hinge" if isinstance(p.terms[0], Hinge) else "squared_hinge"
    C = 1 / (p.alpha * p.X.shape[0])
    cls = import_module(module).LinearSVC
    model = cls(C=C, loss=loss, fit_intercept=False, tol=tol, **options)
    return model.fit(p.X, p.y)


def linear_svm(module: str, **options: Any) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        return handed_over(_svm(module, p, tol, **options))

    return fit


def sgd_svm(p: Problem, tol: float) -> Fit:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(
        alpha=p.alpha, fit_intercept=False, tol=tol, max_iter=1000, random_state=0
    )
    return handed_over(model.fit(p.X, p.y))


def model(module: str, name: str, scale_tol: bool = True, **options: Any) -> Any:
    """``name`` of a module with fixed options; ``tol`` from the ladder."""

    def fit(p: Problem, tol: float) -> Fit:
        extra = {"tol": tol} if scale_tol else {}
        cls = getattr(import_module(module), name)
        return handed_over(cls(**options, **extra).fit(p.X, p.y))

    return fit


def predictions(module: str) -> Any:
    """Labels of 5,000 queries by an SVM fitted beforehand, which is not timed."""
    fitted: dict[int, Any] = {}

    def fit(p: Problem, tol: float) -> Fit:
        if id(p) not in fitted:
            cls = import_module(module).SVC
            fitted[id(p)] = cls(gamma=1 / 30).fit(p.X, p.y)
        return Fit(fitted[id(p)].predict(p.queries))

    return fit


def within_radius(module: str) -> Any:
    """How many points lie within a radius of each query."""

    def fit(p: Problem, tol: float) -> Fit:
        cls = import_module(module).NearestNeighbors
        found = cls(radius=0.03).fit(p.X).radius_neighbors(p.queries)
        return Fit(np.array([len(rows) for rows in found[1]]))

    return fit


def wrong_counts(p: Problem, fit: Fit) -> float:
    """Share of counts that are not those of a tree search in float64."""
    from scipy.spatial import cKDTree

    tree = cKDTree(p.X)
    true = tree.query_ball_point(p.queries, 0.03, return_length=True)
    return float(np.mean(fit.coef != true))


def neighbours(module: str, algorithm: str = "auto") -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        cls = import_module(module).KNeighborsClassifier
        model = cls(n_neighbors=10, algorithm=algorithm).fit(p.X, p.y)
        return Fit(model.kneighbors(p.queries, return_distance=False))

    return fit


def tree(p: Problem, tol: float) -> Fit:
    from scipy.spatial import cKDTree

    return Fit(cKDTree(p.X).query(p.queries, k=10, workers=-1)[1])


def glum_poisson(p: Problem, tol: float) -> Fit:
    from glum import GeneralizedLinearRegressor
    from sklearn.linear_model import PoissonRegressor

    found = GeneralizedLinearRegressor(
        family="poisson", alpha=p.alpha, l1_ratio=0.0, gradient_tol=tol, max_iter=1000
    ).fit(p.X, p.y)
    judged = PoissonRegressor(alpha=p.alpha)  # stated so that it can be judged
    judged.coef_, judged.intercept_ = found.coef_, float(found.intercept_)
    judged.n_features_in_ = p.X.shape[1]
    return Fit(judged)


# -- rows -------------------------------------------------------------------------


def _linear(make: Any, loss: Any, C: float) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y = make(scale)
        a = 1 / (C * len(y))
        return Problem(X, y, (loss, L2(a)), alpha=a, judge=by_our_dual)

    return problem


def _judged(make: Any, judge: Any, **more: Any) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y, *queries = make(scale)
        queries = queries[0] if queries else None
        return Problem(X, y, None, queries=queries, judge=judge, **more)

    return problem


def _svm_contenders(gap: float, hinge: bool) -> tuple[Contender, ...]:
    out = [
        ours(linear_svm("certus.svm"), gap),
        Contender(
            "liblinear dual", linear_svm("sklearn.svm", dual=True), ladder(0, -6)
        ),
    ]
    if hinge:
        return (*out, Contender("sklearn SGD", sgd_svm, ladder(-2, -6)))
    primal = linear_svm("sklearn.svm", dual=False)
    return (*out, Contender("liblinear primal", primal, ladder(0, -6)))


def _rbf_contenders(gap: float, **options: Any) -> tuple[Contender, ...]:
    def svc(module: str, **more: Any) -> Any:
        return model(module, "SVC", gamma=1 / 30, **options, **more)

    return (
        ours(svc("certus.svm"), gap),
        Contender("sklearnex", svc("sklearnex.svm"), ladder(-2, -6)),
        Contender("sklearn", svc("sklearn.svm", cache_size=2000), ladder(-2, -6)),
    )


def _heavy(scale: int) -> tuple[Any, Any]:
    return rbf(10_000, scale, 0.1)


@lru_cache(maxsize=1)
def _noisy(scale: int) -> tuple[Any, Any]:
    """6,000 × 25, a fifth of the labels drawn at random."""
    from sklearn.datasets import make_classification

    return make_classification(
        6_000 // scale, 25, n_informative=10, flip_y=0.2, random_state=0
    )


def _queries(scale: int) -> tuple[Any, Any, Any]:
    X, y = rbf(10_000, scale)
    half = len(X) // 2
    return X[:half], y[:half], X[half:]


def agreement(p: Problem, fit: Fit) -> float:
    """Share of predictions that differ from scikit-learn's."""
    from sklearn.svm import SVC

    other = SVC(gamma=1 / 30).fit(p.X, p.y).predict(p.queries)
    return float(np.mean(np.asarray(fit.coef) != other))


def _regressors(
    name: str, gap: float, rungs: tuple[float, ...], **options: Any
) -> tuple[Contender, ...]:
    theirs = {"max_iter": 10_000} if name != "QuantileRegressor" else {}
    fit = model(
        "sklearn.linear_model",
        name,
        scale_tol=name != "QuantileRegressor",
        **options,
        **theirs,
    )
    return (
        ours(model("certus.linear_model", name, **options), gap),
        Contender("sklearn", fit, rungs),
    )


def _pair(
    package: str, name: str, rungs: tuple[float, ...], gap: float = 1e-6, **options: Any
) -> tuple[Contender, ...]:
    """A class of ours and scikit-learn's of that name."""
    return (
        ours(model(f"certus.{package}", name, **options), gap),
        Contender("sklearn", model(f"sklearn.{package}", name, **options), rungs),
    )


def _perceptrons(shuffle: bool) -> tuple[Contender, ...]:
    """Five epochs each: no rule stops them earlier."""

    def five(module: str) -> Any:
        options = {"max_iter": 5, "tol": None, "shuffle": shuffle, "random_state": 0}
        return model(module, "Perceptron", scale_tol=False, **options)

    return (
        ours(five("certus.linear_model"), 0.0),
        Contender("sklearn", five("sklearn.linear_model")),
    )


ROWS: tuple[Row, ...] = (
    Row(
        "linear SVM, squared hinge, 200,000 × 100, C = 0.01",
        _linear(dense_margin, SquaredHinge(), 0.01),
        1e-5,
        _svm_contenders(1e-5, hinge=False),
        (("best", 5.0),),
    ),
    Row(
        "linear SVM, hinge, 200,000 × 100, C = 0.01",
        _linear(dense_margin, Hinge(), 0.01),
        1e-4,
        _svm_contenders(1e-4, hinge=True),
        (("best", 2.0),),
    ),
    Row(
        "linear SVM sparse 50,000 × 100,000, hinge, C = 1",
        _linear(sparse_margin, Hinge(), 1.0),
        1e-5,
        _svm_contenders(1e-5, hinge=True),
        (("best", 1.0),),
    ),
    Row(
        "linear SVM sparse 50,000 × 100,000, squared hinge, C = 1",
        _linear(sparse_margin, SquaredHinge(), 1.0),
        1e-5,
        _svm_contenders(1e-5, hinge=False),
        (("best", 1.0),),
    ),
    Row(
        "RBF SVM 10,000 × 30",
        _judged(lambda scale: rbf(10_000, scale), by_certify),
        1e-4,
        _rbf_contenders(1e-4),
        (("sklearnex", 1.0), ("sklearn", 2.0)),
        fit_alone=True,
    ),
    Row(
        "RBF SVM 30,000 × 30",
        _judged(lambda scale: rbf(30_000, scale), by_certify),
        1e-4,
        _rbf_contenders(1e-4),
        (("sklearnex", 1.0), ("sklearn", 4.0)),
        fit_alone=True,
    ),
    Row(
        "RBF SVM 10,000 × 30, heavy overlap, C = 10",
        _judged(_heavy, by_certify),
        1e-4,
        _rbf_contenders(1e-4, C=10.0),
        (("best", 1.0),),
        fit_alone=True,
    ),
    Row(
        "RBF SVM 6,000 × 25, a fifth of the labels drawn at random",
        _judged(_noisy, by_certify),
        1e-4,
        _rbf_contenders(1e-4),
        (("sklearn", 2.0),),
        fit_alone=True,
    ),
    Row(
        "RBF SVM predict, 5,000 queries",
        _judged(_queries, agreement),
        1e-3,
        (
            ours(predictions("certus.svm"), 0.0),
            Contender("sklearnex", predictions("sklearnex.svm")),
            Contender("sklearn", predictions("sklearn.svm")),
        ),
        (("sklearnex", 1.0),),
    ),
    Row(
        "perceptron 200,000 × 100, 5 epochs, unshuffled",
        _judged(perceptron_data, share_of_errors),
        0.25,
        _perceptrons(shuffle=False),
        (("sklearn", 2.0),),
        "judged by training errors",
    ),
    Row(
        "perceptron 200,000 × 100, 5 epochs, shuffled",
        _judged(perceptron_data, share_of_errors),
        0.25,
        _perceptrons(shuffle=True),
        (("sklearn", 2.0),),
        "judged by training errors",
    ),
    Row(
        "kNN 100,000 × 32, 10,000 queries, k = 10",
        _judged(lambda scale: points(32, scale), wrong_neighbours),
        0.0,
        (
            ours(neighbours("certus.neighbors"), 0.0),
            Contender("sklearnex", neighbours("sklearnex.neighbors", "brute")),
            Contender("sklearn", neighbours("sklearn.neighbors", "brute")),
            Contender("SciPy tree", tree),
        ),
        (("best", 1.0),),
        "gap: share of wrong neighbours",
    ),
    Row(
        "kNN 100,000 × 3, 10,000 queries, k = 10",
        _judged(lambda scale: points(3, scale), wrong_neighbours),
        0.0,
        (
            ours(neighbours("certus.neighbors"), 0.0),
            Contender("SciPy tree", tree),
            Contender("sklearn", neighbours("sklearn.neighbors")),
        ),
        (("SciPy tree", 0.9),),
        "gap: share of wrong neighbours",
    ),
    Row(
        "Huber 100,000 × 50",
        _judged(lambda scale: regression("outliers", scale), by_certify),
        1e-6,
        _regressors("HuberRegressor", 1e-6, ladder(-3, -9)),
        (("best", 1.0),),
    ),
    Row(
        "quantile 0.8, 100,000 × 50",
        _judged(lambda scale: regression("outliers", scale), by_certify),
        1e-6,
        _regressors("QuantileRegressor", 1e-6, (0.0,), quantile=0.8, alpha=1e-3),
        (("best", 1.0),),
    ),
    Row(
        "Poisson 100,000 × 50",
        _judged(lambda scale: regression("counts", scale), by_certify, alpha=1e-3),
        1e-6,
        (
            *_regressors("PoissonRegressor", 1e-6, ladder(-3, -9), alpha=1e-3),
            Contender(
                "sklearn newton-cholesky",
                model(
                    "sklearn.linear_model",
                    "PoissonRegressor",
                    alpha=1e-3,
                    solver="newton-cholesky",
                ),
                ladder(-3, -9),
            ),
            Contender("glum", glum_poisson, ladder(-3, -9)),
        ),
        (("best", 1.0),),
    ),
    *(
        Row(
            f"{name[:-9]}, 100,000 × 50",
            _judged(partial(regression, kind), by_certify),
            1e-6,
            _regressors(name, 1e-6, ladder(-3, -9), alpha=1e-3, **options),
            (("best", 1.0),),
        )
        for name, kind, options in (
            ("GammaRegressor", "amounts", {}),
            ("TweedieRegressor", "claims", {"power": 1.5}),
        )
    ),
    Row(
        "ridge classifier by leave-one-out, 100,000 × 30",
        _judged(lambda scale: rbf(100_000, scale), by_certify),
        1e-6,
        _pair(
            "linear_model",
            "RidgeClassifierCV",
            (0.0,),
            scale_tol=False,
            alphas=tuple(np.logspace(-3, 3, 20)),
        ),
        (("best", 1.0),),
    ),
    Row(
        "one-class SVM, 5,000 × 30, nu 0.1",
        _judged(lambda scale: (rbf(5_000, scale)[0], None), by_certify),
        1e-6,
        _pair("svm", "OneClassSVM", ladder(-3, -9), nu=0.1, gamma=1 / 30),
        (("best", 1.0),),
    ),
    Row(
        "non-negative factors, 5,000 × 200, 10 parts",
        _judged(non_negative, by_certify),
        1e-4,
        _pair(
            "decomposition",
            "NMF",
            ladder(-4, -8),
            gap=1e-4,
            n_components=10,
            max_iter=5_000,
            random_state=0,
        ),
        (("best", 1.0),),
    ),
    Row(
        "points within a radius, 100,000 × 3",
        _judged(lambda scale: points(3, scale), wrong_counts),
        0.0,
        (
            ours(within_radius("certus.neighbors"), 0.0),
            Contender("sklearn", within_radius("sklearn.neighbors"), (0.0,)),
        ),
        (("best", 1.0),),
    ),
)
