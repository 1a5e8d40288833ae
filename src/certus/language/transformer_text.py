"""What every transformer that models text has: weights, and probabilities of tokens.

A subclass sets ``network_`` and ``tokenizer_``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.language import scoring
from certus.language.base import TextModel, end_of, known_tokens
from certus.language.decoding.writing import Writer
from certus.language.views.looking import NetworkViews
from certus.language.windows import begin_of
from certus.neural_network.modules.transformer import Transformer
from certus.typing import Array


class TransformerText(Writer, NetworkViews, TextModel):
    """Base of models of text whose probabilities are a transformer's; abstract."""

    network_: Transformer

    @property
    def config_(self) -> dict[str, Any]:
        """What the network was built with."""
        check_is_fitted(self, "network_")
        return dict(self.network_.config)

    @property
    def weights_(self) -> Mapping[str, Array]:
        """The network's weights by name, float32."""
        check_is_fitted(self, "network_")
        state = self.network_.state_dict().items()
        return {name: value.detach().cpu().numpy() for name, value in state}

    # -- probabilities ------------------------------------------------------------

    def token_log_probs(self, ids: Array) -> Array:
        """Natural logarithm of each token's probability given those before it.

        The network sees ``context`` tokens at once and moves by half of it: each token
        is scored in the first window that holds it.

        Parameters
        ----------
        ids : int array of shape (n,)
            Tokens of a text, without an end-of-text token at the beginning: the first
            one is taken to follow one.

        Returns
        -------
        float64 array of shape (n,)
        """
        return scoring.log_probs(self._ready(), self._stream(self._known(ids)))

    def next_probabilities(self, ids: Array) -> Array:
        """The probability of each token to come next.

        Parameters
        ----------
        ids : int array of shape (n,)
            The text so far; may be empty.

        Returns
        -------
        float64 array of shape (n_tokens,)
        """
        network, stream = self._ready(), self._stream(self._known(ids))
        seen = stream[begin_of(len(stream) - 1, network.config["context"]) :]
        return scoring.next_probs(network, seen)

    def _ready(self) -> Transformer:
        check_is_fitted(self, "network_")
        return self.network_

    def _known(self, ids: Array) -> Array:
        return known_tokens(ids, self.tokenizer_.n_tokens)

    def _stream(self, ids: Array) -> Array:
        """Tokens behind the end-of-text token that a text begins with."""
        return np.concatenate([[end_of(self.tokenizer_)], ids]).astype(np.int32)
