"""`lotan router`."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_BIND = "tcp://127.0.0.1:5570"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where it listens."""
    parser.add_argument(
        "--bind",
        default=DEFAULT_BIND,
        metavar="URL",
        help="where to listen, such as tcp://0.0.0.0:5570; a port of * takes any free one; beyond loopback, --keys is\n"
        f"needed (default: {DEFAULT_BIND})",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="directory of CurveZMQ keys. Without a Router's pair in it, one for the Router and one for its clients are\n"
        "made: copy router.public and client.* to where workers and `lotan train` run (default: no keys)",
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
