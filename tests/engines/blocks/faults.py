"""Things that go wrong while the blocks engine runs a pass, once each: for tests only."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lotan.engines.blocks.facade import facade
from messenger.ledger import Commit, Ledger

FAIL_ONCE = """
package lotan.tests;
public class FailOnce implements org.apache.spark.api.java.function.Function {
    private final String mark;
    public FailOnce(String mark) { this.mark = mark; }
    public Object call(Object value) throws Exception {
        if (new java.io.File(mark).createNewFile()) throw new java.io.IOException("this disk is full");
        return value;
    }
}
"""
"""What a task hands on, the first time an error instead: after the task has done its work, and committed it."""


@dataclass(frozen=True)
class Place:
    """Where in a pass: a stage and its mode."""

    stage: str
    mode: str


class FailingTasks:
    """A facade of which one task a place fails, when it has piped its partition.

    Args:
        spark: a session that runs tasks in its own JVM.
        places: see there.
        marks: a folder that remembers what has happened.
    """

    def __init__(self, spark: SparkSession, places: Iterable[Place], marks: Path) -> None:
        self._facade, self._jvm = facade(spark), spark._jvm
        self._marks = {place: marks / f"{place.stage} {place.mode}" for place in places}
        _compile(self._jvm, marks)

    @property
    def happened(self) -> bool:
        """Whether each place has had its fault."""
        return all(mark.exists() for mark in self._marks.values())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facade, name)

    def pipe(self, blocks: Any, step: str, *more: Any) -> Any:
        """As the facade does, with the fault that belongs there."""
        made = self._facade.pipe(blocks, step, *more)
        plain = json.loads(step)
        mark = self._marks.get(Place(plain["stage"], plain["mode"]))
        return made if mark is None else made.toJavaRDD().map(self._jvm.lotan.tests.FailOnce(str(mark))).rdd()


def _compile(jvm: Any, folder: Path) -> None:
    """Have Spark's own compiler of generated code make the class, and the JVM load it."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(FAIL_ONCE)
    for name, content in dict(compiler.getBytecodes()).items():
        file = folder / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(content))
    jvm.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(folder)).toURI().toURL())


def at_commit(
    patch: pytest.MonkeyPatch, place: Place, action: Callable[[], object], number: int | None = None
) -> threading.Event:
    """Have something happen when the first partition of a place is committed, while others are under way.

    Args:
        patch: undoes it.
        place: see there.
        action: called once, in the coordinator's thread.
        number: of the engine's pass; None for the first that comes there.

    Returns:
        An event that is set when it has happened.
    """
    real, happened = Ledger.commit, threading.Event()

    def commit(self: Ledger, made: Commit) -> bool:
        first = real(self, made)
        here = Place(made.job.stage, made.job.mode) == place and number in (None, made.job.pass_number)
        if here and not happened.is_set():
            happened.set()
            action()
        return first

    patch.setattr(Ledger, "commit", commit)
    return happened


def kill(victims: Iterable[int]) -> None:
    """Stop processes, so that they never answer what they have, and kill them a moment later."""
    victims = tuple(victims)
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in victims]).start()
