"""Convert a fitted model to scikit-learn, with the same parameters and predictions.

What ``to_sklearn`` returns is a fitted estimator of scikit-learn's own class, for tools
that only know those classes, such as converters to ONNX. If scikit-learn's ``fit``
stores private state, that state comes from a fit on a few made-up rows, and what our
model has learnt then replaces the learnt part.
"""

from __future__ import annotations

import copy
import inspect
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import dense_coef
from certus.objectives import terms as t
from certus.registry import ESTIMATORS
from certus.typing import Fit

#: Where scikit-learn keeps the classes that both libraries have.
HOMES = {row.name: f"sklearn.{row.home}" for row in ESTIMATORS.values() if row.shared}

#: Classes that predict through a private table of labels.
RIDGES = ("RidgeClassifier", "RidgeClassifierCV")
#: Classes that predict from support vectors.
MACHINES = ("SVC", "SVR", "OneClassSVM")
#: Fitted attributes that mean the same in both libraries.
ATTRIBUTES = (
    *("n_features_in_", "feature_names_in_", "classes_", "coef_", "intercept_"),
    *("n_iter_", "dual_gap_", "rank_", "singular_", "scale_", "outliers_", "t_"),
    *("alpha_", "alphas_", "l1_ratio_", "l1_ratios_", "C_", "Cs_", "best_score_"),
    *("cv_results_", "mse_path_", "scores_", "coefs_paths_"),
    *("dual_coef_", "X_fit_", "class_weight_", "fit_status_", "shape_fit_"),
    *("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"),
    *("converged_", "lower_bound_", "lower_bounds_"),
    *("components_", "explained_variance_", "explained_variance_ratio_", "mean_"),
    *("singular_values_", "n_components_", "n_samples_", "noise_variance_"),
    *("loglike_", "cluster_centers_", "labels_", "inertia_", "reconstruction_err_"),
    *("offset_", "n_steps_", "intercept_hidden_", "intercept_visible_", "h_samples_"),
    *("X_", "label_distributions_", "transduction_", "affinity_matrix_"),
    *("coefs_", "intercepts_", "loss_", "best_loss_", "loss_curve_", "n_layers_"),
    *("n_outputs_", "out_activation_", "validation_scores_", "best_validation_score_"),
)

#: Kernels of ``certus.objectives`` by scikit-learn's names.
_KERNELS = {
    t.Linear: "linear",
    t.Polynomial: "poly",
    t.Gaussian: "rbf",
    t.Laplace: "laplacian",
    t.Sigmoid: "sigmoid",
    t.Precomputed: "precomputed",
}
_LIBSVM = ("linear", "poly", "rbf", "sigmoid", "precomputed")


def to_sklearn(model: Fit) -> Any:
    """The fitted scikit-learn estimator of the same name, parameters and predictions.

    Parameters
    ----------
    model : fitted estimator of certus

    Examples
    --------
    >>> from certus.export import to_sklearn
    >>> from certus.linear_model import Ridge
    >>> model = Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> to_sklearn(model).predict([[3.0]]) == model.predict([[3.0]])
    array([ True])
    """
    names = [cls.__name__ for cls in type(model).__mro__ if cls.__name__ in HOMES]
    if not names:
        raise NotImplementedError(
            f"scikit-learn has no {type(model).__name__} to export to. Keep the model "
            "itself (save, joblib): it works wherever a scikit-learn estimator does."
        )
    check_is_fitted(model)
    if hasattr(model, "trees_"):
        return _grown(model)
    cls = getattr(import_module(HOMES[names[0]]), names[0])
    known = inspect.signature(cls).parameters
    params = {k: v for k, v in _params(model).items() if k in known}
    if names[0].endswith("Neighbors") or names[0].startswith("KNeighbors"):
        return _stored_rows(model, cls(**params))
    theirs = cls(**params)
    if names[0] in ("GammaRegressor", "TweedieRegressor"):
        theirs.fit(np.arange(2.0)[:, None], np.array([1.0, 2.0]))  # its private loss
    elif names[0] in ("PoissonRegressor", *RIDGES, *MACHINES):
        labels = getattr(model, "classes_", None)
        if getattr(model, "_several", False):  # rows may have several labels
            labels = np.eye(len(model.classes_), dtype=int)
        vars(theirs).update(_private_state(cls, labels))
    elif names[0].endswith("KMeans"):
        vars(theirs).update(_private_state(cls, None, n_clusters=1))
        if hasattr(model, "_counts"):
            _batches(model, theirs)
    for name in ATTRIBUTES:
        if name in vars(model):
            setattr(theirs, name, copy.deepcopy(vars(model)[name]))
    if names[0] in MACHINES:
        _support_vectors(model, theirs)
    elif names[0].startswith("MLP"):
        _perceptron(model, theirs)
    return theirs


def _grown(model: Fit) -> Any:
    """The estimator of scikit-learn that grew the trees, while it is in memory."""
    grown = vars(model).get("_grown")
    if grown is None:
        raise NotImplementedError(
            f"This {type(model).__name__} comes from a file or a copy, without the "
            "estimator of scikit-learn that grew its trees. Fit it again."
        )
    return copy.deepcopy(grown).set_params(**model.get_params(deep=False))


def _params(model: Fit) -> dict[str, Any]:
    """The parameters, in scikit-learn's words."""
    params = model.get_params(deep=False)
    name = type(model).__name__
    if params.get("multi_class") == "ovo" and len(model.classes_) > 2:
        raise NotImplementedError(
            f"scikit-learn's {name} has no multi_class='ovo'. Fit with 'ovr'."
        )
    if params.get("solver") == "auto" and "alpha" not in params:  # logistic models
        share = params.get("l1_ratio", params.get("l1_ratios"))
        mixed = share is not None and np.any(np.asarray(share) != 0)
        params["solver"] = "saga" if mixed else "lbfgs"
    elif params.get("solver") == "auto" and hasattr(model, "history_"):
        del params["solver"]  # not ridge, whose solvers have an "auto" too
    if params.get("algorithm") == "auto" and hasattr(model, "components_"):
        del params["algorithm"]  # not neighbours, whose algorithms have an "auto" too
    if "kernel" in params:
        params.update(_kernel_params(model, params["kernel"]))
    return params


def _kernel_params(model: Fit, kernel: Any) -> dict[str, Any]:
    """Kernels of ``certus.objectives`` as a name and its parameters; names stay."""
    params: dict[str, Any] = {}
    if isinstance(kernel, t.Kernel):
        name = _KERNELS.get(type(kernel))
        if name is None or getattr(kernel, "norm", 1) != 1:
            raise NotImplementedError(
                f"scikit-learn has no kernel {kernel!r}. Export a model fitted with "
                "kernel='precomputed', or keep this one (save, joblib)."
            )
        params = {k: v for k, v in kernel._asdict().items() if k != "norm"}
        params["kernel"] = kernel = name
    libsvm = hasattr(model, "support_vectors_")
    if libsvm and not callable(kernel) and kernel not in _LIBSVM:
        raise NotImplementedError(
            f"scikit-learn's {type(model).__name__} has no kernel {kernel!r}. Export a "
            "model fitted with kernel='precomputed', or keep this one (save, joblib)."
        )
    degree = params.get("degree", getattr(model, "degree", 3))
    if libsvm and kernel == "poly" and degree != int(degree):
        raise NotImplementedError(
            f"scikit-learn's {type(model).__name__} needs a whole number as degree, "
            f"got {degree}."
        )
    return params


def _private_state(cls: Any, classes: Any, **params: Any) -> dict[str, Any]:
    """All attributes, public or not, that scikit-learn sets on a few made-up rows."""
    y = np.array([0.0, 1.0]) if classes is None else classes
    y = np.repeat(y, 2) if len(y) == 1 else y  # leave-one-out needs two rows
    made_up = cls(**params).fit(np.arange(len(y), dtype=float)[:, None], y)
    return {k: v for k, v in vars(made_up).items() if k not in made_up.get_params()}


def _stored_rows(model: Any, theirs: Any) -> Any:
    """Nearest neighbours: the rows are the model."""
    y: Any = model._y.copy() if hasattr(model, "_y") else None
    if hasattr(model, "classes_"):
        several = isinstance(model.classes_, list)
        y = (
            np.column_stack([c[k] for c, k in zip(model.classes_, y.T)])
            if several
            else model.classes_[y]
        )
    theirs.fit(copy.deepcopy(model._fit_X), y)
    if hasattr(model, "feature_names_in_"):
        theirs.feature_names_in_ = model.feature_names_in_
    return theirs


def _batches(model: Any, theirs: Any) -> None:
    """Set what partial_fit goes on from; labels are there only if they are ours."""
    del theirs.labels_, theirs.n_iter_, theirs.inertia_
    theirs._counts = model._counts.astype(model.cluster_centers_.dtype)
    theirs._batch_size = model.batch_size


def _support_vectors(model: Any, theirs: Any) -> None:
    """Set the arrays that libsvm predicts from; two classes have the opposite sign."""
    rows = model.support_vectors_
    dual = np.array(dense_coef(model.dual_coef_), dtype=np.float64)
    own_function = callable(theirs.kernel)
    theirs._sparse = sparse.issparse(rows) and not own_function
    theirs.support_ = model.support_.astype(np.int32)
    theirs._n_support = np.empty_like(theirs._n_support)
    theirs._n_support[:] = model.n_support_  # libsvm repeats it for a regressor
    theirs._gamma = float(getattr(model.kernel_, "gamma", 0.0))
    if theirs._sparse:
        rows = sparse.csr_matrix(rows, dtype=np.float64, copy=True)
        rows.sort_indices()
        dual = _every_entry(dual)
    else:
        rows = np.array(rows, dtype=np.float64, order="C")
    flipped = hasattr(model, "classes_") and len(model.classes_) == 2
    theirs.support_vectors_, theirs.dual_coef_ = rows, dual
    theirs._dual_coef_ = -dual if flipped else dual
    theirs.intercept_ = np.array(model.intercept_, dtype=np.float64)
    theirs._intercept_ = -theirs.intercept_ if flipped else theirs.intercept_.copy()
    theirs._num_iter = np.atleast_1d(model.n_iter_).astype(np.int32)
    if len(getattr(model, "_probA", ())):
        theirs._probA, theirs._probB = model._probA.copy(), model._probB.copy()
        theirs._effective_probability = True
    if own_function:  # the name by which the base class of SVC knows them
        theirs._BaseLibSVM__Xfit = copy.deepcopy(model._rows)


def _perceptron(model: Any, theirs: Any) -> None:
    """Set how outputs become classes; refuse options that scikit-learn lacks."""
    from sklearn.preprocessing import LabelBinarizer

    plain = {"dropout": 0.0, "normalization": None, "residual": False}
    own = {k: getattr(model, k) for k, v in plain.items() if getattr(model, k) != v}
    if model.activation not in ("identity", "logistic", "tanh", "relu"):
        own["activation"] = model.activation
    if own:
        shown = ", ".join(f"{k}={v!r}" for k, v in own.items())
        raise NotImplementedError(
            f"scikit-learn's {type(model).__name__} has no {shown}. Keep "
            "the model itself (save, joblib), or export its module_ from torch."
        )
    theirs._no_improvement_count = 0
    if hasattr(model, "classes_"):
        several = model.out_activation_ == "logistic" and model.n_outputs_ > 1
        known = np.eye(model.n_outputs_, dtype=int) if several else model.classes_
        theirs._label_binarizer = LabelBinarizer().fit(known)


def _every_entry(dual: Any) -> Any:
    """A sparse matrix that stores zeros too, as libsvm requires."""
    k, n = dual.shape
    index, ends = np.tile(np.arange(n), k), n * np.arange(k + 1)
    return sparse.csr_matrix((dual.ravel(), index, ends), shape=dual.shape)
