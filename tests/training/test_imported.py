"""A model written with PyG goes through every door: grids, batches, the command line, explain, saved models, Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.cli import main
from tests.conftest import ROOT
from tests.tracing.imported_models import Example, OwnLayer
from tests.tracing.test_pyg_layers import messy_graph

pytestmark = pytest.mark.thorough

MODEL = f"{Example.__module__}:{Example.__name__}"


def example(in_channels: int = 6, hidden_channels: int = 8, out_channels: int = 3, seed: int = 0) -> Example:
    torch.manual_seed(seed)
    return Example(in_channels, hidden_channels, out_channels)


def trained(model: torch.nn.Module, graph: lotan.Graph, **options: object) -> lotan.Trainer:
    return lotan.Trainer(model, graph, **{"epochs": 2, "engine": "local", "progress": False, **options})


def logits(model: torch.nn.Module, graph: lotan.Graph) -> torch.Tensor:
    data = graph.to_pyg()
    model.eval()
    with torch.no_grad():
        return model(data.x, data.edge_index, data.edge_weight)


def fresh(model: Example) -> Example:
    """The same weights in a new model, which has seen no graph yet."""
    again = example()
    again.load_state_dict(model.state_dict())
    return again


def assert_predicts(predicted: pd.DataFrame, model: Example, graph: lotan.Graph) -> None:
    expected = logits(fresh(model), graph).softmax(dim=-1)
    np.testing.assert_allclose(np.stack(predicted["probability"]), expected, rtol=1e-4, atol=1e-6)


def test_explain_names_the_layers_of_the_model() -> None:
    text = trained(example(), messy_graph()).explain(stage="logical")
    assert "conv1" in text
    assert "conv2" in text


def test_predictions_are_those_of_the_model_itself() -> None:
    graph, model = messy_graph(), example()
    run = trained(model, graph).fit()
    assert_predicts(run.predict(), model, graph)


@pytest.mark.processes
def test_a_saved_model_needs_neither_pyg_nor_the_class(tmp_path: Path) -> None:
    graph, model = messy_graph(), example()
    run = trained(model, graph).fit()
    run.save(tmp_path / "model")
    graph.save(tmp_path / "graph")
    script = (
        "import sys; sys.modules['torch_geometric'] = None; import lotan, json\n"
        f"graph = lotan.Graph.read({str(tmp_path / 'graph')!r})\n"
        f"found = lotan.load({str(tmp_path / 'model')!r}).predict(graph, engine='local')\n"
        "print(json.dumps([list(map(float, row)) for row in found['probability']]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    expected = logits(fresh(model), graph).softmax(dim=-1)
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-4, atol=1e-6)


def test_the_command_line_trains_and_predicts(tmp_path: Path) -> None:
    graph = messy_graph()
    graph.save(tmp_path / "graph")
    where = ["--graph", str(tmp_path / "graph"), "--engine", "local"]
    trains = ["train", *where, "--model", MODEL, "--hidden", "8", "--epochs", "2", "--quiet"]
    assert main([*trains, "--save", str(tmp_path / "model"), "--report", str(tmp_path / "report.json")]) == 0
    out = tmp_path / "predictions.parquet"
    assert main(["predict", *where, "--model-dir", str(tmp_path / "model"), "--out", str(out)]) == 0
    assert len(pd.read_parquet(out)) == 40
    assert main(["explain", *where, "--model", MODEL, "--hidden", "8"]) == 0


def test_the_command_line_takes_a_stock_model_of_pyg(tmp_path: Path) -> None:
    messy_graph().save(tmp_path / "graph")
    words = [
        "train",
        "--graph",
        str(tmp_path / "graph"),
        "--engine",
        "local",
        "--model",
        "torch_geometric.nn:GraphSAGE",
    ]
    assert main([*words, "--hidden", "8", "--epochs", "1", "--quiet"]) == 0


def test_models_of_a_batch_train_as_alone() -> None:
    graph = messy_graph()
    makes: list[Callable[[], torch.nn.Module]] = [lambda: example(seed=1), lambda: example(seed=2), OwnLayer]
    torch.manual_seed(0)
    members = [lotan.Member(make(), lotan.Adam(lr=0.01), epochs=2) for make in makes]
    torch.manual_seed(0)
    alone = [make() for make in makes]
    for model in alone:
        trained(model, graph, optimizer=lotan.Adam(lr=0.01)).fit()
    with lotan.ModelBatch(graph, members, engine="local", progress=False) as batch:
        batch.train()
    for member, model in zip(members, alone, strict=True):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(member.model.state_dict()[name], value, rtol=0, atol=1e-6)


def test_a_grid_takes_a_factory() -> None:
    grid = {"model": {"kind": Example, "hidden": [4, 8]}, "optimizer": {"lr": [0.01, 0.1]}, "epochs": 2}
    graph = messy_graph()
    split = np.arange(40, dtype=np.int8) % 2  # train and val in turn
    tuned = lotan.tune(graph.relabelled(graph.arrays().label, split), grid, engine="local", progress=False)
    assert len(tuned.trials) == 4
    assert all(trial.state == "done" for trial in tuned.trials)


def test_checkpoints_resume(tmp_path: Path) -> None:
    graph, once, twice = messy_graph(), example(), example()
    trained(once, graph, epochs=4).fit()
    trained(twice, graph, epochs=2, checkpoint_dir=str(tmp_path)).fit()
    trained(twice, graph, epochs=4, checkpoint_dir=str(tmp_path), resume=True).fit()
    for name, value in once.state_dict().items():
        assert torch.equal(twice.state_dict()[name], value)


def test_weights_of_the_graph_are_read_only_if_forward_asks_for_them() -> None:
    weighted = messy_graph()
    arrays = weighted.arrays()
    plain = lotan.Graph.from_arrays(arrays.features, arrays.src, arrays.dst, arrays.label, arrays.split)
    for make, same in ((OwnLayer, True), (example, False)):
        found = []
        for graph in (weighted, plain):
            torch.manual_seed(0)
            found.append(trained(make(), graph).fit().history[0]["loss"])
        assert (found[0] == pytest.approx(found[1], abs=1e-6)) == same


def test_a_model_that_asks_for_weights_is_refused_where_there_are_none() -> None:
    class Asks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(6, 3)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
            return self.lin(x)

    arrays = messy_graph().arrays()
    graph = lotan.Graph.from_arrays(arrays.features, arrays.src, arrays.dst, arrays.label, arrays.split)
    said = r"asks for 'edge_weight' \(weights of edges\), but the graph has only .*Graph\(..., weight="
    with pytest.raises(lotan.ModelError, match=said):
        trained(Asks(), graph).fit()


@pytest.mark.nightly  # by day of several types: test_hetero.py
@pytest.mark.spark
@pytest.mark.slow
def test_trains_and_predicts_on_spark_tables(spark: SparkSession, tmp_path: Path) -> None:
    graph = messy_graph()
    graph.save(tmp_path)
    vertices, edges = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("vertices", "edges"))
    tables = lotan.Graph(vertices, edges, weight="weight")
    here, there = example(), example()
    trained(here, graph).fit()
    run = trained(there, tables, engine="blocks", partitions=2).fit()
    for name, value in here.state_dict().items():
        torch.testing.assert_close(there.state_dict()[name], value, rtol=0, atol=5e-4)
    predicted = run.predict()
    assert predicted.count() == 40
    predicted.unpersist()
