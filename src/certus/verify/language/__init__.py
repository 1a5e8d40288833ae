"""Models of text: tokens, bits, samples, encoders, tuned models and policies."""
