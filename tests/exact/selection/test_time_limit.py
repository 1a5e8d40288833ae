"""A time limit holds for fits that never ask how late it is."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

import certus
from certus._core.alarm import TimeIsUp, alarm
from certus.linear_model import Ridge
from certus.selection import heats
from certus.selection.candidates import Candidate, Choice
from certus.selection.preparation import prepare
from certus.selection.race import Race

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="the system has no such timer"
)


def _work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Endless(RegressorMixin, BaseEstimator):
    """A model of another library whose fit takes a minute."""

    def fit(self, X, y):
        _work(60)
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_a_fit_of_another_library_ends_at_the_limit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + rng.normal(size=200)
    certus.compare(X, y, models=[Ridge()])  # compiles
    start = time.perf_counter()
    found = certus.compare(X, y, models=[Ridge()], also=[Endless()], max_time=3.0)
    assert time.perf_counter() - start < 10.0  # not sixty
    assert found.chosen == "Ridge"
    assert found.not_run == ("Endless",)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.parametrize(("left", "choices"), [(15.0, 5), (18.0, 6)])
def test_the_final_fit_chooses_again_only_if_there_is_time(left, choices, monkeypatch):
    """Else the parameters of the last fold do; the fit itself is never left out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = X[:, 0] + rng.normal(size=100)
    seen, now = [], [time.perf_counter()]
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr("certus.selection.race.time", clock)

    def choose(model, on):  # ten seconds
        seen.append(len(on.y))
        now[0] += 10.0
        return Choice(model.set_params(alpha=float(len(seen))))

    whole = Ridge.fit

    def fit(self, *args, **options):  # one second
        now[0] += 1.0
        return whole(self, *args, **options)

    monkeypatch.setattr(Ridge, "fit", fit)
    ready = prepare(X, y, "regression", None, None, (), 0.2, 5, 0)
    race = Race(ready, now[0] + 1000, lambda text, share: None)
    candidate = Candidate("ridge", "certus", Ridge(), choose)
    rows, _ = race.run([candidate])
    assert len(rows[0].errors) == len(seen) == 5
    # Time is kept for one fit and half of one more, not for choosing again.
    assert race.deadline - race.latest() == pytest.approx(1.5)
    race.deadline = now[0] + left
    model, row = race.finish(candidate, rows[0], y)
    assert len(seen) == choices and model.estimator_.alpha == choices
    assert row.model.alpha == choices and len(model.predict(X)) == 100


@pytest.mark.parametrize(
    ("rows", "load", "running", "limited"),
    [
        (500, 0.0, "1/90", [None]),
        (5_000, 0.0, "1/90", ["openmp"]),
        (50_000, 0.0, "1/90", []),
        (50_000, 2.4, "2/90", []),  # this process and one more
        (50_000, 2.6, "1/90", [None]),  # busy until now
        (50_000, 0.0, "3/90", [None]),  # busy from now on
        (50_000, 0.0, "unreadable", []),
    ],
)
def test_a_busy_machine_gets_one_thread(rows, load, running, limited, monkeypatch):
    """Threads of BLAS that wait for one another took 25 times as long for a ridge."""
    asked = []

    class Pools:
        def limit(self, limits, user_api):
            assert limits == 1
            asked.append(user_api)
            return contextlib.nullcontext()

    monkeypatch.setattr(heats, "ThreadpoolController", Pools)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 9.0, 9.0))
    told = f"{load} 9.00 9.00 {running} 4711"
    monkeypatch.setattr(heats.Path, "read_text", lambda path, encoding: told)
    with heats.sharing(rows):
        assert asked == limited


def test_alarms_nest():
    now = time.perf_counter()
    with pytest.raises(TimeIsUp), alarm(now + 0.3):
        with pytest.raises(TimeIsUp), alarm(now + 0.05):
            _work(10)
        with alarm(None):
            _work(0.4)  # beyond the outer one, which waits
        _work(10)
    assert time.perf_counter() - now < 5


def test_an_alarm_in_the_past_rings_at_once_and_none_never():
    with pytest.raises(TimeIsUp), alarm(time.perf_counter() - 1):
        _work(5)
    with alarm(None):
        _work(0.01)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_alarm_leaves_timers_of_others_alone():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with alarm(time.perf_counter() + 0.01):
            _work(0.3)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_alarm_in_another_thread_does_nothing():
    found = []

    def body() -> None:
        with alarm(time.perf_counter()):
            _work(0.02)
        found.append("whole")

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == ["whole"]


def test_an_alarm_waits_while_polars_calls_back():
    """Compiled code of polars calls the interpreter, and drops its exceptions."""
    space = {"__name__": "polars.series.series", "clock": time.perf_counter}
    exec("def cast(end):\n    while clock() < end:\n        pass", space)
    start, reached = time.perf_counter(), False
    with pytest.raises(TimeIsUp), alarm(start + 0.05):
        space["cast"](start + 0.3)
        reached = True
        _work(10)
    assert reached and time.perf_counter() - start < 5
