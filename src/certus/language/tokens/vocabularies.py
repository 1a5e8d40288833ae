r"""Vocabularies of other libraries: ``tokenizer.json``, and the ranks of tiktoken.

Hugging Face lists tokens and merges; a byte is written as a printable character. In
tiktoken each pair of neighbours whose bytes are a token may be joined, the token with
the smallest rank first. Both give the same tokens if each token has one merge, the last
step of tiktoken's own way from its bytes to it:

    In any text, the steps inside of the bytes of a token t, until t is made, are those
    that its bytes alone would take, as no step crosses their ends. So t is always made
    from the same two tokens. Leaving out all other pairs changes no step.

A token that its own bytes do not lead to is never made by a merge. tiktoken still takes
it for a piece that has exactly its bytes; so do tokenisers with ``whole_pieces_``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certus.persist.container import write_atomically
from certus.typing import Array

#: How each rule is written for libraries with regular expressions; see the rules in
#: :mod:`certus.language.tokens.splitting_kernels`.
REGEX = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|"
    r"\s+(?!\S)|\s+",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k_end": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
}
#: Other ways in which the same rules are written.
_ALSO = {
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "cl100k_end",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|"
    r"\s++$|\s+(?!\S)|\s": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|"
    r"\s+(?!\S)|\s+": "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|"
    r"\s+(?!\S)|\s+": "gpt2",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+": "cl100k",
}
#: Longest token, and largest file, that are read.
LONGEST, LARGEST = 4096, 1 << 30


class TokenTable(NamedTuple):
    """All that a tokeniser knows after its fit."""

    tokens: list[bytes]
    merges: Array
    special: Mapping[str, int]
    pattern: str
    whole_pieces: bool = False


def pattern_of(given: Any) -> str:
    """The name of a rule that is given by its name or its regular expression."""
    known = {name: name for name in REGEX} | _ALSO
    known |= {regex: name for name, regex in REGEX.items()}
    if not isinstance(given, str) or given not in known:
        raise ValueError(
            f"The pattern {given!r} is not known here, so that texts would be cut "
            f"differently. Known are {', '.join(map(repr, REGEX))} and their regular "
            "expressions."
        )
    return known[given]


def _contents(path: Any, what: str) -> bytes:
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the {what} itself.")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} is larger than 1 GB; give a {what}.")
    return path.read_bytes()


def _placed(numbers: Mapping[bytes, int], special: Mapping[str, int]) -> list[bytes]:
    """The bytes of each token in the order of the ids; gaps have none."""
    ids = [*numbers.values(), *special.values()]
    for i in ids:
        if not isinstance(i, int) or isinstance(i, bool) or i < 0:
            raise ValueError(f"The id of a token must be a whole number, got {i!r}.")
    if len(set(ids)) < len(ids):
        raise ValueError("Two tokens have the same id; each must have its own.")
    if ids and max(ids) >= 4 * len(ids) + 65_536:
        raise ValueError(
            f"There are {len(ids)} tokens but ids up to {max(ids)}; the file is "
            "damaged."
        )
    for token in numbers:
        if len(token) > LONGEST:
            raise ValueError(
                f"A token has {len(token):,} bytes; at most {LONGEST:,} are read."
            )
    missing = [b for b in range(256) if bytes([b]) not in numbers]
    if missing:
        raise ValueError(
            f"{len(missing)} of the 256 bytes have no token, the first is "
            f"{missing[0]:#04x}. Texts with them could not be restored; use a "
            "byte-level vocabulary."
        )
    placed = [b""] * (max(ids) + 1)
    for token, i in numbers.items():
        placed[i] = token
    return placed


# -- Hugging Face -----------------------------------------------------------------


@cache
def byte_characters() -> dict[str, int]:
    """The byte that each printable character of a byte-level vocabulary stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def read_tokenizers(source: str | PathLike[str] | Mapping[str, Any]) -> TokenTable:
    """The vocabulary of a ``tokenizer.json``, or an error that names what differs."""
    if isinstance(source, Mapping):
        given: Any = source
    else:
        contents = _contents(source, "tokenizer.json")
        try:
            given = json.loads(contents)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{Path(source).name} is not JSON ({error}); give a tokenizer.json."
            ) from None
    try:
        return _read_parts(given)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"The tokenizer.json is damaged or of another kind ({error!r}). Save it "
            "again with its library."
        ) from None


def _read_parts(given: Any) -> TokenTable:
    model = given["model"]
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise ValueError(f"The model is of type {kind!r}; only BPE is read.")
    plain = {
        "dropout": (None, 0, 0.0),
        "continuing_subword_prefix": (None, ""),
        "end_of_word_suffix": (None, ""),
        "byte_fallback": (None, False),
    }
    for name, allowed in plain.items():
        if model.get(name) not in allowed:
            raise ValueError(f"{name}={model[name]!r} is not supported.")
    if given.get("normalizer") is not None:
        name = given["normalizer"].get("type")
        raise ValueError(
            f"The normalizer {name!r} changes texts before they are cut, so that they "
            "could not be restored; it is not supported."
        )
    pattern = _read_cutting(given.get("pre_tokenizer"))
    _check_after(given.get("post_processor"))
    decoder = given.get("decoder") or {"type": "ByteLevel"}
    if decoder["type"] != "ByteLevel":
        raise ValueError(f"The decoder {decoder['type']!r} is not byte-level.")
    special = _read_special(given.get("added_tokens") or [])
    of_bytes, numbers = byte_characters(), {}
    for word, i in model["vocab"].items():
        if word in special:
            if special[word] != i:
                raise ValueError(f"The special token {word!r} has two ids.")
        elif set(word) <= of_bytes.keys() and word:
            numbers[bytes(of_bytes[c] for c in word)] = i
        else:
            raise ValueError(f"The token {word!r} is not written in bytes.")
    tokens = _placed(numbers, special)
    rows = []
    for pair in model["merges"]:
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        first, second = (bytes(of_bytes[c] for c in word) for word in (left, right))
        rows.append((numbers[first], numbers[second], numbers[first + second]))
    merges = np.array(rows, np.int32).reshape(-1, 3)
    return TokenTable(
        tokens, merges, special, pattern, bool(model.get("ignore_merges", False))
    )


def _read_cutting(given: Any) -> str:
    """The rule of a pre-tokeniser: ByteLevel, or Split and ByteLevel behind it."""
    parts = given["pretokenizers"] if given and given["type"] == "Sequence" else [given]
    kinds = [part["type"] if part else None for part in parts]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        raise ValueError(
            f"The pre-tokeniser {' + '.join(map(str, kinds))} is not supported; known "
            "are ByteLevel, and Split with ByteLevel behind it."
        )
    last = parts[-1]
    if last.get("add_prefix_space"):
        raise ValueError(
            "add_prefix_space=True puts a space before each text, so that it could "
            "not be restored; it is not supported."
        )
    if len(parts) == 1:
        if not last.get("use_regex", True):
            raise ValueError("ByteLevel without a pattern is not supported.")
        return "gpt2"
    first = parts[0]
    if first.get("behavior") != "Isolated" or first.get("invert"):
        raise ValueError("Split must have the behaviour Isolated, not inverted.")
    if last.get("use_regex", True):
        raise ValueError("Split with a second pattern behind it is not supported.")
    regex = first["pattern"].get("Regex")
    if isinstance(regex, str) and re.search(r"\{[\d,]+\}\+", regex):
        # Possessive for tiktoken; for Hugging Face's Oniguruma, one or more times.
        raise ValueError(
            f"The pattern {regex!r} means another rule in Hugging Face than in "
            "tiktoken, where it comes from: {1,3}+ has no limit there."
        )
    return pattern_of(regex)


def _check_after(given: Any) -> None:
    """A post-processor may add tokens around a text, and nothing else."""
    if given is None:
        return
    parts = given["processors"] if given["type"] == "Sequence" else [given]
    for part in parts:
        if part["type"] not in ("ByteLevel", "TemplateProcessing"):
            raise ValueError(f"The post-processor {part['type']!r} is not supported.")


def _read_special(added: Any) -> dict[str, int]:
    special = {}
    for token in added:
        name = token["content"]
        if not isinstance(name, str) or not name:
            raise ValueError(f"A special token must have a name, got {name!r}.")
        if not token.get("special", False):
            raise ValueError(
                f"The added token {name!r} is not special: it would replace text "
                "everywhere. It is not supported."
            )
        odd = [how for how in ("lstrip", "rstrip", "single_word") if token.get(how)]
        if odd:
            raise ValueError(
                f"The special token {name!r} has {odd[0]}=True, which takes away white "
                "space or depends on it; it is not supported."
            )
        special[name] = token["id"]
    return special


def write_tokenizers(
    found: TokenTable, path: str | PathLike[str] | None = None
) -> dict[str, Any]:
    """The contents of a ``tokenizer.json``."""
    characters = {b: c for c, b in byte_characters().items()}
    shown = ["".join(characters[b] for b in token) for token in found.tokens]
    numbers: dict[str, int] = {}
    for i, word in enumerate(shown):
        if word in numbers:
            raise ValueError(
                f"The tokens {numbers[word]} and {i} have the same bytes; Hugging Face "
                "cannot tell them apart."
            )
        if word:
            numbers[word] = i
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    cutting: dict[str, Any] = {**byte_level, "use_regex": True}
    if found.pattern != "gpt2":
        split = {
            "type": "Split",
            "pattern": {"Regex": REGEX[found.pattern]},
            "behavior": "Isolated",
            "invert": False,
        }
        parts = [split, {**byte_level, "use_regex": False}]
        cutting = {"type": "Sequence", "pretokenizers": parts}
    plain = {"single_word": False, "lstrip": False, "rstrip": False}
    contents = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, **plain, "normalized": False, "special": True}
            for name, i in sorted(found.special.items(), key=lambda item: item[1])
        ],
        "normalizer": None,
        "pre_tokenizer": cutting,
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": found.whole_pieces,
            "vocab": numbers | dict(found.special),
            "merges": [[shown[a], shown[b]] for a, b, _ in found.merges.tolist()],
        },
    }
    if path is not None:
        text = json.dumps(contents, ensure_ascii=False, indent=1)
        write_atomically(Path(path), text.encode())
    return contents


# -- tiktoken ---------------------------------------------------------------------


def read_tiktoken(
    source: Any, pattern: str | None, special: Mapping[str, int] | None
) -> TokenTable:
    """The vocabulary of ranks, with the one merge that leads to each token."""
    if hasattr(source, "_mergeable_ranks"):  # an Encoding, as its own guide reads it
        pattern = source._pat_str if pattern is None else pattern
        special = source._special_tokens if special is None else special
        source = source._mergeable_ranks
    if pattern is None:
        raise ValueError(
            "A file of ranks does not say how texts are cut; give pattern='gpt2', "
            "'cl100k' or 'cl100k_end'."
        )
    ranks = dict(source) if isinstance(source, Mapping) else _read_ranks(source)
    if not all(isinstance(token, bytes) and token for token in ranks):
        raise ValueError("The ranks must belong to tokens, each a few bytes.")
    special = dict(special or {})
    tokens = _placed(ranks, special)
    return TokenTable(tokens, merges_of(ranks), special, pattern_of(pattern), True)


def _read_ranks(path: Any) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(_contents(path, "file of ranks").splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ValueError(
                f"Line {number} of {Path(path).name} is not a token in base64 and its "
                f"rank, got {line[:40]!r}."
            ) from None
    return ranks


def merges_of(ranks: Mapping[bytes, int]) -> Array:
    """The merge that makes each token, in the order of the ranks."""
    rank = ranks.get
    rows = []
    for token, made in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            pair = _last_pair(rank, token)
            if pair is not None:
                rows.append((ranks[pair[0]], ranks[pair[1]], made))
    return np.array(rows, np.int32).reshape(-1, 3)


def _last_pair(
    rank: Callable[[bytes, float], float], token: bytes
) -> tuple[bytes, bytes] | None:
    """The two tokens that tiktoken joins last; None if it does not get there."""
    parts = [token[i : i + 1] for i in range(len(token))]
    found = [rank(a + b, math.inf) for a, b in pairwise(parts)]
    while len(parts) > 2:
        at = found.index(min(found))
        if found[at] == math.inf:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del found[at]
        for i in (at - 1, at):
            if 0 <= i < len(found):
                found[i] = rank(parts[i] + parts[i + 1], math.inf)
    return parts[0], parts[1]


def write_tiktoken(
    found: TokenTable, path: str | PathLike[str] | None = None
) -> dict[bytes, int]:
    """The ranks, if tiktoken makes the same tokens with them from every text."""
    special = set(found.special.values())
    longest = max(map(len, found.tokens))
    if longest > LONGEST:
        raise ValueError(
            f"A token has {longest:,} bytes; at most {LONGEST:,} are written."
        )
    ranks: dict[bytes, int] = {}
    for i, token in enumerate(found.tokens):
        if token and i not in special and ranks.setdefault(token, i) != i:
            raise ValueError(
                f"The tokens {ranks[token]} and {i} have the same bytes; tiktoken "
                "cannot tell them apart."
            )
    if not np.array_equal(merges_of(ranks), found.merges):
        raise ValueError(
            "tiktoken would make other tokens from some texts: it joins tokens in the "
            "order of their ids, and these merges have another order, or several lead "
            "to one token. Use to_tokenizers instead."
        )
    made = {*found.merges[:, 2].tolist(), *(ranks[bytes([b])] for b in range(256))}
    apart = [i for i in ranks.values() if i not in made]
    if apart and not found.whole_pieces:
        raise ValueError(
            f"No merge makes token {apart[0]} ({found.tokens[apart[0]]!r}), which "
            "tiktoken would take for a whole piece. Use to_tokenizers instead."
        )
    if path is not None:
        lines = (base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items())
        write_atomically(Path(path), b"".join(lines))
    return ranks
