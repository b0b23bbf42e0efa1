"""The `lotan` command. Each subcommand has a file of its own with `add_options(parser)` and `run(options) -> exit status`.

The exit status is 0 for success, 1 if the run failed (`doctor`: training cannot run here), 2 if the input is unusable,
and 130 after Ctrl-C. No module of this package imports torch or pyspark before a command needs them, so that `lotan
--help` answers at once. Little is imported before `main` runs, because Ctrl-C is not handled until then.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from lotan.errors import EngineError, LotanError
from messenger.errors import MessengerError

if TYPE_CHECKING:
    import argparse
    from threading import Event

COMMANDS = {
    "train": "train a model on a graph",
    "rerun": "repeat the run in a folder of `lotan train --log-dir`, and compare the results",
    "tune": "train the models of a grid on one graph over shared passes, and compare them",
    "compare": "train a model in full batch and in mini-batches, and say how soon each is as good as a target",
    "explain": "print the plan that `lotan train` would run, without running it",
    "partition": "write a graph to a folder in partitions, for training from a disk: its links, or its edges and features",
    "predict": "predict the vertices of a graph, or score links, with a saved model",
    "router": "start a Router for workers on other hosts",
    "worker": "start a DL worker that is connected to a Router",
    "table": "hold learned rows for `lotan train --tables`, in a process of its own",
    "doctor": "check what training needs here, and say how to mend what is wrong",
    "datasets": "list the graphs that have a name, or generate a graph",
}
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `lotan`; None: those of this process.

    Returns:
        The exit status, as the module's docstring lists it.
    """
    try:
        _open_closed_streams()
        return _main(arguments)
    except KeyboardInterrupt:  # so early that nothing has been started
        _say("interrupted")
        return INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    from lotan.cli.compiler_folder import remove_at_exit
    from lotan.cli.interrupt import exit_soon_after_interrupt

    remove_at_exit()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with exit_soon_after_interrupt(INTERRUPTED) as received:
            return _run_unless_interrupted(given, received, own_process=arguments is None)
    except BrokenPipeError:  # the reader has gone: `lotan explain ... | head`
        _discard_output()
        return 1
    except (
        LotanError,
        MessengerError,
    ) as error:  # `lotan router`, `worker` and `table` raise the messenger's own errors
        _say(str(error))
        return 1 if isinstance(error, EngineError | MessengerError) else 2
    except MemoryError as error:
        _say(f"out of memory: {error or 'Python had none left'}; take a smaller model or graph, or a machine with more")
        return 1
    except OSError as error:  # for example, a full disk or a file that has gone
        _say(_of_a_file(error))
        _discard_output()
        return 1


def _of_a_file(error: OSError) -> str:
    from lotan.borders import room

    if error.errno == errno.ENOSPC and error.filename is None:
        return f"{error}. {room()}"
    return f"{error}; free some space, mend the permissions or name another place"


def _run_unless_interrupted(given: Sequence[str], received: Event, own_process: bool) -> int:
    from lotan.borders import spark_translated
    from lotan.cli.interrupt import SEEN, leave_at_once

    try:
        with spark_translated():
            return _run(given)
    except (KeyboardInterrupt, Exception) as error:
        if not isinstance(error, KeyboardInterrupt) and not received.wait(SEEN):
            raise
        _say("interrupted")
        if own_process:
            leave_at_once(INTERRUPTED)
        return INTERRUPTED


def _run(given: Sequence[str]) -> int:
    from lotan.cli.option_words import in_options

    options = _parser(given).parse_args(given)
    names = set(vars(options))  # before the command adds any
    try:
        status = int(import_module(f"lotan.cli.{options.command}").run(options))
    except LotanError as error:
        error.args = (in_options(str(error), names, options.command),)
        raise
    sys.stdout.flush()  # flushed here, where a full disk or a missing reader can still be reported
    return status


def _say(text: str) -> None:
    """Print one line on standard error, which may be closed."""
    with suppress(OSError):
        print(f"lotan: {text}", file=sys.stderr)


def _open_closed_streams() -> None:
    """Open streams that the shell has closed (`2>&-`) on the null device, or the next socket would get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is the stream's
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, mode))


def _discard_output() -> None:
    """Discard the buffered standard output, which Python would fail to write at its exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    import argparse

    from lotan.cli.help import Help
    from lotan.version import __version__

    parser = argparse.ArgumentParser(
        prog="lotan",
        description="Exact GNN training on graphs that live in Spark tables, treated as a query plan.",
        epilog="lotan COMMAND --help describes a command. Begin with: lotan doctor; lotan train --graph digits --model gcn",
    )
    parser.add_argument("--version", action="version", version=f"lotan {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=Help,
        )
        if name in given:
            import_module(f"lotan.cli.{name}").add_options(command)
    return parser
