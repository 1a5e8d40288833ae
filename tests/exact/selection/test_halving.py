"""Successive halving: the best of what was tried goes on, and a plan says why."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import certus
from certus.certificate import Status
from certus.selection import heats
from certus.selection.candidates import Candidate, list_candidates
from certus.selection.halving import better_half, halve
from certus.selection.heats import LATE

FOLDS = [(np.arange(20), np.arange(20, 30))] * 3


def counted(losses: list[list[float]]):
    """A trial whose losses are given, round by round; and what was asked of it."""
    asked = []

    def trial(some, train, test):
        asked.append((list(some), len(train)))
        return [losses[len(asked) - 1][at] for at in some]

    return trial, asked


def test_settings_are_halved_from_fold_to_fold() -> None:
    trial, asked = counted(
        [
            [5.0, 1.0, 4.0, 2.0, 3.0],
            [0.0, 4.0, 0.0, 1.0, 1.0],
            [0.0, 0.0, 0.0, 9.0, 1.0],
        ]
    )
    found = halve(5, FOLDS, trial)
    assert [some for some, _ in asked] == [[0, 1, 2, 3, 4], [1, 3, 4], [3, 4]]
    # The whole plan counts for those that ran it: (2 + 1 + 9)/3 and (3 + 1 + 1)/3.
    assert found == [math.inf, math.inf, math.inf, 4.0, pytest.approx(5 / 3)]


def test_a_single_fold_of_many_rows_has_a_round_before_it() -> None:
    train, test = np.arange(900), np.arange(900, 1000)
    trial, asked = counted([[3.0, 1.0, 2.0, 4.0], [0.0, 2.0, 1.0, 0.0]])
    found = halve(4, [(train, test)], trial)
    assert asked == [([0, 1, 2, 3], 300), ([1, 2], 900)]
    assert int(np.argmin(found)) == 2
    trial, asked = counted([[3.0, 1.0]])
    halve(2, [(train, test)], trial)
    assert asked == [([0, 1], 900)]  # a round more would cost more than it saves


def test_what_fails_never_goes_on_and_ties_go_to_the_earlier() -> None:
    assert better_half([math.nan, 2.0, math.inf, 2.0]) == [1, 3]
    assert better_half([2.0, 1.0, 1.0]) == [1, 2]
    assert better_half([math.nan]) == []
    assert better_half([3.0, 2.0, 1.0, 4.0], 3) == [2, 1, 0]
    trial, _ = counted([[math.nan, math.nan]])
    assert halve(2, FOLDS, trial) == [math.inf, math.inf]


def table(n: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


@pytest.fixture
def small_heats(monkeypatch):
    """Heats of 40 rows, so that a small table has two rounds of them."""
    monkeypatch.setattr(heats, "ROWS", 40)
    monkeypatch.setattr(heats, "ENOUGH", 1)
    cheap = ("always the mean", "ridge", "lasso", "robust (Huber)")
    cheap = (*cheap, "k nearest neighbours", "gradient boosting")

    def some(*args):
        return [c for c in list_candidates(*args) if c.name in cheap]

    monkeypatch.setattr("certus.selection.lineup.list_candidates", some)


def test_the_worse_half_is_dropped_with_the_reason(small_heats) -> None:
    X, y = table(300)
    found = certus.compare(X, y)
    first = [step for step in found.plan if step.rows == 40]
    assert [step.name for step in first] == [row.name for row in found.rows[1:]]
    assert {step.outcome for step in first} > {"went on"}
    going = [step for step in first if step.outcome == "went on"]
    gone = [step for step in first if step.outcome != "went on"]
    ordinary = [step for step in going if step.name != "gradient boosting"]
    assert max(s.error for s in ordinary) <= min(s.error for s in gone)
    # Boosting does badly with forty rows, and goes on to 160.
    assert "gradient boosting" in {step.name for step in going}
    for step in found.plan:
        if step.outcome.startswith("dropped"):
            assert found[step.name].reason == step.outcome
            assert f"dropped after {step.rows} rows" in step.outcome
            assert not found[step.name].errors and "best" in step.outcome
    last = {step.name: step for step in found.plan}
    assert set(last) == {row.name for row in found.rows}
    assert last[found.chosen].outcome == "chosen" and last[found.chosen].rows == 192
    assert found.status is Status.SOLVED and found.not_run == ()
    json.dumps(found.to_dict()["plan"], allow_nan=False)


def test_the_seed_decides_what_is_dropped(small_heats) -> None:
    X, y = table(300)
    one, two = certus.compare(X, y), certus.compare(X, y)
    plain = [[step._replace(seconds=0.0) for step in c.plan] for c in (one, two)]
    assert [str(step) for step in plain[0]] == [str(step) for step in plain[1]]


def test_models_of_the_user_are_never_dropped(small_heats) -> None:
    from sklearn.dummy import DummyRegressor

    from certus.linear_model import Ridge

    X, y = table(300)
    found = certus.compare(X, y, also={"mine": Ridge(1e9), "theirs": DummyRegressor()})
    assert found["mine"].errors and found["theirs"].errors


def test_too_slow_for_a_trial_is_a_matter_of_time(small_heats, monkeypatch) -> None:
    def slow(self, candidate: Candidate, *args):
        if candidate.name == "lasso":
            return math.nan, 1.0, f"{LATE}: over 1 s for 40 rows"
        return whole(self, candidate, *args)

    whole = heats.Heats._trial
    monkeypatch.setattr(heats.Heats, "_trial", slow)
    X, y = table(300)
    found = certus.compare(X, y, max_time=600.0)
    assert found.not_run == ("lasso",) and found.status is Status.TIME_LIMIT


def test_many_rows_are_judged_on_two_folds(monkeypatch) -> None:
    from certus.linear_model import Lasso, Ridge

    monkeypatch.setattr("certus.selection.comparing._MANY_ROWS", 100)
    X, y = table(300)
    found = certus.compare(X, y, models=[Ridge(), Lasso(0.1)])
    assert [len(row.errors) for row in found.rows] == [2, 2, 2]
    assert any("2 of the 5 folds" in note for note in found.notes)
    assert found.best.seconds > 0 and found.threshold is not None
