"""The kernel: the part of the verifier that you have to trust.

Readers of data, weights and labels; losses and penalties as rows; spaces; one gap with
a rigorous bound of its rounding; backward errors; the reference that makes a gap a
share. It imports NumPy, SciPy and the bare NamedTuples of ``certus.objectives``, and
nothing outside ``certus.verify`` imports it. It rests on IEEE float64, on a BLAS that
adds in any order but neither by Strassen's scheme nor in shorter formats, and on exp
and log within four units in the last place.
"""
