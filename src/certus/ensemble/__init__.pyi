# Written by `make stubs` from the rows of the package; do not edit.
from certus.ensemble.reading import TreeEnsemble as TreeEnsemble
from certus.ensemble.reading import read_rows as read_rows
from certus.ensemble.reading import read_trees as read_trees
