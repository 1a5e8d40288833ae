"""Plant faults in solvers, families and readers; none may be proved right.

    python tests/faults/run.py --count 500 --seed 14

Every fault is one change of one syntax tree, in a line that at least one case reaches.
A process of its own loads the changed module, fits those cases and compares what the
certificate states with the truth in many digits. Python runs the kernels itself, so
that nothing is compiled. A wrong answer that is PROVED and met fails the run.
"""

from __future__ import annotations

import argparse
import collections
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults import cases, mutate  # noqa: E402

SOURCES = Path(importlib.util.find_spec("certus").origin).parent  # type: ignore
#: What every fit passes through, and where the estimators of the cases live.
HOMES = {cases.ESTIMATORS[case.name].home for case in cases.CASES}
PACKAGES = ("_core", "_solvers", "kernels", *sorted(HOMES))
RESULTS = ROOT / "benchmarks" / "results" / "faults.md"
SECONDS = 30  # that the cases of one fault may take
#: Cases fitted with one fault, drawn among those that reach its line.
MOST = 6
OUTCOMES = ("caught", "error", "harmless", "false proof")


class Outcome(NamedTuple):
    """What became of one fault, and the case that says so."""

    fault: mutate.Fault
    verdict: str
    note: str


def module_of(file: str) -> str:
    """The module's name of a file below the sources."""
    parts = ["certus", *Path(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# -- a process for each fault -----------------------------------------------------


def apart(work: Callable[[], Any], seconds: int = SECONDS) -> Any:
    """The result of ``work`` in a process of its own, or why there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.alarm(seconds)
        try:
            answer = work()
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        with os.fdopen(write, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as given:
        text = given.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": f"no answer in {seconds} seconds"}


class _Broken(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, number: int) -> None:
        super().__init__(name, path)
        self.number = number

    def get_code(self, fullname: str) -> Any:
        return mutate.broken(Path(self.path), self.number)


class _Finder:
    """Loads one module with its fault, and leaves all others alone."""

    def __init__(self, fault: mutate.Fault) -> None:
        self.name, self.fault = module_of(fault.file), fault

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        file = str(SOURCES / self.fault.file)
        loader = _Broken(name, file, self.fault.number)
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def judged(fault: mutate.Fault, chosen: list[int]) -> list[tuple[str, str]]:
    """How each chosen case goes with the fault in place."""
    sys.meta_path.insert(0, _Finder(fault))
    warnings.simplefilter("ignore")
    return [judge(cases.CASES[k]) for k in chosen]


def judge(case: cases.Case) -> tuple[str, str]:
    """A verdict on one fit, and a word about it."""
    name = f"{case.name} {case.params}"
    try:
        model = case.fit()
        value = cases.stated(model.certificate_)
    except Exception as error:
        return "error", f"{name}: {type(error).__name__}"
    if value is None:
        return "caught", name
    try:
        excess = case.excess(model)
    except cases.NoAnswerError as error:
        return "error", f"{name}: {error}"
    except Exception as error:
        return "false proof", f"{name}: no answer, but proved ({error})"
    if excess <= value * (1 + cases.MARGIN) + 1e-14:
        return "harmless", name
    return "false proof", f"{name}: stated {value:.2g}, true {excess:.2g}"


# -- what is reached without a fault ----------------------------------------------


def survey() -> dict[str, Any]:
    """Lines that each case reaches, and P of the best points."""
    reached: list[set[tuple[str, int]]] = []
    now: set[tuple[str, int]] = set()
    places = tuple(str(SOURCES / package) + os.sep for package in PACKAGES)

    def trace(frame: Any, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(places):
            return None
        now.add((os.path.relpath(file, SOURCES), frame.f_lineno))
        return trace

    warnings.simplefilter("ignore")
    for case in cases.CASES:
        now = set()
        sys.settrace(trace)
        model = case.fit()
        sys.settrace(None)
        value = cases.stated(model.certificate_)
        assert value is not None and case.excess(model) <= value, case.name
        reached.append(now)
    # Lines that run when a module is loaded stand with the case that loaded it.
    best = {key: cases.held(value) for key, value in cases.BEST.items()}
    return {"reached": [sorted(lines) for lines in reached], "best": best}


def draw(reached: list[Any], count: int, seed: int) -> list[tuple[Any, list[int]]]:
    """Faults and the cases to fit with each."""
    by_line: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
    for k, lines in enumerate(reached):
        for file, line in lines:
            by_line[file, line].append(k)
    everything: list[mutate.Fault] = []
    for file in sorted({file for file, _ in by_line}):
        everything += mutate.faults_of(
            SOURCES / file, file, lambda line, file=file: (file, line) in by_line
        )
    chance = random.Random(seed)
    found = chance.sample(everything, min(count, len(everything)))
    print(f"{len(found)} of {len(everything):,} faults", flush=True)
    out = []
    for fault in found:
        cases_of = by_line[fault.file, fault.line]
        out.append((fault, sorted(chance.sample(cases_of, min(MOST, len(cases_of))))))
    return out


def outcome(fault: mutate.Fault, answer: Any) -> Outcome:
    """The weightiest verdict of its cases."""
    if isinstance(answer, dict):
        return Outcome(fault, "error", answer["error"])
    found = dict(reversed(answer))
    for verdict in ("false proof", "caught", "error", "harmless"):
        if verdict in found:
            return Outcome(fault, verdict, found[verdict])
    raise AssertionError(answer)


# -- the table --------------------------------------------------------------------


def table(found: list[Outcome], seed: int) -> str:
    """What became of the faults, by package and by kind."""
    lines = [
        "# Planted faults",
        "",
        f"`make test-faults`: {len(found)} faults drawn by the seed {seed} in lines "
        f"that {len(cases.CASES)} small fits reach.",
        "*Caught*: the certificate does not say that the target is met. *Harmless*: "
        "the answer is as good as stated (linear models in 80 digits, others in long "
        "double or float64). A *false proof* is a wrong "
        "answer that is proved.",
        "",
    ]
    for title, key in (
        ("package", lambda x: Path(x.fault.file).parts[0]),
        ("kind", lambda x: x.fault.kind),
    ):
        lines += [f"| {title} | faults | {' | '.join(OUTCOMES)} |"]
        lines += ["|---" * (len(OUTCOMES) + 2) + "|"]
        for name in [*sorted({key(x) for x in found}), "all"]:
            part = [x for x in found if name in ("all", key(x))]
            counts = collections.Counter(x.verdict for x in part)
            numbers = " | ".join(str(counts[each]) for each in OUTCOMES)
            lines.append(f"| {name} | {len(part)} | {numbers} |")
        lines.append("")
    false = [x for x in found if x.verdict == "false proof"]
    lines += [f"- {told(x)}" for x in false] or ["No false proof."]
    return "\n".join(lines) + "\n"


def told(x: Outcome) -> str:
    """One line about a fault."""
    at = f"{x.fault.file}:{x.fault.line}"
    return f"{x.verdict}: {at} ({x.fault.kind}) `{x.fault.text}`: {x.note}"


def main(given: Iterable[str] | None = None) -> int:
    """1 if a wrong answer was proved."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    asked = parser.parse_args(given)
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # before numba is loaded
    import numba
    import sklearn.linear_model
    import sklearn.neighbors

    assert numba.config.DISABLE_JIT and sklearn  # loaded once, for all processes
    seen = apart(survey, seconds=600)
    if "error" in seen:
        raise SystemExit(f"a fit without a fault went wrong: {seen['error']}")
    cases.BEST.update({key: cases.taken(text) for key, text in seen["best"].items()})
    found = []
    for k, (fault, chosen) in enumerate(draw(seen["reached"], asked.count, asked.seed)):
        answer = apart(lambda fault=fault, chosen=chosen: judged(fault, chosen))
        found.append(outcome(fault, answer))
        if found[-1].verdict == "false proof" or k % 50 == 0:
            print(k, told(found[-1]), flush=True)
    text = table(found, asked.seed)
    print(text)
    if asked.write:
        RESULTS.write_text(text, encoding="utf-8")
    return int(any(x.verdict == "false proof" for x in found))


if __name__ == "__main__":
    sys.exit(main())
