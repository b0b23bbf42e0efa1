"""One propagate on blocks in Spark local[2], by shuffle and by shared heap, against a `torch.sparse` CSR product in one process.

    python benchmarks/propagate.py [--width 256] [--rounds 7]

The graph is that of `lotan datasets generate`. What Spark is timed for: pack the halo, shuffle it, multiply ("heap": read
others' rows where they lie, and multiply), in a session of our own. The input column is cached, as it is within an epoch.
Times are medians, taken in turns, after warm-up rounds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from pyspark.sql import DataFrame, SparkSession

from lotan.datasets import write_parquet
from lotan.datasets.planted import PlantedGraph
from lotan.engines.blocks.facade import facade
from lotan.engines.blocks.pipe import numbered
from lotan.hosts.spark_session import Heap, SparkSettings, open_spark

ALL = numbered(None)  # vertices, whatever their level


def csr(vertices: int, rows: np.ndarray, columns: np.ndarray) -> torch.Tensor:
    """The adjacency as torch's sparse CSR, with int32 indices."""
    order = np.lexsort((columns, rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=vertices))])
    return torch.sparse_csr_tensor(
        torch.from_numpy(indptr.astype(np.int32)),
        torch.from_numpy(columns[order].astype(np.int32)),
        torch.ones(len(rows)),
        (vertices, vertices),
    )


def seconds(run: Callable[[], object], process: psutil.Process) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds of `process`, which say more on a machine that does other things too."""
    start, used = time.perf_counter(), sum(process.cpu_times()[:2])
    run()
    return time.perf_counter() - start, sum(process.cpu_times()[:2]) - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=2_500_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.cores)
    graph = PlantedGraph(arguments.vertices, arguments.edges, arguments.width)
    opened = open_spark(SparkSettings(f"local[{arguments.cores}]", Heap(6 << 30)))
    try:
        measure(opened.session, arguments, graph)
    finally:
        opened.close()


def measure(spark: SparkSession, arguments: argparse.Namespace, drawn: PlantedGraph) -> None:
    blocks = facade(spark)
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(drawn, Path(folder) / "graph")
        vertices, edges = (spark.read.parquet(f"{folder}/graph/{name}.parquet") for name in ("vertices", "edges"))
        start = time.perf_counter()
        graph = blocks.load(vertices._jdf, edges._jdf, arguments.partitions, ["features"], None, None, 0)
        print(f"load: {time.perf_counter() - start:.2f} s")
    src, dst = (np.concatenate(ends) for ends in zip(*drawn.edge_blocks(), strict=True))
    x = np.concatenate([block.features for block in drawn.vertex_blocks()])
    column = blocks.column(graph, "features")
    dense = torch.from_numpy(x)
    forward, reverse = csr(arguments.vertices, dst, src), csr(arguments.vertices, src, dst)
    check(spark, blocks, graph, column, forward @ dense)
    jvm = next(child for child in psutil.Process().children(recursive=True) if "java" in child.name())
    print("| | blocks (s) | torch CSR (s) | ratio | blocks CPU (s) | torch CPU (s) | best blocks | best torch |")
    print("|---|---|---|---|---|---|---|---|")
    for form, (name, matrix) in itertools.product(("shuffle", "heap"), (("forward", forward), ("reverse", reverse))):
        ours = partial(propagate, blocks, graph, column, name == "reverse", form == "shuffle")
        theirs = partial(torch.mm, matrix, dense)
        for _ in range(arguments.warm_up):
            ours()
        times = [(*seconds(ours, jvm), *seconds(theirs, psutil.Process())) for _ in range(arguments.rounds)]
        wall, cpu, torch_wall, torch_cpu = (statistics.median(column) for column in zip(*times, strict=True))
        best = f"{min(t[0] for t in times):.3f} | {min(t[2] for t in times):.3f}"
        print(
            f"| {name}, {form} | {wall:.3f} | {torch_wall:.3f} | {wall / torch_wall:.2f} | {cpu:.2f} | {torch_cpu:.2f} | {best} |"
        )
    blocks.close(graph)


def propagate(blocks: Any, graph: Any, column: Any, reverse: bool, shuffled: bool) -> None:
    blocks.force([blocks.propagate(graph, column, "graph", False, reverse, ALL, ALL, shuffled)])


def check(spark: SparkSession, blocks: Any, graph: Any, column: Any, expected: torch.Tensor) -> None:
    """A few vertices' sums against torch's."""
    sums = blocks.propagate(graph, column, "graph", False, False, ALL, ALL, False)
    rows = DataFrame(blocks.table(graph, sums), spark).limit(200).collect()
    for row in rows:
        torch.testing.assert_close(torch.tensor(row["values"]), expected[row["id"]], rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
