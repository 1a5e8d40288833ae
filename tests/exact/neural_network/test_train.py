"""The training loop: when a run ends, what of it counts, and what it leaves alone."""

import math
import time

import numpy as np
import pytest
import torch
from torch import nn

from certus.certificate import Status
from certus.neural_network import train as loop
from certus.neural_network.batches import Batch
from certus.neural_network.objective import GradientStep, RowLoss, squared
from certus.neural_network.run import Rules, TrainingRun, threads_for
from certus.neural_network.train import train

ROWS = 12


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(ROWS, 3)))
    return X, X @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 1.0


def new_run(data, rate=0.05, watch=None, **options):
    """A line fitted by gradient descent; ``watch(step)`` is called in each step."""
    X, y = data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Linear(3, 1).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    steps = []

    def fetch(rows):
        steps.append(1)
        if watch is not None:
            watch(len(steps))
        return Batch((X[rows],), y[rows], None)

    step = GradientStep(module, optimizer, RowLoss(squared), fetch)
    return TrainingRun(
        step, np.random.default_rng(1), torch.random.get_rng_state(), **options
    )


def batches(rng):
    return torch.from_numpy(rng.permutation(ROWS)).split(4)  # three steps an epoch


def theta(run):
    return torch.cat([p.detach().reshape(-1) for p in run.final().parameters()])


def after(data, epochs):
    run = new_run(data)
    train(run, batches, Rules(epochs))
    return theta(run)


def test_epochs_are_counted_and_losses_are_means_over_rows(data):
    X, y = data
    run = new_run(data, rate=1e-300)
    unequal = lambda rng: torch.arange(ROWS).split([7, 5])  # noqa: E731
    assert train(run, unequal, Rules(2)) is Status.MAX_ITER
    assert run.epoch == 2
    module = run.step.modules["module"]
    with torch.no_grad():
        mean = float(squared(module(X), y).mean())
    assert run.history["loss"] == pytest.approx([mean, mean], rel=1e-12)


def test_a_finished_run_goes_no_further_and_a_longer_one_goes_on(data):
    run = new_run(data)
    assert train(run, batches, Rules(3)) is Status.MAX_ITER
    before = theta(run)
    assert train(run, batches, Rules(3)) is Status.MAX_ITER
    assert torch.equal(theta(run), before)
    train(run, batches, Rules(5))
    assert torch.equal(theta(run), after(data, 5))
    assert len(run.history["loss"]) == 5


def test_a_plateau_ends_the_run(data):
    values = iter([5.0, 4.0, 4.05, 3.95, 3.96, 1.0])
    run = new_run(data)
    rules = Rules(10, patience=3, tol=0.1, keep_best=True)
    status = train(run, batches, rules, lambda run: {"criterion": next(values)})
    assert status is Status.SOLVED
    # 4.05, 3.95 and 3.96 are no improvement of more than 0.1, yet 3.95 is the best.
    assert (run.epoch, run.best_epoch, run.best_value) == (5, 4, 3.95)
    assert torch.equal(theta(run), after(data, 4))
    assert "criterion" not in run.history
    assert train(run, batches, rules) is Status.SOLVED
    assert run.epoch == 5


@pytest.mark.catalog("NN-41")
@pytest.mark.parametrize("best", [1, 3, 6])
def test_the_weights_of_the_best_epoch_are_put_back(data, best):
    run = new_run(data)
    rules = Rules(6, keep_best=True)
    train(run, batches, rules, lambda run: {"criterion": abs(run.epoch + 1 - best)})
    assert run.best_epoch == best
    assert torch.equal(theta(run), after(data, best))


@pytest.mark.parametrize("at", [4, 5, 6])
def test_ctrl_c_in_an_epoch_leaves_the_epoch_before(data, at):
    def interrupt(step):
        if step == at:
            raise KeyboardInterrupt

    run = new_run(data, watch=interrupt)
    assert train(run, batches, Rules(9)) is Status.INTERRUPTED
    assert run.epoch == 1
    assert len(run.history["loss"]) == 1
    assert torch.equal(theta(run), after(data, 1))


def test_ctrl_c_in_the_first_epoch_leaves_its_part(data):
    def interrupt(step):
        if step == 3:
            raise KeyboardInterrupt

    run = new_run(data, watch=interrupt)
    assert train(run, batches, Rules(9)) is Status.INTERRUPTED
    assert run.epoch == 0
    assert len(run.history["loss"]) == 1
    assert not torch.equal(theta(run), theta(new_run(data)))


@pytest.mark.parametrize("where", ["evaluate", "on_epoch"])
def test_ctrl_c_between_epochs(data, where):
    def interrupt(run):
        if where == "evaluate" and run.epoch < 2:
            return {"validation_loss": 1.0}
        if where == "on_epoch" and run.epoch < 2:
            return None
        raise KeyboardInterrupt

    run = new_run(data)
    assert train(run, batches, Rules(9), **{where: interrupt}) is Status.INTERRUPTED
    assert run.epoch == 2
    assert {len(column) for column in run.history.values()} == {2}
    assert torch.equal(theta(run), after(data, 2))


def test_part_of_an_epoch_does_not_count_when_time_is_up(data):
    run = new_run(data, watch=lambda step: time.sleep(0.2 if step == 8 else 0))
    assert train(run, batches, Rules(9, max_time=0.15)) is Status.TIME_LIMIT
    assert run.epoch == 2
    assert torch.equal(theta(run), after(data, 2))


def test_part_of_an_epoch_counts_if_there_is_nothing_else(data):
    run = new_run(data, watch=lambda step: time.sleep(0.05))
    assert train(run, batches, Rules(9, max_time=0.07)) is Status.TIME_LIMIT
    assert run.epoch == 0
    assert not torch.equal(theta(run), theta(new_run(data)))
    assert math.isfinite(run.history["loss"][0])


def test_divergence_names_epoch_step_and_loss_and_puts_weights_back(data):
    X, y = data
    y = y.clone()

    def spoil(step):
        if step == 5:  # the second step of the second epoch
            y[:] = math.nan

    run = new_run((X, y), watch=spoil)
    assert train(run, batches, Rules(9)) is Status.DIVERGED
    epoch, step, before = run.diverged
    assert (epoch, step) == (2, 2)
    reference = new_run(data)
    train(reference, batches, Rules(1))
    assert torch.equal(theta(run), theta(reference))
    rows = batches(reference.rng)[0]
    assert before == float(reference.step(rows)["loss"])
    assert not run.step.optimizers["module"].state


def test_weights_that_overflow_in_the_last_step_are_put_back(data):
    run = new_run(data)
    hook = run.step.optimizers["module"].register_step_post_hook

    def spoil(optimizer, *_):
        spoil.count += 1
        if spoil.count == 6:  # the last step of epoch 2, whose losses are all finite
            with torch.no_grad():
                optimizer.param_groups[0]["params"][0].fill_(math.inf)

    spoil.count = 0
    hook(spoil)
    assert train(run, batches, Rules(9)) is Status.DIVERGED
    assert run.diverged[:2] == (2, 3)
    assert torch.equal(theta(run), after(data, 1))


def test_a_run_that_diverges_at_once_keeps_its_first_weights(data):
    run = new_run(data, rate=1e200)
    assert train(run, batches, Rules(9)) is Status.DIVERGED
    assert torch.equal(theta(run), theta(new_run(data)))
    assert run.history == {}


def loss_of(run, data):
    X, y = data
    with torch.no_grad():
        return float(squared(run.final()(X), y).mean())


@pytest.mark.parametrize("keep_best", [False, True])
@pytest.mark.parametrize("rate", [1e3, 1e7, 1e30])
def test_an_epoch_that_exploded_is_not_kept(data, rate, keep_best):
    everything = lambda rng: [torch.arange(ROWS)]  # noqa: E731
    run = new_run(data, rate=rate)
    start = loss_of(run, data)
    evaluate = (lambda run: {"criterion": loss_of(run, data)}) if keep_best else None
    rules = Rules(10_000, keep_best=keep_best)
    assert train(run, everything, rules, evaluate) is Status.DIVERGED
    losses = run.history["loss"]
    assert len(losses) > 2 and losses[2] > losses[1] > 1e3 * losses[0]
    assert loss_of(run, data) == start
    assert run.kept == 0 and run.epoch == len(losses)
    assert not keep_best or run.best_epoch == 0


@pytest.mark.parametrize("keep_best", [False, True])
def test_the_last_sane_epoch_is_kept_when_later_ones_exploded(data, keep_best):
    def burst(step):
        if step == 10:  # the first of epoch 4
            run.step.optimizers["module"].param_groups[0]["lr"] = 1e20

    run = new_run(data, watch=burst)
    evaluate = (lambda run: {"criterion": loss_of(run, data)}) if keep_best else None
    rules = Rules(10_000, keep_best=keep_best)
    assert train(run, batches, rules, evaluate) is Status.DIVERGED
    assert run.epoch > 4 and run.diverged.epoch == run.epoch + 1
    assert run.kept == 3
    assert torch.equal(theta(run), after(data, 3))


def test_a_resumed_run_knows_how_it_began(data):
    run = new_run(data)
    train(run, batches, Rules(2))
    first = run.first_loss
    train(run, batches, Rules(4))
    assert run.first_loss == first


def test_a_long_epoch_is_left_early_when_training_has_diverged(data, monkeypatch):
    monkeypatch.setattr(loop, "LOOK", -1.0)
    steps = []
    run = new_run(data, rate=1e200, watch=steps.append)
    endless = lambda rng: (torch.arange(4) for _ in range(1000))  # noqa: E731
    assert train(run, endless, Rules(1)) is Status.DIVERGED
    assert len(steps) < 10


def test_on_epoch_may_end_the_run(data):
    run = new_run(data)
    stop = lambda run: Status.STOPPED if run.epoch == 2 else None  # noqa: E731
    assert train(run, batches, Rules(9), on_epoch=stop) is Status.STOPPED
    assert run.epoch == 2
    assert torch.equal(theta(run), after(data, 2))


def test_a_step_may_ask_for_the_batches_of_an_epoch(data):
    run, told = new_run(data), []
    run.step.begin = told.append
    train(run, batches, Rules(2))
    assert [sorted(torch.cat(part).tolist()) for part in told] == [[*range(ROWS)]] * 2
    assert torch.equal(theta(run), after(data, 2))


def test_global_random_numbers_are_untouched(data):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    run = new_run(data, watch=lambda step: torch.rand(7))
    train(run, batches, Rules(2))
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


def test_threads_are_set_for_the_run_and_put_back(data):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        seen = []
        run = new_run(data, watch=lambda step: seen.append(torch.get_num_threads()))
        run.threads = 1
        train(run, batches, Rules(1))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
        failing = new_run(data, watch=lambda step: 1 / 0)
        failing.threads = 1
        with pytest.raises(ZeroDivisionError):
            train(failing, batches, Rules(1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_only_small_networks_of_plain_layers_get_one_thread():
    small = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.Linear(64, 2))
    assert threads_for(small, 128) == 1
    assert threads_for(small, 100_000) is None
    assert threads_for(nn.Linear(784, 256), 128) is None
    assert threads_for(nn.Conv2d(1, 4, 3), 8) is None
    assert threads_for(nn.LSTM(4, 4), 8) is None
