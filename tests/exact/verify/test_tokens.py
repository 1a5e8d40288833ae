"""Claims about tokenisers: true ones hold, planted faults are found."""

from __future__ import annotations

import itertools

import pytest

import certus
from certus.certificate import Status, Strength
from certus.language import BPETokenizer, ByteTokenizer

TEXT = "low lower lowest, slow slower; new newer newest. It's 1999!\n" * 4


def fitted() -> BPETokenizer:
    return BPETokenizer(300, special_tokens=["<|end|>"]).fit(TEXT)


def of_ranks(*words: bytes) -> BPETokenizer:
    tokens = [bytes([b]) for b in range(256)] + list(words)
    return BPETokenizer.from_tiktoken(
        {token: i for i, token in enumerate(tokens)}, pattern="gpt2"
    )


def test_a_fit_proves_that_texts_come_back() -> None:
    model = fitted()
    claim = model.certificate_["roundtrip"]
    assert claim.strength is Strength.PROVED and claim.met and claim.value == 0
    assert model.certificate_["unreachable_tokens"].value == 0
    assert certus.certify(ByteTokenizer(["<|end|>"])).met


def test_texts_are_encoded_when_they_are_given(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"caf\xc3\xa9 \xff\x00")
    for texts in (TEXT, [TEXT, b"\xff\0"], path):
        found = certus.certify(fitted(), texts)["text_restored"]
        assert found.met and found.strength is Strength.PROVED


def test_a_merge_that_changes_bytes_is_found() -> None:
    model = fitted()
    model.merges_ = model.merges_.copy()
    model.merges_[3, 2] = model.merges_[4, 2]
    found = certus.certify(model)
    assert found.met is False and found.status is Status.REFUTED


def test_a_token_with_other_bytes_is_found() -> None:
    model = fitted()
    model.tokens_ = [*model.tokens_]
    model.tokens_[270] += b"x"
    assert certus.certify(model).met is False


def test_a_byte_without_a_token_is_found() -> None:
    model = fitted()
    model.tokens_ = [*model.tokens_]
    model.tokens_[7] = b"seven"
    found = certus.certify(model)
    assert found.met is False and "1 bytes have no token" in found["roundtrip"].detail


def test_a_text_that_does_not_come_back_is_found(monkeypatch) -> None:
    """A fault in compiled code, which no merge shows."""
    model, encode = fitted(), BPETokenizer._plain
    monkeypatch.setattr(BPETokenizer, "_plain", lambda self, b: encode(self, b)[:-1])
    assert certus.certify(model).met is False
    assert certus.certify(model, TEXT)["text_restored"].met is False


@pytest.mark.parametrize(
    "change",
    [
        {"special_": {"<|end|>": 0}},
        {"special_": {"<|end|>": 10**6}},
        {"tokens_": ["a"]},
        {"merges_": [[0, 1]]},
        {"merges_": [[0.5, 1, 2]]},
        {"merges_": [[0, 1, 10**6]]},
    ],
)
def test_a_forged_vocabulary_is_refused(change) -> None:
    model = fitted()
    vars(model).update(change)
    with pytest.raises(ValueError, match="changed after its fit"):
        certus.certify(model)


def test_another_way_of_encoding_is_not_judged() -> None:
    class Lower(BPETokenizer):
        def encode(self, text, *, special=False):
            return super().encode(text.lower(), special=special)

    found = certus.certify(Lower(300).fit(TEXT))
    assert found.claims[0].strength is Strength.REFUSED
    assert "overrides encode" in found.claims[0].detail


@pytest.mark.parametrize(
    "words",
    [
        [b"ab", b"abc"],
        [b"bc", b"ab", b"abc"],
        [b"abc"],
        [b"aa", b"aaa", b"aaaa", b"aaaaa"],
        [b"ba", b"ab", b"aba", b"abab", b"bab"],
    ],
)
def test_unreachable_tokens_are_those_that_no_string_has(words) -> None:
    """All strings of up to seven letters are encoded, and their tokens collected."""
    model = of_ranks(*words)
    model.whole_pieces_ = False
    seen = {
        int(i)
        for n in range(1, 8)
        for letters in itertools.product(b"abc", repeat=n)
        for i in model.encode(bytes(letters))
    }
    never = [i for i in range(256, model.n_tokens) if i not in seen]
    claim = certus.certify(model)["unreachable_tokens"]
    assert claim.value == len(never) and claim.strength is Strength.PROVED
    for i in never:
        assert repr(model.tokens[i]) in claim.detail


def test_large_vocabularies_are_searched_at_level_full() -> None:
    words = [
        bytes([65 + i // 676, 65 + i // 26 % 26, 65 + i % 26]) for i in range(17000)
    ]
    model = of_ranks(*words)
    assert "unreachable_tokens" not in certus.certify(model)
    claim = certus.certify(model, level="full")["unreachable_tokens"]
    assert claim.value == 17000 and "except as a whole piece" in claim.detail
