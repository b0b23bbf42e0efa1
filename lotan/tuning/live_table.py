"""What a search says while it runs: a table redrawn in place on a terminal, now and then a line otherwise, or nothing."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from lotan.tuning.table import aligned

if TYPE_CHECKING:
    from lotan.batch.members import MemberState

REDRAW_SECONDS = 0.1  # at most so often
SPARE_LINES = 4  # of the terminal, for heads and what is below
LINES_A_MODEL = 10  # where there is no terminal, beside its end
ENDED = frozenset(("done", "stopped early", "stopped", "diverged"))

_UP, _CLEAR = "\x1b[{}A", "\x1b[J"


@dataclass
class _Line:
    name: str
    epochs: int
    epoch: int = 0
    loss: float | None = None
    value: float | None = None
    state: str = "waiting"
    reason: str = ""

    def cells(self, number: int) -> list[str]:
        figures = ["-" if figure is None else f"{figure:.4f}" for figure in (self.loss, self.value)]
        state = f"{self.state}: {self.reason}" if self.reason else self.state
        return [str(number), self.name, f"{self.epoch}/{self.epochs}", *figures, state]


class LiveTable:
    """Shows the models of a search.

    Args:
        monitor: the metric to show, of the validation vertices.
        show: False for silence.
        stream: where to write; standard error by default, so that output can be piped.
    """

    def __init__(self, monitor: str, show: bool = True, stream: TextIO | None = None) -> None:
        self._monitor = monitor
        self._stream = stream or sys.stderr
        self._live = show and self._stream.isatty()
        self._lines = show and not self._live
        self._models: list[_Line] = []
        self._drawn = 0  # lines that stand there
        self._drawn_at = 0.0

    def add(self, name: str, epochs: int) -> None:
        """Another model, by what it is called and the epochs it may train."""
        self._models.append(_Line(name, epochs))

    def say(self, line: str) -> None:
        """A line of its own, above the table."""
        if self._live:
            self._wipe()
            self._write(line + "\n")
            self._draw()
        elif self._lines:
            self._write(line + "\n")

    def epoch(self, number: int, entry: Mapping[str, Any]) -> None:
        """An epoch of a model is done; `entry` is its part of the report."""
        line = self._models[number]
        line.epoch, line.loss, line.state, line.reason = entry["epoch"], entry["loss"], "training", ""
        line.value = entry.get("metrics", {}).get("val", {}).get(self._monitor, line.value)
        if self._live and time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._redraw()
        elif self._lines and line.epoch < line.epochs and line.epoch % -(-line.epochs // LINES_A_MODEL) == 0:
            self._print(number)

    def states(self, found: Iterable[MemberState]) -> None:
        """What has become of models between two rounds."""
        for one in found:
            line = self._models[one.number]
            ends = one.state in ENDED and line.state != one.state
            line.epoch, line.state, line.reason = one.epoch, one.state, one.reason
            for entry in one.history[-1:]:
                line.loss = entry["loss"]
            evaluated = [entry["metrics"]["val"] for entry in one.history if "val" in entry.get("metrics", {})]
            for figures in evaluated[-1:]:
                line.value = figures[self._monitor]
            if ends and self._lines:
                self._print(one.number)
        if self._live:
            self._redraw()

    def close(self) -> None:
        """Take the table away; what is final is printed by others."""
        if self._live:
            self._wipe()

    def _print(self, number: int) -> None:
        line = self._models[number]
        _, name, epoch, loss, value, state = line.cells(number)
        self._write(f"model {number} ({name})  epoch {epoch}  loss {loss}  val {self._monitor} {value}  {state}\n")

    def _redraw(self) -> None:
        self._wipe()
        self._draw()

    def _wipe(self) -> None:
        if self._drawn:
            self._write(_UP.format(self._drawn) + _CLEAR)
        self._drawn = 0

    def _draw(self) -> None:
        if not self._models:
            return
        columns, lines = shutil.get_terminal_size()
        heads = ["", "model", "epoch", "loss", f"val {self._monitor}", "state"]
        shown = self._chosen(max(1, lines - SPARE_LINES))
        text = aligned([heads, *(self._models[number].cells(number) for number in shown)])
        rest = len(self._models) - len(shown)
        text += [f"and {rest} more"] if rest else []
        self._write("".join(line[: columns - 1] + "\n" for line in text))
        self._drawn, self._drawn_at = len(text), time.monotonic()

    def _chosen(self, most: int) -> list[int]:
        """Numbers of the models to show, those in training before others, ascending."""
        numbers = range(len(self._models))
        urgent = sorted(numbers, key=lambda one: (self._models[one].state in ENDED, one))
        return sorted(urgent[:most])

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
