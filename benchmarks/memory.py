"""Memory: a run whose working set is four times its limit, and how estimates compare with what runs take.

    python benchmarks/memory.py             all; writes benchmarks/results/memory.md
    python benchmarks/memory.py estimates   or "limit", "quarter", "least", "batches" or "low": one
    python benchmarks/memory.py low --vertices 300000 1000000 --hubs    within the least limits, at these sizes
    python benchmarks/memory.py least --vertices 4000000 --limit 6g    on local, of such a graph
    python benchmarks/memory.py estimates --engines local rows    of some engines

Each run is a process of its own on `local[2]` with two workers, its graph read from Parquet. Bytes are those of a run's report:
the sum over all of its processes, sampled twice a second; pages that they share count once, whatever else runs on this
machine. "limit": convolutions of width 128 with an MLP of one wide hidden layer after each, so that most of the working set
lies between forward and backward; the same run with all the memory it can use, and within a limit of a quarter of that;
weights are compared bit by bit. "estimates": each stock model, 128-256-256-40, on graphs of 3 thousand to 3 million edges, some
with few vertices in training, within a memory limit, or with workers that may keep next to nothing; the table is written anew
after each run. "quarter": GCN 128-512-512-512-40 on blocks within the fixed part and a quarter of
what it takes above it. "least": GCN 128-256-256-40 on local under a limit for which columns lie in files, once the least that is
accepted, and without a limit, which takes 12 GiB. "low": the same on blocks, whose sums then read partitions in turn, beside the
same run without a limit if that takes no more than `--room`; processor seconds are those of all processes together, and what a
loaded machine leaves comparable. "batches": mini-batches on local under the least limit that is named, and without one.
With `--hubs`, a third of the edges of a graph end in ten vertices.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from apart import run_apart
from epoch import machine

RESULTS = Path(__file__).parent / "results" / "memory.md"
MIB = 1 << 20
LIMIT_SECONDS = 3600
PARTITIONS = 8
FROM_DISK = ((250_000, "least"), (1_000_000, 3 << 30))  # vertices of graphs whose columns lie in files, and their limit
LARGE = {"vertices": 250_000, "edges": 2_500_000}
SIZES = (300, 20_000, 100_000)  # vertices; ten times as many edges
HUGE = 300_000
MODELS = ("gcn", "sage", "gin", "gat")
OTHERS: tuple[dict[str, Any], ...] = (
    {"model": "gcn", "vertices": 300, "engine": "rows"},
    {"model": "gcn", "vertices": 20_000, "engine": "rows"},
    {"model": "gcn", "vertices": 20_000, "engine": "blocks", "memory_limit": 3 << 30},
    {"model": "gin", "vertices": 100_000, "engine": "blocks", "memory_limit": 3500 << 20},
    {"model": "gin", "vertices": 20_000, "engine": "blocks", "worker_memory": 4 << 20},
    *({"model": "gcn", "vertices": HUGE, "engine": engine} for engine in ("local", "blocks")),
    *(
        {"model": model, "vertices": 100_000, "engine": engine, "trained": 0.02}
        for model in ("gcn", "gat")
        for engine in ("local", "blocks")
    ),
)
"""Beside each model in each size, on local and on blocks. `trained`: the share of vertices that are trained on, else 54 %."""
NEAR = 0.2  # of what is measured, that an estimate may be off
HUBS = 10
LOW_HEADS = (
    "| vertices | limit, MiB | partitions | in turn | peak, MiB | peak / limit | estimated s | training s | epoch s "
    "| processor s an epoch | before the first, s | weights |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)
ARXIV = 169_343, 2_400_000  # vertices and edges of the part "quarter"
BATCHES = (1024, (10, 10))  # targets of a mini-batch, and fanouts
LEAST = "least"  # in place of a memory limit: the least one that is accepted
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
    from lotan.exploring.calibration import trained_on

    if not few.exists():
        trained_on(lotan.Graph.read(str(place)), training).save(str(few))
    return few


def with_hubs(place: Path) -> Path:
    """The graph with a third of its edges at the first vertices, written in parts."""
    import pyarrow as pa
    from pyarrow import parquet

    skewed = place.with_name(f"{place.name}-hubs")
    if skewed.exists():
        return skewed
    skewed.mkdir()
    (skewed / "vertices.parquet").hardlink_to(place / "vertices.parquet")
    given = parquet.ParquetFile(place / "edges.parquet")
    with parquet.ParquetWriter(skewed / "edges.parquet", given.schema_arrow) as out:
        for part in given.iter_batches():
            ends = part.column("dst").to_numpy().copy()
            ends[::3] = part.column("src").to_numpy()[::3] % HUBS
            out.write_batch(part.set_column(part.schema.get_field_index("dst"), "dst", pa.array(ends)))
    return skewed


class Processors:
    """Samples the processor seconds of this process and all below it, until it is closed."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, dict[int, float]]] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._closed.wait(0.5):
            found = {}
            for process in (me, *me.children(recursive=True)):
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                found[process.pid] = times.user + times.system
            self._samples.append((time.monotonic(), found))

    def close(self) -> None:
        """Stop sampling."""
        self._closed.set()
        self._thread.join()

    def last(self, seconds: float) -> float:
        """Those of the last so many seconds in which there were several processes, or of one if there never were."""
        running = [sample for sample in self._samples if len(sample[1]) > 1] or self._samples
        end = running[-1][0]
        before = min(running, key=lambda sample: abs(sample[0] - (end - seconds)))[1]
        most = {pid: max(found.get(pid, 0.0) for _, found in running) for pid in {p for _, f in running for p in f}}
        return sum(most.values()) - sum(before.values())


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
    from lotan.memory.limit import MemoryLimit
    from planner.shares import Crew, fixed_bytes

    torch.manual_seed(0)
    kind = {"gcn": lotan.nn.GCN, "sage": lotan.nn.GraphSAGE, "gin": lotan.nn.GIN, "gat": lotan.nn.GAT}.get(
        case["model"]
    )
    hidden, layers = case.get("shape", (256, 3))
    model = wide_model() if kind is None else kind(128, hidden, layers, 40, dropout=0.5)
    read = lotan.Graph.read(case["graph"])
    options = {name: case[name] for name in ("engine", "memory_limit", "worker_memory") if name in case}
    if "batches" in case:
        options["regime"] = lotan.MiniBatch(*case["batches"])
    if case["engine"] != "local":
        options |= {"master": "local[2]", "workers": 2}
        options["partitions"] = case.get("partitions", PARTITIONS)
    if options.get("memory_limit") == LEAST:
        options["memory_limit"] = least_limit(model, read, options)
    trainer = lotan.Trainer(model, read, epochs=case["epochs"], **options)
    needs, estimated = trainer.job.needs(trainer.config), trainer.job.epoch(trainer.config).seconds
    processors, started = Processors(), time.monotonic()
    run = trainer.fit()
    processors.close()
    weights = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in run.model.weights.values()))
    epochs = [entry["train_seconds"] + entry["eval_seconds"] for entry in run.history]
    return {
        "epochs": epochs,
        "train": run.history[-1]["train_seconds"],
        "before": time.monotonic() - started - sum(epochs),
        "processors": processors.last(sum(epochs)) / len(epochs),
        "seconds": estimated,
        "partitions": needs.partitions or options.get("partitions"),
        "in_turn": needs.in_turn,
        "peak": run.report["peak_memory_bytes"],
        "estimated": run.report["plan"]["estimated_peak_bytes"],
        "weights": weights.hexdigest(),
        "loss": run.history[-1]["loss"],
        "limit": MemoryLimit.of(trainer.config).bytes,
        "free": needs.peak,
        "fixed": fixed_bytes(Crew(workers=2, tasks=2)) if case["engine"] != "local" else 0,
    }


def least_limit(model: Any, read: Any, options: dict[str, Any]) -> int:
    """The least limit that is accepted, as the refusal of a lower one names it."""
    import lotan

    usual = {name: value for name, value in options.items() if name not in ("memory_limit", "partitions")}
    try:
        lotan.Trainer(model, read, epochs=1, memory_limit="1g", **usual).explain()
    except lotan.errors.ConfigurationError as refused:
        found = re.search(rf"engine '{usual['engine']}' needs at least (\d+)m", str(refused))
        if found is None:
            raise
        return int(found[1]) * MIB
    return 1 << 30


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
        f"Weights: {same_bits(found, free)}.",
    ]
    return ["## A quarter of the memory", "", *lines, ""]


def quarter_table(folder: Path, epochs: int) -> list[str]:
    """A graph of many edges within the fixed part and a quarter of what a run takes above it."""
    case = {
        "graph": str(graph(folder, *ARXIV)),
        "model": "gcn",
        "shape": (512, 4),
        "engine": "blocks",
        "epochs": epochs,
        "partitions": None,
    }
    free = measured(case, folder)
    peak = sum(free["peak"].values())
    found = measured(case | {"memory_limit": free["fixed"] + (peak - free["fixed"]) // 4}, folder)
    rows = [_low_row(f"{ARXIV[0]:,}", one, words) for one, words in ((free, "-"), (found, same_bits(found, free)))]
    seconds = sum(found["epochs"]) / sum(free["epochs"])
    lines = [
        f"GCN 128-512-512-512-40, {ARXIV[1]:,} edges, epochs with evaluation. The fixed part is {free['fixed'] / MIB:,.0f} MiB: "
        f"what the processes take when they are empty. {seconds:.1f} times the seconds (to be at most 3).",
        "",
        *LOW_HEADS,
        *rows,
    ]
    return ["## A quarter above the fixed part", "", *lines, ""]


def same_bits(found: dict[str, Any], free: dict[str, Any]) -> str:
    """Say if two runs have the same weights."""
    if found["weights"] == free["weights"]:
        return "the same bits"
    return "other partitions" if found["partitions"] != free["partitions"] else "DIFFERENT BITS"


def least_table(folder: Path, options: argparse.Namespace) -> list[str]:
    lines = [
        "| vertices | edges | limit, MiB | peak, MiB | estimated, MiB | without a limit, MiB | estimated s | training s "
        "| epoch s | without a limit | processor seconds an epoch | without a limit | weights |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    sizes = FROM_DISK if options.vertices is None else [(count, options.limit) for count in options.vertices]
    for vertices, limit in sizes:
        place = str(graph(folder, vertices, 10 * vertices))
        case = {"graph": place, "model": "gcn", "engine": "local", "epochs": options.epochs}
        found = measured(case | {"memory_limit": limit}, folder)
        free = measured(case, folder) if options.vertices is None or found["free"] <= options.room << 20 else None
        shown = [f"{vertices:,}", f"{10 * vertices:,}", f"{found['limit'] / MIB:,.0f}", _peak(found)]
        shown += [f"{found['estimated'] / MIB:,.0f}", "-" if free is None else _peak(free)]
        shown += [f"{found['seconds']:.1f}", f"{found['train']:.1f}"]
        shown += [_seconds(found), "-" if free is None else _seconds(free)]
        shown += [f"{found['processors']:.1f}", "-" if free is None else f"{free['processors']:.1f}"]
        lines.append(f"| {' | '.join([*shown, '-' if free is None else same_bits(found, free)])} |")
    return ["## A low limit on local", "", "GCN 128-256-256-40, epochs with evaluation.", "", *lines, ""]


def batches_table(folder: Path, epochs: int) -> list[str]:
    lines = [
        "250,000 vertices, 2,500,000 edges, 128 features; 2 layers of width 64; batches of 1,024 vertices, fanouts 10, 10.",
        "",
        "| model | limit, MiB | peak, MiB | estimated, MiB | without a limit, MiB | estimated, MiB | epoch s "
        "| without a limit | weights |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    case = {"graph": str(graph(folder, **LARGE)), "engine": "local", "epochs": epochs, "batches": BATCHES}
    for model in MODELS:
        one = case | {"model": model, "shape": (16 if model == "gat" else 64, 2)}
        found, free = measured(one | {"memory_limit": LEAST}, folder), measured(one, folder)
        shown = [model, f"{found['limit'] / MIB:,.0f}"]
        shown += [_peak(found), f"{found['free'] / MIB:,.0f}", _peak(free), f"{free['estimated'] / MIB:,.0f}"]
        lines.append(f"| {' | '.join([*shown, _seconds(found), _seconds(free), same_bits(found, free)])} |")
    return ["## Mini-batches within a limit", "", *lines, ""]


def _peak(found: dict[str, Any]) -> str:
    return f"{sum(found['peak'].values()) / MIB:,.0f}"


def _seconds(found: dict[str, Any]) -> str:
    return ", ".join(f"{epoch:.1f}" for epoch in found["epochs"])


def low_table(folder: Path, options: argparse.Namespace) -> Iterator[list[str]]:
    """After each run, of those so far."""
    lines = [*LOW_HEADS]
    places = [(f"{count:,}", graph(folder, count, 10 * count), options.limit) for count in options.vertices or [HUGE]]
    if options.hubs:
        places.append((f"{places[0][0]}, hubs", with_hubs(places[0][1]), options.limit))
    for name, place, limit in places:
        case = {"graph": str(place), "model": "gcn", "engine": "blocks", "epochs": options.epochs, "partitions": None}
        found = measured(case | {"memory_limit": limit}, folder)
        lines.append(_low_row(name, found, "-"))
        yield lines
        if found["free"] > options.room << 20:
            continue
        free = measured(case | {"partitions": found["partitions"]}, folder)
        same = same_bits(found, free)
        lines[-1] = _low_row(name, found, same)
        lines.append(
            _low_row(name, free, f"{found['processors'] / free['processors']:.1f} times the processor seconds")
        )
        yield lines


def _low_row(name: str, found: dict[str, Any], weights: str) -> str:
    peak, limit = sum(found["peak"].values()), found["limit"]
    shown = [
        name,
        "-" if limit is None else f"{limit / MIB:,.0f}",
        str(found["partitions"]),
        "yes" if found["in_turn"] else "no",
        f"{peak / MIB:,.0f}",
        "-" if limit is None else f"{peak / limit:.2f}",
        f"{found['seconds']:.1f}",
        f"{found['train']:.1f}",
        ", ".join(f"{epoch:.1f}" for epoch in found["epochs"]),
        f"{found['processors']:.0f}",
        f"{found['before']:.0f}",
        weights,
    ]
    return f"| {' | '.join(shown)} |"


def _row(name: str, limit: int | None, found: dict[str, Any]) -> str:
    peak = found["peak"]
    sizes = [sum(peak.values()), peak["driver"], peak["jvm"], peak["workers"]]
    shown = " | ".join(f"{size / MIB:,.0f}" for size in sizes)
    seconds = ", ".join(f"{epoch:.1f}" for epoch in found["epochs"])
    return f"| {name} | {'-' if limit is None else f'{limit / MIB:,.0f}'} | {shown} | {seconds} |"


def cases(engines: Sequence[str]) -> list[dict[str, Any]]:
    """On these engines; the small ones first."""
    stock = [
        {"model": model, "vertices": vertices, "engine": engine}
        for vertices, engine, model in itertools.product(SIZES, ("local", "blocks"), MODELS)
    ]
    return [case for case in [*stock, *OTHERS] if case["engine"] in engines]


def estimate_tables(folder: Path, engines: Sequence[str]) -> Iterator[list[str]]:
    """After each run, of those so far."""
    rows, ratios, loads = [], [], []
    for case in cases(engines):
        place = graph(folder, case["vertices"], 10 * case["vertices"], case.get("trained"))
        loads.append(f"{psutil.getloadavg()[0]:.0f}")
        found = measured(case | {"graph": str(place), "epochs": 3}, folder)
        peak = sum(found["peak"].values())
        ratios.append(found["estimated"] / peak)
        words = [
            case["model"],
            f"{case['vertices']:,}",
            f"{case.get('trained', 0.54):.0%}",
            case["engine"],
            _given(case),
        ]
        sizes = [f"{size / MIB:,.0f}" for size in (*found["peak"].values(), peak, found["estimated"])]
        rows.append(f"| {' | '.join([*words, *sizes])} | {ratios[-1]:.2f} |")
        near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        yield [
            "## Estimated and measured peak",
            "",
            f"{near} of {len(ratios)} within {NEAR:.0%}; the worst is {worst:.2f} times what was measured. Load while they ran: "
            f"{min(loads, key=int)} to {max(loads, key=int)}.",
            "",
            "| model | vertices | trained | engine | settings | driver, MiB | JVM, MiB | workers, MiB | measured, MiB "
            "| estimated, MiB | estimated / measured |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]


def _given(case: dict[str, Any]) -> str:
    """Its settings of memory."""
    given = [name for name in ("memory_limit", "worker_memory") if name in case]
    return ", ".join(f"{name} {case[name] // MIB:,} MiB" for name in given) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="limit|quarter|least|batches|low|estimates", help="default: all")
    parser.add_argument("--epochs", type=int, default=2, help="of the run within a limit (default: 2)")
    parser.add_argument(
        "--folder", type=Path, help="on a local disk, for graphs and what goes to the disk (default: $TMPDIR)"
    )
    parser.add_argument("--vertices", type=int, nargs="+", help=f"of low limits (default on blocks: {HUGE})")
    parser.add_argument("--hubs", action="store_true", help="with low limits, the first graph with hubs as well")
    parser.add_argument("--limit", default=LEAST, help="in place of the least one, as --memory-limit takes it")
    parser.add_argument(
        "--room", type=int, default=8 << 10, help="MiB that a run without a limit may take (default: 8192)"
    )
    every = ["local", "blocks", "rows"]
    parser.add_argument("--engines", nargs="+", choices=every, default=every, help="of estimates (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: benchmarks/results/memory.md")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(run_case(options.case)))
        return
    what = options.what or ["limit", "quarter", "least", "batches", "low", "estimates"]
    command = shlex.join(["python", "benchmarks/memory.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="lotan-benchmark-") as folder:
        lines = ["# Memory", "", f"`{command}` on {machine()}.", ""]
        lines += limit_table(Path(folder), options.epochs) if "limit" in what else []
        lines += quarter_table(Path(folder), options.epochs) if "quarter" in what else []
        lines += least_table(Path(folder), options) if "least" in what else []
        lines += batches_table(Path(folder), options.epochs) if "batches" in what else []
        options.out.write_text("\n".join(lines))
        of_low: list[str] = []
        for table in low_table(Path(folder), options) if "low" in what else ():
            of_low = ["## A low limit on blocks", "", "GCN 128-256-256-40, epochs with evaluation.", "", *table, ""]
            options.out.write_text("\n".join([*lines, *of_low]))
            print(table[-1], file=sys.stderr, flush=True)
        lines += of_low
        for table in estimate_tables(Path(folder), options.engines) if "estimates" in what else ():
            options.out.write_text("\n".join([*lines, *table]))
            print(table[-2], file=sys.stderr, flush=True)
    print(options.out.read_text())


if __name__ == "__main__":
    main()
