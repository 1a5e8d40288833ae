"""Code that solvers and estimators share, such as the readers of users' input."""
