"""Measures the memory that PyG takes for the graph of 4 million vertices that Lotan trains within 6 GB.

    python benchmarks/peer_memory.py                      writes benchmarks/results/peer_memory.md
    python benchmarks/peer_memory.py --vertices 1000000   of another size

GCN 128-256-256-40 on a generated graph with ten edges a vertex, one training step in a process of its own. PyG takes edges as
`edge_index`, or as torch's sparse CSR, which needs no memory for messages. The peak is that of its resident memory,
sampled ten times a second. A process that the kernel kills for want of memory ends with signal 9. It offers itself to be
killed first, so that nothing else on the machine is.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from apart import write_table
from epoch import machine, transposed_csr
from memory import MIB, graph

RESULTS = Path(__file__).parent / "results" / "peer_memory.md"
FORMS = {"edge_index": "edge_index", "csr": "torch CSR"}
VERTICES = 4_000_000
LIMIT_SECONDS = 1800
SAMPLES_A_SECOND = 10


def train(place: Path, form: str) -> None:
    """Take one training step in PyG, in this process, and say when the graph is in memory and when each part ends."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    import numpy as np
    import torch
    import torch_geometric.nn as pyg
    from pyarrow import parquet

    columns = parquet.read_table(place / "vertices.parquet", columns=["features", "label"])
    flat = columns["features"].combine_chunks().flatten().to_numpy()
    features = torch.from_numpy(np.array(flat, dtype=np.float32).reshape(columns.num_rows, -1))
    labels = torch.from_numpy(columns["label"].to_numpy().copy())
    del columns, flat
    ends = parquet.read_table(place / "edges.parquet", columns=["src", "dst"])
    edges = torch.from_numpy(np.stack([ends[end].to_numpy() for end in ("src", "dst")]))
    del ends
    adjacency = transposed_csr(edges, len(features)) if form == "csr" else edges
    del edges
    torch.manual_seed(0)
    model = pyg.GCN(features.shape[1], 256, 3, 40, dropout=0.5, cached=True)
    optimizer = torch.optim.Adam(model.parameters())
    print("the graph is in memory", flush=True)
    started = time.monotonic()
    loss = torch.nn.functional.cross_entropy(model(features, adjacency), labels)
    print("forward", flush=True)
    loss.backward()
    print("backward", flush=True)
    optimizer.step()
    print(f"step {time.monotonic() - started:.1f}", flush=True)


def measured(place: Path, form: str) -> list[str]:
    """Return a line of the table: the form, the peak, how far the process came, and how it ended."""
    command = [sys.executable, __file__, "--train", str(place), form]
    peak, started = 0, time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        watched = psutil.Process(child.pid)
        while child.poll() is None and time.monotonic() - started < LIMIT_SECONDS:
            try:
                peak = max(peak, watched.memory_info().rss)
            except psutil.NoSuchProcess:
                break
            time.sleep(1 / SAMPLES_A_SECOND)
        child.kill()
        said, complaint = child.communicate()
    came = said.splitlines()[-1] if said else "reading"
    last = complaint.strip().splitlines()[-1] if complaint.strip() else ""
    if asked := re.search(r"tried to allocate (\d+) bytes", last):
        last = f"torch could not allocate {int(asked[1]):,} bytes"
    ended = {0: "finished", -9: "killed by the kernel"}.get(child.returncode, last or f"status {child.returncode}")
    return [FORMS[form], f"{peak / MIB:,.0f}", came, ended]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vertices", type=int, default=VERTICES, help=f"of the graph (default: {VERTICES:,})")
    parser.add_argument("--folder", type=Path, help="for the graph (default: $TMPDIR)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: benchmarks/results/peer_memory.md")
    parser.add_argument("--train", nargs=2, metavar=("PLACE", "FORM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(Path(options.train[0]), options.train[1])
        return
    lines = [
        "# What PyG takes for a graph past memory",
        "",
        f"`python benchmarks/peer_memory.py` on {machine()}. {psutil.virtual_memory().total / MIB:,.0f} MiB in the machine, of",
        f"which {psutil.virtual_memory().available / MIB:,.0f} were free. GCN 128-256-256-40, {options.vertices:,} vertices,",
        f"{10 * options.vertices:,} edges, one training step. Lotan's run within 6 GB is in [memory.md](memory.md).",
        "",
        "| form of the edges | peak, MiB | came to | ended |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="lotan-benchmark-") as folder:
        place = graph(Path(folder), options.vertices, 10 * options.vertices)
        lines += [f"| {' | '.join(measured(place, form))} |" for form in FORMS]
    write_table(options.out, [*lines, ""])
    print(options.out.read_text())


if __name__ == "__main__":
    main()
