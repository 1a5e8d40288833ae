"""What boosting by LightGBM and XGBoost shares: they grow trees, certus keeps arrays.

``fit`` runs the library's own estimator and reads its trees into ``trees_``. After that
predictions, model files and certificates do not need the library. ``settings_`` holds
the parameters as the library reports them; the verifier reads it to compute the leaves
again.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, Self

import numpy as np
from scipy import sparse

from certus._core.rows import row_weights
from certus.base import Fitted, check_choice, thread_budget, validate_data
from certus.certificate import Evidence
from certus.ensemble.base import TreesBase
from certus.ensemble.reading import read_trees
from certus.evidence import TreesWitness
from certus.typing import Array

#: The classes of each library, for numbers and for labels.
LIBRARIES = {
    "lightgbm": ("LGBMRegressor", "LGBMClassifier"),
    "xgboost": ("XGBRegressor", "XGBClassifier"),
}


class BoostedTrees(TreesBase):
    """Fitting by another library, and reading what it has fitted; abstract."""

    library: str
    options: Any
    random_state: Any
    settings_: str

    @classmethod
    def from_fitted(cls, model: Any) -> Self:
        """The trees of a fitted model of LightGBM or XGBoost, as a model of certus.

        Parameters
        ----------
        model : fitted estimator
            An LGBM or XGB regressor or classifier whose columns are numbers.

        Returns
        -------
        estimator
            It gives the same predictions as ``model``, can be saved in a ``.certus``
            file and does not need the library. ``certus.certify`` checks it.
        """
        library = type(model).__module__.partition(".")[0]
        labels = hasattr(cls, "predict_proba")
        names = LIBRARIES.get(library, ("", ""))
        if not any(kind.__name__ == names[labels] for kind in type(model).__mro__):
            allowed = " or ".join(each[labels] for each in LIBRARIES.values())
            raise TypeError(
                f"{cls.__name__}.from_fitted takes a fitted {allowed}, got a "
                f"{type(model).__name__}."
            )
        if getattr(getattr(model, "booster_", None), "pandas_categorical", None):
            raise ValueError(
                "This model has columns of the type category. Replace categories by "
                "numbers, fit the model again, and pass it."
            )
        usual = type(model)().get_params()
        found = {k: v for k, v in model.get_params().items() if v is not usual.get(k)}
        made = cls(library, options=found)
        made._keep(model)
        made.n_features_in_ = int(model.n_features_in_)
        if labels:
            made.classes_ = np.asarray(model.classes_)
        names_in = getattr(model, "feature_names_in_", None)
        if names_in is not None and not _made_up(names_in):
            made.feature_names_in_ = np.asarray(names_in, dtype=object)
        return made

    def _boost(self, X: Any, y: Array, sample_weight: Any, target: Array) -> Fitted:
        """Fit the library's estimator to numbers or codes, and keep its trees."""
        check_choice("library", self.library, tuple(LIBRARIES))
        labels = hasattr(type(self), "predict_proba")
        try:
            module = import_module(self.library)
        except ImportError as error:
            raise ImportError(
                f"library={self.library!r} is not installed. Install it (pip install "
                f"{self.library}), or use HistGradientBoosting."
            ) from error
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, len(target))
        quiet = {"verbose": -1} if self.library == "lightgbm" else {"verbosity": 0}
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31 - 1))
        options = {"n_jobs": thread_budget(), "random_state": seed, **quiet}
        cls = getattr(module, LIBRARIES[self.library][labels])
        grown = cls(**{**options, **dict(self.options or {})})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grown.fit(X, target, sample_weight=sample_weight)
        self._keep(grown)
        return Fitted(Evidence("trees", TreesWitness(None)), X, y, sample_weight)

    def _pairs(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Rows as numbers, NaN where one is missing, and targets."""
        X = X.toarray() if sparse.issparse(X) else X
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        return X, y

    def _keep(self, grown: Any) -> None:
        """The arrays, and what the library says about its parameters."""
        self.trees_ = read_trees(grown)
        self.levels_: dict[int, Array] = {}
        if self.library == "lightgbm":
            text = grown.booster_.model_to_string()
            self.settings_ = text.partition("\nparameters:\n")[2]
        else:
            self.settings_ = grown.get_booster().save_config()

    def _finite(self, X: Any) -> Any:
        """Missing cells are taken, infinite ones are not."""
        return "allow-nan"


def _made_up(names: Any) -> bool:
    """Whether the library has numbered the columns itself."""
    return [str(each) for each in names] == [f"Column_{j}" for j in range(len(names))]
