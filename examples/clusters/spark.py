"""The script of ``anywhere.py`` on a Spark cluster, by an engine of a few lines.

    python examples/clusters/spark.py local[2]                     # this machine
    python examples/clusters/spark.py spark://master:7077 /shared  # a cluster

An engine has one method, ``run``. Spark's workers need the same Python packages and see
the folder under the same path; Spark itself does lost tasks again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from anywhere import main
from threadpoolctl import threadpool_limits

import certus
from certus.scale import Blocks


class Spark:
    """Blocks on the workers of a Spark cluster; ``session`` is a SparkSession."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def run(
        self, blocks: Blocks, work: Callable[..., Any], state: tuple[Any, ...]
    ) -> Iterator[Any]:
        """Results in the order of the keys."""

        def one(task: tuple[Any, Blocks]) -> Any:
            key, alone = task
            with threadpool_limits(1):  # the bits of a block do not depend on threads
                return work(alone.read(key), *state)

        tasks = [(key, blocks.only(key)) for key in blocks.keys]
        rows = self.session.sparkContext.parallelize(tasks, len(tasks))
        return iter(rows.map(one).collect())


def on_spark(master: str, folder: str | None = None) -> str:
    """Fit on the cluster; returns the digest of the coefficients."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not the system's Python
    session = SparkSession.builder.master(master).appName("certus").getOrCreate()
    try:
        with certus.config_context(engine=Spark(session)):
            return main(None, folder)
    finally:
        session.stop()


if __name__ == "__main__":
    on_spark(*sys.argv[1:])
