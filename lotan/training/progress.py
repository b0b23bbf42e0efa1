"""The messages of a run: one live line on a terminal, one line per epoch elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from tqdm import tqdm


class Progress:
    """Shows the epochs of one run. It stores no history: that belongs to the trainer.

    Args:
        epochs: The total number of epochs.
        done: The number of epochs finished before, when the run is resumed.
        show: False for silence.
        stream: The stream to write to; by default standard error, so that output can be piped.
        listener: A function that is called with the entry of each epoch, shown or not.
    """

    def __init__(
        self,
        epochs: int,
        done: int = 0,
        show: bool = True,
        stream: TextIO | None = None,
        listener: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._epochs = epochs
        self._listener = listener
        self._stream = stream or sys.stderr
        self._lines = show and not self._stream.isatty()
        self._bar = (
            tqdm(total=epochs, initial=done, unit="epoch", file=self._stream, dynamic_ncols=True)
            if show and not self._lines
            else None
        )

    def say(self, line: str) -> None:
        """Print a line, such as the reason why training stopped early."""
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        elif self._lines:
            print(line, file=self._stream, flush=True)

    def epoch(self, entry: Mapping[str, Any]) -> None:
        """Show a finished epoch; `entry` is its part of the report."""
        if self._listener is not None:
            self._listener(entry)
        if self._bar is not None:
            self._bar.set_postfix_str(describe(entry), refresh=False)
            self._bar.update()
        elif self._lines:
            evaluated = f", evaluated in {entry['eval_seconds']:.2f} s" if entry["eval_seconds"] else ""
            seconds = f"{entry['train_seconds']:.2f} s{evaluated}"
            self.say(f"epoch {entry['epoch']}/{self._epochs}  {describe(entry)}  {seconds}")

    def close(self) -> None:
        """Close the live line, and leave it as it is."""
        if self._bar is not None:
            self._bar.close()


def describe(entry: Mapping[str, Any]) -> str:
    """Return the figures of an epoch in words.

    >>> describe({"loss": 0.25, "metrics": {"val": {"loss": 0.5, "accuracy": 0.75}}})
    'loss 0.2500  val accuracy 0.7500'
    """
    parts = [f"loss {entry['loss']:.4f}"]
    for split in ("val", "test"):
        for name, value in entry.get("metrics", {}).get(split, {}).items():
            if name != "loss" and not name.startswith("raw_"):
                parts.append(f"{split} {name} {value:.4f}")
    return "  ".join(parts)
