"""Words in their context, read by their characters in both directions (ELMo).

    minimise over θ:  −½ mean [log p(w_{t+1} | w₁ … w_t) + log p(w_{t−1} | w_t … w_n)]
    e(w_t) = Σⱼ sⱼ h_t^j,   s on the simplex

The two directions share the convolutions over characters and the scores of words. The
vector of a word is a convex combination of its states in all layers; a task that comes
after chooses s, or all layers count alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length
from torch.nn import functional as F

from certus._core.sharing import shares
from certus.base import Fitted, certified_fit, check_number, generator_of, label_codes
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence, Strength
from certus.language.base import read_documents
from certus.language.encoders import encoder_training as training
from certus.language.encoders.masking import NONE, padded
from certus.language.encoders.text_encoder import (
    EncoderOptions,
    TextEncoder,
    check_options,
)
from certus.neural_network import tasks
from certus.neural_network.batches import Batch
from certus.neural_network.modules.character_reader import CharacterReader, symbols
from certus.neural_network.network_loss import witness_of
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import evaluating
from certus.text.words import tokenize
from certus.typing import Array, Column, Fit, Texts

__all__ = ["CharacterEncoder"]

#: Words with a number of their own that are predicted: unknown ones, and ends of texts.
UNKNOWN, EDGE = 0, 1
#: Bytes of a word that are read; held-out texts that are looked at.
LONGEST, WATCHED = 24, 64
#: Steps of gradient descent on the shares of layers, and the weight of ‖W‖²/2.
STEPS, RIDGE = 300, 1e-3


@shares(EncoderOptions, optimizer="adam", learning_rate=3e-3)
class CharacterEncoder(TextEncoder):
    """Vectors of words that depend on their context and their spelling (ELMo).

    Words are runs of letters and digits in lower case. They are read by their bytes, so
    that a word never seen has a vector too.

    Objective
    ---------
    −½ mean [log p(next word | words so far) + log p(word before | words from here on)],
    over the most frequent words; rarer ones count as one.

    Certificate
    -----------
    ``word_loss`` (MEASURED): the objective on the held-out texts. ``layer_shares``
    (PROVED): the weights of the layers are not negative and add up to one.
    ``mixed`` (PROVED): vectors of texts are that combination of the layers' vectors.

    Parameters
    ----------
    n_layers : int, default=2
        Number of layers. Each has an LSTM in both directions.
    width : int, default=64
        Number of units in a recurrent state. This holds for each direction: the vector
        of a word has twice as many numbers.
    context : int, default=32
        Number of tokens that the network sees at once. They are words; of longer texts,
        the vectors of their parts are averaged.
    max_words : int, default=4096
        Maximum number of words; the most frequent ones are kept. These are predicted;
        all are read.
    dropout : float, default=0.0
        Share of units that each training step leaves out at random.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.CharacterReader
        The trained network, in evaluation mode.
    vocabulary_ : list of str
        Words that are predicted, by falling count.
    layer_weights_ : ndarray of shape (n_layers + 1,)
        Shares of the layers in a vector, the words' own vectors first. Equal, unless
        ``fit`` is given y: then those with which a linear model predicts y best.
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
    >>> from certus.language import CharacterEncoder
    >>> texts = ["the cat sat on the mat", "the dog lay on the rug"] * 20
    >>> model = CharacterEncoder(width=8, batch_size=8, max_iter=20, random_state=0)
    >>> model.fit(texts).transform(["the catfish sat"]).shape
    (1, 16)
    >>> model.layer_weights_.round(3)
    array([0.333, 0.333, 0.333])
    """

    def __init__(
        self,
        *,
        n_layers: int = 2,
        width: int = 64,
        context: int = 32,
        max_words: int = 4096,
        dropout: float = 0.0,
        **shared: Unpack[EncoderOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, texts: Texts, y: Column = None) -> Any:
        """Learn from texts.

        Parameters
        ----------
        texts : list of str, bytes or Path
            The texts.
        y : array-like of shape (n_texts,), optional
            Classes or numbers of a task; only the shares of the layers depend on them.
        """
        self._check()
        documents = read_documents(texts)
        rng = generator_of(self.random_state)
        target = None if y is None else _target(y, documents)
        kept = tasks.checkpoints_of(self, rng)
        monitor = Monitor(self, texts, y)
        rest, held = training.held_documents(self, documents, rng)
        counts = Counter(word for text in rest for word in words_of(text))
        if not counts:
            raise ValueError("The texts have no words; give texts with letters.")
        common = sorted(counts, key=lambda word: (-counts[word], word))
        self.vocabulary_ = common[: int(self.max_words)]
        task = WordTask(self, rest, held)
        trained = training.train_encoder(
            *(self, self._built, task, rng, kept, monitor, self._state)
        )
        tasks.finish(self, trained, self._state(trained.module))
        if target is not None:
            self.layer_weights_ = _best_shares(self._layers(documents), target)
        monitor.close({})
        evidence = Evidence("network", witness=witness_of(trained.run))
        shown = rest if held is None else held
        return Fitted(
            *(evidence, shown, None, None, trained.status),
            measured=lambda: self.diagnose(shown),
        )

    def _built(self) -> CharacterReader:
        return CharacterReader(
            len(self.vocabulary_) + 2,
            width=self.width,
            n_layers=self.n_layers,
            dropout=float(self.dropout),
        )

    def _state(self, module: Any) -> dict[str, Any]:
        equal = np.full(self.n_layers + 1, 1 / (self.n_layers + 1))
        return {
            "network_": module.eval(),
            "vocabulary_": self.vocabulary_,
            "layer_weights_": equal,
        }

    # -- vectors ------------------------------------------------------------------

    @property
    def n_features_out_(self) -> int:
        """How many numbers the vector of a text has."""
        return 2 * int(self.network_.config["width"])

    def layer_vectors(self, text: str) -> Array:
        """The states of each word of a text in each layer.

        Parameters
        ----------
        text : str or bytes
            One text.

        Returns
        -------
        float64 array of shape (n_layers + 1, n_words, 2 width)
        """
        (document,) = read_documents([text], empty=True)
        return self._states(words_of(document))

    @torch.no_grad()
    def _states(self, words: list[str]) -> Array:
        config, size = self.network_.config, int(self.context)
        if not words:
            return np.zeros((config["n_layers"] + 1, 0, self.n_features_out_))
        device, parts = next(self.network_.parameters()).device, []
        with evaluating(self.network_):
            for some in np.array_split(np.array(words, object), -(-len(words) // size)):
                table = symbols(some.tolist(), LONGEST).to(device)
                places = torch.arange(len(some), device=device)[None]
                ends = torch.tensor([len(some)], device=device)
                states = torch.stack(self.network_(table, places, ends))[:, 0]
                parts.append(states.double().cpu().numpy())
        return np.concatenate(parts, axis=1)

    def _layers(self, documents: list[bytes]) -> Array:
        """The mean state of each text in each layer, (n_layers + 1, texts, 2 width)."""
        found = [self._states(words_of(text)) for text in documents]
        return np.stack([each.sum(axis=1) / max(1, each.shape[1]) for each in found], 1)

    def _vector(self, text: bytes) -> Array:
        """The mean over words of the mixed states."""
        mixed: Array = np.tensordot(self.layer_weights_, self._layers([text]), 1)[0]
        return mixed

    def diagnose(
        self,
        X: Any,
        y: Column = None,
        sample_weight: Column = None,
        *,
        level: str = "quick",
    ) -> list[Claim]:
        """The objective on some texts.

        Parameters
        ----------
        X : list of str
            The texts.
        y, sample_weight : None
            Ignored.
        level : str
            Ignored.
        """
        task = WordTask(self, [], read_documents(X, empty=True))
        if not task.watched:
            return []
        loss = task.look(self.network_)
        return [
            Claim(
                "word_loss",
                Strength.MEASURED,
                loss,
                objective="−½ mean [log p(next word) + log p(word before)]",
                detail=f"{loss:.3f} nats a word, both directions averaged; words drawn "
                f"at random have {np.log(self.network_.config['n_words']):.3f}",
            )
        ]

    def _check(self) -> None:
        check_options(self)
        for name in ("n_layers", "width", "max_words"):
            check_number(name, getattr(self, name), 1, integer=True)
        check_number("context", self.context, 2, integer=True)


def words_of(text: bytes) -> list[str]:
    """The words of a text; bytes that are not UTF-8 separate."""
    return tokenize(text.decode("utf-8", "replace"))


class WordTask:
    """The word after and the word before each word of some texts.

    Parameters
    ----------
    model : CharacterEncoder
        With its parameters and vocabulary.
    documents, held : list of bytes
        Texts to learn from, and to stop by (or None).
    """

    def __init__(
        self, model: Fit, documents: list[bytes], held: list[bytes] | None
    ) -> None:
        self.model = model
        self.numbers = {word: i + 2 for i, word in enumerate(model.vocabulary_)}
        self.rows, watched = self._rows(documents), self._rows(held or [])
        self.watched = bool(watched)
        self.lengths = np.array([len(row) for row in self.rows] or [1])
        self.batch_size = training.rows_of_a_step(model, 2 * self.lengths)
        self.tokens = int(self.batch_size * self.lengths.mean())
        self.a_pass = -(-len(self.rows) // self.batch_size)
        self.data = (self.rows, watched)
        self.look_at = [self._batch(watched[:WATCHED])] if watched else []

    def _rows(self, documents: list[bytes]) -> list[list[str]]:
        size, found = int(self.model.context), []
        for words in map(words_of, documents):
            found += [words[i : i + size] for i in range(0, len(words), size)]
        return found

    def objective(self, module: Any, batch: Batch) -> Losses:
        """The cross-entropy of both directions."""
        states = module(*batch.inputs)[-1]
        ahead, back = module.scores(states)
        return {
            "loss": (
                F.cross_entropy(ahead.flatten(0, 1), batch.y[:, 0].flatten())
                + F.cross_entropy(back.flatten(0, 1), batch.y[:, 1].flatten())
            )
            / 2
        }

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Batch]:
        """Batches of texts of like length."""
        order = training.in_order_of_length(rng, self.lengths, steps, self.batch_size)
        for some in order:
            yield self._batch([self.rows[i] for i in some.tolist()])

    def look(self, module: Any) -> float:
        """The loss of held-out texts."""
        with evaluating(module), torch.no_grad():
            return float(self.objective(module, self.look_at[0])["loss"])

    def _batch(self, rows: Sequence[list[str]]) -> Batch:
        known = sorted({word for row in rows for word in row})
        number = {word: i for i, word in enumerate(known)}
        places, _ = padded([np.array([number[w] for w in row]) for row in rows], 0)
        get = self.numbers.get
        codes = [[EDGE, *(get(w, UNKNOWN) for w in row), EDGE] for row in rows]
        after, _ = padded([np.array(code[2:]) for code in codes], NONE)
        before, _ = padded([np.array(code[:-2]) for code in codes], NONE)
        lengths = torch.tensor([len(row) for row in rows])
        given = (symbols(known, LONGEST), torch.from_numpy(places), lengths)
        y = torch.from_numpy(np.stack([after, before], axis=1))
        device = self.model.device
        return Batch(tuple(x.to(device) for x in given), y.to(device), None)


# -- shares of the layers -------------------------------------------------------------


def _target(y: Column, documents: list[bytes]) -> Array:
    """One-hot classes, or standardised numbers: (texts, outputs)."""
    y = np.asarray(y)
    check_consistent_length(documents, y)
    missing = np.array([v is None or v != v for v in y.ravel().tolist()])
    if missing.any():
        raise ValueError(
            f"y must not hold missing values, got {int(missing.sum())} of them. Drop "
            "the texts without a label."
        )
    if type_of_target(y) in ("binary", "multiclass"):
        classes, codes = label_codes(y)
        return np.eye(len(classes))[codes]
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    return (Y - Y.mean(axis=0)) / np.where(Y.std(axis=0) > 0, Y.std(axis=0), 1.0)


def _best_shares(layers: Array, target: Array) -> Array:
    """Shares s = softmax(a) with which a linear model of Σⱼ sⱼ Hⱼ predicts best.

    ½ mean ‖y − W Σⱼ sⱼ hⱼ − c‖² + ½ ridge‖W‖² is minimised over W and c in closed form,
    and over a by gradient descent; sums over texts are taken once.
    """
    H = layers - layers.mean(axis=1, keepdims=True)
    H, Y = H / (np.sqrt(np.square(H).mean()) + 1e-12), target - target.mean(axis=0)
    G = torch.from_numpy(np.einsum("jnd,kne->jkde", H, H, optimize=True) / len(Y))
    C = torch.from_numpy(np.einsum("jnd,no->jdo", H, Y, optimize=True) / len(Y))
    eye = RIDGE * torch.eye(H.shape[2], dtype=torch.float64)
    a = torch.zeros(len(H), dtype=torch.float64, requires_grad=True)
    steps = torch.optim.Adam([a], lr=0.05)
    for _ in range(STEPS):
        s = torch.softmax(a, 0)
        A, c = torch.einsum("j,k,jkde->de", s, s, G), torch.tensordot(s, C, 1)
        gained = (c * torch.linalg.solve(A + eye, c)).sum()  # by the best W
        steps.zero_grad()
        (-gained).backward()
        steps.step()
    shares = torch.softmax(a.detach(), 0).numpy()
    return np.asarray(shares / shares.sum())
