"""Learned rows of a full batch on blocks: in Spark, where tasks update them, or in the trainer, which sends them in each pass.

    python benchmarks/learned_rows.py                    writes benchmarks/results/learned_rows.md
    python benchmarks/learned_rows.py --vertices 300000  one size alone

A GraphSAGE of one layer reads rows of width 64 of generated vertices, with Adam and two edges for each vertex. Each run is a
process of its own. Both places must have the same losses, within 1e-6.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from epoch import machine

import lotan
from lotan.planning import learned

RESULTS = Path(__file__).parent / "results" / "learned_rows.md"
SIZES, WIDTH, EDGES_OF_ONE, CLASSES, EPOCHS = (100_000, 300_000), 64, 2, 4, 5
PLACES = ("trainer", "Spark")


class Embedded(torch.nn.Module):
    """A layer over learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(WIDTH)
        self.encoder = lotan.nn.GraphSAGE(WIDTH, 16, num_layers=1, out_channels=CLASSES)

    def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
        """Return the logits, [vertices, classes]."""
        return self.encoder(self.rows(graph), graph)


def one_run(place: str, vertices: int) -> dict[str, Any]:
    """Train with the rows in one place, whatever the rule chooses. Return losses, seconds and peaks of memory."""
    learned.LEAST_IN_SPARK = 0 if place == "Spark" else sys.maxsize
    random = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.arange(vertices), "label": random.integers(0, CLASSES, vertices)})
    table["split"] = random.choice(["train", "val", "test"], vertices)
    src, dst = random.integers(0, vertices, (2, EDGES_OF_ONE * vertices))
    graph = lotan.Graph(table, pd.DataFrame({"src": src, "dst": dst}))
    torch.manual_seed(0)
    options = {"engine": "blocks", "master": "local[2]", "partitions": 4, "workers": 2, "eval_every": 0}
    trainer = lotan.Trainer(Embedded(), graph, optimizer=lotan.Adam(lr=0.01), epochs=EPOCHS, progress=False, **options)
    report = trainer.fit().report
    return {
        "losses": [epoch["loss"] for epoch in report["epochs"]],
        "seconds": [epoch["train_seconds"] for epoch in report["epochs"]],
        "peaks": report["peak_memory_bytes"],
    }


def row_of(place: str, vertices: int) -> tuple[str, list[float]]:
    """Run in a process of its own. Return a row of the table, and the losses."""
    words = [sys.executable, __file__, "--one", place, "--vertices", str(vertices)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    later = statistics.median(found["seconds"][1:])
    peaks = (f"{found['peaks'][process] / 2**20:,.0f}" for process in ("driver", "jvm"))
    size = f"{4 * WIDTH * vertices / 2**20:.0f}"
    row = f"| {size} | {place} | {found['seconds'][0]:.1f} | {later:.1f} | {' | '.join(peaks)} |"
    print(row, file=sys.stderr, flush=True)
    return row, found["losses"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--load", default="", help="words for other work on the same processors")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", choices=PLACES, help="one run, for this script itself")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_run(options.one, options.vertices[0])))
        return
    rows = []
    for vertices in options.vertices:
        (here, expected), (there, losses) = (row_of(place, vertices) for place in PLACES)
        np.testing.assert_allclose(losses, expected, rtol=1e-6)
        rows += [here, there]
    text = [
        "# Learned rows in Spark or in the trainer",
        "",
        f"`python benchmarks/learned_rows.py` on {machine()}{'; beside it ran ' * bool(options.load)}{options.load}.",
        f"Rows have {WIDTH} numbers, and the optimizer is Adam. Seconds of later epochs are medians of {EPOCHS - 1}.",
        "Peaks are those of the driver's Python, and of its JVM, which has the executors too. Losses agree within 1e-6.",
        "",
        "| rows, MiB | in | s, first epoch | s, later ones | driver, MiB | JVM, MiB |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
