"""The worker process from its command line to its end: `lotan worker`, or `python -m lotan.worker`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lotan.worker.handler import StageHandler
from messenger.errors import MessengerError
from messenger.keys import keyed_endpoint
from messenger.parent import when_stdin_ends
from messenger.settings import Settings
from messenger.worker_loop import WorkerLoop
from planner.chunks import SAVED_BYTES


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker: its Router and its resources."""

    router: str  # the Router's address
    name: str  # a name that is unique among the Router's workers
    keys: Path | None = None  # directory of CurveZMQ keys
    threads: int = 1  # torch's threads
    memory: int = SAVED_BYTES  # bytes that forward runs may save in memory for their backward
    spill: str | None = None  # folder for what exceeds them; None: it is computed again
    exit_with_parent: bool = False  # end when standard input ends
    messenger: Settings = field(default_factory=Settings)


def serve(settings: WorkerSettings) -> None:
    """Run stages until the Router says stop, or until SIGTERM or SIGINT. It must be called in the main thread.

    Raises:
        MessengerError: If the Router cannot be reached, refuses this worker, or falls silent.
    """
    torch.set_num_threads(settings.threads)
    handler = StageHandler(settings.memory, settings.spill)
    endpoint = keyed_endpoint(settings.router, settings.keys)
    loop = WorkerLoop(endpoint, handler, settings.name, settings.messenger)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    if settings.exit_with_parent:
        # the results of a running stage have no receiver any more
        when_stdin_ends(lambda: os._exit(0))
    loop.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, format="lotan worker: %(message)s")
    name = options.name or f"{os.uname().nodename}-{os.getpid()}"
    settings = WorkerSettings(
        router=options.router,
        name=name,
        keys=options.keys,
        threads=options.threads,
        memory=options.memory,
        spill=options.spill,
        exit_with_parent=options.exit_with_parent,
        messenger=Settings(kept_bytes=options.kept, kept_row_bytes=options.kept_rows),
    )
    try:
        serve(settings)
    except MessengerError as error:
        print(f"lotan worker: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line of `python -m lotan.worker`."""
    found = argparse.ArgumentParser(prog="lotan worker", description="Run the neural stages of a training.")
    found.add_argument("--router", required=True, metavar="tcp://HOST:PORT", help="address of the Router to work for")
    found.add_argument(
        "--keys", type=Path, metavar="DIR", help="directory of CurveZMQ keys, if the Router has some keys"
    )
    found.add_argument("--name", help="name, unique among the Router's workers (default: host and process)")
    found.add_argument("--threads", type=int, default=1, help="torch's threads (default: %(default)s)")
    found.add_argument(
        "--memory", type=int, default=SAVED_BYTES, metavar="BYTES",
        help="memory between forward and backward (default: %(default)s)",
    )  # fmt: skip
    found.add_argument("--spill", metavar="DIR", help="folder for what exceeds it (default: it is computed again)")
    found.add_argument(
        "--kept", type=int, default=Settings().kept_bytes, metavar="BYTES",
        help="memory for tensors that are sent once; those that do not fit are sent again (default: %(default)s)",
    )  # fmt: skip
    found.add_argument(
        "--kept-rows", type=int, default=Settings().kept_row_bytes, metavar="BYTES",
        help="the part of it for rows of mini-batches; 0 for none (default: %(default)s)",
    )  # fmt: skip
    found.add_argument("--exit-with-parent", action="store_true", help="end when standard input ends")
    found.add_argument("--verbose", action="store_true", help="print more on standard error")
    return found
