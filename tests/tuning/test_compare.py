"""One model trained in several ways: each is the Trainer's run, and the seconds to a target are those of its history."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.cli import main
from lotan.errors import ConfigurationError, GraphError
from tests.links.graphs import graph as links
from tests.tuning.graphs import small_graph, write_small_graph

WAYS: dict[str, dict[str, Any]] = {
    "full batch": {"optimizer": lotan.Adam(lr=0.05)},
    "mini-batch": {"regime": lotan.MiniBatch(8, (2, 2)), "epochs": 4},
}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lotan.nn.GraphSAGE(8, 6, num_layers=2, out_channels=3)


def test_each_way_is_the_run_of_a_trainer_and_its_seconds_add_up() -> None:
    one = model()
    before = deepcopy(one.state_dict())
    found = lotan.compare(one, small_graph(), WAYS, epochs=6, progress=False)
    assert all(torch.equal(before[name], tensor) for name, tensor in one.state_dict().items())
    for way, row in zip(found.ways, found.rows(), strict=True):
        alone = lotan.Trainer(model(), small_graph(), **{"epochs": 6, "progress": False, **WAYS[way.name]}).fit()
        assert way.run.metrics == alone.metrics
        values = [entry["metrics"]["val"]["accuracy"] for entry in way.run.history]
        first = int(np.argmax(np.array(values) >= found.target))
        assert values[first] >= found.target
        assert (row["epochs"], row["best epoch"]) == (first + 1, alone.best_epoch)
        assert row["seconds"] == pytest.approx(sum(e["train_seconds"] for e in way.run.history[: first + 1]))
    bests = [way.run.metrics["val"]["accuracy"] for way in found.ways]
    assert found.target == min(bests)  # the best that all reach
    assert found.frame()["way"].tolist() == list(WAYS)


def test_a_target_that_is_not_reached_is_said_and_lower_may_be_better() -> None:
    found = lotan.compare(model(), small_graph(), WAYS, target=1.5, epochs=2, progress=False)
    assert [row["seconds"] for row in found.rows()] == [None, None]
    assert "not reached" in repr(found)
    by_loss = lotan.compare(model(), small_graph(), WAYS, monitor="loss", epochs=3, progress=False)
    losses = [min(value for _, _, value in way.points) for way in by_loss.ways]
    assert by_loss.target == max(losses)
    assert all(row["epochs"] for row in by_loss.rows())
    task = lotan.LinkPrediction(negatives=9)
    ways = {"many": {"regime": lotan.MiniBatch(32, (2,))}, "few": {"regime": lotan.MiniBatch(64, (2,))}}
    encoder = lotan.nn.GraphSAGE(5, 6, num_layers=1, out_channels=6)
    assert lotan.compare(encoder, links(1), ways, task=task, epochs=2, progress=False).monitor == "mrr"


def test_the_command_prints_a_table_and_writes_a_page(tmp_path: Path, capsys) -> None:
    given = write_small_graph(tmp_path / "graph")
    words = ["compare", "--graph", given, "--model", "sage", "--hidden", "6", "--epochs", "3", "--quiet"]
    places = ["--html", str(tmp_path / "page.html"), "--report", str(tmp_path / "report.json")]
    batches = ["--batch-size", "8", "--fanouts", "2,all", "--full-epochs", "5", "--full-lr", "0.1"]
    assert main([*words, *batches, *places]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"training seconds and epochs until val accuracy is 0\.\d{4}", lines[0])
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "way",
        "full batch",
        "mini-batches of batch size 8, fanouts 2, all",
    ]
    report = json.loads((tmp_path / "report.json").read_text())
    assert [len(report["epochs"][way["way"]]) for way in report["ways"]] == [5, 3]
    page = (tmp_path / "page.html").read_text()
    HTMLParser().feed(page)
    assert page.count("<polyline") == 2 * 2 + 2  # two pictures, and a key for each line
    assert "http" not in page
    assert main(words) == 2
    assert "give --batch-size and --fanouts" in capsys.readouterr().err


def test_what_cannot_be_compared_is_refused_before_training() -> None:
    with pytest.raises(ConfigurationError, match="compare got no ways"):
        lotan.compare(model(), small_graph(), {})
    with pytest.raises(ConfigurationError, match="compare got ways="):
        lotan.compare(model(), small_graph(), [{}])
    with pytest.raises(ConfigurationError, match="monitor several metrics, accuracy, loss"):
        lotan.compare(model(), small_graph(), {"one": {"monitor": "loss"}, "two": {}}, progress=False)
    unseen = small_graph().relabelled(small_graph().arrays().label, np.zeros(60, dtype=np.int8))
    with pytest.raises(GraphError, match="nothing with a label is there"):
        lotan.compare(model(), unseen, WAYS, progress=False)
