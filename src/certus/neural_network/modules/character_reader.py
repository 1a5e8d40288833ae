"""Words read by their characters, in both directions (ELMo).

    x_t = W max over windows of relu(filters on the bytes of word t)
    f_t^j = f-LSTM^j(f_1^{j−1} … f_t^{j−1}),   b_t^j = b-LSTM^j(b_t^{j−1} … b_n^{j−1})

The forward states give scores of the next word, the backward states those of the word
before. A word is read by its bytes, so that there are no unknown words. The state
of a word in a layer is [f, b]; in layer 0 it is x itself, twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_count, require_counts
from certus.neural_network.modules.rnn import new_layer, turned

#: Symbols: 0 beyond the end, 1 … 256 the bytes, then where words begin and end.
SYMBOLS, BEGIN, END = 259, 257, 258


class CharacterReader(nn.Module):
    """Convolutions over the bytes of words, LSTMs in both directions, scores of words.

    Parameters
    ----------
    n_words : int
        Number of words that are predicted.
    width : int, default=64
        Numbers in the vector of a word, and in a state of each direction.
    n_layers : int, default=2
        LSTMs of each direction; from the second on each adds to the one below.
    embedding : int, default=16
        Numbers in the vector of a byte.
    widths : sequence of int, default=(1, 2, 3, 4)
        How many successive bytes filters look at.
    channels : int, default=32
        Filters of each width.
    dropout : float, default=0.0
        Share of numbers that training leaves out, in front of each layer.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import CharacterReader
    >>> net = CharacterReader(10, width=8)
    >>> spelt = torch.tensor([[257, 98, 258, 0], [257, 99, 100, 258]])  # two words
    >>> texts, lengths = torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([3, 1])
    >>> len(net(spelt, texts, lengths)), net(spelt, texts, lengths)[2].shape
    (3, torch.Size([2, 3, 16]))
    """

    def __init__(
        self,
        n_words: int,
        *,
        width: int = 64,
        n_layers: int = 2,
        embedding: int = 16,
        widths: Sequence[int] = (1, 2, 3, 4),
        channels: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value in (
            ("n_words", n_words),
            ("width", width),
            ("n_layers", n_layers),
        ):
            require_count(name, value)
        require_count("embedding", embedding)
        require_count("channels", channels)
        require_counts("widths", widths)
        self.config: dict[str, Any] = {
            "n_words": n_words,
            "width": width,
            "n_layers": n_layers,
            "embedding": embedding,
            "widths": list(widths),
            "channels": channels,
            "dropout": dropout,
        }
        self.embedding = nn.Embedding(SYMBOLS, embedding)
        self.filters = nn.ModuleList(nn.Conv1d(embedding, channels, w) for w in widths)
        self.project = nn.Linear(channels * len(widths), width)
        self.forwards, self.backwards = (
            nn.ModuleList(new_layer("lstm", width, width) for _ in range(n_layers))
            for _ in range(2)
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, n_words)

    def spell(self, words: Tensor) -> Tensor:
        """The vectors (n, width) of words from symbols (n, length), 0 at the end."""
        read = words != 0  # (n, length)
        x = (self.embedding(words) * read[..., None]).transpose(1, 2)
        sizes, found = read.sum(dim=1), []
        for layer, wide in zip(self.filters, self.config["widths"]):
            z = torch.relu(layer(nn.functional.pad(x, (0, max(0, wide - x.shape[2])))))
            windows = (sizes - wide + 1).clamp(min=1)  # a short word is seen once
            inside = torch.arange(z.shape[2], device=z.device) < windows[:, None]
            found.append(z.masked_fill(~inside[:, None], 0.0).amax(dim=2))
        return self.project(torch.cat(found, dim=1))

    def forward(self, words: Tensor, texts: Tensor, lengths: Tensor) -> list[Tensor]:
        """States of each layer, (batch, time, 2 width), the words' own vectors first.

        Parameters
        ----------
        words : int Tensor of shape (n, length)
            Symbols of the different words.
        texts : int Tensor of shape (batch, time)
            Which word stands at each place.
        lengths : int Tensor of shape (batch,)
            How many places of each text count.
        """
        x = self.spell(words)[texts]  # (batch, time, width)
        states, ahead, back = [torch.cat([x, x], dim=2)], x, turned(x, lengths)
        for j, (f, b) in enumerate(zip(self.forwards, self.backwards)):
            below = ahead, back
            ahead, back = f(self.dropout(ahead))[0], b(self.dropout(back))[0]
            if j:  # adds to the layer below
                ahead, back = ahead + below[0], back + below[1]
            states.append(torch.cat([ahead, turned(back, lengths)], dim=2))
        return states

    def scores(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the next word and of the word before, (..., n_words) each."""
        ahead, back = states.chunk(2, dim=-1)
        return self.head(self.dropout(ahead)), self.head(self.dropout(back))


def symbols(words: Sequence[str], longest: int) -> Tensor:
    """Words as rows of symbols, (n, length); of long words the first bytes.

    Examples
    --------
    >>> from certus.neural_network.modules.character_reader import symbols
    >>> symbols(["a", "né"], 8).tolist()
    [[257, 98, 258, 0, 0], [257, 111, 196, 170, 258]]
    """
    rows = [word.encode("utf-8", "surrogatepass")[:longest] for word in words]
    size = max(map(len, rows), default=0) + 2
    table = torch.zeros((len(rows), size), dtype=torch.long)
    for i, row in enumerate(rows):
        spelt = [BEGIN, *(byte + 1 for byte in row), END]
        table[i, : len(spelt)] = torch.tensor(spelt)
    return table
