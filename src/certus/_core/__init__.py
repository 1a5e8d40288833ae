"""What solvers and families share below the estimators: readers of what users pass."""
