"""Explanations of a vertex: against autograd on the whole graph, sums that have to come out, and what cannot be explained."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.results.neighbourhood import hops_of, neighbourhood
from lotan.results.run import Run

pytestmark = pytest.mark.thorough

WIDTH, CLASSES = 5, 3


def messy(seed: int = 0, vertices: int = 40, edges: int = 70, texts: bool = False) -> lotan.Graph:
    """A sparse graph with weights, loops, parallel edges and isolated vertices."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, vertices - 3, (2, edges))
    src[:3] = dst[:3]
    ids = np.array([f"v{number}" for number in range(vertices)]) if texts else np.arange(vertices) * 10
    return lotan.Graph.from_arrays(
        random.standard_normal((vertices, WIDTH)),
        ids[src],
        ids[dst],
        random.integers(0, CLASSES, vertices),
        np.zeros(vertices, dtype=int),
        random.uniform(0.2, 2, edges),
        ids,
    )


class Imported(torch.nn.Module):
    """A model of PyG's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, 6), pyg.GATv2Conv(6, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


MODELS = {
    "GCN": lambda: lotan.nn.GCN(WIDTH, 6, 2, CLASSES, dropout=0.5),
    "GCN of three layers": lambda: lotan.nn.GCN(WIDTH, 6, 3, CLASSES),
    "GraphSAGE, max": lambda: lotan.nn.GraphSAGE(WIDTH, 6, 2, CLASSES, aggr="max"),
    "GIN": lambda: lotan.nn.GIN(WIDTH, 6, 2, CLASSES),
    "GAT": lambda: lotan.nn.GAT(WIDTH, 6, 2, CLASSES, heads=2),
    "imported": Imported,
}


def trained(name: str, graph: lotan.Graph, seed: int = 0) -> Run:
    torch.manual_seed(seed)
    return lotan.Trainer(MODELS[name](), graph, epochs=2, engine="local", progress=False).fit()


def on_the_whole_graph(run: Run, name: str, graph: lotan.Graph, features: torch.Tensor) -> torch.Tensor:
    """The module itself, run on all vertices."""
    model, arrays = MODELS[name]().eval(), graph.arrays()
    model.load_state_dict(run.model.weights)
    index = torch.from_numpy(np.stack([arrays.src, arrays.dst]).astype(np.int64))
    edges = index if name == "imported" else lotan.nn.EdgeIndex(index, torch.from_numpy(arrays.weight), len(features))
    return model(features, edges)


@pytest.mark.parametrize("texts", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", MODELS)
def test_features_have_the_integrated_gradients_of_the_whole_graph(name: str, texts: bool) -> None:
    graph = messy(texts=texts)
    run, arrays = trained(name, graph), graph.arrays()
    x = torch.from_numpy(arrays.features.copy())
    for row in (0, 7, len(x) - 1):  # the last one is isolated
        vertex = arrays.ids[row].item() if not texts else arrays.ids[row]
        found = run.explain_vertex(vertex, steps=16)
        total = torch.zeros_like(x)
        for share in (torch.arange(16) + 0.5) / 16:
            at = (share * x).requires_grad_()
            value = on_the_whole_graph(run, name, graph, at)[row, found.output]
            total += torch.autograd.grad(value, at)[0]
        expected = (x * total / 16).numpy()
        by_id = found.vertices.set_index("id")["influence"]
        reached = expected.sum(1)[[np.flatnonzero(arrays.ids == one)[0] for one in by_id.index]]
        np.testing.assert_allclose(by_id.to_numpy(), reached, rtol=1e-3, atol=1e-5)
        assert np.abs(expected.sum(1)).sum() == pytest.approx(np.abs(reached).sum(), rel=1e-3, abs=1e-5)
        of_features = found.features.sort_values("feature")["influence"].to_numpy()
        np.testing.assert_allclose(of_features, expected.sum(0), rtol=1e-3, atol=1e-5)
        assert found.value == pytest.approx(
            on_the_whole_graph(run, name, graph, x)[row].max().item(), rel=1e-4, abs=1e-5
        )


@pytest.mark.parametrize("name", ["GCN", "GIN", pytest.param("GAT", marks=pytest.mark.nightly)])
def test_influences_of_edges_are_together_the_output_less_that_without_messages(name: str) -> None:
    graph = messy(3)
    run = trained(name, graph)
    vertex = int(graph.arrays().ids[graph.arrays().dst[20]])
    found = run.explain_vertex(vertex, steps=400)
    alone = lotan.Graph.from_arrays(
        graph.arrays().features[graph.arrays().ids == vertex],
        np.array([], dtype=np.int64),
        np.array([], dtype=np.int64),
        ids=np.array([vertex]),
    )
    assert len(found.edges) > 0
    if name == "GIN":  # without edges of its own, a vertex is what it is without messages
        without = run.model.explain_vertex(alone, vertex, output=found.output).value
        assert found.edges["influence"].sum() == pytest.approx(found.value - without, rel=0.02, abs=1e-3)
    assert found.edges["influence"].abs().is_monotonic_decreasing
    assert found.edges["influence"].abs().max() > 0


def test_the_message_of_an_edge_is_its_influence_in_a_linear_model() -> None:
    """One GCN layer: each message is the scaled, mapped row of its source."""
    graph = messy(1)
    torch.manual_seed(0)
    run = lotan.Trainer(lotan.nn.GCN(WIDTH, 4, 1, CLASSES), graph, epochs=1, engine="local", progress=False).fit()
    arrays = graph.arrays()
    row = int(arrays.dst[np.flatnonzero(arrays.src != arrays.dst)[5]])
    found = run.explain_vertex(int(arrays.ids[row]), output=1)
    index = torch.from_numpy(np.stack([arrays.src, arrays.dst]).astype(np.int64))
    edges = lotan.nn.EdgeIndex(index, torch.from_numpy(arrays.weight), len(arrays.ids))
    (name,) = [name for name in run.model.weights if name.endswith("weight")]
    mapped = torch.from_numpy(arrays.features) @ run.model.weights[name].T
    scale = edges.column("gcn_scale@self_loops")
    expected = {}
    for src, dst, weight in zip(arrays.src, arrays.dst, arrays.weight, strict=True):
        if dst == row and src != dst:
            expected.setdefault(int(arrays.ids[src]), []).append(
                float(scale[src] * scale[dst] * weight * mapped[src, 1])
            )
    assert expected
    for source, values in expected.items():
        ours = found.edges[(found.edges["src"] == source)]["influence"]
        assert sorted(ours) == pytest.approx(sorted(values), rel=1e-4, abs=1e-6)


def test_a_mask_finds_the_neighbour_that_the_label_copies() -> None:
    """Labels copy a feature of one in-neighbour; the other in-edges come from vertices without features."""
    random, groups = np.random.default_rng(0), 60
    features, src, dst = np.zeros((5 * groups, 2)), [], []
    label = np.full(5 * groups, -1)
    for group in range(groups):
        middle, told = 5 * group, 5 * group + 1
        kind = int(random.integers(2))
        features[told, kind], label[middle] = 1.0, kind
        src += [told, *range(told + 1, told + 4)]
        dst += [middle] * 4
    graph = lotan.Graph.from_arrays(features, src, dst, label, np.where(label >= 0, 0, -1))
    torch.manual_seed(0)
    model = lotan.nn.GraphSAGE(2, 8, 1, 2, aggr="sum")
    run = lotan.Trainer(model, graph, epochs=200, optimizer=lotan.Adam(lr=0.1), engine="local", progress=False).fit()
    assert run.metrics["train"]["accuracy"] == 1.0
    for method in ("gnn_explainer", "integrated_gradients"):
        found = [run.explain_vertex(5 * group, method=method).edges["src"].iloc[0] for group in range(8)]
        assert found == [5 * group + 1 for group in range(8)], method
    masks = run.explain_vertex(0, method="gnn_explainer").edges["influence"]
    assert masks.between(0, 1).all()
    again = run.explain_vertex(0, method="gnn_explainer").edges["influence"]
    assert masks.tolist() == again.tolist()


def test_the_neighbourhood_has_the_in_edges_that_lie_within_the_hops() -> None:
    graph = lotan.Graph.from_arrays(np.ones((6, 1)), [1, 2, 3, 4, 0], [0, 1, 2, 3, 5])
    part = neighbourhood(graph, 0, 2, 10)
    assert part.graph.arrays().ids.tolist() == [0, 1, 2, 3]
    assert part.hops.tolist() == [0, 1, 2, 3]
    run = lotan.Trainer(
        lotan.nn.GCN(1, 2, 2, 2),
        graph.relabelled(np.array([0, 1, 0, 1, 0, 1]), np.zeros(6, np.int8)),
        epochs=1,
        progress=False,
    ).fit()
    assert hops_of(run.model.spec) == 2
    assert run.explain_vertex(0).vertices["id"].tolist().count(3) == 0


def test_a_loaded_model_explains_and_draws(tmp_path: Path) -> None:
    graph = messy(texts=True)
    run = trained("imported", graph)
    run.save(tmp_path / "model")
    vertex = str(graph.arrays().ids[graph.arrays().dst[30]])
    ours, theirs = run.explain_vertex(vertex), lotan.load(tmp_path / "model").explain_vertex(graph, vertex)
    assert ours.edges.equals(theirs.edges)
    drawn = ElementTree.fromstring(ours.drawing())
    lines = [element for element in drawn if element.tag.endswith("line")]
    assert len(lines) == min(40, len(ours.edges)) > 0
    assert f"of vertex {vertex} is" in repr(ours)
    assert len([element for element in ElementTree.fromstring(ours.drawing(1)) if element.tag.endswith("line")]) == 1


BAD = {
    "an unknown vertex": ((5,), {}, GraphError, "no vertex 5"),
    "an id of another type": (("10",), {}, GraphError, "no vertex '10'"),
    "no id": ((None,), {}, GraphError, "no vertex None"),
    "an unknown output": ((10,), {"output": 3}, ConfigurationError, "has 3 outputs"),
    "an unknown method": ((10,), {"method": "shap"}, ConfigurationError, "integrated_gradients or gnn_explainer"),
    "no steps": ((10,), {"steps": 0}, ConfigurationError, "steps"),
    "too many edges": ((10,), {"most_edges": 1}, GraphError, "more than 1 edges within"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_refused(kind: str) -> None:
    given, options, error, said = BAD[kind]
    graph = messy()
    with pytest.raises(error, match=said):
        trained("GCN", graph).explain_vertex(
            int(graph.arrays().ids[graph.arrays().dst[9]]) if kind == "too many edges" else given[0], **options
        )


def test_statistics_of_all_vertices_are_refused() -> None:
    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = lotan.nn.GCNConv(WIDTH, CLASSES), pyg.GraphNorm(CLASSES)

        def forward(self, x, graph):
            return self.norm(self.conv(x, graph))

    run = lotan.Trainer(Normed(), messy(), epochs=1, engine="local", progress=False).fit()
    with pytest.raises(ModelError, match="statistics of all vertices"):
        run.explain_vertex(0)


@pytest.mark.spark
def test_a_graph_in_spark_is_explained_alike(spark) -> None:
    graph = messy(texts=True)
    run = trained("GCN", graph)
    tables = lotan.Graph(*graph.frames(spark), weight="weight")
    vertex = str(graph.arrays().ids[graph.arrays().dst[30]])
    ours, theirs = run.explain_vertex(vertex), run.model.explain_vertex(tables, vertex)
    np.testing.assert_allclose(ours.edges["influence"], theirs.edges["influence"], rtol=1e-5, atol=1e-7)
    with pytest.raises(GraphError, match="no vertex 'nobody'"):
        run.model.explain_vertex(tables, "nobody")
