"""Numbers with a currency or a unit: "$1,234.00", "35 %", "120 m²", "€1.5M", "(12)".

The mark must be the same in every cell, so that nothing is lost by leaving it out; what
was left out is remembered, because new rows in other units must not pass unnoticed.
Thousands and millions (K, M, B) are read only beside a currency: 5 M may be metres.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import polars as pl

__all__ = ["Unmarked", "unmarked"]

_SIGNS = "$€£¥₹₽₩₺₫₴฿"
_CODES = (
    "USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|CAD|AUD|NZD|BRL|ZAR|US\\$|Rs\\.?"
)
_MONEY = rf"(?:[{_SIGNS}]|{_CODES})"
#: Letters, perhaps with a power or a quotient: kg, m², km/h, °C, sq ft, %.
_UNIT = r"(?:%|‰|°?[^\W\d_]{1,8}[²³23]?(?:[ /][^\W\d_]{1,6}[²³23]?)?\.?|°|[\"'″′])"
_NUMBER = r"[+\-−]?\d[\d.,'’\s]*|[+\-−]?\.\d+"
_CELL = re.compile(
    rf"^(?P<open>\()?\s*(?P<sign>[+\-−])?\s*(?P<before>{_MONEY})?\s*(?P<number>{_NUMBER})"
    rf"(?P<size>(?:K|k|M|m|B|bn|Mio|Mrd)(?![\w²³/]))?\s*(?P<after>{_MONEY}|{_UNIT})?\s*(?P<close>\))?$"
)
_SIZES = {"": 0, "K": 3, "k": 3, "M": 6, "m": 6, "Mio": 6, "B": 9, "bn": 9, "Mrd": 9}
_PROBE = 50


class Unmarked(NamedTuple):
    """Cells without their marks, the power of ten of each, and what the mark was."""

    text: pl.Series
    powers: pl.Series | None
    unit: str


def unmarked(text: pl.Series) -> Unmarked | None:
    """Take away the mark that all cells share; None if there is none, or not in all."""
    known = text.drop_nulls()
    found = None
    for cell in known.head(_PROBE):
        match = _CELL.match(cell)
        if match is None or bool(match["open"]) != bool(match["close"]):
            return None
        marks = (match["before"] or "", match["after"] or "")
        if found not in (None, marks):
            return None
        found = marks
    if found is None:
        return None
    before, after = found
    sizes = "(?:K|k|M|m|B|bn|Mio|Mrd)?" if before or re.fullmatch(_MONEY, after) else ""
    if not (before or after or known.str.contains(r"^\(").any()):
        return None
    pattern = (
        rf"^(\()?\s*([+\-−])?\s*{re.escape(before)}\s*({_NUMBER})({sizes})\s*"
        rf"{re.escape(after)}\s*(\))?$"
    )
    if not known.str.contains(pattern).all():
        return None
    if (known.str.starts_with("(") != known.str.ends_with(")")).any():
        return None
    groups = text.str.extract_groups(pattern).struct
    number = groups.field("3").str.replace_all(r"\s+$", "").str.replace("−", "-")
    negative = groups.field("1").is_not_null() | groups.field("2").is_in(["-", "−"])
    if (negative & number.str.contains(r"^[+\-]")).any():
        return None
    plain = pl.DataFrame({"n": number, "minus": negative.fill_null(False)}).select(
        n=pl.when("minus").then("-" + pl.col("n")).otherwise("n")
    )["n"]
    return Unmarked(
        plain.alias(text.name),
        _powers(groups.field("4")) if sizes else None,
        (before + after).replace("²", "2").replace("³", "3"),
    )


def _powers(sizes: pl.Series) -> pl.Series | None:
    powers = sizes.fill_null("").replace_strict(_SIZES, return_dtype=pl.Int64)
    return powers if (powers != 0).any() else None
