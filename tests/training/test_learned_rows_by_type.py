"""Learned rows of one type of vertices among several: trained as in PyG, found by type and id after they were saved."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import GraphError, ModelError
from tests.tracing.hetero_models import CLASSES, COUNTS, RELATIONS, messy_data
from tests.training.test_hetero import trained_by_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.data import HeteroData

pytestmark = pytest.mark.thorough


def data_of(seed: int = 0) -> HeteroData:
    """A graph in which only papers have features, and ids are not their positions."""
    data = messy_data(seed)
    for name in ("author", "venue"):
        del data[name].x
        data[name].num_nodes = COUNTS[name]
    return data


class Own(torch.nn.Module):
    """Authors and venues have learned rows, and papers features with rows beside them; rows of authors are read twice."""

    def __init__(self, authors: torch.nn.Module, venues: torch.nn.Module, papers: torch.nn.Module) -> None:
        super().__init__()
        self.authors, self.venues, self.papers = authors, venues, papers
        self.first = pyg.HeteroConv(
            {
                RELATIONS[0]: pyg.SAGEConv((5, 9), 8),
                RELATIONS[1]: pyg.GATConv((9, 5), 8, add_self_loops=False),
                RELATIONS[4]: pyg.SAGEConv((4, 9), 8, aggr="max"),
            }
        )
        self.second = pyg.SAGEConv((8, 8), CLASSES)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        authors, venues, papers = self.rows()
        rows = {"author": authors, "venue": venues, "paper": torch.cat([x_dict["paper"], papers], dim=1)}
        found = {name: x.tanh() for name, x in self.first(rows, edge_index_dict).items()}
        found["author"] = found["author"] + authors[:, :1]
        return self.second((found["author"], found["paper"]), edge_index_dict[RELATIONS[0]])

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.authors.weight, self.venues(torch.arange(COUNTS["venue"])), self.papers.weight


class Learned(Own):
    """The same with layers of Lotan, which know their type."""

    def __init__(self) -> None:
        widths = {"author": 5, "venue": 4, "paper": 3}
        super().__init__(*(lotan.nn.LearnedFeatures(width, vertex_type=name) for name, width in widths.items()))

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.authors(), self.venues(), self.papers()


def embedded() -> Own:
    torch.manual_seed(1)
    widths = {"author": 5, "venue": 4, "paper": 3}
    return Own(*(torch.nn.Embedding(COUNTS[name], width) for name, width in widths.items()))


SETTINGS = {"engine": "local", "progress": False, "optimizer": lotan.SGD(lr=0.01)}


def assert_trains_as_pyg(ours: torch.nn.Module, graph: lotan.Graph, data: HeteroData, **options: Any) -> Any:
    trainer = lotan.Trainer(ours, graph, epochs=3, **{**SETTINGS, **options})
    assert len(trainer.job.train.learned) == 3  # it also draws the rows of LearnedFeatures
    theirs = copy.deepcopy(ours)
    run = trainer.fit()
    losses = trained_by_pyg(theirs, data, "SGD", 3)
    assert losses[0] != pytest.approx(losses[2], abs=1e-4)
    assert [epoch["loss"] for epoch in run.history] == pytest.approx(losses, abs=2e-5)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=0, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")
    return run


@pytest.mark.parametrize("model", [embedded, Learned])
def test_rows_of_a_type_train_as_in_pyg(model: Any) -> None:
    data = data_of()
    assert_trains_as_pyg(model(), lotan.HeteroGraph.from_pyg(data), data)


def test_rows_train_where_vertices_lie_in_levels() -> None:
    data = data_of()
    data["paper"].train_mask[:] = False
    data["paper"].train_mask[[0, 2]] = True
    graph = lotan.HeteroGraph.from_pyg(data)
    model = embedded()
    plan = lotan.Trainer(model, graph, **SETTINGS, disable=["reuse_evaluation"], eval_every=0).job.plan
    assert plan.levels is not None
    assert_trains_as_pyg(model, graph, data, disable=["reuse_evaluation"], eval_every=0)


def tables(data: HeteroData, shuffled: int) -> tuple[dict[str, pd.DataFrame], dict[Any, pd.DataFrame]]:
    """The graph as tables in any order. Ids of authors are texts, and the order of those of papers is not that of texts."""
    ids = {"author": [f"a{n:02}" for n in range(COUNTS["author"])], "venue": [n + 8 for n in range(COUNTS["venue"])]}
    ids["paper"] = [n * 7 for n in range(COUNTS["paper"])]
    vertices = {name: pd.DataFrame({"id": own}) for name, own in ids.items()}
    vertices["paper"] = vertices["paper"].assign(features=data["paper"].x.tolist(), label=data["paper"].y.numpy())
    vertices["paper"]["train_mask"] = data["paper"].train_mask.numpy()
    edges = {}
    for relation in RELATIONS:
        src, dst = data[relation].edge_index.numpy()
        ends = {"src": np.array(ids[relation[0]])[src], "dst": np.array(ids[relation[2]])[dst]}
        edges[relation] = pd.DataFrame(ends).sample(frac=1, random_state=shuffled)
    return {name: table.sample(frac=1, random_state=shuffled) for name, table in vertices.items()}, edges


def test_a_saved_model_finds_rows_by_type_and_id(tmp_path: Path) -> None:
    data = data_of()
    run = assert_trains_as_pyg(Learned(), lotan.HeteroGraph(*tables(data, 0)), data)
    run.save(tmp_path)
    saved, expected = lotan.load(tmp_path), run.predict().set_index("id")
    vertices, edges = tables(data, 1)
    again = saved.predict(lotan.HeteroGraph(vertices, edges), engine="local").set_index("id")
    pd.testing.assert_frame_equal(again.sort_index(), expected)
    # authors whose rows nothing reads may be left out
    seen = set(edges[RELATIONS[0]]["src"]) | set(edges[RELATIONS[1]]["dst"])
    alone = [one for one in vertices["author"]["id"] if one not in seen]
    assert alone
    vertices["author"] = vertices["author"][~vertices["author"]["id"].isin(alone)]
    fewer = saved.predict(lotan.HeteroGraph(vertices, edges), engine="local").set_index("id")
    pd.testing.assert_frame_equal(fewer.sort_index(), expected)
    vertices["author"] = pd.concat([vertices["author"], pd.DataFrame({"id": ["new", "newer"]})])
    more = lotan.HeteroGraph(vertices, edges)
    with pytest.raises(
        GraphError, match=r"authors.weight: 2 of \d+ vertices of type 'author' have no learned row .'new', 'n"
    ):
        saved.predict(more, engine="local")
    found = saved.predict(more, unseen="mean", engine="local").set_index("id")
    pd.testing.assert_frame_equal(found.sort_index(), expected)


def test_first_rows_depend_on_the_id_and_not_on_other_types() -> None:
    vertices, edges = tables(data_of(), 0)
    first, second = Learned(), Learned()
    assert lotan.Trainer(first, lotan.HeteroGraph(vertices, edges), **SETTINGS).plan
    vertices["author"] = pd.concat([pd.DataFrame({"id": ["a"]}), vertices["author"]])
    assert lotan.Trainer(second, lotan.HeteroGraph(vertices, edges), **SETTINGS).plan
    assert torch.equal(first.venues.weight, second.venues.weight)
    assert torch.equal(first.authors.weight, second.authors.weight[1:])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_rows_of_a_graph_in_spark_are_in_the_order_of_ids(spark: Any) -> None:
    """There, the texts "venue:10" and "venue:9" are in another order."""
    data = data_of()
    of_spark = [{key: spark.createDataFrame(one) for key, one in part.items()} for part in tables(data, 2)]
    run = assert_trains_as_pyg(embedded(), lotan.HeteroGraph(*of_spark), data)
    assert run.predict().count() == COUNTS["paper"]


class Numbered(torch.nn.Module):
    """Rows alone, which are looked up by the numbers of vertices. Types of as many vertices are told apart by name."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.ModuleDict({name: torch.nn.Embedding(6, 4) for name in ("b", "a")})
        self.conv = pyg.SAGEConv((4, 4), CLASSES)

    def forward(self, edge_index_dict: Any, n_id_dict: Any) -> Tensor:
        rows = {name: own(n_id_dict[name]) for name, own in self.rows.items()}
        return self.conv((rows["a"], rows["b"]), edge_index_dict["a", "to", "b"])


def test_a_graph_without_features_trains_on_rows_alone() -> None:
    data, random = HeteroData(), torch.Generator().manual_seed(0)
    for name in ("a", "b"):
        data[name].num_nodes, data[name].n_id = 6, torch.arange(6)
    data["b"].y, data["b"].train_mask = torch.arange(6) % CLASSES, torch.arange(6) < 4
    data["a", "to", "b"].edge_index = torch.randint(0, 6, (2, 12), generator=random)
    graph, ours = lotan.HeteroGraph.from_pyg(data), Numbered()
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, epochs=3, **SETTINGS).fit()
    steps, losses, paper = torch.optim.SGD(theirs.parameters(), lr=0.01), [], data["b"]
    for _ in range(3):
        rows = theirs(data.edge_index_dict, data.n_id_dict)[paper.train_mask]
        loss = torch.nn.functional.cross_entropy(rows, paper.y[paper.train_mask])
        losses.append(loss.item())
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert [epoch["loss"] for epoch in run.history] == pytest.approx(losses, abs=2e-5)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=0, atol=2e-5)


def test_rows_of_no_type_or_an_unknown_one_are_refused() -> None:
    graph, model = lotan.HeteroGraph.from_pyg(data_of()), Learned()
    for asked, said in ((None, "of no type of vertices"), ("reader", "of vertices of type 'reader'")):
        model.venues.vertex_type = asked
        with pytest.raises(
            ModelError, match=f"'venues' has rows {said}, and the graph has the types author, paper, ven"
        ):
            lotan.Trainer(model, graph, **SETTINGS).fit()
    model = lotan.nn.LearnedRows(3)
    model.rows.vertex_type = "author"
    with pytest.raises(ModelError, match="and this graph has one type: leave out vertex_type"):
        lotan.Trainer(model, lotan.Graph.read("digits"), **SETTINGS).fit()
