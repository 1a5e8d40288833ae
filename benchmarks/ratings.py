"""Rows for matrix factorisation: explicit ratings and implicit counts.

Data as generated when the peers were first measured. Explicit ratings are judged by the
error on a tenth of them held out, implicit counts by the objective, both computed here
from the factors of whoever fitted.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.random import default_rng

from benchmarks.machines import handed_over
from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row, ours
from certus.objectives import NoPenalty, Squared

RANK, EPOCHS, ROUNDS = 32, 20, 10
RATE, DECAY, ALPHA, PENALTY = 0.005, 0.02, 1.0, 0.1


@lru_cache(maxsize=2)
def ratings(scale: int = 1) -> tuple[Any, Any]:
    """20,000 users × 5,000 items, 10⁶ draws made unique: nine tenths, and the rest."""
    rng, n, m = default_rng(0), 20_000 // scale, 5_000 // scale
    draws = 1_000_000 // scale
    busy, popular = rng.lognormal(0, 1, n), np.arange(1, m + 1) ** -0.8
    users = rng.choice(n, draws, p=busy / busy.sum())
    items = rng.choice(m, draws, p=popular / popular.sum())
    pairs = np.unique(users.astype(np.int64) * m + items)
    rng.shuffle(pairs)
    users, items = pairs // m, pairs % m
    U, V = 0.5 * rng.standard_normal((n, 8)), 0.5 * rng.standard_normal((m, 8))
    b, c = 0.4 * rng.standard_normal(n), 0.4 * rng.standard_normal(m)
    z = 3.5 + np.einsum("ij,ij->i", U[users], V[items]) + b[users] + c[items]
    z += 0.6 * rng.standard_normal(len(z))
    stars, cut = np.clip(np.round(z), 1, 5), int(0.9 * len(z))
    parts = (
        sp.csr_matrix((stars[part], (users[part], items[part])), (n, m))
        for part in (slice(0, cut), slice(cut, None))
    )
    train, test = parts
    return train, test


# -- judges -----------------------------------------------------------------------


def held_out_error(p: Problem, fit: Fit) -> float:
    """Root mean squared error on the ratings held out, within one to five stars."""
    test = p.queries.tocoo()
    mean, b, c, W, Z = fit.coef
    z = mean + b[test.row] + c[test.col]
    z += np.einsum("ij,ij->i", W[test.row], Z[test.col])
    return float(np.sqrt(np.mean((np.clip(z, 1, 5) - test.data) ** 2)))


def implicit_loss(p: Problem, fit: Fit) -> float:
    """The objective over all users × items, per confidence."""
    W, Z = (np.asarray(F, dtype=np.float64) for F in fit.coef)
    counts = p.X.tocoo()
    z = np.einsum("ij,ij->i", W[counts.row], Z[counts.col])
    c = 1.0 + ALPHA * counts.data.astype(np.float64)
    loss = np.sum((W.T @ W) * (Z.T @ Z)) + c @ (1 - z) ** 2 - z @ z
    loss += PENALTY * (np.sum(W**2) + np.sum(Z**2))
    return float(loss / c.sum())


# -- contenders -------------------------------------------------------------------


def pairs_of(X: Any) -> tuple[Any, Any]:
    """What both are given: pairs of ids, and stars (whole numbers, so float32)."""
    X = X.tocoo()
    return np.column_stack([X.row, X.col]), X.data.astype(np.float32)


def spread_out(p: Problem, mean: float, users: Any, items: Any, parts: Any) -> Any:
    """Factors and biases at the places of all users and items; zero for the unseen."""
    (n, m), K = p.X.shape, RANK
    b, c, W, Z = np.zeros(n), np.zeros(m), np.zeros((n, K)), np.zeros((m, K))
    b[users], c[items], W[users], Z[items] = parts
    return mean, b, c, W, Z


def sgd(p: Problem, tol: float) -> Fit:
    from certus.recommend import MatrixFactorization

    pairs, stars = p.y
    model = MatrixFactorization(
        RANK,
        solver="sgd",
        alpha=DECAY,
        penalty_scale="ratings",
        learning_rate=RATE,
        max_iter=EPOCHS,
        random_state=0,
    ).fit(pairs, stars)
    parts = (model.user_biases_, model.item_biases_)
    parts += (model.user_factors_, model.item_factors_)
    return Fit(
        spread_out(p, model.mean_, model.users_, model.items_, parts),
        certificate_seconds=handed_over(model).certificate_seconds,
    )


def surprise_svd(untimed: bool) -> Any:
    """From pairs, or ``untimed`` from its Trainset, made once."""
    made: dict[int, Any] = {}

    def trainset(p: Problem) -> Any:
        import pandas as pd
        import surprise

        pairs, stars = p.y
        frame = pd.DataFrame({"u": pairs[:, 0], "i": pairs[:, 1], "stars": stars})
        reader = surprise.Reader(rating_scale=(1, 5))
        return surprise.Dataset.load_from_df(frame, reader).build_full_trainset()

    def fit(p: Problem, tol: float) -> Fit:
        import surprise

        if untimed and id(p) not in made:
            made[id(p)] = trainset(p)
        known = made[id(p)] if untimed else trainset(p)
        model = surprise.SVD(
            n_factors=RANK, n_epochs=EPOCHS, lr_all=RATE, reg_all=DECAY, random_state=0
        ).fit(known)
        users = [known.to_raw_uid(u) for u in range(known.n_users)]
        items = [known.to_raw_iid(i) for i in range(known.n_items)]
        parts = (model.bu, model.bi, model.pu, model.qi)
        return Fit(spread_out(p, known.global_mean, users, items, parts))

    return fit


def counted(p: Problem, tol: float) -> Fit:
    from certus.recommend import ImplicitALS

    model = ImplicitALS(
        RANK,
        count_weight=ALPHA,
        alpha=PENALTY,
        max_iter=ROUNDS,
        tol=None,
        random_state=0,
    ).fit(p.X)
    fit = handed_over(model)
    return Fit(
        (model.user_factors_, model.item_factors_),
        certificate_seconds=fit.certificate_seconds,
    )


def implicit_als(use_cg: bool) -> Any:
    """Its confidences are the entries themselves: 1 + α·count is passed, untimed."""
    given: dict[int, Any] = {}

    def fit(p: Problem, tol: float) -> Fit:
        from implicit.cpu.als import AlternatingLeastSquares

        if id(p) not in given:
            X = p.X.astype(np.float32)
            X.data = np.float32(1) + np.float32(ALPHA) * X.data
            given[id(p)] = X
        model = AlternatingLeastSquares(
            factors=RANK,
            regularization=PENALTY,
            alpha=1.0,
            iterations=ROUNDS,
            use_cg=use_cg,
            num_threads=0,
            random_state=0,
        )
        model.fit(given[id(p)], show_progress=False)
        return Fit((model.user_factors, model.item_factors))

    return fit


def _explicit(scale: int) -> Problem:
    train, test = ratings(scale)
    terms = (Squared(), NoPenalty())
    given = pairs_of(train)
    return Problem(train, given, terms, queries=test, judge=held_out_error)


def _implicit(scale: int) -> Problem:
    train, _ = ratings(scale)
    terms = (Squared(), NoPenalty())
    return Problem(train.astype(np.float32), None, terms, judge=implicit_loss)


ROWS: tuple[Row, ...] = (
    Row(
        "matrix factorisation, 10⁶ ratings, rank 32, SGD, 20 epochs",
        _explicit,
        0.8645,
        (
            ours(sgd, 0.0),
            Contender("Surprise", surprise_svd(untimed=False)),
            Contender("Surprise, from its Trainset", surprise_svd(untimed=True)),
        ),
        (("Surprise", 10.0),),
        "gap: error on held-out ratings; same steps, penalty, rank and epochs, both "
        "from pairs of ids; Surprise computes in float64, certus in the float32 given; "
        "the third contender's Trainset is not timed",
    ),
    Row(
        "implicit ALS, 10⁶ counts, rank 32, 10 rounds, float32",
        _implicit,
        0.692,
        (
            ours(counted, 0.0),
            Contender("implicit, conjugate gradients", implicit_als(True)),
            Contender("implicit, Cholesky", implicit_als(False)),
        ),
        (("best", 1.0),),
        "gap: objective per confidence",
    ),
)
