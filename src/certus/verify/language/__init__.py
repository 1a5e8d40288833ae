"""Models of text: tokens, bits, samples, encoders, tuned models and policies."""

from certus.verify.language import (
    encoders,
    generations,
    mixing,
    models,
    ngrams,
    rewards,
    tokens,
    tuned_policies,
    tuning,
)

#: The checkers of this room; ``judging`` asks them.
CHECKERS = (
    *(encoders, generations, mixing, models, ngrams),
    *(rewards, tokens, tuned_policies, tuning),
)
