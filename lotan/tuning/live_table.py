"""The progress of a search: a table that is redrawn in place on a terminal, or lines now and then elsewhere."""

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

REDRAW_SECONDS = 0.1  # the least time between two drawings of the table
SPARE_LINES = 4  # lines of the terminal for the head and for the text below the table
LINES_A_MODEL = 10  # lines of each model without a terminal, beside the line at its end
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
        monitor: the metric to show, measured on the validation vertices.
        show: if False, nothing is shown (default: True).
        stream: the stream to write to (default: standard error, so that the output can be piped).
    """

    def __init__(self, monitor: str, show: bool = True, stream: TextIO | None = None) -> None:
        self._monitor = monitor
        self._stream = stream or sys.stderr
        self._live = show and self._stream.isatty()
        self._lines = show and not self._live
        self._models: list[_Line] = []
        self._drawn = 0  # lines of the table on the terminal
        self._drawn_at = 0.0

    def add(self, name: str, epochs: int) -> None:
        """Add a model with its name and its number of epochs."""
        self._models.append(_Line(name, epochs))

    def say(self, line: str) -> None:
        """Print a line above the table."""
        if self._live:
            self._wipe()
            self._write(line + "\n")
            self._draw()
        elif self._lines:
            self._write(line + "\n")

    def epoch(self, number: int, entry: Mapping[str, Any]) -> None:
        """Show an epoch of a model. `entry` is the epoch's entry in the report."""
        line = self._models[number]
        line.epoch, line.loss, line.state, line.reason = entry["epoch"], entry["loss"], "training", ""
        line.value = entry.get("metrics", {}).get("val", {}).get(self._monitor, line.value)
        if self._live and time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._redraw()
        elif self._lines and line.epoch < line.epochs and line.epoch % -(-line.epochs // LINES_A_MODEL) == 0:
            self._print(number)

    def states(self, found: Iterable[MemberState]) -> None:
        """Show the models' states between two rounds."""
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
        """Remove the table. The final table is printed elsewhere."""
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
        """Return the numbers of at most `most` models to show, ascending. Models in training are preferred."""
        numbers = range(len(self._models))
        urgent = sorted(numbers, key=lambda one: (self._models[one].state in ENDED, one))
        return sorted(urgent[:most])

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
