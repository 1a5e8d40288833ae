"""The example for Spark gives the bits of this machine; run by ``make test-spark``.

pyspark is in an environment of its own, whose Python CERTUS_SPARK names.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

PYTHON = os.environ.get("CERTUS_SPARK", "")
EXAMPLES = Path(__file__).parents[3] / "examples" / "clusters"


def run(script: str, *args: str) -> str:
    """What Python prints in the folder of the examples, in Spark's environment."""
    done = subprocess.run(
        [PYTHON, script, *args] if args else [PYTHON, "-c", script],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="make test-spark installs pyspark")
def test_spark_gives_the_bits_of_this_machine(tmp_path: Path) -> None:
    place = str(tmp_path)
    start = "import anywhere, pathlib; place = "
    run(f"{start}pathlib.Path({place!r}); anywhere.write_rows(place, 2, 8_000)")
    local = run(f"import anywhere; anywhere.main(None, {place!r})")
    spark = run("spark.py", "local[2]", place)
    digest = re.compile(r"digest of the coefficients: ([0-9a-f]{12})")
    here, there = digest.findall(local), digest.findall(spark)
    assert len(here) == 1 and there == here
    assert "the same bits" in spark and "the same bits" not in local
