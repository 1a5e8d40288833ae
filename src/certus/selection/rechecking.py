"""Check a model file on its table again: gaps on training rows, risk on sealed rows.

The file keeps one bit for each row that was sealed and the fingerprint of the others.
If the table is the one that was split, the verifier recomputes the certificate on the
training rows and the risk on the sealed ones; if it is not, nothing is said about risk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.certificate import Certificate, Claim
from certus.certifying import certify
from certus.fingerprints import same_data
from certus.results import Result
from certus.selection.inspection import names_of, take, take_column
from certus.selection.opening import AskedMetric, open_rows
from certus.selection.splits import sealed_rows
from certus.tables.pipeline import read_target
from certus.typing import ArrayLike, MatrixLike
from certus.verify import judge

__all__ = ["Recheck", "recheck"]


@dataclass(frozen=True)
class Recheck(Result):
    """A recomputed certificate, the risk on sealed rows, and whether the table agrees.

    ``sealed`` counts the sealed rows; ``risk`` is empty where nothing can be said. If
    the model was fitted again to all rows (``refitted``), the certificate is about all
    rows, and ``risk`` about the model before, but for the coverage.
    """

    certificate: Certificate
    risk: tuple[Claim, ...]
    same: bool
    sealed: int
    refitted: bool = False


def recheck(
    model: Any,
    split: Mapping[str, Any] | None,
    X: MatrixLike,
    y: ArrayLike,
    *,
    level: str = "quick",
    delta: float = 0.05,
) -> Recheck:
    """Judge a fitted pipeline on the table that was split for it.

    Parameters
    ----------
    model : TablePipeline
        As loaded from its file.
    split : dict or None
        The split in the file, see :func:`certus.persist.read_manifest`.
    X, y : table and target
        All rows, in the order of the file that was split.
    level : {"quick", "full"}
        As in :func:`certus.certify`.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is the interval of the risk.

    Returns
    -------
    Recheck
        If the table is not the one that was split, ``risk`` is empty, and the
        certificate says that its rows are not those of the fit.

    Examples
    --------
    >>> import certus
    >>> from certus.linear_model import Ridge
    >>> from certus.selection import recheck
    >>> from certus.tables import load_example
    >>> frame, target = load_example()
    >>> X, y = frame.drop(target), frame[target]
    >>> found = certus.compare(X, y, models=[Ridge()])
    >>> again = recheck(found.model, found.record(), X, y)
    >>> again.same, again.risk[1] == found.risk[1]
    (True, True)
    """
    target = np.asarray(read_target(y)[0])
    stated = model.certificate_
    sealed = np.array([], dtype=np.intp)
    if split is not None and int(split["rows"]) == len(target):
        sealed = sealed_rows(split)
    before = getattr(model, "before_", None)
    rows = np.arange(len(target))
    training = rows if before is not None else np.setdiff1d(rows, sealed)
    found = _certificate(model, take(X, training), target[training], level)
    same = same_data(stated.fingerprint, found.fingerprint)
    risk: tuple[Claim, ...] = ()
    if same and len(sealed) and split is not None:
        risk = _risk(before or model, split, X, target, sealed, delta)
        risk += _coverage(model, X, target, level)
    return Recheck(found, risk, same, len(sealed), before is not None)


def _coverage(model: Any, X: MatrixLike, y: Any, level: str) -> tuple[Claim, ...]:
    """The coverage of CV+, which is about the rows of the fit themselves."""
    stated = getattr(model, "calibration_certificate_", None)
    if stated is None or stated.evidence is None or stated.evidence.kind != "cross":
        return ()
    return judge(model, stated.evidence, X, y, level=level).claims


def _certificate(model: Any, X: MatrixLike, y: ArrayLike, level: str) -> Certificate:
    # Encoded here, so that columns may come in any order, as in predict.
    Z = model.encoder_.transform(X)
    return certify(model.estimator_, Z, y, level=level)


def _risk(
    model: Any, split: Mapping[str, Any], X: Any, y: Any, sealed: Any, delta: float
) -> tuple[Claim, ...]:
    groups = None
    if split["groups"] is not None:
        if split["groups"] not in names_of(X):
            return ()  # the groups were given beside the table
        column = take_column(X, split["groups"], "groups")
        groups = column.values.rank("dense").to_numpy()[sealed]
    return open_rows(
        model,
        take(X, sealed),
        y[sealed],
        AskedMetric.read(split),
        groups=groups,
        ordered=split["time"] is not None,
        calibrates=split["groups"] is None and split["time"] is None,
        delta=delta,
    ).claims
