"""Explanations in a graph of several types of vertices: against autograd on PyG's own model and data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData

import lotan
from lotan.errors import GraphError, ModelError
from lotan.results.run import Run
from tests.night import at_night
from tests.tracing.hetero_models import RELATIONS, WIDTHS, made, messy_data, with_attributes
from tests.training.test_learned_rows_by_type import data_of, embedded

pytestmark = pytest.mark.thorough

STEPS = 8
STRIDE = {"paper": 10, "author": 10, "venue": 1}
"""The distance between the ids of two neighbouring rows, by type."""
EXPLAINED = ["HeteroConv", "to_hetero with BatchNorm", "HGT", "RGCN", "attributes"]


def data_with_ids(name: str) -> HeteroData:
    """Random data whose ids are not the positions of the rows: whole numbers, which several types have."""
    data = with_attributes() if name == "attributes" else messy_data()
    for kind, stride in STRIDE.items():
        data[kind].n_id = torch.arange(data[kind].num_nodes) * stride
    return data


def trained(name: str) -> tuple[Run, HeteroData]:
    data = data_with_ids(name)
    graph = lotan.HeteroGraph.from_pyg(data)
    return lotan.Trainer(made(name), graph, epochs=1, engine="local", progress=False).fit(), data


def outputs(model: torch.nn.Module, data: HeteroData, x_dict: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The output of PyG's model for all papers."""
    attributes = {"edge_attr_dict": data.edge_attr_dict} if name == "attributes" else {}
    found = model(x_dict, data.edge_index_dict, **attributes)
    return found["paper"] if isinstance(found, dict) else found


@pytest.mark.parametrize("name", at_night([(name,) for name in EXPLAINED], unless=[("RGCN",), ("attributes",)]))
def test_influences_are_the_integrated_gradients_of_the_whole_graph(name: str) -> None:
    run, data = trained(name)
    model = made(name).eval()
    model.load_state_dict(run.model.weights)
    for row in (0, 4):
        found = run.explain_vertex(10 * row, steps=STEPS)
        total = {kind: torch.zeros_like(x) for kind, x in data.x_dict.items()}
        for share in (torch.arange(STEPS) + 0.5) / STEPS:
            at = {kind: (share * x).requires_grad_() for kind, x in data.x_dict.items()}
            value = outputs(model, data, at, name)[row, found.output]
            gradients = torch.autograd.grad(value, list(at.values()), materialize_grads=True)
            for kind, gradient in zip(at, gradients, strict=True):
                total[kind] += gradient
        expected = {kind: (x * total[kind] / STEPS).numpy() for kind, x in data.x_dict.items()}
        for kind, values in expected.items():
            features = found.features[found.features["type"] == kind].sort_values("feature")
            np.testing.assert_allclose(features["influence"], values.sum(0), rtol=1e-3, atol=1e-5)
            reached = found.vertices[found.vertices["type"] == kind].set_index("id")["influence"]
            everywhere = pd.Series(values.sum(1), index=data[kind].n_id.numpy())
            np.testing.assert_allclose(reached, everywhere[reached.index], rtol=1e-3, atol=1e-5)
            assert everywhere.drop(reached.index).abs().max() < 1e-6 or len(reached) == len(everywhere)
        exact = outputs(model, data, data.x_dict, name)[row].max().item()
        assert found.value == pytest.approx(exact, rel=1e-4, abs=1e-5)


def test_learned_rows_of_types_are_explained_behind_the_features() -> None:
    """Authors and venues have learned rows alone, and papers have features and learned rows."""
    data = data_of()
    for kind, stride in STRIDE.items():
        data[kind].n_id = torch.arange(data[kind].num_nodes) * stride
    trainer = lotan.Trainer(embedded(), lotan.HeteroGraph.from_pyg(data), epochs=1, engine="local", progress=False)
    run, model = trainer.fit(), embedded().eval()
    model.load_state_dict(run.model.weights)
    row, papers = 4, data["paper"].x
    found = run.explain_vertex(10 * row, steps=STEPS)
    rows = {"author": model.authors.weight, "venue": model.venues.weight, "paper": model.papers.weight}
    before = {kind: weight.detach().clone() for kind, weight in rows.items()}
    total = {kind: torch.zeros_like(weight) for kind, weight in before.items()}
    of_papers = torch.zeros_like(papers)
    for share in (torch.arange(STEPS) + 0.5) / STEPS:
        at = (share * papers).requires_grad_()
        with torch.no_grad():
            for kind, weight in rows.items():
                weight.copy_(share * before[kind])
        value = model({"paper": at}, data.edge_index_dict)[row, found.output]
        first, *others = torch.autograd.grad(value, [at, *rows.values()])
        of_papers += first
        for kind, gradient in zip(rows, others, strict=True):
            total[kind] += gradient
    expected = {kind: before[kind] * total[kind] / STEPS for kind in rows}
    expected["paper"] = torch.cat([papers * of_papers / STEPS, expected["paper"]], dim=1)
    for kind, values in expected.items():
        features = found.features[found.features["type"] == kind].sort_values("feature")
        np.testing.assert_allclose(features["influence"], values.sum(0), rtol=1e-3, atol=1e-5)
        reached = found.vertices[found.vertices["type"] == kind].set_index("id")["influence"]
        everywhere = pd.Series(values.sum(1).numpy(), index=data[kind].n_id.numpy())
        np.testing.assert_allclose(reached, everywhere[reached.index], rtol=1e-3, atol=1e-5)
    masks = run.explain_vertex(10 * row, method="gnn_explainer", steps=3)
    assert masks.features.groupby("type").size().to_dict() == {
        kind: values.shape[1] for kind, values in expected.items()
    }


def test_edges_have_their_relations_and_ids() -> None:
    run, data = trained("RGCN")
    found = run.explain_vertex(0, method="gnn_explainer", steps=5)
    assert found.edges["influence"].between(0, 1).all()
    assert set(found.features["type"]) == set(WIDTHS)
    known = set()
    for source, relation, destination in RELATIONS:
        for src, dst in data[source, relation, destination].edge_index.T.tolist():
            scale = [STRIDE[kind] for kind in (source, destination)]
            known.add((source, src * scale[0], relation, destination, dst * scale[1]))
    columns = ["src_type", "src", "relation", "dst_type", "dst"]
    assert set(found.edges[columns].itertuples(index=False, name=None)) <= known
    assert "of vertex paper 0 is" in repr(found)
    assert "author 10" in found.drawing()


@pytest.mark.parametrize("vertex", [7, "0", 2**70, None])
def test_only_a_vertex_of_the_type_with_labels_is_explained(vertex: Any) -> None:
    run, _ = trained("RGCN")
    with pytest.raises(GraphError, match="no vertex"):
        run.explain_vertex(vertex)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["statistics", "HAN"])  # HAN weighs relations by a mean over all vertices
def test_statistics_of_a_type_are_refused(name: str) -> None:
    run, _ = trained(name)
    with pytest.raises(ModelError, match="statistics of all vertices"):
        run.explain_vertex(0)


@pytest.mark.spark
@pytest.mark.nightly
def test_tables_in_spark_are_explained_alike(spark) -> None:
    run, data = trained("attributes")
    frames = {
        kind: spark.createDataFrame(
            pd.DataFrame(
                {
                    "id": np.arange(data[kind].num_nodes) * STRIDE[kind],
                    "features": data[kind].x.tolist(),
                }
            )
        )
        for kind in WIDTHS
    }
    edges = {}
    for source, relation, destination in RELATIONS:
        key = source, relation, destination
        src, dst = data[key].edge_index.numpy()
        scale = [STRIDE[kind] for kind in (source, destination)]
        table = pd.DataFrame({"src": src * scale[0], "dst": dst * scale[1]})
        if "edge_attr" in data[key]:
            table["edge_attr"] = data[key].edge_attr.tolist()
        edges[key] = spark.createDataFrame(table)
    graph = lotan.HeteroGraph(frames, edges, edge_features="edge_attr", task_type="paper")
    ours, theirs = run.explain_vertex(40), run.model.explain_vertex(graph, 40)
    order = ["type", "id"]
    first, second = (found.vertices.sort_values(order, ignore_index=True) for found in (ours, theirs))
    pd.testing.assert_frame_equal(first, second, rtol=1e-4, atol=1e-6, check_dtype=False)
    with pytest.raises(GraphError, match="no vertex 7"):
        run.model.explain_vertex(graph, 7)
