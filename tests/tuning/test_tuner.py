"""Searches on a small graph: every trial is the model that it would be alone, whatever is trained beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import torch

import lotan
from lotan.cli import main
from lotan.errors import ConfigurationError, EngineError, GraphError, ModelError
from lotan.tuning.result import Tuned
from tests.conftest import ROOT
from tests.tuning.graphs import MIXED, small_graph, write_small_graph

pytestmark = pytest.mark.thorough

RANGES = {
    "epochs": 7,
    "model": {"hidden": 4, "dropout": [0.0, 0.5]},
    "optimizer": {"lr": {"low": 0.001, "high": 0.5, "log": True}},
}


def tune(grid, **options) -> Tuned:
    return lotan.tune(small_graph(), grid, **{"engine": "local", "progress": False, **options})


@pytest.fixture(scope="module")
def mixed() -> Tuned:
    return tune(MIXED)


def figures(history) -> list:
    """Of each epoch what does not depend on the clock."""
    return [(entry["epoch"], entry["loss"], entry.get("metrics")) for entry in history]


def outcome(tuned: Tuned) -> list:
    """All that came of a search but for what it took."""
    return [
        (one.number, one.settings, one.state, one.reason, one.best_epoch, figures(one.history)) for one in tuned.trials
    ]


def test_every_trial_is_what_lotan_train_makes_of_its_settings(mixed, tmp_path):
    graph = write_small_graph(tmp_path / "graph")
    report = tmp_path / "report.json"
    alike = [trial for trial in mixed.trials if trial.train_options is not None]
    assert {trial.settings.values["model.kind"] for trial in alike} == {"gcn", "gat"}
    assert any(trial.state == "stopped early" and trial.epoch < 8 for trial in alike)
    for trial in alike:
        words = trial.train_options
        assert main(["train", "--graph", graph, "--quiet", "--report", str(report), *words]) == 0
        alone = json.loads(report.read_text())
        assert figures(alone["epochs"]) == figures(trial.history)
        assert (alone["best_epoch"], alone["metrics"]) == (trial.best_epoch, trial.metrics)


def test_the_best_model_has_the_weights_of_the_one_trained_alone(tmp_path):
    tuned = tune({"epochs": 4, "model": {"hidden": 4, "layers": [1, 3]}})
    tuned.save_best(tmp_path / "tuned")
    words = ["--quiet", "--save", str(tmp_path / "alone"), *tuned.best.train_options]
    assert main(["train", "--graph", write_small_graph(tmp_path / "graph"), *words]) == 0
    one, other = (torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("tuned", "alone"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert len(tuned.best_run.predict()) == 60


def test_what_all_have_in_common_is_in_the_options_of_each():
    grid = {"epochs": 2, "model": {"hidden": 4}}
    (trial,) = tune(grid, monitor="loss", disable=["push_down"]).report()["trials"]
    assert trial["train_options"][:6] == ["--monitor", "loss", "--engine", "local", "--disable", "push_down"]
    (trial,) = tune(grid, engine="auto").report()["trials"]
    assert trial["train_options"][:2] == ["--engine", "local"]
    (trial,) = tune(grid, class_weights=[1.0, 2.0, 1.0]).report()["trials"]
    assert trial["train_options"][:2] == ["--class-weights", "1.0,2.0,1.0"]
    (trial,) = tune(grid, chunk_rows=16).report()["trials"]
    assert trial["train_options"] is None


def test_trials_are_sorted_by_their_best_value(mixed):
    values = [trial.metrics["val"]["accuracy"] for trial in mixed.trials]
    assert values == sorted(values, reverse=True) == [trial.value for trial in mixed.trials]
    assert sorted(trial.number for trial in mixed.trials) == list(range(6))
    assert mixed.best is mixed.trials[0]
    for trial in mixed.trials:
        assert trial.value == max(entry["metrics"]["val"]["accuracy"] for entry in trial.history)


def test_a_metric_that_should_fall_is_sorted_the_other_way():
    tuned = tune({"epochs": 3, "optimizer": {"lr": [0.01, 0.5]}}, monitor="loss")
    values = [trial.value for trial in tuned.trials]
    assert values == sorted(values)
    assert values[0] == min(entry["metrics"]["val"]["loss"] for trial in tuned.trials for entry in trial.history)


def test_the_frame_and_the_report_say_the_same(mixed, tmp_path):
    frame = mixed.frame()
    assert list(frame.columns[:6]) == ["number", "model", "heads", "optimizer", "momentum", "state"]
    assert list(frame["val_accuracy"]) == [trial.value for trial in mixed.trials]
    mixed.write_report(tmp_path / "tune.json")
    report = json.loads((tmp_path / "tune.json").read_text())
    assert [trial["number"] for trial in report["trials"]] == list(frame["number"])
    assert report["best"] == mixed.best.number
    assert report["engine"] == "local"
    assert report["trials"][0]["settings"]["model.kind"] == frame["model"][0]
    assert len(report["trials"][0]["epochs"]) == mixed.best.epoch
    assert "2 of 8 combinations" in report["notes"][0]
    assert "members" not in report


def test_the_documentation_has_the_keys_of_the_report_and_no_others(mixed):
    report = mixed.report()
    page = (ROOT / "docs" / "reference" / "report.md").read_text()
    told = page.partition("## The report of a grid")[2].partition("have ")[2].partition("`train_options` come after")[0]
    first, *rows = told.split("\n| `")
    promised = set(re.findall(r"`([a-z_]+)`", first)) | {row.partition("`")[0] for row in rows}
    assert promised == set(report)
    for name in ("batches", "trials"):
        (row,) = (row for row in rows if row.startswith(f"{name}`"))
        assert [key for key in report[name][0] if f"`{key}`" not in row] == []


def test_optuna_chooses_the_same_for_the_same_seed():
    grid = {**RANGES, "epochs": 3}
    first, again = (tune(grid, search="optuna", trials=4, max_models=2, seed=1) for _ in range(2))
    assert outcome(first) == outcome(again)
    assert len(first.trials) == 4


def test_halving_stops_those_that_were_worst_at_each_rung():
    straight = {trial.number: trial for trial in tune(RANGES, search="random", trials=6).trials}
    tuned = tune(RANGES, search="halving", trials=6)

    def reached(number: int, epoch: int) -> float:
        return max(entry["metrics"]["val"]["accuracy"] for entry in straight[number].history[: epoch - 1])

    kept = sorted(range(6), key=lambda number: (-reached(number, 5), number))[:2]  # of 7 epochs, the only rung is 5
    assert Counter(trial.epoch for trial in tuned.trials) == {5: 4, 7: 2}
    assert sorted(trial.number for trial in tuned.trials if trial.state == "done") == sorted(kept)
    for trial in tuned.trials:  # as far as it went, each went as it would have gone
        known = trial.epoch - (trial.state == "stopped")  # where nothing is random, the next epoch would have evaluated
        assert figures(trial.history[:known]) == figures(straight[trial.number].history[:known])
        assert (trial.state == "stopped") == (trial.number not in kept)
    assert {trial.reason for trial in tuned.trials} == {"", "after epoch 5 not among the best 2 of 6"}


def test_one_that_diverges_is_last_and_leaves_the_others_alone():
    tuned = tune({"epochs": 5, "optimizer": {"name": "sgd", "lr": [0.1, 1e30], "weight_decay": [0.0]}})
    assert [(trial.number, trial.state) for trial in tuned.trials] == [(0, "done"), (1, "diverged")]
    assert tuned.trials[1].value is None
    assert "loss" in tuned.trials[1].reason
    alone = tune({"epochs": 5, "optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 0.0}})
    assert figures(alone.best.history) == figures(tuned.best.history)


def test_if_all_diverge_there_is_no_best(tmp_path):
    tuned = tune({"epochs": 3, "optimizer": {"name": "sgd", "lr": [1e30, 2e30]}})
    with pytest.raises(EngineError, match="none of 2 models can be used"):
        tuned.save_best(tmp_path)
    assert tuned.report()["best"] is None
    assert "diverged" in repr(tuned)


@pytest.mark.parametrize(
    ("grid", "options", "error", "expected"),
    [
        ({"seed": 1}, {"search": "annealing"}, ConfigurationError, "unknown search 'annealing'"),
        ({"seed": 1}, {"trials": 3}, ConfigurationError, "'grid' takes all"),
        ({"seed": 1}, {"eta": 1, "search": "halving"}, ConfigurationError, "eta=1"),
        ({"seed": 1}, {"optimizer": lotan.Adam()}, ConfigurationError, "which is each model's own"),
        ({"seed": 1}, {"engin": "local"}, ConfigurationError, "unknown setting engin"),
        ({"seed": 1}, {"log_file": "runs"}, ConfigurationError, "unknown setting log_file"),
        ({"seed": 1}, {"search": "halving", "eval_every": 0}, ConfigurationError, "eval_every to 1 or more"),
        ({"seed": 1}, {"monitor": "mse"}, ConfigurationError, "unknown metric 'mse'"),
        ({"seed": 1, "patience": 3}, {"patience": 3}, ConfigurationError, "grid sets patience"),
        ({"model": {"kind": "gat", "hidden": [8, 9], "heads": 2}}, {}, ConfigurationError, "hidden 9"),
        ({"model": {"act": ["relu", "loudly"]}}, {}, ConfigurationError, "'loudly' is unknown"),
        ({"model": {"kind": f"{__name__}:refuse"}, "seed": 1}, {}, ModelError, "on principle"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_trained(grid, options, error, expected, monkeypatch):
    monkeypatch.setattr("lotan.batch.model_batch.ModelBatch.train", None)
    with pytest.raises(error) as raised:
        tune(grid, **options)
    assert expected in str(raised.value)


def refuse(in_channels, out_channels):
    raise ValueError("on principle")


def test_without_validation_vertices_there_is_nothing_to_compare():
    graph = small_graph()
    split = graph.arrays().split.copy()
    split[split == 1] = 2
    arrays = graph.arrays()
    graph = lotan.Graph.from_arrays(arrays.features, arrays.src, arrays.dst, label=arrays.label, split=split)
    with pytest.raises(GraphError, match="no labelled vertex is in 'val'"):
        lotan.tune(graph, {"seed": 1}, engine="local", progress=False)


DIE = """
import os, signal, sys
import lotan
from lotan.tuning.live_table import LiveTable
from tests.tuning.test_tuner import RANGES, tune
left = int(sys.argv[2])
def epoch(self, number, entry):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
LiveTable.epoch = epoch
tune(RANGES, search="halving", trials=6, checkpoint_dir=sys.argv[1], resume=True)
"""


@pytest.mark.nightly  # by day, one that is paused and goes on
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.processes
@pytest.mark.parametrize("kills", [(18,), (13, 18)], ids=str)
def test_killed_and_resumed_equals_straight(tmp_path, kills):
    straight = outcome(tune(RANGES, search="halving", trials=6))
    folder = tmp_path / "checkpoints"
    for epochs in kills:  # of all models: in the first rung, and after it
        killed = subprocess.run([sys.executable, "-c", DIE, str(folder), str(epochs)], timeout=120, check=False)
        assert killed.returncode == -9
    assert outcome(tune(RANGES, search="halving", trials=6, checkpoint_dir=folder, resume=True)) == straight
    assert len(os.listdir(folder)) == 6
