"""The best policy for a reward, and how far another one is from it.

    J(π) = E r − β KL(π‖ρ),   π* ∝ ρ e^{r/β},   J* = β log E_ρ e^{r/β}
    J* − J(π) = β KL(π‖π*)

Both take distributions over a list of answers, as arrays or from language models; the
second also takes language models with a reward whose range is known, and draws answers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import check_number
from certus.certificate import Certificate, Claim, Status
from certus.language.base import end_of
from certus.language.transformer_text import TransformerText
from certus.language.tuning.answers import read_texts
from certus.language.tuning.policy_base import draw_answers, scores_of
from certus.language.tuning.policy_results import OptimalPolicy
from certus.typing import Array, ArrayLike, Fit, Texts
from certus.verify import (
    PlainNetwork,
    answer_logs,
    policy_claims,
    policy_claims_of_draws,
)

__all__ = ["optimal_policy", "policy_gap"]


def optimal_policy(
    reference: TransformerText | ArrayLike,
    reward: Any,
    beta: float,
    *,
    prompts: Sequence[Any] | None = None,
    answers: Sequence[Any] | None = None,
) -> OptimalPolicy:
    """The policy that no other one beats, π* ∝ ρ e^{r/β}.

    Parameters
    ----------
    reference : array-like of shape (..., n_answers) or fitted language model
        Probabilities of the answers under the reference ρ.
    reward : array-like of shape (..., n_answers), callable or fitted RewardModel
        The reward of each answer; for a language model, a function
        ``reward(prompt, answer)``.
    beta : float
        Price of a nat of divergence. 0 gives the best answers of the reference alone,
        infinity the reference.
    prompts, answers : list of str, for a language model
        All prompts, and the answers among which the distribution is taken. Each is
        followed by the end of the text.

    Returns
    -------
    OptimalPolicy
        ``probabilities``, the value J* and KL(π*‖ρ), with a picture.

    Examples
    --------
    >>> from certus.language import optimal_policy
    >>> best = optimal_policy([0.5, 0.3, 0.2], [0.0, 0.0, 1.0], beta=0.5)
    >>> best.probabilities.round(4)
    array([0.2195, 0.1317, 0.6488])
    """
    check_number("beta", beta, 0)
    if isinstance(reference, TransformerText):
        lq, _ = _listed_law(reference, prompts, answers)
        r = _rewards(reward, prompts, answers)
    else:
        lq, r = _law(reference, "reference"), _numbers(reward, reference)
    q = np.exp(lq - lq.max(axis=-1, keepdims=True))
    q = q / q.sum(axis=-1, keepdims=True)
    best = np.where(q > 0, r, -math.inf).max(axis=-1, keepdims=True)
    if beta == 0:
        w = np.where((r == best) & (q > 0), q, 0.0)
        value = best[..., 0]
    elif beta == math.inf:
        w, value = q, (q * r).sum(axis=-1)
    else:
        w = q * np.exp(np.minimum(r - best, 0.0) / beta)  # above it, q is 0
        value = best[..., 0] + beta * np.log(w.sum(axis=-1))
    p = w / w.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(p > 0, p * np.log(p / q), 0.0).sum(axis=-1)
    named = None if answers is None else list(answers)
    return OptimalPolicy(p, value, kl, named, float(beta), q)


def policy_gap(
    policy: TransformerText | ArrayLike,
    reference: TransformerText | ArrayLike,
    reward: Any,
    beta: float,
    *,
    prompts: Sequence[Any] | None = None,
    answers: Sequence[Any] | None = None,
    max_tokens: int = 32,
    reward_range: tuple[float, float] | None = None,
    floor: float = 0.01,
    n_draws: int = 1000,
    delta: float = 0.05,
) -> Certificate:
    """How far a policy is below the best one, J* − J(π) = β KL(π‖π*).

    Where all answers are listed it is a finite sum. Otherwise the verifier draws
    answers of both models itself, which bounds the gap if the range of the reward is
    known.

    Parameters
    ----------
    policy, reference : array-like of shape (..., n_answers) or fitted language models
        Probabilities of the answers; or models with the same tokens.
    reward : array-like of shape (..., n_answers), callable or fitted RewardModel
        The reward of each answer; for language models, a function
        ``reward(prompt, answer)``.
    beta : float
        Price of a nat of divergence.
    prompts : list of str, for language models
        J is the mean over these.
    answers : list of str, optional
        The answers among which the distributions of language models are taken; None
        draws answers.
    max_tokens : int, default=32
        Most tokens of a drawn answer.
    reward_range : (low, high), optional
        Bounds of the reward, known before. Without them no bound can be given for
        drawn answers.
    floor : float, default=0.01
        Share η of the uniform distribution in the reference, ρ = (1 − η) π_ref + η/V at
        each token of drawn answers.
    n_draws : int, default=1000
        How many pairs of answers are drawn.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    Certificate
        ``gap_to_optimal_policy`` and ``kl_to_reference``: PROVED for listed answers,
        where the gap is missed if doing nothing would be better; STATISTICAL for drawn
        ones, with ``gain_over_reference``.

    Examples
    --------
    >>> from certus.language import policy_gap
    >>> reference, reward = [0.5, 0.3, 0.2], [0.0, 0.0, 1.0]
    >>> found = policy_gap([0.2, 0.1, 0.7], reference, reward, beta=0.5)
    >>> round(found.value, 4), found.met
    (0.0035, True)
    >>> policy_gap([0.0, 0.0, 1.0], reference, reward, beta=2.0).met  # too far away
    False
    """
    check_number("beta", beta, 0)
    if not math.isfinite(beta):
        raise ValueError(
            f"beta must be finite, got {beta!r}: the best policy is the reference then."
        )
    start = time.perf_counter()
    if not isinstance(policy, TransformerText):
        claims = _array_claims(policy, reference, reward, float(beta))
        return _signed(np.asarray(policy), claims, 0, start)
    options = _checked_options(floor, max_tokens, n_draws, delta)
    _check_models(policy, reference)
    texts, three = _texts(prompts), (policy, reference, reward)
    if answers is not None:
        claims = _listed_claims(*three, float(beta), texts, answers)
    else:
        options |= {"beta": float(beta), "bounds": reward_range}
        claims = _drawn_claims(*three, texts, **options)
    return _signed(policy, claims, len(texts), start)


def _checked_options(
    floor: float, max_tokens: int, n_draws: int, delta: float
) -> dict[str, Any]:
    """What :func:`certus.verify.policy_claims_of_draws` calls these options."""
    check_number("floor", floor, 0, 0.5)
    check_number("n_draws", n_draws, 8, integer=True)
    check_number("max_tokens", max_tokens, 1, integer=True)
    if not 0 < delta < 1:
        raise ValueError(f"delta must be a probability between 0 and 1, got {delta!r}.")
    return {
        "floor": float(floor),
        "length": int(max_tokens),
        "n": int(n_draws),
        "delta": float(delta),
    }


def _check_models(policy: TransformerText, reference: Any) -> None:
    """Raise unless the reference is a language model with the policy's tokens."""
    if not isinstance(reference, TransformerText):
        raise TypeError(
            "reference must be a fitted language model as the policy is, got "
            f"{type(reference).__name__}."
        )
    _require_same_tokens(policy, reference)


def _listed_claims(
    policy: Any,
    reference: Any,
    reward: Any,
    beta: float,
    prompts: Texts,
    answers: Texts,
) -> list[Claim]:
    """The claims of language models about answers that are listed."""
    (lp, e), (lq, f) = (
        _listed_law(model, prompts, answers) for model in (policy, reference)
    )
    r = _rewards(reward, prompts, answers)
    return policy_claims(lp, lq, r, beta, e + f)


def _drawn_claims(
    policy: Any, reference: Any, reward: Any, texts: list[Any], **options: Any
) -> list[Claim]:
    """The claims of language models about answers that the verifier draws."""
    encode = policy.tokenizer_.encode
    return policy_claims_of_draws(
        (policy.config_, policy.weights_),
        (reference.config_, reference.weights_),
        [np.asarray(encode(text), np.int64) for text in texts],
        texts,
        list(policy.tokenizer_.tokens),
        scores_of(reward),
        end=end_of(policy.tokenizer_),
        propose=_proposer(policy, reference, options["floor"]),
        **options,
    )


def _array_claims(policy: Any, reference: Any, reward: Any, beta: float) -> list[Claim]:
    lp, lq = _law(policy, "policy"), _law(reference, "reference")
    if lp.shape != lq.shape:
        raise ValueError(
            f"policy and reference must have the same shape, got {lp.shape} and "
            f"{lq.shape}."
        )
    r, m = _numbers(reward, reference), lp.shape[-1]
    # A logarithm of a library is right to 4 units in the last place.
    off = 2.0**-50 * np.where(np.isfinite(lp), np.abs(lp), 0.0).max()
    off += 2.0**-50 * np.where(np.isfinite(lq), np.abs(lq), 0.0).max()
    p, q, r = (x.reshape(-1, m) for x in (lp, lq, np.broadcast_to(r, lp.shape)))
    return policy_claims(p, q, r, beta, off)


def _law(given: Any, name: str) -> Array:
    """Logarithms of probabilities, which must add up to one."""
    p = np.asarray(given, dtype=np.float64)
    sound = p.ndim > 0 and p.size and np.isfinite(p).all() and p.min() >= 0
    if not sound or np.abs(p.sum(axis=-1) - 1).max() > 1e-6:
        raise ValueError(
            f"{name} must hold probabilities that add up to one along the last axis."
        )
    with np.errstate(divide="ignore"):
        return np.log(p)


def _numbers(reward: Any, reference: Any) -> Array:
    shape = np.shape(reference)
    r = np.asarray(reward, dtype=np.float64)
    if r.shape[-1:] != shape[-1:] or not np.isfinite(r).all():
        raise ValueError(
            "reward must hold one finite number for each answer, got shape "
            f"{r.shape} for {shape}."
        )
    return np.broadcast_to(r, shape)


def _texts(prompts: Any) -> list[Any]:
    if prompts is None:
        raise ValueError("prompts must be given for language models, got None.")
    texts = list(prompts) if not isinstance(prompts, str | bytes) else prompts
    read_texts(texts, "prompts")
    if not texts:
        raise ValueError("prompts must hold at least one text, got none.")
    return list(texts)


def _rewards(reward: Any, prompts: Any, answers: Any) -> Array:
    texts, said = _texts(prompts), list(answers)
    score = scores_of(reward)
    return np.stack([score([x] * len(said), said) for x in texts])


def _listed_law(model: Any, prompts: Any, answers: Any) -> tuple[Array, Array]:
    """Log p of each answer to each prompt by the verifier, and its rounding."""
    check_is_fitted(model, "network_")
    texts = _texts(prompts)
    if answers is None:
        raise ValueError("answers must be given for a language model, got None.")
    read_texts(answers, "answers")
    if len(set(answers)) < max(1, len(answers)):
        raise ValueError("answers must be different texts, at least one.")
    encode, end = model.tokenizer_.encode, end_of(model.tokenizer_)
    ids = [np.append(encode(y), end).astype(np.int64) for y in answers]
    asked = [np.asarray(encode(x), np.int64) for x in texts]
    longest = max(map(len, asked)) + max(map(len, ids))
    if longest > model.config_["context"]:
        raise ValueError(
            "A prompt and its answer must fit into the context of "
            f"{model.config_['context']} tokens, got {longest}. Shorten them."
        )
    read = PlainNetwork(model.config_, model.weights_)
    return answer_logs(read, end, asked, ids)


def _require_same_tokens(policy: Fit, reference: Fit) -> None:
    for model in (policy, reference):
        check_is_fitted(model, "network_")
    one, other = policy.tokenizer_, reference.tokenizer_
    if one.tokens != other.tokens or end_of(one) != end_of(other):
        raise ValueError(
            "policy and reference must have the same tokens. Tune the policy from the "
            "reference, or fit both with the same tokeniser."
        )


def _proposer(policy: Any, reference: Any, floor: float) -> Any:
    """Answers by compiled decoding, which the verifier compares token by token."""

    def propose(prompts: Any, u: Array, v: Any, from_reference: bool) -> list[Array]:
        places = np.zeros(u.shape, bool) if v is None else v < floor
        model = reference if from_reference else policy
        return draw_answers(model.decoder(), list(prompts), u, places)

    return propose


def _signed(
    policy: Fit, claims: list[Claim], prompts: int, start: float
) -> Certificate:
    status = Status.TOL_NOT_REACHED if claims[0].met is False else Status.SOLVED
    return Certificate.of(
        policy,
        (claims, status, {"shape": [prompts], "dtype": "prompts"}),
        origin="certify",
        seconds=time.perf_counter() - start,
    )
