"""Encoders: texts and words as vectors."""
