"""Random numbers of torch for one fit at a time.

Dropout and first weights are drawn from torch's global generator, which all threads of
a process share: two fits at once would draw each other's numbers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

_lock = threading.RLock()


def _unlock() -> None:
    """A forked process does not wait for threads that were left behind."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


@contextmanager
def own_generator(devices: Sequence[int] = ()) -> Iterator[None]:
    """Torch's generator for this thread alone; it is put back as it was."""
    with _lock, torch.random.fork_rng(devices=list(devices)):
        yield
