"""Mixtures of language models, with the weights that cost a text the fewest bits.

    p(w | h) = Σ_m λ_m p_m(w | h),   λ ≥ 0, Σ λ = 1
    minimise over λ:  −Σ_t log₂ p(x_t | x_{<t}) / bytes of the text

The minimum is convex: −log is, and p is linear in λ. It is found by Newton's method
with a barrier for λ ≥ 0. A mixture is never worse than its best member on the text that
chose λ, and often much better than all where they are wrong in different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import Fitted, certified_fit, check_number
from certus.certificate import Evidence
from certus.language.base import TextModel, end_of
from certus.typing import Array

__all__ = ["MixtureOfModels"]


class MixtureOfModels(TextModel):
    """Average the probabilities of language models, with the best weights for a text.

    Objective
    ---------
    minimise −Σ_t log₂ Σ_m λ_m p_m(x_t | x_{<t}) / bytes over λ ≥ 0 with Σ λ = 1.

    Certificate
    -----------
    ``mixing_gap`` (PROVED): no other weights need fewer bits for each byte of this text
    by more than this. ``bits_per_byte`` (PROVED): what the text costs. Both take the
    probabilities of the members as these compute them; certify each for itself.

    Parameters
    ----------
    models : list of fitted models
        The members: :class:`LanguageModel`, :class:`NGramModel` or mixtures, all with
        the same tokens.
    tol : float, default=1e-6
        Target of the certificate's primary claim. In bits per byte.

    Attributes
    ----------
    weights_ : ndarray of shape (n_models,)
        λ.
    tokenizer_ : ByteTokenizer or BPETokenizer
        That of the members.
    member_bits_ : ndarray of shape (n_models,)
        Bits per byte of each member on the text of the fit.
    n_iter_ : int
        Newton steps.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.language import MixtureOfModels, NGramModel
    >>> train, held_out = "the cat sat on the mat. " * 20, "the cat sat on a hat. "
    >>> models = [NGramModel(order).fit(train) for order in (1, 2, 5)]
    >>> mixture = MixtureOfModels(models).fit(held_out)
    >>> mixture.certificate_.met
    True
    >>> bool(mixture.bits_per_byte(held_out) <= mixture.member_bits_.min())
    True
    """

    def __init__(self, models: Sequence[Any], *, tol: float = 1e-6) -> None:
        self.models = models
        self.tol = tol

    @certified_fit
    def fit(self, texts: Any, y: Any = None) -> Any:
        """Choose the weights of the members; these stay as they are.

        Parameters
        ----------
        texts : str, bytes, Path, or a list of these
            A text that no member was fitted to: on its own training text a member
            looks better than it is.
        y : None
            Ignored.
        """
        check_number("tol", self.tol, open_low=True)
        documents, ids = self._encoded(texts, _common_tokenizer(self.models))
        L = _log_probs(self.models, ids)
        scale = len(ids) / (np.log(2) * sum(map(len, documents)))  # nats of a token
        self.member_bits_ = -L.mean(axis=0) * scale
        self.weights_, self.n_iter_ = mixing_weights(L, self.tol / scale)
        return Fitted(Evidence("mixing"), documents, None)

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
        check_is_fitted(self)
        L = _log_probs(self.models, ids)
        top = L.max(axis=1)
        return top + np.log(np.exp(L - top[:, None]) @ self.weights_)

    def next_probabilities(self, ids: Array) -> Array:
        """The probability of each token to come next.

        Parameters
        ----------
        ids : int array of shape (n,)
            The text so far; may be empty.

        Returns
        -------
        float64 array of shape (n_tokens,)
        """
        check_is_fitted(self)
        each = [model.next_probabilities(ids) for model in self.models]
        return np.asarray(self.weights_ @ np.stack(each))


def _common_tokenizer(models: Any) -> Any:
    """The tokeniser of all members, which must be the same for each."""
    if isinstance(models, TextModel) or not isinstance(models, Sequence) or not models:
        raise TypeError(
            "models must be a list of fitted language models, such as "
            f"[NGramModel().fit(text), LanguageModel().fit(text)], got {models!r}."
        )
    for model in models:
        if not isinstance(model, TextModel):
            raise TypeError(
                "models must hold models of certus.language, got "
                f"{type(model).__name__}."
            )
        check_is_fitted(model, "tokenizer_")
    first = models[0].tokenizer_
    for i, model in enumerate(models[1:], 1):
        other = model.tokenizer_
        if other.tokens != first.tokens or end_of(other) != end_of(first):
            raise ValueError(
                f"models 0 and {i} cut texts into different tokens, so their "
                "probabilities cannot be averaged. Fit both with the same tokenizer."
            )
    return first


def _log_probs(models: Sequence[TextModel], ids: Array) -> Array:
    """Log p of each token (row) by each member (column)."""
    return np.column_stack([model.token_log_probs(ids) for model in models])


# -- the weights ------------------------------------------------------------------


def mixing_weights(L: Array, tol: float) -> tuple[Array, int]:
    """The λ that minimises −mean log Σ_m λ_m e^{L_tm}, to within ``tol``; and steps.

    Minimises f(λ) − μ Σ log λ for smaller and smaller μ: at its minimum f is at most
    μ times the number of members above its own.
    """
    top = L.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        t = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
        raise ValueError(f"no member gives token {t} of the text a probability.")
    P, M = np.exp(L - top), L.shape[1]
    lam, mu, steps = np.full(M, 1 / M), 1e-1, 0
    while M > 1:
        for _ in range(50):
            step, decrement = _newton(P, lam, mu)
            lam, steps = _along(P, lam, mu, step, decrement), steps + 1
            if decrement <= 1e-2 * mu:
                break
        if M * mu <= tol / 8:
            break
        mu = max(mu / 10, tol / (8 * M))
    return lam / lam.sum(), steps


def _newton(P: Array, lam: Array, mu: float) -> tuple[Array, float]:
    """Newton's step that keeps Σ λ, and its decrement squared."""
    n, M = P.shape
    R = P / (P @ lam)[:, None]
    gradient = -R.mean(axis=0) - mu / lam
    H = R.T @ R / n + np.diag(mu / lam**2)
    # In units of λ, in which the barrier is round.
    H, gradient = H * np.outer(lam, lam), gradient * lam
    K = np.block([[H, lam[:, None]], [lam[None], np.zeros((1, 1))]])
    step = np.linalg.solve(K, np.append(-gradient, 0.0))[:M]
    return step * lam, float(step @ H @ step)


def _along(P: Array, lam: Array, mu: float, step: Array, decrement: float) -> Array:
    """Go along the step as far as the objective falls and λ stays positive."""

    def value(at: Array) -> float:
        return float(-np.log(P @ at).mean() - mu * np.log(at).sum())

    down = step[step < 0]
    t = min(1.0, 0.95 / float((-down / lam[step < 0]).max())) if down.size else 1.0
    now = value(lam)
    for _ in range(40):
        if value(lam + t * step) <= now - 1e-4 * t * decrement:
            return np.asarray(lam + t * step)
        t /= 2
    return lam
