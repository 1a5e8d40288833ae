"""N-gram models: the next token from counts of the runs of tokens seen before.

Modified Kneser–Ney smoothing (Chen and Goodman, 1999). With c(hw) how often the token w
follows the context h, and h′ the context without its first token,

    p(w | h) = (c(hw) − D(c(hw)))/c(h·) + γ(h) p(w | h′),   γ(h) = Σ_w D(c(hw))/c(h·),

down to 1/n_tokens below the empty context. For contexts shorter than order − 1, c
counts the different tokens before hw instead of its occurrences: a token that follows
one context only says little about others. D has three values for each length of hw (for
counts of 1, of 2, of more), from how many runs occur once, twice, three and four times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import Fitted, certified_fit, check_number
from certus.certificate import Evidence
from certus.evidence import CorpusWitness
from certus.language import ngram_kernels as kernels
from certus.language.base import TextModel, end_of, known_tokens
from certus.language.ngram_counts import count_runs, discounts, is_tree, shares
from certus.typing import Array

__all__ = ["NGramModel"]


class Walked(NamedTuple):
    """What compiled code needs of a model, and the objects that it was made from."""

    V: int
    end: int
    longest: int  # the first run of full length
    arrays: tuple[Array, ...]
    whole: tuple[Any, ...]


class NGramModel(TextModel):
    """Predict the next token from counts, with modified Kneser–Ney smoothing.

    Objective
    ---------
    p(w | h) = (c(hw) − D(c(hw)))/c(h·) + γ(h) p(w | h′), for contexts h of up to
    ``order`` − 1 tokens; h′ is h without its first token. Below the empty context every
    token has the same probability, so no text is impossible.

    Certificate
    -----------
    ``probabilities_sum`` (PROVED): how far Σ_w p(w | h) is from one, over all contexts.
    ``bits_per_byte`` (PROVED): what the text costs, computed again by other code.
    ``ngram_counts`` (PROVED), for the training text: every count and every discount,
    taken again. At level "quick", of a training text with more than 262,144 tokens only
    runs of one and two tokens are counted again, and its bits are left out.

    Parameters
    ----------
    order : int, default=5
        Length of the longest runs that are counted: the context has ``order`` − 1
        tokens.
    tokenizer : {"bytes", "bpe"}, int or tokeniser, default="bytes"
        How a text becomes tokens. One token for each byte; byte-pair encoding with
        4,096 or the given number of tokens; or a tokeniser of your own.

    Attributes
    ----------
    tokenizer_ : ByteTokenizer or BPETokenizer
        Cuts a text into tokens.
    n_runs_ : ndarray of shape (order,)
        How many different runs of 1, 2, … tokens there are.
    discounts_ : ndarray of shape (order, 3)
        D(1), D(2) and D(3 or more) for runs of each length.
    starts_, first_, last_tokens_, suffixes_, counts_, shares_, backoffs_ : ndarray
        The runs by length and then by their tokens, the empty one first: where each
        length begins; where the continuations of each begin; its last token; the run
        without its first token; its count; what this count gives to its last token;
        and γ, what it passes on as a context.
    memory_ : int
        Bytes of these arrays: 40 for each run. Counting takes about twice as much.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.language import NGramModel
    >>> model = NGramModel(order=3).fit("the cat sat on the mat. " * 20)
    >>> model.bits_per_byte("the cat sat on the mat.") < 0.5
    True
    >>> p = model.next_probabilities(model.tokenizer_.encode("the ca"))
    >>> chr(p.argmax()), round(float(p.sum()), 12)
    ('t', 1.0)
    """

    def __init__(self, order: int = 5, *, tokenizer: Any = "bytes") -> None:
        self.order = order
        self.tokenizer = tokenizer

    @certified_fit
    def fit(self, texts: Any, y: Any = None) -> Any:
        """Count the runs of tokens of a text.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents; runs do not cross from one document to the next.
        y : None
            Ignored.
        """
        check_number("order", self.order, 1, 64, integer=True)
        documents, ids = self._encoded(texts, self.tokenizer)
        end, V = end_of(self.tokenizer_), self.tokenizer_.n_tokens
        ids = np.append(ids, np.int32(end))
        tree = count_runs(ids, end, V, int(self.order))
        self.starts_, self.first_, self.last_tokens_, self.suffixes_ = tree[:4]
        self.counts_ = tree.counts
        self.discounts_ = discounts(tree)
        self.shares_, self.backoffs_ = shares(tree, self.discounts_)
        self.n_runs_ = np.diff(self.starts_)[1:]
        self.memory_ = sum(each.nbytes for each in self._arrays())
        digest = hashlib.sha256(ids.astype("<i4").tobytes()).digest()
        witness = CorpusWitness(np.frombuffer(digest, np.uint8))
        return Fitted(Evidence("ngrams", witness), documents, None)

    def _arrays(self) -> tuple[Array, ...]:
        names = ("first_", "last_tokens_", "suffixes_", "shares_", "backoffs_")
        return (*(getattr(self, name) for name in names), self.counts_)

    def token_log_probs(self, ids: Array) -> Array:
        """Natural logarithm of each token's probability given those before it.

        Parameters
        ----------
        ids : int array of shape (n,)
            Tokens of a text; the first one is taken to follow an end-of-text token.

        Returns
        -------
        float64 array of shape (n,)
        """
        return self._walk(ids)[0]

    def next_probabilities(self, ids: Array) -> Array:
        """The probability of each token to come next.

        Parameters
        ----------
        ids : int array of shape (n,)
            The text so far; may be empty. Only the last ``order`` − 1 tokens matter.

        Returns
        -------
        float64 array of shape (n_tokens,)
        """
        order = len(self.starts_) - 2
        node = self._walk(np.asarray(ids)[-order:])[1]
        room, p = np.empty(len(self.starts_), np.int64), np.empty(self._walked.V)
        kernels.next_law(node, *self._walked.arrays, room, p)
        return p

    def _checked(self) -> Walked:
        """The arrays that compiled code walks along; checked once, as it does not."""
        check_is_fitted(self)
        names = ("first_", "last_tokens_", "suffixes_", "shares_", "backoffs_")
        held = tuple(getattr(self, name) for name in names)
        whole = (*held, self.starts_, self.tokenizer_)
        seen = self.__dict__.get("_walked")
        if seen is not None and all(a is b for a, b in zip(seen.whole, whole)):
            return cast(Walked, seen)
        V, end = self.tokenizer_.n_tokens, end_of(self.tokenizer_)
        if not is_tree(V, self.starts_, *held):
            raise ValueError(
                "This NGramModel was changed after its fit: its runs of tokens are not "
                "a tree. Fit it again, or restore its file."
            )
        self._walked = Walked(V, end, int(self.starts_[-2]), held, whole)
        return self._walked

    def __getstate__(self) -> Mapping[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_walked", None)
        return state

    def _walk(self, ids: Array) -> tuple[Array, int]:
        """Log p of each token, and the longest known context at the end."""
        V, end, longest, arrays, _ = self._checked()
        ids = np.ascontiguousarray(known_tokens(ids, V), np.int64)
        room, out = np.empty(len(self.starts_), np.int64), np.empty(len(ids))
        last = kernels.walk(ids, end, V, longest, *arrays, room, out)
        return out, int(last)
