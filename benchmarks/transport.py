"""Gigabytes per second from a Dealer to a worker and back: through sockets, and through shared memory.

    python benchmarks/transport.py                   chunks of 1/4, 1, 4 and 16 MiB; writes benchmarks/results/transport.md
    python benchmarks/transport.py --mebibytes 4     fewer

Dealer, Router and worker are processes of this host. The worker returns each chunk's tensor as it came, so as much comes
back as goes out; both sides checksum what they send and what they receive. A pass pipes 512 MiB; the median of five
counts, after one that does not. GB/s are those of one direction, while the other one runs at the same time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from epoch import machine

from messenger.coordinator import CoordinatorLink
from messenger.dealer import Dealer
from messenger.endpoint import Endpoint
from messenger.jobs import ChunkKey, OutgoingChunk, PipeJob
from messenger.room import Room
from messenger.settings import Settings
from messenger.worker_loop import WorkerLoop

RESULTS = Path(__file__).parent / "results" / "transport.md"
MEBI = 1 << 20
PASS_BYTES = 512 * MEBI
PASSES = 6  # of which the first does not count
SETTINGS = {"sockets": Settings(shared_bytes=0), "shared memory": Settings(shared_bytes=256 * MEBI)}


class Echo:
    """A handler that returns what it is given."""

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """There is nothing in it."""

    def parameters(self, run: str, epoch: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        """There are none."""

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        """The same."""
        return tensors

    def forget(self, run: str) -> None:
        """Nothing was kept."""


@contextmanager
def started() -> Iterator[Endpoint]:
    """A Router and a worker as processes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-m", "messenger.router_process", "--exit-with-parent"]
    with subprocess.Popen(command, text=True, **pipes) as router:
        endpoint = Endpoint(router.stdout.readline().strip())
        with subprocess.Popen([sys.executable, __file__, "--worker", endpoint.address]):
            yield endpoint


def measure(link: CoordinatorLink, endpoint: Endpoint, settings: Settings, size: int, first_epoch: int) -> float:
    """GB/s of chunks of that many bytes."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((size // 1024, 256), np.float32) for _ in range(8)]
    count, seconds = PASS_BYTES // size, []
    dealer = Dealer(endpoint, settings)
    for epoch in range(first_epoch, first_epoch + PASSES):
        link.begin("run", epoch, {})
        job = PipeJob("run", epoch, "s", "forward", 0, accumulates=False)
        rows = size // 1024
        chunks = (OutgoingChunk(i, i * rows, rows, i, {"x": arrays[i % len(arrays)]}) for i in range(count))
        start = time.perf_counter()
        for back in dealer.pipe(job, chunks):
            assert back.tensors["x"].shape == (rows, 256)
        seconds.append(time.perf_counter() - start)
    dealer.close()
    return PASS_BYTES / statistics.median(seconds[1:]) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mebibytes", nargs="+", type=float, default=[0.25, 1, 4, 16], help="of a chunk")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        WorkerLoop(Endpoint(options.worker), Echo(), "echo").run()
        return
    lines = ["| chunk, MiB | " + " | ".join(f"{name}, GB/s each way" for name in SETTINGS) + " |", "|---|---|---|"]
    with started() as endpoint:
        link = CoordinatorLink(endpoint)
        link.wait_for_workers(1)
        link.publish("run", "s", {})
        epoch = 0
        for size in options.mebibytes:
            speeds = []
            for settings in SETTINGS.values():
                speeds.append(measure(link, endpoint, settings, int(size * MEBI), epoch))
                epoch += PASSES
            lines.append(f"| {size:g} | " + " | ".join(f"{speed:.2f}" for speed in speeds) + " |")
            print(lines[-1], flush=True)
        link.stop_router()
        link.close()
    RESULTS.write_text(
        "# Dealer to worker and back\n\n`python benchmarks/transport.py` "
        f"on {machine()}.\nMedian of {PASSES - 1} passes of {PASS_BYTES // MEBI} MiB, with one worker.\n\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
