"""Texts that users see are in plain English: the rules of "How we write".

The list of banned turns grows when a review finds another. Comments and the strings of
tests are not searched; docstrings and the names of tests are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from certus.meanings import CLAIMS, STRENGTHS, TERMS
from certus.wording import unstopped

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("src/certus", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
TABLES = ("glossary", "meanings", "registry")  # of texts that users see
BUILT = {"_build", "generated", "auto_examples"}  # the gallery comes from examples/
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / "src" / "certus" / f"{name}.toml" for name in TABLES),
    *sorted((ROOT / "src" / "certus" / "report").glob("*.html")),
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *(
        page
        for suffix in ("md", "rst")
        for page in sorted((ROOT / "docs").rglob(f"*.{suffix}"))
        if not BUILT & set(page.relative_to(ROOT).parts)
    ),
]

#: Each turn with a sentence that it must find.
BANNED = {
    r"\bwhat (?:is|are) no\b": "y holds what are no numbers",
    r"\bthere be\b": "though there be as many",
    r", and is\.": "low must not be above high, and is.",
    r"\bas told\b": "as told",
    r"^not so$": "not so",
    r"\bspoken of\b": "the global minimum is not spoken of",
    r"\banew\b": "computed anew",
    r"\bmend(?:s|ed)?\b": "drop or mend these rows",
    r"\bfor ever\b": "rises for ever",
    r"\bone such\b": "with more classes one such problem for each",
    r"\bbeyond what\b": "beyond what float64 holds",
    r"\bkeeps? company\b": "words that keep company",
    r"\bcommonest\b": "the commonest label",
    r"\bfor want of\b": "left out for want of a target",
    r"\bsave for\b": "holds save for a few rows",
    r"\bwill do as well\b": "its name will do as well",
    r"\bsays it all\b": "each says it all",
    r"\bto the letter\b": "not to the letter",
    r"\b(?:is|are) due\.": "shapes (n, d) and (n,) are due.",
    r"\bare no bounds\b": "(1, 0) are no bounds",
    r"(?<!here )\bis no (?:number|share|image|class|path|string|list|threat)\b": (
        "alpha is no share"
    ),
    r"\bspeaks against\b": "nothing speaks against it",
    r"\bhas no known bound\b": "a step that mixes rows has no known bound",
    r"\b(?:whilst|amongst|whereof|heretofore|thereof|oft)\b": "the rows thereof",
    r"\bpredicted rightly\b": "rows that were predicted rightly",
    r"\bmay be borne\b": "as long as it may be borne",
    r"\bat hand\b": "the best H for the W at hand",
    r"\b(?:is|are) told\b": "the decoder is told its previous output",
    r"\b[Rr]aises? a sentence\b": "Raise a sentence unless it is a number",
    r"\bpassed over\b": "unknown words are passed over",
    r"\blest\b": "lest a name be cut in two",
    r"\bthe rooms? of (?:the|linear|kernel)\b": "the room of kernel machines",
    r"\bnow and again\b": "extrapolated now and again",
    r"\b(?:as|is|are) dear\b": "each as dear as one of training",
    r"\bif ever so\b": "penalised, if ever so little",
    r"\b(?:comes?|came) apart\b": "a run that comes apart",
    r"\b(?:the|a|one|two|both|stated|known|conditional|uniform) laws?\b(?! of large)": (
        "rows of one law"
    ),
    r"\bhas so many\b": "a vector has so many numbers",
    r"\bis said by\b": "how good it is, is said by probe",
    r"\byardstick\b": "nearness has no yardstick",
    r"\bthose who watch\b": "in plain float64: for those who watch",
}


#: Turns of test names, beside those of texts, each with a name that it must find.
BANNED_IN_NAMES = {
    r"^(?:it|they|theirs?)\b": "it learns digits",
    r"\btheirs\b": "default parameters are theirs",
    r"(?<!there )\b(?:is|are) (?:none|no)\b": "laws that are none",
    r"\b(?:is|are) (?:said|told|dear)\b(?! to)": "a full disk is said",
    r"\b(?:and|is|are) said(?: to|$)": "windows 1252 is recognised and said",
    r"\btold (?:apart|from|in)\b": "a bare module is told apart",
    r"\bdear(?:er|est)?\b": "free and dear divergence are the limits",
    r"\bones own\b": "a schedule may be ones own",
    r"\b(?:gets?|in|is|raises?|with) (?:a|one) sentence\b": "bad data gets a sentence",
    r"\b(?:refused|said) in words$": "wrong vectors are refused in words",
    r"\bwill do\b": "class names will do",
    r"\bmake no sense\b": "settings that make no sense",
    r"\bthat cannot be$": "records that cannot be",
    r"\b(?:library|learn|user|verifier) s\b": "the fit is scikit learn s",
    r"\bscikit learns\b": "positive paths are scikit learns",
    r"^what (?:is|are|was|does|can|cannot|would|has)\b": "what is wrong is said",
}


class Found(NamedTuple):
    """What the rules look at in one module."""

    literals: list[tuple[int, str]]  #: all strings, docstrings included, with lines
    doubled: list[str]  #: templates in which a sentence is followed by a full stop
    claims: list[str]  #: names of claims, the first argument of what makes one


@cache
def found_in(path: Path) -> Found:
    """Parse a module once, and forget its tree."""
    found = Found([], [], [])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.literals.append((node.lineno, " ".join(node.value.split())))
        elif isinstance(node, ast.JoinedStr):
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            found.doubled.extend(f"{place}: {part}" for part in doubled(node))
        elif isinstance(node, ast.Call) and node.args:
            found.claims.extend(claim_names(node))
    return found


def literals(path: Path) -> list[tuple[int, str]]:
    return found_in(path).literals


def lines(path: Path) -> Iterator[tuple[int, str]]:
    yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)


@pytest.mark.parametrize("turn", BANNED)
def test_a_turn_is_found(turn: str) -> None:
    assert re.search(turn, BANNED[turn])


def test_no_text_has_a_banned_turn() -> None:
    banned = re.compile("|".join(BANNED))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {hit.group()!r} in {text[:80]!r}"
        for paths, read in ((SOURCES, literals), (PAGES, lines))
        for path in paths
        for line, text in read(path)
        if (hit := banned.search(text))
    ]
    assert not found, "\n".join(found)


def names_of_tests() -> Iterator[tuple[Path, str]]:
    """Names of tests, as words."""
    for path in TESTS:
        for name in re.findall(r"^\s*def test_(\w+)", path.read_text("utf-8"), re.M):
            yield path, name.replace("_", " ")


@pytest.mark.parametrize("turn", BANNED_IN_NAMES)
def test_a_turn_of_a_name_is_found(turn: str) -> None:
    assert re.search(turn, BANNED_IN_NAMES[turn])


def test_no_name_of_a_test_has_a_banned_turn() -> None:
    banned = re.compile("|".join([*BANNED, *BANNED_IN_NAMES]))
    found = [
        f"{path.relative_to(ROOT)}: {hit.group()!r} in {name!r}"
        for path, name in names_of_tests()
        if (hit := banned.search(name))
    ]
    assert not found, "\n".join(found)


# -- one full stop ----------------------------------------------------------------


#: Variables that hold whole sentences, which may end in a full stop of their own.
SENTENCES = {"error", "exc", "reason", "message", "why", "problem"}


def doubled(node: ast.JoinedStr) -> Iterator[str]:
    """Parts of a template in which a sentence is followed by a full stop."""
    for part, after in zip(node.values, node.values[1:]):
        if not isinstance(part, ast.FormattedValue):
            continue
        text = after.value if isinstance(after, ast.Constant) else ""
        if not re.match(r"\.(\s|$)", str(text)):
            continue
        inner = part.value
        name = inner.attr if isinstance(inner, ast.Attribute) else inner
        name = name.id if isinstance(name, ast.Name) else name
        if name in SENTENCES:
            yield f"{{{ast.unparse(inner)}}}."


def test_a_doubled_full_stop_is_found() -> None:
    template = ast.parse('f"It failed: {self.reason}. Do {what}."', mode="eval").body
    assert list(doubled(template)) == ["{self.reason}."]


def test_no_message_ends_in_two_full_stops() -> None:
    found = [line for path in SOURCES for line in found_in(path).doubled]
    assert not found, "use certus.wording.unstopped:\n" + "\n".join(found)
    twice = re.compile(r"(?<!\.)\.\.(?!\.)(?=\s|$)")
    strings = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]}"
        for path in SOURCES
        for line, text in literals(path)
        if len(text.split()) > 2 and twice.search(text)
    ]
    assert not strings, "\n".join(strings)


def test_a_failed_candidate_ends_in_one_full_stop() -> None:
    assert unstopped(ValueError("solver must be one of 'svd', got 'quick'.")) == (
        "solver must be one of 'svd', got 'quick'"
    )


# -- every word of a certificate is explained -------------------------------------


MAKERS = {"Claim", "proved", "refused", "measured", "_measured"}


def claim_names(node: ast.Call) -> Iterator[str]:
    """The name of the claim: the first argument of the function that makes one."""
    maker = node.func
    name = getattr(maker, "attr", getattr(maker, "id", ""))
    if name not in MAKERS:
        return
    first = node.args[0]
    if isinstance(first, ast.Starred) and isinstance(first.value, ast.Tuple):
        first = first.value.elts[0]
    text = first.value if isinstance(first, ast.Constant) else None
    if isinstance(text, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", text):
        yield text


def test_every_claim_has_a_meaning() -> None:
    names = {name for path in SOURCES for name in found_in(path).claims}
    assert len(names) > 40, "the search finds the claims"
    assert not names - set(CLAIMS)


def test_meanings_are_sentences() -> None:
    meanings = [row.meaning for row in CLAIMS.values()]
    meanings += [*STRENGTHS.values(), *(meaning for *_, meaning in TERMS)]
    for meaning in meanings:
        assert meaning[0].isupper() and meaning.endswith("."), meaning
        assert ".." not in meaning
        assert not re.search("|".join(BANNED), meaning), meaning
