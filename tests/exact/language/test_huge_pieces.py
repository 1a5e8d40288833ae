"""Text of one huge word, learnt and encoded as the definition says."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import certus
from certus.language import BPETokenizer
from certus.language.tokens.bpe_encoding_kernels import HUGE
from helpers import tokenising

N = HUGE + 1_001


def letters(alphabet: str, n: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=n))


def merges_of(model: BPETokenizer) -> dict[tuple[int, int], tuple[int, int]]:
    return {(a, b): (r, c) for r, (a, b, c) in enumerate(model.merges_.tolist())}


def in_any_order(alphabet: str, longest: int, seed: int) -> BPETokenizer:
    """All words of some letters are tokens, made in every way, in a random order.

    So a merge often makes a pair with a lower rank than its own.
    """
    contents = BPETokenizer(256).fit("a").to_tokenizers()
    words = list(alphabet)
    for _ in range(longest - 1):
        words += [w + x for w in words for x in alphabet if w + x not in words]
    words = [w for w in dict.fromkeys(words) if 1 < len(w) <= longest]
    contents["model"]["vocab"] |= {w: 256 + i for i, w in enumerate(words)}
    merges = [[w[:k], w[k:]] for w in words for k in range(1, len(w))]
    random.Random(seed).shuffle(merges)
    contents["model"]["merges"] = merges
    return BPETokenizer.from_tokenizers(contents)


def test_the_two_definitions_of_merging_agree() -> None:
    """Companion: the quick reference is the slow one."""
    for seed in range(20):
        model = in_any_order("ab", 4, seed)
        text = letters("ab", 200, seed).encode()
        found = tokenising.join_long(text, merges_of(model))
        assert found == tokenising.join(text, merges_of(model))


@pytest.mark.parametrize("alphabet", ["a", "ab", "abcdefghijklmnopqrstuvwxyz"])
def test_a_huge_piece_is_merged_lowest_rank_first(alphabet: str) -> None:
    text = letters(alphabet, N)
    model = BPETokenizer(700).fit(text)
    wanted = tokenising.join_long(text.encode(), merges_of(model))
    assert model.encode(text).tolist() == wanted
    beside = model.encode("a " + text + " a").tolist()
    spaced = tokenising.join_long(b" " + text.encode(), merges_of(model))
    assert beside == [ord("a"), *spaced, *model.encode(" a").tolist()]


@pytest.mark.parametrize("seed", range(3))
def test_merges_of_any_order_are_applied_by_rank(seed: int) -> None:
    model = in_any_order("ab", 5, seed)
    text = letters("ab", N, seed)
    wanted = tokenising.join_long(text.encode(), merges_of(model))
    assert model.encode(text).tolist() == wanted


@pytest.mark.parametrize("alphabet", ["a", "ab", "abc", "aaaab"])
def test_one_word_is_learnt_as_the_definition_says(alphabet: str) -> None:
    for seed in range(4):
        text = letters(alphabet, 500, seed)
        found = BPETokenizer(256 + 60).fit(text).merges_.tolist()
        wanted = tokenising.learn_pieces({text.encode(): 1}, 60)
        assert list(map(tuple, found)) == wanted


def test_no_token_is_made_twice() -> None:
    """Learning relies on it; the reference looks for bytes that are a token already."""
    for seed in range(60):
        rng = random.Random(seed)
        words = ["".join(rng.choices("aab", k=rng.randrange(2, 12))) for _ in range(40)]
        pieces = {w.encode(): rng.randrange(1, 6) for w in dict.fromkeys(words)}
        texts = [w.decode() for w, often in pieces.items() for _ in range(often)]
        wanted = tokenising.learn_pieces(pieces, 40)
        assert [made for *_, made in wanted] == [*range(256, 256 + len(wanted))]
        model = BPETokenizer(256 + 40).fit(texts)
        assert list(map(tuple, model.merges_.tolist())) == wanted, seed


def test_huge_tokens_are_saved_beside_the_header(tmp_path: Path) -> None:
    model = BPETokenizer(280).fit(b"a" * 200_000)
    assert max(map(len, model.tokens_)) > 60_000
    path = model.save(tmp_path / "a.certus")
    assert path.stat().st_size < 2 * sum(map(len, model.tokens_))
    back = certus.load(path)
    assert back.tokens_ == model.tokens_ and certus.certify(back).met


_HUGE = """
import sys, resource
import numpy as np
from certus.language import BPETokenizer
n = 100_000_000
if sys.argv[1] == "a":
    data = b"a" * n
else:
    data = np.random.default_rng(0).integers(97, 123, n).astype(np.uint8).tobytes()
model = BPETokenizer().fit(data)
ids = model.encode(data)
assert model.decode_bytes(ids) == data
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in kilobytes")
@pytest.mark.parametrize("kind", ["a", "letters"])
def test_100_megabytes_of_one_word(kind: str) -> None:
    """Learnt, encoded and decoded within a few minutes; 2.1 to 2.3 GB were measured."""
    done = subprocess.run(
        [sys.executable, "-c", _HUGE, kind],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2_600_000  # of 1,024 bytes
