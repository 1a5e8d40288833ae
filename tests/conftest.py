"""Settings shared by all tests: how hypothesis draws its examples, array API checks.

On a build server (``CI`` set) the examples are the same in every run, so that a red
build can be repeated; elsewhere each run explores new ones. There is no deadline: the
first call of a compiled kernel takes as long as its compilation.
"""

import os

# Read when SciPy is first imported; without it scikit-learn skips its array API checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "local",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
