"""`lotan datasets`."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    """List what --graph takes by name."""
    from lotan.datasets import available

    for dataset in available():
        print(f"{dataset.name:<16}{dataset.size:<20}{dataset.place}")
    return 0
