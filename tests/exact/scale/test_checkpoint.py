"""A fit that was killed goes on from its checkpoint, to the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus.blocks import total
from certus.blocks.checkpoint import Checkpoint, PassesError, pack, unpack
from certus.blocks.totals import tree
from certus.linear_model import LogisticRegression, Ridge
from certus.scale import blocks


def write_rows(path: Path, n: int = 3000, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    kind = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=n) > 0.2, "in", "out")
    frame = pl.DataFrame(X, schema=list("abc")).with_columns(kind=pl.Series(kind))
    frame.write_parquet(path, row_group_size=300)
    return path


#: Fits, and dies as by SIGKILL after so many blocks.
CLIENT = """
import os, sys
import certus
from certus.blocks.local import run_here
from certus.linear_model import LogisticRegression
from certus.scale import blocks

class Dying:
    left = int(sys.argv[3])
    def run(self, blocks, work, state):
        for part in run_here(blocks, work, state):
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), 9)
            yield part

with certus.config_context(engine=Dying(), checkpoint=sys.argv[2]):
    LogisticRegression().fit(blocks(sys.argv[1], "kind"))
"""


def bits(model: Any) -> bytes:
    found = (model.coef_, model.intercept_, model.certificate_.value, model.n_iter_)
    return b"".join(np.asarray(each).tobytes() for each in found)


class Counting:
    """An engine that counts passes."""

    passes = 0

    def run(self, blocks: Any, work: Any, state: Any) -> Any:
        self.passes += 1
        return (work(blocks.read(key), *state) for key in blocks.keys)


def test_a_killed_client_goes_on(tmp_path: Path) -> None:
    path, kept = write_rows(tmp_path / "rows.parquet"), tmp_path / "fit.checkpoint"
    table = blocks(path, "kind")
    whole, again = Counting(), Counting()
    with certus.config_context(engine=whole):
        expected = bits(LogisticRegression().fit(table))
    run = [sys.executable, "-c", CLIENT, str(path), str(kept), "35"]
    assert subprocess.run(run, check=False).returncode == -9
    done = len(Checkpoint(kept))
    assert 3 <= done < whole.passes  # of ten blocks each, the first ones of fewer
    with certus.config_context(engine=again, checkpoint=kept):
        assert bits(LogisticRegression().fit(table)) == expected
    assert again.passes == whole.passes - done


def test_other_rows_models_and_settings_start_afresh(tmp_path: Path) -> None:
    path, kept = write_rows(tmp_path / "rows.parquet"), tmp_path / "fit.checkpoint"
    with certus.config_context(checkpoint=kept):
        LogisticRegression().fit(blocks(path, "kind"))
        write_rows(path, seed=1)
        found = LogisticRegression().fit(blocks(path, "kind"))
        other = LogisticRegression(C=0.01).fit(blocks(path, "kind"))
    assert bits(found) == bits(LogisticRegression().fit(blocks(path, "kind")))
    plain = LogisticRegression(C=0.01).fit(blocks(path, "kind"))
    assert bits(other) == bits(plain)
    X = np.arange(12.0).reshape(6, 2)
    with certus.config_context(checkpoint=kept):
        assert total(blocks(X), _sum) == 66.0
        X[0, 0] = 5.0
        assert total(blocks(X), _sum) == 71.0


def _sum(block: Any) -> float:
    return float(block.X.sum())


def test_penalties_share_the_sums_of_a_pass(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table, engine = blocks(rng.normal(size=(50, 2)), rng.normal(size=50)), Counting()
    with certus.config_context(
        engine=engine, checkpoint=tmp_path / "kept", certify="never"
    ):
        for alpha in (0.1, 1.0, 10.0):
            Ridge(alpha=alpha).fit(table)
    assert engine.passes == 1


def test_an_unfinished_pass_is_left_out(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first = Checkpoint(kept)
    first.keep(b"a" * 32, 1.5)
    whole = kept.stat().st_size
    first.keep(b"b" * 32, np.arange(5))
    content = kept.read_bytes()
    for cut in (whole + 3, whole + 75, len(content) - 1):
        kept.write_bytes(content[:cut])
        found = Checkpoint(kept)
        assert found.find(b"a" * 32) == 1.5 and found.find(b"b" * 32) is None
    found.keep(b"c" * 32, "more")
    assert Checkpoint(kept).find(b"c" * 32) == "more"
    assert kept.read_bytes()[:whole] == content[:whole]


def test_a_damaged_pass_is_computed_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    Checkpoint(kept).keep(b"a" * 32, np.arange(5))
    content = bytearray(kept.read_bytes())
    content[-3] ^= 1
    kept.write_bytes(bytes(content))
    assert Checkpoint(kept).find(b"a" * 32) is None


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    """/dev/full refuses every byte."""
    path = write_rows(tmp_path / "rows.parquet")
    said = pytest.warns(RuntimeWarning, match="No space left.*goes on without it")
    with certus.config_context(checkpoint="/dev/full"), said:
        model = LogisticRegression().fit(blocks(path, "kind"))
    assert bits(model) == bits(LogisticRegression().fit(blocks(path, "kind")))


def test_other_files_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("dear diary")
    with pytest.raises(PassesError, match="not a checkpoint of certus"):
        certus.set_config(checkpoint=path)
    with pytest.raises(ValueError, match="path of a file"):
        certus.set_config(checkpoint=3)
    assert path.read_text() == "dear diary"


def test_nothing_foreign_is_built_from_a_file() -> None:
    forged = pack((1, 2)).replace(b'{"tuple": [1, 2]}', b'{"tuple": [1, 2]}')
    assert unpack(forged) == (1, 2)
    for module, name in (("os", "stat_result"), ("certus.config", "threading")):
        content = b'{"named": ["%s", "%s"], "parts": [1]}' % (
            module.encode(),
            name.encode(),
        )
        size = len(content).to_bytes(8, "little")
        with pytest.raises(PassesError, match="is not ours"):
            unpack(size + content)
    with pytest.raises(TypeError):
        pack(tree)
