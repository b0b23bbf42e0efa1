"""Grids of models that learn links, and of mini-batches: each model is the one that `lotan train` makes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lotan
from lotan.cli import main
from lotan.errors import ConfigurationError, GraphError
from lotan.tuning.keys import fanouts
from tests.links.graphs import columns, graph
from tests.tuning.graphs import small_graph

GRID = {
    "epochs": 2,
    "batch_size": [32, 64],
    "fanouts": [[3, "all"]],
    "model": {"kind": "sage", "hidden": [4, 6]},
    "link": {"decoder": ["distmult"], "negatives": 9, "filtered": True},
}
TOML = """
epochs = 2
batch_size = [32, 64]
fanouts = "3,all"
[model]
kind = "sage"
hidden = [4, 6]
[link]
decoder = "distmult"
negatives = 9
filtered = true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    held = columns(1)
    vertices = pd.DataFrame({"id": range(40), "features": list(held["features"])})
    split = np.array(["train", "val", "test"])[held["edge_split"]]
    edges = pd.DataFrame({"src": held["src"], "dst": held["dst"], "split": split, "relation": held["relation"]})
    (tmp_path / "graph").mkdir()
    vertices.to_parquet(tmp_path / "graph" / "vertices.parquet")
    edges.to_parquet(tmp_path / "graph" / "edges.parquet")
    return tmp_path


def test_the_best_model_is_the_one_that_train_makes(folder: Path, capsys) -> None:
    tuned = lotan.tune(graph(1), GRID, task=lotan.LinkPrediction(seed=3), progress=False)
    assert tuned.monitor == "mrr"
    assert [trial.value for trial in tuned.trials] == sorted((one.value for one in tuned.trials), reverse=True)
    assert sorted(map(len, (batch["models"] for batch in tuned.batch["batches"]))) == [2, 2]  # by their batch size
    words = ["--graph", str(folder / "graph"), "--report", str(folder / "report.json"), "--quiet"]
    assert main(["train", *words, *tuned.best.train_options]) == 0
    assert json.loads((folder / "report.json").read_text())["metrics"] == tuned.best.metrics
    assert len(tuned.best_run.rank({"src": [0], "relation": ["a"]}, k=2)) == 2
    (folder / "grid.toml").write_text(TOML)
    words[-1:] = ["--grid", str(folder / "grid.toml"), "--task", "link", "--link-seed", "3"]
    assert main(["tune", *words]) == 0
    assert f"{tuned.best.value:.4f}" in capsys.readouterr().out
    again = json.loads((folder / "report.json").read_text())
    assert again["trials"][0]["metrics"] == tuned.best.metrics


def test_hidden_is_the_width_of_learned_rows_and_halving_stops_models() -> None:
    grid = {
        "epochs": 12,
        "model": {"kind": "lotan.nn:LearnedRows", "hidden": [2, 4, 6, 8]},
        "link": {"negatives": [9, "all"]},
    }
    tuned = lotan.tune(
        graph(1), {**grid, "optimizer": {"weight_decay": 0.0}}, task="link", search="halving", progress=False
    )
    assert len(tuned.trials) == 8
    assert {"stopped", "done"} == {trial.state for trial in tuned.trials}
    widths = {trial.settings.values["model.hidden"] for trial in tuned.trials}
    assert widths == {2, 4, 6, 8}
    assert "test" in tuned.best.metrics


def test_models_of_labels_differ_in_their_mini_batches() -> None:
    grid = {"epochs": 2, "batch_size": [8, 16], "fanouts": ["2,2", "3,all"], "model": {"hidden": 4}}
    tuned = lotan.tune(small_graph(), grid, progress=False, regime=lotan.MiniBatch(4, (1, 1), seed=5))
    for trial in tuned.trials:
        size, drawn = (trial.settings.values[name] for name in ("batch_size", "fanouts"))
        regime = lotan.MiniBatch(size, tuple(int(one) if one.isdecimal() else one for one in drawn.split(",")), seed=5)
        run = lotan.Trainer(
            trial.settings.model(8, 3),
            small_graph(),
            regime=regime,
            epochs=2,
            progress=False,
            optimizer=trial.settings.optimizer,
        ).fit()
        assert run.metrics == trial.metrics


def test_fanouts_are_a_text_a_list_or_a_number() -> None:
    assert [fanouts(one) for one in ("10,all", [10, "all"], 5, [])] == ["10,all", "10,all", "5", "none"]
    for bad in ("many", [0, 1], -1, True):
        with pytest.raises(ValueError, match=re.escape(str(bad))):
            fanouts(bad)


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "of labels": ({"link": {"negatives": 5}}, {}, "grid sets link.negatives, and the task predicts labels"),
    "without fanouts": ({"batch_size": [8, 16]}, {"task": "link"}, "sets batch_size, and mini-batches need fanouts"),
    "decoder": ({"link": {"decoder": "rescal"}}, {"task": "link"}, "link.decoder = 'rescal'; expected one of dot"),
    "fanouts": ({"fanouts": "10,0"}, {"task": "link"}, "fanouts = '10,0'; expected fanouts such as"),
    "place": ({"decoder": "dot"}, {"task": "link"}, r"decoder stands in the table \[link\]"),
    "monitor": ({"link": {"negatives": 5}}, {"task": "link", "monitor": "accuracy"}, "link has mrr"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_trained_is_refused_before_any_training(kind: str) -> None:
    grid, options, message = BAD[kind]
    given = small_graph() if not options else graph(1)
    with pytest.raises(ConfigurationError, match=message):
        lotan.tune(given, grid, progress=False, **options)


def test_models_are_compared_by_links_of_validation() -> None:
    held = columns(1)
    held["edge_split"][:] = 0
    with pytest.raises(GraphError, match="no link is of split 'val', and models are compared by those"):
        lotan.tune(lotan.Graph.from_arrays(**held), GRID, task="link", progress=False)
