"""Kernels: values, feature maps, Mercer's condition; and models that use them.

Kernels are data (``certus.objectives``): linear, polynomial, Gaussian, Laplace, and
what can be built of them. Support vector machines are in ``certus.svm``, kernel ridge
regression in ``certus.kernel_ridge``, where scikit-learn has them.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "MercerCheck": "mercer",
    "feature_dimension": "features",
    "feature_map": "features",
    "gram": "mercer",
    "mercer_check": "mercer",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
