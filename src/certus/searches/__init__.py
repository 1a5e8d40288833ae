"""Searches whose results the verifier uses only after checking them.

A dual point, a direction, weights of rows: whichever is found, the verifier checks it
(its shape, its domain, what it is said to show) and states what it proves; a bad one
makes a bound loose or leaves a claim undecided. So these may be as clever as they like.
They take arrays and terms, and share no code with solvers or verifier.
"""
