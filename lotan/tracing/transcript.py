"""The translation of a recording: torch.fx's nodes become the calls of a `planner.spec.Spec`.

Every value has rows of vertices, rows of edges, or no such rows. The symbol of its first dimension tells which. A dtype
among the arguments is a string, such as "torch.float32".
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.fx import Node

from lotan.errors import ModelError
from lotan.stages.row_wise import ALLOWED, short_name
from lotan.tracing.columns_of_numbers import numbers_of
from lotan.tracing.fakes import GROUP, SEEN
from lotan.tracing.forms import (
    BROADCAST,
    EXTREMES,
    LOOKUPS,
    PARTS,
    Form,
    FullSize,
    canonical_form,
    does_nothing,
    extreme_arguments,
    lookup_index,
    part_form,
)
from lotan.tracing.inputs import InputsWriter
from lotan.tracing.learned import OTHER_LOOKUP, PADDED
from lotan.tracing.pyg.drawing import BOTH_WAYS, draws_both_ways, draws_for_other_edges
from lotan.tracing.recording import Recording
from lotan.tracing.refusals import (
    COUNT_AS_VALUE,
    DEPENDS_ON_VALUES,
    ON_EDGES,
    SEVERAL_RESULTS,
    STATISTIC_ALONE,
    VERTEX_NUMBERS,
    layer_of,
    refusal,
)
from lotan.tracing.statistics import EXPAND
from lotan.tracing.writing import Moved, Unusable, describe, leaves_of
from planner.spec import Bound, Call, ParameterSpec, Ref, RowCount, Rows, Spec, ValueType

_OF_A_SIZE = {"rand.default": "aten.rand_like.default", "randn.default": "aten.randn_like.default"}
"""Operators that draw random numbers of a size, and those that draw them in the shape of another value."""

_RANGES = ("arange.default", "arange.start")
"""Operators that count, from 0 where they count the vertices."""

_OTHERWISE = {"bernoulli_.float": "bernoulli.p", "pow_.Scalar": "pow.Tensor_Scalar", "pow_.Tensor": "pow.Tensor_Tensor"}
"""Operators that write to their input, and those that do not, where the overloads have different names."""

_DRAWING = ("exponential_", "normal_", "uniform_", "random_", "cauchy_", "log_normal_", "geometric_")
"""Operators that fill a tensor with random numbers, and have no form that does not."""

_PRODUCTS = ("mm.default", "matmul.default")
"""Operators that multiply matrices."""


@dataclass(frozen=True)
class _VertexNumbers(Unusable):
    """The numbers 0, 1, ... of all vertices, by which learned rows may be looked up."""


class Transcript(InputsWriter):
    """Writes a Spec, node by node.

    Args:
        width: width of the features.
        parameters: all parameters and buffers of the model, in the model's order.
        recording: the model's recording.
    """

    def __init__(self, width: int, parameters: tuple[ParameterSpec, ...], recording: Recording) -> None:
        super().__init__(width, parameters, recording)
        self._shared: set[Node] = set()  # nodes whose memory another node shares
        self._bounds: list[Bound] = []
        self._tracked = recording.tracked
        self._types_told_apart = recording.types
        self._further = recording.further

    def spec(self) -> Spec:
        """Return the whole recording as a Spec.

        Raises:
            ModelError: the model cannot be planned. The error names the layer, the line and what to write instead.
        """
        *nodes, output = self._module.graph.nodes
        for node in nodes:
            match node.op:
                case "placeholder":
                    self._placeholder(node)
                case "get_attr":
                    self._constant(node)
                case _:
                    self._function(node)
        return self._finish(output)

    # Nodes

    def _function(self, node: Node) -> None:
        value, op = node.meta.get("val"), str(node.target)
        if node.target is torch._C._set_grad_enabled:
            if node.args[0]:  # such as torch.enable_grad(), which changes nothing where gradients are on already
                return
            raise refusal(node, "switches gradients off inside forward; use .detach() on what is to have none")
        if isinstance(value, torch.SymFloat | torch.SymBool) or op == "aten.item.default":
            raise refusal(node, DEPENDS_ON_VALUES)
        if node.target is operator.getitem:
            self._item(node)
        elif isinstance(value, torch.SymInt):
            rows = self._symbols.rows(value)
            self._values[node] = RowCount() if rows is not None and rows[0] != "none" else Unusable(COUNT_AS_VALUE)
        elif not isinstance(node.target, torch._ops.OpOverload):
            self._values[node] = Unusable(COUNT_AS_VALUE)  # Python arithmetic on row counts
        elif op.startswith("lotan."):
            self._graph_operator(node, op.removesuffix(".default"))
        else:
            self._tensor_operator(node, op.removeprefix("aten."))

    def _tensor_operator(self, node: Node, name: str) -> None:
        if name in PARTS or name in EXTREMES or name == BROADCAST:
            self._values[node] = Unusable(f"{name.split('.')[0]} {SEVERAL_RESULTS}")  # unless one of them is selected
        elif not isinstance(node.meta.get("val"), torch.Tensor):
            raise refusal(node, f"{short_name(str(node.target))} {SEVERAL_RESULTS}")
        elif name in _OF_A_SIZE:
            self._random(node, name)
        elif name in _RANGES and self._symbols.number_of(node.meta["val"].shape[0]) is not None:
            self._values[node] = _VertexNumbers(VERTEX_NUMBERS)
        elif (looked_up := self._looked_up(node, name)) is not None:
            self._values[node] = looked_up
        elif does_nothing(node, name):
            self._values[node] = self._unread(node) or self._argument(node, node.args[0])
        elif name == "detach_.default" and (unread := self._unread(node)) is not None:
            self._values[node] = unread
        elif name in _PRODUCTS and self._has_turned(node):
            self._values[node] = self._products(node)
        elif (reduction := self._reduction(node, name)) is not None:
            self._reduce(node, reduction)
        else:
            self._write(node, canonical_form(node, self._functional(node, name)))
            if name in LOOKUPS:
                self._bound_lookup(node, name)
        schema = _schema(node)
        # An operator that writes to its input returns it, and torch.fx then uses the new node in place of the input's.
        if not schema.is_mutable and any(result.alias_info is not None for result in schema.returns):
            self._shared.update({node, *node.all_input_nodes})

    def _looked_up(self, node: Node, name: str) -> Ref | None:
        """Return learned rows that a node looks up for all vertices, or None if it does something else."""
        if name not in LOOKUPS:
            return None
        rows = self._values.get(cast(Node, node.args[0]))
        if not isinstance(rows, Ref) or rows.name not in self._learned:
            return None
        if name == "embedding.default" and len(node.args) > 2 and node.args[2] != -1:
            raise refusal(node, PADDED)
        by = self._values.get(lookup_index(node, name))
        if isinstance(by, _VertexNumbers):
            return rows
        raise refusal(node, OTHER_LOOKUP)

    def _unread(self, node: Node) -> Unusable | None:
        """Return the first argument of a node if no call may read it. Perhaps nobody does."""
        source = node.args[0] if node.args else None
        value = self._values.get(source) if isinstance(source, Node) else None
        return value if isinstance(value, Unusable) else None

    def _random(self, node: Node, name: str) -> None:
        """Translate random numbers of a size, which counts rows, into random numbers in the shape of zeros."""
        zeros = self._call(node, "aten.zeros.default", (self._argument(node, FullSize()),), name=f"{node.name}_rows")
        self._values[node] = self._call(node, _OF_A_SIZE[name], (zeros,))

    def _graph_operator(self, node: Node, op: str) -> None:
        arguments = node.args
        kept: tuple[Any, ...]
        match op:
            case "lotan.scatter":
                x, _, end, edges = arguments
                self._require(node, x, "vertex", None, "x in propagate(graph, x) must hold one row per vertex")
                kept = (x, end, edges)
            case "lotan.aggregate" | "lotan.quantile":
                op = "lotan.aggregate"
                messages, _, _, kind, edges = arguments
                self._require(node, messages, "edge", edges, ON_EDGES)
                kept = (messages, kind, edges)
            case "lotan.neighbour_rows":
                messages, order, _, _, size, edges = arguments
                self._require(node, messages, "edge", edges, ON_EDGES)
                kept = (messages, order, size, edges)
            case "lotan.neighbour_sequence":
                messages, order, steps, _, _, *settings, edges = arguments
                self._require(node, messages, "edge", edges, ON_EDGES)
                read = messages, order, steps, *settings, edges  # a statistic is among them
                self._values[node] = self._call(node, op, tuple(self._argument(node, one) for one in read))
                return None
            case "lotan.neighbour_attention":
                *projected, _, edges = arguments
                for one in projected:
                    self._require(node, one, "edge", edges, ON_EDGES)
                kept = (*projected, edges)
            case "lotan.edge_softmax":
                scores, _, _, edges = arguments
                self._require(node, scores, "edge", edges, "scores must be float32, one row per edge of this layer")
                kept = (scores, edges)
            case "lotan.total":
                x, kind = arguments
                self._require(node, x, "vertex", None, "a reduction over all vertices needs one row per vertex")
                if (of_type := self._of_type(node, x)) is not None:
                    if kind == "moments":
                        self._varied[of_type.number, layer_of(node)] = None
                    self._values[node] = of_type.total(*self._rows_of(node, x, str(kind)))
                    return None
                kept = (x, kind)
            case "lotan.track":
                of_type, variances = self._of_type(node, arguments[0]), {layer.variance for layer in self._tracked}
                buffer = self._argument(node, arguments[1])
                if of_type is not None and isinstance(buffer, Ref) and buffer.name in variances:
                    rows, _, shape = self._rows_of(node, arguments[0], "")
                    self._values[node] = of_type.tracked_variance(rows, buffer, shape)
                    return None
                kept = arguments
            case "lotan.bounded":
                return self._bound(node, *arguments)
            case "lotan.group_total":
                self._values[node] = self._group_total(node, *cast(Any, arguments))
                return None
            case "lotan.group_rows":
                self._values[node] = self._group_rows(node, *arguments)
                return None
            case "lotan.vertex_input" if arguments[1] == GROUP:
                self._values[node] = self._groups(node)
                return None
            case "lotan.vertex_input" if arguments[1] == SEEN:
                self._values[node] = self._last_feature(node)
                return None
            case "lotan.shown":
                kept = arguments
            case "lotan.edge_column":
                kept = arguments[1:]
            case "lotan.recurrent":
                kept, self.draws_moved = arguments, True
            case _:  # edge_weight(weight, edges), vertex_input(column, name)
                kept = (arguments[1],)
        return self._write(node, Form(op, kept))

    def _bound(self, node: Node, numbers: Any, limit: Any) -> None:
        """Note that integers have to be below a limit, and let the integers themselves stand for the node."""
        value = self._argument(node, numbers)
        assert isinstance(value, Ref)
        found = numbers_of(value.name, self._calls)
        if found is None:
            raise refusal(
                node,
                f"takes integers from 0 to {limit - 1}, but those that it is given are computed, so that they cannot be "
                "checked before training; take a column of x, edge_attr or edge_type, or clamp them",
            )
        if isinstance(found, int) and found > limit:
            raise refusal(
                node, f"takes integers from 0 to {limit - 1}, but those that it is given go up to {found - 1}"
            )
        if not isinstance(found, int):
            self._bounds.append(Bound(*found, limit, layer_of(node)))
        self._values[node] = value

    def _bound_lookup(self, node: Node, name: str) -> None:
        """Note that attributes of edges by which rows of a parameter are looked up have to be below the number of rows."""
        table, index = node.args[0], lookup_index(node, name)
        value = self._values.get(index) if isinstance(index, Node) else None
        found = numbers_of(value.name, self._calls) if isinstance(value, Ref) else None
        if isinstance(found, tuple) and found[0] == "edge_attr" and isinstance(table, Node):
            self._bounds.append(Bound(*found, int(table.meta["val"].shape[0]), layer_of(node)))

    def _item(self, node: Node) -> None:
        """Translate one result of an operator that has several into calls that have one."""
        source, item = node.args
        assert isinstance(source, Node)
        assert isinstance(item, int)
        name = str(source.target).removeprefix("aten.")
        if name in EXTREMES and item and not node.users:
            return  # nobody reads the places of these numbers
        if name in EXTREMES and not item and (reduction := self._reduction_of_extreme(source)) is not None:
            self._reduce(node, reduction, source.args[0])
        elif name in EXTREMES:
            self._extreme(node, source, item, EXTREMES[name])
        elif name == BROADCAST:
            self._broadcast(node, source, item)
        else:
            self._write(node, part_form(node, source, item))

    def _broadcast(self, node: Node, source: Node, item: int) -> None:
        """Translate one of several tensors that torch gives one shape, as its losses do."""
        tensors: Any = source.args[0]
        if node.meta["val"].shape == tensors[item].meta["val"].shape:
            self._values[node] = self._argument(node, tensors[item])
        else:
            self._write(node, Form(EXPAND, (tensors[item], FullSize())))

    def _extreme(self, node: Node, source: Node, item: int, argmax: str) -> None:
        """Translate a greatest or least number into a position and the number there.

        Ties are then broken and differentiated as torch does it.
        """
        x, dim, keepdim = extreme_arguments(source)
        if item == 1:
            return self._write(node, Form(argmax, (x, dim, keepdim)))
        if isinstance(self._values.get(x), Moved):
            return self._moved_extreme(node, x, dim, keepdim, argmax)
        values = source.meta["val"][0]
        kept = self._type(node, values if keepdim else values.unsqueeze(dim))
        there = ValueType(kept.rows, kept.shape, "int64", kept.edges)
        x = self._argument(node, x)
        position = self._call(node, argmax, (x, dim, True), kind=there, name=f"{node.name}_position")
        result = self._call(node, "aten.gather.default", (x, dim, position), kind=kept, name=f"{node.name}_kept")
        self._values[node] = result if keepdim else self._call(node, "aten.squeeze.dim", (result, dim))
        return None

    def _finish(self, node: Node) -> Spec:
        output = self._argument(node, node.args[0])
        assert isinstance(output, Ref)
        if output.name in self._statistics:
            raise refusal(node, f"forward returns {STATISTIC_ALONE}")
        kind = self._types[output.name]
        if kind.rows != "vertex" or len(kind.shape) != 1 or kind.dtype != "float32":
            hint = (
                "; for one output, return x[:, None] in place of x"
                if kind.shape == () and kind.rows == "vertex"
                else ""
            )
            raise refusal(
                node, f"forward returns {describe(kind)}; expected float32 of shape [num_vertices, outputs]{hint}"
            )
        calls = needed_calls(self._calls, output.name)
        if (again := draws_both_ways(calls)) is not None:
            raise ModelError(" ".join(filter(None, [again.layer and f"layer {again.layer!r}", again.where, BOTH_WAYS])))
        self.draws_moved = self.draws_moved or draws_for_other_edges(calls)
        read = {name for call in calls for name in call.reads}
        tracked = tuple(layer for layer in self._tracked if layer.mean in read)
        buffers = {name for layer in tracked for name in (layer.mean, layer.variance)}
        parameters = tuple(
            replace(spec, trainable=True) if name in buffers else spec  # what changes it is handed in as a gradient
            for name, spec in self._parameters.items()
            if name in read
        )
        for parameter in parameters:
            if parameter.dtype != "float32":
                raise ModelError(
                    f"{parameter.name!r} is {parameter.dtype}; expected torch.float32: call .float() on it"
                )
        bounds = tuple(dict.fromkeys(self._bounds))
        told_apart, groups = self._types_told_apart, self._number_of_groups
        return Spec(
            self._width,
            parameters,
            calls,
            output.name,
            tracked,
            told_apart,
            bounds,
            self._vertex_types,
            (*self._varied,),
            groups,
            self._sees_labels,
            self._further,
        )

    # Arguments

    def _functional(self, node: Node, name: str) -> str:
        """Return the operator's name. For one that writes to its input, it is the name of the one that does not."""
        if not _schema(node).is_mutable:
            return name
        packet, _, overload = name.partition(".")
        plain = _OTHERWISE.get(name, f"{packet.removesuffix('_')}.{overload}")
        target = node.args[0] if node.args else None
        written = self._values.get(target) if isinstance(target, Node) else None
        private = (
            isinstance(written, Ref)
            and written.name not in self._parameters
            and written.name not in ("features", *self._learned)
        )
        if packet in _DRAWING:
            raise refusal(
                node,
                f"{packet} draws random numbers in a way that is not supported; compute them from torch.rand_like(x)",
            )
        if not private or target in self._shared or f"aten.{plain}" not in ALLOWED:
            raise refusal(
                node, f"{packet} writes to a tensor that others share; use the form that returns a new tensor"
            )
        return plain

    def _require(self, node: Node, argument: Any, rows: Rows, edges: Any, text: str) -> None:
        ref = self._argument(node, argument)
        kind = self._types[ref.name] if isinstance(ref, Ref) else None
        # Only float32 crosses edges. Other numbers would fail in the first epoch, and on some engines only.
        fits = kind is not None and (kind.rows, kind.edges) == (rows, edges)
        if kind is None or not fits or (rows == "edge" and kind.dtype != "float32"):
            raise refusal(node, f"{text}, but got {describe(kind) if kind else ref}")

    # Calls

    def _write(self, node: Node, form: Form) -> None:
        """Write the call of a node."""
        if not form.op.startswith("lotan.") and self._is_moved(node, form):
            return self._move(node, form)
        if any(
            isinstance(leaf, Node) and self._is_statistic(leaf) for leaf in leaves_of((form.arguments, form.keywords))
        ):
            if form.op.startswith("lotan."):
                raise refusal(node, f"{short_name(form.op)} is applied to {STATISTIC_ALONE}")
            return self._beside_statistics(node, form)
        if _row_counts(form, self._values):
            raise refusal(node, f"{short_name(form.op)} {COUNT_AS_VALUE}")
        arguments = tuple(self._argument(node, argument) for argument in form.arguments)
        keywords = tuple((key, self._argument(node, value)) for key, value in form.keywords)
        self._values[node] = self._call(node, form.op, arguments, keywords)
        return None


def _schema(node: Node) -> torch._C.FunctionSchema:
    """Return PyTorch's schema of the operator that a node calls."""
    return cast("torch._ops.OpOverload[..., Any]", node.target)._schema


def _row_counts(form: Form, values: dict[Node, Any]) -> bool:
    """Return True if a number of rows is among the arguments."""
    leaves = leaves_of((form.arguments, form.keywords))
    return any(isinstance(values.get(leaf), RowCount) for leaf in leaves if isinstance(leaf, Node))


def needed_calls(calls: list[Call], output: str) -> tuple[Call, ...]:
    """Return the calls on which `output` depends."""
    needed, kept = {output}, []
    for call in reversed(calls):
        if call.output in needed:
            kept.append(call)
            needed.update(call.reads)
    return tuple(reversed(kept))
