"""Tokenisers beside Hugging Face's, sentencepiece and tiktoken: one thread, CPU time.

    python -m benchmarks.tokenizers [TEXT ...]

Without a text, 4 MB of the sources of Python's standard library. All learn 4,096
tokens; ours includes the certificate. tiktoken encodes with our vocabulary, and must
give the same ids. Best of three runs, in turn. Written to ``results/tokenizers.md``;
the sections on 100 MB there are those of ``benchmarks.huge_texts``.
"""

import io
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tiktoken
import tokenizers

from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.language import BPETokenizer

PACKAGES = ("certus", "tokenizers", "sentencepiece", "tiktoken", "numpy", "numba")
SIZE, VOCABULARY, RUNS = 4_000_000, 4096, 3
#: What is asked for: our speed as a multiple of theirs.
TRAIN_TARGET, ENCODE_TARGET = 3.0, 2.0


def library_text() -> bytes:
    """Sources of the standard library, in the order of their names, as UTF-8."""
    parts, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        parts.append(path.read_bytes().decode("utf-8", "replace").encode())
        size += len(parts[-1])
        if size >= SIZE:
            break
    return b"".join(parts)[:SIZE].decode("utf-8", "ignore").encode()


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, its threads and children included."""
    before = _cpu()
    found = work()
    return _cpu() - before, found


def _cpu() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def train_ours(text: str) -> Any:
    return BPETokenizer(VOCABULARY).fit(text)


def train_hugging_face(text: str) -> Any:
    model = tokenizers.ByteLevelBPETokenizer()
    model.train_from_iterator([text], vocab_size=VOCABULARY, show_progress=False)
    return model


def train_sentencepiece(text: str) -> Any:
    held = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=held,
        vocab_size=VOCABULARY,
        model_type="bpe",
        num_threads=1,
        byte_fallback=True,
        max_sentence_length=1 << 20,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=held.getvalue())


def compare(name: str, data: bytes) -> list[Any]:
    """Rows of one text: library, seconds, MB/s, bytes a token, whether it restores."""
    text = data.decode("utf-8", "replace")
    train_ours(text[:100_000]).encode(text[:1000])  # compiled once for each machine
    trained: dict[str, list[Any]] = {}
    for _ in range(RUNS):
        for library, work in (
            ("certus", train_ours),
            ("tokenizers", train_hugging_face),
            ("sentencepiece", train_sentencepiece),
        ):
            trained.setdefault(library, []).append(seconds(lambda: work(text)))  # noqa: B023
    ours = trained["certus"][0][1]
    theirs = tiktoken.Encoding(
        "certus",
        pat_str=ours.regex,
        mergeable_ranks=ours.to_tiktoken(),
        special_tokens={},
    )
    encoders = {
        "certus": ours.encode,
        "tiktoken": theirs.encode_ordinary,
        "tokenizers": lambda text: trained["tokenizers"][0][1].encode(text).ids,
        "sentencepiece": trained["sentencepiece"][0][1].encode,
    }
    restores = {
        "certus": ours.decode,
        "tiktoken": theirs.decode,
        "tokenizers": trained["tokenizers"][0][1].decode,
        "sentencepiece": trained["sentencepiece"][0][1].decode,
    }
    encoded: dict[str, list[Any]] = {}
    for _ in range(RUNS):
        for library, encode in encoders.items():
            encoded.setdefault(library, []).append(seconds(lambda: encode(text)))  # noqa: B023
    np.testing.assert_array_equal(encoded["certus"][0][1], encoded["tiktoken"][0][1])
    rows, size = [], len(data) / 1e6
    for library in encoders:
        learnt = min((s for s, _ in trained.get(library, [])), default=float("nan"))
        wrote = min(s for s, _ in encoded[library])
        ids = encoded[library][0][1]
        back = restores[library](list(map(int, ids))) == text
        rows.append((library, learnt, size / wrote, len(data) / len(ids), back))
    return [(name, *row) for row in rows]


def write(found: list[list[Any]]) -> str:
    """The table, and the ratios that are asked for."""
    lines = ["# Tokenisers", "", describe_machine(machine(PACKAGES)), ""]
    lines += [__doc__.strip().splitlines()[0], ""]
    lines += ["| text | library | train, s | encode, MB/s | bytes a token | restores |"]
    lines += ["|---|---|---|---|---|---|"]
    for rows in found:
        for text, library, learnt, speed, per, back in rows:
            shown = "–" if np.isnan(learnt) else f"{learnt:.2f}"
            told = "yes" if back else "**no**"
            lines.append(
                f"| {text} | {library} | {shown} | {speed:.1f} | {per:.2f} | {told} |"
            )
    lines += ["", "| text | training, of sentencepiece | encoding, of tiktoken |"]
    lines += ["|---|---|---|"]
    for rows in found:
        by = {row[1]: row for row in rows}
        train = by["sentencepiece"][2] / by["certus"][2]
        encode = by["certus"][3] / by["tiktoken"][3]
        goals = (train >= TRAIN_TARGET, encode >= ENCODE_TARGET)
        marks = ["met" if goal else "missed" for goal in goals]
        asked = [f" (at least {TRAIN_TARGET:g}: {marks[0]})"]
        asked += [f" (at least {ENCODE_TARGET:g}: {marks[1]})"]
        if "4 MB" not in rows[0][0]:  # the targets are about 4 MB
            asked = ["", ""]
        lines.append(
            f"| {rows[0][0]} | {train:.1f} ×{asked[0]} | {encode:.1f} ×{asked[1]} |"
        )
    return "\n".join(lines) + "\n"


def main(paths: list[str]) -> None:
    """Compare on each text, and write the table."""
    os.environ["TOKENIZERS_PARALLELISM"] = os.environ["RAYON_NUM_THREADS"] = "1"
    given = {Path(path).name: Path(path).read_bytes() for path in paths}
    texts = {"standard library, 4 MB": library_text()} | given
    found = [compare(name, data) for name, data in texts.items()]
    results = Path(__file__).with_name("results") / "tokenizers.md"
    before = results.read_text(encoding="utf-8") if results.exists() else ""
    _, mark, notes = before.partition("\n## ")  # measured apart from this, and kept
    told = write(found) + mark + notes
    results.write_text(told, encoding="utf-8")
    print(told)


if __name__ == "__main__":
    main(sys.argv[1:])
