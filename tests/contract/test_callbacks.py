"""Progress, scores, stopping, time limits and Ctrl-C, on every iterative estimator.

scikit-learn's ``ProgressBar`` and ``ScoringMonitor`` are used as they are; stopping,
limits and interrupts must leave a usable model with an honest certificate.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.callback import FitCallback, ProgressBar, ScoringMonitor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.linear_model import ElasticNet, Lasso, LogisticRegression
from certus.testing.checks import example
from certus.testing.instances import instances, supervised

Array = np.ndarray
ITERATIVE = (
    "Lasso",
    "ElasticNet",
    "LogisticRegression",
    "RobustRegressor",
    "HuberRegressor",
    "QuantileRegressor",
    "PoissonRegressor",
)


def name(estimator: Any) -> str:
    return type(estimator).__name__


def hard(estimator: Any) -> tuple[Array, Array]:
    """Data on which the iterative estimators need several steps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 400))
    z = X[:, :60] @ rng.normal(size=60)
    if get_tags(estimator).target_tags.positive_only:
        return X, np.round(np.exp(z / 8))
    return (X, (z > 0).astype(int)) if is_classifier(estimator) else (X, z)


def slow(estimator: Any) -> Any:
    """A setting that does not finish in its first step."""
    if "alpha" in estimator.get_params():
        return clone(estimator).set_params(alpha=0.02)
    return clone(estimator).set_params(C=100.0)


iterative = pytest.mark.parametrize(
    "estimator", [e for e in instances() if name(e) in ITERATIVE], ids=name
)
# RidgeClassifier is left out: it shows callbacks its ±1 targets, not the labels.
every = pytest.mark.parametrize(
    "estimator", [e for e in supervised() if name(e) != "RidgeClassifier"], ids=name
)


# -- scikit-learn's callbacks -------------------------------------------------------


@every
def test_a_scoring_monitor_records_scores(estimator: Any) -> None:
    X, y = example(estimator)
    scoring = "accuracy" if is_classifier(estimator) else "r2"
    monitor = ScoringMonitor(scoring=scoring)
    model = clone(estimator).set_callbacks(monitor).fit(X, y)
    plain = clone(estimator).fit(X, y)
    if hasattr(plain, "coef_"):
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-10)
    assert np.array_equal(model.predict(X), plain.predict(X))
    rows = monitor.get_logs().data
    assert rows, "nothing was recorded"
    score = r2_score(y, model.predict(X)) if scoring == "r2" else model.score(X, y)
    assert rows[-1][scoring] == pytest.approx(score)
    steps = [row for row in rows if row["task_name"] == "step"]
    if name(estimator) in ITERATIVE:
        assert len(steps) == len(model.history_["objective"])
        assert steps[-1][scoring] == pytest.approx(score, abs=1e-6)


@every
def test_a_progress_bar_runs(estimator: Any, capsys: pytest.CaptureFixture) -> None:
    X, y = example(estimator)
    model = clone(estimator).set_callbacks(ProgressBar()).fit(X, y)
    assert name(estimator) in capsys.readouterr().out
    assert model.certificate_.met is not False


@every
def test_callbacks_inside_a_search_and_a_pipeline(
    estimator: Any, capsys: pytest.CaptureFixture
) -> None:
    X, y = example(estimator)
    monitor = ScoringMonitor(scoring="accuracy" if is_classifier(estimator) else "r2")
    inner = make_pipeline(StandardScaler(), clone(estimator).set_callbacks(monitor))
    choices = {"fit_intercept": [True, False], "n_neighbors": [3, 5], "alpha": [1, 2]}
    choices |= {"C": [1, 2], "start": [1e-3, 1e-2]}
    key = next(key for key in choices if key in estimator.get_params())
    grid = {f"{name(estimator).lower()}__{key}": choices[key]}
    search = GridSearchCV(inner, grid, cv=2)
    search.set_callbacks(ProgressBar(max_propagation_depth=3)).fit(X, y)
    assert capsys.readouterr().out
    assert monitor.get_logs(select="all")
    assert certus.certify(search, X, y).met is not False


# -- our own ------------------------------------------------------------------------


class Spy:
    """Counts tasks; stops, or raises, at a given step."""

    def __init__(self, stop_at: int | None = None, error: Any = None) -> None:
        self.stop_at, self.error = stop_at, error
        self.begun = self.ended = self.steps = 0
        self.models: list[Any] = []

    def setup(self, estimator: Any, context: Any) -> None: ...

    def teardown(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.begun += 1

    def on_fit_task_end(
        self,
        estimator: Any,
        context: Any,
        *,
        X: Any = None,
        y: Any = None,
        fitted_estimator: Any = None,
    ) -> bool:
        self.ended += 1
        if context.task_name != "step":
            return False
        self.steps += 1
        self.models.append(fitted_estimator)
        if self.steps == self.stop_at:
            if self.error is not None:
                raise self.error
            return True
        return False


def test_the_spy_is_a_callback() -> None:
    assert isinstance(Spy(), FitCallback)


@iterative
def test_tasks_begin_and_end_and_models_are_usable(estimator: Any) -> None:
    X, y = hard(estimator)
    spy = Spy()
    model = slow(estimator).set_params(tol=1e-9).set_callbacks(spy).fit(X, y)
    assert spy.begun == spy.ended == spy.steps + 1
    assert spy.steps == len(model.history_["gap"]) >= 2
    assert all(m.predict(X).shape == y.shape for m in spy.models)
    values = [m.score(X, y) for m in spy.models]
    assert values[-1] == pytest.approx(model.score(X, y), abs=1e-4)
    assert not hasattr(spy.models[0], "certificate_")


@iterative
def test_the_history_is_recorded(estimator: Any) -> None:
    X, y = hard(estimator)
    model = slow(estimator).set_params(tol=1e-9).fit(X, y)
    history = model.history_
    assert set(history) == {"objective", "gap", "seconds"}
    assert len({len(values) for values in history.values()}) == 1
    assert np.all(np.diff(history["seconds"]) >= 0)
    objective = np.array(history["objective"])
    if name(estimator) != "HuberRegressor":  # tries one scale after the other here
        assert np.all(np.diff(objective) <= 1e-9 * np.abs(objective[:-1]))
    assert history["gap"][-1] <= 1e-9
    assert model.certificate_.value == pytest.approx(history["gap"][-1], abs=1e-9)


@iterative
@pytest.mark.parametrize("at", [1, 2])
def test_a_callback_stops_the_fit(estimator: Any, at: int) -> None:
    X, y = hard(estimator)
    spy = Spy(stop_at=at)
    model = slow(estimator).set_callbacks(spy)
    with pytest.warns(UncertifiedWarning, match="stopped by a callback"):
        model.fit(X, y)
    assert spy.steps == at
    found = model.certificate_
    assert found.status is Status.STOPPED
    assert found.met is False and found.value > 1e-12
    assert "stopped by a callback" in str(found)
    assert model.predict(X).shape == y.shape
    again = certus.certify(model, X, y)
    assert again.value == found.value and again.met is False


@iterative
def test_a_time_limit(estimator: Any) -> None:
    X, y = hard(estimator)
    model = slow(estimator).set_params(max_time=0.0)
    with pytest.warns(UncertifiedWarning, match=r"stopped at max_time.*raise max_time"):
        model.fit(X, y)
    found = model.certificate_
    assert found.status is Status.TIME_LIMIT and found.met is False
    assert found["duality_gap"].fix == "raise max_time"
    assert model.predict(X).shape == y.shape
    solved = slow(estimator).set_params(max_time=60.0, tol=1e-6).fit(X, y)
    assert solved.certificate_.status is Status.SOLVED


@iterative
def test_ctrl_c_keeps_the_state_and_raises(estimator: Any) -> None:
    X, y = hard(estimator)
    model = slow(estimator).set_callbacks(Spy(stop_at=2, error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    found = model.certificate_
    assert found.status is Status.INTERRUPTED and found.met is False
    assert "interrupted" in str(found)
    assert np.isfinite(model.coef_).all()
    assert model.predict(X).shape == y.shape
    assert certus.certify(model, X, y).value == found.value


@iterative
def test_ctrl_c_returns_when_asked(estimator: Any) -> None:
    X, y = hard(estimator)
    model = slow(estimator).set_callbacks(Spy(stop_at=2, error=KeyboardInterrupt()))
    with certus.config_context(on_interrupt="return"):
        assert model.fit(X, y) is model
    assert model.certificate_.status is Status.INTERRUPTED
    assert certus.get_config()["on_interrupt"] == "raise"


@pytest.mark.parametrize("name", ["ContrastiveEncoder", "MaskedAutoencoder"])
@pytest.mark.parametrize("shape", [(5,), (6, 6)], ids=["rows", "images"])
def test_a_callback_stops_a_representation(name: str, shape: tuple[int, ...]) -> None:
    pytest.importorskip("torch")
    from certus import representation

    X = np.random.default_rng(0).normal(size=(48, *shape))
    spy = Spy(stop_at=2)
    model = getattr(representation, name)(
        n_components=4,
        hidden_layer_sizes=(8,),
        batch_size=16,
        max_iter=1000,
        random_state=0,
    )
    model.set_callbacks(spy).fit(X)
    assert "stopped by a callback" in str(model.certificate_)
    assert spy.steps == 2 and spy.begun == spy.ended == 3
    assert model.n_iter_ < 1000 and model.certificate_.status is Status.STOPPED
    vectors = [m.transform(X) for m in spy.models]
    assert all(v.shape == (48, 4) and np.isfinite(v).all() for v in vectors)
    assert np.abs(vectors[1] - vectors[0]).max() > 0  # the second saw more steps
    np.testing.assert_array_equal(model.transform(X), vectors[1])


def test_an_error_in_a_callback_is_not_swallowed() -> None:
    X, y = hard(Lasso())
    model = Lasso(0.02).set_callbacks(Spy(stop_at=1, error=RuntimeError("mine")))
    with pytest.raises(RuntimeError, match="mine"):
        model.fit(X, y)


def test_a_warm_start_continues_where_a_stop_left_off() -> None:
    for estimator in (Lasso(0.02), ElasticNet(0.02), LogisticRegression(C=100.0)):
        X, y = hard(estimator)
        model = clone(estimator).set_params(warm_start=True)
        model.set_callbacks(Spy(stop_at=2))
        with pytest.warns(UncertifiedWarning, match="stopped by a callback"):
            model.fit(X, y)
        reached = model.history_["objective"][-1]
        model.set_callbacks().fit(X, y)
        assert model.history_["objective"][0] == pytest.approx(reached, rel=1e-9)
        assert model.certificate_.met


# -- a real Ctrl-C ------------------------------------------------------------------

SCRIPT = """
    import signal, sys
    import numpy as np, certus
    from certus.linear_model import {name}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, {d}))
    z = X @ rng.normal(size={d}) + rng.normal(size=400)
    y = (z > 0).astype(int) if {classes} else z
    model = {name}({options})
    # Python exits as if killed once an interrupt has left an exec(), even a caught one,
    # and imports and compiles run some: they are over after a first fit.
    model.set_params(tol=1e-3).fit(X, y)
    model = {name}({options})
    certus.set_config(on_interrupt={policy!r})

    class Ready:  # says when the solver has begun, and goes on
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context):
            print("step", flush=True)

    model.set_callbacks(Ready())
    raised = False
    try:
        while True:  # until the signal arrives within a fit
            model.fit(X, y)
            if model.certificate_.status is certus.Status.INTERRUPTED:
                break
    except KeyboardInterrupt:
        raised = True
    print("end", raised, model.certificate_.status, np.isfinite(model.coef_).all())
    assert model.predict(X).shape == (400,)
"""


@pytest.mark.parametrize("policy", ["raise", "return"])
@pytest.mark.parametrize(
    ("which", "options"),
    [("Lasso", "1e-4, tol=1e-13"), ("LogisticRegression", "C=1e3, l1_ratio=0.5")],
)
def test_a_signal_during_a_long_fit(which: str, options: str, policy: str) -> None:
    script = textwrap.dedent(SCRIPT).format(
        name=which, d=1500, classes=which != "Lasso", options=options, policy=policy
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "step\n", process.communicate()[1]
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        sent = time.perf_counter()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert time.perf_counter() - sent < 10
    last = out.strip().splitlines()[-1]
    assert last == f"end {policy == 'raise'} interrupted True", (last, err)


def test_the_report_refits_a_model_that_nobody_watches(capsys) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60)
    model = make_pipeline(StandardScaler(), Lasso(alpha=0.01))
    model.set_callbacks(ProgressBar()).fit(X, y)
    assert "Pipeline" in capsys.readouterr().out
    certus.audit(model, X, y, random_state=0)
    assert "fit" not in capsys.readouterr().out
    assert model.__dict__["_skl_callbacks"]
