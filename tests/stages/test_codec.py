"""Stages as plain data: what comes back is equal, and nothing malformed or forbidden gets through."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from lotan.errors import StageError
from lotan.stages.codec import decode_spec, decode_stage, encode_spec, encode_stage
from planner.physical import Part, Stage, of_model
from planner.spec import Bound, Spec
from planner.vertex_types import VertexTypes
from tests.stages.test_program import dense_stage, last_stage, neighbour_stage

STAGES = [dense_stage(), neighbour_stage("mean"), last_stage()]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_survives_the_wire(stage: Stage) -> None:
    assert decode_stage(msgpack.unpackb(msgpack.packb(encode_stage(stage)))) == stage


def _call(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["calls"][1].update(changes)


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no calls": (lambda data: data.pop("calls"), "'calls' is missing"),
    "forbidden operator": (_call(op="aten.from_file.default"), "from_file"),
    "not an operator": (_call(op="__import__"), "__import__"),
    "random operator": (_call(op="aten.dropout.default"), "dropout"),
    "graph operator with wrong arguments": (_call(op="lotan.aggregate"), "aggregate"),
    "unknown reference": (_call(arguments=[{"ref": "nobody"}, {"ref": "w"}]), "'nobody'"),
    "cycle": (_call(arguments=[{"ref": "y"}, {"ref": "w"}]), "'y', which no earlier call makes"),
    "name made twice": (_call(output="d"), "'d' is made twice"),
    "argument that is no data": (_call(arguments=[b"x"]), "argument"),
    "argument nested without end": (_call(arguments=[[[[[[[[[[[1]]]]]]]]]]]), "argument"),
    "unknown rows": (lambda data: data["calls"][0]["type"].update(rows="cell"), "'cell'"),
    "negative size": (lambda data: data["inputs"][0].update(shape=[-1]), "-1"),
    "size that is a flag": (lambda data: data["inputs"][0].update(shape=[True]), "True"),
    "unknown dtype": (lambda data: data["inputs"][0].update(dtype="object"), "'object'"),
    "name that is no text": (lambda data: data.update(name=3), "'name'"),
    "inputs that are no list": (lambda data: data.update(inputs={}), "'inputs'"),
    "output made by nothing": (lambda data: data["outputs"][0].update(value="nobody"), "'nobody'"),
    "keyword without a value": (lambda data: data["calls"][1].update(keywords=[["alpha"]]), "keyword argument"),
    "edges of an unknown set": (lambda data: data["calls"][0]["type"].update(edges="lattice"), "'lattice'"),
    "dropout beyond one": (
        lambda data: data["calls"][0].update(arguments=[{"ref": "x"}, 1.5, 11]),
        "1.5 is not between",
    ),
    "dropout without rows": (
        lambda data: data["calls"][0]["type"].update(rows="none"),
        "needs rows of vertices or edges",
    ),
    "unknown distribution": (
        lambda data: data["calls"][0].update(op="lotan.random", arguments=[{"ref": "x"}, "zipf", 0.5, 11]),
        "draws 'zipf'",
    ),
    "random numbers beyond one": (
        lambda data: data["calls"][0].update(op="lotan.random", arguments=[{"ref": "x"}, "bernoulli", 2.0, 11]),
        "probability 2.0",
    ),
    "source without edges": (lambda data: data["inputs"][0].update(role="source"), "edge set"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_data_is_refused(name: str) -> None:
    damage, message = MALFORMED[name]
    data = copy.deepcopy(encode_stage(dense_stage()))
    damage(data)
    with pytest.raises(StageError, match=message):
        decode_stage(data)


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(StageError, match="expected a mapping"):
        decode_stage([1])  # type: ignore[arg-type]


def test_a_source_is_read_through_scatter_only() -> None:
    data = encode_stage(neighbour_stage("sum"))
    data["calls"][2]["arguments"][0] = {"ref": "x"}
    with pytest.raises(StageError, match="source input"):
        decode_stage(data)


def batch_stage() -> Stage:
    """The dense stage of two models, beside each other on one row."""
    one = dense_stage()
    wide = {"x": (12,), "s": (2,), "y": (8,)}
    return replace(
        one,
        name="two",
        inputs=tuple(replace(given, shape=wide[given.value]) for given in one.inputs),
        outputs=tuple(replace(made, shape=wide[made.value]) for made in one.outputs),
        calls=(),
        parameters=tuple(replace(p, name=of_model(model, p.name)) for model in range(2) for p in one.parameters),
        parts=tuple(Part(model, one) for model in range(2)),
        models=2,
    )


def test_a_stage_of_several_models_survives_the_wire() -> None:
    stage = batch_stage()
    assert decode_stage(msgpack.unpackb(msgpack.packb(encode_stage(stage)))) == stage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data["parts"][1].update(model=2), "no model 2 among 2"),
        (lambda data: data.update(calls=encode_stage(dense_stage())["calls"]), "not those of its parts"),
        (lambda data: data["parameters"].pop(), "not those of its parts"),
        (lambda data: data["inputs"][0].update(shape=[11]), "'x' has 11 numbers a row, and its parts have"),
        (lambda data: data["outputs"][0].update(shape=[9]), "'y' has 9 numbers a row, and its parts have"),
        (lambda data: data["parts"][0]["stage"]["calls"].pop(), "no call makes its output 'y'"),
        (lambda data: data["parts"][0]["stage"].update(parts=data["parts"]), "a part of a stage has parts itself"),
    ],
)
def test_parts_that_are_not_those_of_their_stage_are_refused(
    damage: Callable[[dict[str, Any]], Any], message: str
) -> None:
    data = encode_stage(batch_stage())
    damage(data)
    with pytest.raises(StageError, match=message):
        decode_stage(data)


def test_a_loss_needs_one_output() -> None:
    data = encode_stage(last_stage())
    data["outputs"] = []
    with pytest.raises(StageError, match="exactly one output"):
        decode_stage(data)


WRITES = ("author", "writes", "paper")
SPEC = Spec(
    6,
    dense_stage().parameters,
    dense_stage().calls,
    "y",
    bounds=(Bound("edge_type", 0, 3, "conv"),),
    types=(3, "conv"),
    vertex_types=VertexTypes(("author", "paper"), (0, 5), (WRITES,), "paper", (2,)),
)


def test_a_traced_model_survives_the_wire() -> None:
    assert decode_spec(msgpack.unpackb(msgpack.packb(encode_spec(SPEC)))) == SPEC


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data.update(bounds=[["edge_type", 0, 3]]), "a bound is"),
        (lambda data: data.update(bounds=[["weight", 0, 3, "conv"]]), "the column of a bound"),
        (lambda data: data.update(types=["conv", 3]), "expected their number and the layer"),
        (lambda data: data["vertex_types"].update(names=["author", 1]), "1 is no name"),
        (lambda data: data["vertex_types"].update(relations=[["author", "paper"]]), "is no relation"),
        (lambda data: data["vertex_types"].update(task="venue"), "do not fit together"),
        (lambda data: data["vertex_types"].update(edge_widths=[2, 2]), "do not fit together"),
    ],
)
def test_a_malformed_model_is_refused(damage: Callable[[dict[str, Any]], Any], message: str) -> None:
    data = msgpack.unpackb(msgpack.packb(encode_spec(SPEC)))
    damage(data)
    with pytest.raises(StageError, match=message):
        decode_spec(data)
