# Written by `make stubs` from the rows of the package; do not edit.

