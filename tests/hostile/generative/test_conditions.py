"""Conditions that make no sense, or of which a model knows nothing."""

from __future__ import annotations

import numpy as np
import pytest

from certus.generative import (
    Diffusion,
    GenerativeAdversarial,
    VariationalAutoencoder,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
X = np.column_stack([X, np.full(120, 7.0)])
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def models() -> dict[str, object]:
    small = {"hidden_layer_sizes": (8,), "max_iter": 30, "random_state": 0}
    return {
        "vae": VariationalAutoencoder(**small).fit(X),
        "vae classes": VariationalAutoencoder(**small).fit(X, Y),
        "diffusion": Diffusion(n_steps=8, **small).fit(X),
        "diffusion classes": Diffusion(n_steps=8, **small).fit(X, Y),
        "zeros and ones": VariationalAutoencoder(likelihood="bernoulli", **small).fit(
            (X > 0).astype(float)
        ),
    }


@pytest.mark.parametrize("name", ["vae", "diffusion"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({5: 1.0}, "does not have"),
        ({"age": 1.0}, "does not have"),
        ({0: "old"}, "a number or"),
        ({0: (2.0, 1.0)}, "low ≤ high"),
        ({0: np.nan}, "low ≤ high"),
        ({0: np.inf}, "low ≤ high"),
        ([1], "must be a dict"),
        (np.ones(2), "must be a dict"),
        ({2: 8.0}, "constant in the fit"),
        ({2: (8.0, 9.0)}, "constant in the fit"),
        ({0: 1e6}, "standard deviations away"),
        ({0: 1e200}, "away|probability zero"),
    ],
)
def test_impossible_conditions_are_refused(models, name, given, told) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        models[name].sample(3, given=given, random_state=0)
    assert str(raised.value).count(". ") <= 1


def test_ranges_without_rows_are_refused(models) -> None:
    with pytest.raises(ValueError, match="0 of 4,"):
        models["diffusion"].sample(2, given={0: (40.0, 50.0)}, random_state=0)
    with pytest.raises(ValueError, match="away"):
        models["vae"].sample(2, given={0: (400.0, 500.0)}, random_state=0)


def test_empty_and_idle_conditions_have_no_effect(models) -> None:
    for name in ("vae", "diffusion"):
        model = models[name]
        plain = model.sample(4, random_state=3)
        for given in ({}, None, {2: 7.0}, {1: (-np.inf, np.inf)}):
            made = model.sample(4, given=given, random_state=3)
            np.testing.assert_array_equal(made, plain)


def test_a_value_needs_a_class_under_a_diffusion(models) -> None:
    model = models["diffusion classes"]
    with pytest.raises(ValueError, match="Pass y"):
        model.sample(2, given={0: 0.1})
    with pytest.raises(ValueError, match="has not seen"):
        model.sample(2, y=3, given={0: 0.1})
    made, y = model.sample(3, y=1, given={0: 0.1}, random_state=0)
    assert (made[:, 0] == 0.1).all() and (y == 1).all()
    made, y = model.sample(3, y=[0, 1, 0], given={0: (-1, 1)}, random_state=0)
    assert y.tolist() == [0, 1, 0] and (np.abs(made[:, 0]) <= 1).all()
    with pytest.raises(ValueError, match="without classes"):
        models["vae"].sample(2, y=1, given={0: 0.1})


def test_all_columns_may_be_known(models) -> None:
    for name in ("vae", "diffusion"):
        made = models[name].sample(2, given={0: 0.5, 1: 0.3}, random_state=0)
        np.testing.assert_array_equal(made, [[0.5, 0.3, 7.0]] * 2)


def test_values_between_zero_and_one_are_refused_by_a_bernoulli_model(models) -> None:
    model = models["zeros and ones"]
    for wanted in (0.5, (0.2, 0.8), 2.0):
        with pytest.raises(ValueError, match="must allow 0 or 1"):
            model.sample(2, given={0: wanted})
    assert (model.sample(3, given={0: 1}, random_state=0)[:, 0] == 1).all()


def test_a_model_without_density_takes_no_conditions() -> None:
    small = {"hidden_layer_sizes": (4,), "critic_layer_sizes": (4,), "max_iter": 2}
    gan = GenerativeAdversarial(random_state=0, **small).fit(X)
    with pytest.raises(TypeError, match="given"):
        gan.sample(2, given={0: 0.1})
