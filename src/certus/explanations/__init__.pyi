# Written by `make stubs` from the rows of the package; do not edit.
from certus.explanations.contributions import Contributions as Contributions
from certus.explanations.nearest import NearestChange as NearestChange
from certus.explanations.explaining import explain as explain
from certus.explanations.nearest import nearest_change as nearest_change
