"""Diffusion models against closed forms, moments and planted faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_digits

from certus import certify, load
from certus.certificate import Strength
from certus.generative import (
    Diffusion,
    GaussianMixtureScore,
    NoisedMixture,
    integrate_flow,
    probability_flow,
    variance_exploding,
)
from certus.neural_network.modules import Denoiser, UNet
from certus.neural_network.modules.denoiser import LEAST, MOST, NOISINGS
from certus.verify import denoising
from certus.verify.denoisers import (
    PlainDenoiser,
    Statement,
    best_linear,
    memoriser,
)
from certus.verify.perceptrons import step_of_levels
from certus.verify.unet import PlainUNet

COVARIANCE = np.array([[1.0, 0.8], [0.8, 1.0]])
SMALL = {"hidden_layer_sizes": (32, 32), "random_state": 0}


def normal_rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).multivariate_normal([3, -1], COVARIANCE, n)


@pytest.fixture(scope="module", params=NOISINGS)
def gaussian(request: pytest.FixtureRequest) -> Diffusion:
    """A model of correlated normal rows, by each noising."""
    return Diffusion(noising=request.param, max_iter=600, **SMALL).fit(
        normal_rows(1000)
    )


@pytest.fixture(scope="module")
def classes() -> Diffusion:
    """A model of three overlapping classes in the plane."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 1200)
    X = rng.normal(size=(1200, 2)) + CENTRES[y]
    return Diffusion(max_iter=700, **SMALL).fit(X, np.array(["a", "b", "c"])[y])


CENTRES = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])


class ExactNetwork(torch.nn.Module):
    """The best denoiser of a mixture in closed form, x + σ²·score."""

    def __init__(self, mixture: NoisedMixture) -> None:
        super().__init__()
        self.config = {"hidden": (8,), "n_classes": 0}
        self.mixture = mixture

    def forward(self, x: torch.Tensor, sigma: torch.Tensor, c: object = None):
        w, m = (torch.from_numpy(a) for a in (self.mixture.weights, self.mixture.means))
        v = 0.1 + sigma[:, None].square()
        squares = (x[:, None] - m).square().sum(dim=2)
        r = torch.softmax(w.log() - 0.5 * squares / v, dim=1)
        return x + sigma[:, None].square() * (r @ m - x) / v


def exact_model() -> tuple[Diffusion, NoisedMixture]:
    """A model whose denoiser is exact: what it draws and scores is its samplers'."""
    means = np.array([[-1.4, 0.7], [0.6, -0.3]])  # their mean is zero
    mixture = NoisedMixture([0.3, 0.7], means, [0.1, 0.1])
    model = Diffusion(n_steps=200)
    model.network_, model.shape_ = ExactNetwork(mixture), (2,)
    model.loc_, model.scale_ = np.zeros(2), np.ones(2)
    model.varies_, model.n_features_in_ = np.ones(2, dtype=bool), 2
    return model, mixture


def test_the_denoiser_comes_near_the_exact_one(gaussian: Diffusion) -> None:
    X, S = normal_rows(500, 7), gaussian.scale_
    for sigma in (0.3, 1.0, 3.0):
        noise = np.random.default_rng(2).normal(size=X.shape)
        noisy = X + sigma * S * noise
        gain = COVARIANCE @ np.linalg.inv(COVARIANCE + sigma**2 * np.diag(S**2))
        exact = np.array([3, -1]) + (noisy - [3, -1]) @ gain.T
        off = np.square(gaussian.denoise(noisy, sigma) - exact).mean()
        assert off < 0.06 * np.square(exact - X).mean()


def test_log_densities_come_near_the_truth(gaussian: Diffusion) -> None:
    X = normal_rows(200, 8)
    truth = multivariate_normal([3, -1], COVARIANCE).logpdf(X)
    scores = gaussian.score_samples(X)
    assert abs((scores - truth).mean()) < 0.1
    assert np.abs(scores - truth).mean() < 0.25
    # The verifier's own flow, whose derivatives are its own, agrees.
    assert "off by at most" in gaussian.certificate_["flow_likelihood"].detail
    assert gaussian.certificate_["denoiser_agrees"].met


def test_samples_have_the_moments_of_rows(gaussian: Diffusion) -> None:
    made = gaussian.sample(3000, random_state=0)
    np.testing.assert_allclose(made.mean(axis=0), [3, -1], atol=0.15)
    np.testing.assert_allclose(np.cov(made.T), COVARIANCE, atol=0.2)


@pytest.mark.parametrize("sampler", ["heun", "ddim", "ddpm"])
def test_samplers_draw_a_mixture(sampler: str) -> None:
    model, mixture = exact_model()
    made = model.set_params(sampler=sampler).sample(4000, random_state=0)
    mean = mixture.weights @ mixture.means
    np.testing.assert_allclose(made.mean(axis=0), mean, atol=0.06)
    away = mixture.means - mean
    cov = 0.1 * np.eye(2) + (mixture.weights * away.T) @ away
    np.testing.assert_allclose(np.cov(made.T), cov, atol=0.06)
    assert (made[:, 0] < 0).mean() == pytest.approx(0.3, abs=0.03)


@pytest.mark.catalog("GEN-56")
def test_ddim_is_the_probability_flow() -> None:
    model, mixture = exact_model()
    start = np.random.default_rng(3).standard_normal((20, 2)) * math.sqrt(1 + MOST**2)
    sde = variance_exploding(low=LEAST, high=MOST)
    flow = probability_flow(sde, GaussianMixtureScore(mixture, sde))
    truth = integrate_flow(flow, start, times=(1.0, 0.0), n_steps=400).X
    apart = []
    for sampler, n_steps in (("ddim", 200), ("ddim", 400), ("heun", 200)):
        model.set_params(sampler=sampler, n_steps=n_steps)
        made = model.sample(20, random_state=np.random.default_rng(3))
        apart.append(np.abs(made - truth).max())
    # Euler's error falls with the step, Heun's is far below it.
    assert apart[1] < 0.6 * apart[0] < 0.1
    assert apart[2] < 0.2 * apart[1] + 2 * LEAST


def test_the_flow_of_an_exact_denoiser_gives_the_density() -> None:
    model, mixture = exact_model()
    X = mixture.sample(50, random_state=0)
    model.set_params(n_steps=100)
    np.testing.assert_allclose(
        model.score_samples(X), mixture.log_density(X, std=LEAST), atol=1e-3
    )


def test_classes_are_drawn_as_asked(classes: Diffusion) -> None:
    for label, centre in zip("abc", CENTRES):
        made, y = classes.sample(800, y=label, random_state=1)
        assert (y == label).all()
        np.testing.assert_allclose(made.mean(axis=0), centre, atol=0.3)
    made, y = classes.sample(900, random_state=2)
    assert set(y) == set("abc")
    X = np.array([[0.0, 0.0], [20.0, 20.0]])
    truth = np.logaddexp.reduce(
        [multivariate_normal(m).logpdf(X[0]) - math.log(3) for m in CENTRES]
    )
    scores = classes.score_samples(X)
    assert scores[0] == pytest.approx(truth, abs=0.5) and scores[1] < scores[0] - 20


def test_guidance_sharpens(classes: Diffusion) -> None:
    """Under twice the pull of the class, fewer rows could be of another one."""

    def doubt(X: np.ndarray) -> float:
        logs = -0.5 * np.square(X[:, None] - CENTRES).sum(axis=2)
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        return float(1 - (p[:, 1] / p.sum(axis=1)).mean())

    plain, _ = classes.sample(800, y="b", random_state=1)
    strong, _ = classes.set_params(guidance=2.0).sample(800, y="b", random_state=1)
    weak, _ = classes.set_params(guidance=0.0).sample(800, y="b", random_state=1)
    classes.set_params(guidance=1.0)
    assert doubt(strong) < 0.5 * doubt(plain) < 0.5 * doubt(weak)
    np.testing.assert_allclose(weak.mean(axis=0), CENTRES.mean(axis=0), atol=0.4)
    with pytest.raises(ValueError, match="guidance follows classes"):
        Diffusion(guidance=2.0).fit(normal_rows(50))


def test_nothing_denoises_training_rows_better_than_the_memoriser() -> None:
    rng = np.random.default_rng(0)
    known = rng.normal(size=(30, 3))
    for sigma in (0.2, 1.0):
        x0 = np.repeat(known, 2000, axis=0)
        x = x0 + sigma * rng.standard_normal(x0.shape)
        errors = [
            np.square(D - x0).sum(axis=1).mean()
            for D in (memoriser(known, x, sigma), best_linear(known, sigma)(x))
        ]
        assert errors[0] < errors[1]
        exact = NoisedMixture(np.full(30, 1 / 30), known)
        np.testing.assert_allclose(
            memoriser(known, x[:50], sigma),
            x[:50] + sigma**2 * exact.score(x[:50], std=sigma),
            atol=1e-9,
        )
        # The line is the best of its kind: moving it in any way adds to the error.
        line = best_linear(known, sigma)
        moved = np.square(line(1.05 * x) - x0).sum(axis=1).mean()
        assert errors[1] < moved


def test_a_copier_is_named_and_a_model_that_learned_is_not(monkeypatch) -> None:
    X = load_digits().images[:400] / 16
    model = Diffusion(hidden_layer_sizes=(64, 64), max_iter=300, random_state=0).fit(X)
    claim = model.certificate_["denoising"]
    assert claim.strength is Strength.MEASURED and claim.value < 0.5
    assert claim.detail.startswith("generalises")
    errors = model.certificate_["denoising_errors"]
    assert errors.strength is Strength.STATISTICAL and errors.value < 0
    assert errors.detail.startswith("below the memoriser at σ = 0.05")
    assert model.certificate_["memoriser_floor"].met
    Z = (X.reshape(400, -1) - model.loc_)[:, model.varies_]
    Z /= model.scale_[model.varies_]
    known = np.delete(Z, model.held_out_, axis=0)
    with monkeypatch.context() as changed:
        changed.setattr(denoising, "noise_bits", lambda *given: None)
        changed.setattr(
            PlainDenoiser, "values", lambda self, x, s, c: memoriser(known, x, s)
        )
        found = certify(model, X)
        assert found["denoising"].detail.startswith("copies")
        assert found["denoising"].value == pytest.approx(1.0, abs=0.05)
        assert found["memoriser_floor"].met
        # A floor that is computed wrongly is seen: the copier is below it.
        wrong = lambda k, x, s, reach: memoriser(k, x, 3 * s)  # noqa: E731
        changed.setattr(denoising, "memoriser", wrong)
        assert certify(model, X)["memoriser_floor"].met is False


def test_new_rows_are_judged_with_a_level(gaussian: Diffusion) -> None:
    claim = certify(gaussian, normal_rows(1500, 9))["denoising"]
    assert claim.strength is Strength.STATISTICAL and claim.delta == 0.05
    assert claim.value < 1.0
    one = certify(gaussian, normal_rows(1, 9))["denoising"]
    assert one.value == 10.0 and "not shown" in one.detail


def test_faults_are_found(gaussian: Diffusion, tmp_path, monkeypatch) -> None:
    X, whole = normal_rows(1000), Diffusion.denoise
    with monkeypatch.context() as changed:
        changed.setattr(Diffusion, "denoise", lambda *given: whole(*given) * (1 + 1e-4))
        assert certify(gaussian, X)["denoiser_agrees"].met is False
    gaussian.save(tmp_path / "diffusion.certus")
    again = load(tmp_path / "diffusion.certus")
    np.testing.assert_array_equal(
        again.sample(5, random_state=0), gaussian.sample(5, random_state=0)
    )
    again.network_.layers[0] = torch.nn.Linear(3, 3)
    with pytest.raises(ValueError, match=r"do not fit|other shapes"):
        certify(again, X)


def test_images_of_odd_sizes() -> None:
    X = load_digits().images[:12, :5, 2:5]
    model = Diffusion(
        network="unet", hidden_layer_sizes=(4, 8), max_iter=3, random_state=0
    ).fit(X, load_digits().target[:12])
    made, _ = model.set_params(n_steps=3).sample(2, random_state=0)
    assert made.shape == (2, 5, 3) and np.isfinite(made).all()
    claim = model.certificate_["denoiser_agrees"]
    assert claim.strength in (Strength.MEASURED, Strength.PROVED)
    assert claim.value < 1e-5
    with pytest.raises(ValueError, match="needs images"):
        Diffusion(network="unet", max_iter=1).fit(normal_rows(50))
    wide = np.random.default_rng(0).normal(size=(30, 130))
    model = Diffusion(hidden_layer_sizes=(4,), max_iter=1).fit(wide)
    with pytest.raises(ValueError, match="at most 128 columns"):
        model.score_samples(wide)


def test_a_unet_learns_pictures() -> None:
    """A bright spot in one of the corners: rows are near one of four pictures."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300)
    pictures = np.zeros((4, 6, 6))
    for k, (i, j) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        pictures[k, i : i + 2, j : j + 2] = 1.0
    X = pictures[y] + 0.05 * rng.normal(size=(300, 6, 6))
    model = Diffusion(
        network="unet",
        hidden_layer_sizes=(8, 16),
        learning_rate=1e-2,
        batch_size=64,
        max_iter=300,
        random_state=0,
    ).fit(X, y)
    made, labels = model.set_params(n_steps=12).sample(40, random_state=1)
    apart = np.square(made[:, None] - pictures).sum(axis=(2, 3))
    assert (apart.argmin(axis=1) == labels).mean() > 0.9


def test_modules_keep_their_config() -> None:
    net = Denoiser(4, [8], noising="flow_matching", n_classes=3)
    assert Denoiser(**net.config).config == net.config
    unet = UNet((3, 5, 4), [4, 8], channels_first=False)
    assert UNet(**unet.config).config == unet.config


@pytest.mark.parametrize("noising", NOISINGS)
def test_the_verifiers_unet_is_torchs(noising: str) -> None:
    """Channels first and last, odd sizes, classes, and its balls hold the truth."""
    rng = np.random.default_rng(0)
    for first, n_classes in ((True, 0), (False, 3)):
        net = UNet(
            (2, 7, 5),
            (4, 6),
            noising=noising,
            n_classes=n_classes,
            channels_first=first,
        ).double()
        with torch.random.fork_rng(), torch.no_grad():
            torch.default_generator.manual_seed(0)
            for p in net.parameters():  # those that begin at zero as well
                p.add_(0.05 * torch.randn_like(p))
        weights = {k: v.detach().numpy() for k, v in net.state_dict().items()}
        plain = PlainUNet(Statement(net.config, weights))
        x, sigma = rng.normal(size=(4, 70)), np.array([0.01, 0.4, 2.0, 30.0])
        codes = None if not n_classes else np.array([0, 1, 2, 1])
        with torch.no_grad():
            c = None if codes is None else torch.as_tensor(codes)
            truth = net(torch.from_numpy(x), torch.from_numpy(sigma), c).numpy()
        np.testing.assert_allclose(plain.values(x, sigma, codes), truth, atol=1e-9)
        held = plain.denoise(x, sigma, codes)
        assert (np.abs(held.x - truth) <= held.r).all()


def test_bits_of_a_trained_model() -> None:
    """No model needs fewer bits than the entropy; one that learned needs few more."""
    rng = np.random.default_rng(0)
    X, new = (np.round(3 * rng.normal(size=(1000, 3))) for _ in range(2))
    model = Diffusion(max_iter=200, **SMALL).fit(X)
    p = np.diff(norm.cdf(np.arange(-15, 17) - 0.5, scale=3))
    entropy = -(p * np.log2(p)).sum()
    value = certify(model, new)["bits_per_dimension"].value
    assert entropy < value < entropy + 0.5
    held = model.certificate_["bits_per_dimension"]
    assert held.strength is Strength.MEASURED and abs(held.value - value) < 0.7


def test_levels_are_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 17, (100, 4)).astype(float)
    assert step_of_levels(X) == 1.0 and step_of_levels(X / 2) == 0.5
    assert step_of_levels(X / 255) == pytest.approx(1 / 255)
    assert step_of_levels(rng.normal(size=(50, 2))) is None
    assert step_of_levels(np.ones((5, 2))) is None


def test_gaps_follow_the_rest_of_the_row(gaussian: Diffusion) -> None:
    X = normal_rows(60, 11)
    holed = X.copy()
    holed[:, 1] = np.nan
    filled = gaussian.impute(holed, random_state=0)
    np.testing.assert_array_equal(filled[:, 0], X[:, 0])
    truth = -1 + 0.8 * (X[:, 0] - 3)
    assert np.sqrt(np.square(filled[:, 1] - truth).mean()) < 0.35
