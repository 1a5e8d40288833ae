"""Memory network: look up what a question asks for, then ask again with the answer.

    αᵢ = softmaxᵢ(uᵀmᵢ),   u ← u + Σᵢ αᵢ cᵢ,   repeated;   answer = softmax(W u)

Facts are stored twice, as what is asked for (m) and as what is answered (c). One hop
finds what is next to the question's words; a second hop finds what is next to
that, which no single look can do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_count


class MemoryNetwork(nn.Module):
    """Answers questions about facts, looking at them ``hops`` times.

    Facts and questions are words in order, as numbers; 0 fills the places that are
    left. What a word contributes depends on its place: each place has a scale of its
    own for each component.

    Parameters
    ----------
    n_words : int
        Number of different words, with 0 for none.
    n_answers : int
        Number of different answers.
    width : int, default=32
        Components of the vectors of words, facts and questions.
    hops : int, default=2
        Looks at the memory.
    places : int, default=8
        Most words of a fact or question.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import MemoryNetwork
    >>> net = MemoryNetwork(10, 4, hops=3)
    >>> facts = torch.tensor([[[1, 5], [5, 2], [0, 0]]])  # two facts, room for three
    >>> net(facts, torch.tensor([[1]])).shape
    torch.Size([1, 4])
    >>> net.attention(facts, torch.tensor([[1]])).shape
    torch.Size([1, 3, 3])
    """

    def __init__(
        self,
        n_words: int,
        n_answers: int,
        *,
        width: int = 32,
        hops: int = 2,
        places: int = 8,
    ) -> None:
        super().__init__()
        require_count("n_words", n_words)
        require_count("n_answers", n_answers)
        for name, value in (("width", width), ("hops", hops), ("places", places)):
            require_count(name, value)
        self.config: dict[str, Any] = {
            "n_words": n_words,
            "n_answers": n_answers,
            "width": width,
            "hops": hops,
            "places": places,
        }
        self.hops = hops
        self.embedding = nn.Embedding(n_words, width)
        # Short vectors and scales near 1: each word matches itself a little from the
        # first, and no look at the memory is a choice yet.
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.asked, self.answered, self.question = (
            nn.Parameter(1 + 0.3 * torch.randn(places, width)) for _ in range(3)
        )
        self.output = nn.Linear(width, n_answers)

    def forward(self, facts: Tensor, question: Tensor) -> Tensor:
        """Scores (batch, n_answers) of the answers.

        Parameters
        ----------
        facts : Tensor of shape (batch, n_facts, words)
            The memory; a fact of zeros is none.
        question : Tensor of shape (batch, words)
            What is asked.
        """
        return self.output(self._looks(facts, question)[0])

    def attention(self, facts: Tensor, question: Tensor) -> Tensor:
        """What each hop looks at: (batch, hops, n_facts)."""
        return self._looks(facts, question)[1]

    def _looks(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        m = self._vectors(facts, self.asked)  # (batch, n_facts, width)
        c = self._vectors(facts, self.answered)
        u = self._vectors(question, self.question)  # (batch, width)
        absent = (facts == 0).all(dim=2)  # (batch, n_facts)
        weights = []
        for _ in range(self.hops):
            scores = torch.einsum("bd,bfd->bf", u, m)
            # Finite, so that a memory without facts gives no NaN; c is 0 there.
            scores = scores.masked_fill(absent, torch.finfo(scores.dtype).min)
            alpha = torch.softmax(scores, dim=1)
            u = u + torch.einsum("bf,bfd->bd", alpha, c)
            weights.append(alpha)
        return u, torch.stack(weights, dim=1)

    def _vectors(self, words: Tensor, places: Tensor) -> Tensor:
        """From (..., words) numbers to the sum (..., width) of their scaled vectors."""
        if words.shape[-1] > len(places):
            raise ValueError(
                f"A fact or question has {words.shape[-1]} words, but the network was "
                f"built for {len(places)}. Build it for more words."
            )
        scaled = self.embedding(words) * places[: words.shape[-1]]
        return scaled.masked_fill((words == 0)[..., None], 0.0).sum(dim=-2)
