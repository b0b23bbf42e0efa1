"""The `lotan` command, as `python -m lotan`."""

from __future__ import annotations

import sys

from lotan.cli import main

sys.exit(main())
