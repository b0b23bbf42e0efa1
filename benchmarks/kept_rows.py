"""Rows of mini-batches that workers keep: bytes of an epoch on blocks, and what it takes to send a batch.

    python benchmarks/kept_rows.py               writes benchmarks/results/kept_rows.md
    python benchmarks/kept_rows.py --parts send --out /dev/stdout

epochs    a GraphSAGE of two layers on generated vertices in Spark, through sockets: the bytes that tasks send to the worker in
          each epoch, and the seconds of its batches. Both runs must end with the same weights, to the last bit.
send      the messenger alone: batches of vertices in another order each time, from a Dealer to a worker. Milliseconds of a batch
          until it is committed, and of processor time in Dealer, Router and worker together, which other work disturbs less.

"Sent" sends all rows. "Kept" offers them by their checksums, and sends those that the worker lacks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from epoch import machine

import lotan
from lotan.batches.on_spark import SparkBatches
from lotan.memory.limit import MemoryLimit
from messenger.coordinator import CoordinatorLink
from messenger.dealer import Dealer
from messenger.endpoint import Endpoint
from messenger.jobs import ChunkKey, OutgoingChunk, PipeJob
from messenger.room import Room
from messenger.settings import Settings
from messenger.worker_loop import WorkerLoop

RESULTS = Path(__file__).parent / "results" / "kept_rows.md"
VERTICES, EDGES, CLASSES, HIDDEN, WIDTH = 20_000, 200_000, 10, 64, 128
FANOUTS, BATCH, EPOCHS = (10, 10), 1024, 3
WIDTHS, SHARE, BATCHES, ROUNDS = (128, 512), 0.9, 12, 5  # of the part "send"; a batch has this share of the vertices
WAYS: dict[tuple[str, str], Settings] = {
    ("sockets", "sent"): Settings(shared_bytes=0, kept_row_bytes=0),
    ("sockets", "kept"): Settings(shared_bytes=0),
    ("shared memory", "sent"): Settings(kept_row_bytes=0),
    ("shared memory", "kept"): Settings(offer_shared_rows=True),
}


def one_run(rows: str) -> dict[str, Any]:
    """Train, and return the bytes that the batches of each epoch have sent, their seconds, and a digest of the weights."""
    epochs: list[tuple[int, float]] = []
    watch(epochs)
    settings = WAYS["sockets", rows]
    MemoryLimit.messenger = lambda self: settings
    random = np.random.default_rng(0)
    graph = lotan.Graph.from_arrays(
        random.normal(size=(VERTICES, WIDTH)).astype(np.float32),
        random.integers(0, VERTICES, EDGES),
        random.integers(0, VERTICES, EDGES),
        label=random.integers(0, CLASSES, VERTICES),
        split=random.choice(3, VERTICES, p=[0.6, 0.2, 0.2]),
    )
    torch.manual_seed(0)
    model = lotan.nn.GraphSAGE(WIDTH, HIDDEN, 2, CLASSES)
    options = {"engine": "blocks", "master": "local[2]", "workers": 1, "partitions": 2, "eval_every": 0}
    regime = lotan.MiniBatch(BATCH, FANOUTS)
    run = lotan.Trainer(model, graph, regime=regime, epochs=EPOCHS, progress=False, **options).fit()
    weights = b"".join(weight.numpy().tobytes() for weight in run.model.weights.values())
    sent = np.diff([0, *(sent for sent, _ in epochs)]).tolist()
    return {"sent": sent, "seconds": [one for _, one in epochs], "weights": hashlib.sha256(weights).hexdigest()}


def watch(epochs: list[tuple[int, float]]) -> None:
    """Note the bytes sent so far and the seconds of an epoch from its second batch on, as the first waits for all draws."""
    outcomes: Callable[..., Iterator[Any]] = SparkBatches.outcomes

    def watched(self: SparkBatches, *given: Any, **named: Any) -> Iterator[Any]:
        started = 0.0
        for outcome in outcomes(self, *given, **named):
            started = started or time.perf_counter()
            yield outcome
        epochs.append((self.bytes_moved()["messenger_sent"], time.perf_counter() - started))

    SparkBatches.outcomes = watched


def epochs_part() -> list[str]:
    found = {}
    for rows in ("sent", "kept"):
        words = [sys.executable, __file__, "--one", rows]
        done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        found[rows] = json.loads(done.stdout.splitlines()[-1])
        print(rows, found[rows], file=sys.stderr, flush=True)
    assert found["sent"]["weights"] == found["kept"]["weights"]
    numbers = range(1, EPOCHS + 1)
    lines = [
        f"| rows | {' | '.join(f'MB, epoch {one}' for one in numbers)} | {' | '.join(f's, {one}' for one in numbers)} |"
    ]
    lines += [f"|---{'|---' * 2 * EPOCHS}|"]
    for rows, run in found.items():
        both = [*(f"{one / 1e6:.1f}" for one in run["sent"]), *(f"{one:.0f}" for one in run["seconds"])]
        lines.append(f"| {rows} | {' | '.join(both)} |")
    return ["## Epochs through sockets", "", *lines, ""]


class Silent:
    """A handler that looks at some of the rows, and returns nothing but a sum."""

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """There is nothing in it."""

    def parameters(self, run: str, epoch: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        """There are none."""

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        """Return a sum."""
        return {"statistics": np.array([float(tensors["x"][::97].sum())])}

    def forget(self, run: str) -> None:
        """Nothing was kept."""


def sent_batches(link: CoordinatorLink, endpoint: Endpoint, settings: Settings, width: int, first: int) -> int:
    """Send some batches, and return the bytes that were sent. Each is a pass of its own, from the number `first` on."""
    dealer, random = Dealer(endpoint, settings), np.random.default_rng(0)
    features = random.random((VERTICES, width)).astype(np.float32)
    keys, sent = random.integers(-(2**62), 2**62, VERTICES), 0
    for number in range(first, first + BATCHES):
        some = np.random.default_rng(number).permutation(VERTICES)[: int(SHARE * VERTICES)]
        tensors = {"keys": keys[some], "x": features[some]}
        chunk = OutgoingChunk(0, 0, len(some), 7, tensors, by_row=frozenset(["x"]), row_keys="keys")
        link.begin("run", number, {})
        job = PipeJob("run", number, "s", "turn", number)
        list(dealer.pipe(job, [chunk]))
        sent += link.wait([job]).bytes_sent
    dealer.close()
    return sent


def send_part() -> list[str]:
    lines = ["| features | through | rows | MB a batch | ms a batch | ms of processors |", "|---|---|---|---|---|---|"]
    for width in WIDTHS:
        router = subprocess.Popen([sys.executable, "-m", "messenger.router_process"], stdout=subprocess.PIPE, text=True)
        assert router.stdout is not None
        endpoint = Endpoint(router.stdout.readline().strip())
        worker = subprocess.Popen([sys.executable, __file__, "--worker", endpoint.address])
        link = CoordinatorLink(endpoint)
        link.wait_for_workers(1)
        link.publish("run", "s", {})
        processes = [psutil.Process(), psutil.Process(router.pid), psutil.Process(worker.pid)]
        number = 0
        for way, settings in WAYS.items():
            found = []
            for _ in range(ROUNDS):
                started, used = time.perf_counter(), processor_seconds(processes)
                sent = sent_batches(link, endpoint, settings, width, number)
                number += BATCHES
                found.append((time.perf_counter() - started, processor_seconds(processes) - used))
            wall, used = (statistics.median(one[at] for one in found[1:]) / BATCHES * 1e3 for at in (0, 1))
            lines.append(f"| {width} | {' | '.join(way)} | {sent / BATCHES / 1e6:.1f} | {wall:.0f} | {used:.0f} |")
            print(lines[-1], file=sys.stderr, flush=True)
        link.stop_router()
        link.close()
        for process in (worker, router):
            process.wait(30)
    return [
        "## Batches from a Dealer to a worker",
        "",
        f"{BATCHES} batches of {int(SHARE * VERTICES):,} vertices a round. Medians of {ROUNDS - 1} rounds, after one.",
        "",
        *lines,
        "",
    ]


def processor_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


PARTS: dict[str, Callable[[], list[str]]] = {"epochs": epochs_part, "send": send_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", choices=("sent", "kept"), help="one run, for this script itself")
    parser.add_argument("--worker", metavar="ADDRESS", help="a worker, for this script itself")
    options = parser.parse_args()
    if options.worker:
        WorkerLoop(Endpoint(options.worker), Silent(), "w").run()
    elif options.one:
        print(json.dumps(one_run(options.one)))
    else:
        found = [line for part in options.parts for line in PARTS[part]()]
        text = [
            "# Rows that workers keep",
            "",
            f"`python benchmarks/kept_rows.py` on {machine()}.",
            f"The graph has {VERTICES:,} vertices and {EDGES:,} edges, batches {BATCH:,} targets, and fanouts are {FANOUTS}.",
            f"There are {WIDTH} features unless the table says otherwise, and one worker.",
            "",
            *found,
        ]
        options.out.write_text("\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    main()
