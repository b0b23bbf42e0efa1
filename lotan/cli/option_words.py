"""Settings as options: errors name settings as Python has them, and the command line has them as options."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import reduce

from lotan.cli.outputs import option_name

CALLS = {
    "regime=lotan.MiniBatch(1024, (), order='comet')": "--batch-size 1024 --fanouts none --order comet",
    "with regime=lotan.FullBatch()": "without --batch-size and --fanouts",
    "regime=lotan.FullBatch()": "no --batch-size and --fanouts",
    "task=lotan.LinkPrediction(...)": "--task link",
}
"""Settings that are several options, or an option with another value."""

_VALUE = r"""'[^']*'|"[^"]*"|[-+\w.]+(?![\w.(])"""
_WITHIN = reduce(lambda within, _: rf"(?:[^()]|\({within}\))*", range(3), "[^()]*")  # brackets in brackets
_AS_IT_IS = rf"""(?<!\w)'[^']*'|"[^"]*"|\w[\w.]*\({_WITHIN}\)|[\w.-]*/[\w./-]*"""  # quotations, calls and paths

ELSEWHERE = {"partition": {"storage_dir": "out"}}
"""Settings that an option of another name has, by command."""


def in_options(said: str, names: Collection[str], command: str = "") -> str:
    """Return the words of an error with the settings that are options of a command written so.

    Args:
        said: The words.
        names: The names of the command's options, as argparse has them.
        command: The command.

    >>> names = ["memory_limit", "order", "engine", "partitions", "log_dir"]
    >>> print(in_options("memory_limit is 1m: leave order out, or give engine='local'", names))
    --memory-limit is 1m: leave --order out, or give --engine local
    >>> print(in_options("give order='comet(partitions=4)', as in 'comet(partitions=8)', not /tmp/log_dir", names))
    give --order 'comet(partitions=4)', as in 'comet(partitions=8)', not /tmp/log_dir
    >>> print(in_options("as in Trainer(order=Order(4, (2,)), engine=1), or go on with resume=True", [*names, "resume"]))
    as in Trainer(order=Order(4, (2,)), engine=1), or go on with --resume
    """
    for setting, option in ELSEWHERE.get(command, {}).items():
        said = re.sub(rf"\b{setting}\b", option_name(option), said)
    for call, words in CALLS.items():
        said = said.replace(call, words)
    name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    given, left_out = rf"\b(?P<given>{name})=(?P<value>{_VALUE})", rf"\bleave (?P<left>{name}) out\b"
    found = rf"{given}|(?P<same>{_AS_IT_IS})|{left_out}|(?<![\w-])(?P<name>{name})(?![\w-])"
    return re.sub(found, _option, said)


def _option(found: re.Match[str]) -> str:
    """Return one setting as an option. A name that is an English word too stays, unless it has a value or is to be left out."""
    if found["given"]:
        value = found["value"]
        if value == "True":  # a flag
            return option_name(found["given"])
        bare = value.strip("'\"")  # a shell needs quotation marks around calls alone
        return f"{option_name(found['given'])} {bare if re.fullmatch('[-+.A-Za-z0-9_]+', bare) else value}"
    if found["left"]:
        return f"leave {option_name(found['left'])} out"
    return option_name(found["name"]) if found["name"] and "_" in found["name"] else found[0]
