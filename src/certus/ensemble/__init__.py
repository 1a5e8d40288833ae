"""Tree ensembles with scikit-learn's names, and readers for those of other libraries.

``read_trees`` turns a fitted boosting or forest of scikit-learn, LightGBM or XGBoost
into a ``TreeEnsemble``: plain arrays with a compiled predictor.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "TreeEnsemble": "reading",
    "read_rows": "reading",
    "read_trees": "reading",
    "score_range": "reading",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
