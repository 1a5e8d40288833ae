"""The table of benchmark rows: data, objective, target gap, contenders, target ratios.

Gaps are those of ``certus.verify.check``: (P − D) / P(best constant model); for plain
least squares, which has no finite gap, the backward error. The lasso target of
1e-6·‖y‖²/n is 2e-6 of P(0) = ½‖y‖²/n.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import data, peers
from benchmarks.peers import Problem
from certus.objectives import Logistic, NoPenalty, Softmax, Squared
from certus.objectives.terms import L1, L2


@dataclass(frozen=True)
class Contender:
    """Who fits, how, and with which of its own tolerances, loose to tight."""

    name: str
    fit: Callable[[Problem, float], peers.Fit]
    ladder: tuple[float, ...] = (0.0,)
    layout: str = "asis"  # or "F": what it prefers; converting is not timed
    kind: str = "peer"  # or "ours", "reference"


@dataclass(frozen=True)
class Row:
    """One line of the table; targets are (contender or "best", peer ÷ ours).

    With ``fit_alone``, ours without the certificate: a kernel machine's is a pass over
    the kernel matrix, which the peers do not make.
    """

    name: str
    problem: Callable[[int], Problem]
    gap: float
    contenders: tuple[Contender, ...]
    targets: tuple[tuple[str, float], ...]
    note: str = ""
    fit_alone: bool = False


def ladder(first: int, last: int) -> tuple[float, ...]:
    """Tolerances 10^first … 10^last in half decades.

    Whole decades would make a peer overshoot the gap by up to ten and pay for it.
    """
    return tuple(10.0 ** (k / 2) for k in range(2 * first, 2 * last - 1, -1))


def ours(fit: Any, gap: float) -> Contender:
    return Contender("certus", fit, (gap,), kind="ours")


def _least_squares(scale: int) -> Problem:
    return Problem(*data.least_squares(scale), (Squared(), NoPenalty()))


def _ridge(scale: int) -> Problem:
    X, y = data.least_squares(scale)
    a = 1 / len(y)
    return Problem(X, y, (Squared(), L2(a)), fit_intercept=True, alpha=a)


def _ridge_cv(scale: int) -> Problem:
    X, y = data.least_squares(scale)
    n = len(y)

    def terms(alpha: float) -> Any:
        return Squared(), L2(alpha / n)

    # The range is inferred: this one selects the published alpha, 20.69.
    return Problem(X, y, terms, fit_intercept=True, alphas=np.logspace(-2, 5, 20))


def _lasso(make: Any, ratio: float) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y = make(scale)
        a = float(abs(X.T @ y).max()) / len(y) / ratio
        return Problem(X, y, (Squared(), L1(a)), alpha=a)

    return problem


def _path(make: Any, points: int, ratio: float) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y = make(scale)
        top = float(abs(X.T @ y).max()) / len(y)
        alphas = np.geomspace(top, top / ratio, points)
        return Problem(X, y, lambda a: (Squared(), L1(a)), alphas=alphas)

    return problem


def _logistic_l2(scale: int) -> Problem:
    X, y = data.logistic_l2(scale)
    return Problem(X, y, (Logistic(), L2(1 / len(y))), alpha=1 / len(y))


def _logistic_l1(order: str) -> Callable[[int], Problem]:
    def problem(scale: int) -> Problem:
        X, y = data.logistic_l1(scale)
        a = float(abs(X.T @ y).max()) / 2 / len(y) / 20
        X = np.asarray(X, order=order)
        return Problem(X, y, (Logistic(), L1(a)), alpha=a)

    return problem


def _softmax(scale: int) -> Problem:
    X, y = data.softmax(scale)
    return Problem(X, y, (Softmax(10), L2(1 / len(y))), alpha=1 / len(y))


def _lasso_contenders(
    kind: Any, first: tuple[int, int, int] = (-1, -2, -3)
) -> tuple[Contender, ...]:
    """``first``: exponents where the ladders of skglm, celer and sklearn begin."""
    return (
        ours(kind("certus"), LASSO_GAP),
        Contender("skglm", kind("skglm"), ladder(first[0], -9)),
        Contender("celer", kind("celer"), ladder(first[1], -11)),
        Contender("sklearn", kind("sklearn"), ladder(first[2], -9)),
    )


def _l1_logistic_contenders() -> tuple[Contender, ...]:
    return (
        ours(peers.logistic("certus", l1=True), 1e-6),
        Contender("skglm", peers.skglm_l1_logistic, ladder(-1, -7)),
        Contender("celer", peers.logistic("celer"), ladder(-1, -8)),
        Contender(
            "sklearn liblinear",
            peers.logistic("sklearn", l1=True, solver="liblinear"),
            ladder(-3, -8),
        ),
        Contender("glum", peers.glum_logistic(l1=True), ladder(-3, -7)),
        Contender(
            "sklearn saga",
            peers.logistic("sklearn", l1=True, solver="saga"),
            ladder(-3, -8),
        ),
    )


def _sk_logistic(
    solver: str, rungs: tuple[float, ...], layout: str = "asis"
) -> Contender:
    fit = peers.logistic("sklearn", solver=solver)
    return Contender(f"sklearn {solver}", fit, rungs, layout)


def _sk_ridge(solver: str, rungs: tuple[float, ...]) -> Contender:
    return Contender(f"sklearn {solver}", peers.ridge("sklearn", solver=solver), rungs)


LASSO_GAP = 2e-6
LOGISTIC_L1_NOTE = "peers get the row's own order"

ROWS: tuple[Row, ...] = (
    Row(
        "least squares 200,000 × 200",
        _least_squares,
        1e-10,
        (
            ours(peers.ols("certus"), 1e-10),
            Contender("sklearnex", peers.ols("sklearnex")),
            Contender("sklearn", peers.ols("sklearn")),
            Contender("statsmodels", peers.statsmodels_ols),
            Contender("normal equations", peers.normal_equations, kind="reference"),
        ),
        (("sklearnex", 1.1), ("sklearn", 7.0)),
    ),
    Row(
        "ridge 200,000 × 200, intercept",
        _ridge,
        1e-10,
        (
            ours(peers.ridge("certus"), 1e-10),
            Contender("sklearnex", peers.ridge("sklearnex"), (1e-4,)),
            Contender("sklearn", peers.ridge("sklearn"), (1e-4,)),
            _sk_ridge("cholesky", (1e-4,)),
            _sk_ridge("svd", (1e-4,)),
            _sk_ridge("sparse_cg", ladder(-4, -12)),
            _sk_ridge("lsqr", ladder(-4, -12)),
            _sk_ridge("sag", ladder(-3, -8)),
            Contender("bare Gram", peers.normal_equations, kind="reference"),
        ),
        (("best", 1.1),),
    ),
    Row(
        "RidgeCV, 20 alphas, leave-one-out",
        _ridge_cv,
        1e-10,
        (
            ours(peers.ridge_cv("certus"), 1e-10),
            Contender("sklearn", peers.ridge_cv("sklearn")),
            Contender("sklearn GridSearchCV, 5-fold", peers.ridge_grid_search),
            Contender("fold-Grams + eigh, 5-fold", peers.fold_grams, kind="reference"),
        ),
        (("best", 20.0),),
    ),
    Row(
        "lasso 2,000 × 20,000, λmax/20",
        _lasso(data.lasso_dense, 20),
        LASSO_GAP,
        _lasso_contenders(peers.lasso),
        (("best", 2.0),),
    ),
    Row(
        "lasso 2,000 × 20,000, λmax/100",
        _lasso(data.lasso_dense, 100),
        LASSO_GAP,
        _lasso_contenders(peers.lasso),
        (("best", 2.0),),
    ),
    Row(
        "lasso path, 100 points to λmax/100",
        _path(data.lasso_dense, 100, 100),
        LASSO_GAP,
        # A rung takes up to a minute: begin one or two above the known answers.
        _lasso_contenders(peers.lasso_path, (-4, -6, -6)),
        (("best", 2.0),),
    ),
    Row(
        "lasso sparse 50,000 × 100,000, λmax/20",
        _lasso(data.lasso_sparse, 20),
        LASSO_GAP,
        _lasso_contenders(peers.lasso),
        (("best", 1.0),),
    ),
    Row(
        "lasso sparse path, 30 points to λmax/20",
        _path(data.lasso_sparse, 30, 20),
        LASSO_GAP,
        _lasso_contenders(peers.lasso_path),
        (("best", 1.2),),
    ),
    Row(
        "lasso text-like 50,000 × 100,000, λmax/100",
        _lasso(data.lasso_text, 100),
        LASSO_GAP,
        _lasso_contenders(peers.lasso),
        (("best", 1.0),),
        "data reconstructed: not comparable with published seconds",
    ),
    Row(
        "logistic L2 200,000 × 100",
        _logistic_l2,
        1e-7,
        (
            ours(peers.logistic("certus"), 1e-7),
            _sk_logistic("newton-cholesky", ladder(-3, -10), "F"),
            Contender("glum", peers.glum_logistic(l1=False), ladder(-2, -10), "F"),
            _sk_logistic("lbfgs", ladder(-4, -10)),
            _sk_logistic("newton-cg", ladder(-4, -10)),
            Contender(
                "sklearnex lbfgs", peers.logistic("sklearnex"), (1.0, *ladder(-1, -8))
            ),
            _sk_logistic("liblinear", ladder(-2, -8)),
            _sk_logistic("saga", ladder(-3, -8)),
            Contender("skglm LBFGS", peers.skglm_l2_logistic, ladder(-4, -9)),
            Contender("bare IRLS", peers.bare_irls, ladder(-4, -10), kind="reference"),
        ),
        (("best", 2.0), ("sklearn lbfgs", 10.0)),
    ),
    Row(
        "logistic L1 20,000 × 2,000, λmax/20, Fortran order",
        _logistic_l1("F"),
        1e-6,
        _l1_logistic_contenders(),
        (("skglm", 1.0),),
        LOGISTIC_L1_NOTE,
    ),
    Row(
        "logistic L1 20,000 × 2,000, λmax/20, C order",
        _logistic_l1("C"),
        1e-6,
        _l1_logistic_contenders(),
        (("skglm", 3.0),),
        LOGISTIC_L1_NOTE,
    ),
    Row(
        "softmax, 10 classes, 60,000 × 300",
        _softmax,
        1e-6,
        (
            ours(peers.logistic("certus"), 1e-6),
            _sk_logistic("newton-cg", ladder(-3, -8)),
            _sk_logistic("lbfgs", ladder(-3, -8)),
            _sk_logistic("newton-cholesky", ladder(-2, -6)),
            Contender("sklearnex lbfgs", peers.logistic("sklearnex"), ladder(-1, -6)),
            _sk_logistic("saga", ladder(-3, -6)),
        ),
        (("best", 2.0),),
    ),
)
