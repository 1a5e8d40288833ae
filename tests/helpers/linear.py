"""The linear models, wherever scikit-learn keeps them."""

from certus.registry import ESTIMATORS, load_class

#: Classes by name: those of ``linear_model``, and linear support vector machines.
LINEAR = {
    row.name: load_class(row)
    for row in ESTIMATORS.values()
    if row.home == "linear_model" or (row.home, row.file) == ("svm", "linear")
}
