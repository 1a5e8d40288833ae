"""Searches whose results the verifier uses only after checking them.

A search finds a dual point, a direction or weights of rows. The verifier checks its
shape, its domain and what it is meant to show, and states what it proves; a bad result
makes a bound loose or leaves a claim undecided. So a search may use any method. They
take arrays and terms, and share no code with solvers or verifier.
"""
