"""Tokenisers: bytes cut into pieces, merges learnt and applied, other vocabularies."""
