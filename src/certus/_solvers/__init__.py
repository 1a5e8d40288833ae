"""Convex problems: a datafit and a penalty over a design, and the solvers for them."""
