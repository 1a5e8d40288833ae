"""A small language model without an estimator: a network, a tokeniser, and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from certus.language import ByteTokenizer
from certus.language.decoding.writing import Writer
from certus.neural_network.modules import Transformer

END = "<|end|>"


class SmallModel:
    """What the verifier asks of a language model, computed with PyTorch."""

    def __init__(
        self, tokenizer: Any = None, seed: int = 0, size: float = 0.1, **config: Any
    ) -> None:
        self.tokenizer_ = tokenizer or ByteTokenizer(special_tokens=(END,))
        words = {"n_layers": 2, "width": 32, "heads": 4, "context": 16, **config}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network_ = Transformer(self.tokenizer_.n_tokens, **words).eval()
        made = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.network_.parameters():
                p.add_(torch.randn(p.shape, generator=made) * size)
        self.config_ = self.network_.config
        self.weights_ = {
            name: p.numpy().copy() for name, p in self.network_.state_dict().items()
        }
        self.end = self.tokenizer_.special[END]

    def token_log_probs(self, ids: np.ndarray) -> np.ndarray:
        """Each token in the first window that holds it, windows half a context on."""
        stream = np.concatenate([[self.end], ids]).astype(np.int64)
        context, done = self.config_["context"], 0
        out = np.zeros(len(ids))
        for begin in range(0, len(ids), context // 2):
            stop = min(begin + context, len(ids))
            if stop > done:
                lp = self.after(stream[begin:stop])
                at = np.arange(done + 1, stop + 1)
                out[done:stop] = lp[at - 1 - begin, stream[at]]
                done = stop
        return out

    def after(self, tokens: np.ndarray) -> np.ndarray:
        """Log-probabilities of what comes behind each token, (time, tokens)."""
        with torch.no_grad():
            logits = self.network_(torch.as_tensor(tokens)[None]).output[0]
        return torch.log_softmax(logits.double(), dim=-1).numpy()

    def bits_per_byte(self, texts: Any) -> float:
        documents = [texts] if isinstance(texts, str | bytes) else list(texts)
        ids = []
        for document in documents:
            ids += [[self.end], self.tokenizer_.encode(document)]
        nats = self.token_log_probs(np.concatenate(ids[1:])).sum()
        sizes = [len(d.encode() if isinstance(d, str) else d) for d in documents]
        return float(-nats / math.log(2) / sum(sizes))


class WritingModel(Writer, SmallModel, BaseEstimator):
    """A small model that writes, with the library's compiled decoding."""

    def fit(self, texts: Any) -> None:
        """Only here so that it counts as an estimator."""

    def next_probabilities(self, ids: np.ndarray) -> np.ndarray:
        stream = np.concatenate([[self.end], ids]).astype(np.int64)
        return np.exp(self.after(stream[-self.config_["context"] :])[-1])
