"""Probabilities that a transformer gives, window by window.

Which window scores a token is decided in :mod:`certus.language.windows`. Scores become
probabilities in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.language.windows import scoring_windows
from certus.neural_network.wrapping import evaluating
from certus.typing import Array

#: Scores that are held at a time.
HELD = 1 << 23


@torch.no_grad()
def next_probs(module: Any, seen: Array) -> Array:
    """Probabilities of the token behind the last one of a window."""
    device = next(module.parameters()).device
    ids = torch.from_numpy(np.asarray(seen, np.int64)).to(device)
    with evaluating(module):
        states, _ = module.states(ids[None])
        scores = module.scores(states[0, -1]).double()
    return torch.softmax(scores, dim=0).cpu().numpy()


@torch.no_grad()
def log_probs(module: Any, stream: Array) -> Array:
    """Give log p of each token of a stream but the first, in float64.

    Parameters
    ----------
    module : Transformer
        A decoder.
    stream : int array of shape (n + 1,)
        The end-of-text token, and the tokens behind it.
    """
    n, context = len(stream) - 1, module.config["context"]
    device = next(module.parameters()).device
    ids = torch.from_numpy(np.asarray(stream, np.int64)).to(device)
    out = np.empty(n)
    together = max(1, HELD // (context * module.config["n_tokens"]))
    with evaluating(module):
        waiting: list[Any] = []
        for window in scoring_windows(n, context):
            alike = not waiting or (
                window.end - window.begin == waiting[0].end - waiting[0].begin
                and window.scored - window.begin == waiting[0].scored - waiting[0].begin
            )
            if not alike or len(waiting) == together:
                _score(module, ids, waiting, out)
                waiting = []
            waiting.append(window)
        if waiting:
            _score(module, ids, waiting, out)
    return out


def _score(module: Any, ids: Tensor, windows: list[Any], out: Array) -> None:
    """Score windows of one length that begin to count at the same place."""
    seen = torch.stack([ids[w.begin : w.end] for w in windows])
    wanted = torch.stack([ids[w.scored + 1 : w.end + 1] for w in windows])
    skip = windows[0].scored - windows[0].begin
    states, _ = module.states(seen)
    scores = module.scores(states[:, skip:]).double()
    found = torch.log_softmax(scores, dim=2).gather(2, wanted[..., None])[..., 0]
    for window, row in zip(windows, found.cpu().numpy()):
        out[window.scored : window.end] = row
