"""`lotan router`."""

from __future__ import annotations

import argparse

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
        metavar="DIR",
        help="directory of CurveZMQ keys. Without a Router's pair in it, one for the Router and one for its clients are\n"
        "made: copy router.public and client.* to where workers and `lotan train` run (default: no keys)",
    )


def run(options: argparse.Namespace) -> int:
    """Route until Ctrl-C."""
    from pathlib import Path

    from messenger.keys import ROUTER_NAME, CurveKeys, allowed_keys, create_keys
    from messenger.router import Router
    from messenger.settings import Settings
    from messenger.sockets import ZmqHub

    keys, allowed = None, frozenset[str]()
    if options.keys:
        directory = Path(options.keys)
        if not (directory / f"{ROUTER_NAME}.secret").exists():
            create_keys(directory)
            print(f"made keys in {directory}; copy router.public and client.* to the other hosts")
        keys, allowed = CurveKeys.load(directory, ROUTER_NAME), allowed_keys(directory)
    settings = Settings()
    router = Router(ZmqHub(options.bind, settings, keys, allowed), settings)
    print(f"listening on {router.address}", flush=True)
    router.run()
    return 0
