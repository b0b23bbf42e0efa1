"""Rows from the arrays of partitions in a JVM to torch tensors in workers and back, through the messenger.

    python benchmarks/pipe.py [--width 256] [--chunk-rows 256 1024 4096] [--rounds 40] [--sockets]     # after: make jar

One thread of the JVM pipes each partition, as Spark's tasks do, to a worker process of its own. "There and back": a
worker takes the rows as a tensor and returns them. "There": it returns nothing. "Back": it has kept the rows, which are
offered by checksum, and returns them. "Stage": it returns ReLU(rows times a square matrix), as stages of a model do. All
bytes are checksummed by both sides. The JVM's compiler takes dozens of rounds to settle, as it does in a run's first epochs:
those do not count. GB/s are of the rows, each way; CPU seconds are of a GB of rows there and back.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyspark
import torch

from lotan.hosts.jar import require_jar
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
MODES = "round", "there", "back", "stage"
SHARED_BYTES = 64 << 20


class Echo:
    """Returns the rows that it is sent, or what a layer makes of them."""

    def __init__(self, width: int) -> None:
        self._matrix = torch.eye(width)

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """Not looked at."""

    def parameters(self, run: str, epoch: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        """Not looked at."""

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        """See `messenger.jobs.Handler`."""
        rows = torch.from_numpy(tensors["x"])
        if key.mode == "there":
            return {}
        if key.mode != "stage":
            return {"y": rows.numpy()}
        out = torch.from_numpy(room.array(tuple(rows.shape)))
        return {"y": torch.mm(rows, self._matrix, out=out).relu_().numpy()}

    def lacks(self, key: ChunkKey) -> bool:
        """See `messenger.jobs.Handler`."""
        return False

    def forget(self, run: str) -> None:
        """Holds nothing."""


def work(address: str, name: str, width: str) -> None:
    """A worker process."""
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    torch.set_num_threads(1)
    WorkerLoop(Endpoint(address), Echo(int(width)), name).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=169_343)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--chunk-rows", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sockets", action="store_true", help="through sockets too, not shared memory alone")
    arguments = parser.parse_args()
    subprocess.run([ROOT / "tools/maven.sh", "test-compile"], check=True)
    router = subprocess.Popen([sys.executable, "-c", ROUTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert router.stdout is not None
    address = router.stdout.readline().strip()
    command = [sys.executable, __file__, "--work", address]
    workers = [
        subprocess.Popen([*command, f"w{number}", str(arguments.width)]) for number in range(arguments.partitions)
    ]
    link = CoordinatorLink(Endpoint(address))
    try:
        link.wait_for_workers(arguments.partitions)
        for number in range(len(cases(arguments))):
            link.publish("run", f"{number}", {})
        link.begin("run", 0, {})
        measure(address, arguments, [router.pid, *(worker.pid for worker in workers)])
    finally:
        link.stop_router()
        link.close()
        for process in (router, *workers):
            process.wait(10)


def cases(arguments: argparse.Namespace) -> list[tuple[int, int, str]]:
    """Rows of a chunk, bytes of shared memory, and mode."""
    shared = (SHARED_BYTES, 0) if arguments.sockets else (SHARED_BYTES,)
    return list(product(arguments.chunk_rows, shared, arguments.modes))


def measure(address: str, arguments: argparse.Namespace, others: list[int]) -> None:
    size = 4 * arguments.rows * arguments.width / 1e9
    print(f"{size * 1e3:.0f} MB in {arguments.partitions} partitions; medians, best in brackets\n")
    print("| rows a chunk | through | what | seconds | GB/s each way | CPU s / GB: JVM | Router | workers |")
    print("|---|---|---|---|---|---|---|---|")
    for (rows, shared, mode), (times, cpu) in zip(cases(arguments), run(address, arguments, others), strict=True):
        median = statistics.median(times)
        through = "shared memory" if shared else "sockets"
        of_gb = " | ".join(f"{seconds / len(times) / size:.2f}" for seconds in (cpu[0], cpu[1], sum(cpu[2:])))
        print(
            f"| {rows} | {through} | {mode} | {median:.3f} | {size / median:.2f} ({size / min(times):.2f}) | {of_gb} |",
            flush=True,
        )


def run(address: str, arguments: argparse.Namespace, others: list[int]) -> Iterator[tuple[list[float], list[float]]]:
    """For each case the seconds of its rounds, and the processors' seconds of the JVM and other processes."""
    jars = [str(require_jar()), str(ROOT / "jvm/target/test-classes"), f"{Path(pyspark.__file__).parent}/jars/*"]
    numbers = arguments.partitions, arguments.rows // arguments.partitions, arguments.width
    vectors = "--add-modules=jdk.incubator.vector"  # as Spark starts its JVMs
    command = ["java", "-Xmx2g", vectors, "-cp", ":".join(jars), "lotan.messenger.PipeBenchmark", address]
    command += [str(number) for number in (*numbers, arguments.warm_up, arguments.rounds)]
    command += [f"{mode},{rows},{shared}" for rows, shared, mode in cases(arguments)]
    jvm = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert jvm.stdout is not None
    times: list[float] = []
    before: list[float] = []
    processes = [psutil.Process(pid) for pid in (jvm.pid, *others)]
    for line in jvm.stdout:
        if line.strip() == "begin":
            times, before = [], used(processes)
        elif line.strip() != "end":
            times.append(float(line))
            if before and len(times) == arguments.rounds:
                yield times, [after - start for after, start in zip(used(processes), before, strict=True)]
                before = []
    if jvm.wait():
        sys.exit("the JVM failed")


def used(processes: list[psutil.Process]) -> list[float]:
    """Seconds of the processors that each has used."""
    return [sum(process.cpu_times()[:2]) for process in processes]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
