"""A stage as plain data, for the wire: numbers, strings, lists and dicts, never code.

A worker trusts nothing it reads: `decode_stage` checks every field, and `validate_stage` that every call is allowed and
reads only what was made before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from lotan.errors import StageError
from lotan.row_wise import DTYPES
from lotan.stages.operators import compile_call
from lotan.stages.recorded import names_read
from planner.physical import Stage, StageInput, StageOutput
from planner.spec import Argument, Call, EdgeSet, LossSpec, ParameterSpec, Ref, RowCount, Rows, Task, ValueType

T = TypeVar("T")
Plain = dict[str, Any]

_DTYPES = tuple(name.removeprefix("torch.") for name in DTYPES)
_ROWS, _EDGE_SETS, _TASKS = get_args(Rows), get_args(EdgeSet), get_args(Task)
_ROLES = ("vertex", "source")
_DEPTH = 8  # nesting of an argument; a traced one has at most two levels


def encode_stage(stage: Stage) -> Plain:
    """A stage as msgpack-able data. Inverse of `decode_stage`."""
    return {
        "name": stage.name,
        "inputs": [_encode_input(i) for i in stage.inputs],
        "parameters": [encode_parameter(parameter) for parameter in stage.parameters],
        "calls": [encode_call(call) for call in stage.calls],
        "outputs": [
            {"value": o.value, "column": o.column, "shape": list(o.shape), "needs_gradient": o.needs_gradient}
            for o in stage.outputs
        ],
        "loss": None if stage.loss is None else encode_loss(stage.loss),
        "edge_sets": list(stage.edge_sets),
    }


def _encode_input(i: StageInput) -> Plain:
    return {
        "value": i.value,
        "column": i.column,
        "shape": list(i.shape),
        "role": i.role,
        "edges": i.edges,
        "dtype": i.dtype,
        "static": i.static,
        "needs_gradient": i.needs_gradient,
    }


def encode_parameter(parameter: ParameterSpec) -> Plain:
    """A parameter's name and type. Inverse of `decode_parameter`."""
    return {
        "name": parameter.name,
        "shape": list(parameter.shape),
        "trainable": parameter.trainable,
        "dtype": parameter.dtype,
    }


def encode_loss(loss: LossSpec) -> Plain:
    """A loss. Inverse of `decode_loss`."""
    return {
        "task": loss.task,
        "outputs": loss.outputs,
        "normalizer": loss.normalizer,
        "class_weights": None if loss.class_weights is None else list(loss.class_weights),
    }


def encode_call(call: Call) -> Plain:
    """A call. Inverse of `decode_call`."""
    kind = call.type
    return {
        "output": call.output,
        "op": call.op,
        "arguments": [_encode_argument(argument) for argument in call.arguments],
        "keywords": [[name, _encode_argument(value)] for name, value in call.keywords],
        "type": {"rows": kind.rows, "shape": list(kind.shape), "dtype": kind.dtype, "edges": kind.edges},
        "layer": call.layer,
        "where": call.where,
    }


def _encode_argument(argument: Argument) -> Any:
    match argument:
        case Ref(name):
            return {"ref": name}
        case RowCount():
            return {"ref": None}
        case tuple():
            return [_encode_argument(part) for part in argument]
    return argument


def decode_stage(data: Plain) -> Stage:
    """The stage that `encode_stage` wrote, checked.

    Raises:
        StageError: a field is missing, of the wrong type or unknown, an operator is not allowed, or a call reads what
            nothing made before it.
    """
    read = Reader(data, "stage")
    stage = Stage(
        name=read.text("name"),
        inputs=read.items("inputs", _decode_input),
        parameters=read.items("parameters", decode_parameter),
        calls=read.items("calls", decode_call),
        outputs=read.items("outputs", _decode_output),
        loss=read.optional("loss", decode_loss),
        edge_sets=read.items("edge_sets", _edge_set),
    )
    validate_stage(stage)
    return stage


def validate_stage(stage: Stage) -> None:
    """Check that a stage can run.

    Raises:
        StageError: a name is made twice or read before it is made, an operator is not allowed, a source input is read
            otherwise than by lotan.scatter, or a loss stands without its one output.
    """
    sources = {i.value: i.edges for i in stage.inputs if i.role == "source"}
    made: set[str] = set()
    for name in [i.value for i in stage.inputs] + [p.name for p in stage.parameters]:
        _make(name, made, stage)
    for call in stage.calls:
        for name in names_read(call):
            if name not in made:
                raise StageError(
                    f"stage {stage.name}: {call.output} = {call.op} reads {name!r}, made by nothing before"
                )
        _check_sources(call, sources, stage)
        compile_call(call, {})
        _make(call.output, made, stage)
    for output in stage.outputs:
        if output.value not in made:
            raise StageError(f"stage {stage.name}: its output {output.value!r} is made by nothing")
    if stage.loss is not None and len(stage.outputs) != 1:
        raise StageError(f"stage {stage.name}: a loss needs exactly one output, not {len(stage.outputs)}")


def _make(name: str, made: set[str], stage: Stage) -> None:
    if name in made:
        raise StageError(f"stage {stage.name}: {name!r} is made twice")
    made.add(name)


def _check_sources(call: Call, sources: dict[str, Any], stage: Stage) -> None:
    read = names_read(call)
    scatters = call.op == "lotan.scatter" and call.arguments[1:2] == ("source",)
    for name in read & sources.keys():
        if not scatters or call.arguments[2:] != (sources[name],):
            raise StageError(
                f"stage {stage.name}: {call.op} reads the source input {name!r}; only "
                f"lotan.scatter(_, 'source', {sources[name]!r}) can"
            )
    if scatters and not read & sources.keys():
        raise StageError(f"stage {stage.name}: {call.output} scatters from sources what is not a source input")


class Reader:
    """Fields of one decoded dict, checked as they are read."""

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, dict):
            raise StageError(f"{what}: expected a mapping, not {type(data).__name__}")
        self._data, self._what = data, what

    def field(self, name: str) -> Any:
        """A field as it is."""
        if name not in self._data:
            raise StageError(f"{self._what}: field {name!r} is missing")
        return self._data[name]

    def of(self, name: str, *types: type) -> Any:
        """A field of one of these types exactly."""
        value = self.field(name)
        if type(value) not in types:
            raise StageError(
                f"{self._what}: field {name!r} is {value!r}, expected {' or '.join(t.__name__ for t in types)}"
            )
        return value

    def text(self, name: str) -> str:
        """A string."""
        return str(self.of(name, str))

    def flag(self, name: str) -> bool:
        """A bool."""
        return bool(self.of(name, bool))

    def items(self, name: str, decode: Callable[[Any], T]) -> tuple[T, ...]:
        """A list, each item decoded."""
        return tuple(decode(item) for item in self.of(name, list, tuple))

    def shape(self, name: str = "shape") -> tuple[int, ...]:
        """A list of sizes."""
        return self.items(name, lambda size: _size(size, self._what))

    def optional(self, name: str, decode: Callable[[Any], T]) -> T | None:
        """A field that may be None."""
        value = self.field(name)
        return None if value is None else decode(value)

    def choice(self, name: str, choices: tuple[str, ...]) -> Any:
        """One of these strings."""
        return _one_of(self.field(name), choices, f"{self._what}: field {name!r}")


def _one_of(value: Any, choices: tuple[str, ...], what: str) -> Any:
    if value not in choices:
        raise StageError(f"{what} is {value!r}, expected one of {', '.join(choices)}")
    return value


def _size(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise StageError(f"{what}: {value!r} is not a size")
    return value


def _edge_set(value: Any) -> Any:
    return _one_of(value, _EDGE_SETS, "edge set")


def _decode_input(data: Any) -> StageInput:
    read = Reader(data, "stage input")
    i = StageInput(
        value=read.text("value"),
        column=read.text("column"),
        shape=read.shape(),
        role=read.choice("role", _ROLES),
        edges=read.optional("edges", _edge_set),
        dtype=read.choice("dtype", _DTYPES),
        static=read.flag("static"),
        needs_gradient=read.flag("needs_gradient"),
    )
    if i.role == "source" and i.edges is None:
        raise StageError(f"stage input {i.value!r}: a source input names its edge set")
    return i


def decode_parameter(data: Any) -> ParameterSpec:
    """The parameter that `encode_parameter` wrote, checked."""
    read = Reader(data, "parameter")
    return ParameterSpec(read.text("name"), read.shape(), read.flag("trainable"), read.choice("dtype", _DTYPES))


def _decode_output(data: Any) -> StageOutput:
    read = Reader(data, "stage output")
    return StageOutput(read.text("value"), read.text("column"), read.shape(), read.flag("needs_gradient"))


def decode_loss(data: Any) -> LossSpec:
    """The loss that `encode_loss` wrote, checked."""
    read = Reader(data, "loss")
    return LossSpec(
        task=read.choice("task", _TASKS),
        outputs=_size(read.field("outputs"), "loss"),
        normalizer=float(read.of("normalizer", float, int)),
        class_weights=read.optional("class_weights", _decode_weights),
    )


def _decode_weights(data: Any) -> tuple[float, ...]:
    if not isinstance(data, list | tuple) or any(type(weight) not in (int, float) for weight in data):
        raise StageError(f"loss: class weights {data!r} are not a list of numbers")
    return tuple(float(weight) for weight in data)


def decode_call(data: Any) -> Call:
    """The call that `encode_call` wrote, its form checked; `validate_stage` checks what it does."""
    read = Reader(data, "call")
    return Call(
        output=read.text("output"),
        op=read.text("op"),
        arguments=read.items("arguments", _decode_argument),
        type=_decode_type(read.field("type")),
        keywords=read.items("keywords", _decode_keyword),
        layer=read.text("layer"),
        where=read.text("where"),
    )


def _decode_type(data: Any) -> ValueType:
    read = Reader(data, "type")
    return ValueType(
        rows=read.choice("rows", _ROWS),
        shape=read.shape(),
        dtype=read.choice("dtype", _DTYPES),
        edges=read.optional("edges", _edge_set),
    )


def _decode_keyword(data: Any) -> tuple[str, Argument]:
    if not isinstance(data, list | tuple) or len(data) != 2 or not isinstance(data[0], str):
        raise StageError(f"keyword argument: expected a name and a value, not {data!r}")
    return data[0], _decode_argument(data[1])


def _decode_argument(data: Any, depth: int = 0) -> Argument:
    if isinstance(data, dict):
        name = Reader(data, "argument").optional("ref", str)
        return RowCount() if name is None else Ref(name)
    if isinstance(data, list | tuple) and depth < _DEPTH:
        return tuple(_decode_argument(part, depth + 1) for part in data)
    if data is None or type(data) in (int, float, bool, str):
        return data
    raise StageError(f"argument: {data!r} is neither a reference, a number, a string nor a list of those")
