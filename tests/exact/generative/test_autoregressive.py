"""Autoregressive densities: sums to one, known laws, the start, conditions, gaps."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import certus
from certus.certificate import Strength
from certus.generative import AutoregressiveDensity
from certus.generative.cells import CellCode
from certus.neural_network.modules import CellNetwork


def mixed(n: int, seed: int) -> np.ndarray:
    """A category, an amount with zeros that depends on it, and a number after both."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    cost = np.where(rng.random(n) < 0.3, 0.0, rng.gamma(2.0, 1.0 + kind))
    return np.column_stack([kind, cost, kind + 0.5 * cost + rng.normal(size=n)])


def fitted(**params: Any) -> AutoregressiveDensity:
    params = {
        "max_iter": 60,
        "hidden_layer_sizes": (16,),
        "bins": 12,
        "parts": 2,
        "learning_rate": 1e-2,
    } | params
    return AutoregressiveDensity(random_state=0, **params).fit(mixed(1200, 0))


@pytest.fixture(scope="module")
def whole() -> AutoregressiveDensity:
    return fitted()


@pytest.fixture
def model(whole) -> AutoregressiveDensity:
    return copy.deepcopy(whole)


# -- the law --------------------------------------------------------------------------


def trained_law() -> CellNetwork:
    law = CellNetwork((2, 3, 2), (2, 0, 1), (2, 0, -1), (0, 1, 0), hidden=(5, 4))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for part in (law.weights[-1], law.biases[-1], law.tables):
            torch.nn.init.normal_(part)
    return law.double().eval()


def test_probabilities_of_all_rows_sum_to_one_and_draws_follow_them() -> None:
    law = trained_law()
    rows = [(a, b, c) for a, b, c in itertools.product(range(2), range(3), range(2))]
    # The second column is settled where the first has its cell 0.
    rows = [(a, b, c) for a, b, c in rows if a > 0 or b == 0]
    p = law.log_prob(torch.tensor(rows)).exp().detach()
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    drawn, logs = law.draw(40_000, np.random.default_rng(0))
    assert (logs == 0).all()
    share = [(drawn == row).all(axis=1).mean() for row in np.array(rows)]
    np.testing.assert_allclose(share, p.numpy(), atol=0.012)


def test_no_probability_is_below_the_floor(model) -> None:
    X = mixed(300, 9)
    X[:, 2] = np.random.default_rng(0).permutation(X[:, 2]) * 40  # absurd rows
    logs = model.score_samples(X)
    widest = sum(
        np.log(np.diff(c["edges"]).max() / c["parts"]) if len(c["edges"]) else 0.0
        for c in model.cells_
    )
    assert np.isfinite(logs).all() and logs.min() >= -model.loss_bound_ - widest
    assert model.loss_bound_ < 60


@pytest.mark.catalog("GEN-38")
def test_the_density_integrates_to_one_over_values_and_numbers(model) -> None:
    total = 0.0
    low, high = (model.cells_[2]["edges"][i] for i in (0, -1))
    edges = model.cells_[1]["edges"]
    fine = np.concatenate([np.linspace(a, b, 9) for a, b in itertools.pairwise(edges)])
    spots = np.unique(fine)
    middles = (spots[1:] + spots[:-1]) / 2
    line = np.unique(
        np.concatenate(
            [
                np.linspace(a, b, 5)
                for a, b in itertools.pairwise(model.cells_[2]["edges"])
            ]
        )
    )
    points, widths = (line[1:] + line[:-1]) / 2, np.diff(line)
    assert line[0] == low and line[-1] == high
    for kind in (0.0, 1.0, 2.0):
        for cost, wide in [(0.0, 1.0), *zip(middles, np.diff(spots))]:
            grid = np.column_stack([np.full((len(points), 2), [kind, cost]), points])
            total += wide * float(np.exp(model.score_samples(grid)) @ widths)
    assert total == pytest.approx(1, abs=1e-9)


def test_the_network_is_never_worse_than_its_tree_on_held_out_rows() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, (2, 3000))
    X = np.column_stack([a, b, a ^ b])  # no tree of pairs sees this
    model = AutoregressiveDensity(
        max_iter=300,
        hidden_layer_sizes=(16,),
        learning_rate=1e-2,
        dropout=0.0,
        weight_decay=0.0,
        random_state=0,
    ).fit(X)
    assert model.start_score_ == pytest.approx(-3 * np.log(2), abs=0.02)
    assert model.validation_score_ == pytest.approx(-2 * np.log(2), abs=0.03)
    made = model.sample(500, random_state=0).astype(int)
    assert np.mean(made[:, 2] == made[:, 0] ^ made[:, 1]) > 0.98


def test_samples_have_the_atoms_and_the_dependence_of_the_rows(model) -> None:
    S, X = model.sample(4000, random_state=0), mixed(4000, 5)
    assert set(S[:, 0]) == {0.0, 1.0, 2.0}
    assert abs((S[:, 1] == 0).mean() - 0.3) < 0.03
    assert abs(S[:, 2].mean() - X[:, 2].mean()) < 0.15
    r = [spearmanr(part[:, 1], part[:, 2]).statistic for part in (S, X)]
    assert abs(r[0] - r[1]) < 0.1


# -- conditions and gaps --------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{0: 2}, {1: 0.0}, {2: (1.0, 2.0)}, {1: (1, 4), 0: 1}]
)
def test_conditions_are_met_and_draws_follow_the_conditional_distribution(
    model, given
) -> None:
    S = model.sample(800, given=given, random_state=0)
    every = model.sample(30_000, random_state=1)
    kept = np.ones(len(every), dtype=bool)
    for j, wanted in given.items():
        low, high = wanted if isinstance(wanted, tuple) else (wanted, wanted)
        assert ((S[:, j] >= low) & (S[:, j] <= high)).all()
        kept &= (every[:, j] >= low) & (every[:, j] <= high)
    chosen = every[kept]
    assert len(chosen) > 400
    off = np.abs(S.mean(axis=0) - chosen.mean(axis=0)) / every.std(axis=0)
    assert off.max() < 0.2


def test_gaps_get_the_expected_number_or_the_likeliest_category(model) -> None:
    X = mixed(60, 3)
    hidden = X.copy()
    hidden[:30, 2], hidden[30:, 0] = np.nan, np.nan
    filled = model.impute(hidden, random_state=0)
    known = ~np.isnan(hidden)
    np.testing.assert_array_equal(filled[known], X[known])
    assert np.corrcoef(filled[:30, 2], X[:30, 2])[0, 1] > 0.5
    assert set(filled[30:, 0]) <= {0.0, 1.0, 2.0}
    assert np.mean(filled[30:, 0] == X[30:, 0]) > 0.4


# -- certificates ---------------------------------------------------------------------


def test_a_whole_autoregressive_model_is_certified(whole) -> None:
    found = whole.certificate_
    assert found.met and found.primary == "normalised"
    for name in ("normalised", "log_density", "stated_score"):
        assert found[name].strength is Strength.PROVED and found[name].met
    assert found["log_density"].value < 1e-9
    assert found["sample_density"].strength is Strength.STATISTICAL
    assert found["sample_density"].met
    assert found["gain"].strength is Strength.MEASURED


def test_on_new_rows_the_loss_has_an_interval_that_holds(model) -> None:
    found = certus.certify(model, mixed(3000, 5))
    claim = found["mean_log_density"]
    assert claim.strength is Strength.STATISTICAL and claim.delta == 0.05
    truth = model.score(mixed(40_000, 6))
    assert claim.value < truth < claim.value + 4
    assert found["gain"].strength is Strength.STATISTICAL
    odd = mixed(50, 7)
    odd[3, 0] = 9
    found = certus.certify(model, odd)
    assert found["mean_log_density"].strength is Strength.REFUSED
    assert found["log_density"].met


class WrongDraws(AutoregressiveDensity):
    """Draws columns without regard to those before them."""

    def sample(self, n_samples: int = 1, **options: Any) -> np.ndarray:
        S = super().sample(n_samples, **options)
        return np.column_stack([np.roll(column, 7 * j) for j, column in enumerate(S.T)])


def test_a_lost_constant_is_seen(model, monkeypatch) -> None:
    """The widths of the bins are forgotten."""
    nothing = lambda self, codes: np.zeros(len(codes))  # noqa: E731
    monkeypatch.setattr(CellCode, "log_volume", nothing)
    found = certus.certify(model, mixed(1200, 0))
    assert found["log_density"].met is False and not found.met


def test_draws_from_another_distribution_are_found(model) -> None:
    model.__class__ = WrongDraws
    found = certus.certify(model, mixed(1200, 0))
    assert found["sample_density"].met is False and not found.met
    assert found["log_density"].met


def test_a_column_that_leaks_the_target_is_found(model) -> None:
    model.network_.seen[1, 1] = 1.0
    found = certus.certify(model, mixed(1200, 0))
    assert found["normalised"].met is False and not found.met


def test_weights_that_were_edited_are_seen(model, tmp_path) -> None:
    with torch.no_grad():
        model.network_.biases[-1][2, :3] += 0.5
    again = certus.load(model.save(tmp_path / "law.certus"))
    found = certus.certify(again, mixed(1200, 0))
    assert found["normalised"].met and found["log_density"].met  # a law all the same
    assert found["stated_score"].met is False and not found.met


def test_cells_that_do_not_belong_to_the_network_are_refused(model) -> None:
    model.cells_[1]["edges"] = model.cells_[1]["edges"][:-1]
    with pytest.raises(ValueError, match="changed after its fit"):
        certus.certify(model, mixed(100, 0))
    model.cells_[1]["edges"] = np.sort(mixed(13, 0)[:, 2])[::-1]
    with pytest.raises(ValueError, match="do not rise"):
        certus.certify(model, mixed(100, 0))


def test_files_keep_the_distribution_and_its_draws(model, tmp_path) -> None:
    again = certus.load(model.save(tmp_path / "law.certus"))
    X = mixed(50, 2)
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    first, second = (m.sample(20, random_state=4) for m in (model, again))
    np.testing.assert_array_equal(first, second)


def test_calibrated_outliers(model) -> None:
    model.calibrate(mixed(400, 11))
    far = mixed(200, 12)
    far[:, 2] = 12.0 - far[:, 2]
    alarms = model.predict_outlier(mixed(2000, 13), 0.1).mean()
    assert alarms < 0.15 < model.predict_outlier(far, 0.1).mean()
