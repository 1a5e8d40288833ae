"""Autoregressive densities of mixed columns, with a bounded loss.

    maximise  mean over rows of Σⱼ log P(cⱼ | c_before(j)) − Σ log width of bins

Numbers become cells (``cells``), the columns are put in the order of the best tree of
dependences, and one small network for each column says how likely its cells are, given
those before it. The distribution starts at the tree's, and that start counts as the
zeroth epoch of early stopping: on held-out rows the distribution is never worse than
the tree.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_number, generator_of
from certus.certificate import Evidence
from certus.generative.base import ExplicitModel
from certus.generative.cell_boxes import CellBox, filled
from certus.generative.cells import CellCode, columns_of
from certus.generative.given import chosen_by_weight, read_given
from certus.generative.options import GenerativeOptions
from certus.generative.rows import read_rows
from certus.generative.trees import chow_liu, tables_of
from certus.neural_network.modules.arguments import require_counts
from certus.neural_network.modules.cell_network import CellNetwork
from certus.neural_network.run import Losses
from certus.typing import Array, MatrixLike, RandomState

__all__ = ["AutoregressiveDensity"]

#: Rows by which tables are pulled towards the marginal; held-out rows choose one.
SMOOTHINGS = (1.0, 3.0, 10.0, 30.0, 100.0)
#: Rows that pass the network together, and proposals for each row with conditions.
TOGETHER, PROPOSALS = 4096, 64


@shares(GenerativeOptions, learning_rate=2e-3, weight_decay=1.0)
class AutoregressiveDensity(ExplicitModel):
    """A distribution of mixed columns, each given those before it, with a bounded loss.

    Columns may hold numbers, whole numbers, or the numbers of categories. Values that
    many rows share, such as zeros and caps, keep a probability of their own; between
    them numbers have a density. Tables with text, dates and gaps go through
    :class:`certus.synth.TableSynthesizer`.

    Objective
    ---------
    max over θ of the mean of Σⱼ log P(cⱼ | c_before(j)) over rows of cells c, where
    each P is (1 − ε) softmax + ε/K: no cell has a probability below ε/K.

    Certificate
    -----------
    ``normalised`` (PROVED, for every row there can be): no column depends on itself or
    on a later one, so the probabilities sum to one. ``log_density`` (PROVED, on rows):
    the model's numbers are those of its weights. ``sample_density`` (STATISTICAL): rows
    that are drawn follow the distribution that is stated. ``mean_log_density`` and
    ``gain``: STATISTICAL on new rows; the loss is bounded, so the first needs no
    clipping.

    Parameters
    ----------
    categorical_features : array-like of bool or int, default=None
        Columns whose values have no order. A mask, or numbers of columns; those with at
        most 20 values count as such anyway.
    bins : int, default=32
        Bins of a column of numbers, at most; they hold about as many rows each.
    parts : int or sequence of int, default=8
        Parts of equal width of each bin, at most; a sequence has one for each column.
    edges : list of array-like, default=None
        Ends of the bins of each column. None learns them from the rows.
    uniform_share : float, default=1e-4
        Probability ε that each column spreads evenly over its cells.
    dropout : float, default=0.1
        Share of units that each training step leaves out at random. Here they are the
        columns that the networks of others see, row by row.
    hidden_layer_sizes : tuple of int, default=(64, 64)
        Number of units in each hidden layer. Each column has such a network.
    {shared}

    Attributes
    ----------
    network_ : certus.neural_network.modules.CellNetwork
        The trained distribution of cells, float64, in evaluation mode.
    cells_ : list of dict
        Of each column: ``values`` with cells of their own, ``edges`` of the bins, and
        ``parts`` of a bin.
    start_score_, validation_score_ : float
        Mean log-density of the held-out rows at the start and at the end; NaN without.
    loss_bound_ : float
        Largest −log P of a row of cells that there can be, in nats.
    shape_ : tuple of int
        Shape of a row.
    held_out_ : ndarray of int
        Numbers of the rows that were held out.
    config_ : dict
        What the network was built with.
    weights_ : dict of ndarray
        Its weights by name.
    history_ : dict of lists
        After each epoch: loss, validation_loss, steps, seconds.
    n_iter_ : int
        Steps made.
    best_epoch_ : int
        Epoch whose weights were kept; 0 is the tree itself.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import AutoregressiveDensity
    >>> rng = np.random.default_rng(0)
    >>> smoker = rng.integers(0, 2, 800)
    >>> cost = np.where(rng.random(800) < 0.3, 0.0, rng.gamma(2.0, 1.0 + 3.0 * smoker))
    >>> X = np.column_stack([smoker, cost])
    >>> model = AutoregressiveDensity(max_iter=60, random_state=0).fit(X)
    >>> made = model.sample(500, given={0: 1}, random_state=0)
    >>> bool((made[:, 0] == 1).all()), bool(abs((made[:, 1] == 0).mean() - 0.3) < 0.1)
    (True, True)
    >>> model.certificate_["normalised"].met
    True
    """

    keeps_start = True

    def __init__(
        self,
        *,
        categorical_features: Any = None,
        bins: int = 32,
        parts: Any = 8,
        edges: Any = None,
        uniform_share: float = 1e-4,
        dropout: float = 0.1,
        hidden_layer_sizes: tuple[int, ...] = (64, 64),
        **shared: Unpack[GenerativeOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn the distribution of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_number("bins", self.bins, 1, 500, integer=True)
        check_number("uniform_share", self.uniform_share, 1e-12, 0.5)
        check_number("dropout", self.dropout, 0, 0.9)
        require_counts("hidden_layer_sizes", self.hidden_layer_sizes)

    def _encoded(self, X: Array, fresh: bool) -> Array:
        if fresh:
            found = columns_of(
                *(X, self.edges, self.categorical_features),
                bins=int(self.bins),
                parts=self.parts,
            )
            self.cells_ = [column._asdict() for column in found]
        codes = self._code.encode(X)
        if (codes < 0).any():
            raise ValueError(
                "X must hold only categories of the first fit, got a new one. Drop "
                "such rows, or set warm_start=False."
            )
        return codes.astype(np.float64)

    @property
    def _code(self) -> CellCode:
        return CellCode.of(self.cells_)

    @property
    def loss_bound_(self) -> float:
        """Largest −log P of a row of cells, in nats."""
        check_is_fitted(self, "network_")
        config = self.network_.config
        return float(
            sum(math.log(k / config["uniform_share"]) for k in config["sizes"])
        )

    def _prepare(self, Z: Array, held: Array | None, rng: np.random.Generator) -> None:
        """The best tree of cells; parts hang on their own cells."""
        code, codes = self._code, Z.astype(np.int64)
        d, sizes = len(code.columns), list(code.sizes)
        law = chow_liu(codes[:, :d], sizes[:d], 1.0)
        order = (*law.order.tolist(), *range(d, len(sizes)))
        parents = (*law.parents.tolist(), *code.fine)
        rest = None if held is None else held.astype(np.int64)
        tables = [_best_table(codes, sizes, j, p, rest) for j, p in enumerate(parents)]
        self._start = order, parents, tables

    def _build(self, width: int, n_classes: int) -> nn.Module:
        order, parents, tables = self._start
        module = CellNetwork(
            *(self._code.sizes, order, parents, self._code.skips),
            hidden=tuple(self.hidden_layer_sizes),
            uniform_share=float(self.uniform_share),
            dropout=float(self.dropout),
        )
        module.start_at(tables, self._code.levels())
        return module

    def _losses(self, module: nn.Module, x: Tensor, c: Tensor | None) -> Losses:
        return {"loss": -module.log_prob(x.long()).mean()}  # type: ignore[operator]

    def _state(self, module: Any) -> dict[str, Any]:
        return {"network_": copy.deepcopy(module).double().cpu().eval()}

    def _closed(self, held: Array | None) -> None:
        """What held-out rows say of the start and of the end."""
        self.start_score_ = self.validation_score_ = float("nan")
        if held is not None:
            codes = held.astype(np.int64)
            start = self.network_.without_networks()
            lost = self._code.log_volume(codes)
            self.start_score_ = float((_logs(start, codes) - lost).mean())
            self.validation_score_ = float((_logs(self.network_, codes) - lost).mean())
        self.__dict__.pop("_start", None)

    def _evidence(self, witness: Any) -> Evidence:
        return Evidence("cells", witness=witness)

    # -- density ----------------------------------------------------------------------

    def score_samples(self, X: MatrixLike) -> Array:
        """Log-density of each row: probabilities of values, densities of numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows. A number outside the range of the fit counts as the nearest one
            inside.

        Returns
        -------
        ndarray of shape (n_samples,)
            At least −``loss_bound_`` − Σ log width of the bins; minus infinity for a
            value that a column of categories did not have in the fit.
        """
        check_is_fitted(self, "network_")
        code = self._code
        codes = code.encode(read_rows(self, X, reset=False))
        known = (codes >= 0).all(axis=1)
        codes = np.maximum(codes, 0)
        found = _logs(self.network_, codes) - code.log_volume(codes)
        return np.where(known, found, -np.inf)

    # -- rows -------------------------------------------------------------------------

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: Any = None,
        given: Mapping[Any, Any] | None = None,
        random_state: RandomState = None,
    ) -> Array:
        """Draw rows, on conditions if there are any.

        Columns that come before those with conditions are drawn freely, 64 times for
        each row, and one of these proposals is taken by its weight.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        y : None
            There are no classes.
        given : dict, optional
            Conditions: from the number or the name of a column to a value, or to
            (low, high).
        random_state : int, RandomState or None
            Seed or generator of all random numbers. With None each call draws others.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows, in the units of the fit.
        """
        check_is_fitted(self, "network_")
        check_number("n_samples", n_samples, 1, integer=True)
        if y is not None:
            raise ValueError("AutoregressiveDensity has no classes; leave out y.")
        rng, n = generator_of(random_state), int(n_samples)
        if given:
            low, high = read_given(self, given).repeated(n)
            return self._shaped(self.complete(low, high, rng))
        codes, _ = self._drawer().draw(n, rng)
        return self._shaped(self._code.decode(codes, rng))

    def _drawer(self) -> Any:
        """The network in single precision, which draws faster."""
        return copy.deepcopy(self.network_).float()

    def complete(self, low: Array, high: Array, rng: np.random.Generator) -> Array:
        """Draw one row from each box, by weighted proposals.

        Parameters
        ----------
        low, high : array of shape (n, n_features)
            Lowest and highest number of each cell; equal where it is known.
        rng : numpy.random.Generator
            Random numbers.

        Returns
        -------
        ndarray of shape (n, n_features)
        """
        check_is_fitted(self, "network_")
        found = np.empty(low.shape)
        network, each = self._drawer(), self._proposals(low, high)
        step = max(1, TOGETHER // each)
        for i in range(0, len(low), step):
            box = low[i : i + step], high[i : i + step]
            codes, logs = self._propose(network, box, each, rng)
            pick = chosen_by_weight(logs, rng) + each * np.arange(len(logs))
            found[i : i + step] = self._code.decode(codes[pick], rng, box)
        return found

    def _proposals(self, low: Array, high: Array) -> int:
        """One, if what is given comes first: then all weights of a row are equal."""
        bound = np.any(np.isfinite(low) | np.isfinite(high), axis=0)
        order = [j for j in self.network_.config["order"] if j < low.shape[1]]
        given = [bool(bound[j]) for j in order]
        first = given == sorted(given, reverse=True)
        known = bool((low[:, bound] == high[:, bound]).all()) and not self._code.fine
        return 1 if first and (known or sum(given) == 1) else PROPOSALS

    def _propose(
        self, network: Any, box: Any, each: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Cells of proposals, and the log weight of each, (rows, proposals)."""
        low, high = (np.repeat(end, each, axis=0) for end in box)
        codes, logs = network.draw(len(low), rng, CellBox(self._code, low, high))
        return codes, logs.reshape(-1, each)

    def impute(self, X: MatrixLike, *, random_state: RandomState = None) -> Array:
        """Fill gaps (NaN), given the rest of the row.

        Numbers get their expected value, and columns of categories the most probable
        one; both from weighted proposals.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with NaN for what is missing.
        random_state : int, RandomState or None
            Seed or generator of all random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Whole rows.
        """
        check_is_fitted(self, "network_")
        X = read_rows(self, X, reset=False, missing=True).copy()
        rng, network, code = generator_of(random_state), self._drawer(), self._code
        gaps = np.isnan(X)
        for i in np.flatnonzero(gaps.any(axis=1)):
            free = gaps[i : i + 1]
            box = tuple(np.where(free, end, X[i : i + 1]) for end in (-np.inf, np.inf))
            codes, logs = self._propose(network, box, 4 * PROPOSALS, rng)
            chosen_by_weight(logs, rng)  # raises an error if the row is impossible
            w = np.exp(logs[0] - logs[0].max())
            drawn = code.decode(codes, rng)
            for j in np.flatnonzero(gaps[i]):
                X[i, j] = filled(code.columns[j], drawn[:, j], w)
        return self._shaped(X)


@torch.no_grad()
def _logs(network: Any, codes: Array) -> Array:
    """Log P of rows of cells."""
    parts = [
        network.log_prob(torch.from_numpy(codes[i : i + TOGETHER])).numpy()
        for i in range(0, len(codes), TOGETHER)
    ]
    return np.concatenate(parts)


def _best_table(
    codes: Array, sizes: list[int], j: int, parent: int, held: Array | None
) -> Array:
    """The table of a column, smoothed as held-out rows like it best."""
    if parent < 0:
        return tables_of(codes[:, [j]], [sizes[j]], np.array([-1]), 0.0)[0]
    pair, parents = codes[:, [j, parent]], np.array([1, -1])
    options = [
        tables_of(pair, [sizes[j], sizes[parent]], parents, s)[0] for s in SMOOTHINGS
    ]
    if held is None:
        return options[2]
    losses = [-np.log(t[held[:, parent], held[:, j]]).mean() for t in options]
    return options[int(np.argmin(losses))]
