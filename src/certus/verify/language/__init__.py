"""Models of text: tokens, bits, samples, encoders, tuned models and policies."""

from certus.verify.language import (
    encoders,
    mixing,
    models,
    ngrams,
    rewards,
    sampling,
    tokens,
    tuned_policies,
    tuning,
)

#: The checkers of this room; ``judging`` asks them.
CHECKERS = (
    *(encoders, mixing, models, ngrams, rewards),
    *(sampling, tokens, tuned_policies, tuning),
)
