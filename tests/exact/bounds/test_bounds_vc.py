"""Labellings, shattering and the VC bound, against enumeration and linear programmes.

The counts of ``certus.bounds`` are made by exact integer recursion. Here they meet a
linear programme per labelling, lists of all classifiers, and Cover's closed form.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from certus.bounds import (
    cover_count,
    growth_function,
    hoeffding,
    labelling_count,
    sauer_bound,
    shattered,
    shattering_coefficient,
    vc_bound,
    vc_dimension,
)


def separable(X: np.ndarray, y: np.ndarray, affine: bool) -> bool:
    """Whether y(w·x + b) ≥ 1 has a solution."""
    A = np.column_stack([X, np.ones(len(X))]) if affine else X
    found = linprog(
        np.zeros(A.shape[1]), -y[:, None] * A, -np.ones(len(A)), bounds=(None, None)
    )
    return found.status == 0


def by_programmes(X: np.ndarray, affine: bool) -> int:
    signs = product((-1.0, 1.0), repeat=len(X))
    return sum(separable(X, np.array(y), affine) for y in signs)


points = st.integers(1, 3).flatmap(
    lambda d: st.lists(
        st.tuples(*[st.integers(-2, 2)] * d), min_size=1, max_size=5
    ).map(np.array)
)


# -- labellings of given points -------------------------------------------------------


@pytest.mark.catalog("THY-01", "THY-05")
@settings(max_examples=25)
@given(points, st.booleans())
def test_the_count_is_that_of_the_linear_programmes(X, affine):
    """Integer points, so duplicates, collinear ones and the origin are common."""
    assert labelling_count(X, affine) == by_programmes(X, affine)


@pytest.mark.catalog("THY-02", "THY-07")
@given(points, st.booleans())
def test_shattered_means_every_labelling(X, affine):
    assert shattered(X, affine) == (labelling_count(X, affine) == 2 ** len(X))


@pytest.mark.catalog("THY-05")
@pytest.mark.parametrize(
    ("affine", "d", "counts"),
    [
        (False, 2, [2, 4, 6, 8, 10]),
        (True, 1, [2, 4, 6, 8, 10]),
        (True, 2, [2, 4, 8, 14, 22, 32]),
        (False, 3, [2, 4, 8, 14, 22, 32]),
        (True, 3, [2, 4, 8, 16, 30, 52, 84]),
    ],
)
def test_in_general_position_the_count_is_covers(affine, d, counts):
    rng = np.random.default_rng(d)
    for s, count in enumerate(counts, 1):
        X = rng.normal(size=(s, d))
        assert labelling_count(X, affine) == count == cover_count(s, d + affine)


@pytest.mark.catalog("THY-05", "THY-06")
def test_many_points_in_general_position():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    assert labelling_count(X) == cover_count(60, 3) == 2 + 59 * 60
    # the recurrence: a further point adds the count of one dimension less
    grown = labelling_count(np.vstack([X, rng.normal(size=2)]))
    assert grown - labelling_count(X) == cover_count(60, 2)


@pytest.mark.catalog("THY-07")
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_as_many_points_as_dimensions_are_shattered_and_no_more(n):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(2 * n, n))
    assert shattered(X[:n], affine=False)
    assert not shattered(X[: n + 1], affine=False)
    assert shattered(X[: n + 1]) and not shattered(rng.normal(size=(n + 2, n)))
    if n <= 5:  # of twice as many points exactly half the labellings
        assert labelling_count(X, affine=False) == 2 ** (2 * n - 1)


def test_degenerate_points():
    line = np.outer(np.arange(7), [3, -1, 2])
    assert labelling_count(line) == 14 and not shattered(line[:3])
    twice = np.array([[0.5, 1.0], [0.5, 1.0], [2.0, 3.0]])
    assert labelling_count(twice) == 4 and not shattered(twice)
    grid = np.array(list(product(range(3), repeat=2)))
    assert labelling_count(grid) == 58  # cuts of a 3 × 3 grid by a line: 29
    assert labelling_count(list(product(range(4), repeat=2))) == 174
    assert labelling_count([[0.0, 0.0], [1.0, 2.0]], affine=False) == 0
    assert not shattered([[0.0, 0.0]], affine=False) and shattered([[0.0, 0.0]])
    assert labelling_count([[1.0, 2.0], [-2.0, -4.0]], affine=False) == 2


def test_one_unit_in_the_last_place_decides():
    """A rank by singular values calls all three of these collinear."""
    up = np.nextafter(2.0, 3.0)
    assert not shattered([[0, 0], [1, 1], [2, 2]])
    assert shattered([[0, 0], [1, 1], [2, up]])
    assert shattered([[0, 0], [1e-300, 1e-300], [1e300, np.nextafter(1e300, 0)]])
    assert labelling_count([[0, 0], [1, 1], [2, 2]]) == 6
    assert labelling_count([[0, 0], [1, 1], [2, up]]) == 8
    # 3·0.1 is not 0.3 in binary: these three are not on a line, and it is decided so
    assert shattered([[0, 0], [0.1, 1], [0.3, 3]])


@pytest.mark.parametrize("scale", [1.0, 2.0**-700, 2.0**600])
def test_scaling_changes_nothing(scale):
    X = np.array([[1, 2], [3, 4], [5, 6], [0, 1], [7, 7]])
    assert labelling_count(X * scale) == labelling_count(X)
    assert labelling_count(X.astype(np.float32)) == labelling_count(X)


# -- growth functions and dimensions --------------------------------------------------


def all_thresholds(m: int) -> np.ndarray:
    """{x ≥ t} on the points 1 … m, for every t that matters."""
    x = np.arange(1, m + 1)
    return np.array([x >= t for t in np.arange(m + 1) + 0.5])


def all_intervals(m: int) -> np.ndarray:
    x, ends = np.arange(1, m + 1), np.arange(m + 1) + 0.5
    return np.array([(x > a) & (x < b) for a in ends for b in ends if a <= b])


def all_half_planes(X: np.ndarray, affine: bool) -> np.ndarray:
    """Every labelling of small integer points, by small integer normals."""
    w = np.array(list(product(range(-5, 6), repeat=X.shape[1])))
    b = np.arange(-12, 12) + 0.5 if affine else np.zeros(1)
    scores = ((w @ X.T)[:, None, :] + b[None, :, None]).reshape(-1, len(X))
    return np.unique(scores[(scores != 0).all(axis=1)] > 0, axis=0)


@pytest.mark.catalog("THY-01")
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_growth_of_thresholds_and_intervals_by_enumeration(n):
    for family, table in (
        ("thresholds", all_thresholds(6)),
        ("intervals", all_intervals(6)),
    ):
        assert growth_function(family, n) == shattering_coefficient(table, n)


@pytest.mark.catalog("THY-01")
@pytest.mark.parametrize("affine", [True, False])
def test_growth_of_half_planes_by_enumeration(affine):
    """The supremum over point sets: reached in general position, never exceeded."""
    family = "half-spaces" if affine else "homogeneous half-spaces"
    grid = np.array([p for p in product(range(-1, 2), repeat=2) if p != (0, 0)])
    table = all_half_planes(grid, affine)
    assert len(table) == labelling_count(grid, affine)  # none was missed
    for n in (1, 2, 3, 4):
        most = growth_function(family, n, 2)
        assert shattering_coefficient(table, n) == most
        sets = combinations(range(len(grid)), n)
        assert max(labelling_count(grid[list(c)], affine) for c in sets) == most


@pytest.mark.catalog("THY-02")
def test_dimensions_by_exhaustive_search():
    assert vc_dimension(all_thresholds(8)) == 1
    assert vc_dimension(all_intervals(8)) == 2
    plane = np.array(list(product(range(3), repeat=2)))
    assert vc_dimension(all_half_planes(plane, affine=True)) == 3
    assert vc_dimension(all_half_planes(plane[1:], affine=False)) == 2
    line = np.arange(1, 6)[:, None]
    assert vc_dimension(all_half_planes(line, affine=True)) == 2
    assert vc_dimension(all_half_planes(line, affine=False)) == 1


@pytest.mark.catalog("THY-02")
@pytest.mark.parametrize("affine", [True, False])
def test_the_dimension_of_half_spaces_in_space(affine):
    """Every set of points of a cube's corners: some 3 (4) are shattered, no 4 (5)."""
    corners = np.array(list(product((0, 1), repeat=3)))[0 if affine else 1 :]
    size = 3 + affine
    sets = combinations(range(len(corners)), size)
    found = [shattered(corners[list(c)], affine) for c in sets]
    assert any(found) and not all(found)  # a face of the cube has four in a plane
    for c in combinations(range(len(corners)), size + 1):
        assert not shattered(corners[list(c)], affine)


@pytest.mark.catalog("THY-02", "THY-01")
@pytest.mark.parametrize(
    ("family", "d", "dimension"),
    [
        ("thresholds", 1, 1),
        ("intervals", 1, 2),
        ("half-spaces", 1, 2),
        ("half-spaces", 5, 6),
        ("homogeneous half-spaces", 5, 5),
    ],
)
def test_the_dimension_is_where_growth_leaves_all_labellings(family, d, dimension):
    full = [n for n in range(1, 12) if growth_function(family, n, d) == 2**n]
    assert max(full) == dimension
    for n in range(1, 40):
        assert growth_function(family, n, d) <= min(2**n, sauer_bound(n, dimension))


tables = st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**32)).map(
    lambda a: np.random.default_rng(a[2]).integers(0, 2, size=a[:2])
)


@pytest.mark.catalog("THY-03")
@given(tables)
def test_a_finite_class_has_at_most_the_logarithm_of_its_size(table):
    """And Sauer's lemma holds for every number of points."""
    d = vc_dimension(table)
    distinct = len({tuple(row) for row in table.tolist()})
    assert d <= math.log2(distinct)
    naive = [
        n
        for n in range(1, table.shape[1] + 1)
        for c in combinations(range(table.shape[1]), n)
        if len({tuple(row) for row in table[:, c].tolist()}) == 2**n
    ]
    assert d == max(naive, default=0)
    for n in range(1, table.shape[1] + 1):
        assert shattering_coefficient(table, n) <= min(sauer_bound(n, d), distinct)


@pytest.mark.catalog("THY-03")
def test_all_labellings_reach_the_logarithm():
    assert vc_dimension(np.array(list(product((-1, 1), repeat=4)))) == 4
    assert vc_dimension(np.zeros((3, 4))) == 0


@given(st.integers(1, 60), st.integers(0, 60))
def test_sauer_counts_the_subsets_of_at_most_that_many(n, d):
    assert sauer_bound(n, d) == sum(math.comb(n, i) for i in range(d + 1))
    assert sauer_bound(n, n) == 2**n
    if 1 <= d <= n:
        assert sauer_bound(n, d) <= (math.e * n / d) ** d * (1 + 1e-12)


# -- the bound ------------------------------------------------------------------------


@pytest.mark.catalog("THY-04")
@given(st.integers(1, 10**6), st.floats(1e-9, 0.99), st.integers(1, 10**30))
def test_the_bound_by_its_formula(n, delta, growth):
    expected = 2 * math.sqrt(2 * (math.log(growth) + math.log(2 / delta)) / n)
    assert vc_bound(n, delta, growth=growth) == pytest.approx(expected, rel=1e-13)


@pytest.mark.catalog("THY-04")
def test_textbook_value_and_sauer():
    # thresholds, n = 1000: 2·√(2·(ln 2001 + ln 40)/1000)
    assert vc_bound(1000, 0.05, growth=2001) == pytest.approx(0.3005, abs=5e-5)
    assert vc_bound(1000, 0.05, dimension=1) == vc_bound(1000, 0.05, growth=2001)
    many = vc_bound(5000, 0.05, dimension=4000)  # numbers beyond any float
    assert many == pytest.approx(
        2 * math.sqrt(2 * (math.log(sauer_bound(10_000, 4000)) + math.log(40)) / 5000)
    )


@pytest.mark.catalog("SEL-11")
@given(st.integers(1, 10**6), st.floats(1e-9, 0.99), st.integers(1, 10**6))
def test_a_constant_growth_function_gives_the_finite_bound(n, delta, models):
    """2√(2·ln(2K/δ)/n) is Hoeffding's union bound, four times as wide."""
    finite = hoeffding(n, delta, models=models)
    assert vc_bound(n, delta, growth=models) == pytest.approx(4 * finite, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: shattered([1, 2, 3]), "points × coordinates"),
        (lambda: shattered(np.empty((0, 2))), "points × coordinates"),
        (lambda: labelling_count([[np.nan, 1]]), "NaN"),
        (lambda: labelling_count([[np.inf, 1]]), "infinity"),
        (lambda: growth_function("circles", 3), "half-spaces"),
        (lambda: growth_function("intervals", 3, 2), "on a line"),
        (lambda: growth_function("thresholds", 0), "n must be at least 1, got 0"),
        (lambda: shattering_coefficient(np.eye(3), 4), "3 points"),
        (lambda: vc_dimension([[0, 1, 2]]), "got 3"),
        (lambda: vc_dimension([0, 1]), "classifiers × points"),
        (lambda: vc_bound(10), "either growth"),
        (lambda: vc_bound(10, growth=3, dimension=2), "either growth"),
        (lambda: vc_bound(10, growth=0), "growth must be at least 1, got 0"),
        (lambda: vc_bound(10, 2.0, growth=3), "delta"),
    ],
)
def test_nonsense_is_refused_with_a_clear_message(call, words):
    with pytest.raises(ValueError, match=words):
        call()
