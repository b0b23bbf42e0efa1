"""The command `lotan worker`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lotan.cli.options import number
from lotan.settings.byte_sizes import byte_count


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the Router and the worker's resources."""
    parser.add_argument(
        "--router", required=True, metavar="URL", help="address of the Router to work for, such as tcp://host:5570"
    )
    parser.add_argument(
        "--keys", type=Path, metavar="DIR", help="directory of CurveZMQ keys, if the Router has keys (default: none)"
    )
    parser.add_argument("--name", help="name, unique among the Router's workers (default: host and process id)")
    parser.add_argument("--threads", type=number(int, 1), default=1, metavar="N", help="torch's threads (default: 1)")
    parser.add_argument(
        "--memory",
        default="1g",
        metavar="SIZE",
        help="memory for activations between forward and backward, such as 512m. The rest goes to a file in $TMPDIR, or\n"
        "is computed again if that is estimated to be cheaper (default: 1g)",
    )


def run(options: argparse.Namespace) -> int:
    """Run stages until the Router says stop, or until Ctrl-C."""
    import os
    from tempfile import gettempdir

    from lotan.hosts.session import worker_environment

    memory = byte_count("--memory", options.memory, least=0)
    os.environ.update(worker_environment(options.threads) | os.environ)
    from lotan.worker.serving import WorkerSettings, serve

    name = options.name or f"{os.uname().nodename}-{os.getpid()}"
    print(f"worker {name} for {options.router}", flush=True)
    serve(
        WorkerSettings(
            router=options.router,
            name=name,
            keys=options.keys,
            threads=options.threads,
            memory=memory,
            spill=gettempdir(),
        )
    )
    return 0
