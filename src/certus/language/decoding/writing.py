"""What a network that models text can write: generations, and compressed files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.language.base import end_of, read_documents
from certus.language.decoding import coding
from certus.language.decoding.beam import beam_search
from certus.language.decoding.counted_drafts import CountedDraft
from certus.language.decoding.generation import DraftRecord, Generation
from certus.language.decoding.samplers import (
    CompiledDecoder,
    Drawn,
    Rule,
    Tried,
    check_count,
    check_rule,
    sample,
    sample_with_draft,
)
from certus.language.ngram import NGramModel
from certus.language.tokens.pieces import as_bytes
from certus.language.tokens.tokenizers import ByteTokenizer
from certus.typing import Array, Fit, RandomState


class Writer:
    """Mixin of models with ``config_``, ``weights_`` and ``tokenizer_``."""

    tokenizer_: ByteTokenizer

    if TYPE_CHECKING:

        @property
        def config_(self) -> dict[str, Any]:
            """What the network was built with."""

        @property
        def weights_(self) -> Mapping[str, Array]:
            """The network's weights by name."""

    def next_probabilities(self, ids: Array) -> Array:
        """The probability of each token to come next; the model gives it."""
        raise NotImplementedError

    def decoder(self) -> CompiledDecoder:
        """The network as it is now, arranged for compiled decoding."""
        check_is_fitted(self)
        config, n = self.config_, self.tokenizer_.n_tokens
        if config["n_tokens"] != n:
            raise ValueError(
                f"The network has {config['n_tokens']} tokens and the tokeniser {n}; "
                "use the tokeniser that the network was trained with."
            )
        return CompiledDecoder(config, self.weights_, end_of(self.tokenizer_))

    def generate(
        self,
        prompt: str | bytes = "",
        max_tokens: int = 256,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        beam: int | None = None,
        draft: Writer | NGramModel | None = None,
        draft_tokens: int = 4,
        random_state: RandomState = None,
    ) -> Generation:
        """Continue a text.

        Tokens are drawn one by one until the end-of-text token or ``max_tokens``. With
        the same seed the text is the same, alone or among others, with any cache, and
        on any processor that follows IEEE 754.

        Parameters
        ----------
        prompt : str or bytes, default=""
            What the text begins with. It may be longer than the context: the network
            then sees the last part of it.
        max_tokens : int, default=256
            Most tokens to draw.
        temperature : float, default=1.0
            Scores are divided by it. Below 1 the probable becomes more probable; 0
            always takes the most probable token.
        top_k : int, optional
            Draw only from the ``top_k`` most probable tokens; from all by default.
        top_p : float, default=1.0
            Draw from the fewest most probable tokens whose probabilities sum to this.
        beam : int, optional
            Number of candidates that a search for the most probable text keeps. By
            default the text is drawn.
        draft : LanguageModel or NGramModel, optional
            A smaller model with the same tokens, which proposes. The text still has
            this model's distribution, and with ``temperature=0`` the very same tokens.
        draft_tokens : int, default=4
            How many tokens the draft proposes at once, at most 15.
        random_state : int, Generator or None, default=None
            Seed or generator of all random numbers.

        Returns
        -------
        Generation
            The text, its tokens, and the numbers that drew them.
        """
        most = check_count("max_tokens", max_tokens)
        ids, decoder = self._prompt(prompt), self.decoder()
        rule = check_rule(temperature, top_k, top_p, decoder.n_tokens)
        if beam is not None:
            if rule != Rule(1.0, 0, 1.0) or draft is not None:
                raise ValueError(
                    "Beam search looks for the most probable text and draws nothing. "
                    "Leave temperature, top_k, top_p and draft out, or leave beam out."
                )
            found = beam_search(decoder, ids, most, check_count("beam", beam, 1))
            return self._told(decoder, ids, found, rule, beam)
        if draft is None:
            found = sample(decoder, [ids], most, rule, random_state)[0]
            return self._told(decoder, ids, found, rule)
        many = check_count("draft_tokens", draft_tokens, 1)
        other = self._draft(draft)
        found, tried = sample_with_draft(
            decoder, other, ids, most, rule, random_state, min(many, 15)
        )
        return self._told(decoder, ids, found, rule, None, (other, tried))

    def generate_many(
        self,
        prompts: Sequence[str | bytes],
        max_tokens: int = 256,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        random_state: RandomState = None,
    ) -> list[Generation]:
        """Continue several texts side by side, which is faster than in turn.

        The texts are those that :meth:`generate` draws from the same numbers: a text
        does not depend on its neighbours.

        Parameters
        ----------
        prompts : list of str or bytes
            What the texts begin with.
        max_tokens : int, default=256
            Most tokens to draw for each.
        temperature : float, default=1.0
            Scores are divided by it; 0 always takes the most probable token.
        top_k : int, optional
            Draw only from the ``top_k`` most probable tokens; from all by default.
        top_p : float, default=1.0
            Draw from the fewest most probable tokens whose probabilities sum to this.
        random_state : int, Generator or None, default=None
            Seed or generator of all random numbers.

        Returns
        -------
        list of Generation
        """
        if isinstance(prompts, str | bytes):
            raise TypeError(
                "prompts must be a list of texts, got one text. Use generate() for it."
            )
        most = check_count("max_tokens", max_tokens)
        ids, decoder = [self._prompt(prompt) for prompt in prompts], self.decoder()
        rule = check_rule(temperature, top_k, top_p, decoder.n_tokens)
        drawn = sample(decoder, ids, most, rule, random_state)
        return [self._told(decoder, *both, rule) for both in zip(ids, drawn)]

    def compress(self, text: str | bytes) -> bytes:
        """The text as a file that :meth:`decompress` restores with this model.

        An arithmetic coder writes each token with the probability that the model gives
        it, so the file has −log₂ p(text) bits and a header of about 26 bytes. The model
        is not in the file, and its size is not counted.

        Parameters
        ----------
        text : str, bytes or Path
            One text.

        Returns
        -------
        bytes

        Examples
        --------
        >>> from certus.language import LanguageModel
        >>> words = {"n_layers": 1, "width": 32, "heads": 2, "context": 16}
        >>> text = "to be or not to be, " * 30
        >>> model = LanguageModel(**words, max_iter=80, random_state=0).fit(text)
        >>> file = model.compress(text)
        >>> model.decompress(file).decode() == text
        True
        >>> len(file) < 0.8 * len(text)
        True
        """
        documents = read_documents(text, empty=True)
        if len(documents) != 1:
            raise ValueError(
                f"compress takes one text, got {len(documents)}; compress each by "
                "itself."
            )
        return coding.compress(documents[0], self, self.decoder())

    def decompress(self, data: bytes) -> bytes:
        """The text in a file that :meth:`compress` made with this model.

        Parameters
        ----------
        data : bytes
            The file.

        Returns
        -------
        bytes
            The text; ``.decode()`` makes a string of it. A checksum is compared: it is
            this text, or an error says that it cannot be restored.
        """
        return coding.decompress(data, self, self.decoder())

    def _prompt(self, prompt: Any) -> Array:
        if not isinstance(prompt, str | bytes | bytearray | memoryview):
            raise TypeError(
                f"prompt must be a str or bytes, got {type(prompt).__name__}. For "
                "several prompts use generate_many()."
            )
        check_is_fitted(self)
        return np.asarray(self.tokenizer_.encode(as_bytes(prompt)), np.int64)

    def _draft(self, draft: Fit | None) -> CompiledDecoder | CountedDraft:
        if not isinstance(draft, Writer | NGramModel):
            raise TypeError(
                "draft must be a fitted LanguageModel or NGramModel, got "
                f"{type(draft).__name__}."
            )
        check_is_fitted(draft)
        ours, theirs = self.tokenizer_, draft.tokenizer_
        if theirs.tokens != ours.tokens or theirs.special != ours.special:
            raise ValueError(
                "draft must have the same tokens as the model. Fit it with "
                "tokenizer=model.tokenizer_."
            )
        return CountedDraft(draft) if isinstance(draft, NGramModel) else draft.decoder()

    def _told(
        self,
        decoder: CompiledDecoder,
        prompt: Array,
        drawn: Drawn,
        rule: Rule,
        beam: int | None = None,
        drafted: tuple[CompiledDecoder | CountedDraft, Tried] | None = None,
    ) -> Generation:
        record = None
        if drafted is not None:
            other, tried = drafted
            record = DraftRecord(*tried, config=other.config, weights=other.weights)
        return Generation(
            text=self.tokenizer_.decode(drawn.ids[len(prompt) :]),
            ids=drawn.ids,
            prompt_length=len(prompt),
            uniforms=drawn.uniforms,
            log_probs=drawn.log_probs,
            source=drawn.source,
            temperature=rule.temperature,
            top_k=rule.top_k or None,
            top_p=rule.top_p,
            beam=beam,
            finished=drawn.finished,
            end=decoder.end,
            draft=record,
            config=decoder.config,
            weights=decoder.weights,
            tokens=self.tokenizer_.tokens,
        )
