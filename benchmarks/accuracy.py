"""The published accuracy of Kipf & Welling's GCN on Cora, through Spark rows and workers: one seed, all 200 epochs.

    python benchmarks/accuracy.py [GRAPH.npz]     default: cora, found as `lotan train --graph cora` finds it

The mean of five seeds on the local engine is a test (tests/test_accuracy.py); this is the same training on the rows engine,
which takes minutes.
"""

from __future__ import annotations

import sys
import time

import lotan
from tests.test_accuracy import normalized, train


def main() -> None:
    graph = normalized(lotan.Graph.read(sys.argv[1] if len(sys.argv) > 1 else "cora"))
    started = time.perf_counter()
    run = train(graph, 0, engine="rows", workers=2, progress=True)
    seconds = time.perf_counter() - started
    print(
        f"| rows, seed 0, {len(run.history)} epochs | test accuracy {run.metrics['test']['accuracy']:.4f} | {seconds:.0f} s |"
    )


if __name__ == "__main__":
    main()
