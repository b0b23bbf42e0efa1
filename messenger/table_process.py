"""A row table as a process of its own: `python -m messenger.table_process`, or `lotan table`."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from messenger.errors import MessengerError
from messenger.parent import when_stdin_ends
from messenger.row_files import RowFiles
from messenger.settings import Settings
from messenger.sockets import open_hub
from messenger.table_loop import TableLoop


def serve(
    bind: str,
    keys_directory: Path | None = None,
    limit: int | None = None,
    folder: Path | None = None,
    exit_with_parent: bool = False,
    settings: Settings | None = None,
) -> None:
    """Hold rows until SIGTERM, SIGINT or the end of standard input stops the table. Its address is printed first.

    Only the main thread may call this.

    Args:
        bind: the address to listen on, such as tcp://127.0.0.1:* for any free port.
        keys_directory: a directory as `messenger.keys` describes it, which is needed beyond loopback (default: no keys).
        limit: the most bytes that rows and timestamps may take; None for any number (default: None).
        folder: a folder for the table's files, from which it is restored; None if a table that ends is lost (default:
            None).
        exit_with_parent: if True, end when standard input ends, and delete the folder. The parent must give this process a
            pipe (default: False).
        settings: deadlines and limits (default: `Settings()`).

    Raises:
        MessengerError: the table cannot listen on the address, or its files cannot be used.
    """
    settings = settings or Settings()
    files = None if folder is None else RowFiles(folder)
    loop = TableLoop(open_hub(bind, keys_directory, settings), settings, limit, files)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    orphaned = threading.Event()
    if exit_with_parent:

        def end() -> None:
            orphaned.set()
            loop.stop()

        when_stdin_ends(end)
    print(loop.address, flush=True)
    loop.run()
    if orphaned.is_set() and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)  # nobody will start this table again


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="lotan table", description="Hold learned rows for a trainer.")
    parser.add_argument("--bind", default="tcp://127.0.0.1:*", help="where to listen (default: %(default)s)")
    parser.add_argument("--keys", type=Path, help="directory of CurveZMQ keys; needed beyond loopback")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="the most bytes of its rows (default: any number)")
    parser.add_argument("--folder", type=Path, help="folder for its files (default: a table that ends is lost)")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input ends")
    parser.add_argument("--verbose", action="store_true", help="report who comes and goes on standard error")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, format="lotan table: %(message)s")
    try:
        serve(options.bind, options.keys, options.memory, options.folder, options.exit_with_parent)
    except MessengerError as error:
        print(f"lotan table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
