"""Support vector machines with scikit-learn's names, parameters and attributes.

Linear machines on rows, kernel machines on pairs of rows; each fit leaves a
``certificate_`` that says whether it is solved.
"""

from certus.lazy import absent
from certus.svm.linear import LinearSVC, LinearSVR
from certus.svm.svc import SVC
from certus.svm.svr import SVR

__all__ = ["SVC", "SVR", "LinearSVC", "LinearSVR"]
__getattr__ = absent(__name__)
