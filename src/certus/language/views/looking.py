"""What can be looked at in a network that models text: attention, use of context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certus.language.base import end_of, joined, read_documents
from certus.typing import Array, TextsLike

if TYPE_CHECKING:
    from certus.language.tokens.tokenizers import ByteTokenizer
    from certus.language.views.attention_maps import AttentionMaps
    from certus.language.views.context_use import ContextUse
    from certus.neural_network.modules import Transformer


class NetworkViews:
    """Mixin of models with a ``network_`` and a ``tokenizer_``."""

    tokenizer_: ByteTokenizer

    if TYPE_CHECKING:

        def _ready(self) -> Transformer:
            """The fitted network."""

        def _stream(self, ids: Array) -> Array:
            """Tokens behind the end-of-text token."""

    def attention(self, text: str | bytes) -> AttentionMaps:
        """Where each head of each layer looks while the network reads a text.

        Parameters
        ----------
        text : str, bytes or Path
            What the network reads behind an end-of-text token. It sees ``context``
            tokens at once: of a longer text, the last ones.

        Returns
        -------
        AttentionMaps
            The weights, with ``plot()`` and a view for notebooks.
        """
        import torch

        from certus.language.views.attention_maps import AttentionMaps
        from certus.neural_network.wrapping import evaluating

        network = self._ready()
        stream = self._read(text)[-network.config["context"] :]
        ids = torch.from_numpy(stream.astype(np.int64))
        ids = ids.to(next(network.parameters()).device)
        with evaluating(network), torch.no_grad():
            kept = network(ids[None], weights=True).kept
        A = torch.stack([layer[0] for layer in kept]).float().cpu().numpy()
        return AttentionMaps(A, [self.tokenizer_.tokens[i] for i in stream.tolist()])

    def context_use(self, texts: TextsLike) -> ContextUse:
        """Bits per byte by how many tokens the network sees.

        Up to 512 tokens, spread over the text, are predicted from the last 1, 2, 4, …
        tokens, up to the whole context.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text that the model was not fitted to.

        Returns
        -------
        ContextUse
            One row for each number of tokens, with intervals and ``plot()``.
        """
        from certus.language.views.context_use import context_use

        network, tokenizer = self._ready(), self.tokenizer_
        sizes = np.array([len(token) for token in tokenizer.tokens])
        return context_use(network, self._read(texts), sizes, end_of(tokenizer))

    def _read(self, texts: Any) -> Array:
        self._ready()
        return self._stream(joined(self.tokenizer_, read_documents(texts, empty=True)))
