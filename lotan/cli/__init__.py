"""The `lotan` command: one file a command, each with `add_options(parser)` and `run(options) -> exit status`.

Exit status: 0 done; 1 the run failed (`doctor`: training cannot run here); 2 what was given cannot be used; 130 Ctrl-C.
Nothing here imports torch or pyspark before a command needs them, so that `lotan --help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from lotan.cli.interrupt import exit_soon_after_interrupt, leave_at_once
from lotan.errors import EngineError, LotanError
from messenger.errors import MessengerError

COMMANDS = {
    "train": "train a model on a graph",
    "explain": "print the plan that train would run, without running it",
    "predict": "predict the vertices of a graph with a saved model",
    "router": "start a Router by hand, for workers on other hosts",
    "worker": "start a DL worker by hand, connected to a Router",
    "doctor": "say what is here, which versions, what is wrong and how to mend it",
    "datasets": "list the graphs that go by a name, or generate one",
}
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `lotan`; those of this process by default.

    Returns:
        The exit status, see above.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given).parse_args(given)
    try:
        with exit_soon_after_interrupt(INTERRUPTED):
            return int(import_module(f"lotan.cli.{options.command}").run(options))
    except KeyboardInterrupt:
        print("lotan: interrupted", file=sys.stderr)
        if arguments is None:  # this process is the command's own
            leave_at_once(INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:  # `lotan explain ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (LotanError, MessengerError) as error:  # the messenger's own, from `lotan router` and `lotan worker`
        print(f"lotan: {error}", file=sys.stderr)
        return 1 if isinstance(error, EngineError | MessengerError) else 2
    except OSError as error:  # a disk that is full, a file that went away
        print(f"lotan: {error}; free some space, mend the permissions or name another place", file=sys.stderr)
        return 1


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    from lotan import __version__

    parser = argparse.ArgumentParser(
        prog="lotan",
        description="Exact full-batch GNN training on graphs that live in Spark tables, treated as a query plan.",
        epilog="lotan COMMAND --help says more. Start with: lotan doctor; lotan train --graph digits --model gcn",
    )
    parser.add_argument("--version", action="version", version=f"lotan {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawTextHelpFormatter,
        )
        if name in given:
            import_module(f"lotan.cli.{name}").add_options(command)
    return parser
