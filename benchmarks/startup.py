"""What a user waits for before the first result, measured in fresh processes.

Importing certus beyond numpy, and the first fit beyond importing numba and
scikit-learn. One unmeasured process fills the kernel cache on disk; best of three.
"""

import subprocess
import sys
from typing import Any

CLOCK = "import sys, time; clock = time.perf_counter; {before}; t = clock(); {timed}; "
CLOCK += "print(clock() - t)"
DATA = "import numpy as np; X = np.random.default_rng(0).standard_normal((50, 5)); "

#: name → (done before the clock starts, timed, seconds allowed)
STARTS = {
    "import certus beyond numpy": ("import numpy", "import certus", 0.05),
    "first Lasso beyond numba and sklearn": (
        DATA + "import numba, sklearn.linear_model",
        "from certus.linear_model import Lasso; Lasso(alpha=0.1).fit(X, X[:, 0])",
        0.6,
    ),
    "first LogisticRegression beyond numba and sklearn": (
        DATA + "import numba, sklearn.linear_model",
        "from certus.linear_model import LogisticRegression; "
        "LogisticRegression().fit(X, X[:, 0] > 0)",
        0.6,
    ),
}


def measure_startup(repeat: int = 3) -> dict[str, Any]:
    """Seconds and limit of each start, or the error that prevented it."""
    found: dict[str, Any] = {}
    for name, (before, timed, limit) in STARTS.items():
        code = CLOCK.format(before=before, timed=timed)
        runs = [_run(code) for _ in range(repeat + 1)][1:]
        failed = [run.stderr for run in runs if run.returncode]
        if failed:
            error = (failed[0].strip().splitlines() or ["no message"])[-1]
            found[name] = {"limit": limit, "error": error}
            continue
        seconds = min(float(run.stdout.split()[-1]) for run in runs)
        found[name] = {"limit": limit, "seconds": seconds, "met": seconds < limit}
    return found


def _run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
