"""Sentence encoders: texts as vectors whose cosines compare them (Sentence-BERT).

    sim(a, b) = cos(e(a), e(b)),   e(a) = mean of the encoder's states over tokens of a
    loss = −mean log exp(sim(aᵢ, bᵢ)/τ) / Σⱼ exp(sim(aᵢ, bⱼ)/τ), and with b and a

Both towers are the same network, which sees one text at a time. So n texts take n
passes, whatever is compared with what; a network that reads pairs would take n².
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from certus._core.sharing import shares
from certus.base import Fitted, certified_fit, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence, Strength
from certus.language.base import end_of, fitted_tokenizer, read_documents
from certus.language.encoders import encoder_training as training
from certus.language.encoders.masked import MaskedLanguageModel, mean_state
from certus.language.encoders.masking import padded
from certus.language.encoders.text_encoder import (
    EncoderOptions,
    EncoderShape,
    TextEncoder,
    TransformerOptions,
    check_options,
    check_shape,
    parts_of,
)
from certus.neural_network import tasks
from certus.neural_network.batches import Batch
from certus.neural_network.modules.transformer import Transformer
from certus.neural_network.network_loss import witness_of
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import evaluating
from certus.typing import Array, Column, Fit, TextsLike

__all__ = ["SentenceEncoder"]

#: Fewest tokens of a passage, where the text has more; held-out pairs looked at.
SHORTEST, WATCHED = 4, 256
#: Contexts of a part of a long text, whose passages make pairs of their own.
LONG = 4


@shares(EncoderShape, EncoderOptions, tokenizer="bpe", n_layers=0, width=256)
class SentenceEncoder(TextEncoder):
    """Vectors of texts, trained so that texts that belong together have large cosines.

    ``fit`` takes pairs of texts that belong together; or single texts, in which a
    passage belongs to the one that follows it.

    By default the network has no layers: the vector of a text is the mean of vectors
    that are learnt for its tokens. On a few megabytes of text this compares texts about
    as well as a network with one layer, in a sixth of the time or less. Set
    ``n_layers`` where the order of the words matters.

    Objective
    ---------
    −mean log softmax over j of cos(e(aᵢ), e(bⱼ))/τ at j = i, over the pairs (aᵢ, bᵢ) of
    a batch, averaged with the same for the columns. Its value for vectors that say
    nothing is the logarithm of the number of pairs.

    Certificate
    -----------
    ``pair_loss`` (MEASURED): the objective on pairs of the held-out texts, drawn by a
    fixed seed. ``bytes_counted`` (PROVED): the tokens are the texts. ``cosines``
    (PROVED): similarities from stored vectors are the cosines of vectors that were
    computed again, one text at a time.

    Parameters
    ----------
    base : MaskedLanguageModel, default=None
        Model whose tokeniser and network are the start; its sizes replace those below.
        One that is not fitted is fitted to the texts first.
    temperature : float, default=0.1
        Divisor of the cosines: the smaller it is, the more small differences count.
        This is τ.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.Transformer
        The trained encoder, in evaluation mode.
    tokenizer_ : ByteTokenizer or BPETokenizer
        Cuts a text into tokens.
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
    >>> from certus.language import SentenceEncoder
    >>> texts = ["red green blue red blue green", "one two three two one three"] * 20
    >>> model = SentenceEncoder(width=16, heads=2, batch_size=16, max_iter=40,
    ...                         random_state=0)
    >>> kept = model.fit(texts).transform(["blue red", "green green", "two one"])
    >>> cosines = model.similarity(kept, kept)
    >>> bool(cosines[0, 1] > cosines[0, 2])
    True
    """

    tokenizer_: Any

    def __init__(
        self,
        base: Any = None,
        *,
        temperature: float = 0.1,
        **shared: Unpack[TransformerOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, texts: Any, y: Any = None) -> Any:
        """Learn from texts, or from pairs of texts.

        Parameters
        ----------
        texts : list of str, bytes or Path; or list of pairs of these
            Texts; or pairs that belong together.
        y : None
            Ignored.
        """
        self._check()
        pairs = as_pairs(texts)
        documents = read_documents(texts if pairs is None else sum(pairs, ()))
        rng = generator_of(self.random_state)
        kept = tasks.checkpoints_of(self, rng)
        monitor = Monitor(self, texts, y)
        base = self._fitted_base(documents)
        watched: list[tuple[bytes, ...]] | None
        if pairs is None:
            documents, held = training.held_documents(self, documents, rng)
            watched = None if held is None else [(text,) for text in held]
            rows: list[tuple[bytes, ...]] = [(text,) for text in documents]
        else:
            rows, watched = self._held_pairs(documents, rng)
        tokenizer = self.tokenizer if base is None else base.tokenizer_
        self.tokenizer_ = fitted_tokenizer(tokenizer, documents)
        context = self.context if base is None else base.network_.config["context"]
        task = PairTask(self, rows, watched, int(context))
        if not task.rows:
            raise ValueError(
                "Some text must have at least two tokens, so that a passage and the "
                "one after it can be compared. Give longer texts or pairs of texts, or "
                'set tokenizer="bytes".'
            )
        trained = training.train_encoder(
            *(self, lambda: self._built(base), task, rng, kept, monitor, self._state)
        )
        tasks.finish(self, trained, self._state(trained.module))
        monitor.close({})
        shown = sum(rows if watched is None else watched, ())
        evidence = Evidence("network", witness=witness_of(trained.run))
        return Fitted(
            *(evidence, list(shown), None, None, trained.status),
            measured=lambda: self.diagnose(list(shown)),
        )

    def _fitted_base(self, documents: list[bytes]) -> Any:
        """The model to start from, fitted; None if there is none."""
        if self.base is None or hasattr(self.base, "network_"):
            return self.base
        return clone(self.base).fit(documents)

    def _held_pairs(
        self, documents: list[bytes], rng: np.random.Generator
    ) -> tuple[list[tuple[bytes, ...]], list[tuple[bytes, ...]] | None]:
        """Pairs to learn from, and those to stop by."""
        pairs: list[tuple[bytes, ...]] = list(zip(documents[::2], documents[1::2]))
        some = round(len(pairs) * float(self.validation_fraction))
        if not self.early_stopping or some < 2 or len(pairs) - some < 2:
            return pairs, None
        order = rng.permutation(len(pairs)).tolist()
        return [pairs[i] for i in order[some:]], [pairs[i] for i in order[:some]]

    def _built(self, base: Fit) -> nn.Module:
        if base is not None:
            return copy.deepcopy(base.network_)
        return Transformer(
            self.tokenizer_.n_tokens,
            kind="encoder",
            n_layers=self.n_layers,
            width=self.width,
            heads=self.heads,
            context=self.context,
            qk_norm=True,
            # Without layers the lengths of the tokens' vectors are their weights in
            # the mean, so no norm makes them equal.
            norm="pre" if self.n_layers else "post",
            dropout=float(self.dropout),
        )

    def _state(self, module: nn.Module) -> dict[str, Any]:
        return {"tokenizer_": self.tokenizer_, "network_": module.eval()}

    # -- vectors and cosines ------------------------------------------------------

    @torch.no_grad()
    def _states(self, ids: Array) -> Tensor:
        """States behind the last layer, an end-of-text token first."""
        device = next(self.network_.parameters()).device
        row = np.concatenate([[end_of(self.tokenizer_)], ids]).astype(np.int64)
        with evaluating(self.network_):
            states, _ = self.network_.states(torch.from_numpy(row).to(device)[None])
        return states[0]

    @property
    def n_features_out_(self) -> int:
        """How many numbers the vector of a text has."""
        return int(self.network_.config["width"])

    def _vector(self, text: bytes) -> Array:
        """The mean state of a text's tokens, divided by its length."""
        mean = mean_state(self, self.tokenizer_.encode(text))
        size = float(np.linalg.norm(mean))
        return mean / size if size > 0 else mean

    def similarity(self, first: Any, second: Any = None) -> Array:
        """Cosines of all texts of one list with all of another.

        Parameters
        ----------
        first, second : list of str, or array of shape (n, width)
            Texts, or vectors that :meth:`transform` gave: each text goes through the
            network once, and stored vectors not at all. Without the second, texts of
            the first list are compared with each other.

        Returns
        -------
        float64 array of shape (n_first, n_second)
            Zero for an empty text.
        """
        check_is_fitted(self, "network_")
        A = self._vectors(first)
        B = A if second is None else self._vectors(second)
        if not len(A):
            return np.zeros((0, len(B)))
        # Not A @ Bᵀ: its last digits depend on how many rows there are.
        return np.stack([(B * a).sum(axis=1) for a in A])

    def _vectors(self, given: Any) -> Array:
        stored = isinstance(given, np.ndarray) and given.dtype.kind == "f"
        if not stored:
            return self.transform(given)
        if given.ndim != 2 or given.shape[1] != self.n_features_out_:
            raise ValueError(
                f"Stored vectors must have {self.n_features_out_} columns, got an "
                f"array of shape {given.shape}."
            )
        return np.ascontiguousarray(given, dtype=np.float64)

    def diagnose(
        self,
        X: Any,
        y: Column = None,
        sample_weight: Column = None,
        *,
        level: str = "quick",
    ) -> list[Claim]:
        """The objective on pairs of passages of texts, drawn by a fixed seed.

        Parameters
        ----------
        X : list of str
            The texts.
        y, sample_weight : None
            Ignored.
        level : str
            Ignored.
        """
        rows = [(text,) for text in read_documents(X)]
        task = PairTask(self, [], rows, self.network_.config["context"])
        if not task.watched:
            return []
        loss, n = task.look(self.network_), len(task.look_at[0].y)
        return [
            Claim(
                "pair_loss",
                Strength.MEASURED,
                loss,
                objective="−mean log softmax of cos(e(aᵢ), e(bⱼ))/τ, passages of texts",
                detail=f"{loss:.3f} nats for pairs of passages; vectors that say "
                f"nothing have {np.log(n):.3f}",
            )
        ]

    def _check(self) -> None:
        check_options(self)
        check_shape(self, fewest=0)
        check_number("temperature", self.temperature, open_low=True)
        base = getattr(self.base, "estimator", self.base)  # one that is frozen
        if base is not None and not isinstance(base, MaskedLanguageModel):
            raise TypeError(
                f"base must be a MaskedLanguageModel or None, got {self.base!r}."
            )


def as_pairs(texts: TextsLike) -> list[tuple[Any, ...]] | None:
    """The pairs, if texts come in pairs."""
    if not isinstance(texts, Sequence) or isinstance(texts, str | bytes):
        return None
    found = [t for t in texts if isinstance(t, tuple | list)]
    if not found:
        return None
    if len(found) < len(texts) or any(len(pair) != 2 for pair in found):
        raise ValueError("texts must be texts, or pairs of two texts each, not both.")
    return [tuple(pair) for pair in found]


def pooled(network: Transformer, tokens: Tensor, seen: Tensor) -> Tensor:
    """The mean state of each row's tokens, of length 1: (rows, width)."""
    states, _ = network.states(tokens, mask=seen)
    inside = seen.clone()
    inside[:, 0] = False  # the end-of-text token
    return F.normalize((states * inside[..., None]).sum(dim=1), dim=1)


class PairTask:
    """Pairs of texts that belong together, against all others of a batch.

    Parameters
    ----------
    model : SentenceEncoder
        With its parameters and tokeniser.
    rows, held : list of tuples of one or two texts
        A text, whose passages make a pair, or a pair; to learn from, and to stop by.
    context : int
        Tokens that the network sees at once.
    """

    def __init__(
        self, model: Fit, rows: list[Any], held: list[Any] | None, context: int
    ) -> None:
        self.model, self.end = model, end_of(model.tokenizer_)
        self.room = context - 1
        self.rows, watched = self._encoded(rows), self._encoded(held or [])
        self.watched = len(watched) > 1
        sizes = [min(sum(map(len, row)), context) for row in self.rows] or [context]
        mean = max(2.0, float(np.mean(sizes)))
        asked = training.rows_of_a_step(model, [mean])
        self.batch_size = max(1, min(asked, len(self.rows)))
        self.tokens = int(self.batch_size * mean)
        self.a_pass = -(-len(self.rows) // self.batch_size)
        self.data = (self.rows, watched)
        fixed = np.random.default_rng(0)
        some = watched[:WATCHED]
        self.look_at = [self._batch(fixed, some)] if self.watched else []

    def _encoded(self, rows: list[Any]) -> list[tuple[Array, ...]]:
        encode = self.model.tokenizer_.encode
        found: list[tuple[Array, ...]] = []
        for row in rows:
            ids = tuple(encode(text) for text in row)
            if len(ids) == 2 and min(map(len, ids)):
                found.append(ids)
            elif len(ids) == 1:
                parts = parts_of(ids[0], LONG * self.room)
                found += [(part,) for part in parts if len(part) > 1]
        return found

    def objective(self, module: Any, batch: Batch) -> Losses:
        """The cross-entropy of telling each text's partner from the others."""
        a, seen_a, b, seen_b = batch.inputs
        z = pooled(module, a, seen_a) @ pooled(module, b, seen_b).T
        z = z / float(self.model.temperature)
        rows, columns = F.cross_entropy(z, batch.y), F.cross_entropy(z.T, batch.y)
        return {"loss": (rows + columns) / 2}

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Batch]:
        """Batches of different rows; passages are cut again each time."""
        for _ in range(steps):
            some = rng.choice(len(self.rows), self.batch_size, replace=False)
            yield self._batch(rng, [self.rows[i] for i in some.tolist()])

    def look(self, module: nn.Module) -> float:
        """The loss of held-out pairs."""
        with evaluating(module), torch.no_grad():
            return float(self.objective(module, self.look_at[0])["loss"])

    def _batch(self, rng: np.random.Generator, rows: list[Any]) -> Batch:
        pairs = [row if len(row) == 2 else self._cut(rng, row[0]) for row in rows]
        room, inputs = self.room, []
        for side in zip(*pairs):
            begun = [np.concatenate([[self.end], ids[:room]]) for ids in side]
            inputs += [torch.from_numpy(x) for x in padded(begun, self.end)]
        device = self.model.device
        y = torch.arange(len(rows), device=device)
        return Batch(tuple(x.to(device) for x in inputs), y, None)

    def _cut(self, rng: np.random.Generator, ids: Array) -> tuple[Array, Array]:
        """A passage of a text and the one that follows it."""
        at, room = int(rng.integers(1, len(ids))), self.room
        before, after = rng.integers(min(SHORTEST, room), room + 1, 2).tolist()
        return ids[max(0, at - before) : at], ids[at : at + after]
