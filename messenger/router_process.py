"""The Router as a process of its own: `python -m messenger.router_process`, or `lotan router`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from messenger.errors import MessengerError
from messenger.parent import when_stdin_ends
from messenger.router import Router
from messenger.settings import Settings
from messenger.sockets import open_hub


def serve(
    bind: str,
    keys_directory: Path | None = None,
    address_file: Path | None = None,
    exit_with_parent: bool = False,
    settings: Settings | None = None,
) -> None:
    """Route messages until the coordinator, SIGTERM, SIGINT or the end of standard input stops the Router.

    Only the main thread may call this.

    Args:
        bind: the address to listen on, such as tcp://127.0.0.1:* for any free port.
        keys_directory: a directory as `messenger.keys` describes it, which is needed beyond loopback (default: no keys).
        address_file: the file to which the address is written in one step. By default the address is the first line of
            standard output.
        exit_with_parent: if True, end when standard input ends, so that the Router does not outlive a driver that was
            killed. The parent must give this process a pipe (default: False).
        settings: deadlines and limits, and the credits and heartbeats of all peers (default: `Settings()`).

    Raises:
        MessengerError: the Router cannot listen on the address.
    """
    settings = settings or Settings()
    router = Router(open_hub(bind, keys_directory, settings), settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: router.stop())
    if exit_with_parent:
        when_stdin_ends(router.stop)
    announce(router.address, address_file)
    router.run()


def announce(address: str, address_file: Path | None) -> None:
    """Write the Router's address to a file, or print it if no file is given."""
    if address_file is None:
        print(address, flush=True)
        return
    temporary = address_file.with_name(f".{address_file.name}.{os.getpid()}")
    temporary.write_text(address + "\n")
    temporary.rename(address_file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="lotan router", description="Pass micro-batches between Spark tasks and workers."
    )
    parser.add_argument(
        "--bind", default="tcp://127.0.0.1:*", help="where to listen (default: %(default)s, any free port)"
    )
    parser.add_argument("--keys", type=Path, help="directory of CurveZMQ keys; needed beyond loopback")
    parser.add_argument("--address-file", type=Path, help="write the address to this file instead of standard output")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input ends")
    parser.add_argument("--verbose", action="store_true", help="report who comes and goes on standard error")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, format="lotan router: %(message)s")
    try:
        serve(options.bind, options.keys, options.address_file, options.exit_with_parent)
    except MessengerError as error:
        print(f"lotan router: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
