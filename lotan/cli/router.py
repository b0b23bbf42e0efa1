"""The command `lotan router`."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_BIND = "tcp://127.0.0.1:5570"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the Router's address and keys."""
    parser.add_argument(
        "--bind",
        default=DEFAULT_BIND,
        metavar="URL",
        help="address to listen on, such as tcp://0.0.0.0:5570. A port of * takes any free port. Beyond loopback, --keys\n"
        f"is needed (default: {DEFAULT_BIND})",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="directory of CurveZMQ keys. If it has no keys of a Router, a pair for the Router and a pair for its clients\n"
        "are made. Copy router.public and client.* to the hosts of workers and `lotan train` (default: no keys)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the address, then route until Ctrl-C."""
    from messenger.keys import ROUTER_NAME, create_keys
    from messenger.router_process import serve

    if options.keys and not (options.keys / f"{ROUTER_NAME}.secret").exists():
        create_keys(options.keys)
        print(f"made keys in {options.keys}; copy router.public and client.* to the other hosts", flush=True)
    serve(options.bind, options.keys)
    return 0
