"""The published accuracy of Kipf & Welling's GCN on Cora, through Spark and workers: one seed, all 200 epochs.

    python benchmarks/accuracy.py                          cora, found as `lotan train --graph cora` finds it, on blocks
    python benchmarks/accuracy.py citeseer --engine rows   another graph; on rows, which takes minutes

The mean of five seeds on the local engine is a test (tests/training/test_accuracy.py); this is the same training.
It prints one line of a table.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for the tests, which no environment has

import lotan
from tests.training.test_accuracy import normalized, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", nargs="?", default="cora", help="a name or an .npz file (default: cora)")
    parser.add_argument("--engine", choices=("blocks", "rows", "local"), default="blocks", help="default: blocks")
    options = parser.parse_args()
    settings = {} if options.engine == "local" else {"workers": 2}
    started = time.perf_counter()
    run = train(normalized(lotan.Graph.read(options.graph)), 0, engine=options.engine, progress=True, **settings)
    seconds = time.perf_counter() - started
    what, accuracy = f"{options.graph}, {options.engine}, seed 0", run.metrics["test"]["accuracy"]
    print(f"| {what}, {len(run.history)} epochs | test accuracy {accuracy:.4f} | {seconds:.0f} s |")


if __name__ == "__main__":
    main()
