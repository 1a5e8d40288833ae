"""Convolutions over text: filters that respond to short runs of words.

    zₖ = max over t of relu(Σⱼ wₖⱼ·e(x^{t+j}) + bₖ),   scores = V z + c

e(x) are vectors of words, and a filter k is as wide as the runs it looks for. The
maximum over time tells whether a run occurs anywhere; unlike a bag of words, it knows
the order of the words inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_count, require_counts
from certus.neural_network.modules.rnn import within


class TextCNN(nn.Module):
    """Embedding, convolutions of several widths, maximum over time, linear output.

    Parameters
    ----------
    n_words : int
        Number of different words, with 0 for those that are unknown or absent; it has
        the vector 0.
    n_outputs : int
        Scores for each text.
    embedding : int, default=64
        Components of a word's vector.
    widths : sequence of int, default=(1, 2, 3)
        How many words the filters look at.
    channels : int, default=64
        Filters of each width.
    dropout : float, default=0.0
        Share of the maxima that training leaves out.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import TextCNN
    >>> net = TextCNN(10, 2, widths=(2, 3)).eval()
    >>> texts, lengths = torch.tensor([[4, 1, 7], [5, 0, 0]]), torch.tensor([3, 1])
    >>> z = net(texts, lengths)
    >>> torch.allclose(z[1:], net(texts[1:, :1], lengths[1:]))  # padding is not read
    True
    """

    def __init__(
        self,
        n_words: int,
        n_outputs: int,
        *,
        embedding: int = 64,
        widths: Sequence[int] = (1, 2, 3),
        channels: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_count("n_words", n_words)
        require_count("n_outputs", n_outputs)
        require_count("embedding", embedding)
        require_count("channels", channels)
        require_counts("widths", widths)
        self.config: dict[str, Any] = {
            "n_words": n_words,
            "n_outputs": n_outputs,
            "embedding": embedding,
            "widths": list(widths),
            "channels": channels,
            "dropout": dropout,
        }
        self.embedding = nn.Embedding(n_words, embedding)
        self.filters = nn.ModuleList(
            nn.Conv1d(embedding, channels, width) for width in widths
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels * len(widths), n_outputs)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """Scores (batch, n_outputs) of padded texts (batch, time)."""
        return self.output(self.dropout(self.maxima(texts, lengths)))

    def maxima(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """The strongest response of each filter: (batch, channels · widths)."""
        lengths = lengths.to(texts.device)
        read = within(texts, lengths) & (texts != 0)  # (batch, time)
        x = self.embedding(texts).masked_fill(~read[..., None], 0.0)
        x = x.transpose(1, 2)  # (batch, embedding, time)
        found = []
        for layer, width in zip(self.filters, self.config["widths"]):
            # A text shorter than a filter is seen once, with zeros after it.
            padded = nn.functional.pad(x, (0, max(0, width - x.shape[2])))
            responses = torch.relu(layer(padded))  # (batch, channels, windows)
            windows = (lengths - width + 1).clamp(min=1) * (lengths > 0)
            inside = within(responses.transpose(1, 2), windows)[:, None]
            # Responses are not negative: 0 is below all, and what no text responds.
            found.append(responses.masked_fill(~inside, 0.0).amax(dim=2))
        return torch.cat(found, dim=1)
