"""Partitions on a disk: ranks in each order of batches on FB15k-237, accuracies, and a table larger than its memory limit.

    python benchmarks/partitions.py                   all; writes benchmarks/results/partitions.md
    python benchmarks/partitions.py --parts limit     one of them, whose table is put in the place of the one before

orders    DistMult in memory with shuffled batches, and from a disk with COMET and with BETA, a quarter of the partitions in
          memory. The graph is looked for in $LOTAN_DATA and in ../shared/data; without it nothing is measured.
encoder   The same orders with a GraphSAGE layer over the learned rows, in few epochs.
attention The same with a GAT layer.
vertices  GraphSAGE on amazon_photo and coauthor_cs, in memory and from a disk, a quarter of the partitions in memory (or the
          least that cached_nodes needs): the mean over seeds of the test accuracy in the best epoch.
limit     DistMult on a generated graph in Parquet, whose rows with Adam's state exceed the memory limit. The peak of the
          process is beside the limit, and the bytes that were moved beside the estimate.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from apart import write_parts
from pyarrow import parquet

import lotan
from lotan.errors import GraphError

RESULTS = Path(__file__).parent / "results" / "partitions.md"
TITLE = "# Partitions on a disk"
PARTS = ("orders", "encoder", "attention", "vertices", "limit")
ENCODER_OF = {"orders": None, "encoder": "GraphSAGE", "attention": "GAT"}
WIDTH, BATCH, NEGATIVES, RATE, HEADS = 100, 1024, 500, 0.1, 4
ORDERS = {
    "in memory": "shuffled",
    "COMET": "comet(partitions=16, buffer=4, groups=8)",
    "BETA": "beta(partitions=16, buffer=4)",
}
ROW, LIMIT_BATCH, LIMIT_NEGATIVES, PART = 64, 10_000, 200, 1 << 20
MB = 1e6
VERTEX_ORDERS = {
    "in memory": "shuffled",
    "cached_nodes": "cached_nodes(partitions=16, buffer=4)",
    "each_once": "each_once(partitions=16, buffer=4)",
}
HIDDEN, TARGETS, FANOUT, VERTEX_RATE = 64, 64, 10, 0.003


class Encoder(torch.nn.Module):
    """A layer over learned rows."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.rows, self.conv = lotan.nn.LearnedFeatures(WIDTH), conv

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        """Return a row for each vertex."""
        out: torch.Tensor = self.conv(self.rows(graph), graph)
        return out


def vertices_part(epochs: int, seeds: int) -> list[str]:
    """Train GraphSAGE on labels in each order, and return the table."""
    rows = [
        "| graph | order | test accuracy | beside memory, points | read, MB/epoch | s/epoch |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("amazon_photo", "coauthor_cs"):
        graph, known = lotan.Graph.read(name), None
        for order, words in VERTEX_ORDERS.items():
            found = []
            for seed in range(seeds):
                torch.manual_seed(seed)
                model = lotan.nn.GraphSAGE(
                    graph.statistics.width, HIDDEN, 2, int(graph.arrays().label.max()) + 1, dropout=0.5
                )
                run = lotan.Trainer(
                    model,
                    graph,
                    regime=lotan.MiniBatch(TARGETS, (FANOUT, FANOUT), seed, words),
                    optimizer=lotan.Adam(lr=VERTEX_RATE, weight_decay=5e-4),
                    epochs=epochs,
                    seed=seed,
                    progress=False,
                ).fit()
                seconds = np.median([epoch["train_seconds"] for epoch in run.history])
                read = run.report["mini_batches"].get("read_bytes", 0) / epochs / MB
                found.append((100 * run.metrics["test"]["accuracy"], read, seconds))
            accuracy, read, seconds = np.mean(found, axis=0)
            known = accuracy if known is None else known
            rows.append(
                f"| {name} | {order} | {accuracy:.2f} % | {accuracy - known:+.2f} | {read:.1f} | {seconds:.2f} |"
            )
            print(rows[-1], flush=True)
    return rows


ENCODERS: dict[str, Callable[[], torch.nn.Module]] = {
    "GraphSAGE": lambda: Encoder(lotan.nn.SAGEConv(WIDTH, WIDTH)),
    "GAT": lambda: Encoder(lotan.nn.GATConv(WIDTH, WIDTH // HEADS, heads=HEADS)),
}


def orders_part(epochs: int, seeds: int, encoder: str | None = None) -> list[str]:
    """Train in each order, in turns, and return the table."""
    graph = lotan.Graph.read("FB15k-237")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ORDERS}
    for seed in range(seeds):
        for name, order in ORDERS.items():
            torch.manual_seed(seed)
            trainer = lotan.Trainer(
                lotan.nn.LearnedRows(WIDTH) if encoder is None else ENCODERS[encoder](),
                graph,
                task=lotan.LinkPrediction("distmult", NEGATIVES, seed=seed),
                regime=lotan.MiniBatch(BATCH, (FANOUT,) * (encoder is not None), seed=seed, order=order),
                optimizer=lotan.Adagrad(lr=RATE),
                epochs=epochs,
                eval_every=0,
                seed=seed,
                progress=False,
            )
            run = trainer.fit()
            metrics = run.metrics["test"]
            seconds = run.report["plan"]["measured_epoch_seconds"]
            found[name].append((metrics["mrr"], metrics["hits@10"], seconds))
            print(encoder or "no encoder", name, seed, *(f"{figure:.4f}" for figure in found[name][-1]), flush=True)
    rows = ["| order | MRR | Hits@10 | s/epoch |", "|---|---|---|---|"]
    for name, figures in found.items():
        mrr, hits, seconds = np.mean(figures, axis=0)
        rows.append(f"| {name} | {mrr:.4f} | {hits:.4f} | {seconds:.1f} |")
    return rows


def limit_part(vertices: int, links: int, limits: list[str], optimizer: str) -> list[str]:
    """Train a table under each limit, each in a process of its own, and return the table."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), vertices, links)
        found = []
        for limit in limits:
            code = f"from partitions import measure; measure({folder!r}, {limit!r}, {optimizer!r})"
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
    heads = ["rows and state, MB", "limit, MB", "peak, MB", "order", "read, MB", "written, MB", "estimated, MB"]
    heads += ["estimated s", "epoch, s", "of it waiting, s", "moved, MB/s", "the disk, MB/s"]
    rows = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for one in found:
        figures = [one["table"], one["limit"], one["peak"]]
        moved = [one["read"], one["written"], one["estimated"]]
        cells = [
            *(f"{figure / MB:,.0f}" for figure in figures),
            one["order"],
            *(f"{figure / MB:,.0f}" for figure in moved),
        ]
        cells += [
            f"{one['estimated_seconds']:.1f}",
            f"{one['seconds']:.1f}",
            f"{one['waiting']:.1f}",
            f"{one['moved'] / MB:,.0f}",
            f"{one['disk'] / MB:,.0f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def measure(folder: str, limit: str, optimizer: str) -> None:
    """Train one epoch under a limit, and print what it took as JSON."""
    trainer = lotan.Trainer(
        lotan.nn.LearnedRows(ROW),
        lotan.Graph.read(folder),
        task=lotan.LinkPrediction("distmult", LIMIT_NEGATIVES),
        regime=lotan.MiniBatch(LIMIT_BATCH, (), order="comet"),
        optimizer=getattr(lotan, optimizer)(lr=0.01),
        memory_limit=limit,
        epochs=1,
        eval_every=0,
        progress=False,
    )
    stored = trainer.job.stored
    assert stored is not None
    held = stored.division.capacity + stored.order(1).reads
    report = trainer.fit().report
    moved = report["mini_batches"]
    content = {
        "table": stored.sizes.rows,
        "limit": trainer.job.planned.options.memory_limit,
        "peak": sum(report["peak_memory_bytes"].values()),
        "order": str(stored.division).replace(" partitions in memory", ""),
        "read": moved["read_bytes"],
        "written": moved["written_bytes"],
        "estimated": stored.sizes.rows * held // stored.division.partitions,
        "estimated_seconds": trainer.job.epoch_seconds,
        "seconds": report["epochs"][0]["train_seconds"],
        "waiting": moved["partition_wait_seconds"],
        "moved": (moved["read_bytes"] + moved["written_bytes"]) / (moved["read_seconds"] + moved["write_seconds"]),
        "disk": stored.schedule(0.0).disk.bytes_per_second,
    }
    print(json.dumps(content))


def _write(folder: Path, vertices: int, links: int) -> None:
    """Write a graph of random links, whose degrees differ, in bounded memory."""
    random = np.random.default_rng(0)
    parquet.write_table(pa.table({"id": np.arange(vertices)}), folder / "vertices.parquet")
    writer = None
    for start in range(0, links, PART):
        count = min(PART, links - start)
        src = (random.random(count) ** 2 * vertices).astype(np.int64)
        dst = (src + (random.random(count) ** 3 * vertices).astype(np.int64)) % vertices
        split = np.array(["train", "val", "test"])[random.choice(3, count, p=[0.9998, 0.0001, 0.0001])]
        part = pa.table({"src": src, "dst": dst, "split": split, "relation": random.integers(0, 20, count)})
        writer = writer or parquet.ParquetWriter(folder / "edges.parquet", part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


TEXTS = {
    "orders": "## Ranks in each order\n\n"
    f"DistMult on FB15k-237: rows of width {WIDTH}, Adagrad at {RATE}, batches of {BATCH:,} links, {NEGATIVES} negatives at "
    "each end, softmax loss. From the disk, 4 of 16 partitions are in memory, and negatives are drawn among their vertices. "
    "Filtered ranks of the test links after the last epoch.",
    "encoder": "## Ranks with an encoder\n\n"
    f"The same with a GraphSAGE layer over the rows, fanout {FANOUT}. From the disk, neighbours are drawn in memory too, and the "
    "ranks are those of the layer on the whole graph.",
    "attention": f"## Ranks with attention\n\nThe same with a GAT layer of {HEADS} heads over the rows.",
    "vertices": "## Accuracies\n\n"
    f"GraphSAGE of 2 layers, hidden width {HIDDEN}, dropout 0.5, fanout {FANOUT}, batches of {TARGETS} training vertices, Adam "
    f"at {VERTEX_RATE} with weight decay 5e-4. From the disk, 4 of 16 partitions are in memory, and neighbours are drawn there. "
    "Test accuracy on the whole graph, in the epoch of the best validation accuracy.",
    "limit": "## A table beyond its limit\n\n"
    f"DistMult on a generated graph in Parquet: rows of width {ROW}, batches of {LIMIT_BATCH:,} links, "
    f"{LIMIT_NEGATIVES} negatives at each end. The peak is that of the whole process, from reading the table to the last "
    "rank. Bytes are those of rows and state in one epoch. `moved` are the bytes that the buffer read and wrote, by the seconds "
    "that this took; `the disk` is what a short file was written with before.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--epochs", type=int, default=12, help="of the orders (default: 12)")
    parser.add_argument("--vertex-epochs", type=int, default=30, help="of the part vertices (default: 30)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each order (default: 3)")
    parser.add_argument("--vertices", type=int, default=3_000_000, help="of the generated graph (default: 3,000,000)")
    parser.add_argument("--links", type=int, default=3_000_000, help="of the generated graph (default: 3,000,000)")
    parser.add_argument("--limits", nargs="+", default=["2g", "2500m"], help="memory limits (default: 2g 2500m)")
    parser.add_argument(
        "--optimizer", choices=("Adam", "Adagrad"), default="Adam", help="of the part limit (default: Adam)"
    )
    parser.add_argument("--load", default="nothing else", help="what else ran on the machine, for the text")
    parser.add_argument(
        "--out", type=Path, help=f"file of the tables (default: {RESULTS.name}), whose other parts stay"
    )
    options = parser.parse_args()
    found = {}
    for part in options.parts:
        started = time.perf_counter()
        try:
            if part in ENCODER_OF:
                found[part] = orders_part(options.epochs, options.seeds, ENCODER_OF[part])
            elif part == "vertices":
                found[part] = vertices_part(options.vertex_epochs, options.seeds)
            else:
                found[part] = limit_part(options.vertices, options.links, options.limits, options.optimizer)
        except GraphError as error:
            raise SystemExit(f"nothing is measured: {error}") from error
        print("\n".join(found[part]), f"\n{time.perf_counter() - started:.0f} s", flush=True)
    command = shlex.join(["python", "benchmarks/partitions.py", *sys.argv[1:]])
    machine = f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"
    said = f"`{command}` on {machine}, {torch.get_num_threads()} threads; beside it ran {options.load}."
    write_parts(options.out or RESULTS, TITLE, TEXTS, {part: [*lines, "", said] for part, lines in found.items()})


if __name__ == "__main__":
    main()
