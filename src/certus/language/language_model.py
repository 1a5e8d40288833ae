"""Language models: a transformer that gives the probability of each next token.

    p(text) = Πₜ p(xₜ | x_{<t}; θ),   p(· | x_{<t}; θ) = softmax(f(x_{<t}; θ))

trained by cross-entropy on the next token, and judged by bits for each byte of text it
has not seen.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from certus.base import Fitted, certified_fit, check_choice, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.language import training
from certus.language.base import fitted_tokenizer, joined, read_documents
from certus.language.precision import require_precision
from certus.language.sizing import SIZES
from certus.language.transformer_text import TransformerText
from certus.neural_network import distributed
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.modules.transformer import ACTIVATIONS, POSITIONS
from certus.neural_network.network_loss import witness_of
from certus.neural_network.run import TrainingRun
from certus.neural_network.wrapping import require_device
from certus.typing import Column, RandomState, Texts

__all__ = ["LanguageModel"]

#: Fewest tokens of which some are held out.
WORTH_HOLDING = 256


class LanguageModel(TransformerText):
    """A transformer that learns to continue texts, one token after the other.

    Sizes, optimiser and schedule are chosen from the length of the text and the time
    that training may take, unless they are given.

    Objective
    ---------
    mean −log p(xₜ | x_{<t}; θ) over windows of ``context`` tokens, drawn from the whole
    text. Every sixteenth window begins with the end-of-text token, as a text does.

    Certificate
    -----------
    ``bits_per_byte`` of the held-out text, or of the whole text where nothing is held
    out: the bytes are counted and the probabilities computed again, by the verifier's
    own transformer in float64. :func:`certus.certify` does so for any text.

    Parameters
    ----------
    tokenizer : {"auto", "bytes", "bpe"}, int or tokeniser, default="auto"
        How a text becomes tokens. One token for each byte; byte-pair encoding with
        4,096 or the given number of tokens; or a tokeniser of your own with the special
        token ``"<|end|>"``. "auto" takes bytes for texts below 0.1 MB and byte-pair
        encoding for longer ones, 1,024 tokens for 1 MB: the same time of training then
        covers two to three times as much text.
    n_layers : int, default=None
        Number of layers. By default all sizes are chosen: 4 layers of width 128 for a
        megabyte of text and ten minutes.
    width : int, default=None
        Number of components of the vector that each layer has for a token, a multiple
        of ``heads``.
    heads : int, default=None
        Number of heads of attention.
    context : int, default=None
        Number of tokens that the network sees at once.
    position : {"rotary", "learned", "sinusoidal", None}, default="rotary"
        How the network knows the place of a token, as in
        :class:`certus.neural_network.modules.Transformer`.
    activation : str, default="relu2"
        Activation function of the hidden layers. "relu2", "gelu", "gelu_tanh", "relu"
        or "swiglu".
    qk_norm : bool, default=True
        Whether queries and keys are normalised, which keeps training stable.
    dropout : float, default=0.0
        Share of units that each training step leaves out at random.
    optimizer : str or callable, default="auto"
        Name of an optimiser, or a function that makes one. "muon" moves matrices along
        orthogonal ones; "auto" takes it for steps of 1,024 tokens and more, and "adam"
        for smaller ones. Other names as in
        :class:`certus.neural_network.NeuralClassifier`.
    learning_rate : float, default=None
        Step size. By default 0.02 for "muon" and 0.002 for others. It rises at first
        and then falls linearly to zero at the end of the run.
    warmup : float, default=0.02
        Share of the run in which the learning rate rises from zero.
    weight_decay : float, default=0.0
        Rate at which the optimiser shrinks weights in each step.
    clip : float, default=1.0
        Largest norm of a gradient; longer ones are shortened. None leaves all alone.
    average : "polyak" or float, default=None
        Whether to predict with averaged weights. "polyak" takes the mean over all
        steps, a number is the decay of an exponential mean.
    batch_size : int, default=None
        Number of rows in each training step. They are windows; by default 1,024 tokens.
    max_iter : int, default=None
        Maximum number of iterations. They are steps. With None, as many as ``max_time``
        allows; if that is None too, ten passes over the text.
    n_iter_no_change : int, default=10
        Number of epochs without improvement after which the fit stops. An epoch here is
        a stretch of at most 100 steps, after which the held-out text is scored.
    early_stopping : bool, default=True
        Whether to hold out rows and stop when their score no longer improves. Held out
        are whole documents, or passages spread over a single one. The best weights are
        kept.
    validation_fraction : float, default=0.02
        Share of the rows that is held out. It is a share of the bytes.
    max_time : float, default=600.0
        Seconds after which the fit stops and keeps what it has. Without ``max_iter``
        the schedule is planned over this time.
    checkpoint : path, default=None
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it; if ``max_iter`` is given, bit for bit.
    warm_start : bool, default=False
        Whether to start from the last fit. Its tokeniser and network are kept: train on
        much text first, then on the text that matters.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of products in training. Weights and probabilities stay in float32.
        "bfloat16" is refused on a processor without instructions for it, where it would
        be ten times slower.
    device : str, default="cpu"
        Device on which torch computes.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the first weights, the
        windows and what is held out.

    Attributes
    ----------
    network_ : certus.neural_network.modules.Transformer
        The trained network, in evaluation mode.
    tokenizer_ : ByteTokenizer or BPETokenizer
        Cuts a text into tokens.
    config_ : dict
        What the network was built with.
    weights_ : dict of float32 ndarray
        Its weights by name.
    history_ : dict of lists
        After each stretch of steps: loss (nats for each token), validation_loss,
        validation_bits (bits for each byte of held-out text), steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Stretch of steps whose weights were kept, from 1.
    validation_bits_ : float
        Bits per byte of all held-out text; NaN where there is none.
    baselines_ : dict of str to float
        Bits per byte of at most 16,384 held-out tokens with an n-gram model and with
        compressors that know the training text. Empty where ``max_iter`` is given,
        unless a callback looks at it.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Under ``torchrun`` each process trains on its share of every batch.

    Examples
    --------
    >>> from certus.language import LanguageModel
    >>> text = "the cat sat on the mat and the dog sat on the cat. " * 100
    >>> model = LanguageModel(n_layers=2, width=32, context=32, max_iter=60,
    ...                       random_state=0).fit(text)
    >>> model.bits_per_byte("the dog sat on the mat.") < 3
    True
    """

    def __init__(
        self,
        tokenizer: Any = "auto",
        *,
        n_layers: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        context: int | None = None,
        position: str | None = "rotary",
        activation: str = "relu2",
        qk_norm: bool = True,
        dropout: float = 0.0,
        optimizer: Any = "auto",
        learning_rate: float | None = None,
        warmup: float = 0.02,
        weight_decay: float = 0.0,
        clip: float | None = 1.0,
        average: str | float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        n_iter_no_change: float = 10,
        early_stopping: bool = True,
        validation_fraction: float = 0.02,
        max_time: float | None = 600.0,
        checkpoint: str | os.PathLike[str] | None = None,
        warm_start: bool = False,
        precision: str = "float32",
        device: str = "cpu",
        random_state: RandomState = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.n_layers = n_layers
        self.width = width
        self.heads = heads
        self.context = context
        self.position = position
        self.activation = activation
        self.qk_norm = qk_norm
        self.dropout = dropout
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.clip = clip
        self.average = average
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.precision = precision
        self.device = device
        self.random_state = random_state

    @certified_fit
    def fit(self, texts: Texts, y: Column = None, *, validation: Any = None) -> Any:
        """Learn from texts.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text, or documents.
        y : None
            Ignored.
        validation : str, bytes, Path, or a list of these, optional
            Text of your own to stop by; nothing is held out of ``texts`` then.
        """
        self._check()
        documents = read_documents(texts)
        rng = generator_of(self.random_state)
        distributed.join(rng)
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        if kept is not None:
            kept.begin(rng)
        monitor = Monitor(self, texts, y)
        documents, held = self._held(documents, validation, rng)
        fresh = not (self.warm_start and hasattr(self, "network_"))
        if fresh:
            self.tokenizer_ = fitted_tokenizer(self.tokenizer, documents)
        ids = self._stream(joined(self.tokenizer_, documents))
        watched = None if held is None else joined(self.tokenizer_, held)
        watched = None if watched is None else self._stream(watched)
        network = None if fresh else self.network_
        run, batch_size = training.begin_run(self, len(ids) - 1, rng, network)
        course = training.Course(self, run, ids, batch_size, watched)
        if kept is not None:
            params, module = self.get_params(deep=False), run.step.modules["module"]
            kept.resume(run, describe(params, module, ids, watched))
        if self.max_iter is None:
            course.baselines()  # before the clock starts: it may compile kernels
        status = course.train(kept, monitor)
        self.baselines_ = course.known or {}
        self._finish(run, held)
        monitor.close({})
        evidence = Evidence("network", witness=witness_of(run))
        return Fitted(evidence, documents if held is None else held, None, None, status)

    def _held(
        self, documents: list[bytes], validation: Any, rng: np.random.Generator
    ) -> tuple[list[bytes], list[bytes] | None]:
        """Documents to learn from, and those to stop by."""
        if validation is not None:
            return documents, read_documents(validation)
        if not self.early_stopping or sum(map(len, documents)) < WORTH_HOLDING:
            return documents, None
        return training.held_out(documents, float(self.validation_fraction), rng)

    def _finish(self, run: TrainingRun, held: list[bytes] | None) -> None:
        run.step.fetch = run.best = None  # type: ignore[attr-defined]
        final: Any = run.final()
        self.network_ = final.eval()
        self.n_iter_ = int(run.schedules[0].last_epoch)
        self.history_ = {name: list(column) for name, column in run.history.items()}
        self.best_epoch_ = run.best_epoch
        self.validation_bits_ = math.nan if held is None else self.bits_per_byte(held)

    # -- parameters ---------------------------------------------------------------

    def _check(self) -> None:
        for name in SIZES:
            check_number(name, getattr(self, name), 1, integer=True, none=True)
        check_choice("position", self.position, POSITIONS)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_number("dropout", self.dropout, 0, 1)
        check_number("learning_rate", self.learning_rate, open_low=True, none=True)
        check_number("warmup", self.warmup, 0, 1)
        check_number("weight_decay", self.weight_decay)
        check_number("clip", self.clip, open_low=True, none=True)
        check_number("max_iter", self.max_iter, 1, integer=True, none=True)
        check_number("max_time", self.max_time, open_low=True, none=True)
        if self.n_iter_no_change != math.inf:
            check_number("n_iter_no_change", self.n_iter_no_change, 1, integer=True)
        check_number("validation_fraction", self.validation_fraction, 0, 0.9)
        for name in ("early_stopping", "warm_start", "qk_norm"):
            check_choice(name, getattr(self, name), (False, True))
        if self.width is not None and self.width % (2 * (self.heads or 1)):
            raise ValueError(
                f"width must be an even multiple of heads, got width={self.width} and "
                f"heads={self.heads}."
            )
        require_device(self.device)
        require_precision(self.precision, self.device)
