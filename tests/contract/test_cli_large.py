"""``certus fit`` and ``certus certify`` on tables that are read by blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus.cli import fitting_large, large, main
from certus.cli.screen import Stop


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder, with two files of rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting_large, "REPORT_SECONDS", 0.6)
    for i in range(2):
        write_rows(f"rows{i}.parquet", seed=i)
    return tmp_path


FILES = ["rows0.parquet", "rows1.parquet"]


def write_rows(path: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 3))
    z = X @ [1.0, -1.0, 0.5] + rng.normal(size=2000)
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    frame.with_columns(
        note=pl.lit("text"),
        gap=pl.Series([None, *range(1999)]),
        price=pl.Series(z),
        kind=pl.Series(np.where(z > 0.7, "in", "out")),
    ).write_parquet(path, row_group_size=400)


def fit(capsys: Any, *args: str) -> Any:
    assert main(["fit", *FILES, *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_table_is_compared_checked_and_written(capsys: Any) -> None:
    found = fit(capsys, "--target", "kind", "--drop", "price")
    assert found["data"]["rows"] == 4000 and found["data"]["by_blocks"] == "2 files"
    notes = " ".join(found["data"]["notes"])
    assert '"note" is left out' in notes and "1 missing values" in notes
    split = found["comparison"]["split"]
    parts = [split[f"{n}_rows"] for n in ("training", "held_out", "sealed")]
    assert sum(parts) == 4000 and np.allclose(parts, [2400, 800, 800], atol=120)
    assert found["certificate"]["n_samples"] == parts[0]
    assert found["certificate"]["status"] == "solved"
    scores = {row["name"]: row["mean"] for row in found["comparison"]["candidates"]}
    chosen = found["comparison"]["chosen"]
    others = {name: value for name, value in scores.items() if "constant" not in name}
    assert scores[chosen] == min(others.values()) < 0.8 * scores["best constant"]
    assert found["peak_memory"] >= 0
    page = Path(found["files"]["report"]).read_text("utf-8")
    assert "LogisticRegression" in page
    # On the laptop: the same lines from the same files.
    stated = {c["name"]: c["value"] for c in found["comparison"]["risk"]}
    assert main(["certify", "rows0.certus", *FILES, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same_data"] and again["sealed_rows"] == parts[2]
    assert {c["name"]: c["value"] for c in again["risk"]} == stated
    values = [c["value"] for c in found["certificate"]["claims"]]
    assert [c["value"] for c in again["certificate"]["claims"]] == values
    # The same rows in another order are other data, though still solved.
    assert main(["certify", "rows0.certus", *FILES[::-1], "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert not other["same_data"] and not other["risk"]


def test_the_model_is_that_of_the_rows_in_memory(capsys: Any) -> None:
    """One model: coefficients are those of the learnt rows, errors of the sealed."""
    options = ["--target", "price", "--drop", "kind", "--model", "ridge"]
    found = fit(capsys, *options, "--set", "alpha=3.0")
    model = certus.load("rows0.certus")
    split = certus.persist.read_manifest("rows0.certus")["split"]
    from certus.scale import blocks
    from certus.selection.at_scale import rule_of

    table = blocks(FILES, "price", columns=["a", "b", "c"])
    read = [table.read(key) for key in table.keys]
    X, y = (np.concatenate([b[i] for b in read]) for i in (0, 1))
    part = rule_of(split).parts(read[0]._replace(X=X), 0)
    whole = type(model)(alpha=3.0).fit(X[part == 2], y[part == 2])
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-9)
    rmse = np.sqrt(np.mean((y - whole.predict(X))[part == 0] ** 2))
    risk = {c["name"]: c for c in found["comparison"]["risk"]}
    assert risk["rmse"]["detail"].startswith(f"{rmse:.3g}")


def test_a_size_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [Path(FILES[0])]
    assert large.look(paths) is None
    size = 2000 * 7 * 8
    assert large.look(paths, 4 * size) is None
    found = large.look(paths, 4 * size - 4)
    assert found is not None and "more than a quarter of the memory given" in found[4]
    monkeypatch.setattr(large, "free_memory", lambda: 4 * size - 4)
    found = large.look(paths)
    assert found is not None and "of the free memory" in found.reason
    assert large.look([Path("table.csv")]) is None
    with pytest.raises(Stop, match="--memory 1 MB is too little: one block needs"):
        large.threads_within(found, 1_000_000)
    needed = large.COPIES * 8 * 2000 * 7 + found.largest + large.REST
    assert large.threads_within(found, needed) == 1


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2 * 10**9), ("512 MiB", 512 << 20), ("100", 100)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert large.read_memory(text) == size


def test_impossible_limits_are_refused(capsys: Any) -> None:
    for more, said in (
        (["--memory", "lots"], "must be a size such as 2GB"),
        (["--groups", "a", "--time", "b"], "cannot be used together"),
        (["--groups", "none"], 'has no column "none"'),
        (["--bounds", "0,1"], "needs all rows in memory"),
        (["--refit"], "needs all rows in memory"),
        (["--drop", "nothing"], 'no column "nothing"'),
    ):
        assert main(["fit", *FILES, "--target", "kind", *more]) in (1, 2)
        text = " ".join(capsys.readouterr().err.split())
        assert said in text, text
    assert main(["fit", *FILES]) == 2
    assert not list(Path().glob("*.certus"))


@pytest.mark.parametrize("role", ["groups", "time"])
def test_groups_and_times_are_kept_and_certified_again(capsys: Any, role: str) -> None:
    for i, path in enumerate(FILES):
        frame = pl.read_parquet(path).with_columns(
            user=pl.Series([f"user {(7 * j + i) % 97}" for j in range(2000)]),
            day=pl.Series(np.arange(2000) + 2000 * (1 - i)).cast(pl.Date),
        )
        frame.write_parquet(path, row_group_size=400)
    column = {"groups": "user", "time": "day"}[role]
    asked = ["--target", "kind", "--drop", "price", "--model", "logistic"]
    found = fit(capsys, *asked, f"--{role}", column)
    split = found["comparison"]["split"]
    assert split[role] == column and found["files"]["report"] is None
    assert not list(Path().glob("*.html"))
    if role == "time":
        assert abs(split["sealed_rows"] - 800) <= 8
    assert main(["certify", "rows0.certus", *FILES, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same_data"] and again["risk"] == found["comparison"]["risk"]


def test_too_little_time_is_reported(capsys: Any, monkeypatch: Any) -> None:
    args = ["fit", *FILES, "--target", "kind", "--max-time", "0.01"]
    assert main(args) == 2
    assert "is too short" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr("certus.cli.limits.LEAST", 0.0)
    monkeypatch.setattr("certus.cli.limits.WHOLE", 0.0)
    assert main(args) == 1
    assert "no model was fitted within" in " ".join(capsys.readouterr().err.split())
    assert not list(Path().glob("*.certus"))


def test_a_checkpoint_saves_the_passes(capsys: Any) -> None:
    options = ["--target", "price", "--drop", "kind", "--checkpoint", "kept"]
    first = fit(capsys, *options)
    lines = first["comparison"]["candidates"]
    assert sum("lasso" in line["name"] for line in lines) == 2
    assert all(line["mean"] for line in lines), lines
    size = Path("kept").stat().st_size
    second = fit(capsys, *options)
    assert size > 100 and Path("kept").stat().st_size == size
    for name in ("candidates", "risk"):
        left, right = first["comparison"][name], second["comparison"][name]
        for a, b in zip(left, right, strict=True):
            a.pop("seconds", None), b.pop("seconds", None)
        assert left == right


def test_free_memory_keeps_to_the_limits_of_a_container(monkeypatch):
    from certus._core import free_memory

    monkeypatch.setattr(free_memory, "_of_container", lambda: 12_345)
    assert large.free_memory() == 12_345
    for name in ("_available", "_of_container", "_of_process"):
        monkeypatch.setattr(free_memory, name, lambda: None)
    assert large.free_memory() > 0
