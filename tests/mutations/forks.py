"""Runs pytest in forks of a process that has loaded the large libraries already, but nothing of this project.

Each line of standard input is a JSON list: a file for what pytest prints, then pytest's arguments. The answer is a line with
pytest's status. Loading torch, torch_geometric and pyspark takes longer than most of the tests that find a fault.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Load, then answer until there are no more lines."""
    import hypothesis  # noqa: F401
    import pandas  # noqa: F401
    import pyspark.sql  # noqa: F401
    import pytest
    import torch_geometric.nn  # noqa: F401

    sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]
    print("ready", flush=True)
    for line in sys.stdin:
        out, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            with open(out, "w") as file:
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
                os.setsid()  # so that what a test sends to its process group reaches no other
                status = pytest.main(arguments)
                sys.stdout.flush()
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
