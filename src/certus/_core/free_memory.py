"""How much memory may still be used here."""

from __future__ import annotations

from pathlib import Path


def memory_free() -> int | None:
    """Bytes that may still be used here, or None where that cannot be told."""
    found = [_available(), _of_container(), _of_process()]
    return min((value for value in found if value is not None), default=None)


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def _of_container() -> int | None:
    """Free memory within the limit of a container; cached files count as free."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        stat = (folder / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    kept = int(stat[stat.index("inactive_file") + 1]) if "inactive_file" in stat else 0
    return max(0, int(limit) - used + kept)


def _of_process() -> int | None:
    """Free memory within a limit on the process, such as by ``ulimit -v``."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return limit
    return max(0, limit - pages * resource.getpagesize())
