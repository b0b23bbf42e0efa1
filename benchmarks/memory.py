"""Memory: a run whose working set is four times its limit, and how estimates compare with what runs take.

    python benchmarks/memory.py             both; writes benchmarks/results/memory.md
    python benchmarks/memory.py estimates   or "limit": one

Each run is a process of its own on `local[2]` with two workers, its graph read from Parquet. Bytes are the sum of all of its
processes' proportional set sizes (PSS), sampled twice a second. "limit": convolutions of width 128 with an MLP of one
wide hidden layer after each, so that most of the working set lies between forward and backward; the same run with all the
memory it can use, and within a limit of a quarter of that; weights are compared bit by bit. "estimates": each stock model,
128-256-256-40, the GCN on graphs of three sizes, and with few vertices in training, as they run without any setting of memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from apart import run_apart
from epoch import machine

RESULTS = Path(__file__).parent / "results" / "memory.md"
MIB = 1 << 20
LIMIT_SECONDS = 3600
PARTITIONS = 8
LARGE = {"vertices": 250_000, "edges": 2_500_000}
BOTH = ("local", "blocks")
ESTIMATED: tuple[tuple[str, int, float | None, tuple[str, ...]], ...] = (
    ("gcn", 50_000, None, (*BOTH, "rows")),
    ("gcn", 100_000, None, BOTH),
    ("gcn", 200_000, None, BOTH),
    ("sage", 100_000, None, BOTH),
    ("gin", 100_000, None, BOTH),
    ("gat", 100_000, None, BOTH),
    ("gcn", 100_000, 0.02, BOTH),
    ("gat", 100_000, 0.02, BOTH),
)
"""Models; vertices of their graphs, which have ten times as many edges; how many are trained on (None: 54 %); engines."""
WIDE, LAYERS = 2048, 6
AMPLE_HEAP, AMPLE = "6g", "32g"  # of Spark's JVM, and of a worker between forward and backward, where there is no limit


def graph(folder: Path, vertices: int, edges: int, trained: float | None = None) -> Path:
    place = folder / f"graph-{vertices}"
    if trained is not None:
        return with_few(
            graph(folder, vertices, edges), place.with_name(f"{place.name}-{trained}"), round(trained * vertices)
        )
    if place.exists():
        return place
    words = ["--vertices", vertices, "--edges", edges, "--features", 128, "--classes", 40, "--seed", 0]
    subprocess.run(
        [sys.executable, "-m", "lotan", "datasets", "generate", str(place), *map(str, words)],
        check=True,
        timeout=LIMIT_SECONDS,
    )
    return place


def with_few(place: Path, few: Path, training: int) -> Path:
    """The graph with so many vertices to train on."""
    import lotan
    from lotan.calibration import trained_on

    if not few.exists():
        trained_on(lotan.Graph.read(str(place)), training).save(str(few))
    return few


def measured(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One run in a process of its own."""
    environment = dict(os.environ) | {"TMPDIR": str(folder)}
    if case.get("worker_memory") == AMPLE:  # else Spark's heap is as large as lotan makes it
        environment["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {AMPLE_HEAP} pyspark-shell"
    return run_apart(__file__, ["--case", json.dumps(case)], str(case), environment)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """In that process."""
    import torch

    import lotan

    torch.manual_seed(0)
    kind = {"gcn": lotan.nn.GCN, "sage": lotan.nn.GraphSAGE, "gin": lotan.nn.GIN, "gat": lotan.nn.GAT}.get(
        case["model"]
    )
    model = wide_model() if kind is None else kind(128, 256, 3, 40, dropout=0.5)
    read = lotan.Graph.read(case["graph"])
    options = {name: case[name] for name in ("engine", "memory_limit", "worker_memory") if name in case}
    if case["engine"] != "local":
        options |= {"master": "local[2]", "workers": 2, "partitions": PARTITIONS}
    run = lotan.Trainer(model, read, epochs=case["epochs"], **options).fit()
    weights = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in run.model.weights.values()))
    return {
        "epochs": [entry["train_seconds"] + entry["eval_seconds"] for entry in run.history],
        "peak": run.report["peak_memory_bytes"],
        "estimated": run.report["plan"]["estimated_peak_bytes"],
        "weights": weights.hexdigest(),
        "loss": run.history[-1]["loss"],
    }


def wide_model() -> Any:
    """Convolutions with a wide layer between each two."""
    import torch

    import lotan

    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = torch.nn.ModuleList(lotan.nn.GCNConv(128, 128) for _ in range(LAYERS))
            self.up = torch.nn.ModuleList(torch.nn.Linear(128, WIDE) for _ in range(LAYERS))
            self.down = torch.nn.ModuleList(torch.nn.Linear(WIDE, 128) for _ in range(LAYERS))
            self.last = torch.nn.Linear(128, 40)

        def forward(self, x: Any, graph: Any) -> Any:
            for conv, up, down in zip(self.convs, self.up, self.down, strict=True):
                x = down(torch.relu(up(conv(x, graph))))
            return self.last(x)

    return Wide()


def limit_table(folder: Path, epochs: int) -> list[str]:
    case = {"graph": str(graph(folder, **LARGE)), "model": "wide", "engine": "blocks", "epochs": epochs}
    free = measured(case | {"worker_memory": AMPLE}, folder)
    quarter = sum(free["peak"].values()) // 4
    found = measured(case | {"memory_limit": quarter}, folder)
    ratio = sum(found["epochs"]) / sum(free["epochs"])
    lines = [
        f"{LARGE['vertices']:,} vertices, {LARGE['edges']:,} edges; {LAYERS} convolutions of width 128, MLPs 128-{WIDE:,}-128; "
        f"{PARTITIONS} partitions, epochs with evaluation. "
        f"Without a limit: a heap of {AMPLE_HEAP}, and workers that may keep {AMPLE} each.",
        "",
        "| MiB | limit | peak | driver | JVM | workers | seconds an epoch |",
        "|---|---|---|---|---|---|---|",
        _row("without", None, free),
        _row("within a quarter of that", quarter, found),
        "",
        f"Time: {ratio:.2f} times (to be at most 3). Working set: {sum(free['peak'].values()) / quarter:.1f} times the limit; "
        f"peak {sum(found['peak'].values()) / quarter:.2f} of it. "
        f"Weights: {'the same bits' if free['weights'] == found['weights'] else 'DIFFERENT BITS'}.",
    ]
    return ["## A quarter of the memory", "", *lines, ""]


def _row(name: str, limit: int | None, found: dict[str, Any]) -> str:
    peak = found["peak"]
    sizes = [sum(peak.values()), peak["driver"], peak["jvm"], peak["workers"]]
    shown = " | ".join(f"{size / MIB:,.0f}" for size in sizes)
    seconds = ", ".join(f"{epoch:.1f}" for epoch in found["epochs"])
    return f"| {name} | {'-' if limit is None else f'{limit / MIB:,.0f}'} | {shown} | {seconds} |"


def estimate_table(folder: Path) -> list[str]:
    lines = [
        "| model | vertices | trained | engine | estimated, MiB | measured, MiB | estimated / measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, vertices, trained, engines in ESTIMATED:
        place = graph(folder, vertices, 10 * vertices, trained)
        for engine in engines:
            found = measured({"graph": str(place), "model": model, "engine": engine, "epochs": 3}, folder)
            peak = sum(found["peak"].values())
            sizes = f"{found['estimated'] / MIB:,.0f} | {peak / MIB:,.0f} | {found['estimated'] / peak:.2f}"
            share = "54 %" if trained is None else f"{trained:.0%}"
            lines.append(f"| {model} | {vertices:,} | {share} | {engine} | {sizes} |")
    return ["## Estimated and measured peak", "", *lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="limit|estimates", help="default: both")
    parser.add_argument("--epochs", type=int, default=2, help="of the run within a limit (default: 2)")
    parser.add_argument(
        "--folder", type=Path, help="on a local disk, for graphs and what goes to the disk (default: $TMPDIR)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: benchmarks/results/memory.md")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(run_case(options.case)))
        return
    what = options.what or ["limit", "estimates"]
    command = shlex.join(["python", "benchmarks/memory.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="lotan-benchmark-") as folder:
        lines = ["# Memory", "", f"`{command}` on {machine()}. Bytes: the sum of proportional set sizes.", ""]
        lines += limit_table(Path(folder), options.epochs) if "limit" in what else []
        lines += estimate_table(Path(folder)) if "estimates" in what else []
    text = "\n".join(lines)
    options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
