"""``certus certify`` for a model that was fitted by blocks, on any machine.

The addresses of the rows follow from the files, and which rows were sealed from the
rule in the model file; so the lines are those that the cluster gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certus.cli.applying import read_model, say_recheck
from certus.cli.large import ENDINGS, describe, places_for, read_memory, working
from certus.cli.screen import Stop, progress


def by_blocks(model_path: Path, paths: Sequence[Path]) -> bool:
    """Whether the model was fitted by blocks, and the table can be read so."""
    from certus import persist

    if not all(path.suffix.lower() in ENDINGS for path in paths):
        return False
    try:
        about = persist.read_manifest(model_path)
    except persist.ModelFileError:
        return False  # said where the model is read
    stated = about["certificate"]
    if (about["split"] or {}).get("rule") is not None:
        return True
    return stated is not None and "blocks" in (stated.fingerprint or {})


def certify(
    model_path: Path,
    paths: Sequence[Path],
    target: str | None,
    level: str,
    as_json: bool,
    explain: bool,
    memory: str | None,
    cluster: str | None,
) -> int:
    """Recompute certificate and risk over the blocks; returns the exit code."""
    with progress(3) as step:
        model, split = read_model(model_path, step)
        name = target or (split or {}).get("target")
        if name is None:
            raise Stop(
                f"{model_path.name} does not say which column is its target. Name it: "
                "--target COLUMN",
                code=2,
            )
        large = describe(paths)
        with working(large, read_memory(memory), cluster, None):
            found = _recheck(model, split, places_for(paths, cluster), name, level)
    return say_recheck(found, split, [], as_json, explain)


def _recheck(model: Any, split: Any, paths: list[str], name: str, level: str) -> Any:
    from certus.blocks.parts import count_parts
    from certus.certifying import certify as recompute
    from certus.fingerprints import same_data
    from certus.scale import blocks
    from certus.selection import Recheck
    from certus.selection.at_scale import LEARNT, SEALED, divide, open_part, rule_of
    from certus.selection.opening import AskedMetric

    roles = {role: (split or {}).get(role) for role in ("groups", "time")}
    columns = [str(n) for n in model.feature_names_in_]
    table = blocks(paths, name, columns=columns, **roles)
    learnt, sealed = table, None
    if split is not None and split.get("rule") is not None:
        rule = rule_of(split)
        parts = divide(table, rule, count_parts(table, rule))
        learnt, sealed = parts[LEARNT], parts[SEALED]
    found = recompute(model, learnt, level=level)
    same = same_data(model.certificate_.fingerprint, found.fingerprint)
    if not same or sealed is None:
        return Recheck(found, (), same, 0)
    risk = open_part(model, sealed, AskedMetric.read(split)).claims
    return Recheck(found, risk, same, len(sealed))
