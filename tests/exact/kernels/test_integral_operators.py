"""Integral operators, Fourier transforms and convolutions of functions, on a grid.

A kernel matrix is an integral operator, a Toeplitz matrix a convolution, once the grid
is fine enough; closed forms are the reference.
"""

import numpy as np
import pytest

from certus.kernels import gram
from certus.neural_network.modules import toeplitz_matrix
from certus.objectives import Gaussian, OwnKernel


def bell(t, variance=1.0):
    return np.exp(-(t**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


@pytest.mark.catalog("CNN-01")
def test_a_kernel_matrix_is_an_integral_operator():
    """∫ k(u, t) f(t) dt by quadrature: gram(k, u, t) @ f · dt."""
    t, u = np.linspace(-12, 12, 2001)[:, None], np.linspace(-3, 3, 13)[:, None]
    dt = t[1, 0] - t[0, 0]
    # A Gaussian kernel smooths: variances add, here 1/(2·0.5) and 1.
    smoothed = gram(Gaussian(0.5), u, t) @ bell(t[:, 0]) * dt
    known = np.sqrt(2 * np.pi) * bell(u[:, 0], 2.0)
    np.testing.assert_allclose(smoothed, known, atol=1e-12)
    assert np.trace(gram(Gaussian(0.5), t) * dt) == pytest.approx(24, rel=1e-3)


@pytest.mark.catalog("CNN-01")
def test_a_custom_kernel_solves_a_differential_equation():
    """∫ min(u, t) f(t) dt is the g with −g″ = f, g(0) = 0 and g′(1) = 0."""
    t = np.linspace(0, 1, 2001)
    share = np.full(len(t), t[1] - t[0])
    share[[0, -1]] /= 2
    kernel = OwnKernel(lambda X, Y: np.minimum(X, Y.T))
    g = gram(kernel, t[:, None]) @ (share * np.sin(t))
    np.testing.assert_allclose(g, np.sin(t) - t * np.cos(1), atol=1e-6)


@pytest.mark.catalog("CNN-02")
def test_the_fourier_transform_turns_convolution_into_products():
    rng = np.random.default_rng(0)
    x, h, n = rng.normal(size=16), rng.normal(size=16), np.arange(16)
    D = np.exp(-2j * np.pi * np.outer(n, n) / 16)
    T = toeplitz_matrix(h, 16, "periodic")
    np.testing.assert_allclose(D @ T @ x, (D @ x) * np.fft.fft(h), atol=1e-12)
    # So waves are its eigenvectors, and the transform of h its eigenvalues.
    np.testing.assert_allclose(T @ D.conj(), D.conj() * np.fft.fft(h), atol=1e-12)


@pytest.mark.catalog("CNN-02")
def test_convolving_with_a_gaussian_damps_waves_by_a_gaussian():
    """exp(−πt²) is its own transform: a wave of frequency u shrinks by exp(−πu²)."""
    n, length = 400, 20.0
    dt = length / n
    t = dt * np.minimum(np.arange(n), n - np.arange(n))  # round the circle
    T = toeplitz_matrix(np.exp(-np.pi * t**2) * dt, n, "periodic")
    for turns in (0, 3, 10, 20, 40):
        u = turns / length
        wave = np.cos(2 * np.pi * u * dt * np.arange(n))
        np.testing.assert_allclose(T @ wave, np.exp(-np.pi * u**2) * wave, atol=1e-12)


@pytest.mark.catalog("CNN-02", "CNN-03")
def test_a_one_sided_function_against_a_gaussian():
    """The transform of e⁻ᵗ, t > 0, is 1/(1 + 2πiu); that of a Gaussian a Gaussian."""
    t = np.linspace(-12, 30, 2101)
    dt = t[1] - t[0]
    half = np.where(t > 0, 1.0, 0.5 * (np.abs(t) < dt / 2))  # 1/2 in the jump
    f, h = np.exp(-np.abs(t)) * half, bell(t, 0.25)
    whole = toeplitz_matrix(h, len(t), "full") @ f * dt
    place, u = 2 * t[0] + dt * np.arange(2 * len(t) - 1), np.linspace(-1, 1, 9)
    wave = np.exp(-2j * np.pi * np.outer(u, place))
    product = np.exp(-((np.pi * u) ** 2) / 2) / (1 + 2j * np.pi * u)
    np.testing.assert_allclose(wave @ whole * dt, product, atol=1e-3)


@pytest.mark.catalog("CNN-03")
def test_variances_of_gaussians_add_and_order_does_not_matter():
    t = np.linspace(-16, 16, 801)
    dt = t[1] - t[0]
    f, h = bell(t - 1, 1.0), bell(t + 3, 3.0)
    place = 2 * t[0] + dt * np.arange(2 * len(t) - 1)
    together = toeplitz_matrix(h, len(t), "full") @ f * dt
    np.testing.assert_allclose(together, bell(place + 2, 4.0), atol=1e-12)
    other = toeplitz_matrix(f, len(t), "full") @ h * dt
    np.testing.assert_allclose(other, together, atol=1e-14)
