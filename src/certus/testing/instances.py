"""The instances that scikit-learn's estimator checks run on.

They are built from the rows of ``certus.registry``. Weights are compared with
repetitions to seven digits, so iterative solvers are asked for more than their default
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from certus.registry import ESTIMATORS, Row, load_class

#: Networks outside of certus.neural_network.
NETWORKS = (
    *("NodeClassifier", "ContrastiveEncoder", "MaskedAutoencoder", "PairedEncoder"),
    *("GenerativeAdversarial", "Diffusion", "Autoencoder", "VariationalAutoencoder"),
    *("AutoregressiveDensity", "NormalizingFlow"),
)


class _Names(Mapping[str, Any]):
    """The classes that the arguments of an instance may name, loaded when they are."""

    def __getitem__(self, name: str) -> Any:
        if name == "TinyNetwork":
            from certus.testing.toys import TinyNetwork

            return TinyNetwork
        return load_class(ESTIMATORS[name])

    def __iter__(self) -> Iterator[str]:
        return iter((*ESTIMATORS, "TinyNetwork"))

    def __len__(self) -> int:
        return len(ESTIMATORS) + 1


def instance(row: Row) -> Any:
    """The estimator of a row, as scikit-learn's checks build it.

    Examples
    --------
    >>> from certus.registry import ESTIMATORS
    >>> from certus.testing.instances import instance
    >>> instance(ESTIMATORS["Lasso"])
    Lasso(tol=1e-09)
    """
    return eval(f"{row.name}({row.checked})", {"__builtins__": {}}, _Names())


def instances() -> list[Any]:
    """One estimator of each public class that scikit-learn's checks apply to.

    Networks that need PyTorch are left out where it is not installed.

    Examples
    --------
    >>> from certus.testing.instances import instances
    >>> len({type(e).__name__ for e in instances()}) == len(instances())
    True
    """
    torch = find_spec("torch") is not None
    return [
        instance(row)
        for row in ESTIMATORS.values()
        if row.checked is not None and (torch or not _needs_torch(row))
    ]


def _needs_torch(row: Row) -> bool:
    """Of the networks, multi-layer perceptrons run without PyTorch."""
    return (row.home == "neural_network" and not row.shared) or row.name in NETWORKS


def supervised() -> list[Any]:
    """Those that predict a target and prove it best: no clusterings, no networks.

    Nor trees, whose structure nothing proves, nor those of ``certus.fairness`` and
    ``certus.calibration``, which hold others.

    Examples
    --------
    >>> from certus.testing.instances import supervised
    >>> any(type(e).__name__ == "FactorAnalysis" for e in supervised())
    False
    """
    from sklearn.utils import get_tags

    return [
        e
        for e in instances()
        if get_tags(e).target_tags.required
        and ESTIMATORS[type(e).__name__].home
        not in ("neural_network", "ensemble", "fairness", "calibration")
        and type(e).__name__ not in NETWORKS
    ]
