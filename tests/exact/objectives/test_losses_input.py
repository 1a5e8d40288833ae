"""Losses as public objects: what is refused, what overflows, and the figure."""

from typing import Any

import numpy as np
import pytest

from certus import objectives
from certus.objectives import terms as t
from certus.verify import check

EVERY = [
    t.Squared(),
    t.Absolute(),
    t.Huber(0.7),
    t.Tukey(1.3),
    t.Quantile(0.3),
    t.EpsilonInsensitive(0.4),
    t.SquaredEpsilonInsensitive(0.4),
    t.Logistic(),
    t.Hinge(),
    t.Hinge(0.0),
    t.SquaredHinge(),
    t.ModifiedHuber(),
    t.ExponentialMargin(),
    t.ZeroOne(),
    t.Binomial(4),
    t.Exponential(),
    t.Poisson(),
    t.Tweedie(1.5),
    t.Softmax(3),
]


# -- input that is refused --------------------------------------------------------


@pytest.mark.parametrize(
    "loss, y, z, message",
    [
        (t.Logistic(), [0, 1], 0.0, "must be \\+1 or −1"),
        (t.Hinge(), 2.0, 0.0, "got 2"),
        (t.Poisson(), -1.0, 0.0, "counts"),
        (t.Tweedie(1.5), -1.0, 0.0, "0 or more"),
        (t.Tweedie(2.0), 1.0, 0.0, "between 1 and 2"),
        (t.Exponential(), 0.0, 0.0, "positive"),
        (t.Binomial(3), 4.0, 0.0, "trials = 3"),
        (t.Squared(), np.nan, 0.0, "finite"),
        (t.Softmax(3), [0], [[0.0, 1.0]], "shape \\(..., 3\\)"),
        (t.Softmax(2), [2], [[0.0, 1.0]], "from 0 to 1"),
        (t.Softmax(2), [0.5], [[0.0, 1.0]], "integers"),
        (t.Softmax(2), [[0.9, 0.9]], [[0.0, 1.0]], "sum to 1"),
        (t.Huber(0.0), 0.0, 0.0, "threshold of Huber must be positive"),
        (t.Quantile(1.0), 0.0, 0.0, "between 0 and 1"),
        (t.EpsilonInsensitive(-1.0), 0.0, 0.0, "0 or more"),
        (t.Hinge(np.nan), 1.0, 0.0, "finite"),
    ],
)
def test_targets_and_parameters_are_checked(
    loss: Any, y: Any, z: Any, message: str
) -> None:
    for function in (objectives.value, objectives.gradient, objectives.curvature):
        with pytest.raises(ValueError, match=message):
            function(loss, y, z)


def test_only_losses_are_taken() -> None:
    for wrong in (t.L1(0.1), "hinge", t.Hinge):
        with pytest.raises(TypeError, match="is not a loss"):
            objectives.value(wrong, 1.0, 0.0)
        with pytest.raises(TypeError, match="is not a loss"):
            objectives.smoothness(wrong)


def test_overflow_is_infinite_and_silent() -> None:
    assert objectives.value(t.Poisson(), 1.0, 1e4) == np.inf
    assert objectives.value(t.ExponentialMargin(), -1, 1e4) == np.inf
    assert objectives.value(t.Softmax(2), 0, [-1e300, 1e300]) > 1e300


def test_the_zero_one_loss_is_not_certified() -> None:
    with pytest.raises(ValueError, match="0-1 loss cannot be certified"):
        check(np.zeros(2), None, (t.ZeroOne(), t.L2(1.0)), np.eye(2), [0, 1])


# -- the figure -------------------------------------------------------------------


@pytest.fixture
def pyplot() -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_any_set_is_drawn(pyplot: Any) -> None:
    figure = objectives.plot(EVERY, ["value", "gradient", "curvature"])
    assert len(figure.axes) == 9
    legends = [ax.get_legend().get_texts() for ax in figure.axes[:3]]
    texts = [text.get_text() for group in legends for text in group]
    assert len(texts) == len(set(texts)) == len(EVERY)
    figure.canvas.draw()


def test_the_plotted_curve_is_the_loss(pyplot: Any) -> None:
    figure = objectives.plot(
        [t.Huber(1.0), t.Hinge()], ["value", "gradient"], reach=2.0
    )
    residual, margin, slope, _ = figure.axes
    x, y = residual.lines[0].get_data()
    assert x[0] == -2.0 and x[-1] == 2.0
    np.testing.assert_allclose(y, objectives.value(t.Huber(1.0), x, 0.0))
    x, y = margin.lines[0].get_data()
    np.testing.assert_allclose(y, objectives.value(t.Hinge(), 1, x))
    x, y = slope.lines[0].get_data()
    np.testing.assert_allclose(y, np.clip(x, -1, 1))  # rises with the residual


def test_steps_are_drawn_open(pyplot: Any) -> None:
    figure = objectives.plot(t.ZeroOne())
    x, y = figure.axes[0].lines[0].get_data()
    assert np.isnan(y).sum() == 1 and abs(x[np.isnan(y)][0]) < 0.01
    assert (
        np.isnan(objectives.plot(t.Logistic()).axes[0].lines[0].get_ydata()).sum() == 0
    )


def test_drawing_into_a_figure_and_its_errors(pyplot: Any) -> None:
    mine = pyplot.figure()
    assert objectives.plot([t.Squared()], figure=mine) is mine
    for wrong, message in [
        ({"losses": []}, "nothing to draw"),
        ({"losses": t.Squared(), "what": "slope"}, "must be one of value"),
        ({"losses": t.Squared(), "reach": 0.0}, "reach"),
    ]:
        with pytest.raises(ValueError, match=message):
            objectives.plot(**wrong)
    with pytest.raises(TypeError, match="is not a loss"):
        objectives.plot(t.L1(1.0))
