"""The base of generative models that train a network.

A subclass says which module is trained (``_build``), what is minimised (``_losses``)
and how rows are drawn (``_draw``). Reading and standardising rows, the run with its
checkpoints, early stopping and averages, sampling and outliers are here.

A model is explicit or implicit: :class:`ExplicitModel` knows the density of a row, or a
bound of it, and has ``score_samples``; :class:`ImplicitModel` only draws rows, and has
no attribute of that name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus.base import Fitted, Model, check_number, generator_of, label_codes
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence
from certus.evidence import NetworkWitness
from certus.generative.given import inner_ends, read_given
from certus.generative.options import check_options
from certus.generative.outliers import OutlierCalibration
from certus.generative.rows import (
    RowTask,
    Standardization,
    hold_out,
    read_rows,
    with_folders,
)
from certus.neural_network import tasks
from certus.neural_network.network_loss import witness_of
from certus.neural_network.optim import make_step, warmed_average
from certus.neural_network.run import Losses, TrainingStep, threads_for
from certus.typing import Array, MatrixLike

__all__ = ["ExplicitModel", "GenerativeModel", "ImplicitModel", "RowModel"]


class RowModel(Model):
    """Base of models that train a network on rows; abstract.

    Subclasses define ``__init__`` with the parameters of ``GenerativeOptions``, ``fit``
    and the two methods below; further hooks have defaults.
    """

    network_: Any
    #: Whether ``fit`` learns a distribution for each class of y, where y is given.
    conditional = False
    #: Whether the start counts, so that the result is never worse on held-out rows.
    keeps_start = False

    def _build(self, width: int, n_classes: int) -> nn.Module:
        """The module to train on rows of this many columns, with its ``config``."""
        raise NotImplementedError

    def _losses(self, module: nn.Module, x: Tensor, c: Tensor | None) -> Losses:
        """The losses of standardised rows; ``"loss"`` is a mean over rows."""
        raise NotImplementedError

    # -- hooks with defaults ----------------------------------------------------------

    def _check(self) -> None:
        """Raise unless the parameters make sense."""
        check_options(self)

    def _scaling(self, X: Array) -> Standardization:
        """What standardises rows."""
        return Standardization.of(X)

    def _encoded(self, X: Array, fresh: bool) -> Array:
        """Rows as the network learns them; ``fresh`` learns how they are made."""
        if fresh:
            self.loc_, self.scale_, self.varies_ = self._scaling(X)
        return self._scaled.inner(X)

    def _prepare(self, Z: Array, held: Array | None, rng: np.random.Generator) -> None:
        """What is fitted before the network, on standardised rows."""

    def _step(self, module: nn.Module, task: RowTask) -> TrainingStep:
        """The step that moves the module; its parts are saved in checkpoints."""
        kind, rate, decay = self.optimizer, self.learning_rate, self.weight_decay
        return make_step(kind, module, rate, decay, task.objective, self.clip)

    def _state(self, module: Any) -> dict[str, Any]:
        """The fitted attributes from a module."""
        return {"network_": module.eval()}

    def _needs_held_out(self) -> bool:
        """Whether rows are held out to stop by; a formula needs none."""
        return True

    def _closed_form(self, width: int) -> nn.Module | None:
        """The best module where a formula gives it, so that nothing is trained."""
        return None

    def _closed(self, held: Array | None) -> None:
        """What is left to do when the network is fitted; held-out rows, if any."""

    def _measured(self) -> list[Claim]:
        """Numbers that the fit found itself."""
        return []

    # -- fitting ----------------------------------------------------------------------

    def _fit(self, X: Any, y: Any = None) -> Fitted:
        """Train; what ``fit`` of a subclass returns, decorated by certified_fit."""
        self._check()
        rng = generator_of(self.random_state)
        kept = tasks.checkpoints_of(self, rng)
        monitor = Monitor(self, X, y)
        fresh = not (self.warm_start and hasattr(self, "network_"))
        if y is None and self.conditional:
            X, y = with_folders(X)
        X = read_rows(self, X, reset=fresh)
        codes = self._read_classes(y, len(X), fresh)
        Z = self._encoded(X, fresh)
        rest, held = np.arange(len(Z)), None
        if self._needs_held_out():
            rest, held = hold_out(self, len(Z), codes, rng)
        self.held_out_ = np.zeros(0, np.int64) if held is None else held
        watched = None if held is None else Z[held]
        if fresh:
            self._prepare(Z[rest], watched, rng)
        parts = (None, None) if codes is None else (codes[rest], codes[self.held_out_])
        known = self._closed_form(Z.shape[1])
        if known is not None:
            self._without_training(known, watched)
            monitor.close({})
            return Fitted(self._evidence(NetworkWitness()), X, y)
        task = RowTask(self, Z[rest], watched, *parts)
        before = None if fresh else self.network_
        n_classes = len(self.classes_) if codes is not None else 0

        def build() -> nn.Module:
            if before is not None:
                return copy.deepcopy(before).float()
            return self._build(Z.shape[1], n_classes)

        run = tasks.begin(
            *(self, build, lambda module: self._step(module, task), rng),
            lambda module: threads_for(module, task.size),
        )
        if self.average is not None:
            module = run.step.modules["module"]
            run.averages = {"module": warmed_average(module, self.average)}
        course = tasks.TaskCourse(
            *(self, run, task, self._state),
            shape=self.schedule,
            first=self.keeps_start,
        )
        trained = course.train(kept, monitor)
        tasks.finish(self, trained, self._state(trained.module))
        self._closed(watched)
        monitor.close({})
        evidence = self._evidence(witness_of(run))
        return Fitted(evidence, X, y, None, trained.status, measured=self._measured())

    def _without_training(self, module: nn.Module, held: Array | None) -> None:
        """Leave what a fit leaves."""
        for name, value in self._state(module).items():
            setattr(self, name, value)
        self.history_: dict[str, list[float]] = {}
        self.n_iter_, self.best_epoch_ = 0, 0
        self._closed(held)

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("network", witness=witness)

    @property
    def _scaled(self) -> Standardization:
        return Standardization(self.loc_, self.scale_, self.varies_)

    def _read_classes(self, y: Any, n: int, reset: bool) -> Array | None:
        """Class numbers where the model is conditional and y is given."""
        if not self.conditional or y is None:
            if reset:
                for name in ("classes_", "class_prior_"):
                    self.__dict__.pop(name, None)
            return None
        y = np.asarray(y)
        if y.shape != (n,):
            raise ValueError(
                f"y must have one label for each of {n} rows, got shape {y.shape}."
            )
        if type_of_target(y).startswith("continuous"):
            raise ValueError(
                "y must hold class labels, got numbers that are not whole. Leave out y "
                "to learn one distribution of all rows."
            )
        classes, codes = label_codes(y)
        if reset:
            self.classes_ = classes
            self.class_prior_ = np.bincount(codes, minlength=len(classes)) / n
            return np.asarray(codes)
        return self._codes_of(y)

    def _codes_of(self, y: Any) -> Array:
        """Numbers of labels among those of the fit."""
        classes = self.classes_
        y = np.asarray(y)
        places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        odd = classes[places] != y
        if np.any(odd):
            raise ValueError(
                f"y holds {y[odd][0]!r}, which the fit has not seen. Labels are "
                f"{', '.join(map(str, classes[:10]))}."
            )
        return np.asarray(places)

    # -- rows -------------------------------------------------------------------------

    def _shaped(self, X: Array) -> Array:
        """Rows in the shape of those of the fit."""
        return X.reshape(len(X), *self.shape_)

    def _inner(self, X: Any) -> Array:
        """New rows, standardised."""
        check_is_fitted(self, "network_")
        return self._scaled.inner(read_rows(self, X, reset=False))

    # -- what a network is ------------------------------------------------------------

    @property
    def config_(self) -> dict[str, Any]:
        """What the network was built with."""
        check_is_fitted(self, "network_")
        return dict(self.network_.config)

    @property
    def weights_(self) -> dict[str, Array]:
        """The network's weights by name."""
        check_is_fitted(self, "network_")
        state = self.network_.state_dict().items()
        return {name: value.detach().cpu().numpy() for name, value in state}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


class GenerativeModel(RowModel):
    """Base of models that draw rows; abstract."""

    def _draw(self, n: int, codes: Array | None, rng: np.random.Generator) -> Array:
        """Draw standardised rows, of these classes where there are any."""
        raise NotImplementedError

    def sample(
        self, n_samples: int = 1, *, y: Any = None, random_state: Any = None
    ) -> Any:
        """Draw rows.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        y : label or array of labels, optional
            Classes of the rows, for a model that was fitted with classes. By default
            each row has a class at random, as frequent as in the fit.
        random_state : int, RandomState or None
            Seed or generator of all random numbers. With None each call draws others.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows, in the units of the fit; images in their shape.
        y : ndarray of shape (n_samples,)
            Their classes; only of a model that was fitted with classes.
        """
        n, codes, rng = self._asked(n_samples, y, random_state)
        if hasattr(self, "classes_") and codes is None:
            codes = rng.choice(len(self.classes_), n, p=self.class_prior_)
        return self._with_classes(self._scaled.outer(self._draw(n, codes, rng)), codes)

    def _asked(
        self, n_samples: Any, y: Any, random_state: Any
    ) -> tuple[int, Array | None, np.random.Generator]:
        """What ``sample`` was asked for; classes are None where they are open."""
        check_is_fitted(self, "network_")
        check_number("n_samples", n_samples, 1, integer=True)
        n, rng = int(n_samples), generator_of(random_state)
        if y is None:
            return n, None, rng
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"This {type(self).__name__} was fitted without classes; leave out y."
            )
        return n, self._codes_of(np.broadcast_to(np.asarray(y), (n,))), rng

    def _with_classes(self, X: Array, codes: Array | None) -> Any:
        """What ``sample`` returns."""
        X = self._shaped(X)
        return X if codes is None else (X, self.classes_[codes])


class ExplicitModel(OutlierCalibration, DensityMixin, GenerativeModel):
    """Base of generative models with a density, or a bound of it; abstract."""

    def _log_density(self, Z: Array) -> Array:
        """Log p of standardised rows, float64."""
        raise NotImplementedError

    def _draw_given(
        self,
        n: int,
        ends: tuple[Array, Array],
        codes: Array | None,
        rng: np.random.Generator,
    ) -> tuple[Array, Array | None]:
        """Draw standardised rows between two ends of each column, and their classes."""
        raise NotImplementedError

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: Any = None,
        given: Mapping[Any, Any] | None = None,
        random_state: Any = None,
    ) -> Any:
        """Draw rows, on conditions if there are any.

        The model's own text says how conditions are met, and how exactly.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        y : label or array of labels, optional
            Classes of the rows, for a model that was fitted with classes. By default
            each row has a class at random, as frequent as in the fit; on conditions, as
            frequent as among the model's rows that meet them.
        given : dict, optional
            Conditions: from the number or the name of a column to a value, or to
            (low, high). Pixels of an image are numbered row by row.
        random_state : int, RandomState or None
            Seed or generator of all random numbers. With None each call draws others.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows, in the units of the fit; images in their shape.
        y : ndarray of shape (n_samples,)
            Their classes; only of a model that was fitted with classes.
        """
        if given is None or (isinstance(given, Mapping) and not given):
            return super().sample(n_samples, y=y, random_state=random_state)
        n, codes, rng = self._asked(n_samples, y, random_state)
        box = read_given(self, given)
        ends = inner_ends(self._scaled, box)
        if not np.isfinite(ends).any():  # of columns that are constant in any case
            return super().sample(n_samples, y=y, random_state=rng)
        Z, codes = self._draw_given(n, ends, codes, rng)
        # Values come back as they were given, not through a division and a product.
        return self._with_classes(
            np.clip(self._scaled.outer(Z), box.low, box.high), codes
        )

    def score_samples(self, X: MatrixLike) -> Array:
        """Log-density of each row, in the units of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Over the columns that vary. Minus infinity for a row with another value in a
            column that was constant in the fit.
        """
        check_is_fitted(self, "network_")
        X, scaled = read_rows(self, X, reset=False), self._scaled
        found = self._log_density(scaled.inner(X)) - scaled.log_volume()
        return np.where(scaled.misplaced(X), -np.inf, found)

    def score(self, X: MatrixLike, y: Any = None) -> float:
        """Mean log-density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return float(np.mean(self.score_samples(X)))

    def outlier_scores(self, X: MatrixLike) -> Array:
        """Minus the log-density of each row; large is odd.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        return -self.score_samples(X)


class ImplicitModel(GenerativeModel):
    """Base of generative models that only draw rows; abstract."""

    @property
    def score_samples(self) -> Any:
        """An implicit model has no density."""
        raise AttributeError(
            f"{type(self).__name__} draws rows and has no density, so there is no "
            "score_samples. certus.generative.examine(real, holdout, synthetic) says "
            "how its rows compare with real ones."
        )
