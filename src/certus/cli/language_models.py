"""What ``certus lm`` does: text files in; models, texts, bits or small files out.

Texts are bytes: nothing is decoded, so that files in any encoding serve. Samples go to
stdout as they are; on a terminal, control characters are shown as signs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from certus.cli import INTERRUPTED, files
from certus.cli.fitting import exit_code
from certus.cli.machine import say_json
from certus.cli.models import build
from certus.cli.screen import Stop, progress, say, say_certificate
from certus.wording import clean

#: What a compressed file is called.
PACKED = ".lm"
#: The classes behind the names of ``--model``.
CLASSES = {"transformer": "LanguageModel", "ngram": "NGramModel"}


class TextFit(NamedTuple):
    """What the user asked for, beyond the texts."""

    kind: str = "transformer"
    max_time: float = 600.0
    settings: Sequence[str] = ()
    sample: int | None = None
    checkpoint: Path | None = None
    seed: int | None = None


def fit(texts: Sequence[Path], asked: TextFit, out: Path | None, as_json: bool) -> int:
    """Learn, write a model file, and say what the verifier found; the exit code."""
    for path in texts:
        _require_file(path)
    place = Path(f"{texts[0].stem}.certus") if out is None else out
    files.check_place(place, texts, "--out")
    model = _unfitted(asked)
    from certus.config import config_context

    quiet = config_context(on_interrupt="return", on_uncertified="ignore")
    with progress() as step, quiet:
        step("counting" if asked.kind == "ngram" else "preparing", 0.0)
        if asked.kind == "transformer":
            from certus.cli.learning import ShownTraining

            model.set_callbacks(ShownTraining(step, asked.max_time, asked.sample))
        model.fit(list(texts) if len(texts) > 1 else texts[0])
    code = exit_code(model.certificate_)
    model.save(place)
    if as_json:
        told = {"model": str(place), "certificate": model.certificate_.to_dict()}
        say_json(told | {"baselines": dict(getattr(model, "baselines_", {}))})
    else:
        say_certificate(model.certificate_)
        say(f"wrote {place}")
        if hasattr(model, "generate"):
            say(f'Try: certus lm sample {place} --prompt "The "')
    if code == INTERRUPTED:
        raise Stop("interrupted; what was learnt so far was written.", code=INTERRUPTED)
    return code


def _unfitted(asked: TextFit) -> Any:
    from certus.registry import ESTIMATORS

    settings = list(asked.settings)
    given = {setting.partition("=")[0].strip() for setting in settings}
    if asked.kind == "transformer":
        if "max_time" in given:
            raise Stop("--set max_time is called --max-time here.", code=2)
        settings.append(f"max_time={asked.max_time!r}")
    seed = 0 if asked.seed is None else asked.seed
    model = build(ESTIMATORS[CLASSES[asked.kind]], settings, seed)
    if asked.kind == "transformer" and asked.checkpoint is not None:
        model.set_params(checkpoint=asked.checkpoint)
    return model


def sample(
    path: Path,
    prompt: str,
    tokens: int,
    rule: dict[str, Any],
    seed: int | None,
    as_json: bool,
) -> int:
    """Write a text to stdout."""
    model, begin = _load(path, "generate"), _typed(prompt)
    seed = 0 if seed is None else seed
    found = model.generate(begin, tokens, **rule, random_state=seed)
    data = begin + found.data
    if as_json:
        shown = begin.decode("utf-8", "replace")
        say_json({"prompt": shown, "text": found.text, "finished": found.finished})
    elif sys.stdout.isatty():
        lines = data.decode("utf-8", "replace").split("\n")
        sys.stdout.write("\n".join(map(clean, lines)) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    return 0


def _typed(prompt: str) -> bytes:
    """A prompt from the shell; bytes that are not UTF-8 come as lone surrogates."""
    return prompt.encode("utf-8", "surrogateescape")


def bits(
    path: Path,
    texts: Sequence[Path],
    level: str,
    explain: bool,
    report: Path | None,
    as_json: bool,
) -> int:
    """Count and check bits per byte, draw a page if asked to; the exit code."""
    from certus import certify

    for text in texts:
        _require_file(text)
    if report is not None:
        if report.suffix.lower() != ".html":
            raise Stop(f"--report {report} must end in .html.", code=2)
        files.check_place(report, [path, *texts], "--report")
        files.check_report(report)
    model = _load(path, "bits_per_byte")
    given = list(texts) if len(texts) > 1 else texts[0]
    with progress(2) as step:
        step("counting and checking")
        found = certify(model, given, level=level)
        if report is not None:
            from certus.report import text_report

            step("drawing")
            drawn = text_report(model, given, certificate=found)
            files.write_report(report, drawn)
    if as_json:
        more = {} if report is None else {"report": str(report)}
        say_json({"certificate": found.to_dict()} | more)
    else:
        say_certificate(found)
        if explain:
            say(str(found.explain()))
        if report is not None:
            say(f"wrote {report}")
    return exit_code(found)


def compress(path: Path, text: Path, out: Path | None, as_json: bool) -> int:
    """Write the compressed file."""
    _require_file(text)
    place = text.with_name(text.name + PACKED) if out is None else out
    files.check_place(place, [path, text], "--out")
    model, data = _load(path, "compress"), text.read_bytes()
    packed = _coded("compress", "compressing", data, model)
    return _write(place, packed, data, packed, as_json)


def decompress(path: Path, packed: Path, out: Path | None, as_json: bool) -> int:
    """Restore a compressed file."""
    _require_file(packed)
    if out is None:
        if packed.suffix != PACKED:
            raise Stop(
                f"{packed} does not end in {PACKED}; name the new file with --out.",
                code=2,
            )
        out = packed.with_suffix("")
        if out.exists():
            raise Stop(f"{out} exists. Name another file with --out.")
    files.check_place(out, [path, packed], "--out")
    model, small = _load(path, "decompress"), packed.read_bytes()
    data = _coded("decompress", "restoring", small, model)
    return _write(out, data, data, small, as_json)


def _coded(way: str, name: str, data: bytes, model: Any) -> bytes:
    """Compress or restore, and show how far it is."""
    from certus.language.decoding import coding

    with progress() as step:
        step(name, 0.0)
        done: bytes = getattr(coding, way)(
            data, model, model.decoder(), lambda share: step(name, share)
        )
    return done


def _write(
    place: Path, content: bytes, data: bytes, small: bytes, as_json: bool
) -> int:
    files.write(place, content)
    rate = 8 * len(small) / len(data) if data else 0.0
    if as_json:
        say_json(
            {
                "file": str(place),
                "bytes": len(data),
                "compressed_bytes": len(small),
                "bits_per_byte": rate,
            }
        )
    else:
        say(
            f"wrote {place}: {len(data):,} bytes in {len(small):,}, {rate:.3f} bits "
            "per byte, without the model"
        )
    return 0


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise Stop(f"{path} is a folder. Name its files.")
    if not path.is_file():
        raise Stop(f"there is no file {path}.")


def _load(path: Path, method: str) -> Any:
    """A language model from its file."""
    _require_file(path)
    from certus.persist import load

    model = load(path)
    if not hasattr(model, method):
        raise Stop(
            f"{path} holds a {type(model).__name__}, which cannot do this. Make a "
            "model with certus lm fit."
        )
    return model
