"""Generators on input that is too small, too large, broken, forged, or interrupted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from certus import certify, config_context, load
from certus.certificate import Status
from certus.generative import (
    Autoencoder,
    Diffusion,
    GenerativeAdversarial,
    SamplePictures,
    VariationalAutoencoder,
    frechet_distance,
    picture_sheet,
)
from certus.generative.games import TwoPlayerStep

TINY: dict[str, Any] = {"hidden_layer_sizes": (8,), "max_iter": 12, "random_state": 0}
MODELS = [Autoencoder, Diffusion, GenerativeAdversarial, VariationalAutoencoder]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("cls", MODELS)
def test_rows_without_numbers_are_refused_with_a_message(cls: Any) -> None:
    X = RNG.normal(size=(30, 3))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"SimpleImputer"):
        cls(**TINY).fit(X)
    with pytest.raises(ValueError, match=r"minimum of 2|sample"):
        cls(**TINY).fit(X[:1, :1])
    with pytest.raises(ValueError, match="nothing to learn"):
        cls(**TINY).fit(np.ones((20, 2)))


@pytest.mark.parametrize("cls", MODELS)
def test_constant_columns_and_huge_scales_come_back(cls: Any) -> None:
    X = np.column_stack(
        [1e9 + 1e6 * RNG.normal(size=60), np.full(60, 7.0), 1e-9 * RNG.normal(size=60)]
    )
    model = cls(**TINY).fit(X)
    if cls is Autoencoder:
        back = model.inverse_transform(model.transform(X))
        assert np.isfinite(model.outlier_scores(X)).all()
        other = X + np.array([0.0, 1.0, 0.0])
        assert np.isinf(model.outlier_scores(other)).all()
    else:
        back = model.sample(20, random_state=0)
    assert np.isfinite(back).all() and (back[:, 1] == 7.0).all()
    assert all(claim.met is not False for claim in certify(model, X).claims)


@pytest.mark.parametrize("cls", [Autoencoder, Diffusion, VariationalAutoencoder])
def test_rows_far_outside_are_the_oddest(cls: Any) -> None:
    """Heavy tails, a copied column, atoms; then rows 10¹² away from all of them."""
    a = RNG.standard_cauchy(80)
    X = np.column_stack([a, a, np.where(RNG.random(80) < 0.5, 0.0, a), RNG.random(80)])
    model = cls(**TINY).fit(X)
    within = model.outlier_scores(X)
    far = model.outlier_scores(np.vstack([np.full(4, 1e12), np.full(4, -1e12), X[0]]))
    assert np.isfinite(within).all() and not np.isnan(far).any()
    assert (far[:2] > within.max()).all() and np.isfinite(far[2])


@pytest.mark.parametrize("loss", ["nonsaturating", "wasserstein", "mmd"])
def test_an_adversarial_network_survives_heavy_tails_and_far_rows(loss: str) -> None:
    """Drawn rows stay finite; rows 10¹² away change claims, but none becomes NaN."""
    a = RNG.standard_cauchy(80)
    X = np.column_stack([a, a, np.where(RNG.random(80) < 0.5, 0.0, a), RNG.random(80)])
    model = GenerativeAdversarial(**{**TINY, "loss": loss, "critic_layer_sizes": (8,)})
    with config_context(on_uncertified="ignore"):
        made = model.fit(X).sample(500, random_state=0)
    assert np.isfinite(made).all() and made.std(axis=0).min() > 0
    far = np.vstack([X, np.full(4, 1e12), np.full(4, -1e12)])
    if loss != "mmd":  # a distance of kernels needs no critic
        assert np.isfinite(model.critic_scores(far)).all()
    for rows in (X, far):
        found = certify(model, rows)
        assert found["players_agree"].met
        values = [claim.value for claim in found.claims if claim.value is not None]
        assert np.isfinite(values).all()
        bound = found["divergence"].value
        if loss == "nonsaturating":
            assert bound <= np.log(2)  # of the Jensen–Shannon divergence


@pytest.mark.parametrize("cls", MODELS[1:])
def test_one_class_is_a_class(cls: Any) -> None:
    X = RNG.normal(size=(40, 2))
    made, labels = cls(**TINY).fit(X, np.full(40, "only")).sample(3, random_state=0)
    assert made.shape == (3, 2) and set(labels) == {"only"}


def test_two_rows_are_enough_to_fit() -> None:
    X = np.array([[0.0, 1.0], [1.0, 0.0]])
    for cls in MODELS:
        model = cls(**TINY).fit(X)
        assert np.isfinite(model.certificate_.seconds)
        if cls is not Autoencoder:
            assert np.isfinite(model.sample(2, random_state=0)).all()


@pytest.mark.parametrize("shape", [(1, 9), (5, 3), (3, 4, 6), (6, 5, 3)])
def test_images_of_odd_shapes_pass_a_unet(shape: tuple[int, ...]) -> None:
    X = RNG.normal(size=(8, *shape))
    model = Diffusion(
        network="unet",
        hidden_layer_sizes=(4, 4),
        max_iter=2,
        n_steps=2,
        random_state=0,
    ).fit(X)
    assert model.sample(3, random_state=0).shape == (3, *shape)
    claim = model.certificate_["denoiser_agrees"]
    assert claim.met is not False and claim.value < 1e-3
    with pytest.raises(ValueError, match="must have the shape"):
        model.denoise(np.zeros((2, *shape[::-1])), 1.0)


def test_a_game_that_diverges_keeps_its_last_sane_state(monkeypatch) -> None:
    X = RNG.normal(size=(200, 2))
    whole, calls = TwoPlayerStep.__call__, [0]

    def broken(self: TwoPlayerStep, batch: Any) -> Any:
        found = whole(self, batch)
        calls[0] += 1
        if calls[0] > 25:
            with torch.no_grad():
                next(self.modules["module"].parameters()).fill_(torch.nan)
        return found

    monkeypatch.setattr(TwoPlayerStep, "__call__", broken)
    with config_context(on_uncertified="ignore"):
        model = GenerativeAdversarial(**{**TINY, "max_iter": 100}).fit(X)
    assert model.certificate_.status is Status.DIVERGED
    assert np.isfinite(model.sample(50, random_state=0)).all()
    assert model.certificate_["players_agree"].met


@pytest.mark.parametrize("cls", MODELS)
def test_a_fit_can_be_interrupted(cls: Any) -> None:
    """Ctrl-C after some steps: the state is kept, and the status says so."""
    X = RNG.normal(size=(60, 2))

    def stop(sheet: Any) -> None:
        raise KeyboardInterrupt

    draws = cls is not Autoencoder  # an autoencoder has no rows to draw
    options = {**TINY, "max_iter": 400}

    def interrupted() -> Any:
        watch = (
            SamplePictures(stop, every=2) if draws else _StopAfter(2, interrupt=True)
        )
        return cls(**options).set_callbacks(watch)

    model = interrupted()
    with config_context(on_interrupt="return", on_uncertified="ignore"):
        model.fit(X)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.n_iter_ < 400
    if draws:
        assert np.isfinite(model.sample(3, random_state=0)).all()
    else:
        back = model.inverse_transform(model.transform(X))
        assert np.isfinite(back).all() and certify(model, X).met is not False
    again = interrupted()
    with config_context(on_uncertified="ignore"), pytest.raises(KeyboardInterrupt):
        again.fit(X)
    assert again.certificate_.status is Status.INTERRUPTED


@pytest.mark.parametrize("cls", MODELS)
def test_runs_continue_bit_for_bit_and_files_cannot_be_forged(
    cls: Any, tmp_path
) -> None:
    X = RNG.normal(size=(60, 3))
    options = {**TINY, "max_iter": 40, "learning_rate": 1e-3}
    whole = cls(**options).fit(X)

    parted = cls(**options, checkpoint=tmp_path / "run")
    parted.set_callbacks(_StopAfter(2))
    with config_context(on_uncertified="ignore"):
        parted.fit(X)
    again = cls(**options, checkpoint=tmp_path / "run").fit(X)
    for name, value in whole.weights_.items():
        np.testing.assert_array_equal(again.weights_[name], value)
    whole.save(tmp_path / "model.certus")
    model = load(tmp_path / "model.certus")
    with torch.no_grad():
        first = next(model.network_.parameters())
        first[0] = torch.inf
    with pytest.raises(ValueError, match=r"is NaN|changed after its fit"):
        certify(model, X)
    model = load(tmp_path / "model.certus")
    model.held_out_ = np.array([10**6])
    with pytest.raises(ValueError, match="beyond X"):
        certify(model, X)


class _StopAfter(SamplePictures):
    """Stops a fit after some epochs, or interrupts it."""

    def __init__(self, epochs: int, interrupt: bool = False) -> None:
        super().__init__(lambda sheet: None)
        self.epochs, self.interrupt = epochs, interrupt

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> bool:
        history = getattr(fitted_estimator, "history_", None)
        done = history is not None and len(history.get("steps", ())) >= self.epochs
        if done and self.interrupt and context.task_name == "step":
            raise KeyboardInterrupt
        return context.task_name == "step" and done


def test_pictures_of_any_layout_are_read(tmp_path) -> None:
    grey = RNG.normal(size=(5, 4, 6))
    assert picture_sheet(grey, n_columns=2).shape == (14, 13)
    assert picture_sheet(grey[..., None]).shape == picture_sheet(grey).shape
    assert picture_sheet(RNG.random((2, 3, 4, 5))).shape == (4, 11, 3)
    for value, colour in ((1.0, 0), (np.nan, 0), (-np.inf, 0), (np.inf, 255)):
        sheet = picture_sheet(np.full((2, 3, 3), value))
        assert set(np.unique(sheet)) == {colour, 128}  # 128: the lines between
    part = np.array([[[0.0, np.nan], [np.inf, 1.0]]])
    np.testing.assert_array_equal(picture_sheet(part), [[0, 0], [255, 255]])
    with pytest.raises(ValueError, match="must have the shape"):
        picture_sheet(np.zeros(4))
    X = RNG.random((30, 4, 4))
    model = Diffusion(n_steps=2, **TINY)
    model.set_callbacks(SamplePictures(tmp_path / "seen", n_samples=4)).fit(X)
    files = sorted((tmp_path / "seen").iterdir())
    assert files and files[0].name.startswith("step_") and files[0].suffix == ".png"
    # The pictures that were written can be learned from again, beside others.
    Image.fromarray(picture_sheet(X[:4])).save(tmp_path / "rows.png")
    again = [str(files[-1])] * 6 + [str(tmp_path / "rows.png")] * 6
    again = Diffusion(n_steps=2, **TINY).fit(again)
    assert again.sample(1, random_state=0).shape == (1, 9, 9)


def test_distances_of_features() -> None:
    X, Y = RNG.normal(size=(400, 3)), RNG.normal(size=(300, 3)) + np.eye(3)[0] * 2
    assert frechet_distance(X, X) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(X, Y) == pytest.approx(4, abs=0.8)
    assert frechet_distance(X, Y, features=lambda R: R[:, 1:]) < 0.3
    # Normal laws of spreads 1 and 3: (3 − 1)² for each column.
    assert frechet_distance(X, 3 * X) == pytest.approx(12, rel=0.2)
    with pytest.raises(ValueError, match="two rows or more"):
        frechet_distance(X[:1], Y)
