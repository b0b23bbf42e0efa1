"""`lotan datasets`."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    """List what --graph takes by name."""
    from lotan.datasets import list_datasets

    for dataset in list_datasets():
        print(dataset)
    return 0
