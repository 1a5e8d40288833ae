"""``python -m certus``: the command line when ``certus`` is not on the path."""

from __future__ import annotations

import sys

from certus.cli import main

if __name__ == "__main__":
    sys.exit(main())
