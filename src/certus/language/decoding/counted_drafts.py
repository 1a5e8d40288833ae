"""N-gram models as drafts: proposals that cost a look-up instead of a forward pass."""

from __future__ import annotations

from typing import Any

from certus.language.decoding.speculation_kernels import speculate_counted
from certus.language.ngram import NGramModel

#: The arrays of a model, by which the verifier computes its distributions again.
ARRAYS = (
    *("starts_", "first_", "last_tokens_", "suffixes_"),
    *("counts_", "shares_", "backoffs_"),
)


class CountedDraft:
    """An n-gram model ready to propose tokens to a network.

    Parameters
    ----------
    model : NGramModel
        Fitted, with the tokens of the network.
    """

    #: Rounds of proposals of such a model, for a network.
    speculate = staticmethod(speculate_counted)

    def __init__(self, model: NGramModel) -> None:
        V, end, longest, arrays, _ = model._checked()
        order = len(model.starts_) - 2
        self.config = {"kind": "ngram", "order": order, "n_tokens": V, "end": end}
        self.weights = {name: getattr(model, name) for name in ARRAYS}
        self._arguments = (order, longest, *arrays)

    def started(self) -> tuple[Any, ...]:
        """What the compiled loop needs; it keeps nothing between two calls."""
        return self._arguments
