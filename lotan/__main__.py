"""The `lotan` command, as `python -m lotan`."""

from __future__ import annotations

import sys

try:
    from lotan.cli import main

    sys.exit(main())
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] in ("lotan", "planner", "messenger"):
        raise
    sys.exit(
        f"lotan: this Python, {sys.executable}, has no {error.name}. Activate the environment that lotan is installed in "
        "(source .venv/bin/activate), or call its own `lotan`"
    )
