"""Two processes under torchrun against one: the same call, the same model."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from certus.neural_network import distributed
from certus.neural_network.objective import cross_entropy
from helpers import together
from helpers.together import CASES, data, fit, made, network, others, weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes left."""
    place = tmp_path_factory.mktemp("together")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, together.__file__, str(place)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return place


@pytest.fixture(scope="module")
def found(folder):
    return [dict(np.load(folder / f"rank-{rank}.npz")) for rank in (0, 1)]


def test_both_processes_end_with_the_same_model(found):
    for name, value in found[0].items():
        assert np.array_equal(value, found[1][name]), name


@pytest.mark.parametrize("case", CASES)
def test_two_processes_reproduce_one(found, case):
    alone = weights(fit(**CASES[case]))
    np.testing.assert_allclose(found[0][case], alone, rtol=1e-6, atol=1e-12)


def test_two_processes_reproduce_one_of_every_kind(found):
    for name, model in others().items():
        wanted = weights(model)
        # Recurrent networks of words compute in float32.
        off = 1e-5 if wanted.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(
            found[0][name], wanted, rtol=1e-6, atol=off, err_msg=name
        )


def test_losses_are_those_of_the_whole_batches(found):
    np.testing.assert_allclose(found[0]["losses"], fit().history_["loss"], rtol=1e-9)


def test_without_a_seed_the_first_process_draws_for_all(found):
    assert np.array_equal(found[0]["unseeded"], found[1]["unseeded"])


def test_a_network_made_outside_begins_with_the_weights_of_the_first(found):
    assert np.array_equal(found[0]["made"], found[1]["made"])
    np.testing.assert_allclose(found[0]["made"], weights(fit(made(0))), rtol=1e-6)


def test_only_the_first_process_writes(folder, found):
    assert sorted(p.name for p in (folder / "of-0").iterdir()) == [
        "checkpoint-0.certus",
        "checkpoint-1.certus",
    ]
    assert not (folder / "of-1").exists()
    assert np.array_equal(found[0]["resumed"], found[0]["unseeded"])


def test_time_is_up_for_all_at_once(found):
    assert found[0]["epochs"] == found[1]["epochs"] > 0


def test_the_majority_votes_on_each_gradient(found):
    x = np.array([[1.0, -2.0, 0.5], [-3.0, -1.0, 0.5]])
    wanted = np.array([[1.0, 2.0], [-5.0, 2.0]])
    votes = 0
    for rank in (0, 1):
        slope = -2 * wanted[rank]  # of the squares at zero weights
        g = np.concatenate([np.outer(slope, x[rank]).ravel(), slope])
        votes = votes + np.sign(g)
    assert np.array_equal(found[0]["vote"], np.sign(votes))
    assert (found[0]["vote"] == 0).any()


def test_sign_descent_moves_where_the_majority_points(found):
    X, y, s = data()
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        module = network(4, 2)
    order = torch.from_numpy(rng.permutation(len(y)))
    votes = 0
    for rank in (0, 1):
        rows = order[rank::2]
        z = module(torch.from_numpy(X)[rows])
        loss = cross_entropy(z, torch.from_numpy(y)[rows])
        t = torch.from_numpy(s)[rows]
        grads = torch.autograd.grad((t * loss).sum() / t.sum(), module.parameters())
        votes = votes + torch.cat([g.reshape(-1) for g in grads]).sign()
    start = nn.utils.parameters_to_vector(module.parameters()).detach()
    wanted = (start - 1e-3 * votes.sign()).numpy()
    np.testing.assert_allclose(found[0]["sign"], wanted, rtol=1e-12)


def test_alone_nothing_is_shared():
    rows = torch.arange(5)
    assert distributed.count() == 1
    assert distributed.rank() == 0
    assert distributed.share(rows) == (rows, 1.0)
    assert distributed.agreed("x") == "x"
    assert distributed.anyone(True)
    assert not distributed.anyone(False)
