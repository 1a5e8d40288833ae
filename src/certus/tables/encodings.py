"""Bytes to text: UTF-8, what a mark at the start says, or Windows-1252 by its letters.

Spreadsheets in the West still write Windows-1252 (Latin-1 with curly quotes and €). It
is recognised when the bytes beyond ASCII are letters and quotes of it, and said; any
other encoding has to be named, because bytes alone do not tell Greek from Cyrillic.
"""

from __future__ import annotations

import codecs
import re

from certus.tables.errors import TableError

__all__ = ["WESTERN", "check_encoding", "decode", "guess_encoding"]

WESTERN = "cp1252"
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: Letters and signs that texts in Windows-1252 have.
_USUAL = frozenset(
    "äöüßÄÖÜàâæçéèêëîïôœùûÿÀÂÆÇÉÈÊËÎÏÔŒÙÛáíóúñÁÍÓÚÑ¡¿ãõÃÕåøÅØðþýÐÞÝšžŠŽìòÌÒ"
    "€£¥§©®°±²³µ·¹º¼½¾×÷–—‘’‚“”„†•…‰‹›«»™\u00a0ªšŸƒ¢"
)


def check_encoding(name: str | None) -> None:
    """Refuse a name that Python does not know, or that is not about text."""
    if name is None:
        return
    try:
        known = codecs.lookup(name)._is_text_encoding
    except LookupError:
        known = False
    if not known:
        raise TableError(
            f'There is no encoding "{name}". Common ones: utf-8, cp1252, latin-1, '
            "cp1250, cp1251, shift_jis, gb18030, utf-16."
        )


def guess_encoding(head: bytes) -> str | None:
    """UTF-8 or what the first bytes say; Windows-1252 if its letters fit; or None."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    try:
        head.decode("utf-8-sig")
        return "utf-8-sig"
    except UnicodeDecodeError:
        pass
    try:
        text = head.decode(WESTERN)
    except UnicodeDecodeError:  # bytes that it does not use
        return None
    beyond = [letter for letter in text if ord(letter) > 127]
    usual = sum(letter in _USUAL for letter in beyond)
    control = any(ord(letter) < 32 and letter not in "\t\n\f\r" for letter in text)
    # Whole words beyond ASCII are Greek or Cyrillic rather than Western.
    words = re.search("[\u00c0-\u00ff]{4}", text)
    fits = not control and not words and usual >= 0.95 * len(beyond)
    return WESTERN if fits else None


def decode(data: bytes, encoding: str, name: str) -> str:
    """The text of a whole file, or a sentence about the first byte that is wrong."""
    if encoding.replace("_", "-").lower() in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise TableError(
            f"{name} is not {encoding.removesuffix('-sig')} text (line {line:,}). Name "
            "its encoding: --encoding"
        ) from None
