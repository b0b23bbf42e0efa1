"""What a search says while it runs."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

from lotan.batch.members import MemberState
from lotan.tuning.live_table import LiveTable
from tests.training.test_progress import Terminal


def entry(epoch: int) -> dict:
    return {"epoch": epoch, "loss": 1 / epoch, "metrics": {"val": {"accuracy": epoch / 100}}}


def state(number: int, epoch: int, state: str, evaluated: int = 0, reason: str = "") -> MemberState:
    """Of a model that was evaluated up to an epoch."""
    history = [entry(done) if done <= evaluated else {"loss": 1 / done} for done in range(1, epoch + 1)]
    return SimpleNamespace(number=number, epoch=epoch, state=state, reason=reason, history=history)


def run(stream: io.StringIO, show: bool = True, models: int = 2, epochs: int = 20) -> str:
    shown = LiveTable("accuracy", show, stream)
    for number in range(models):
        shown.add(f"lr 0.{number + 1}", epochs)
    shown.say("2 of 4 combinations are the same")
    for epoch in range(1, epochs + 1):
        shown.epoch(0, entry(epoch))
    for _ in range(2):
        shown.states([state(0, epochs, "done", epochs), state(1, 5, "stopped", 4, "after epoch 5")])
    shown.close()
    return stream.getvalue()


def screen(written: str) -> list[str]:
    """What stands on a terminal in the end: each redrawing goes up some lines and clears from there."""
    lines = [""]
    for part in re.split(r"(\x1b\[\d+A\x1b\[J|\n)", written):
        if part == "\n":
            lines.append("")
        elif part.startswith("\x1b["):
            lines = [*lines[: len(lines) - 1 - int(part[2 : part.index("A")])], ""]
        else:
            lines[-1] += part
    return lines


def test_a_few_plain_lines_where_there_is_no_terminal():
    lines = run(io.StringIO()).splitlines()
    assert lines[0] == "2 of 4 combinations are the same"
    assert lines[1] == "model 0 (lr 0.1)  epoch 2/20  loss 0.5000  val accuracy 0.0200  training"
    assert lines[-2:] == [
        "model 0 (lr 0.1)  epoch 20/20  loss 0.0500  val accuracy 0.2000  done",
        "model 1 (lr 0.2)  epoch 5/20  loss 0.2000  val accuracy 0.0400  stopped: after epoch 5",
    ]
    assert len(lines) == 1 + 9 + 2


def test_a_table_redrawn_in_place_on_a_terminal_and_taken_away_at_the_end(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    written = run(Terminal())
    assert screen(written) == ["2 of 4 combinations are the same", ""]
    before_the_end = screen(written[: written.rindex("\x1b[", 0, written.rindex("\x1b["))])
    assert before_the_end[1].split() == ["model", "epoch", "loss", "val", "accuracy", "state"]
    assert before_the_end[2].split() == ["0", "lr", "0.1", "20/20", "0.0500", "0.2000", "done"]
    assert before_the_end[3].split()[-5:] == ["0.0400", "stopped:", "after", "epoch", "5"]


def test_a_table_fits_the_terminal_and_shows_who_is_training(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "9")
    stream = Terminal()
    shown = LiveTable("accuracy", True, stream)
    for number in range(20):
        shown.add(f"lr 0.{number}", 20)
    shown.states(
        [*(state(number, 20, "done") for number in range(18)), state(18, 3, "training"), state(19, 0, "waiting")]
    )
    lines = screen(stream.getvalue())
    assert max(map(len, lines)) < 40
    assert len(lines) <= 9
    assert [line.split()[0] for line in lines[1:-2]] == ["0", "1", "2", "18", "19"]
    assert lines[-2] == "and 15 more"


def test_silence():
    assert run(Terminal(), show=False) == run(io.StringIO(), show=False) == ""
