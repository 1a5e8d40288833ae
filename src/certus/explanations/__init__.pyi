# Written by `make stubs` from the rows of the package; do not edit.
from certus.explanations.contributions import Contributions as Contributions
from certus.explanations.explaining import explain as explain
