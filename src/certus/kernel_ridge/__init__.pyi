# Written by `make stubs` from the rows of the package; do not edit.
from certus.kernel_ridge.ridge import KernelRidge as KernelRidge
