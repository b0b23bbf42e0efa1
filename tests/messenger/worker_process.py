"""A worker as a process: python -m tests.messenger.worker_process ADDRESS NAME [KEYS DIRECTORY]. Ends with standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from messenger.errors import MessengerError
from messenger.keys import keyed_endpoint
from messenger.parent import when_stdin_ends
from messenger.worker_loop import WorkerLoop
from tests.messenger.network import QUICK
from tests.messenger.numpy_handler import NumpyHandler


def main(address: str, name: str, keys: str = "") -> None:
    when_stdin_ends(lambda: os._exit(0))
    try:
        WorkerLoop(keyed_endpoint(address, Path(keys) if keys else None), NumpyHandler(name), name, QUICK).run()
    except MessengerError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
