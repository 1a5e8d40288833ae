"""Where nothing is promised: no warning, no proof, exit code 3."""

import dataclasses
import warnings

import numpy as np
import pytest

import certus
from certus.certificate import Claim, Evidence, Status, Strength
from certus.cli.fitting import exit_code
from certus.neural_network import MLPRegressor
from certus.verify import judge

X = np.linspace(-1, 1, 60).reshape(30, 2)
Y = X[:, 0] ** 2


@pytest.fixture(scope="module")
def network():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a plateau is no reason to warn
        model = MLPRegressor(hidden_layer_sizes=(4,), solver="lbfgs", random_state=0)
        return model.fit(X, Y)


def test_a_network_at_its_plateau_is_undecided(network):
    found = certus.certify(network, X, Y)
    assert found.status is network.certificate_.status is Status.UNDECIDED
    assert found[found.primary].strength is Strength.MEASURED and found.met is None
    assert "nothing is proved" in str(found)
    assert list(found.claims) == network.diagnose(X, Y)


def test_only_a_proof_that_was_asked_for_is_missed(network):
    found = certus.certify(network, X, Y)
    assert exit_code(found) == 0 and exit_code(found, proof=True) == 3


def test_a_claim_lost_in_rounding_is_reported(network):
    claim = Claim("duality_gap", Strength.PROVED, 1e-3, 1e-6, detail="undecided: ...")
    assert (claim.mark, claim.label) == ("?", "undecided")
    certificate = dataclasses.replace(
        network.certificate_, claims=(claim,), primary="duality_gap"
    )
    assert "rounding errors are too large" in certificate.ending
    lines = str(certificate).splitlines()
    assert lines[-1].split() == ["?", "undecided", "...", "proved"]  # said once
    assert certificate._repr_html_().count("undecided") == 2  # as an ending, as a label
    assert exit_code(certificate) == 3


@pytest.mark.parametrize("strength", [Strength.PROVED, Strength.STATISTICAL])
def test_the_verifier_accepts_only_measured_claims(network, strength):
    claims = [Claim("mine", strength)]
    for handed in (claims, lambda: claims):
        with pytest.raises(ValueError, match="mine must be MEASURED"):
            judge(network, Evidence("network"), X, Y, measured=handed)
