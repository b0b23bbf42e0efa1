"""Stages and traced models as plain data for the wire and for files: numbers, strings, lists and dicts, never code.

A worker trusts no data that it reads. `decode_stage` checks every field, and `lotan.stages.validate` checks that the
stage can run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

from lotan.errors import StageError
from lotan.settings.metric_names import FURTHER
from lotan.stages.fields import Reader, one_of, size_of
from lotan.stages.losses import validate_loss
from lotan.stages.row_wise import DTYPES
from lotan.stages.validate import validate_stage
from planner.edge_sets import BASES, is_edge_set
from planner.loss import LossForm, LossSpec, Task
from planner.physical import Counts, Overflow, Part, SourceGradients, Stage, StageInput, StageOutput
from planner.spec import Argument, Bound, Call, EdgeSet, ParameterSpec, Ref, RowCount, Rows, Spec, ValueType
from planner.vertex_types import Relation, VertexTypes

Plain = dict[str, Any]

_DTYPES = tuple(name.removeprefix("torch.") for name in DTYPES)
_ROWS, _TASKS = get_args(Rows), get_args(Task)
_OVERFLOWS, _COUNTS = get_args(Overflow), get_args(Counts)
_METRICS = tuple(sorted({name for names in FURTHER.values() for name in names}))
_ROLES = ("vertex", "source", "total")
_DEPTH = 8  # largest nesting of an argument; a traced one has at most two levels


def encode_stage(stage: Stage) -> Plain:
    """Return a stage as data for msgpack. `decode_stage` is the inverse."""
    return {
        "name": stage.name,
        "inputs": [_encode_input(i) for i in stage.inputs],
        "parameters": [_encode_parameter(parameter) for parameter in stage.parameters],
        "calls": [_encode_call(call) for call in stage.calls],
        "outputs": [
            {
                "value": o.value,
                "column": o.column,
                "shape": list(o.shape),
                "needs_gradient": o.needs_gradient,
                "few": o.few,
            }
            for o in stage.outputs
        ],
        "loss": None if stage.loss is None else encode_loss(stage.loss),
        "edge_sets": list(stage.edge_sets),
        "overflow": stage.overflow,
        "counts": stage.counts,
        "worth": stage.worth,
        "parts": [{"model": part.model, "stage": encode_stage(part.stage)} for part in stage.parts],
        "models": stage.models,
    }


def encode_program(stage: Stage, source_gradients: SourceGradients, rows: int | None = None) -> Plain:
    """Encode a stage with the way it is to be run, as it is published to workers.

    Args:
        stage: The stage to encode.
        source_gradients: "summed" or "per_edge", as for `StageProgram`.
        rows: The rows of a chunk that the stage runs on at a time; None: all rows.
    """
    program = {"stage": encode_stage(stage), "source_gradients": source_gradients}
    return program if rows is None or stage.edge_sets else program | {"rows": rows}


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
        "sparse": i.sparse,
    }


def _encode_parameter(parameter: ParameterSpec) -> Plain:
    return {
        "name": parameter.name,
        "shape": list(parameter.shape),
        "trainable": parameter.trainable,
        "dtype": parameter.dtype,
    }


def encode_loss(loss: LossSpec) -> Plain:
    """Return a loss as plain data. `decode_loss` is the inverse."""
    return {
        "task": loss.task,
        "outputs": loss.outputs,
        "normalizer": loss.normalizer,
        "class_weights": None if loss.class_weights is None else list(loss.class_weights),
        "form": None if loss.form is None else _encode_form(loss.form),
        "metrics": list(loss.metrics),
        "thresholds": None if loss.thresholds is None else list(loss.thresholds),
        "vertex_weights": loss.vertex_weights,
        "shown": loss.shown,
        "further": [[name, list(shape)] for name, shape in loss.further],
    }


def _encode_form(form: LossForm) -> Plain:
    return {
        "name": form.name,
        "arguments": [[name, _encode_argument(value)] for name, value in form.arguments],
        "calls": [_encode_call(call) for call in form.calls],
    }


def encode_spec(spec: Spec) -> Plain:
    """Return a traced model as plain data. `decode_spec` is the inverse."""
    return {
        "width": spec.width,
        "parameters": [_encode_parameter(parameter) for parameter in spec.parameters],
        "calls": [_encode_call(call) for call in spec.calls],
        "output": spec.output,
        "bounds": [[one.column, one.place, one.limit, one.layer] for one in spec.bounds],
        **({} if spec.types is None else {"types": list(spec.types)}),
        **({} if spec.groups is None else {"groups": spec.groups}),
        **({"sees_labels": True} if spec.sees_labels else {}),
        **({} if spec.vertex_types is None else {"vertex_types": _encode_types(spec.vertex_types)}),
    }


def _encode_types(types: VertexTypes) -> Plain:
    relations = [list(relation) for relation in types.relations]
    plain = {"names": list(types.names), "widths": list(types.widths), "relations": relations, "task": types.task}
    return plain | ({"edge_widths": list(types.edge_widths)} if types.edge_widths else {})


def _encode_call(call: Call) -> Plain:
    kind = call.type
    return {
        "output": call.output,
        "op": call.op,
        "arguments": [_encode_argument(argument) for argument in call.arguments],
        "keywords": [[name, _encode_argument(value)] for name, value in call.keywords],
        "type": {"rows": kind.rows, "shape": list(kind.shape), "dtype": kind.dtype, "edges": kind.edges},
        "layer": call.layer,
        "where": call.where,
        **({"draw": call.draw} if call.draw else {}),
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


def decode_stage(data: Any) -> Stage:
    """Return the stage that `encode_stage` wrote, and check it.

    Raises:
        StageError: a field is missing, unknown or of a wrong type, or the stage cannot run, for the reasons that
            `validate_stage` lists.
    """
    stage = _decode_stage(data, _decode_part)
    validate_stage(stage)
    return stage


def _decode_part(data: Any) -> Part:
    read = Reader(data, "part")
    return Part(size_of(read.field("model"), "part"), _decode_stage(read.field("stage"), _no_part))


def _no_part(data: Any) -> Part:
    raise StageError("a part of a stage has parts itself")


def _decode_stage(data: Any, part: Callable[[Any], Part]) -> Stage:
    read = Reader(data, "stage")
    return Stage(
        name=read.text("name"),
        inputs=read.items("inputs", _decode_input),
        parameters=read.items("parameters", _decode_parameter),
        calls=read.items("calls", _decode_call),
        outputs=read.items("outputs", _decode_output),
        loss=read.optional("loss", decode_loss),
        edge_sets=read.items("edge_sets", _edge_set),
        overflow=one_of(read.text("overflow"), _OVERFLOWS, "overflow"),
        counts=read.choice("counts", _COUNTS),
        worth=read.of("worth", float),
        parts=read.items("parts", part),
        models=size_of(read.field("models"), "stage"),
    )


def decode_spec(data: Any) -> Spec:
    """Return the model that `encode_spec` wrote, and check its form. Its operators are checked when they are compiled.

    Raises:
        StageError: If a field is missing, unknown or of the wrong type.
    """
    read = Reader(data, "model")
    return Spec(
        width=read.of("width", int),
        parameters=read.items("parameters", _decode_parameter),
        calls=read.items("calls", _decode_call),
        output=read.text("output"),
        bounds=read.items("bounds", _decode_bound) if read.has("bounds") else (),
        vertex_types=read.optional("vertex_types", _decode_types) if read.has("vertex_types") else None,
        types=read.optional("types", _decode_told_apart) if read.has("types") else None,
        groups=read.of("groups", int) if read.has("groups") else None,
        sees_labels=read.has("sees_labels") and read.flag("sees_labels"),
    )


def _decode_told_apart(data: Any) -> tuple[int, str]:
    match data:
        case [int(types), str(layer)]:
            return types, layer
    raise StageError(f"model: the types that a layer tells apart are {data!r}, expected their number and the layer")


def _decode_bound(data: Any) -> Bound:
    if not isinstance(data, list | tuple) or len(data) != 4:
        raise StageError(f"model: a bound is {data!r}, expected a column, a position, a limit and a layer")
    column, place, limit, layer = data
    one_of(column, ("features", "edge_attr", "edge_type"), "model: the column of a bound")
    return Bound(str(column), size_of(place, "bound"), size_of(limit, "bound"), str(layer))


def _decode_types(data: Any) -> VertexTypes:
    read = Reader(data, "types of vertices")
    found = VertexTypes(
        names=read.items("names", _text),
        widths=read.items("widths", lambda value: size_of(value, "width")),
        relations=read.items("relations", _relation),
        task=read.text("task"),
        edge_widths=read.items("edge_widths", lambda value: size_of(value, "width")) if read.has("edge_widths") else (),
    )
    ends = {end for relation in found.relations for end in (relation[0], relation[2])}
    of_edges = len(found.edge_widths) in (0, len(found.relations))
    if not of_edges or len(found.names) != len(found.widths) or not {found.task, *ends} <= set(found.names):
        raise StageError(f"types of vertices: {found!r} do not fit together")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise StageError(f"types of vertices: {value!r} is no name")
    return value


def _relation(value: Any) -> Relation:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise StageError(f"types of vertices: {value!r} is no relation")
    source, name, destination = map(_text, value)
    return source, name, destination


def _edge_set(value: Any) -> EdgeSet:
    if not is_edge_set(value):
        raise StageError(f"edge set: {value!r} is none; expected {', '.join(BASES)}, or one of a relation: graph:0")
    return str(value)


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
        sparse=read.flag("sparse"),
    )
    if i.role == "source" and i.edges is None:
        raise StageError(f"stage input {i.value!r}: a source input names its edge set")
    return i


def _decode_parameter(data: Any) -> ParameterSpec:
    read = Reader(data, "parameter")
    return ParameterSpec(read.text("name"), read.shape(), read.flag("trainable"), read.choice("dtype", _DTYPES))


def _decode_output(data: Any) -> StageOutput:
    read = Reader(data, "stage output")
    few = read.has("few") and read.flag("few")  # models that an earlier version has saved lack it
    return StageOutput(read.text("value"), read.text("column"), read.shape(), read.flag("needs_gradient"), few)


def decode_loss(data: Any) -> LossSpec:
    """Return the loss that `encode_loss` wrote, and check it."""
    read = Reader(data, "loss")
    loss = LossSpec(
        task=read.choice("task", _TASKS),
        outputs=size_of(read.field("outputs"), "loss"),
        normalizer=float(read.of("normalizer", float, int)),
        class_weights=read.optional("class_weights", _decode_weights),
        # models that an earlier version has saved lack these
        form=read.optional("form", _decode_form) if read.has("form") else None,
        metrics=read.items("metrics", _decode_metric) if read.has("metrics") else (),
        thresholds=read.optional("thresholds", _decode_weights) if read.has("thresholds") else None,
        vertex_weights=read.has("vertex_weights") and read.flag("vertex_weights"),
        shown=read.optional("shown", _decode_share) if read.has("shown") else None,
        further=read.items("further", _decode_further) if read.has("further") else (),
    )
    if not all(0 < one < 1 for one in loss.thresholds or ()):
        raise StageError(f"loss: thresholds are {loss.thresholds}, expected numbers above 0 and below 1")
    validate_loss(loss)
    return loss


def _decode_further(data: Any) -> tuple[str, tuple[int, ...]]:
    match data:
        case [str(name), list() | tuple() as shape]:
            return name, tuple(size_of(one, "loss") for one in shape)
    raise StageError(f"loss: what it reads beside the output is {data!r}, expected a name and a shape")


def _decode_share(data: Any) -> float:
    if not isinstance(data, int | float) or not 0 <= data <= 1:
        raise StageError(f"loss: the share of labels that are shown is {data!r}, expected a number from 0 to 1")
    return float(data)


def _decode_form(data: Any) -> LossForm:
    read = Reader(data, "loss")
    arguments = read.items("arguments", _decode_keyword)
    return LossForm(read.text("name"), arguments, read.items("calls", _decode_call))


def _decode_metric(data: Any) -> str:
    return str(one_of(data, _METRICS, "metric"))


def _decode_weights(data: Any) -> tuple[float, ...]:
    if not isinstance(data, list | tuple) or any(type(weight) not in (int, float) for weight in data):
        raise StageError(f"loss: class weights {data!r} are not a list of numbers")
    return tuple(float(weight) for weight in data)


def _decode_call(data: Any) -> Call:
    """Return the call that `_encode_call` wrote. Its form is checked here, and its meaning in `validate_stage`."""
    read = Reader(data, "call")
    return Call(
        output=read.text("output"),
        op=read.text("op"),
        arguments=read.items("arguments", _decode_argument),
        type=_decode_type(read.field("type")),
        keywords=read.items("keywords", _decode_keyword),
        layer=read.text("layer"),
        where=read.text("where"),
        draw=read.text("draw") if read.has("draw") else "",
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
        return cast(Argument, data)
    raise StageError(f"argument: {data!r} is neither a reference, a number, a string nor a list of those")
