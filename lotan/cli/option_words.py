"""Settings as options: errors name settings as Python has them, and the command line has them as options."""

from __future__ import annotations

import re
from collections.abc import Collection

from lotan.cli.outputs import option_name

FULL_BATCH = re.compile(r"with regime=lotan\.FullBatch\(\)"), re.compile(r"regime=lotan\.FullBatch\(\)")
WITHOUT_BATCHES = "without --batch-size and --fanouts"

_VALUE = r"""('[^']*'|"[^"]*"|[-\w.]+)(?![\w.(])"""
_WITHIN = r"(?<![\w/.'\"-])"  # a name in a path or in a quotation stays


def in_options(said: str, names: Collection[str]) -> str:
    """Return the words of an error with the settings that are options of a command written so.

    Args:
        said: The words.
        names: The names of the command's options, as argparse has them.

    >>> print(in_options("memory_limit is 1m: leave order out, or give engine='local'", ["memory_limit", "order", "engine"]))
    --memory-limit is 1m: leave --order out, or give --engine local
    >>> print(in_options("give order='comet(partitions=4)', not /tmp/log_dir", ["order", "partitions", "log_dir"]))
    give --order 'comet(partitions=4)', not /tmp/log_dir
    """
    for pattern in FULL_BATCH:
        said = pattern.sub(WITHOUT_BATCHES, said)
    either = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    said = re.sub(rf"{_WITHIN}({either})={_VALUE}", lambda found: f"{option_name(found[1])} {_word(found[2])}", said)
    said = re.sub(rf"\bleave ({either}) out\b", lambda found: f"leave {option_name(found[1])} out", said)
    return re.sub(rf"{_WITHIN}({either})(?![\w/.=(])", lambda found: _named(found[1]), said)


def _word(value: str) -> str:
    """Return a value as a shell takes it: quotation marks stay where they are needed."""
    bare = value.strip("'\"")
    return bare if re.fullmatch(r"[-\w.]+", bare) else value


def _named(name: str) -> str:
    """Return the name of an option for a name that is no English word."""
    return option_name(name) if "_" in name else name
