"""The tasks that draw and send batches on Spark, and the worker that runs them: the same as in one process, bit for bit."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sample, Sampler
from lotan.batches.schedule import Batches
from lotan.batches.spark_tasks import EDGE, VERTEX, DrawTask, OrderTask, SendTask, Sent
from lotan.engines.base import Pass, run
from lotan.engines.local.batch_graph import follows_from_sample
from lotan.engines.rows.pipe_task import PipeFailed
from lotan.engines.rows.vectors import to_lists
from lotan.errors import StageError
from lotan.graph.arrays import GraphArrays
from lotan.stages.draws import Randomness
from lotan.stages.plan_codec import decode_plan, encode_plan
from lotan.worker.handler import StageHandler
from messenger.endpoint import Endpoint
from messenger.jobs import ChunkKey, OutgoingChunk, PipeJob
from messenger.room import Room
from messenger.settings import Settings
from planner.regime import hops
from tests.exactness.cases import EVERY, models, specs
from tests.exactness.cases import sample as random_graph
from tests.night import at_night
from tests.tracing.hetero_models import messy_data

JOB = PipeJob("run", 0, "batch", "batch", 0)
BATCHES = 3  # that a task sees side by side


def arrays_of(seed: int, weighted: bool = False) -> GraphArrays:
    return random_graph(seed, vertices=40, edges=200, weighted=weighted).graph.arrays()


def typed_arrays() -> GraphArrays:
    """A graph of several types of vertices, with parallel edges of one relation."""
    return lotan.HeteroGraph.from_pyg(messy_data(2)).arrays()


def positions_of_edges(arrays: GraphArrays, by_relation: bool = False) -> np.ndarray:
    """The number of each edge among the in-edges of its destination, or among those of one relation."""
    kinds = arrays.edge_type if by_relation and arrays.edge_type is not None else np.zeros_like(arrays.dst)
    ends = list(zip(arrays.dst, kinds, strict=True))
    return np.array([ends[:edge].count(one) for edge, one in enumerate(ends)])


def send_task(
    columns: tuple[Sent, ...] = (), of_edges: tuple[str, ...] = (), levels: int = 3, by_relation: bool = False
) -> SendTask:
    return SendTask(JOB, Endpoint("tcp://127.0.0.1:1"), Settings(), levels, columns, of_edges, by_relation)


@pytest.mark.parametrize("size", [4, 100])
def test_examples_come_in_the_order_of_one_process(size: int) -> None:
    arrays, of = arrays_of(1), Randomness(7, 2)
    examples = examples_of(arrays)
    given = pa.record_batch({"id": examples, "key": arrays.keys[examples]})
    halves = [given.slice(0, 3), given.slice(3)]
    rows = pa.Table.from_batches(OrderTask(of)(halves)).sort_by(
        [(name, "ascending") for name in ("first", "second", "id")]
    )
    found = rows.column("id").to_numpy()
    for place, expected in enumerate(batches_of_epoch(examples, arrays.keys, size, of)):
        assert sorted(found[place * size : (place + 1) * size].tolist()) == expected.tolist()


@pytest.mark.parametrize(("fanout", "by_relation"), [(1, False), (3, False), ("all", False), (2, True), ("all", True)])
def test_vertices_of_several_batches_draw_the_edges_of_one_process(
    fanout: Any, by_relation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lotan.batches.spark_tasks.ROWS_OUT", 7)
    arrays, of = typed_arrays() if by_relation else arrays_of(2), Randomness(3, 5)
    vertices, names = len(arrays.ids), ["dst", *["edge_type"] * by_relation]
    random, sampler = np.random.default_rng(0), Sampler(arrays, by_relation=by_relation)
    targets = {batch: np.sort(random.choice(vertices, 12, replace=False)) for batch in range(BATCHES)}
    groups = pd.DataFrame({name: getattr(arrays, name) for name in names}).value_counts().reset_index(name="degree")
    asked = pd.concat([pd.DataFrame({"batch": np.int32(b), "dst": rows}) for b, rows in targets.items()])
    rows = asked.merge(groups, how="inner" if by_relation else "left").fillna(0).sample(frac=1, random_state=0)
    columns = {name: rows[name].to_numpy() for name in names if name != "dst"}
    known = {"id": rows["dst"].to_numpy(), "key": arrays.keys[rows["dst"]], "degree": rows["degree"].to_numpy()}
    given = pa.record_batch({"batch": rows["batch"].to_numpy(), **known, **columns})
    drawn = pa.Table.from_batches(DrawTask(of, fanout)([given])).to_pydict()
    ends = [*(getattr(arrays, name) for name in names), positions_of_edges(arrays, by_relation)]
    edge_of = {one: edge for edge, one in enumerate(zip(*ends, strict=True))}
    edges = np.array([edge_of[one] for one in zip(*(drawn[name] for name in names), drawn["pos"], strict=True)])
    for number, of_batch in targets.items():
        expected = sampler.sample(of_batch, (fanout,), Randomness(3, 5, batch=number)).edges
        assert sorted(edges[np.array(drawn["batch"]) == number].tolist()) == sorted(expected.tolist())


def test_vertices_without_edges_draw_none() -> None:
    given = pa.record_batch({"batch": pa.array([0], pa.int32()), "id": [1], "key": [1], "degree": [0]})
    assert list(DrawTask(Randomness(0, 1), 3)([given])) == []


def as_rows(
    arrays: GraphArrays, sample: Sample, static: dict[str, np.ndarray], ids: np.ndarray, by_relation: bool = False
) -> pa.Table:
    """A batch as Spark hands it to a task: rows of vertices and edges in any order."""
    level = np.searchsorted(sample.counts, np.arange(len(sample.rows)), side="right")
    fields = {f"c{n}": to_lists(one) if one.ndim == 2 else pa.array(one) for n, one in enumerate(static.values())}
    of_vertices = {
        "kind": np.full(len(level), VERTEX),
        "level": level,
        "id": ids[sample.rows],
        "key": arrays.keys[sample.rows],
    }
    position = positions_of_edges(arrays, by_relation)[sample.edges]
    ends = {"src": ids[arrays.src[sample.edges]], "dst": ids[arrays.dst[sample.edges]], "pos": position}
    given = {"weight": arrays.weight, "edge_type": arrays.edge_type}
    columns = {name: one[sample.edges] for name, one in given.items() if one is not None}
    of_edges = {"kind": np.full(len(position), EDGE), **ends, **columns}
    tables = [pa.table({name: pa.array(one) for name, one in (of_vertices | fields).items()}), pa.table(of_edges)]
    rows = pa.concat_tables(tables, promote_options="default")
    rows = rows.append_column("batch", pa.array(np.zeros(len(rows), dtype=np.int32)))
    return rows.take(np.random.default_rng(0).permutation(len(rows)))


@pytest.mark.parametrize("texts", [False, True], ids=["integers", "strings"])
def test_a_batch_is_put_together_in_the_order_of_one_process(texts: bool) -> None:
    arrays = arrays_of(3, weighted=True)
    found = Sampler(arrays).sample(np.array([1, 5, 8]), (3, 2), Randomness(0, 1))
    ids = np.array([f"v{number:03}" for number in range(40)], dtype=object) if texts else np.arange(40)
    task = send_task((Sent("features", "c0", "float32", arrays.features.shape[1]),), ("weight",))
    tensors = task.assembled(as_rows(arrays, found, {"features": arrays.features[found.rows]}, ids))
    assert tensors["levels"].tolist() == list(found.counts)
    assert tensors["batch/src"].tolist() == found.src.tolist()
    assert tensors["batch/dst"].tolist() == found.dst.tolist()
    assert (tensors["batch/weight"] == arrays.weight[found.edges]).all()
    assert (tensors["column/features"] == arrays.features[found.rows]).all()
    assert (tensors["keys"] == arrays.keys[found.rows]).all()


def test_edges_of_relations_are_put_together_in_the_order_of_one_process() -> None:
    arrays = typed_arrays()
    found = Sampler(arrays, by_relation=True).sample(np.array([13, 15, 20]), (2, 2), Randomness(0, 1))
    rows = as_rows(arrays, found, {}, np.arange(len(arrays.ids)), by_relation=True)
    tensors = send_task((), ("edge_type",), by_relation=True).assembled(rows)
    assert tensors["batch/src"].tolist() == found.src.tolist()
    assert tensors["batch/dst"].tolist() == found.dst.tolist()
    assert arrays.edge_type is not None
    assert tensors["batch/edge_type"].tolist() == arrays.edge_type[found.edges].tolist()


def test_all_columns_of_vertices_are_offered_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keys of their vertices, which come in another order in each batch."""
    arrays, sent = arrays_of(3), []

    class Dealer:
        def pipe(self, job: PipeJob, chunks: list[OutgoingChunk]) -> list[Any]:
            sent.extend(chunks)
            return []

    monkeypatch.setattr("lotan.batches.spark_tasks.shared_dealer", lambda *_: Dealer())
    found = Sampler(arrays).sample(np.array([1, 5, 8]), (3, 2), Randomness(0, 1))
    columns = Sent("features", "c0", "float32", arrays.features.shape[1]), Sent("label", "c1", "int64")
    static = {"features": arrays.features[found.rows], "label": arrays.label[found.rows]}
    (size,) = send_task(columns)(as_rows(arrays, found, static, np.arange(40)).to_batches())
    assert size.column("vertices").to_pylist() == [len(found.rows)]
    (chunk,) = sent
    assert chunk.by_row == {"column/features", "column/label"}
    assert (chunk.tensors[chunk.row_keys] == arrays.keys[found.rows]).all()


def test_an_edge_that_leaves_the_batch_is_an_error() -> None:
    arrays = arrays_of(3)
    found = Sampler(arrays).sample(np.array([1, 5, 8]), ("all", 2), Randomness(0, 1))
    rows = as_rows(arrays, found, {}, np.arange(40))
    lost = rows.column("id").to_pylist().index(int(found.rows[-1]))
    with pytest.raises(PipeFailed, match="ends outside of it"):
        send_task().assembled(pa.concat_tables([rows.slice(0, lost), rows.slice(lost + 1)]))


def over_the_wire(data: Any) -> Any:
    return msgpack.unpackb(msgpack.packb(data))


BY_DAY = [("GCN",), ("GraphSAGE, max",), ("GAT",)]
NAMES = [*BY_DAY, ("GraphSAGE",), ("residual",), ("own layer",), ("arithmetic on edges",)]


@pytest.mark.parametrize("name", at_night(NAMES, BY_DAY))
def test_a_worker_computes_a_batch_as_the_local_engine_does(name: str) -> None:
    """Gradients and statistics, bit for bit, of a plan that went over the wire and a batch that a task has put together."""
    drawn, (model, _) = random_graph(4, vertices=40, edges=200, weighted=EVERY[name].weights), models(name, seed=4)
    regime = lotan.MiniBatch(6, (3,) * hops(specs(name)[0]))
    job = lotan.Trainer(model, drawn.graph, regime=regime, engine="local", progress=False).job
    assert job.batch is not None
    plan, arrays = job.batch.plan, drawn.graph.arrays()
    assert decode_plan(over_the_wire(encode_plan(plan))).train == plan.train
    batches, handler = Batches(drawn.graph, plan, regime, epochs=1), StageHandler()
    parameters = {key: tensor.detach() for key, tensor in [*model.named_parameters(), *model.named_buffers()]}
    handler.stage("run", "batch", over_the_wire({"plan": encode_plan(plan)}))
    try:
        for number, graph in enumerate(batches.of_epoch(1)):
            batches.engine.turn_to(graph)
            expected = run(batches.engine, plan, plan.train, Pass(1, parameters, seed=5, batch=number))
            names = [one for one in graph.static if one != "split" and not follows_from_sample(one)]
            static = {one: graph.static[one].numpy() for one in names}
            widths = {one: None if rows.ndim == 1 else rows.shape[1] for one, rows in static.items()}
            columns = tuple(Sent(one, f"c{n}", str(static[one].dtype), widths[one]) for n, one in enumerate(names))
            of_edges = () if arrays.weight is None else ("weight",)
            rows = Sampler(arrays).sample(batches._targets(1)[number], batches._fanouts, Randomness(0, 1, batch=number))
            task = send_task(columns, of_edges, len(rows.counts))
            tensors = task.assembled(as_rows(arrays, rows, static, np.arange(40)))
            settings = {"seed": 5, "epoch": 1, "seeds": [], "batch": number, "backward": []}
            handler.parameters("run", number, {key: one.numpy() for key, one in parameters.items()}, settings)
            found = handler.chunk(
                ChunkKey("run", number, "batch", "batch", number, 0, 0, len(rows.rows)), tensors, Room(None)
            )
            assert (found.pop("statistics") == expected.statistics).all()
            assert {f"gradient/{key}" for key in expected.gradients} == found.keys()
            for key, gradient in expected.gradients.items():
                assert torch.equal(torch.from_numpy(found[f"gradient/{key}"]), gradient), key
    finally:
        batches.close()


class TestAPlanFromTheWire:
    """A worker trusts no plan."""

    def encoded(self, name: str = "GAT") -> dict[str, Any]:
        drawn, (model, _) = random_graph(4, vertices=40, edges=200), models(name, seed=4)
        job = lotan.Trainer(
            model, drawn.graph, regime=lotan.MiniBatch(6, (3,) * hops(specs(name)[0])), progress=False
        ).job
        assert job.batch is not None
        found: dict[str, Any] = over_the_wire(encode_plan(job.batch.plan))
        return found

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"within": "far"}, "is 'far', which is no int"),
            ({"edges": "/etc/passwd"}, "is no edge set"),
            ({"command": "rm"}, "has no field 'command'"),
        ],
    )
    def test_a_step_with_fields_that_are_none_is_refused(self, change: dict[str, Any], said: str) -> None:
        plan = self.encoded()
        step = next(step for step in plan["train"] if "edges" in step["fields"])
        step["fields"] |= change
        with pytest.raises(StageError, match=said):
            decode_plan(plan)

    def test_a_step_of_another_kind_is_refused(self) -> None:
        plan = self.encoded("GCN")
        plan["train"][0]["step"] = "EdgeStep"
        with pytest.raises(StageError, match="the kind of a step is 'EdgeStep'"):
            decode_plan(plan)

    def test_arithmetic_that_is_none_is_refused(self) -> None:
        plan = self.encoded("arithmetic on edges")
        fields = next(step["fields"] for step in plan["train"] if "expression" in step["fields"])
        for expression in (["system", "x"], ["add", ["weight"]], "weight", ["constant", "1"], [["weight"]]):
            fields["expression"] = expression
            with pytest.raises(StageError, match="no arithmetic on edges"):
                decode_plan(plan)

    def test_a_stage_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(StageError, match="there is no stage"):
            decode_plan(self.encoded() | {"stages": []})


def test_a_batch_that_does_not_fit_together_is_refused() -> None:
    handler, encoded = StageHandler(), TestAPlanFromTheWire().encoded("GCN")
    handler.stage("run", "batch", {"plan": encoded})
    handler.parameters("run", 0, {}, {"seed": 0, "epoch": 1, "seeds": [], "backward": []})
    key, ends = ChunkKey("run", 0, "batch", "batch", 0, 0, 0, 2), np.array([0, 1])
    good = {"keys": ends, "levels": np.array([1, 2, 2]), "batch/src": ends, "batch/dst": ends}
    for change, said in (
        ({"levels": np.array([1, 3])}, "levels of"),
        ({"batch/src": np.array([0, 2])}, "no edges among them"),
        ({"batch/dst": np.array([1, 0])}, "no edges among them"),
        ({}, "came without 'column/"),
    ):
        with pytest.raises(StageError, match=said):
            handler.chunk(key, good | change, Room(None))
