from __future__ import annotations

import io
from typing import Any

from lotan.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _entry(epoch: int) -> dict[str, Any]:
    metrics = {"val": {"accuracy": 0.5}}
    return {"epoch": epoch, "loss": 1.0 / epoch, "train_seconds": 1.0, "eval_seconds": 0.5, "metrics": metrics}


def _shown(stream: io.StringIO, show: bool = True) -> str:
    progress = Progress(2, show=show, stream=stream)
    progress.epoch(_entry(1))
    progress.epoch(_entry(2))
    progress.say("stopped")
    progress.close()
    return stream.getvalue()


def test_plain_lines_where_there_is_no_terminal() -> None:
    assert _shown(io.StringIO()).splitlines() == [
        "epoch 1/2  loss 1.0000  val accuracy 0.5000  1.00 s, evaluated in 0.50 s",
        "epoch 2/2  loss 0.5000  val accuracy 0.5000  1.00 s, evaluated in 0.50 s",
        "stopped",
    ]


def test_one_live_line_on_a_terminal() -> None:
    shown = _shown(Terminal())
    assert "2/2" in shown
    assert "loss 0.5000  val accuracy 0.5000" in shown
    assert "stopped\n" in shown
    assert shown.count("\n") == 2  # that of "stopped", and the end of the live line


def test_silence() -> None:
    assert _shown(Terminal(), show=False) == _shown(io.StringIO(), show=False) == ""
