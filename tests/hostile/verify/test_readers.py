"""The readers of the solvers' side beside the verifier's, on hostile input.

Both are written by hand on purpose: they give the same numbers, or both raise a
``ValueError``. Only the adapters below know where the verifier keeps its own.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from certus._core import rows
from certus.verify.kernel import reading

Array = np.ndarray

CLASSES = [
    np.array([0, 1, 2]),
    np.array([-3, 5], dtype=np.int8),
    np.array([False, True]),
    np.array([0.0, 1.0]),
    np.array([0.5, 2.5, 1e300]),
    np.array(["1", "2", "a"]),
    np.array(["no", "yes"], dtype=object),
    np.array([1, 2, 3], dtype=np.uint64),
]
ODD = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308, 1e-308, 5e-324, 1.0, 0.5, 3]
LABELS = [0, 1, 2, -3, 5, True, False, 0.0, 0.5, 1e300, "1", "a", "no", "yes", None]
LABELS += [np.nan, b"a", (1,), "x" * 40, 2**63, -(2**63)]


# -- the verifier's ---------------------------------------------------------------


class Kernel:
    """Of the kernel."""

    codes, targets, coef = reading.codes, reading.numbers, reading.plain

    @staticmethod
    def weights(sample_weight: Any, n: int) -> Array:
        found = reading.weights(sample_weight, n)  # s·2^power
        return np.ldexp(found.s, found.power)

    @staticmethod
    def class_weights(rule: Any, s: Array, codes: Array, classes: Array) -> Array:
        held = reading.weights(s, len(s))
        return reading.class_weights(rule, held, codes, classes, "weights")


VERIFIER: list[Any] = [Kernel]


# -- the solvers' -----------------------------------------------------------------


def solvers_class_weights(rule: Any, s: Array, codes: Array, classes: Array) -> Array:
    return rows.class_weights(rule, codes, classes, s)


def outcome(reader: Callable[..., Array], *given: Any) -> Any:
    """What a reader gives, or "refused" for a ValueError; others are let through."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(reader(*given))
    except ValueError:
        return "refused"


def assert_alike(one: Any, other: Any) -> None:
    if isinstance(one, str) or isinstance(other, str):
        assert isinstance(one, str) and isinstance(other, str), (one, other)
    else:
        assert one.shape == other.shape
        # Beside the largest the smallest may vanish: the kernel scales by powers of 2.
        lost = np.finfo(float).tiny * np.abs(one).max(initial=0.0)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=lost)


def assert_agreed(reader: Callable[..., Array], name: str, *given: Any) -> None:
    """What a reader of the solvers' side gives is what the verifier's give."""
    found = outcome(reader, *given)
    for side in VERIFIER:
        assert_alike(found, outcome(getattr(side, name), *given))


# -- comparisons ------------------------------------------------------------------

forms = st.sampled_from([list, np.array, lambda v: np.array(v, dtype=object)])


@given(st.lists(st.sampled_from(ODD), max_size=6), forms, st.integers(1, 6))
@example([1e308] * 4, np.array, 4)
@example([0.0, 0.0], np.array, 2)
def test_row_weights(values: list[Any], form: Any, n: int) -> None:
    held = form(values)
    assert_agreed(rows.row_weights, "weights", held, n)


@pytest.mark.parametrize(
    "held",
    [
        None,
        2.0,
        np.nan,
        0,
        True,
        np.ones((3, 1)),
        np.ones((1, 3)),
        [True, False, True],
        np.array([1, 2, 3], dtype=np.uint8),
        np.array([-1, 2, 3], dtype=np.int8),
        np.array([1, 2, 3], dtype=np.float32),
        ["1", "2", "3"],
        ["a", "b", "c"],
        [[1.0], [2.0, 3.0], [1.0]],
    ],
    ids=repr,
)
def test_row_weights_of_other_forms(held: Any) -> None:
    assert_agreed(rows.row_weights, "weights", held, 3)


@given(st.data())
def test_weights_by_label(drawn: st.DataObject) -> None:
    classes = drawn.draw(st.sampled_from(CLASSES))
    own = [*classes.tolist(), *map(str, classes.tolist()), *classes]
    keys = st.sampled_from([*own, *(label for label in LABELS if label == label)])
    rule = drawn.draw(st.dictionaries(keys, st.sampled_from([1.0, 0.5, 3, *ODD])))
    held = (rule, np.ones(len(classes)), np.arange(len(classes)), classes)
    assert_agreed(solvers_class_weights, "class_weights", *held)


@pytest.mark.parametrize(
    "classes, rule, found",
    [
        ([0.0, 1.0], {0: 2.0, 1: 3.0}, [2.0, 3.0]),  # as in scikit-learn
        ([0, 1], {"0": 2.0}, [2.0, 1.0]),  # a model file writes keys as text
        ([0, 1], {0: 2.0, 1: 3.0, 7: 1.0}, [2.0, 3.0]),  # all classes are named
        ([0, 1], {0: 2.0, 7: 1.0}, None),
        (["1", "2"], {1: 5.0, 2: 1.0}, None),  # numbers are not these labels
        ([0, 1], {0: "much"}, None),
        ([0, 1], {0: None}, None),
        ([0, 1], {0: -1.0}, None),
        ([0, 1], [1.0, 2.0], None),
        ([0, 1], "even", None),
    ],
)
def test_what_a_dict_means(classes: list[Any], rule: Any, found: Any) -> None:
    held = (rule, np.ones(2), np.array([0, 1]), np.array(classes))
    expected = "refused" if found is None else np.array(found)
    assert_alike(outcome(solvers_class_weights, *held), expected)
    assert_agreed(solvers_class_weights, "class_weights", *held)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ODD[3:])), min_size=1))
@example([(0, 1e300), (1, 1e300), (1, 0.5)])
def test_balanced_weights_also_of_absent_classes(
    pairs: list[tuple[int, float]],
) -> None:
    codes = np.array([code for code, _ in pairs])
    s = np.abs(np.array([weight for _, weight in pairs], dtype=float))
    s = np.minimum(s, 1e300 / len(s))
    if s.sum() == 0 or s[s > 0].min() < 1e-300:
        s = s + 1.0
    held = ("balanced", s, codes, np.arange(4))
    assert_agreed(solvers_class_weights, "class_weights", *held)


@given(st.sampled_from(CLASSES), st.lists(st.sampled_from(LABELS), min_size=1), forms)
def test_labels(classes: Array, labels: list[Any], form: Any) -> None:
    try:
        y = form(labels)
        np.asarray(y)
    except ValueError:  # ragged
        return
    assert_agreed(rows.known_codes, "codes", y, classes)


@pytest.mark.parametrize("classes", CLASSES, ids=repr)
def test_labels_that_are_known(classes: Array) -> None:
    places = np.random.default_rng(0).integers(0, len(classes), 2_000)
    for y in (classes[places], classes[places].tolist(), classes[places][:, None]):
        np.testing.assert_array_equal(rows.known_codes(y, classes), places)
        assert_agreed(rows.known_codes, "codes", y, classes)


@pytest.mark.parametrize("y", [3, None, np.ones((2, 2)), np.ones((2, 1, 1))], ids=repr)
def test_labels_of_the_wrong_shape(y: Any) -> None:
    with pytest.raises(ValueError, match="y has shape"):
        rows.known_codes(y, np.array([0, 1]))
    assert_agreed(rows.known_codes, "codes", y, np.array([0, 1]))


@given(
    st.lists(st.sampled_from([*ODD, None, "1.5", "b", True, 2**70]), max_size=5), forms
)
@example([1e-200, 0.0], np.array)
def test_numeric_targets(values: list[Any], form: Any) -> None:
    y = form(values)
    for n in (len(values), len(values) + 1):
        assert_agreed(rows.numeric_targets, "targets", y, n)


@pytest.mark.parametrize(
    "coef",
    [
        [1.0, 2.0],
        np.ones((2, 3), dtype=np.float32),
        np.array([1, 2], dtype=np.int8),
        sparse.csr_array([[0.0, 1.0]]),
        np.array([1j]),
        np.array(["a"]),
        np.array([None]),
    ],
    ids=repr,
)
def test_coefficients(coef: Any) -> None:
    assert_agreed(rows.dense_coef, "coef", coef)
