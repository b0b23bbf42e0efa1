"""What a plan costs in fact, beside its estimates; measuring changes nothing."""

from __future__ import annotations

import json
from math import inf

import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan import analysis
from lotan.analysis import Measure, analysis_lines
from lotan.errors import ConfigurationError
from lotan.jar import JAR

needs_jar = pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")


def trainer() -> lotan.Trainer:
    torch.manual_seed(0)
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    model = lotan.nn.GAT(8, 4, 2, 3, dropout=0.5)  # evaluation has its first layer in common with training
    return lotan.Trainer(model, graph, engine="local", epochs=2, progress=False)


def test_passes_are_measured_beside_their_estimates_and_no_weight_changes():
    found = trainer()
    before = {name: tensor.clone() for name, tensor in found.model.state_dict().items()}
    plain = found.explain()
    shown = found.explain(analyze=True)
    assert shown.startswith(plain)
    assert [line.split("  ")[0] for line in shown.removeprefix(plain).splitlines() if line][1:] == [
        "",
        "training pass",
        "evaluation",
        "both in one",
        "peak memory",
    ]
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.model.state_dict().items())


def test_the_same_as_data():
    shown = trainer().explain("json", analyze=True)
    data = json.loads(shown)
    assert [one["what"] for one in data["measured"]] == ["training pass", "evaluation", "both in one", "peak memory"]
    assert data["measured"][0]["estimated"] == pytest.approx(data["estimated_epoch_seconds"], rel=0.01)
    assert all(one["measured"] > 0 for one in data["measured"])


def test_what_is_off_is_marked():
    near, far = Measure("a", "seconds", 1.0, 1.9), Measure("b", "bytes", 1e6, 4e5)
    lines = analysis_lines([near, far])
    assert "!" not in lines[2]
    assert lines[3].endswith("1.0 MB    400.0 kB  ! 2.5 times")
    assert (Measure("", "bytes", 0, 0).times, Measure("", "bytes", 0, 1).times) == (1.0, inf)


def test_pictures_are_not_measured(monkeypatch):
    monkeypatch.setattr(analysis, "open_engine", lambda *_: pytest.fail("an engine was started"))
    with pytest.raises(
        ConfigurationError, match="analyze and alternatives go with format 'text' or 'json', not 'html'"
    ):
        trainer().explain("html", analyze=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("engine", [pytest.param("blocks", marks=needs_jar), "rows"])
def test_on_spark_bytes_are_measured_too(spark: SparkSession, engine: str) -> None:
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    for dropout in (0.5, 0.0):  # with a pass that trains and evaluates, and without one
        model = lotan.nn.GCN(8, 4, 2, 3, dropout=dropout)
        trainer = lotan.Trainer(model, graph, engine=engine, workers=1, partitions=2, progress=False)
        measured = {one["what"]: one for one in json.loads(trainer.explain("json", analyze=True))["measured"]}
        assert ("both in one" in measured) == bool(trainer.job.plan.train_and_evaluate)
        assert all(one["measured"] > 0 for name, one in measured.items() if "shuffle" not in name), measured
