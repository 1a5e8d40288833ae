"""Blocks computed twice: equal tags by their bits, others within an allowance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import certus
from certus.certificate import Status
from certus.linear_model import Ridge
from certus.scale import blocks
from certus.verify import recomputed


def table() -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    return blocks(X, X @ [1.0, 2.0, 3.0] + rng.normal(size=900), rows=30)


class Elsewhere:
    """An engine whose last blocks come from a machine with other libraries."""

    def __init__(self, change: dict[str, str], moved: float, last: int = 15) -> None:
        self.change, self.moved, self.last = change, moved, last

    def run(self, blocks: Any, work: Any, state: Any) -> Any:
        for i, key in enumerate(blocks.keys):
            found = work(blocks.read(key), *state)
            if work is recomputed.tagged and i >= len(blocks.keys) - self.last:
                tag, part = found
                tag = tuple((name, self.change.get(name, value)) for name, value in tag)
                found = tag, _moved(part, 1 + self.moved)
            yield found


def _moved(part: Any, factor: float) -> Any:
    """The sums with each number of an array changed by a share of itself."""
    if isinstance(part, np.ndarray) and part.dtype.kind == "f":
        return part * factor
    if isinstance(part, tuple):
        each = [_moved(one, factor) for one in part]
        return type(part)(*each) if hasattr(part, "_fields") else tuple(each)
    return part


def judged(change: dict[str, str], moved: float, last: int = 15) -> tuple[Any, Any]:
    with (
        certus.config_context(engine=Elsewhere(change, moved, last)),
        certus.config_context(on_uncertified="ignore"),
    ):
        certificate = Ridge().fit(table()).certificate_
    return certificate, certificate["workers_agree"]


def test_equal_tags_must_give_equal_bits() -> None:
    certificate, claim = judged({}, 0.0)
    assert claim.met and claim.value == claim.target == 0.0
    assert claim.detail.endswith("computed again here: the same bits")
    certificate, claim = judged({}, 1e-14)  # far below what rounding may change
    assert certificate.status is Status.REFUTED and claim.met is False
    assert "the same versions and BLAS kernels, so the bits must be equal" in (
        claim.detail
    )


@pytest.mark.parametrize("name", ["numpy", "scipy", "certus", "BLAS kernels"])
def test_other_tags_may_differ_by_the_allowance(name: str) -> None:
    certificate, claim = judged({name: "0.9"}, 1e-14)
    assert certificate.status is Status.SOLVED and claim.met
    assert 0 < claim.value < 1e-12 and claim.target == 1e-6
    here = dict(recomputed.tag_here())[name]
    assert f"{name} 0.9 there and {here} here (15 blocks)" in claim.detail
    certificate, claim = judged({name: "0.9"}, 1e-3)
    assert certificate.status is Status.REFUTED and claim.met is False
    assert "1e-06 is allowed" in claim.detail and f"{name} 0.9 there" in claim.detail


def test_equal_bits_by_other_libraries_name_them() -> None:
    _, claim = judged({"numpy": "0.9"}, 0.0)
    assert claim.met and "the same bits, with numpy 0.9 there" in claim.detail


def test_a_block_of_each_kind_of_process_is_computed_again() -> None:
    """One in a hundred is the 15th of 30; the last block alone has another tag."""
    _, claim = judged({"BLAS threads": "8"}, 1e-3, last=1)
    assert claim.met is False and "2 of 30 blocks" in claim.detail


def test_a_tag_names_what_the_bits_depend_on() -> None:
    found = dict(recomputed.tag_here())
    assert list(found) == ["numpy", "scipy", "certus", "BLAS kernels", "BLAS threads"]
    assert found["numpy"] == np.__version__ and all(found.values())


def test_sums_of_nan_agree_if_their_bits_do() -> None:
    again = recomputed.RecomputedBlocks()
    tag, part = recomputed.tag_here(), (np.array([np.nan, 1.0]), -0.0)
    again.see((tag, part), (tag, part))
    assert again.alike and again.wrong == 0.0
    again.see((tag, part), (tag, (np.array([np.nan, 1.0]), 0.0)))
    assert not again.alike and again.wrong > 0
    again.see((tag, part), (tag, (np.array([np.nan]), 0.0)))
    assert again.wrong == np.inf
