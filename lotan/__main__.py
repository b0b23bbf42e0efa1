"""`python -m lotan` is the `lotan` command."""

from __future__ import annotations

import sys

from lotan.cli import main

sys.exit(main())
