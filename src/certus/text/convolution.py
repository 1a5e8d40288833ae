"""Classification of texts by convolutions over their words.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s

ℓ is the cross-entropy and f the network :class:`certus.neural_network.modules.TextCNN`:
vectors of words, filters of several widths, the maximum over the text. It can
distinguish "good, not bad" from "bad, not good", which have the same bag of words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import nn

from certus.base import certified_fit, check_number
from certus.neural_network.batches import NetworkInputs, RaggedInputs
from certus.neural_network.modules.text_cnn import TextCNN
from certus.neural_network.objective import Targets
from certus.neural_network.parameters import (
    ClassifierOptions,
    LabelOptions,
    TrainingOptions,
    trained_with,
)
from certus.neural_network.row_targets import ClassTargets
from certus.text.corpus import encode, positions
from certus.text.vocabulary import lookup
from certus.text.words import Tokenizer
from certus.typing import Array, ArrayLike, TextsLike


@trained_with(
    TrainingOptions,
    LabelOptions,
)
class TextConvClassifier(ClassTargets):
    """Classifies texts by the runs of words that occur in them.

    Objective
    ---------
    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s, ℓ the cross-entropy.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED:
    ``training_loss``, ``gradient_norm``, ``gradient_ratio``; at level ``full`` the
    smallest and the largest curvature.

    Parameters
    ----------
    embedding : int, default=64
        Number of components of the vector that stands for a token at the input.
    widths : sequence of int, default=(1, 2, 3)
        How many successive words filters look at.
    n_filters : int, default=64
        Filters of each width.
    dropout : float, default=0.5
        Share of units that each training step leaves out at random. It applies to the
        maxima of the filters.
    min_count : int, default=1
        Words that occur less often are left out. They are unknown, with the vector 0.
    tokenizer : None, "whitespace" or callable, default=None
        How a str is split into words; None means :func:`certus.text.tokenize`. Lists of
        tokens are kept.
    {shared}

    Attributes
    ----------
    module_ : certus.neural_network.modules.TextCNN
        The trained network, in evaluation mode.
    vocabulary_ : list of str
        Words, by falling count; word i is number i + 1 to the network, unknown ones 0.
    classes_ : ndarray
        Classes; numbers of columns, where y has several.
    {fitted}

    Examples
    --------
    >>> from certus.text import TextConvClassifier
    >>> texts = ["good, not bad", "bad, not good", "not bad but good", "not good: bad"]
    >>> model = TextConvClassifier(schedule="linear", max_iter=30, random_state=0)
    >>> model.fit(texts, ["+", "-", "+", "-"]).predict(["good and not bad"])
    array(['+'], dtype='<U1')
    """

    def __init__(
        self,
        *,
        embedding: int = 64,
        widths: Sequence[int] = (1, 2, 3),
        n_filters: int = 64,
        dropout: float = 0.5,
        min_count: int = 1,
        tokenizer: str | Tokenizer | None = None,
        **shared: Unpack[ClassifierOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self,
        X: TextsLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: TextsLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Learn from labelled texts.

        Parameters
        ----------
        X : iterable of str, or of sequences of str
            Texts, or their words. One that can be read only once is kept as a list.
        y : array-like of shape (n_texts,) or (n_texts, n_labels)
            Classes, zeros and ones of labels, or distributions over classes.
        sample_weight : array-like of shape (n_texts,), optional
            Row weights. There is one for each text.
        X_val, y_val : iterable of texts and array-like, optional
            Texts of your own to stop by.

        Returns
        -------
        TextConvClassifier
            Itself.
        """
        texts: Any = list(X) if isinstance(X, Iterator) else X
        return self._fit(texts, y, sample_weight, X_val, y_val)

    def _read_X(self, X: Any, reset: bool) -> Any:
        texts = list(X) if isinstance(X, Iterator) else X
        if reset:
            found = encode(texts, tokenizer=self.tokenizer, min_count=self.min_count)
            if not found.words:
                raise ValueError(
                    f"The {found.n_documents:,} texts have no words to learn from. "
                    "Lower min_count, or check whether the texts are empty."
                )
            self.vocabulary_ = found.words
        numbers = positions(texts, lookup(self), tokenizer=self.tokenizer)
        if not numbers:
            raise ValueError("X holds no texts: at least 1 is required.")
        return [places + 1 for places in numbers]

    def _rows(self, X: list[Array], module: nn.Module) -> NetworkInputs:
        return RaggedInputs(X, torch.int64, self.device)

    def _build(self, X: list[Array], targets: Targets) -> nn.Module:
        return TextCNN(
            len(self.vocabulary_) + 1,
            targets.outputs,
            embedding=self.embedding,
            widths=tuple(self.widths),
            channels=self.n_filters,
            dropout=float(self.dropout),
        )

    def _check_training(self) -> None:
        super()._check_training()
        check_number("embedding", self.embedding, 1, integer=True)
        check_number("n_filters", self.n_filters, 1, integer=True)
        check_number("dropout", self.dropout, 0, 1)
        check_number("min_count", self.min_count, 1, integer=True)
        listed = isinstance(self.widths, list | tuple | np.ndarray)
        if not listed or not len(self.widths):
            raise ValueError(
                f"widths must be a list of whole numbers, got {self.widths!r}."
            )
        for width in self.widths:
            check_number("each of widths", width, 1, integer=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        return tags
