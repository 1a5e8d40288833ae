r"""Compiled rules that cut a text into pieces; tokens never reach over a cut.

Three rules, each known by the regular expression that others write for it:

GPT-2
    ``'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+``
cl100k
    ``(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+``
cl100k as tiktoken has it today
    the same, but white space at the end of the text is one piece: ``\s++$`` is tried
    before line breaks are.

The text is bytes; a byte that does not belong to UTF-8 counts as a sign.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array

#: Kinds of characters, as the rules know them.
OTHER, LETTER, NUMBER, SPACE = 0, 1, 2, 3
#: The kind of a byte that is not ASCII: the character has to be read.
UNREAD = 9
#: The rules, and the names by which a tokeniser asks for them.
GPT2, CL100K, CL100K_END = 0, 1, 2
RULES = {"gpt2": GPT2, "cl100k": CL100K, "cl100k_end": CL100K_END}


@register_jitable
def _kind_at(data: Array, i: int, n: int, kinds: Array) -> tuple[int, int]:
    """Kind and bytes of the character at i; a byte that is no UTF-8 stands alone."""
    b = np.int64(data[i])
    if b < 0x80:
        return kinds[b], 1
    if 0xC2 <= b < 0xE0 and i + 1 < n and data[i + 1] >> 6 == 2:
        return kinds[(b & 31) << 6 | data[i + 1] & 63], 2
    if b < 0xE0 or i + 2 >= n or data[i + 1] >> 6 != 2 or data[i + 2] >> 6 != 2:
        return OTHER, 1
    code = (np.int64(data[i + 1]) & 63) << 6 | np.int64(data[i + 2]) & 63
    if b < 0xF0:
        code |= (b & 15) << 12
        fine = code >= 0x800 and not 0xD800 <= code < 0xE000
        return (kinds[code], 3) if fine else (OTHER, 1)
    if b < 0xF5 and i + 3 < n and data[i + 3] >> 6 == 2:
        code = (b & 7) << 18 | code << 6 | np.int64(data[i + 3]) & 63
        if 0x10000 <= code < 0x110000:
            return kinds[code], 4
    return OTHER, 1


@register_jitable
def _end_of_space(data: Array, i: int, n: int, kinds: Array) -> int:
    """Where white space from i on ends; its last character is left to what follows."""
    last = at = i
    while at < n:
        kind, width = _kind_at(data, at, n, kinds)
        if kind != SPACE:
            return at if last == i else last
        last = at
        at += width
    return at


@register_jitable
def _end_of_kind(
    data: Array, i: int, n: int, kinds: Array, kind: int, most: int
) -> int:
    """Where the run of characters of a kind ends, at most ``most`` characters on."""
    at = i
    while at < n and most > 0:
        b = data[at]
        if b < 0x80:
            if kinds[b] != kind:
                break
            at += 1
        else:
            found, width = _kind_at(data, at, n, kinds)
            if found != kind:
                break
            at += width
        most -= 1
    return at


@register_jitable
def _end_gpt2(data: Array, i: int, n: int, kinds: Array) -> int:
    """Where the piece that begins at i ends, by GPT-2's rule.

    's 't 'm 'd 're 've 'll; a run of letters, digits or signs with a space before it;
    white space, whose last character is left to what follows.
    """
    if data[i] == 39 and i + 1 < n:
        a = data[i + 1]
        if a == 115 or a == 116 or a == 109 or a == 100:
            return i + 2
        b = data[i + 2] if i + 2 < n else np.uint8(0)
        if ((a == 114 or a == 118) and b == 101) or (a == 108 and b == 108):
            return i + 3
    kind, width = _kind_at(data, i, n, kinds)
    at = i
    if data[i] == 32 and i + 1 < n:
        follows, wide = _kind_at(data, i + 1, n, kinds)
        if follows != SPACE:
            kind, width, at = follows, wide, i + 1
    if kind != SPACE:
        return _end_of_kind(data, at + width, n, kinds, kind, n)
    return _end_of_space(data, i, n, kinds)


@register_jitable
def _end_of_contraction(data: Array, i: int, n: int) -> int:
    """Where 's 't 'm 'd 're 've 'll end, in either case; i if none begins there."""
    if data[i] != 39 or i + 1 >= n:
        return i
    a = data[i + 1] | 32
    if a == 115 or a == 116 or a == 109 or a == 100:
        return i + 2 if data[i + 1] & 64 else i
    if i + 2 >= n:
        return i
    if data[i + 1] == 0xC5 and data[i + 2] == 0xBF:  # a long s is an s in lower case
        return i + 3
    b = data[i + 2] | 32
    both = data[i + 1] & data[i + 2] & 64
    if both and (((a == 114 or a == 118) and b == 101) or (a == 108 and b == 108)):
        return i + 3
    return i


@register_jitable
def _end_cl100k(data: Array, i: int, n: int, kinds: Array, whole_end: bool) -> int:
    """Where the piece that begins at i ends, by cl100k's rule."""
    end = _end_of_contraction(data, i, n)
    if end > i:
        return end
    kind, width = _kind_at(data, i, n, kinds)
    if kind == NUMBER:
        return _end_of_kind(data, i, n, kinds, NUMBER, 3)
    breaks = data[i] == 10 or data[i] == 13
    begin = i if kind == LETTER or breaks else i + width
    end = _end_of_kind(data, begin, n, kinds, LETTER, n)
    if end > begin:
        return end
    begin = i + 1 if data[i] == 32 else i
    end = _end_of_kind(data, begin, n, kinds, OTHER, n)
    if end > begin:
        while end < n and (data[end] == 10 or data[end] == 13):
            end += 1
        return end
    end = _end_of_kind(data, i, n, kinds, SPACE, n)
    if not (whole_end and end == n):
        for at in range(end - 1, i - 1, -1):
            if data[at] == 10 or data[at] == 13:
                return at + 1
    return _end_of_space(data, i, n, kinds)


@kernel
def find_pieces(data: Array, begin: int, rule: int, kinds: Array, ends: Array) -> int:
    """Write where the pieces from ``begin`` on end, as many as fit; how many."""
    if rule == GPT2:
        return _find_gpt2(data, begin, kinds, ends)
    n, i, m = len(data), begin, 0
    while i < n and m < len(ends):
        i = _end_cl100k(data, i, n, kinds, rule == CL100K_END)
        ends[m] = i
        m += 1
    return m


@register_jitable
def _find_gpt2(data: Array, begin: int, kinds: Array, ends: Array) -> int:
    """GPT-2's rule in one loop for ASCII: calls would take most of the time.

    Pieces that begin with an apostrophe or touch other characters go the long way.
    """
    plain = np.full(256, UNREAD, np.uint8)
    plain[:128] = kinds[:128]
    n, i, m = len(data), begin, 0
    while i < n and m < len(ends):
        kind, at = plain[data[i]], i + 1
        if data[i] == 32 and at < n and plain[data[at]] != SPACE:
            kind, at = plain[data[at]], at + 1
        elif data[i] == 39:
            kind = np.uint8(UNREAD)
        while at < n and kind != UNREAD and plain[data[at]] == kind:
            at += 1
        if kind == UNREAD or (at < n and data[at] >= 128):
            i = _end_gpt2(data, i, n, kinds)
        elif kind == SPACE and i + 1 < at < n:
            i = at - 1  # the last one is left to what follows
        else:
            i = at
        ends[m] = i
        m += 1
    return m
