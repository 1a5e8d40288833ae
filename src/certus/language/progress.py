"""A line for each stretch of training: bits per byte beside what simple means need."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from certus.typing import Fit
from certus.wording import clean

__all__ = ["TrainingProgress"]


class TrainingProgress:
    """Callback that shows how a language model learns; for ``set_callbacks``.

    Each line has the steps and seconds so far and the bits for each byte of held-out
    text. The first one also has those of an n-gram model and of compressors that were
    given the same training text; later ones name those that the model is below.

    Parameters
    ----------
    write : callable, optional
        Is called with each line; by default it goes to standard error.
    sample : int, default=0
        How many bytes of text the model writes after each line; 0 for none.

    Examples
    --------
    >>> from certus.language import LanguageModel, TrainingProgress
    >>> lines = []
    >>> model = LanguageModel(n_layers=1, width=16, context=16, max_iter=20)
    >>> model = model.set_callbacks(TrainingProgress(lines.append))
    >>> model = model.fit("the cat sat on the mat. " * 60)
    >>> "bits per byte (5-gram" in lines[0]
    True
    """

    def __init__(
        self, write: Callable[[str], Any] | None = None, *, sample: int = 0
    ) -> None:
        self.write, self.sample, self._named = write, sample, False

    def setup(self, estimator: Fit, context: Any) -> None:
        """A new fit names its baselines again."""
        self._named = False

    def teardown(self, estimator: Fit, context: Any) -> None:
        """Nothing is left after a fit."""

    def on_fit_task_begin(self, estimator: Fit, context: Any) -> None:
        """Nothing is shown before a stretch."""

    def on_fit_task_end(
        self, estimator: Fit, context: Any, *, fitted_estimator: Any = None
    ) -> bool:
        """Show a line; training goes on."""
        history = getattr(fitted_estimator, "history_", None)
        if context.task_name == "step" and history and history.get("steps"):
            self._tell(history, fitted_estimator.baselines_)
            if self.sample and hasattr(fitted_estimator, "generate"):
                self._tell_sample(fitted_estimator)
        return False

    def _tell(self, history: dict[str, list[float]], known: dict[str, float]) -> None:
        """Show how far the training is."""
        self._say(progress_line(history, known, named=self._named))
        self._named = True

    def _tell_sample(self, model: Fit) -> None:
        """Show what the model writes."""
        self._say("  " + self._sample_of(model).replace("\n", "\n  "))

    def _sample_of(self, model: Fit) -> str:
        """What the model writes, ``sample`` bytes: a token has one or more."""
        found = model.generate(max_tokens=self.sample).data[: self.sample]
        return clean(found.decode("utf-8", "replace"))

    def _say(self, line: str) -> None:
        if self.write is None:
            sys.stderr.write(line + "\n")
        else:
            self.write(line)


def progress_line(
    history: dict[str, list[float]], known: dict[str, float], *, named: bool = False
) -> str:
    """The last entries of a history in one line, beside the baselines.

    Examples
    --------
    >>> history = {"steps": [200], "seconds": [31.0], "validation_bits": [2.365]}
    >>> progress_line(history, {"5-gram": 2.02, "xz": 2.48})
    'step 200, 31 s: 2.365 bits per byte (5-gram 2.02, xz 2.48)'
    >>> progress_line(history, {"5-gram": 2.02, "xz": 2.48}, named=True)
    'step 200, 31 s: 2.365 bits per byte, below xz'
    """
    line = f"step {history['steps'][-1]:,.0f}, {history['seconds'][-1]:.0f} s: "
    if "reward" in history:
        kl = history["kl"][-1]
        return line + f"reward {history['reward'][-1]:.3f}, {kl:.3f} nats from the base"
    if "validation_bits" not in history:
        return line + f"loss {history['loss'][-1]:.3f} nats per token"
    bits = history["validation_bits"][-1]
    line += f"{bits:.3f} bits per byte"
    if named:
        below = ", ".join(name for name, value in known.items() if bits < value)
        return f"{line}, below {below}" if below else line
    others = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
    return f"{line} ({others})" if others else line
