"""Learned rows in row tables: bit for bit the weights and the optimizer's state of rows in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import ConfigurationError, EngineError
from lotan.tables.control import Control
from lotan.tables.processes import TableProcesses
from messenger.keys import CurveKeys, allowed_keys, create_keys
from messenger.settings import Settings
from messenger.sockets import ZmqHub
from messenger.table_loop import TableLoop
from tests.links.graphs import graph as link_graph
from tests.night import at_night
from tests.training.test_learned_rows import Sage, drawn

pytestmark = [pytest.mark.thorough, pytest.mark.processes]

REGIME = lotan.MiniBatch(4, (2, 3), seed=9)
TASK = lotan.LinkPrediction(decoder="distmult", negatives=15)
EPOCHS = 3


class Rows(torch.nn.Module):
    """Learned rows of several kinds: trained ones before and after a layer, and others that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.more, self.fixed = (lotan.nn.LearnedFeatures(width) for width in (6, 5, 5))
        self.fixed.weight.requires_grad_(False)
        self.conv = lotan.nn.SAGEConv(6, 5)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        return self.conv(self.rows(graph), graph) + self.more(graph) + self.fixed(graph)


def classified(folder: Path, **options: Any) -> Any:
    torch.manual_seed(0)
    settings = {"regime": REGIME, "checkpoint_dir": folder, "epochs": EPOCHS, "progress": False, **options}
    return lotan.Trainer(Sage(), drawn(5).graph, **settings).fit()


def linked(folder: Path, **options: Any) -> Any:
    torch.manual_seed(0)
    regime = lotan.MiniBatch(16, (3,), seed=9)
    settings = {"regime": regime, "checkpoint_dir": folder, "epochs": EPOCHS, "progress": False, **options}
    return lotan.Trainer(Rows(), link_graph(1, vertices=60), task=TASK, **settings).fit()


def assert_same_bits(here: Path, there: Path) -> None:
    """Compare weights, best weights and the optimizer's state of two checkpoints, and all but the seconds of their history."""
    one, other = (torch.load(folder / "last.pt", weights_only=True) for folder in (here, there))
    for name in ("weights", "best_weights"):
        assert one[name].keys() == other[name].keys()
        assert [key for key in one[name] if not torch.equal(one[name][key], other[name][key])] == []
    states = one["optimizer"]["state"], other["optimizer"]["state"]
    assert states[0].keys() == states[1].keys()
    for key, state in states[0].items():
        assert state.keys() == states[1][key].keys()
        assert all(torch.equal(tensor, states[1][key][name]) for name, tensor in state.items())
    seconds = ("train_seconds", "eval_seconds")
    without = [
        [{key: entry[key] for key in entry if key not in seconds} for entry in each["history"]] for each in (one, other)
    ]
    assert without[0] == without[1]


@pytest.fixture
def repaired(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the rows that were repaired so far, after each batch."""
    found: list[int] = []
    before = Control.repair

    def counted(self: Control, *given: Any) -> None:
        before(self, *given)
        found.append(self.figures.repaired)

    monkeypatch.setattr(Control, "repair", counted)
    return found


OPTIMIZERS = [lotan.Adam(lr=0.05), lotan.Adagrad(lr=0.1), lotan.SGD(lr=0.3)]
CASES = [(train, optimizer, "optimistic", 2) for train in (classified, linked) for optimizer in OPTIMIZERS]
CASES += [(train, OPTIMIZERS[0], "none", 1) for train in (classified, linked)]
BY_DAY = [CASES[0], CASES[4], CASES[-1]]


@pytest.mark.parametrize(("train", "optimizer", "asynchrony", "tables"), at_night(CASES, BY_DAY))
def test_rows_in_tables_train_as_rows_in_this_process(
    train: Any, optimizer: lotan.Adam, asynchrony: str, tables: int, tmp_path: Path, repaired: list[int]
) -> None:
    """Weights, the optimizer's state, history and best weights, with clipped gradients."""
    given = {"optimizer": optimizer, "clip_grad_norm": 0.5}
    here = train(tmp_path / "here", **given)
    there = train(tmp_path / "there", tables=tables, asynchrony=asynchrony, **given)
    assert_same_bits(tmp_path / "here", tmp_path / "there")
    figures = there.report["mini_batches"]
    assert figures["batches"] == here.report["mini_batches"]["batches"]
    assert figures["row_tables"] == tables
    assert (repaired[-1] > 0) == (asynchrony == "optimistic")
    assert figures["rows_repaired"] == repaired[-1]


def test_plain_asynchrony_loses_updates(tmp_path: Path) -> None:
    here = classified(tmp_path / "here")
    there = classified(tmp_path / "there", tables=1, asynchrony="plain")
    assert not torch.equal(here.model.weights["rows.weight"], there.model.weights["rows.weight"])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[TableProcesses]:
    """Collects the tables that runs start."""
    found: list[TableProcesses] = []
    before = TableProcesses.__init__

    def remembered(self: TableProcesses, *given: Any) -> None:
        before(self, *given)
        found.append(self)

    monkeypatch.setattr(TableProcesses, "__init__", remembered)
    return found


def at_batch(monkeypatch: pytest.MonkeyPatch, numbers: set[int], action: Any) -> None:
    """Have something happen right before some batches of a run are computed."""
    before, calls = Control.repair, [0]

    def disturbed(self: Control, *given: Any) -> None:
        if calls[0] in numbers:
            action(calls[0])
        calls[0] += 1
        before(self, *given)

    monkeypatch.setattr(Control, "repair", disturbed)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("train", "batches"), at_night([(classified, {5}), (linked, {0, 14, 15, 27})], [(classified, {5})])
)
def test_a_table_that_is_killed_in_mid_epoch_changes_no_bit(
    train: Any, batches: set[int], tmp_path: Path, started: list[TableProcesses], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again with its files, and is sent again what it did not answer."""
    train(tmp_path / "here")
    at_batch(monkeypatch, batches, lambda number: os.kill(started[-1].pids[number % 2], signal.SIGKILL))
    there = train(tmp_path / "there", tables=2)
    assert_same_bits(tmp_path / "here", tmp_path / "there")
    assert there.report["mini_batches"]["batches"] > max(batches)
    assert started[-1].restarts == len(batches)


DRIVER = """
import os, signal, sys
from pathlib import Path
import pytest
from tests.training import test_row_tables
with pytest.MonkeyPatch.context() as patch:
    test_row_tables.at_batch(patch, {8}, lambda number: os.kill(os.getpid(), signal.SIGKILL))
    test_row_tables.classified(Path(sys.argv[1]), tables=2)
"""


@pytest.mark.chaos
@pytest.mark.nightly
def test_a_trainer_that_is_killed_in_mid_epoch_is_resumed_and_its_tables_end(tmp_path: Path) -> None:
    classified(tmp_path / "here")
    before = set(Path(tempfile.gettempdir()).glob("lotan-table-*"))
    done = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "there")], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    run = classified(tmp_path / "there", tables=2, resume=True)
    assert len(run.history) == EPOCHS
    assert_same_bits(tmp_path / "here", tmp_path / "there")
    left = lambda: set(Path(tempfile.gettempdir()).glob("lotan-table-*")) - before  # noqa: E731
    for _ in range(100):
        if not left():
            return
        threading.Event().wait(0.05)
    pytest.fail(f"files of tables whose trainer was killed are left: {left()}")


def test_tables_that_were_started_by_hand_serve_one_run_after_the_other(tmp_path: Path) -> None:
    """With keys."""
    create_keys(tmp_path / "keys")
    keys = CurveKeys.load(tmp_path / "keys", "router")
    hub = ZmqHub("tcp://127.0.0.1:*", Settings(), keys, allowed_keys(tmp_path / "keys"))
    loop = TableLoop(hub)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        for name in ("one", "two"):
            classified(tmp_path / name, tables=loop.address, keys=tmp_path / "keys", epochs=1)
    finally:
        loop.stop()
        thread.join(10)
    assert_same_bits(tmp_path / "one", tmp_path / "two")


REFUSED = [
    ({"tables": 0}, "tables is 0; expected a number of processes of at least 1"),
    ({"tables": True}, "tables is True; expected"),
    ({"tables": "host:5571"}, "expected a number of processes"),
    ({"tables": "tcp://a:1,tcp://a:1"}, "tcp://a:1 twice"),
    ({"tables": 1, "regime": lotan.FullBatch()}, "train with regime=lotan.MiniBatch"),
    ({"tables": 1, "engine": "rows"}, "runs on the engines 'local' and 'blocks', but engine is 'rows'"),
    ({"tables": 1, "memory_limit": "2g"}, "memory_limit does not count row tables so far"),
    ({"tables": 1, "asynchrony": "bounded"}, "asynchrony is 'bounded'; expected 'optimistic' or 'plain' or 'none'"),
    ({"tables": 1, "table_memory": "much"}, "table_memory is 'much'"),
    ({"tables": "tcp://a:1", "table_memory": "1m"}, "give `lotan table --memory`"),
    ({"asynchrony": "none"}, "asynchrony is for learned rows in row tables: give tables too"),
    ({"table_memory": "1m"}, "table_memory is for learned rows in row tables"),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        lotan.TrainerConfig(**{"regime": REGIME, **settings})


def test_what_cannot_train_in_tables_is_refused_before_the_first_batch(tmp_path: Path) -> None:
    given, trained = drawn(5).graph, lotan.nn.GraphSAGE(2, 5, 2, 3)
    with pytest.raises(ConfigurationError, match="the model has no learned rows"):
        lotan.Trainer(trained, drawn(5, features=True).graph, regime=REGIME, tables=1, progress=False).explain()
    shown = lotan.Trainer(Sage(), given, regime=REGIME, tables=2, asynchrony="none").explain()
    assert "Rows learned, in 2 row tables, with asynchrony 'none': rows.weight 50 rows of 6 numbers" in " ".join(
        shown.split()
    )
    with pytest.raises(
        ConfigurationError, match=r"table_memory: .* 25 rows of 18 numbers .* may hold 1,000; start more"
    ):
        classified(tmp_path / "here", tables=2, table_memory=1000)
    with pytest.raises(ConfigurationError, match="tables has the learned rows of one model so far"):
        lotan.ModelBatch(given, [lotan.Member(Sage())], regime=REGIME, tables=1)


def test_a_pass_that_fails_leaves_all_rows_and_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the error is held, with all that its traceback refers to."""
    calls = [0]

    def failing(outcome: Any, *given: Any) -> Any:
        calls[0] += 1
        if calls[0] == 7:
            raise EngineError("planted")
        return outcome

    monkeypatch.setattr("lotan.training.passes.mean_of_batch", failing)
    model = Sage()
    with pytest.raises(EngineError, match="planted") as error:
        lotan.Trainer(model, drawn(5).graph, regime=REGIME, tables=1, progress=False).fit()
    assert len(model.rows.weight) == len(drawn(5).label)
    assert not [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("lotan-rows", "lotan-table"))
    ]
    del error


def test_a_table_that_ends_for_good_is_an_error_that_names_it(
    tmp_path: Path, started: list[TableProcesses], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lotan.tables.processes.RESPAWNS", 0)
    monkeypatch.setattr("lotan.training.row_tables.SETTINGS", Settings(result_seconds=2.0))
    at_batch(monkeypatch, {5}, lambda number: os.kill(started[-1].pids[0], signal.SIGKILL))
    with pytest.raises(EngineError, match="row table"):
        classified(tmp_path / "there", tables=1)
