"""Things that go wrong in a Spark task, once each: for tests only, around the real `PipeTask`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lotan.engines.rows.pipe import PipeBuilder
from lotan.engines.rows.pipe_task import PipeTask, Returned


@dataclass(frozen=True)
class Fault:
    """What happens to partition 0 of a stage, the first time it is piped."""

    kind: str  # "raise", "kill" or "twice"
    stage: str
    mode: str
    marks: Path  # a folder that remembers what has happened
    victims: tuple[int, ...] = ()  # process ids, for "kill"
    a_pass: int | None = None  # number of the engine's pass to wait for; None: the first

    def hits(self, builder: PipeBuilder) -> bool:
        """Whether this is the place."""
        place = builder.stage.name, builder.step.mode
        return place == (self.stage, self.mode) and self.a_pass in (None, builder.state.number)

    @property
    def mark(self) -> Path:
        return self.marks / f"{self.kind} {self.stage} {self.mode}"

    @property
    def happened(self) -> bool:
        return self.mark.exists()

    def first(self) -> bool:
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class Faulty:
    """A task with a fault. Runs in Spark's Python workers."""

    task: PipeTask
    fault: Fault

    @property
    def returned(self) -> tuple[Returned, ...]:
        return self.task.returned

    def schema(self, id_type: str) -> str:
        return self.task.schema(id_type)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if not held or held[0].column("part")[0].as_py() != 0 or not self.fault.first():
            yield from self.task(iter(held))
            return
        match self.fault.kind:
            case "raise":
                results = self.task(iter(held))
                yield from (batch for _, batch in zip(range(1), results, strict=False))
                raise RuntimeError("this disk is full")
            case "kill":
                os.kill(self.fault.victims[0], signal.SIGSTOP)  # it has a chunk and will never answer
                threading.Timer(0.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in self.fault.victims]).start()
                yield from self.task(iter(held))
            case "twice":
                yield from self._twice(held)

    def _twice(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Two attempts at the same time, as under speculation; Spark sees the rows of one."""
        other: list[pa.RecordBatch] = []
        thread = threading.Thread(target=lambda: other.extend(self.task(iter(held))))
        thread.start()
        mine = list(self.task(iter(held)))
        thread.join(60)
        if mine != other:
            raise AssertionError("two attempts returned different rows")
        yield from mine


def inject(monkeypatch: pytest.MonkeyPatch, faults: Sequence[Fault]) -> None:
    """Let `faults` happen to engines that pipe their stages."""
    real = PipeBuilder.task

    def task(self: PipeBuilder) -> PipeTask | Faulty:
        made = real(self)
        here = [fault for fault in faults if fault.hits(self)]
        return Faulty(made, here[0]) if here else made

    monkeypatch.setattr(PipeBuilder, "task", task)
