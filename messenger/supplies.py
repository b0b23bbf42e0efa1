"""The programs and parameters that a worker needs from the coordinator to run chunks."""

from __future__ import annotations

import math
import time
from typing import Any

from messenger.fields import Kind
from messenger.frames import Message
from messenger.jobs import ChunkKey, Handler
from messenger.pump import Pump
from messenger.settings import Settings
from messenger.transport import COORDINATOR

Want = tuple[str, str, str | int]
"""The name of one supply: ("stage", run, name) or ("parameters", run, number of the pass)."""


class Supplies:
    """Asks the coordinator for each program and each epoch's parameters once, and gives them to the handler."""

    def __init__(self, handler: Handler, pump: Pump, settings: Settings) -> None:
        self._handler = handler
        self._pump = pump
        self._settings = settings
        self._stages: set[tuple[str, str]] = set()
        self._passes: dict[str, int] = {}  # run -> the number of the pass whose parameters the handler has
        self._asked: dict[Want, float] = {}  # supply that was asked for -> deadline, monotonic seconds

    def pass_number(self, run: str) -> int:
        """Return the number of a run's newest pass that this worker knows, or -1 if it knows none."""
        return self._passes.get(run, -1)

    def is_stale(self, key: ChunkKey) -> bool:
        """Return True if a chunk belongs to a pass that is over."""
        return key.pass_number < self.pass_number(key.run)

    def has(self, key: ChunkKey) -> bool:
        """Return True if the handler has the program and the parameters that a chunk needs."""
        return (key.run, key.stage) in self._stages and self.pass_number(key.run) == key.pass_number

    def waits_for(self, key: ChunkKey, header: dict[str, Any]) -> bool:
        """Return True if a chunk lacks the supply that a DATA or an ERROR names."""
        return not self.has(key) and _want(header) in _wants(key)

    def ask(self, key: ChunkKey) -> None:
        """Ask for the supplies that a chunk lacks, unless they were asked for already."""
        for want in _wants(key):
            what, run, which = want
            here = (run, which) in self._stages if what == "stage" else self.pass_number(run) == which
            if here or want in self._asked:
                continue
            self._asked[want] = time.monotonic() + self._settings.fetch_seconds
            self._pump.send(COORDINATOR, Message(Kind.FETCH, _header(want)))

    def take(self, message: Message) -> tuple[str, int] | None:
        """Give a supply that has arrived to the handler. One that the coordinator sends later has no deadline.

        Returns:
            The run and the number of the pass if a new pass began, else None.

        Raises:
            Exception: any error of the handler.
        """
        header = message.header
        run = header.get("run", "")
        if header["what"] == "later":
            self._asked["parameters", run, header["epoch"]] = math.inf
            return None
        self.drop(header)
        if header["what"] == "stage":
            self._handler.stage(run, header["name"], header["program"])
            self._stages.add((run, header["name"]))
            return None
        if header["epoch"] <= self.pass_number(run):
            return None
        self._handler.parameters(run, header["epoch"], message.tensors, header["settings"])
        self._passes[run] = header["epoch"]
        return run, header["epoch"]

    def ask_again(self) -> None:
        """Forget what was asked for, so that a chunk that lacks it asks again."""
        self._asked.clear()

    def drop(self, header: dict[str, Any]) -> None:
        """Note that the supply which a header names is no longer awaited."""
        self._asked.pop(_want(header), None)

    def overdue(self) -> list[tuple[dict[str, Any], str, str]]:
        """Return the supplies that did not arrive in time, each once, as (header, code, text) of an error."""
        now = time.monotonic()
        late = [want for want, deadline in self._asked.items() if deadline < now]
        for want in late:
            del self._asked[want]
        text = f"the coordinator sent no answer within {self._settings.fetch_seconds} s (fetch_seconds); asked for"
        return [(_header(want), "no_answer", f"{text} {want[0]} {want[2]!r} of run {want[1]!r}") for want in late]

    def forget(self, run: str) -> None:
        """Drop all that is known of a run."""
        self._stages = {stage for stage in self._stages if stage[0] != run}
        self._passes.pop(run, None)
        self._asked = {want: deadline for want, deadline in self._asked.items() if want[1] != run}


def _wants(key: ChunkKey) -> tuple[Want, Want]:
    return ("stage", key.run, key.stage), ("parameters", key.run, key.pass_number)


def _want(header: dict[str, Any]) -> Want:
    what = header["what"]
    return what, header.get("run", ""), header.get("name" if what == "stage" else "epoch", "")


def _header(want: Want) -> dict[str, Any]:
    what, run, which = want
    return {"what": what, "run": run, "name" if what == "stage" else "epoch": which}
