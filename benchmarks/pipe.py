"""Rows from the arrays of partitions in a JVM to torch tensors in workers and back, through the messenger.

    python benchmarks/pipe.py [--width 256] [--rounds 9]     # after: make jar

One thread of the JVM pipes each partition, as Spark's tasks do, to a worker process of its own. "There and back": a
worker takes the rows as a tensor and returns them. "There": it returns nothing. "Back": it has kept the rows, which are
offered by checksum, and returns them. All bytes are checksummed by both sides. GB/s are of the rows, each way.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import torch

from lotan.jar import require_jar
from messenger.coordinator import CoordinatorLink
from messenger.endpoint import Endpoint
from messenger.jobs import ChunkKey
from messenger.room import Room
from messenger.worker_loop import WorkerLoop

ROOT = Path(__file__).resolve().parents[1]
ROUTER = """
from messenger.router_process import serve
serve("tcp://127.0.0.1:*", exit_with_parent=True)
"""
MODES = {"round": "there and back", "there": "there", "back": "back"}


class Echo:
    """Returns the rows that it is sent."""

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """Not looked at."""

    def parameters(self, run: str, epoch: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        """Not looked at."""

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        """See `messenger.jobs.Handler`."""
        rows = torch.from_numpy(tensors["x"])
        return {} if key.mode == "there" else {"y": rows.numpy()}

    def forget(self, run: str) -> None:
        """Holds nothing."""


def work(address: str, name: str) -> None:
    """A worker process."""
    WorkerLoop(Endpoint(address), Echo(), name).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=169_343)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--chunk-rows", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    subprocess.run([ROOT / "tools/maven.sh", "test-compile"], check=True)
    router = subprocess.Popen([sys.executable, "-c", ROUTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert router.stdout is not None
    address = router.stdout.readline().strip()
    command = [sys.executable, __file__, "--work", address]
    workers = [subprocess.Popen([*command, f"w{number}"]) for number in range(arguments.partitions)]
    link = CoordinatorLink(Endpoint(address))
    try:
        link.wait_for_workers(arguments.partitions)
        link.publish("run", "s", {})
        link.begin("run", 0, {})
        measure(address, arguments)
    finally:
        link.stop_router()
        link.close()
        for process in (router, *workers):
            process.wait(10)


def measure(address: str, arguments: argparse.Namespace) -> None:
    total = 4 * arguments.rows * arguments.width
    print(f"{total / 1e6:.0f} MB in {arguments.partitions} partitions; medians, best in brackets\n")
    print("| rows a chunk | through | there and back (s) | GB/s each way | there (GB/s) | back (GB/s) |")
    print("|---|---|---|---|---|---|")
    for chunk_rows in arguments.chunk_rows:
        for through, shared in (("shared memory", 64 << 20), ("sockets", 0)):
            times = {mode: seconds(address, shared, mode, chunk_rows, arguments) for mode in MODES}
            rates = {mode: (total / statistics.median(t) / 1e9, total / min(t) / 1e9) for mode, t in times.items()}
            cells = [f"{rate:.2f} ({best:.2f})" for rate, best in rates.values()]
            print(
                f"| {chunk_rows} | {through} | {statistics.median(times['round']):.3f} | {' | '.join(cells)} |",
                flush=True,
            )


def seconds(address: str, shared: int, mode: str, chunk_rows: int, arguments: argparse.Namespace) -> list[float]:
    """Seconds of each round after the warm-up."""
    jars = [str(require_jar()), str(ROOT / "jvm/target/test-classes"), f"{Path(pyspark.__file__).parent}/jars/*"]
    rows = arguments.rows // arguments.partitions
    numbers = (arguments.partitions, rows, arguments.width, chunk_rows, arguments.warm_up + arguments.rounds)
    command = ["java", "-Xmx2g", "-cp", ":".join(jars), "lotan.messenger.PipeBenchmark", address, str(shared), mode]
    done = subprocess.run([*command, *map(str, numbers)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [float(line) for line in done.stdout.splitlines()[arguments.warm_up :]]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
