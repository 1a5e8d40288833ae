"""Autoregressive distributions of cells: normalised, with the draws they state.

- ``normalised``: if no column's network sees that column or a later one, each factor is
  a distribution of cells given earlier ones, and their product sums to one.
- ``log_density``: on rows, Σ log P(cⱼ | earlier cells) − Σ log width, from the
  verifier's own cells and networks, each number with a radius of rounding errors.
- ``sample_density``: for a row with this distribution, F(cⱼ | earlier) smoothed by a
  uniform number is uniform, whatever the distribution is (Rosenblatt), and so is its
  place in its part. Draws of the model are compared with that, column by column (DKW).
- ``mean_log_density``: on new rows. No factor is below ε/K, so the loss is bounded by a
  number that is known beforehand, and empirical Bernstein needs no clipping.
- ``gain``: what the networks add to the tables they started from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim, Status, Strength
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.deciding import Number, U, gamma
from certus.verify.flows import CLIP, DELTA, FIX, NEAR, SAME, SOME
from certus.verify.language.scoring import spread
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, bernstein, hoeffding, outwards

#: Draws on level "quick" and "full"; how far from uniform they may be at most.
DRAWS = {"quick": 4_000, "full": 20_000}
APART = {"quick": 0.1, "full": 0.05}
#: Rows that pass the networks together.
TOGETHER = 1_000


class Statement(NamedTuple):
    """A distribution of cells: how it was built, its weights, the cells of columns."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    cells: list[Mapping[str, Any]]


READERS = {
    "AutoregressiveDensity": lambda model: Statement(
        dict(model.config_), model.weights_, list(model.cells_)
    )
}


class CellColumn(NamedTuple):
    """Cells of a column: values of their own, then bins that have parts."""

    values: Array
    edges: Array
    parts: int

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> CellColumn:
        """From what the model states."""
        values, edges = (
            np.asarray(stored[name], dtype=np.float64) for name in ("values", "edges")
        )
        rising = all(bool((np.diff(part) > 0).all()) for part in (values, edges))
        sound = rising and np.isfinite(np.concatenate([values, edges])).all()
        require(bool(sound) and len(edges) != 1, "its cells do not rise")
        require(len(values) + len(edges) > 0, "a column has no cells")
        parts = int(stored["parts"])
        require(parts >= 1 and (parts == 1 or len(edges) > 1), "its parts are wrong")
        return cls(values, edges, parts)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return max(0, len(self.edges) - 1)

    def place(self, x: Array) -> tuple[Array, Array, Array]:
        """Cell (−1 for none), part, and the place within the part (NaN for values)."""
        m, n = len(self.values), len(x)
        cell, part, spot = np.full(n, -1), np.zeros(n, dtype=int), np.full(n, np.nan)
        if self.bins:
            inside = np.clip(x, self.edges[0], self.edges[-1])
            at = np.clip(
                np.searchsorted(self.edges, inside, "right") - 1, 0, self.bins - 1
            )
            wide = np.diff(self.edges)[at]
            along = (inside - self.edges[at]) / wide * self.parts
            part = np.clip(np.floor(along).astype(int), 0, self.parts - 1)
            cell, spot = m + at, along - part
        for k, value in enumerate(self.values.tolist()):
            same = x == value
            cell[same], part[same], spot[same] = k, 0, np.nan
        return cell, part, spot

    def log_widths(self) -> ErrorBall:
        """Log of the width of a part, of each cell; 0 for values."""
        zero = np.zeros(len(self.values))
        if not self.bins:
            return ErrorBall(zero)
        wide = (ErrorBall(self.edges[1:]) - self.edges[:-1]) / float(self.parts)
        logs = wide.log()
        return ErrorBall(np.concatenate([zero, logs.x]), np.concatenate([zero, logs.r]))


class PlainLaw:
    """The parts of a distribution by name, in float64."""

    def __init__(self, stated: Statement) -> None:
        config, self.weights = stated.config, stated.weights
        self.columns = [CellColumn.of(each) for each in stated.cells]
        self.fine = [j for j, c in enumerate(self.columns) if c.parts > 1]
        sizes = [len(c.values) + c.bins for c in self.columns]
        sizes += [self.columns[j].parts for j in self.fine]
        require(list(config["sizes"]) == sizes, "its cells do not match its network")
        self.sizes, self.d = sizes, len(sizes)
        self.order = [int(j) for j in config["order"]]
        self.parents = [int(p) for p in config["parents"]]
        require(sorted(self.order) == list(range(self.d)), "its order lacks a column")
        require(len(self.parents) == self.d, "a column has no entry among its parents")
        m, skips = len(self.columns), [int(k) for k in config["skips"]]
        own = [0] * m + [len(self.columns[j].values) for j in self.fine]
        sound = skips == own and self.parents[m:] == self.fine
        require(sound, "its parts do not hang on their own cells")
        self.rank = np.argsort(self.order)
        self.hidden, self.share = list(config["hidden"]), float(config["uniform_share"])
        require(0 < self.share < 1, "its uniform share is not a probability")
        self.seen = self.get("seen", (self.d, self.d))
        self.levels = self.get("levels", (sum(sizes),))
        rows = [1 if p < 0 else sizes[p] for p in self.parents]
        self.heads = np.cumsum([0, *rows[:-1]])
        self.tables = self.get("tables", (sum(rows), max(sizes)))
        self.offsets = np.cumsum([0, *sizes[:-1]])
        self.first = self.get("first", (sum(sizes) + self.d, self.d, self.hidden[0]))

    def get(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weights of this name, finite and of this shape."""
        found = np.asarray(self.weights.get(name, np.zeros(0)), dtype=np.float64)
        sound = found.shape == shape and bool(np.isfinite(found).all())
        require(sound, f"its weights {name!r} are not finite numbers of shape {shape}")
        return found

    def broken(self) -> int:
        """Pairs of columns where one sees itself or a later one."""
        late = self.rank[:, None] >= self.rank[None, :]
        wrong = int(((self.seen != 0) & late).sum())
        wrong += int((~np.isin(self.seen, (0.0, 1.0))).sum())
        return wrong + sum(
            p >= 0 and self.rank[p] >= self.rank[j] for j, p in enumerate(self.parents)
        )

    def codes(self, X: Array) -> tuple[Array, Array]:
        """Cells and parts of rows, and their places within parts, column by column."""
        found = [column.place(X[:, j]) for j, column in enumerate(self.columns)]
        cells = [each[0] for each in found] + [found[j][1] for j in self.fine]
        return np.column_stack(cells), np.column_stack([each[2] for each in found])

    def factors(self, codes: Array, networks: bool = True) -> list[ErrorBall]:
        """P(· | earlier cells) of each column, (rows, cells)."""
        n = len(codes)
        at = codes + self.offsets
        inputs = np.zeros((n, sum(self.sizes) + self.d))
        inputs[np.arange(n)[:, None], at] = 1.0
        inputs[:, sum(self.sizes) :] = self.levels[at]
        which = np.concatenate(
            [np.repeat(np.arange(self.d), self.sizes), range(self.d)]
        )
        found = []
        for j, (k, parent) in enumerate(zip(self.sizes, self.parents)):
            row = self.heads[j] + (codes[:, parent] if parent >= 0 else 0)
            score = ErrorBall(self.tables[np.broadcast_to(row, n), :k])
            if networks:
                score = score + self._network(j, ErrorBall(inputs), which)[:, :k]
            e = (score - score.x.max(axis=1, keepdims=True)).exp()
            p = e / e.sum()[:, None]
            rest = ErrorBall(1.0) - self.share
            found.append(p * rest + ErrorBall(self.share) / float(k))
        return found

    def _network(self, j: int, x: ErrorBall, which: Array) -> ErrorBall:
        widths = [*self.hidden, max(self.sizes)]
        bias = [self.get(f"biases.{i}", (self.d, h)) for i, h in enumerate(widths)]
        h = x.times((self.first[:, j] * self.seen[which, j][:, None]).T, bias[0][j])
        for i in range(len(self.hidden)):
            W = self.get(f"weights.{i}", (self.d, widths[i], widths[i + 1]))
            h = h.clip(0.0, math.inf).times(W[j].T, bias[i + 1][j])
        return h

    def log_prob(self, codes: Array, networks: bool = True) -> ErrorBall:
        """Σ log P(cⱼ | earlier cells)."""
        total, rows = ErrorBall(np.zeros(len(codes))), np.arange(len(codes))
        for j, p in enumerate(self.factors(codes, networks)):
            one = p[rows, codes[:, j]].log()
            counts = self.counts(codes, j).astype(float)
            total = total + ErrorBall(one.x * counts, one.r * counts)
        return total

    def counts(self, codes: Array, j: int) -> Array:
        """Rows whose cell has parts, for a column of parts; else all rows."""
        own = j - len(self.columns)
        if own < 0:
            return np.ones(len(codes), dtype=bool)
        cell = self.fine[own]
        return np.asarray(codes[:, cell] >= len(self.columns[cell].values))

    def log_volume(self, codes: Array) -> ErrorBall:
        """Σ log width of the parts."""
        total = ErrorBall(np.zeros(len(codes)))
        for j, column in enumerate(self.columns):
            total = total + column.log_widths()[codes[:, j]]
        return total

    def range_of_loss(self) -> tuple[float, float]:
        """The least and the largest −log density that a row can have."""
        widths = [column.log_widths().x for column in self.columns]
        low, high = (sum(float(end(w)) for w in widths) for end in (np.min, np.max))
        return low, high + sum(math.log(k / self.share) for k in self.sizes)


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of a distribution of cells on the rows given."""
    bd.refuse_weights(model, given.sample_weight)
    X = np.asarray(given.X, dtype=np.float64)
    X = data.dense(X.reshape(len(X), -1))
    marks = data.fingerprint(X, np.zeros(len(X)), np.ones(len(X)))
    require(len(stated.cells) == X.shape[1], "it has not cells for each column")
    law = PlainLaw(stated)
    with np.errstate(all="ignore"):
        claims = [_normalised(law)]
        if claims[0].met:
            some = spread(len(X), SOME[given.level])
            claims.append(_density_claim(model, law, X[some]))
            claims.append(_draws_claim(model, law, given.level))
            claims += _added_claims(model, law, X, marks)
    status = bd.verdict(claims)
    claims.sort(key=lambda claim: claim.met is not False)
    status = Status.TOL_NOT_REACHED if claims[0].met is False else status
    return claims, status, marks


def _normalised(law: PlainLaw) -> Claim:
    wrong = law.broken()
    return bd.proved(
        *("normalised", Number(float(wrong), 0.0), 0.0),
        "probabilities sum to one for every row: no column sees itself or a later one, "
        f"and none is below {law.share:.0e} over its number of cells",
        missed=f"{wrong} dependences between columns break their order",
        objective="pairs of columns where one sees itself or a later one",
        theorem="each factor is a distribution of cells given earlier ones, so their "
        "product sums to one over all rows of cells",
        fix=FIX,
    )


def _density_claim(model: Any, law: PlainLaw, X: Array) -> Claim:
    codes, _ = law.codes(X)
    known = (codes >= 0).all(axis=1)
    own = law.log_prob(np.maximum(codes, 0)) - law.log_volume(np.maximum(codes, 0))
    rows = X.reshape(len(X), *model.shape_)
    said = np.asarray(model.score_samples(rows), dtype=np.float64)
    require(said.shape == own.x.shape, "it does not score each row")
    if not known.any():
        return bd.refused(
            *("log_density", "no row has values that the fit has seen"),
            "pass other rows",
        )
    size = 1.0 + np.abs(own.x)
    apart = np.where(np.isfinite(said), np.abs(said - own.x) / size, np.inf)[known]
    lost = ((own.r + U * np.abs(own.x)) / size)[known]
    i = int(np.argmax(apart + lost))
    return bd.proved(
        *("log_density", Number(float(apart[i]), float(lost[i])), NEAR),
        f"the log-densities of {len(apart):,} rows agree within {apart.max():.1e} of "
        "their size",
        missed=f"a log-density is {apart[i]:.2g} of its size away from that of the "
        "weights",
        objective="largest |log p of the model − (Σ log P(c | earlier) − Σ log "
        "width)|, as a share of 1 + |log p|",
        theorem="cells and networks were computed again from the weights, each number "
        "with a radius that holds its rounding errors",
        fix=FIX,
    )


# -- draws ----------------------------------------------------------------------------


def _draws_claim(model: Any, law: PlainLaw, level: str) -> Claim:
    n, rng = DRAWS[level], np.random.default_rng(0)
    drawn = np.asarray(model.sample(n, random_state=1), dtype=np.float64)
    codes, spots = law.codes(drawn.reshape(n, -1))
    words: Any = {
        "objective": "largest difference between the distribution of F(x | earlier "
        f"columns) over {n:,} draws and the uniform one, by column",
        "theorem": "Rosenblatt's transform of a row is uniform under its own "
        "distribution; Dvoretzky, Kiefer, Wolfowitz and Massart, union bound over "
        "columns",
        "assumptions": ("the draws are independent",),
    }
    if (codes < 0).any():
        return Claim(
            *("sample_density", Strength.STATISTICAL, 1.0, APART[level], False),
            delta=DELTA,
            detail="rows drawn hold values that have no cell",
            fix=FIX,
            **words,
        )
    levels = [*_smoothed(law, codes, rng), *(s[~np.isnan(s)] for s in spots.T)]
    levels = [u for u in levels if len(u)]
    tail = DELTA / len(levels)
    halves = [math.sqrt(math.log(2 / tail) / (2 * len(u))) for u in levels]
    off = [_from_uniform(u) for u in levels]
    value = max(a + b for a, b in zip(off, halves))
    refuted = any(a > b for a, b in zip(off, halves))
    met = False if refuted else True if value <= APART[level] else None
    told = f"rows drawn are as stated, within {outwards(value, up=True):.2g}"
    if refuted:
        told = "rows drawn do not follow the density that score_samples states"
    return Claim(
        *("sample_density", Strength.STATISTICAL, value, APART[level], met),
        delta=DELTA,
        detail=told,
        fix="" if met else "certify with level='full', or fit again",
        **words,
    )


def _smoothed(law: PlainLaw, codes: Array, rng: np.random.Generator) -> list[Array]:
    """F(below) + v·P(cell) of each column, v uniform."""
    parts: list[list[Array]] = [[] for _ in law.sizes]
    for block in np.array_split(codes, max(1, len(codes) // TOGETHER)):
        rows = np.arange(len(block))
        for j, p in enumerate(law.factors(block)):
            sums, own = np.cumsum(p.x, axis=1), p.x[rows, block[:, j]]
            below = sums[rows, block[:, j]] - own
            smooth = below + rng.random(len(block)) * own
            parts[j].append(smooth[law.counts(block, j)])
    return [np.concatenate(part) for part in parts]


def _from_uniform(u: Array) -> float:
    """The largest |F_n(t) − t|."""
    u, n = np.sort(u), len(u)
    up, down = np.arange(1, n + 1) / n - u, u - np.arange(n) / n
    return float(max(up.max(), down.max()))


# -- new rows -------------------------------------------------------------------------


def _added_claims(
    model: Any, law: PlainLaw, X: Array, marks: dict[str, Any]
) -> list[Claim]:
    """The mean log-density, and what the networks add to the tables."""
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    old = fit is None or fingerprints.same_rows(fit, marks, False)
    held = np.asarray(getattr(model, "held_out_", ()), dtype=np.int64)
    if old and len(held):
        require(held.min() >= 0 and held.max() < len(X), "held_out_ names no rows")
        X = X[held]
    codes, _ = law.codes(X)
    if (codes < 0).any():
        told = "some rows have values that a column of categories did not have"
        return [bd.refused("mean_log_density", told, "leave out these rows")]
    balls, gains = [], []
    for block in np.array_split(codes, max(1, len(codes) // TOGETHER)):
        found = law.log_prob(block)
        gains.append(found.x - law.log_prob(block, networks=False).x)
        balls.append(found - law.log_volume(block))
    x, lost = (np.concatenate([getattr(b, name) for b in balls]) for name in "xr")
    claims = [_mean_claim(law, x, old, len(held)), _gain_claim(gains, old)]
    if old and len(held) and (fit is None or fingerprints.same_data(fit, marks)):
        claims.append(_stated_claim(model, x, lost))
    return claims


def _half(n: int, variance: float) -> float:
    """Half of an interval for the mean of numbers in [0, 1]; chosen by n alone."""
    if bernstein(n, DELTA, 0.0) >= hoeffding(n, DELTA):
        return hoeffding(n, DELTA)
    return bernstein(n, DELTA, variance)


def _mean_claim(law: PlainLaw, x: Array, old: bool, held: int) -> Claim:
    mean, n = float(x.mean()), len(x)
    low, high = law.range_of_loss()
    words: Any = {
        "objective": "mean log-density of a row, in nats; no row has a loss beyond "
        f"{high:.4g}"
    }
    if old:
        where = "rows held out, by which it was chosen" if held else "rows"
        told = f"{mean:.4g} nats for each of {n:,} {where}; certify on new rows"
        return bd.measured("mean_log_density", mean, told, **words)
    wide = high - low
    variance = float(np.var(x / wide, ddof=1)) if n > 1 else 0.25
    half = wide * _half(n, variance)
    ends = max(-high, mean - half), min(-low, mean + half)
    return Claim(
        *("mean_log_density", Strength.STATISTICAL, ends[0], None, True),
        theorem="empirical Bernstein for a mean of bounded numbers (few rows: "
        "Hoeffding); the bound follows from the least probability of a cell",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"between {outwards(ends[0], up=False, digits=4):.4g} and "
        f"{outwards(ends[1], up=True, digits=4):.4g} nats for each new row",
        **words,
    )


def _gain_claim(gains: list[Array], old: bool) -> Claim:
    d = np.clip(np.concatenate(gains), -CLIP, CLIP)
    mean, n = float(d.mean()), len(d)
    words: Any = {
        "objective": "mean of log p(x) − that of the tables it started from, each "
        f"clipped to ±{CLIP:g} nats"
    }
    if old:
        return bd.measured(
            "gain", mean, f"{mean:+.3g} nats more than its tree", **words
        )
    variance = float(np.var(d / (2 * CLIP), ddof=1)) if n > 1 else 0.25
    half = 2 * CLIP * _half(n, variance)
    low, high = max(-CLIP, mean - half), min(CLIP, mean + half)
    return Claim(
        *("gain", Strength.STATISTICAL, low, None, True),
        theorem="empirical Bernstein for the mean of paired differences (few rows: "
        "Hoeffding)",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"between {outwards(low, up=False):+.3g} and "
        f"{outwards(high, up=True):+.3g} nats more than its tree for each new row",
        **words,
    )


def _stated_claim(model: Any, x: Array, lost: Array) -> Claim:
    mean, said = math.fsum(x.tolist()) / len(x), float(model.validation_score_)
    size = 1.0 + abs(mean)
    off = abs(mean - said) / size if math.isfinite(mean - said) else math.inf
    rounding = float(lost.mean()) + gamma(len(x) + 4) * float(np.abs(x).mean())
    return bd.proved(
        *("stated_score", Number(off, rounding / size), SAME),
        f"the held-out rows have the stated mean log-density, {said:.4g}",
        missed=f"held-out rows have a mean log-density of {mean:.4g}, not {said:.4g}",
        objective="|validation_score_ − mean log p of the held-out rows|, as a share "
        "of 1 + |mean|",
        theorem="computed again from the weights, with a bound on rounding errors",
        fix=FIX,
    )
