"""Judging: state what a model minimises, check it, and sign what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.evidence import LinearWitness
from certus.objectives import terms as t
from certus.typing import ArrayLike, Column, Fit, MatrixLike
from certus.verify import linear, stating
from certus.verify import measured as measured_only
from certus.verify.blocks import cores
from certus.verify.conformal import check_conformal
from certus.verify.cross_conformal import check_cross
from certus.verify.deciding import refused
from certus.verify.kernel import losses
from certus.verify.stating import Checked, Given

#: Modules that read their statement from the model's parameters, the common ones first:
#: a module is imported when those before it do not know the model's class. Each has
#: ``Statement`` (a NamedTuple), ``READERS`` (by class name) and ``check``.
CHECKERS: tuple[str, ...] = (
    *("linear", "kernel_machines", "trees", "spectral", "kmeans", "mixture"),
    *("neighbors", "measured", "online", "gaussian_factors", "nonnegative", "additive"),
    *("ratings", "texts", "group_rates", "attributes", "covariance_penalty"),
    *("linear_networks", "autoencoders", "expectation", "glove", "pac_bayes"),
    *("cuts", "graphs", "graph_networks", "links", "memory", "boltzmann"),
    *("tree", "cell_laws", "flows", "elbo", "adversarial", "denoising"),
    *("representations", "pretexts", "language.tokens", "language.ngrams"),
    *("language.models", "language.generations", "language.mixing"),
    *("language.encoders", "language.tuning", "language.rewards"),
    "language.tuned_policies",
)


class Readers(Mapping[str, stating.Reader]):
    """The readers of all checkers, by class name."""

    def __getitem__(self, name: str) -> stating.Reader:
        for checker in _imported():
            if name in checker.READERS:
                found: stating.Reader = checker.READERS[name]
                return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for checker in _imported() for name in checker.READERS)

    def __len__(self) -> int:
        return sum(1 for _ in self)


READERS = Readers()

#: Checkers that also read rows by blocks.
_ROOMS = ("linear", "spectral", "gaussian_factors", "kmeans", "mixture")
BY_BLOCKS = tuple(f"certus.verify.{name}" for name in _ROOMS)

#: Advice for a fit that was stopped from outside; neither iterations nor scaling help.
_EARLY_FIX = {
    Status.TIME_LIMIT: "raise max_time",
    Status.STOPPED: "fit without the callback that stopped it",
    Status.INTERRUPTED: "fit again without interrupting",
}


def check(
    coef: ArrayLike,
    intercept: Column,
    objective: tuple[t.Loss, t.Penalty],
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: Column = None,
    *,
    fit_intercept: bool | None = None,
    dual: Column = None,
    tol: float = stating.TOL,
    level: str = "quick",
) -> Certificate:
    """Check coefficients from anywhere: statsmodels, glum, Spark, or a file.

    Parameters
    ----------
    coef, intercept : array-like
        The point to judge; ``intercept=None`` for none.
    objective : (loss, penalty)
        Terms of :mod:`certus.objectives`. The loss is averaged over the rows, with
        their weights: P(w, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀw + b)/Σs + Ω(w).
    X, y : array-like
        Data. Labels of classification losses may be any two (softmax: k) values.
    sample_weight : array-like, optional
        Row weights.
    fit_intercept : bool, optional
        Whether the intercept is free; by default, whether one is given.
    dual : array-like of shape (n_samples,), optional
        A dual point u, the slopes dℓ/dz at a minimum, for losses with kinks, where the
        slopes at ``coef`` do not tell it. It need not belong to ``coef``: each makes
        the gap true, a good one makes it small.
    tol : float
        Target of the primary claim.
    level : {"quick", "full"}
        As in :func:`certus.certify`.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import numpy as np
    >>> import certus
    >>> from certus.objectives import Squared
    >>> from certus.objectives.terms import L1
    >>> X, y = np.eye(3), np.array([3.0, 0.1, -2.0])
    >>> exact = np.array([3 - 0.9, 0.0, -2 + 0.9])  # soft threshold by n·alpha
    >>> certus.check(exact, None, (Squared(), L1(0.3)), X, y).met
    True
    """
    start = time.perf_counter()
    loss, penalty = objective
    free = intercept is not None if fit_intercept is None else fit_intercept
    b = 0.0 if intercept is None else intercept
    model = SimpleNamespace(coef_=np.asarray(coef), intercept_=np.asarray(b))
    target = linear.TARGETS[losses.row_of(loss).takes]
    if isinstance(penalty, t.MultiTask):
        target = "tasks"
    if target in ("signs", "codes"):
        model.classes_ = np.unique(y)
    shift = "free" if free else "none"
    stated = linear.Statement(loss, penalty, target, shift, tol=float(tol))
    witness = LinearWitness(None if dual is None else np.asarray(dual, dtype=float))
    found = linear.check(model, stated, Given(witness, X, y, sample_weight, level))
    evidence = Evidence("linear", witness=witness)
    return _signed(model, evidence, found, start, level=level, origin="certify")


def judge(
    model: Fit,
    evidence: Evidence,
    X: Any,
    y: Any,
    sample_weight: Column = None,
    *,
    level: str = "quick",
    origin: str = "fit",
    ended: Status | None = None,
    fit_seconds: float | None = None,
    threads: int | None = None,
    sensitive: Column = None,
    measured: Sequence[Claim] | Callable[[], Sequence[Claim]] = (),
) -> Certificate:
    """State what the model minimises, check it, and date, size and sign the result.

    ``ended`` is how a solver stopped; it is kept unless the target is met or refuted.
    ``sensitive`` is passed to the checker and not stored. ``measured`` are numbers of
    the estimator itself, or a function that computes them; a claim of any other
    strength among them is an error.
    """
    start = time.perf_counter()
    if evidence.kind == "conformal":  # about other rows than those of the fit
        claims, status, marks = check_conformal(model, evidence.witness, X, y, level)
    elif evidence.kind == "cross":
        claims, status, marks = check_cross(model, evidence.witness, X, y, level)
    else:
        given = Given(evidence.witness, X, y, sample_weight, level, sensitive)
        claims, status, marks = _check_stated(model, given)
    if callable(measured):
        spoken = [claim for claim in claims if claim.strength is not Strength.REFUSED]
        measured = measured() if spoken or not claims else ()
    claims, status = measured_only.join(claims, status, measured)
    kept = (Status.TOL_NOT_REACHED, Status.SOLVED, Status.UNDECIDED)
    if ended is not None and ended is not Status.SOLVED and status in kept:
        status = _ending(claims[0], status, ended)
        if claims[0].met is False and ended in _EARLY_FIX:
            claims[0] = replace(claims[0], fix=_EARLY_FIX[ended])
    more = {"origin": origin, "fit_seconds": fit_seconds, "threads": threads}
    found = claims, status, marks
    return _signed(model, evidence, found, start, level=level, **more)


def _ending(first: Claim, status: Status, ended: Status) -> Status:
    """The status of a fit whose solver was stopped early."""
    # A perceptron with wrong rows was not necessarily stopped too soon.
    number = first.strength is Strength.MEASURED and first.name != "training_error"
    # A solver's opinion about its own target does not count as an ending.
    told = ended is not Status.TOL_NOT_REACHED
    unsaid = status is Status.UNDECIDED and number and told
    unsaid |= first.met is None and ended is Status.DIVERGED
    stands = ended in _EARLY_FIX or status is Status.TOL_NOT_REACHED or unsaid
    return ended if stands else status


def _signed(
    model: Fit, evidence: Evidence, found: Checked, start: float, **more: Any
) -> Certificate:
    """The certificate of a check's findings, with its cost."""
    more["threads"] = more.get("threads") or cores()
    seconds = time.perf_counter() - start
    return Certificate.of(model, found, evidence=evidence, seconds=seconds, **more)


def _imported() -> Iterator[Any]:
    """The checkers one after another; those behind the one looked for stay unread."""
    return (import_module(f"certus.verify.{name}") for name in CHECKERS)


def _check_stated(model: Fit, given: Given) -> Checked:
    """Run the checker of the model's statement; or refuse with a reason."""
    try:
        stated = stating.state(model, READERS)
    except stating.Refusal as refusal:
        claim = refused("refused", refusal.reason, refusal.fix)
        shape = [int(size) for size in getattr(given.X, "shape", ())]
        return [claim], Status.UNDECIDED, {"shape": shape} if shape else {}
    name = type(model).__name__
    if given.sensitive is not None and not hasattr(model, "sensitive_columns"):
        raise TypeError(f"{name} does not take sensitive; leave it out.")
    checker = next(one for one in _imported() if one.Statement is type(stated))
    if stating.by_address(given.X) and checker.__name__ not in BY_BLOCKS:
        reason = f"{name} is checked on rows in memory, not block by block"
        claim = refused("refused", reason, "certify it on a sample of the rows")
        return [claim], Status.UNDECIDED, {"shape": [int(i) for i in given.X.shape]}
    try:
        found: Checked = checker.check(model, stated, given)
        return found
    except stating.Refusal as refusal:
        claim = refused("refused", refusal.reason, refusal.fix)
        return [claim], Status.UNDECIDED, {"shape": [int(i) for i in given.X.shape]}
    except AttributeError as error:
        if error.obj is not model:
            raise
        raise ValueError(
            f"This {name} has no {error.name}. Fit it again, or restore its file."
        ) from None
