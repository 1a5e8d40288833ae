"""Sentences of the glossary in the docstrings of estimators.

``certus/glossary.toml`` has one sentence for each parameter that several estimators
share. ``make glossary`` writes it at the head of every description of that parameter; a
test fails where one differs. Docstrings stay plain text that readers and editors see.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

from certus.registry import ESTIMATORS, load_class

ROOT = Path(__file__).parents[2] / "src" / "certus"
GLOSSARY = tomllib.loads((ROOT / "glossary.toml").read_text("utf-8"))
#: Groups of parameters that classes share, by the class whose sentences they have.
GROUPS = {
    "TrainingOptions": "NeuralClassifier",
    "LabelOptions": "NeuralClassifier",
    "RobustOptions": "NeuralClassifier",
    "RecurrentOptions": "RecurrentClassifier",
    "PerceptronOptions": "MLPClassifier",
    "GenerativeOptions": "NormalizingFlow",
}
#: Descriptions that stand elsewhere.
ELSEWHERE = re.compile(r"As (in|for) :(class|func):")
SECTION = re.compile(
    r"^( *)Parameters\n\1-+\n(.*?)(?=^\1\w[^\n]*\n\1---|\Z)", re.M | re.S
)
ENTRY = re.compile(r"^(?P<head>\w[^\n]*)\n(?P<body>(?:    [^\n]*\n|\n(?=    ))*)", re.M)
#: A line that goes on in the next one, while a source is changed.
JOINED = "\\\0"
FIRST = re.compile(r"^.+?\.(?=\s+[^a-z\s]|\s*$)", re.S)


class Entry(NamedTuple):
    """One description in a list of parameters."""

    names: tuple[str, ...]
    kind: str
    text: str


def sentence(name: str, estimator: str) -> str | None:
    """What the glossary says of a parameter of an estimator, if anything."""
    found = GLOSSARY["texts"].get(name)
    if isinstance(found, dict):
        return found.get(estimator, found.get(ESTIMATORS[estimator].home))
    return found


def as_entry(found: re.Match[str]) -> Entry:
    """The parts of a description."""
    names, _, kind = found["head"].replace(JOINED, "").partition(" : ")
    text = " ".join(found["body"].split())
    return Entry(tuple(names.split(", ")), kind, text)


def described(cls: type) -> list[Entry]:
    """The parameters that the docstring of a class describes."""
    section = SECTION.search(inspect.getdoc(cls) or "")
    return [as_entry(e) for e in ENTRY.finditer(section[2] + "\n")] if section else []


def agrees(entry: Entry, estimator: str) -> bool:
    """Whether a description begins as the glossary says."""
    wanted = {sentence(name, estimator) for name in entry.names} - {None}
    starts = (*wanted, GLOSSARY["unused"])
    known = entry.text.startswith(starts) or ELSEWHERE.match(entry.text)
    return not wanted or bool(known)


def corrected(entries: str, estimator: str) -> str:
    """A list of descriptions that begin as the glossary says."""

    def one(found: re.Match[str]) -> str:
        entry = as_entry(found)
        if agrees(entry, estimator) or len(entry.names) > 1:
            return found[0]
        rest = FIRST.sub("", entry.text, count=1).strip()
        text = f"{sentence(entry.names[0], estimator)} {rest}".strip()
        return f"{found['head']}\n{wrapped(text)}\n"

    return ENTRY.sub(one, entries)


def wrapped(text: str) -> str:
    """A description as it stands in a list, in a class of a module."""
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.indent("\n".join(textwrap.wrap(text, 80, **options)), "    ")


def rewritten(source: str, name: str, estimator: str) -> str:
    """The source of a module in which a class begins descriptions as it should."""
    pattern = rf'^class {name}\b[^\n]*:\n    """.*?^    """'
    found = re.search(pattern, source, re.M | re.S)
    if found is None:
        return source
    docstring = found[0]
    section = SECTION.search(docstring)
    if name in GROUPS:
        start = docstring.index("\n\n") + 2
        old = docstring[start : docstring.rindex('    """')]
    elif section is not None:
        old = section[2]
    else:
        return source
    body = textwrap.dedent(old.replace("\\\n", JOINED))
    new = textwrap.indent(corrected(body, estimator), "    ")
    new = new.replace(JOINED, "\\\n")
    return source.replace(docstring, docstring.replace(old, new))


def main() -> None:
    """Correct the docstrings of all estimators."""
    places = {
        row.name: (inspect.getsourcefile(load_class(row)), row.name)
        for row in ESTIMATORS.values()
    }
    shared = ROOT / "neural_network" / "parameters.py"
    places |= {group: (str(shared), like) for group, like in GROUPS.items()}
    for name, (place, estimator) in places.items():
        path = Path(place)
        old = path.read_text("utf-8")
        new = rewritten(old, name, estimator)
        if new != old:
            path.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
