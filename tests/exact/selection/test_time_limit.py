"""A time limit holds for fits that never ask how late it is."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

import certus
from certus._core.alarm import TimeIsUp, alarm
from certus.linear_model import Ridge

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
