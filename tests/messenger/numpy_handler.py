"""A handler in numpy, slow, failing or waiting on demand, and the truth that its sums are compared with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from messenger.jobs import ChunkKey, OutgoingChunk, ReturnedChunk
from messenger.room import Room

ROWS, WIDTH = 8, 4
DEADLINE = 20.0  # seconds that a test waits for anything


class NumpyHandler:
    """y = x @ w; in mode "turn" also a gradient and statistics.

    The epoch's settings may ask it to hold: {"hold": folder, "chunk": 5} makes the first worker that gets to chunk 5
    create `folder/held-NAME` and wait for `folder/release`.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.seen: list[ChunkKey] = []
        self.stages: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.weight = np.zeros(0)
        self.settings: dict[str, Any] = {}

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        if "forbidden" in program:
            raise ValueError("an operator that is not allowed")
        self.stages.append((run, name))

    def parameters(self, run: str, epoch: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        self.weight, self.settings = tensors["w"], settings

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        self.seen.append(key)
        if self.settings.get("fail") == key.chunk:
            raise ZeroDivisionError("a number too small")
        if self.settings.get("chunk") == key.chunk:
            self._hold(Path(self.settings["hold"]))
        x = tensors["x"]
        if key.mode == "forward":
            return {"y": x @ self.weight}
        return {"y": x @ self.weight, "gradient/w": x.T @ x, "statistics": np.array([x.sum(), key.rows], np.float64)}

    def forget(self, run: str) -> None:
        self.forgotten.append(run)

    def _hold(self, folder: Path) -> None:
        if any(folder.glob("held-*")):
            return
        (folder / f"held-{self.name}").touch()
        wait_until((folder / "release").exists)


def who_holds(folder: Path) -> str:
    """The name of the worker that holds, once one does."""
    wait_until(lambda: list(folder.glob("held-*")))
    [path] = folder.glob("held-*")
    return path.name.removeprefix("held-")


def chunks(partition: int, count: int, static: bool = False, seed: int = 0, rows: int = ROWS) -> list[OutgoingChunk]:
    """A partition's chunks: any attempt gets the same."""
    rng = np.random.default_rng([seed, partition])
    kept = frozenset(["x"]) if static else frozenset()
    return [
        OutgoingChunk(
            i, i * rows, rows, 1000 * partition + i, {"x": rng.standard_normal((rows, WIDTH), np.float32)}, kept
        )
        for i in range(count)
    ]


def weight(epoch: int) -> np.ndarray:
    return np.random.default_rng(epoch).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def truth(partitions: list[list[OutgoingChunk]], group_chunks: int) -> np.ndarray:
    """The gradient in the promised order: chunks in groups, groups in partitions, partitions; all in float64."""
    total = np.zeros((WIDTH, WIDTH))
    for partition in partitions:
        of_partition = np.zeros((WIDTH, WIDTH))
        for first in range(0, len(partition), group_chunks):
            group = np.zeros((WIDTH, WIDTH))
            for chunk in partition[first : first + group_chunks]:
                group += (chunk.tensors["x"].T @ chunk.tensors["x"]).astype(np.float64)
            of_partition += group
        total += of_partition
    return total


def wait_until(condition: Any, seconds: float = DEADLINE) -> None:
    """Wait for a condition; fails after that time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still waiting for {condition} after {seconds} s"
        time.sleep(0.005)


def rows_checksum(returned: list[ReturnedChunk]) -> str:
    """Of all rows that came back, in order."""
    return xxhash.xxh64_hexdigest(b"".join(chunk.tensors["y"].tobytes() for chunk in returned))
