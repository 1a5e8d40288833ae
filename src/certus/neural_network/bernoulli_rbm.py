"""Restricted Boltzmann machines: binary units, persistent contrastive divergence.

    p(v) ∝ exp(b·v)·Π_j (1 + exp(c_j + W_j·v)),   F(v) = −log of the right-hand side

A step raises the likelihood of a batch by the gradient −∂F(batch) + ∂F(chains): the
second mean, over the model itself, is taken over chains that run on from step to step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, gen_even_slices
from sklearn.utils.validation import check_is_fitted

from certus.base import Fitted, Model, certified_fit, check_number, validate_data
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.neural_network import rbm_kernels as kernels
from certus.typing import Array, ArrayLike, Matrix, MatrixLike, RandomState

#: Units of the smaller layer up to which all states are added up.
MOST = 20
#: Bits of the first half of a state.
HALF = 10


class BernoulliRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Model):
    """Restricted Boltzmann machine: a distribution of rows of zeros and ones.

    Objective
    ---------
    Mean over the rows of log p(v), p(v) ∝ exp(b·v)·Π_j (1 + exp(c_j + W_j·v)). It is
    raised by persistent contrastive divergence, which does not say how far it got.

    Certificate
    -----------
    ``exact_likelihood`` (PROVED): the mean of −log p over the rows, if the smaller
    layer has at most 20 units: all its states are added up. ``fit`` does so up to
    20 units beside 1,024, with weights whose exponentials float64 can hold;
    ``certify(level="full")`` does so always. Above 20 units ``annealed_bound``
    (STATISTICAL) says how low it can be at most, and ``annealed_estimate`` (MEASURED)
    about what it is. No claim says that training has converged. Rows with other
    numbers than 0 and 1 have no likelihood.

    Parameters
    ----------
    n_components : int, default=256
        Number of components. They are hidden units.
    learning_rate : float, default=0.1
        Step size.
    batch_size : int, default=10
        Number of rows in each training step. It is also the number of chains.
    n_iter : int, default=10
        Number of passes over the rows.
    verbose : int, default=0
        Not used; accepted for compatibility with scikit-learn.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    warm_start : bool, default=False
        Whether to start from the last fit. The chains and
        the random numbers go on too: two fits of 5 passes are one of 10.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Weights W.
    intercept_hidden_ : ndarray of shape (n_components,)
        Constants c of the hidden units.
    intercept_visible_ : ndarray of shape (n_features,)
        Constants b of the visible units.
    h_samples_ : ndarray of shape (batch_size, n_components)
        Hidden states of the chains.
    fit_random_state_ : RandomState
        The generator as the fit left it, from which a warm start goes on.
    history_ : dict
        Mean pseudo-likelihood of up to 1,000 rows with its sign changed
        (``objective``), and seconds, after each pass; ``gap`` is not known.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.neural_network import BernoulliRBM
    >>> X = [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    >>> model = BernoulliRBM(n_components=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.certificate_.primary
    ((4, 2), 'exact_likelihood')
    """

    def __init__(
        self,
        n_components: int = 256,
        *,
        learning_rate: float = 0.1,
        batch_size: int = 10,
        n_iter: int = 10,
        verbose: int = 0,
        random_state: RandomState = None,
        max_time: float | None = None,
        warm_start: bool = False,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.verbose = verbose
        self.random_state = random_state
        self.max_time = max_time
        self.warm_start = warm_start

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Fit to rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows of zeros and ones, or of probabilities.
        y : None
            Ignored.
        """
        self._check()
        X = self._read(X, first=True)
        rng = self._begin_or_go_on(X)
        monitor = Monitor(self, X, None, None, self.max_time)
        n, size, status = X.shape[0], int(self.batch_size), Status.SOLVED
        count = -(-n // size)
        batches = list(gen_even_slices(size * count, count, n_samples=n))
        some = X[:1000]
        try:
            for _ in range(int(self.n_iter)):
                for rows in batches:
                    self._step(X[rows], rng)
                score = -float(self._scores(some, check_random_state(0)).mean())
                asked = monitor.step(score, np.nan, partial(self._attributes))
                if asked is not None:
                    status = asked
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        self.history_ = monitor.history
        monitor.close(self._attributes())
        return Fitted(Evidence("boltzmann"), X, None, None, status)

    def partial_fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Take one step on a batch, given here.

        It sets no certificate, because a batch says nothing about other rows. Use
        ``certus.certify`` with rows of your choice.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows of the batch.
        y : None
            Ignored.
        """
        self._check()
        first = not hasattr(self, "components_")
        X = self._read(X, first=first)
        if not hasattr(self, "random_state_"):
            self.random_state_ = check_random_state(self.random_state)
        if first:
            self._begin(X, self.random_state_)
        self.__dict__.pop("certificate_", None)
        self._step(X, self.random_state_)
        return self

    def transform(self, X: MatrixLike) -> Array:
        """Probability that each hidden unit is on, given each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Probabilities.
        """
        check_is_fitted(self)
        return self._hidden(self._read(X))

    def gibbs(self, v: Any) -> Array:
        """One step of Gibbs sampling: hidden units from v, then new visible units.

        Parameters
        ----------
        v : array-like or sparse matrix of shape (n_samples, n_features)
            Visible states.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            New states, as booleans.
        """
        check_is_fitted(self)
        if not hasattr(self, "random_state_"):
            self.random_state_ = check_random_state(self.random_state)
        rng = self.random_state_
        V = v if sparse.issparse(v) else np.asarray(v)
        p = self._hidden(V)
        return self._visible_sample(rng.uniform(size=p.shape) < p, rng)

    def score_samples(self, X: Any) -> Array:
        """Pseudo-likelihood of each row.

        scikit-learn takes one entry of a row at random; this is the mean over all, so
        that a score does not depend on chance or on the other rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows of zeros and ones.

        Returns
        -------
        ndarray of shape (n_samples,)
            The sum over entries of log p(entry | all others).
        """
        check_is_fitted(self)
        X = self._read(X)
        X = X.toarray() if sparse.issparse(X) else X
        fields = X @ self.components_.T + self.intercept_hidden_
        before = np.logaddexp(0, fields).sum(axis=1)
        total = np.zeros(len(X))
        for i, W in enumerate(self.components_.T):
            flip = 1 - 2 * X[:, i]
            after = np.logaddexp(0, fields + flip[:, None] * W).sum(axis=1)
            change = before - after - flip * self.intercept_visible_[i]
            total -= np.logaddexp(0, -change)
        return total

    def log_partition(self) -> float:
        """Log Z, by adding up all states of the smaller layer.

        Returns
        -------
        float
            The logarithm of the sum of exp(−F(v)) over all v.
        """
        check_is_fitted(self)
        own, other = self.intercept_hidden_, self.intercept_visible_
        W = self.components_
        if W.shape[0] > W.shape[1]:
            W, own, other = W.T, other, own
        m = len(W)
        if m > MOST:
            raise ValueError(
                f"log_partition adds up 2^{m} states, but the smaller layer must have "
                f"at most {MOST} units. The certificate has an estimate."
            )
        low = min(m, HALF)
        bits = [_states(low), _states(m - low)]
        fields = bits[0] @ W[:low] + other, bits[1] @ W[low:]
        levels = bits[0] @ own[:low], bits[1] @ own[low:]
        wide = max(float(np.abs(each).max(initial=0.0)) for each in fields)
        return float(kernels.log_sum(*fields, *levels, wide < 300.0))

    def log_likelihood(self, X: Any) -> Array:
        """Exact log p of each row; the smaller layer must have at most 20 units.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows of zeros and ones.

        Returns
        -------
        ndarray of shape (n_samples,)
            Logarithms of probabilities.

        Examples
        --------
        >>> import numpy as np
        >>> from certus.neural_network import BernoulliRBM
        >>> rows = [[0, 0], [0, 1], [1, 0], [1, 1]]
        >>> model = BernoulliRBM(3, random_state=0).fit(rows)
        >>> round(float(np.exp(model.log_likelihood(rows)).sum()), 6)
        1.0
        """
        X = self._read(X)
        cells = X.data if sparse.issparse(X) else X
        if not np.isin(cells, (0.0, 1.0)).all():
            raise ValueError(
                "X must hold only zeros and ones: other rows have no likelihood."
            )
        return -self._free_energy(X) - self.log_partition()

    # -- parts --------------------------------------------------------------------

    def _check(self) -> None:
        for name in ("n_components", "batch_size"):
            check_number(name, getattr(self, name), 1, integer=True)
        check_number("n_iter", self.n_iter, 0, integer=True)
        check_number("learning_rate", self.learning_rate, open_low=True)
        check_number("max_time", self.max_time, none=True)

    def _read(self, X: MatrixLike, first: bool = False) -> Any:
        if not first:
            check_is_fitted(self)
        kinds = [np.float64, np.float32]
        return validate_data(self, X, accept_sparse="csr", dtype=kinds, reset=first)

    def _begin_or_go_on(self, X: Matrix) -> np.random.RandomState:
        """The generator of a fit, from first weights or from those of the last fit."""
        shape = (int(self.n_components), X.shape[1])
        last: np.random.RandomState | None = getattr(self, "fit_random_state_", None)
        warm = self.warm_start and last is not None and self.components_.shape == shape
        if last is not None and warm and len(self.h_samples_) == int(self.batch_size):
            return last
        rng = check_random_state(self.random_state)
        self._begin(X, rng)
        self.fit_random_state_ = rng
        return rng

    def _begin(self, X: Matrix, rng: np.random.RandomState) -> None:
        """First weights and chains, drawn as scikit-learn draws them."""
        h, v, dtype = int(self.n_components), X.shape[1], X.dtype
        start = rng.normal(0, 0.01, (h, v))
        self.components_ = np.asarray(start, order="F", dtype=dtype)
        self._n_features_out = h
        self.intercept_hidden_ = np.zeros(h, dtype=dtype)
        self.intercept_visible_ = np.zeros(v, dtype=dtype)
        self.h_samples_ = np.zeros((int(self.batch_size), h), dtype=dtype)

    def _step(self, V: Any, rng: np.random.RandomState) -> None:
        """One step: up for the batch, down for the chains, and the chains go on."""
        up = self._hidden(V)
        dream = self._visible_sample(self.h_samples_, rng)
        down = self._hidden(dream)
        rate = float(self.learning_rate) / V.shape[0]
        gain = np.asarray((V.T @ up).T) - down.T @ dream
        self.components_ += rate * gain
        self.intercept_hidden_ += rate * (up.sum(axis=0) - down.sum(axis=0))
        seen = np.asarray(V.sum(axis=0)).ravel()
        self.intercept_visible_ += rate * (seen - dream.sum(axis=0))
        drawn = rng.uniform(size=down.shape) < down
        self.h_samples_ = drawn.astype(self.components_.dtype)

    def _hidden(self, V: Matrix) -> Array:
        fields = np.asarray(V @ self.components_.T) + self.intercept_hidden_
        return np.asarray(expit(fields))

    def _visible_sample(self, H: Array, rng: np.random.RandomState) -> Array:
        p = expit(H @ self.components_ + self.intercept_visible_)
        return np.asarray(rng.uniform(size=p.shape) < p)

    def _free_energy(self, V: Matrix) -> Array:
        fields = np.asarray(V @ self.components_.T) + self.intercept_hidden_
        pull = np.asarray(V @ self.intercept_visible_)
        return -pull - np.logaddexp(0, fields).sum(axis=1)

    def _scores(self, X: Any, rng: np.random.RandomState) -> Array:
        """As scikit-learn's, with the same draws."""
        n, v = X.shape
        rows, columns = np.arange(n), rng.randint(0, v, n)
        flipped = X.toarray() if sparse.issparse(X) else X.copy()
        flipped[rows, columns] = 1 - flipped[rows, columns]
        change = self._free_energy(flipped) - self._free_energy(X)
        return -v * np.logaddexp(0, -change)

    def _attributes(self) -> dict[str, Any]:
        names = ("components_", "intercept_hidden_", "intercept_visible_", "h_samples_")
        return {name: getattr(self, name).copy() for name in names}


def _states(m: int) -> Array:
    """All 2^m rows of m zeros and ones."""
    return ((np.arange(2**m)[:, None] >> np.arange(m)) & 1).astype(np.float64)
