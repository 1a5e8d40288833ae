"""Which models are compared, and how each chooses its parameters.

One short list for amounts and one for labels, from the simplest to the most flexible.
A choice of parameters sees training rows only: it is made anew inside every fold, on
inner folds, by the paths of the ``*CV`` estimators or by a grid whose fits start from
one another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier

__all__ = ["Candidate", "Choice", "Tuning", "given_candidate", "list_candidates"]

#: Kernel machines beyond this many rows, and neighbours beyond this many cells, are
#: left out: their cost grows with the square of the rows.
KERNEL_ROWS = 10_000
NEIGHBOUR_CELLS = 10**7
#: Models that fit one score or tree for each label are left out beyond so many labels,
#: and the slower ones, such as those that fit every pair of labels, beyond fewer.
MOST_LABELS = 50
FEWER_LABELS = 20
#: Networks see each row at most so often that these are all visits of rows, and are
#: trained on larger batches from so many rows on.
NETWORK_VISITS = 200_000
NETWORK_ROWS = 5_000
#: Target of the fits among which parameters are chosen.
ROUGH = 1e-3
#: Rows on which the costly machines choose their parameters.
FEW_ROWS = 2_000


class Tuning(NamedTuple):
    """What a choice of parameters may look at: training rows, in inner folds.

    ``plain`` says that rows are independent, so that leave-one-out is fair; ``late()``
    that no further fit should be begun.
    """

    Z: Any
    y: np.ndarray
    inner: Sequence[tuple[np.ndarray, np.ndarray]]
    plain: bool
    late: Callable[[], bool]


class Choice(NamedTuple):
    """An unfitted model with its parameters chosen, and what was tried."""

    model: Any
    grid: tuple[tuple[Mapping[str, Any], float], ...] = ()


class Candidate(NamedTuple):
    """A name, an unfitted model, how it chooses parameters, and what it may cost.

    ``choose(model, tuning)`` returns a :class:`Choice`; ``rows`` caps the rows it is
    given. ``weight`` is a guess of its share of the time, for the progress bar.
    """

    name: str
    kind: str
    model: Any
    choose: Callable[[Any, Tuning], Choice] | None = None
    rows: int | None = None
    weight: float = 1.0
    reason: str = ""


def list_candidates(
    task: str, n: int, d: int, seed: int, labels: int = 2
) -> list[Candidate]:
    """The candidates for a task; those too costly for its size have a reason.

    Of n rows, d columns and, if it is one of labels, so many of them. The reference,
    which is not ours, comes last.
    """
    few = f"only up to {KERNEL_ROWS:,} rows" if n > KERNEL_ROWS else ""
    near = f"only up to {NEIGHBOUR_CELLS:,} cells" if n * d > NEIGHBOUR_CELLS else ""
    if task == "regression":
        return _for_amounts(seed, few, near, _training(n, seed))
    many, some = (
        f"only up to {most} labels" if labels > most else ""
        for most in (MOST_LABELS, FEWER_LABELS)
    )
    return _for_labels(seed, few or some, near, many, some, _training(n, seed))


def _training(n: int, seed: int) -> dict[str, Any]:
    """How long a network is trained on n rows: seconds at most, and steps enough."""
    return {
        "hidden_layer_sizes": (64,),
        "batch_size": 32 if n < NETWORK_ROWS else 200,
        "learning_rate_init": 0.003,
        "max_iter": max(20, min(200, NETWORK_VISITS // n)),
        "random_state": seed,
    }


def _for_amounts(
    seed: int, few: str, near: str, training: dict[str, Any]
) -> list[Candidate]:
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor

    from certus.kernel_ridge import KernelRidge
    from certus.linear_model import HuberRegressor, Lasso, Ridge
    from certus.neighbors import KNeighborsRegressor
    from certus.neural_network import MLPRegressor

    reference = HistGradientBoostingRegressor(random_state=seed)
    return [
        Candidate("always the mean", "baseline", DummyRegressor(), weight=0.1),
        Candidate("ridge", "certus", Ridge(), _choose_ridge, weight=0.5),
        Candidate("lasso", "certus", Lasso(), _choose_lasso),
        Candidate("robust (Huber)", "certus", HuberRegressor(), _choose_huber),
        Candidate(
            "kernel ridge (Gaussian)",
            "certus",
            KernelRidge(),
            _choose_kernel_ridge,
            FEW_ROWS,
            4.0,
            few,
        ),
        Candidate(
            "k nearest neighbours",
            "certus",
            KNeighborsRegressor(),
            _choose_neighbours,
            FEW_ROWS,
            0.5,
            near,
        ),
        Candidate(
            "neural network",
            "certus",
            MLPRegressor(normalize_y=True, **training),
            _choose_network,
            FEW_ROWS,
            2.0,
        ),
        Candidate("gradient boosting (ref)", "foreign", reference, weight=4.0),
    ]


def _for_labels(
    seed: int, few: str, near: str, many: str, some: str, training: dict[str, Any]
) -> list[Candidate]:
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier

    from certus.linear_model import LogisticRegression, Perceptron
    from certus.neighbors import KNeighborsClassifier
    from certus.neural_network import MLPClassifier
    from certus.svm import SVC

    constant = DummyClassifier(strategy="most_frequent")
    sparse_model = LogisticRegression(l1_ratio=1.0)
    online = Perceptron(random_state=seed)
    reference = HistGradientBoostingClassifier(random_state=seed)
    return [
        Candidate("always the commonest", "baseline", constant, weight=0.1),
        Candidate(
            "logistic", "certus", LogisticRegression(), _choose_logistic, reason=many
        ),
        Candidate(
            "logistic, few columns",
            "certus",
            sparse_model,
            _choose_logistic,
            reason=some,
        ),
        Candidate(
            "support vectors (Gaussian)", "certus", SVC(), _choose_svc, FEW_ROWS, 2, few
        ),
        Candidate(
            "k nearest neighbours",
            "certus",
            KNeighborsClassifier(),
            _choose_neighbours,
            FEW_ROWS,
            0.5,
            near,
        ),
        Candidate("perceptron", "certus", online, weight=0.3),
        Candidate(
            "neural network",
            "certus",
            MLPClassifier(**training),
            _choose_network,
            FEW_ROWS,
            2.0,
        ),
        Candidate(
            "gradient boosting (ref)", "foreign", reference, weight=4.0, reason=many
        ),
    ]


def given_candidate(name: str, model: Any, taken: Iterable[str]) -> Candidate:
    """An estimator as it was given, under a name that is still free."""
    from certus.persist.encoding import is_registered

    names = set(taken)
    free = (name if at == 1 else f"{name} {at}" for at in itertools.count(1))
    kind = "certus" if is_registered(type(model)) else "foreign"
    return Candidate(next(n for n in free if n not in names), kind, model, weight=3.0)


# ---- paths -------------------------------------------------------------------------


def _choose_ridge(model: Any, on: Tuning) -> Choice:
    """Leave-one-out in closed form; inner folds where rows belong together."""
    from certus.linear_model import RidgeCV

    alphas = len(on.y) * np.logspace(-6, 1, 15)
    search = RidgeCV(alphas, cv=None if on.plain else on.inner).fit(on.Z, on.y)
    return Choice(clone(model).set_params(alpha=search.alpha_))


def _choose_lasso(model: Any, on: Tuning) -> Choice:
    from certus.linear_model import LassoCV

    search = LassoCV(alphas=30, cv=on.inner).fit(on.Z, on.y)
    errors = np.sqrt(search.mse_path_.mean(axis=-1))
    grid = tuple(
        ({"alpha": float(a)}, float(e)) for a, e in zip(search.alphas_, errors)
    )
    return Choice(clone(model).set_params(alpha=float(search.alpha_)), grid)


def _choose_logistic(model: Any, on: Tuning) -> Choice:
    """By the likelihood of the inner rows, which moves where the labels do not."""
    from certus.linear_model import LogisticRegressionCV

    ratio = model.l1_ratio
    Cs = np.logspace(-3, 3, 7) if ratio == 0 else np.logspace(-2, 2, 7)
    search = LogisticRegressionCV(
        Cs=Cs,
        l1_ratios=(ratio,),
        cv=on.inner,
        scoring="neg_log_loss",
        tol=ROUGH,
        use_legacy_attributes=False,
    ).fit(on.Z, on.y)
    errors = -search.scores_.mean(axis=0)[0]
    grid = tuple(({"C": float(C)}, float(e)) for C, e in zip(search.Cs_, errors))
    return Choice(clone(model).set_params(C=search.C_), grid)


# ---- grids -------------------------------------------------------------------------


def _choose_huber(model: Any, on: Tuning) -> Choice:
    alphas = len(on.y) * np.logspace(0, -6, 4)
    return _search(model, [{"alpha": float(a)} for a in alphas], on)


def _choose_kernel_ridge(model: Any, on: Tuning) -> Choice:
    """A Gaussian beside a plane, whose offset is large enough to count as free."""
    from certus.objectives import Gaussian, Polynomial, Sum

    gamma = _gamma(on.Z)
    plane = Polynomial(1, 1000.0, gamma)
    grid = [
        {"kernel": Sum(Gaussian(float(gamma * factor)), plane), "alpha": alpha}
        for factor, alpha in itertools.product((0.3, 1.0, 3.0), (1.0, 0.1, 0.01))
    ]
    return _search(model, grid, on)


def _choose_svc(model: Any, on: Tuning) -> Choice:
    gamma = _gamma(on.Z)
    grid = [
        {"gamma": float(gamma * factor), "C": C}
        for factor, C in itertools.product((0.2, 1.0), (0.3, 3.0, 30.0))
    ]
    return _search(model, grid, on)


def _choose_neighbours(model: Any, on: Tuning) -> Choice:
    most = min(len(train) for train, _ in on.inner)
    numbers = [k for k in (50, 25, 12, 6, 3) if k <= most] or [1]
    return _search(model, [{"n_neighbors": k} for k in numbers], on)


def _choose_network(model: Any, on: Tuning) -> Choice:
    """Each from its own beginning: going on would favour the later."""
    return _search(model, [{"alpha": 3.0}, {"alpha": 0.1}], on, warm=False)


def _gamma(Z: Any) -> float:
    """1/(columns × variance): squared distances of order one."""
    squares = Z.multiply(Z).mean() if sparse.issparse(Z) else np.square(Z).mean()
    variance = float(squares - Z.mean() ** 2)
    return 1.0 / (Z.shape[1] * variance) if variance > 0 else 1.0


def _search(
    model: Any, grid: list[dict[str, Any]], on: Tuning, warm: bool = True
) -> Choice:
    """Least mean error over the inner folds; ties go to the earlier, the smoother."""
    errors = np.zeros(len(grid))
    labels = is_classifier(model)
    for train, test in on.inner:
        trial = clone(model)
        known = trial.get_params(deep=False)
        rough = {"warm_start": warm, "tol": ROUGH}
        trial.set_params(**{k: v for k, v in rough.items() if k in known})
        Z, y = on.Z[train], on.y[train]
        for at, params in enumerate(grid):
            if on.late():
                raise TimeoutError
            guess = trial.set_params(**params).fit(Z, y).predict(on.Z[test])
            errors[at] += error_of(guess, on.y[test], labels) / len(on.inner)
    best = grid[int(errors.argmin())]
    tried = tuple((params, float(error)) for params, error in zip(grid, errors))
    return Choice(clone(model).set_params(**best), tried)


def error_of(guess: Any, truth: Any, labels: bool) -> float:
    """Share of wrong labels, or root mean square error."""
    if labels:
        return float(np.mean(np.asarray(guess) != truth))
    residual = np.asarray(guess, dtype=float) - truth
    scale = float(np.abs(residual).max(initial=0.0))
    if not 0 < scale < np.inf:
        return scale
    return scale * float(np.sqrt(np.mean(np.square(residual / scale))))
