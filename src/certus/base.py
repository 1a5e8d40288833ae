"""The base of every estimator: a certified fit, validation, saving, an HTML view.

``fit`` keeps its own signature and returns a :class:`Fitted`; the decorator
:func:`certified_fit` hands that to the verifier, stores ``certificate_``, applies the
user's policy for missed targets and for Ctrl-C, and returns ``self``. Temporary fits
run under ``config_context(certify="never")``.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite, check_random_state, validation
from sklearn.utils.multiclass import check_classification_targets

from certus import config, persist
from certus._core import diagram
from certus._core.rows import as_array as as_array
from certus._core.rows import row_weights
from certus.blocks.accepting import COLUMNS, arrive, name_columns, refuse_blocks
from certus.blocks.keys import is_blocks
from certus.callbacks import CallbackSupport, with_callbacks
from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.conformal import Conformal, forget_calibration
from certus.export import to_sklearn
from certus.verify import judge
from certus.wording import unstopped

Fit = TypeVar("Fit", bound=Callable[..., Any])


class UncertifiedWarning(ConvergenceWarning):
    """The certificate of a fit misses its target."""


class UncertifiedError(RuntimeError):
    """The same as an error, for ``on_uncertified="raise"``."""


class Fitted(NamedTuple):
    """What a ``fit`` hands to the verifier."""

    evidence: Evidence
    X: Any
    y: Any
    sample_weight: Any = None
    status: Status = Status.SOLVED
    sensitive: Any = None  # passed to the verifier, not stored
    #: Numbers that the family found itself, or finds when it is called.
    measured: Sequence[Claim] | Callable[[], Sequence[Claim]] = ()


def certified_fit(fit: Fit) -> Fit:
    """Turn a ``fit`` that returns :class:`Fitted` into one that certifies itself."""
    arguments = inspect.signature(fit)
    target = [*arguments.parameters][2]  # y, or whatever a fit calls it

    @functools.wraps(fit)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        columns = {name: kwargs.pop(name) for name in COLUMNS if name in kwargs}
        call = arguments.bind_partial(self, *args, **kwargs)
        table = arrive(self, call, columns)
        call.arguments.setdefault(target, None)  # a fit says itself that it needs it
        forget_calibration(self)
        start = time.perf_counter()
        try:
            # Overflow shows up as inf and the verifier says so; no warning on the way.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                if table is None:
                    done = fit(*call.args, **call.kwargs)
                else:
                    name_columns(self, table)
                    done = self._fit_blocks(table)
        except (np.linalg.LinAlgError, OverflowError) as error:
            raise ValueError(
                f"{type(self).__name__} produced numbers too large for float64 "
                f"({unstopped(error)}). Standardise the columns (StandardScaler)."
            ) from error
        wanted = config.get_config()["certify"] == "always"
        vars(self).pop("certificate_", None)
        if wanted:
            seconds = time.perf_counter() - start
            self.certificate_ = _judged(self, _as_given(done, call.arguments), seconds)
        if done.status is Status.INTERRUPTED:
            if config.get_config()["on_interrupt"] == "raise":
                raise KeyboardInterrupt
        elif wanted:
            _apply_policy(self.certificate_)
        return self

    return with_callbacks(run)


def _as_given(done: Fitted, given: Mapping[str, Any]) -> Fitted:
    """The user's own targets and weights, instead of the fit's reading of them.

    The verifier reads them again, and so sees faults in the solvers' readers.
    """
    for name in ("y", "sample_weight"):
        read, own = getattr(done, name), given.get(name)
        if own is None or not (isinstance(read, np.ndarray) and read.ndim == 1):
            continue
        line: Any = np.asarray(own, dtype=object if read.dtype == object else None)
        if line.shape == read.shape:
            done = done._replace(**{name: line})
    return done


def _judged(model: Any, done: Fitted, seconds: float) -> Certificate:
    return judge(
        model,
        done.evidence,
        done.X,
        done.y,
        done.sample_weight,
        ended=done.status,
        fit_seconds=seconds,
        threads=thread_budget(),
        sensitive=done.sensitive,
        measured=done.measured,
    )


def _apply_policy(certificate: Certificate) -> None:
    claim = certificate[certificate.primary]
    fine = certificate.status in (Status.SOLVED, Status.STOPPED)
    if certificate.status is Status.UNDECIDED:  # claimed, but lost in rounding?
        fine = claim.strength in (Strength.MEASURED, Strength.REFUSED)
    if fine and certificate.met is not False:
        return
    policy = config.get_config()["on_uncertified"]
    if policy == "ignore":
        return
    text = f"{certificate.model}: {claim.detail}"
    if certificate.ending:
        text += f" ({certificate.ending})"
    if claim.fix:
        text += f". Fix: {claim.fix}"
    if policy == "raise":
        raise UncertifiedError(text)
    warnings.warn(text, UncertifiedWarning, stacklevel=4)


@functools.lru_cache(maxsize=1)
def thread_pools() -> Any:
    """The thread pools of the loaded BLAS and OpenMP libraries, to read or limit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def thread_budget() -> int:
    """Threads for compiled code: the smallest limit of the loaded BLAS pools."""
    limits = [pool["num_threads"] for pool in thread_pools().info()]
    return max(1, min(limits, default=1))


class Model(CallbackSupport, BaseEstimator):
    """Base of all estimators; abstract. Subclasses define ``__init__`` and ``fit``."""

    def _validate_X_y(
        self, X: Any, y: Any, sample_weight: Any, finite: bool = True, **options: Any
    ) -> tuple[Any, Any, Any]:
        """Checked X (dense, CSR or CSC; float64 or float32), y and weights or None.

        ``finite=False`` leaves NaN and inf to a ``Design``, which finds them for free.
        """
        if options.get("y_numeric"):
            y = _as_numbers(y)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=["csc", "csr"],
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            **options,
        )
        if finite:
            require_finite(X, type(self).__name__)
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, X.shape[0])
        return X, y, sample_weight

    def _validate_X(self, X: Any) -> Any:
        return validate_data(
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            reset=False,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _html_repr(self) -> str:
        names = ("certificate_", "calibration_certificate_")
        found = [getattr(self, name) for name in names if hasattr(self, name)]
        extra = "".join(certificate._repr_html_() for certificate in found)
        drawn = diagram.ALONE.set(self)
        try:
            return str(super()._html_repr()) + extra
        finally:
            diagram.ALONE.reset(drawn)

    def _get_params_html(self, deep: bool = True, doc_link: str = "") -> Any:
        return diagram.Unfolded(super()._get_params_html(deep, doc_link))

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        table = super()._get_fitted_attr_html(doc_link)
        if diagram.ALONE.get() is self or not hasattr(self, "certificate_"):
            return diagram.Unfolded(table)
        return diagram.Unfolded(table, self.certificate_._repr_html_())

    @property
    def _sk_visual_block_(self) -> Any:
        """How scikit-learn's diagram of a pipeline draws this step."""
        if diagram.ALONE.get() is self or not hasattr(self, "certificate_"):
            raise AttributeError("_sk_visual_block_")
        claim = self.certificate_[self.certificate_.primary]
        said = claim.detail.removeprefix(f"{claim.label}: ")
        block = diagram.block_of(self, f"{claim.mark} {claim.label}: {said}")
        return lambda: block

    def save(self, path: str | Path) -> Path:
        """Write the fitted model, with its certificate, to a ``.certus`` file.

        Parameters
        ----------
        path : str or Path
            Where to; the write is atomic. Read it back with :func:`certus.load`.
        """
        return persist.save(self, path)

    def to_sklearn(self) -> Any:
        """Convert to scikit-learn's estimator of the same name and predictions.

        For tools that only know scikit-learn's classes, such as converters to ONNX.

        Returns
        -------
        estimator of scikit-learn
            Fitted. Where scikit-learn lacks the class, ``NotImplementedError``.

        Examples
        --------
        >>> from certus.linear_model import Lasso
        >>> model = Lasso().fit([[0.0], [1.0], [5.0]], [0.0, 1.0, 5.0])
        >>> type(model.to_sklearn()).__module__.split(".")[0]
        'sklearn'
        """
        return to_sklearn(self)


class Estimator(Conformal, Model):
    """Base of estimators that predict a target: intervals and sets that cover it."""


def validate_data(estimator: Any, X: Any, *args: Any, **options: Any) -> Any:
    """scikit-learn's validation, after a check of a sparse matrix's indices.

    Tensors become arrays first, also where scikit-learn would dispatch on them.
    """
    if is_blocks(X):
        refuse_blocks(estimator)
    require_indices(X)
    X, args = as_array(X), tuple(map(as_array, args))
    return validation.validate_data(estimator, X, *args, **options)


def _as_numbers(y: Any) -> Any:
    """Convert strings such as "1.5" to numbers; leave other targets unchanged."""
    if sparse.issparse(y) or hasattr(y, "detach") or y is None:
        return y
    line = np.asarray(y)
    if line.dtype.kind not in "US":
        return y
    try:
        return line.astype(np.float64)
    except ValueError as error:
        raise ValueError(f"y must hold numbers: {unstopped(error)}.") from None


def require_indices(X: Any, name: str = "X") -> None:
    """Raise an error for indices outside the matrix; compiled code does not check them.

    SciPy checks them when a matrix is created, not when its arrays are changed later.
    """
    if sparse.issparse(X) and X.format in ("csr", "csc"):
        width = X.shape[1] if X.format == "csr" else X.shape[0]
        ends, size = X.indptr, min(len(X.indices), len(X.data))
        sound = ends[0] == 0 and ends[-1] <= size and bool(np.all(np.diff(ends) >= 0))
        if sound and size:
            sound = X.indices.min() >= 0 and X.indices.max() < width
        if not sound:
            raise ValueError(
                f"{name} is damaged: some of its indices lie outside its shape "
                f"{X.shape}. Build it again."
            )


def require_finite(X: Any, name: str | None = None) -> None:
    """Raise scikit-learn's error for NaN and inf, after one cheap threaded product.

    A finite X·1 proves that every cell is finite; otherwise each cell is looked at.
    """
    if not sparse.issparse(X):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(X @ np.ones(X.shape[1], dtype=X.dtype)).all():
                return
    assert_all_finite(X, estimator_name=name, input_name="X")


def require_outputs(Z: Any) -> None:
    """Raise an error where a network's output is NaN or infinite.

    A score of −∞ is allowed: the class is impossible.
    """
    if Z.size and not Z.max() < np.inf:
        row = int((~(Z.reshape(len(Z), -1) < np.inf)).any(axis=1).argmax())
        raise ValueError(
            f"The network gives NaN or infinity for row {row} of X: numbers overflow "
            "inside it. Scale X as you did for the fit, or refit."
        )


def take(X: Any, rows: Any) -> Any:
    """Some rows of X: of an array, a sparse matrix, a frame or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    if sparse.issparse(X):
        return X.tocsr()[rows]
    return (X if hasattr(X, "__getitem__") else np.asarray(X))[rows]


# -- parameter checks -------------------------------------------------------------


def check_number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = math.inf,
    *,
    open_low: bool = False,
    integer: bool = False,
    none: bool = False,
) -> None:
    """Raise an error unless ``value`` is a number in the interval."""
    if none and value is None:
        return
    kind = numbers.Integral if integer else numbers.Real
    what = "an integer" if integer else "a number"
    if not isinstance(value, kind) or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be {what}, got {value!r}.")
    try:
        number = float(value)
    except OverflowError:
        number = -math.inf if value < 0 else math.inf
    inside = low < number <= high if open_low else low <= number <= high
    if not inside:  # NaN fails the comparison too
        bound = f"{'above' if open_low else 'of at least'} {low:g}"
        if high < math.inf:
            bound += f" and at most {high:g}"
        raise ValueError(f"{name} must be {what} {bound}, got {value!r}.")


def label_codes(y: Any) -> tuple[Any, Any]:
    """The sorted labels, and the position of each row's label among them.

    Integers in a narrow range are counted, which takes a tenth of the time of sorting.
    """
    if y.ndim == 1 and y.dtype.kind in "iu" and y.dtype != np.uint64 and len(y):
        low, high = int(y.min()), int(y.max())
        if high - low < min(1024, len(y) // 4):
            places = np.subtract(y, low, dtype=np.intp, casting="unsafe")
            seen = np.bincount(places, minlength=high - low + 1) > 0
            classes = (np.flatnonzero(seen) + low).astype(y.dtype)
            return classes, (np.cumsum(seen) - 1)[places]
    try:
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in np.ravel(y).tolist()})
        if len(kinds) == 1:
            raise
        raise ValueError(
            f"y must hold labels of one type, got {', '.join(kinds)}. Convert them to "
            "one type, and drop rows without a label."
        ) from None


def class_codes(y: Any) -> tuple[Any, Any]:
    """Like :func:`label_codes`, for a classifier that needs at least two labels."""
    classes, codes = label_codes(y)
    if len(classes) < 2:
        raise ValueError(
            f"y has only one class ({classes[0]}); classification needs samples of at "
            "least 2 classes."
        )
    return classes, codes


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise an error unless ``value`` is one of ``choices``."""
    if not any(value is c or value == c for c in choices):
        shown = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{name} must be one of {shown}, got {value!r}.")


def generator_of(random_state: Any) -> np.random.Generator:
    """The random generator of a fit, from scikit-learn's ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    return np.random.default_rng(seed)
