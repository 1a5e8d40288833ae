"""What ``certus lm fit`` shows while a model learns.

On a terminal, a bar says how far it is and how many bits per byte it needs; what stays
on the screen are the baselines, when the model gets below one of them, and a few of
its samples. In a pipe there is a line for each stretch of steps.
"""

from __future__ import annotations

import sys
from typing import Any

from certus.cli.screen import StepOpener, err, quote, remark
from certus.language import TrainingProgress

#: Shares of the time between two samples on a terminal, and their bytes by default.
BETWEEN, SAMPLE = 0.1, 120


class ShownTraining(TrainingProgress):
    """Callback that draws the training of a language model.

    Parameters
    ----------
    step : callable
        Names what is being done, and the share that is done: of :func:`progress`.
    max_time : float
        Seconds that the training takes.
    sample : int, optional
        Length of the samples that are shown, in bytes; 0 for none. By default 120 on a
        terminal and 0 elsewhere.
    """

    def __init__(
        self, step: StepOpener, max_time: float, sample: int | None = None
    ) -> None:
        self.live = err().is_terminal and not err().is_dumb_terminal
        usual = SAMPLE if self.live else 0
        super().__init__(remark, sample=usual if sample is None else sample)
        self.step, self.max_time = step, max_time
        self.share, self.sampled, self.passed = 0.0, 0.0, set[str]()

    def teardown(self, estimator: Any, context: Any) -> None:
        """What is left after training is the check."""
        self.step("checking", 1.0)

    def _tell(self, history: dict[str, list[float]], known: dict[str, float]) -> None:
        seconds = history["seconds"][-1]
        self.share = min(1.0, seconds / self.max_time)
        if not self.live or "validation_bits" not in history:
            self.step("learning", self.share, self.max_time - seconds)
            super()._tell(history, known)
            sys.stderr.flush()
            return
        bits = history["validation_bits"][-1]
        if known and not self._named:
            others = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
            remark(f"bits per byte without a network: {others}")
        self._named = True
        done = f"step {history['steps'][-1]:,.0f}: {bits:.3f} bits per byte"
        self.step(done, self.share, self.max_time - seconds)
        below = [name for name, value in known.items() if bits < value]
        new = [name for name in below if name not in self.passed]
        if new:
            names = " and ".join(new)
            remark(f"below {names} after {seconds:.0f} s: {bits:.3f} bits per byte")
        self.passed.update(new)

    def _tell_sample(self, model: Any) -> None:
        if not self.live or self.share >= self.sampled:
            self.sampled = self.share + BETWEEN
            if self.live:
                remark("it writes now:")
            quote(self._sample_of(model))
