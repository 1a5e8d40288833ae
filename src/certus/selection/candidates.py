"""Which models are compared, and how each chooses its parameters.

One row for each candidate, at the end of this file. A choice of parameters sees
training rows only: it is made again inside every fold, on inner folds, by the paths of
the ``*CV`` estimators or by a grid whose fits start from one another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier

from certus.registry import ESTIMATORS, load_class
from certus.selection.halving import halve
from certus.selection.metrics import METRICS, Metric, Predicted, predict_rows

__all__ = ["CANDIDATES", "Candidate", "Choice", "Tuning", "list_candidates"]

#: Kernel machines beyond this many rows, and neighbours beyond this many cells, are
#: left out: their cost grows with the square of the rows.
KERNEL_ROWS = 10_000
NEIGHBOUR_CELLS = 10**7
#: Trees take rows with all their zeros, and are left out beyond this many cells.
DENSE_CELLS = 10**8
#: Models that fit one score or tree for each label are left out beyond this many
#: labels, and slower ones, such as those that fit every pair of labels, beyond fewer.
MOST_LABELS = 50
FEWER_LABELS = 20
#: Additive models are left out beyond this many columns and labels: the matrix of a
#: step has a row for each cell, and there is one for each label.
SHAPE_COLUMNS, SHAPE_LABELS = 60, 6
#: Most rows that a network sees during its training, repeated visits included; and the
#: number of rows from which on it is trained on larger batches.
NETWORK_VISITS = 200_000
NETWORK_ROWS = 5_000
#: Target of the fits among which parameters are chosen.
ROUGH = 1e-3
#: Rows on which the costly machines choose their parameters.
FEW_ROWS = 2_000
#: Boosting and additive models have one setting below the first number of rows, several
#: from it on, and choose among them on at most the second number.
SETTING_ROWS, SETTING_ROWS_MOST = 800, 6_000
#: Settings of boosting: default, smaller trees, slow ones, slow and small ones.
SMALL_TREES = {"max_leaf_nodes": 8, "min_samples_leaf": 10}
BOOSTING: tuple[dict[str, Any], ...] = (
    {},
    SMALL_TREES,
    {"learning_rate": 0.04, "max_iter": 250, "l2_regularization": 1.0},
    {**SMALL_TREES, "learning_rate": 0.05, "max_iter": 300},
)


class Tuning(NamedTuple):
    """The data for choosing parameters: training rows, in inner folds.

    ``plain`` says that rows are independent, so that leave-one-out is fair; ``late()``
    that no further fit should start. ``metric`` judges grids, for labels about the
    label ``positive``.
    """

    Z: Any
    y: np.ndarray
    inner: Sequence[tuple[np.ndarray, np.ndarray]]
    plain: bool
    late: Callable[[], bool]
    metric: Metric
    positive: Any = None


class Choice(NamedTuple):
    """An unfitted model with its parameters chosen, and what was tried."""

    model: Any
    grid: tuple[tuple[Mapping[str, Any], float], ...] = ()


class Candidate(NamedTuple):
    """A name, an unfitted model, how it chooses parameters, and what it may cost.

    ``choose(model, tuning)`` returns a :class:`Choice`; ``rows`` caps the rows it is
    given. ``weight`` is a guess of its share of the time, for the progress bar. With a
    time limit, those that are ``late`` come last: cheap, and seldom the best; those
    that are ``strong`` come after the first two. Those ``given`` by the user are never
    dropped for others. Those that ``overstate`` have probabilities too near 0 and 1 on
    small tables, and are calibrated there.
    """

    name: str
    kind: str
    model: Any
    choose: Callable[[Any, Tuning], Choice] | None = None
    rows: int | None = None
    weight: float = 1.0
    reason: str = ""
    late: bool = False
    strong: bool = False
    overstates: bool = False
    given: bool = False


class Size(NamedTuple):
    """Of a table: rows, columns, labels (0 for amounts); the seed; and the metric."""

    n: int
    d: int
    labels: int
    seed: int
    metric: Metric


def list_candidates(
    task: str,
    n: int,
    d: int,
    seed: int,
    labels: int = 2,
    metric: Metric | None = None,
) -> list[Candidate]:
    """The candidates for a task; those too costly for its size have a reason.

    The task has n rows, d columns and, if it predicts labels, this many of them.
    """
    amounts = task == "regression"
    metric = metric or METRICS["rmse" if amounts else "log_loss"]
    size = Size(n, d, 0 if amounts else labels, seed, metric)
    found = [row.made_for(size) for row in CANDIDATES]
    return [candidate for candidate in found if candidate is not None]


class CandidateRow(NamedTuple):
    """All that is known about a candidate before the table is read.

    ``amounts`` and ``labels`` are its classes for these, each in the registry or with
    its module in scikit-learn; "" where it is not a candidate. For the size of a table,
    ``params`` are its arguments and ``too_costly`` is the reason to leave it out, if
    there is one; ``metrics`` are those that it is a candidate for, all of them if
    empty. ``needs`` is a package without which it is no candidate. The rest is as in
    :class:`Candidate`.
    """

    name: str
    amounts: str = ""
    labels: str = ""
    choose: Callable[[Any, Tuning], Choice] | None = None
    rows: int | None = None
    weight: float = 1.0
    params: Callable[[Size], dict[str, Any]] = lambda size: {}
    too_costly: Callable[[Size], str] = lambda size: ""
    kind: str = "certus"
    metrics: tuple[str, ...] = ()
    late: bool = False
    strong: bool = False
    overstates: bool = False
    needs: str = ""

    def made_for(self, size: Size) -> Candidate | None:
        """The candidate for a table of this size, if it is one there."""
        module, _, name = (self.labels if size.labels else self.amounts).rpartition(":")
        if not name or (self.metrics and size.metric.name not in self.metrics):
            return None
        if self.needs and find_spec(self.needs) is None:
            return None
        foreign = getattr(import_module(module), name) if module else None
        cls = foreign or load_class(ESTIMATORS[name])
        rest = (self.choose, self.rows, self.weight, self.too_costly(size))
        named = _CONSTANTS[size.metric.constant] if self.kind == "baseline" else ""
        made = cls(**self.params(size))
        turn = (self.late, self.strong, self.overstates)
        return Candidate(named or self.name, self.kind, made, *rest, *turn)


def given_candidate(name: str, model: Any, taken: Iterable[str]) -> Candidate:
    """A user's estimator as a candidate, under a name that is still free."""
    from certus.persist.encoding import is_registered

    names = set(taken)
    free = (name if at == 1 else f"{name} {at}" for at in itertools.count(1))
    kind = "certus" if is_registered(type(model)) else "foreign"
    name = next(n for n in free if n not in names)
    return Candidate(name, kind, model, weight=3.0, given=True)


# ---- paths -------------------------------------------------------------------------


def _choose_ridge(model: Any, on: Tuning) -> Choice:
    """Leave-one-out in closed form; inner folds where rows belong together."""
    from certus.linear_model import RidgeCV

    alphas = len(on.y) * np.logspace(-6, 1, 15)
    search = RidgeCV(
        alphas,
        cv=None if on.plain else on.inner,
        scoring=None if on.metric.name in _BY_SQUARES else _amount_score(on.metric),
    ).fit(on.Z, on.y)
    return Choice(clone(model).set_params(alpha=search.alpha_))


def _choose_lasso(model: Any, on: Tuning) -> Choice:
    """Along one path for each inner fold."""
    from certus.linear_model import LassoCV
    from certus.linear_model.lasso_cv import lasso_losses

    if on.metric.name in _BY_SQUARES:
        search = LassoCV(alphas=30, cv=on.inner).fit(on.Z, on.y)
        alphas, best = search.alphas_, float(search.alpha_)
        errors = np.sqrt(search.mse_path_.mean(axis=-1))
        if on.metric.name != "rmse":  # these errors are not its values
            return Choice(clone(model).set_params(alpha=best))
    else:
        alphas, errors = lasso_losses(
            *(on.Z, on.y, on.inner, 30),
            lambda y, z: on.metric.loss(on.metric(y, Predicted(z))),
        )
        best = float(alphas[int(np.argmin(errors))])
        errors = np.array([on.metric.loss(error) for error in errors])
    grid = tuple(({"alpha": float(a)}, float(e)) for a, e in zip(alphas, errors))
    return Choice(clone(model).set_params(alpha=best), grid)


#: RMSE is least where squared errors are. A plane may be below 0, where the deviances
#: are infinite; the models for them choose their penalties by deviance.
_BY_SQUARES = ("rmse", "poisson", "gamma")


def _amount_score(metric: Metric) -> Callable[[Any, Any, np.ndarray], float]:
    """A metric of amounts as a score: more is better."""
    return lambda model, Z, y: -metric.loss(metric(y, Predicted(model.predict(Z))))


def _choose_logistic(model: Any, on: Tuning) -> Choice:
    """By the metric of the inner rows; ties by their likelihood, which always moves."""
    from certus.linear_model import LogisticRegressionCV

    ratio = model.l1_ratio
    # On five tables the best L1 penalty had a C between 0.2 and 5. With five labels a
    # fit at C = 100 took 13.8 s, at C = 10 only 0.2 s.
    Cs = np.logspace(-3, 3, 7) if ratio == 0 else np.logspace(-2, 1, 7)
    search = LogisticRegressionCV(
        Cs=Cs,
        l1_ratios=(ratio,),
        cv=on.inner,
        scoring=_likelihood if on.metric.name == "log_loss" else _label_score(on),
        tol=ROUGH,
        use_legacy_attributes=False,
    ).fit(on.Z, on.y)
    errors = -search.scores_.mean(axis=0)[0]
    grid = tuple(
        ({"C": float(C)}, on.metric.loss(float(e))) for C, e in zip(search.Cs_, errors)
    )
    return Choice(clone(model).set_params(C=search.C_), grid)


def _label_score(on: Tuning) -> Callable[[Any, Any, np.ndarray], float]:
    """A metric of labels as a score: more is better.

    The likelihood decides where the metric is the same for several penalties, or
    undefined on these rows; its share is far below the smallest step of a metric.
    """
    classes = np.unique(on.y)

    def score(model: Any, Z: Any, y: np.ndarray) -> float:
        loss = _inner_loss(model, Z, y, classes, on)
        tie = 1e-9 * _likelihood(model, Z, y)
        return tie - (loss if np.isfinite(loss) else 0.0)

    return score


def _likelihood(model: Any, Z: Any, y: np.ndarray) -> float:
    """Minus the log loss; checks of scikit-learn's scorer take longer than a fit."""
    found = model.predict_proba(Z)
    own = found[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return float(np.mean(np.log(np.clip(own, np.finfo(own.dtype).eps, 1.0))))


# ---- grids -------------------------------------------------------------------------


def _choose_huber(model: Any, on: Tuning) -> Choice:
    alphas = len(on.y) * np.logspace(0, -6, 4)
    return _search(model, [{"alpha": float(a)} for a in alphas], on)


def _choose_deviance(model: Any, on: Tuning) -> Choice:
    return _search(model, [{"alpha": a} for a in (1.0, 0.1, 0.01, 1e-3)], on)


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


def _choose_shapes(model: Any, on: Tuning) -> Choice:
    """With pairs of columns, or without them."""
    if len(on.y) < SETTING_ROWS:
        return Choice(model)
    return _search(model, [{"interactions": 0}, {"interactions": "auto"}], on)


def _choose_boosting(model: Any, on: Tuning) -> Choice:
    """Large trees or small ones, and more of them at a slower pace."""
    if len(on.y) < SETTING_ROWS:
        return Choice(model)
    return _search(model, [dict(settings) for settings in BOOSTING], on, warm=False)


def _choose_network(model: Any, on: Tuning) -> Choice:
    """Each network starts fresh; continuing would favour the later ones."""
    return _search(model, [{"alpha": 3.0}, {"alpha": 0.1}], on, warm=False)


def _gamma(Z: Any) -> float:
    """1/(columns × variance): squared distances of order one."""
    squares = Z.multiply(Z).mean() if sparse.issparse(Z) else np.square(Z).mean()
    variance = float(squares - Z.mean() ** 2)
    return 1.0 / (Z.shape[1] * variance) if variance > 0 else 1.0


def _search(
    model: Any, grid: list[dict[str, Any]], on: Tuning, warm: bool = True
) -> Choice:
    """Best by the metric over the inner folds; ties go to the earlier, the smoother."""
    classes = np.unique(on.y) if is_classifier(model) else None

    def trial(some: Sequence[int], train: np.ndarray, test: np.ndarray) -> list[float]:
        made = clone(model)
        known = made.get_params(deep=False)
        rough = {"warm_start": warm, "tol": ROUGH}
        made.set_params(**{k: v for k, v in rough.items() if k in known})
        Z, y = on.Z[train], on.y[train]
        losses = []
        for at in some:
            if on.late():
                raise TimeoutError
            made.set_params(**{**{k: known[k] for k in names}, **grid[at]}).fit(Z, y)
            losses.append(_inner_loss(made, on.Z[test], on.y[test], classes, on))
        return losses

    names = {name for params in grid for name in params}
    losses = halve(len(grid), on.inner, trial)
    best = grid[int(np.argmin(losses))]
    tried = [(grid[at], loss) for at, loss in enumerate(losses) if np.isfinite(loss)]
    signs = tuple((params, on.metric.loss(loss)) for params, loss in tried)
    return Choice(clone(model).set_params(**best), signs)


def _inner_loss(model: Any, Z: Any, y: Any, classes: Any, on: Tuning) -> float:
    """The metric, turned so that less is better.

    Probabilities that a model lacks are made from its scores afterwards: until then,
    two labels are judged by the order of the scores, more of them by the labels.
    """
    metric = on.metric
    said = predict_rows(model, Z, classes, on.positive)
    if metric.needs == "probabilities" and said.shares is None:
        metric = METRICS["error"]
        if classes is not None and len(classes) == 2:
            score = np.asarray(model.decision_function(Z), dtype=float)
            said = said._replace(shares=np.column_stack([-score, score]))
            metric = METRICS["auc"]
    return metric.loss(metric(y, said))


#: Names of the constant answers, by the strategy that finds them.
_CONSTANTS = {
    "mean": "always the mean",
    "median": "always the median",
    "quantile": "always one quantile",
    "most_frequent": "most frequent label",
    "prior": "shares of the labels",
}


def _constant(size: Size) -> dict[str, Any]:
    """The best answer that is the same for all rows."""
    level = {"quantile": size.metric.at} if size.metric.constant == "quantile" else {}
    return {"strategy": size.metric.constant, **level}


# ---- sizes -------------------------------------------------------------------------


def _seeded(size: Size) -> dict[str, Any]:
    return {"random_state": size.seed}


def _training(size: Size) -> dict[str, Any]:
    """How long a network is trained: seconds at most, and steps enough."""
    return {
        "hidden_layer_sizes": (64,),
        "batch_size": 32 if size.n < NETWORK_ROWS else 200,
        "learning_rate_init": 0.003,
        "max_iter": max(20, min(200, NETWORK_VISITS // size.n)),
        "random_state": size.seed,
        **({} if size.labels else {"normalize_y": True}),
    }


def _boosting(size: Size) -> dict[str, Any]:
    """Trees for the metric: of deviances and quantiles by their own loss."""
    losses = {"poisson": "poisson", "gamma": "gamma", "mae": "absolute_error"}
    chosen: dict[str, Any] = {"random_state": size.seed}
    if size.n < SETTING_ROWS:
        chosen |= SMALL_TREES
    if size.labels:
        return chosen
    if size.metric.name == "pinball":
        return {**chosen, "loss": "quantile", "quantile": size.metric.at or 0.5}
    loss = losses.get(size.metric.name)
    return {**chosen, "loss": loss} if loss else chosen


#: What each library calls the loss of a metric.
_OBJECTIVES = {
    "lightgbm": {
        **{"poisson": "poisson", "gamma": "gamma"},
        **{"mae": "regression_l1", "pinball": "quantile"},
    },
    "xgboost": {
        **{"poisson": "count:poisson", "gamma": "reg:gamma"},
        **{"mae": "reg:absoluteerror", "pinball": "reg:quantileerror"},
    },
}


def _library(library: str) -> Callable[[Size], dict[str, Any]]:
    """The arguments of boosting by another library, with the metric's own loss."""

    def params(size: Size) -> dict[str, Any]:
        options: dict[str, Any] = {}
        loss = _OBJECTIVES[library].get(size.metric.name)
        if loss and not size.labels:
            options["objective"] = loss
        if loss and size.metric.name == "pinball":
            level = "alpha" if library == "lightgbm" else "quantile_alpha"
            options[level] = size.metric.at or 0.5
        return {"library": library, "options": options, "random_state": size.seed}

    return params


def _many_rows(size: Size) -> str:
    return f"only up to {KERNEL_ROWS:,} rows" if size.n > KERNEL_ROWS else ""


def _many_cells(size: Size) -> str:
    many = size.n * size.d > NEIGHBOUR_CELLS
    return f"only up to {NEIGHBOUR_CELLS:,} cells" if many else ""


def _many_dense(size: Size) -> str:
    many = size.n * size.d > DENSE_CELLS
    return f"only up to {DENSE_CELLS:,} cells" if many else ""


def _many_labels(size: Size, most: int = MOST_LABELS) -> str:
    return f"only up to {most} labels" if size.labels > most else ""


def _many_columns(size: Size) -> str:
    many = size.d > SHAPE_COLUMNS
    return f"only up to {SHAPE_COLUMNS} columns" if many else _shape_labels(size)


def _shape_labels(size: Size) -> str:
    return _many_labels(size, SHAPE_LABELS)


def _some_labels(size: Size) -> str:
    return _many_labels(size, FEWER_LABELS)


#: The candidates, from the simplest to the most flexible.
CANDIDATES: tuple[CandidateRow, ...] = (
    CandidateRow(
        "always the mean",
        amounts="sklearn.dummy:DummyRegressor",
        params=_constant,
        weight=0.1,
        kind="baseline",
    ),
    CandidateRow(
        "most frequent label",
        labels="sklearn.dummy:DummyClassifier",
        params=_constant,
        weight=0.1,
        kind="baseline",
    ),
    CandidateRow("ridge", "Ridge", choose=_choose_ridge, weight=0.5),
    CandidateRow("lasso", "Lasso", choose=_choose_lasso),
    CandidateRow("robust (Huber)", "HuberRegressor", choose=_choose_huber),
    CandidateRow(
        "linear quantile",
        "QuantileRegressor",
        params=lambda size: {"quantile": size.metric.at or 0.5, "alpha": 1e-3},
        metrics=("pinball", "mae"),
        too_costly=_many_rows,
    ),
    CandidateRow(
        "Poisson",
        "PoissonRegressor",
        choose=_choose_deviance,
        metrics=("poisson",),
    ),
    CandidateRow(
        "gamma", "GammaRegressor", choose=_choose_deviance, metrics=("gamma",)
    ),
    CandidateRow(
        "logistic",
        labels="LogisticRegression",
        choose=_choose_logistic,
        too_costly=_many_labels,
    ),
    CandidateRow(
        "logistic, few columns",
        labels="LogisticRegression",
        params=lambda size: {"l1_ratio": 1.0},
        choose=_choose_logistic,
        too_costly=_some_labels,
    ),
    CandidateRow(
        "kernel ridge (Gaussian)",
        amounts="KernelRidge",
        choose=_choose_kernel_ridge,
        rows=FEW_ROWS,
        weight=4.0,
        too_costly=_many_rows,
    ),
    CandidateRow(
        "support vectors (Gaussian)",
        labels="SVC",
        choose=_choose_svc,
        rows=FEW_ROWS,
        weight=2.0,
        too_costly=lambda size: _many_rows(size) or _some_labels(size),
    ),
    CandidateRow(
        "additive shapes",
        amounts="AdditiveRegressor",
        labels="AdditiveClassifier",
        choose=_choose_shapes,
        rows=SETTING_ROWS_MOST,
        weight=2.0,
        too_costly=_many_columns,
    ),
    CandidateRow(
        "k nearest neighbours",
        amounts="KNeighborsRegressor",
        labels="KNeighborsClassifier",
        choose=_choose_neighbours,
        rows=FEW_ROWS,
        weight=0.5,
        too_costly=_many_cells,
        late=True,
    ),
    CandidateRow(
        "perceptron", labels="Perceptron", params=_seeded, weight=0.3, late=True
    ),
    CandidateRow(
        "neural network",
        amounts="MLPRegressor",
        labels="MLPClassifier",
        params=_training,
        choose=_choose_network,
        rows=FEW_ROWS,
        weight=2.0,
    ),
    CandidateRow(
        "gradient boosting",
        amounts="HistGradientBoostingRegressor",
        labels="HistGradientBoostingClassifier",
        params=_boosting,
        choose=_choose_boosting,
        rows=SETTING_ROWS_MOST,
        weight=4.0,
        too_costly=lambda size: _many_labels(size) or _many_dense(size),
        strong=True,
        overstates=True,
    ),
    *(
        CandidateRow(
            name,
            amounts="BoostedTreesRegressor",
            labels="BoostedTreesClassifier",
            params=_library(library),
            weight=4.0,
            too_costly=lambda size: _many_labels(size) or _many_dense(size),
            strong=True,
            overstates=True,
            needs=library,
        )
        for name, library in (("LightGBM", "lightgbm"), ("XGBoost", "xgboost"))
    ),
)
