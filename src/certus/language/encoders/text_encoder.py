"""What all encoders of text share: their parameters, and one vector for each text.

An encoder learns from texts alone and gives a text a vector, so that it stands in a
pipeline before any classifier or regressor. Each text goes through the network alone:
its vector does not depend on the texts beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Annotated, Any, TypedDict

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from certus.base import Model, check_choice, check_number
from certus.language.base import read_documents
from certus.neural_network.wrapping import require_device
from certus.typing import Array, Fit, RandomState, TextsLike


class EncoderOptions(TypedDict, total=False):
    """The training of an encoder of texts.

    optimizer : str or callable
        Name of an optimiser, or a function that makes one. "muon" moves matrices along
        orthogonal ones. Other names as in
        :class:`certus.neural_network.NeuralClassifier`.
    learning_rate : float
        Step size. None means 0.02 for "muon" and 0.002 for others. It rises at first
        and then falls linearly to zero at the end of the run.
    warmup : float
        Share of the run in which the learning rate rises from zero.
    weight_decay : float
        Rate at which the optimiser shrinks weights in each step.
    clip : float
        Largest norm of a gradient; longer ones are shortened. None leaves all alone.
    batch_size : int
        Number of rows in each training step. By default as many as have 2,048 tokens,
        but at least 16.
    max_iter : int
        Maximum number of iterations. They are steps. With None, as many as ``max_time``
        allows; if that is None too, ten passes over the texts.
    n_iter_no_change : int
        Number of epochs without improvement after which the fit stops. An epoch here is
        a stretch of at most 100 steps, after which the held-out texts are scored.
    early_stopping : bool
        Whether to hold out rows and stop when their score no longer improves. Held out
        are whole texts, or passages of a single one. The best weights are kept.
    validation_fraction : float
        Share of the rows that is held out. It is a share of the bytes.
    max_time : float
        Seconds after which the fit stops and keeps what it has. Without ``max_iter``
        the schedule is planned over this time.
    checkpoint : path
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it; if ``max_iter`` is given, bit for bit.
    device : str
        Device on which torch computes.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. They decide the first weights, what is
        held out, and what each step sees.
    """

    optimizer: Annotated[Any, "muon"]
    learning_rate: Annotated[float | None, None]
    warmup: Annotated[float, 0.02]
    weight_decay: Annotated[float, 0.0]
    clip: Annotated[float | None, 1.0]
    batch_size: Annotated[int | None, None]
    max_iter: Annotated[int | None, None]
    n_iter_no_change: Annotated[float, 10]
    early_stopping: Annotated[bool, True]
    validation_fraction: Annotated[float, 0.05]
    max_time: Annotated[float | None, 120.0]
    checkpoint: Annotated[str | PathLike[str] | None, None]
    device: Annotated[str, "cpu"]
    random_state: Annotated[RandomState, None]


class EncoderShape(TypedDict, total=False):
    """The transformer of an encoder.

    tokenizer : {"auto", "bytes", "bpe"}, int or tokeniser
        How a text becomes tokens. As in :class:`certus.language.LanguageModel`: one
        token for each byte, or byte-pair encoding with this many tokens.
    n_layers : int
        Number of layers.
    width : int
        Number of components of the vector that each layer has for a token, a multiple
        of ``heads``.
    heads : int
        Number of heads of attention.
    context : int
        Number of tokens that the network sees at once. Of a longer text, the vectors of
        its parts are averaged.
    dropout : float
        Share of units that each training step leaves out at random.
    """

    tokenizer: Annotated[Any, "auto"]
    n_layers: Annotated[int, 2]
    width: Annotated[int, 128]
    heads: Annotated[int, 4]
    context: Annotated[int, 64]
    dropout: Annotated[float, 0.0]


class TransformerOptions(EncoderShape, EncoderOptions, total=False):
    """The transformer of an encoder, and its training."""


class TextEncoder(TransformerMixin, Model):
    """Base of encoders of text; abstract.

    Subclasses set ``network_`` and give ``_vector``, the vector of one text.
    """

    network_: Any

    def _vector(self, text: bytes) -> Array:
        """The vector of a text, float64; zeros for an empty one."""
        raise NotImplementedError

    @property
    def n_features_out_(self) -> int:
        """How many numbers the vector of a text has."""
        raise NotImplementedError

    def transform(self, texts: TextsLike) -> Array:
        """One vector for each text.

        Parameters
        ----------
        texts : list of str, bytes or Path
            Texts, new or old. A single text is one row.

        Returns
        -------
        float64 array of shape (n_texts, n_features_out_)
            Zeros for an empty text. A row depends on its own text alone.
        """
        check_is_fitted(self, "network_")
        documents = read_documents(texts, empty=True)
        known: dict[bytes, Array] = {}
        for text in documents:
            if text not in known:
                known[text] = self._vector(text)
        if not documents:
            return np.zeros((0, self.n_features_out_))
        return np.stack([known[text] for text in documents])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of :meth:`transform`.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        check_is_fitted(self, "network_")
        name = type(self).__name__.lower()
        columns = [f"{name}{i}" for i in range(self.n_features_out_)]
        return np.asarray(columns, dtype=object)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        return tags


def check_options(model: Fit) -> None:
    """Raise unless the parameters of the training make sense."""
    check_number("learning_rate", model.learning_rate, open_low=True, none=True)
    check_number("warmup", model.warmup, 0, 1)
    check_number("weight_decay", model.weight_decay)
    check_number("clip", model.clip, open_low=True, none=True)
    check_number("batch_size", model.batch_size, 1, integer=True, none=True)
    check_number("max_iter", model.max_iter, 1, integer=True, none=True)
    check_number("max_time", model.max_time, open_low=True, none=True)
    if model.n_iter_no_change != math.inf:
        check_number("n_iter_no_change", model.n_iter_no_change, 1, integer=True)
    check_number("validation_fraction", model.validation_fraction, 0, 0.9)
    check_choice("early_stopping", model.early_stopping, (False, True))
    check_number("dropout", model.dropout, 0, 1)
    require_device(model.device)


def check_shape(model: Fit, fewest: int = 1) -> None:
    """Raise unless the sizes of the transformer make sense, and its layers suffice."""
    check_number("n_layers", model.n_layers, fewest, integer=True)
    for name in ("width", "heads"):
        check_number(name, getattr(model, name), 1, integer=True)
    check_number("context", model.context, 4, integer=True)
    if model.width % (2 * model.heads):
        raise ValueError(
            f"width must be an even multiple of heads, got width={model.width} and "
            f"heads={model.heads}."
        )


def parts_of(ids: Array, size: int) -> list[Array]:
    """The tokens of a text in stretches of at most ``size``, of nearly equal length.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.language.encoders.text_encoder import parts_of
    >>> [part.tolist() for part in parts_of(np.arange(7), 3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    return np.array_split(ids, max(1, -(-len(ids) // size)))
