"""Masked language models: tokens predicted from both sides (BERT, RoBERTa).

    minimise over θ:  mean over masked places t of −log p(xₜ | x without masked places)

A language model reads from left to right; an encoder sees what follows as well. With
``pairs=True`` it also learns whether one sentence follows another, as BERT does;
without, it is RoBERTa's recipe: masked tokens only, places drawn again in each step.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from certus._core.sharing import shares
from certus.base import Fitted, certified_fit, check_choice, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.language.base import end_of, fitted_tokenizer, read_documents
from certus.language.encoders import encoder_training as training
from certus.language.encoders.masking import (
    MaskedNetwork,
    MaskingTask,
    pair_of,
    token_scores,
)
from certus.language.encoders.text_encoder import (
    EncoderOptions,
    EncoderShape,
    TextEncoder,
    TransformerOptions,
    check_options,
    check_shape,
    parts_of,
)
from certus.language.tokens.pieces import as_bytes
from certus.neural_network import tasks
from certus.neural_network.modules.transformer import Transformer
from certus.neural_network.network_loss import witness_of
from certus.neural_network.wrapping import evaluating
from certus.typing import Array, Column, Fit, Texts

__all__ = ["MaskedLanguageModel"]

#: What stands for a hidden token in a text.
MASK = "<|mask|>"


@shares(EncoderShape, EncoderOptions)
class MaskedLanguageModel(TextEncoder):
    """A transformer that learns to fill gaps in texts, and gives texts vectors.

    Objective
    ---------
    mean −log p(xₜ | all tokens that are not hidden) over hidden places t, 15 % of all;
    with ``pairs`` plus the mean −log p(whether the second sentence follows the first).

    Certificate
    -----------
    ``masked_loss`` (MEASURED): the mean of −log p over places of the held-out text that
    the verifier hides, computed by its own transformer in float64; places that are not
    hidden do not count. ``bytes_counted`` and ``agreement`` (PROVED): the tokens are
    the text, and the model gives hidden tokens the probabilities of its weights.

    Parameters
    ----------
    pairs : bool, default=False
        Whether to learn from pairs of sentences too (BERT). Needs texts of at least two
        sentences; others are left out.
    mask_fraction : float, default=0.15
        Share of the parts of a row or text that is hidden.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Transformer
        The trained encoder, in evaluation mode; its last token is the mask.
    tokenizer_ : ByteTokenizer or BPETokenizer
        Cuts a text into tokens.
    pair_coef_, pair_intercept_ : ndarray of shape (width,), float
        Logistic regression on the network's pooled state; None without ``pairs``.
    config_ : dict
        What the network was built with.
    weights_ : dict of float32 ndarray
        Its weights by name.
    history_ : dict of lists
        After each stretch of steps: loss, validation_loss, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Stretch of steps whose weights were kept, from 1; 0 if nothing is held out.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.language import MaskedLanguageModel
    >>> texts = ["the cat sat on the mat", "the dog lay on the rug"] * 40
    >>> model = MaskedLanguageModel(n_layers=1, width=32, heads=2, batch_size=8,
    ...                             max_iter=150, random_state=0).fit(texts)
    >>> model.fill("the cat sat on the m<|mask|>t")
    'the cat sat on the mat'
    >>> model.transform(texts).shape
    (80, 32)
    """

    tokenizer_: Any

    def __init__(
        self,
        *,
        pairs: bool = False,
        mask_fraction: float = 0.15,
        **shared: Unpack[TransformerOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, texts: Texts, y: Column = None) -> Any:
        """Learn from texts.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents.
        y : None
            Ignored.
        """
        self._check()
        documents = read_documents(texts)
        rng = generator_of(self.random_state)
        kept = tasks.checkpoints_of(self, rng)
        monitor = Monitor(self, texts, y)
        documents, held = training.held_documents(self, documents, rng)
        self.tokenizer_ = fitted_tokenizer(self.tokenizer, documents)
        task = MaskingTask(self, documents, held)
        trained = training.train_encoder(
            *(self, self._built, task, rng, kept, monitor, self._state)
        )
        tasks.finish(self, trained, self._state(trained.module))
        monitor.close({})
        evidence = Evidence("network", witness=witness_of(trained.run))
        told = documents if held is None else held
        return Fitted(evidence, told, None, None, trained.status)

    def _built(self) -> MaskedNetwork:
        network = Transformer(
            self.tokenizer_.n_tokens + 1,
            kind="encoder",
            n_layers=self.n_layers,
            width=self.width,
            heads=self.heads,
            context=self.context,
            segments=2 if self.pairs else 0,
            qk_norm=True,
            dropout=float(self.dropout),
        )
        return MaskedNetwork(network, bool(self.pairs))

    def _state(self, module: Any) -> dict[str, Any]:
        found = {"tokenizer_": self.tokenizer_, "network_": module.network.eval()}
        if module.head is None:
            return {**found, "pair_coef_": None, "pair_intercept_": None}
        coef = module.head.weight.detach().cpu().numpy()[0].copy()
        return {
            **found,
            "pair_coef_": coef,
            "pair_intercept_": float(module.head.bias.detach()[0]),
        }

    # -- hidden tokens ------------------------------------------------------------

    def masked_log_probs(self, ids: Array, places: Array) -> Array:
        """Natural logarithm of the probability of tokens that are hidden together.

        Parameters
        ----------
        ids : int array of shape (n,)
            Tokens of a text, fewer than ``context``.
        places : int array of shape (m,)
            Which of them are hidden.

        Returns
        -------
        float64 array of shape (m,)
        """
        ids, places = np.asarray(ids), np.asarray(places)
        hidden = ids.copy()
        hidden[places] = self.tokenizer_.n_tokens
        lp = self._log_probs(hidden, places)
        return lp[np.arange(len(places)), ids[places]]

    def mask_probabilities(self, text: str | bytes) -> Array:
        """The probability of each token at each mask of a text.

        Parameters
        ----------
        text : str or bytes
            With ``<|mask|>`` for each hidden token. Of a text that does not fit into
            ``context``, each mask sees the tokens around it.

        Returns
        -------
        float64 array of shape (n_masks, n_tokens)
        """
        ids = self._with_masks(text)
        return np.exp(self._around(ids, np.flatnonzero(ids == len(self._tokens()))))

    def fill(self, text: str | bytes) -> str:
        """Put tokens in the place of masks, the most certain one first.

        Parameters
        ----------
        text : str or bytes
            With ``<|mask|>`` for each hidden token. A token of byte-pair encoding holds
            the space before its word: write ``"the<|mask|> sat"``.

        Returns
        -------
        str
        """
        ids, mask = self._with_masks(text), len(self._tokens())
        while (places := np.flatnonzero(ids == mask)).size:
            lp = self._around(ids, places)
            lp[:, end_of(self.tokenizer_)] = -np.inf
            first = int(lp.max(axis=1).argmax())
            ids[places[first]] = lp[first].argmax()
        return str(self.tokenizer_.decode(ids))

    def _tokens(self) -> list[bytes]:
        check_is_fitted(self, "network_")
        tokens: list[bytes] = self.tokenizer_.tokens
        return tokens

    def _with_masks(self, text: str | bytes) -> Array:
        """The tokens of a text in which masks are named."""
        mask = len(self._tokens())
        parts = as_bytes(text).split(MASK.encode())
        if len(parts) < 2:
            raise ValueError(f"The text must have {MASK!r} where a token is hidden.")
        found = [self.tokenizer_.encode(parts[0])]
        for part in parts[1:]:
            found += [np.array([mask]), self.tokenizer_.encode(part)]
        return np.concatenate(found).astype(np.int64)

    def _around(self, ids: Array, places: Array) -> Array:
        """Log-probabilities at some places, each seen with the tokens around it."""
        room = self.network_.config["context"] - 1
        if len(ids) <= room:
            return self._log_probs(ids, places)
        begins = np.clip(places - room // 2, 0, len(ids) - room)
        parts = [
            self._log_probs(ids[begin : begin + room], np.array([place - begin]))
            for begin, place in zip(begins, places)
        ]
        return np.concatenate(parts)

    @torch.no_grad()
    def _log_probs(self, ids: Array, places: Array) -> Array:
        """Log-probabilities of all tokens at some places, (places, tokens), float64."""
        states = self._states(ids)
        z = token_scores(self.network_, states[torch.from_numpy(places) + 1])
        return torch.log_softmax(z.double(), dim=1).cpu().numpy()

    @torch.no_grad()
    def _states(self, ids: Array, segments: Array | None = None) -> Any:
        """States behind the last layer, an end-of-text token first."""
        check_is_fitted(self, "network_")
        device = next(self.network_.parameters()).device
        row = np.concatenate([[end_of(self.tokenizer_)], ids]).astype(np.int64)
        side = None if segments is None else torch.from_numpy(segments).to(device)
        with evaluating(self.network_):
            states, _ = self.network_.states(
                torch.from_numpy(row).to(device)[None],
                segments=None if side is None else side[None],
            )
        return states[0]

    # -- pairs and vectors --------------------------------------------------------

    def follow_probability(self, first: Any, second: Any) -> Array:
        """Probability that the second text of each pair follows the first.

        Parameters
        ----------
        first, second : list of str
            As many of one as of the other.

        Returns
        -------
        float64 array of shape (n_pairs,)
        """
        check_is_fitted(self, "network_")
        if self.pair_coef_ is None:
            raise ValueError("This model was fitted without pairs; set pairs=True.")
        one, other = (read_documents(part, empty=True) for part in (first, second))
        if len(one) != len(other):
            raise ValueError(
                "first and second must have the same number of texts, got "
                f"{len(one)} and {len(other)}."
            )
        return np.array([self._follows(a, b) for a, b in zip(one, other)])

    @torch.no_grad()
    def _follows(self, first: bytes, second: bytes) -> float:
        encode, context = self.tokenizer_.encode, self.network_.config["context"]
        end = end_of(self.tokenizer_)
        row, segments = pair_of(encode(first), encode(second), end, context)
        states = self._states(row[1:], segments)
        pooled = self.network_.pool(states[None])[0].double().cpu().numpy()
        z = float(pooled @ self.pair_coef_.astype(float)) + self.pair_intercept_
        return float(0.5 + 0.5 * np.tanh(z / 2))

    @property
    def n_features_out_(self) -> int:
        """How many numbers the vector of a text has."""
        return int(self.network_.config["width"])

    def _vector(self, text: bytes) -> Array:
        """The mean of the states of all tokens of a text."""
        return mean_state(self, self.tokenizer_.encode(text))

    def _check(self) -> None:
        check_options(self)
        check_shape(self)
        check_choice("pairs", self.pairs, (False, True))
        check_number("mask_fraction", self.mask_fraction, 0, 0.9, open_low=True)


def mean_state(model: Fit, ids: Array) -> Array:
    """The mean of the last layer's states over the tokens of a text, float64."""
    total = np.zeros(model.network_.config["width"])
    for part in parts_of(ids, model.network_.config["context"] - 1):
        if len(part):
            states = model._states(part)[1:]
            total += states.double().sum(dim=0).cpu().numpy()
    return total / max(1, len(ids))
