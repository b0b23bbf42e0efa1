"""Learned rows in row tables: bit for bit the weights and the optimizer's state of rows in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import ConfigurationError, EngineError
from lotan.tables.control import Control
from lotan.tables.pipeline import RowPipeline
from lotan.tables.processes import TableProcesses
from tests.exactness.steps import at_night
from tests.links.graphs import graph as link_graph
from tests.training.test_learned_rows import Sage, drawn

pytestmark = pytest.mark.processes

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
