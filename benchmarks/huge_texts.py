"""One word of 100 MB, for a tokeniser and for ``certus lm fit``: seconds and memory.

    python -m benchmarks.huge_texts [--fit]

Each kind of text is worked on in a process of its own. Written to the section "100 MB
without a space" of ``results/tokenizers.md``, or, with ``--fit``, to "100 MB without a
line break"; the rest of the page is that of ``benchmarks.tokenizers``.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import describe_machine
from benchmarks.run import machine

SIZE, SEED, MAX_TIME = 100_000_000, 0, 60.0
PACKAGES = ("certus", "numpy", "numba", "torch")
KINDS = {"a": "one letter, repeated", "letters": "26 letters at random"}
RESULTS = Path(__file__).with_name("results") / "tokenizers.md"
WORD = """One word of 100 MB, learnt with the default settings, encoded, and decoded to
the same bytes; CPU seconds, kernels compiled before."""
FIT = """`certus lm fit --max-time 60` on a file of 100 MB without a space or a line
break: the seconds until the model was written, the most memory, and what the
certificate says. One letter costs nothing once it is known; random letters cost
log₂ 26 = 4.70 bits each, and no model needs fewer."""


def huge(kind: str) -> bytes:
    """The text."""
    if kind == "a":
        return b"a" * SIZE
    rng = np.random.default_rng(SEED)
    return rng.integers(97, 123, SIZE).astype(np.uint8).tobytes()


def memory() -> float:
    """The most memory that this process has used, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def tokenised(kind: str) -> dict[str, Any]:
    """Learn, encode and decode."""
    from certus.language import BPETokenizer

    BPETokenizer(300).fit("a bc " * 50).decode_bytes([97])  # compiled before
    data, times = huge(kind), [time.process_time()]
    model = BPETokenizer().fit(data)
    times.append(time.process_time())
    ids = model.encode(data)
    times.append(time.process_time())
    back = model.decode_bytes(ids)
    times.append(time.process_time())
    names = ("train", "encode", "decode")
    return {
        **dict(zip(names, np.diff(times).tolist())),
        "memory": memory(),
        "tokens": len(ids),
        "restores": back == data,
    }


def fitted(kind: str) -> dict[str, Any]:
    """Fit from a file by the command line."""
    from certus import load
    from certus.cli import main

    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder) / "text.txt", Path(folder) / "text.certus"
        text.write_bytes(huge(kind))
        before = time.perf_counter()
        words = ["lm", "fit", str(text), "--max-time", f"{MAX_TIME:g}"]
        code = main([*words, "--out", str(out)])
        seconds, most = time.perf_counter() - before, memory()
        model = load(out)
        claims = model.certificate_.claims
        bits = next(c.detail for c in claims if c.name == "bits_per_byte")
        return {
            "code": int(code or 0),
            "seconds": seconds,
            "memory": most,
            "status": model.certificate_.status.value,
            "tokens": model.tokenizer_.n_tokens,
            "bits": bits,
        }


def apart(kind: str, what: str) -> dict[str, Any]:
    """In a process of its own, so that its memory can be told."""
    command = [sys.executable, "-m", "benchmarks.huge_texts", what, kind]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(kind, found, flush=True)
    return found


def word_lines() -> list[str]:
    """The table of the tokeniser."""
    head = "| text | train, s | encode, s | decode, s | most memory, GB | tokens |"
    lines = [*WORD.splitlines(), "", f"{head} restores |", "|---" * 7 + "|"]
    for kind, name in KINDS.items():
        it = apart(kind, "--one-word")
        told = "yes" if it["restores"] else "**no**"
        lines.append(
            f"| {name} | {it['train']:.1f} | {it['encode']:.1f} | {it['decode']:.1f} | "
            f"{it['memory']:.2f} | {it['tokens']:,} | {told} |"
        )
    return lines


def fit_lines() -> list[str]:
    """The table of the command."""
    head = "| text | s | most memory, GB | exit code | status | tokens known | found |"
    lines = [*FIT.splitlines(), "", head, "|---" * 7 + "|"]
    for kind, name in KINDS.items():
        it = apart(kind, "--one-fit")
        lines.append(
            f"| {name} | {it['seconds']:.0f} | {it['memory']:.2f} | {it['code']} | "
            f"{it['status']} | {it['tokens']:,} | {it['bits']} |"
        )
    return lines


def write(title: str, lines: list[str]) -> None:
    """Put a section into the page; the others stay as they are."""
    page, *parts = RESULTS.read_text(encoding="utf-8").split("\n## ")
    kept = {part.partition("\n")[0]: part.rstrip() + "\n" for part in parts}
    where = describe_machine(machine(PACKAGES)).strip()
    where += f" Load in the end: {os.getloadavg()[0]:.1f}."
    kept[title] = "\n".join([title, "", *lines, "", where, ""])
    RESULTS.write_text("\n## ".join([page, *kept.values()]), encoding="utf-8")


def main(words: list[str]) -> None:
    """One kind in this process, or all of them in processes of their own."""
    if words[:1] == ["--one-word"]:
        print(json.dumps(tokenised(words[1])))
    elif words[:1] == ["--one-fit"]:
        print("\n" + json.dumps(fitted(words[1])))
    elif words == ["--fit"]:
        write("100 MB without a line break", fit_lines())
    else:
        write("100 MB without a space", word_lines())


if __name__ == "__main__":
    main(sys.argv[1:])
