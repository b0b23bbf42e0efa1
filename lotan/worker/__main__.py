"""The worker process, as `python -m lotan.worker`."""

import sys

from lotan.worker.serving import main

sys.exit(main())
