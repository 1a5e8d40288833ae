# Written by `make stubs` from the rows of the package; do not edit.
from certus.semi_supervised.label_propagation import LabelPropagation as LabelPropagation
from certus.semi_supervised.label_propagation import LabelSpreading as LabelSpreading
