"""The layout of a command's help text."""

from __future__ import annotations

import argparse
from itertools import groupby
from shutil import get_terminal_size

WIDTH = 100  # columns, on terminals that are at least as wide


class Help(argparse.HelpFormatter):
    """Folds the description of an option to lines that fit. Lines that begin with a space, as in an example, stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(WIDTH, get_terminal_size((WIDTH, 24)).columns))

    def _split_lines(self, text: str, width: int) -> list[str]:
        lines = []
        for stays, group in groupby(text.splitlines(), lambda line: line.startswith(" ")):
            given = list(group)
            lines += given if stays else super()._split_lines(" ".join(given), width)
        return lines
