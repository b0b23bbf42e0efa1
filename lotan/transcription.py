"""From torch.fx to the Planner's words: the nodes of a traced graph as the calls of a `planner.spec.Spec`.

Every value is sorted into rows of vertices, rows of edges, or neither, by the symbol its first dimension carries. Calls are
written in one canonical form, so that the Planner meets few spellings of one thing: every reshaping is aten.reshape with its
full shape, split and unbind are slices and selections, the greatest number along a dimension is a gather at its position,
and what does nothing (dropout in evaluation, contiguous) is left out. A dtype is the string "torch.float32".
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from lotan.errors import ModelError
from lotan.row_wise import ALLOWED, short_name, why_not_row_wise
from planner.spec import Argument, Call, EdgeSet, ParameterSpec, Ref, RowCount, Rows, Spec, ValueType

_DROPPED_KEYWORDS = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy")
_RESHAPES = (
    "view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints", "unflatten.int", "view_as.default",
    "reshape_as.default",
)  # fmt: skip
_EXPANSIONS = ("expand.default", "expand_as.default")
_FACTORIES = {"zeros.default": 0, "ones.default": 0, "full.default": 0, "new_zeros.default": 1, "new_ones.default": 1}
_SIZE_POSITION = _FACTORIES | {"new_full.default": 1}
_IDENTITIES = ("contiguous.default", "clone.default", "alias.default", "lift_fresh_copy.default")
_MULTIPLE = (
    "unbind.int",
    "split.Tensor",
    "split.sizes",
    "split_with_sizes.default",
    "chunk.default",
    "max.dim",
    "min.dim",
)
_GREATEST = {"max.dim": "aten.argmax.default", "min.dim": "aten.argmin.default"}
_WHOLE_SLICE = 2**63 - 1
_TORCH = os.path.dirname(torch.__file__) + os.sep
_LAYERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nn") + os.sep
_SCAFFOLDING = ("message_passing.py", "edge_index.py", "linear.py")  # what layers are made of says less than the layer
_LOTAN = os.path.dirname(os.path.abspath(__file__)) + os.sep


DEPENDS_ON_VALUES = (
    "forward depends on values (an if, a loop, .item() or indexing by a mask), so that it cannot be written down once for all "
    "chunks; use torch.where, or masks as factors"
)
FOREIGN_TENSOR = (
    "reads a tensor that is neither a parameter nor a buffer; make it one with register_buffer or torch.nn.Parameter"
)
MIXED_ROWS = (
    "depends on the number of rows, or combines rows of different kinds (vertices, edges, parameters). Keep to operators that "
    "work within a row, and let vertices meet along edges, in a lotan.nn.MessagePassing layer"
)


@dataclass(frozen=True)
class Symbols:
    """The row counts of a trace: what a first dimension equal to one of them means."""

    vertices: Any  # torch.SymInt
    edges: Mapping[EdgeSet, Any]

    def rows(self, size: Any) -> tuple[Rows, EdgeSet | None] | None:
        """What `size` rows are; None if it is neither a number nor one of the row counts."""
        if isinstance(size, int):
            return "none", None
        if size.node.expr == self.vertices.node.expr:
            return "vertex", None
        for name, count in self.edges.items():
            if size.node.expr == count.node.expr:
                return "edge", name
        return None


@dataclass(frozen=True)
class _Unusable:
    """Stands for a node that no call may read, with the reason."""

    reason: str


@dataclass(frozen=True)
class _Several:
    """Stands for a node with several outputs, until one of them is taken."""

    node: Node


_ARITHMETIC = _Unusable(
    "uses the number of rows as a value; only tensor operators that work within a row may decide the result "
    "(for a mean over neighbours use aggr='mean')"
)
_EDGE_INDEX = _Unusable("reads edge_index itself; vertices meet only along edges, in a lotan.nn.MessagePassing layer")


class Transcript:
    """Builds a Spec, node by node.

    Args:
        width: of the features.
        parameters: all parameters and buffers of the model, in its order.
        inputs: what each placeholder stands for, in order: a parameter's name, "features", or None for the graph's own tensors.
        symbols: the trace's row counts.
    """

    def __init__(
        self, width: int, parameters: tuple[ParameterSpec, ...], inputs: list[str | None], symbols: Symbols
    ) -> None:
        self._width = width
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._inputs = list(inputs)
        self._symbols = symbols
        self._values: dict[Node, Any] = {}  # Ref, RowCount, _Unusable or _Several
        self._types: dict[str, ValueType] = {
            name: ValueType("none", spec.shape, spec.dtype) for name, spec in self._parameters.items()
        }
        self._calls: list[Call] = []
        self._views: set[Node] = set()  # nodes that share memory with another
        self._overwritten: set[str] = set(self._parameters) | {"features"}  # what nothing may write to

    def spec(self, module: torch.fx.GraphModule) -> Spec:
        """The whole graph as a Spec.

        Raises:
            ModelError: naming layer, line and what to write instead.
        """
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "get_attr":
                self._values[node] = self._constant(node, getattr(module, node.target))
            elif node.op == "call_function":
                self._function(node)
            else:
                return self._finish(node)
        raise AssertionError("a traced graph ends in its output")

    # Nodes

    def _placeholder(self, node: Node) -> None:
        name = self._inputs.pop(0)
        if name is None:
            self._values[node] = _EDGE_INDEX
        elif name == "features":
            self._append(node, "lotan.vertex_input", ("features",), name="features")
        else:
            self._values[node] = Ref(name)

    def _constant(self, node: Node, value: torch.Tensor) -> Any:
        if value.dim() == 0 and value.dtype == torch.float32:
            user = next(iter(node.users), node)
            return self._call(
                user, f"{node.name}", "aten.scalar_tensor.default", (float(value),), ValueType("none", ())
            )
        return _Unusable(FOREIGN_TENSOR)

    def _function(self, node: Node) -> None:
        value = node.meta.get("val")
        if node.target is torch._C._set_grad_enabled:
            raise refusal(node, "switches gradients off inside forward; use .detach() on what is to have none")
        if isinstance(value, torch.SymFloat | torch.SymBool) or str(node.target) == "aten.item.default":
            raise refusal(node, DEPENDS_ON_VALUES)
        if node.target is operator.getitem:
            self._item(node, self._values[node.args[0]].node, node.args[1])  # type: ignore[index, arg-type]
        elif isinstance(value, torch.SymInt):
            rows = self._symbols.rows(value)
            self._values[node] = RowCount() if rows is not None and rows[0] != "none" else _ARITHMETIC
        elif isinstance(node.target, torch._ops.OpOverload):
            self._operator(node, str(node.target))
        else:
            self._values[node] = _ARITHMETIC

    def _operator(self, node: Node, op: str) -> None:
        room, _, name = op.partition(".")
        if room == "lotan":
            self._graph_operator(node, name.removesuffix(".default"))
        elif name in _MULTIPLE:
            self._values[node] = _Several(node)
        elif not isinstance(node.meta.get("val"), torch.Tensor):
            raise refusal(node, f"{short_name(op)} has several results, which is not supported; {_INSTEAD_OF_SEVERAL}")
        elif name in _IDENTITIES or self._does_nothing(node, name):
            self._values[node] = self._argument(node, node.args[0])
        else:
            self._tensor_operator(node, name)

    def _tensor_operator(self, node: Node, name: str) -> None:
        name = self._functional(node, name)
        arguments, keywords = self._canonical(node, name)
        self._append(node, *arguments, keywords=keywords)
        if any(result.alias_info is not None for result in node.target._schema.returns):  # type: ignore[union-attr]
            self._views.add(node)
            self._views.update(argument for argument in node.args if isinstance(argument, Node))

    def _graph_operator(self, node: Node, name: str) -> None:
        if name == "scatter":
            x, _, end, edges = node.args
            self._require(node, x, "vertex", None, "x in propagate(graph, x) must hold one row per vertex")
            self._append(node, "lotan.scatter", (self._argument(node, x), end, edges))
        elif name in ("aggregate", "edge_softmax"):
            rows, _, _, *others = node.args
            what = "the messages" if name == "aggregate" else "the scores of a softmax"
            self._require(node, rows, "edge", others[-1], f"{what} must hold one row per edge of this layer")
            self._append(node, f"lotan.{name}", (self._argument(node, rows), *others))  # type: ignore[arg-type]
        else:  # edge_weight(weight, edges), vertex_input(column, name)
            self._append(node, f"lotan.{name}", (node.args[1],))  # type: ignore[arg-type]

    def _item(self, node: Node, source: Node, item: Any) -> None:
        """One result of an operator that has several, as a call that has one."""
        name = str(source.target).removeprefix("aten.")
        x = self._argument(source, source.args[0])
        if name in _GREATEST:
            return self._greatest(node, source, item, _GREATEST[name], x)
        keywords = dict(source.kwargs)
        dim = keywords.get("dim", (source.args[1:2] if name == "unbind.int" else source.args[2:3]) or 0)
        dim = dim[0] if isinstance(dim, tuple) else dim
        if name == "unbind.int":
            return self._append(node, "aten.select.int", (x, dim, item))
        start = sum(part.shape[dim] for part in source.meta["val"][:item])
        end = start + node.meta["val"].shape[dim]
        return self._append(node, "aten.slice.Tensor", (x, dim, *((start, end) if isinstance(end, int) else (0, 1))))

    def _greatest(self, node: Node, source: Node, item: int, argmax: str, x: Argument) -> None:
        dim = source.kwargs.get("dim", source.args[1] if len(source.args) > 1 else None)
        keepdim = source.kwargs.get("keepdim", source.args[2] if len(source.args) > 2 else False)
        if item == 1:
            return self._append(node, argmax, (x, dim, keepdim))  # type: ignore[arg-type]
        kept = self._type(node, source.meta["val"][0] if keepdim else source.meta["val"][0].unsqueeze(dim))
        index = self._call(node, f"{node.name}_index", argmax, (x, dim, True), ValueType(kept.rows, kept.shape, "int64", kept.edges))  # type: ignore[arg-type]  # fmt: skip
        if keepdim:
            return self._append(node, "aten.gather.default", (x, dim, index))  # type: ignore[arg-type]
        values = self._call(node, f"{node.name}_kept", "aten.gather.default", (x, dim, index), kept)  # type: ignore[arg-type]
        return self._append(node, "aten.squeeze.dim", (values, dim))  # type: ignore[arg-type]

    def _finish(self, node: Node) -> Spec:
        result = node.args[0]
        output = self._argument(node, result)
        assert isinstance(output, Ref)
        kind = self._types[output.name]
        if kind.rows != "vertex" or len(kind.shape) != 1 or kind.dtype != "float32":
            raise refusal(node, f"forward returns {_describe(kind)}; expected float32 of shape [num_vertices, outputs]")
        calls = _alive(self._calls, output.name)
        read = {
            ref.name for call in calls for ref in _refs((call.arguments, tuple(value for _, value in call.keywords)))
        }
        parameters = tuple(spec for name, spec in self._parameters.items() if name in read)
        for parameter in parameters:
            if parameter.dtype != "float32":
                raise ModelError(
                    f"parameter {parameter.name!r} is {parameter.dtype}; expected float32: call model.float()"
                )
        return Spec(self._width, parameters, calls, output.name)

    # Forms

    def _functional(self, node: Node, name: str) -> str:
        """The name of the operator, or, for one that writes to its input, of the one that does not."""
        if not node.target._schema.is_mutable:  # type: ignore[union-attr]
            return name
        target = node.args[0]
        written = self._values.get(target) if isinstance(target, Node) else None  # type: ignore[arg-type]
        packet, _, kind = name.partition(".")
        plain = f"{packet.removesuffix('_')}.{kind}"
        protected = not isinstance(written, Ref) or written.name in self._overwritten
        if protected or target in self._views or f"aten.{plain}" not in ALLOWED:
            raise refusal(
                node, f"{packet} writes to a tensor that others share; use the form that returns a new tensor"
            )
        return plain

    def _canonical(
        self, node: Node, name: str
    ) -> tuple[tuple[str, tuple[Argument, ...]], tuple[tuple[str, Argument], ...]]:
        """The operator and arguments, and the keywords, in the one form that the Planner meets."""
        if name in _RESHAPES or name in _EXPANSIONS:
            kept = "aten.reshape.default" if name in _RESHAPES else "aten.expand.default"
            return (kept, (self._argument(node, node.args[0]), self._size(node))), ()
        if name == "squeeze.default":
            return ("aten.squeeze.dims", (self._argument(node, node.args[0]), _single(node.args[0]))), ()
        if name in ("to.dtype", "type_as.default", "_to_copy.default"):
            return ("aten.to.dtype", (self._argument(node, node.args[0]), str(node.meta["val"].dtype))), ()
        arguments = list(node.args)
        if name in _SIZE_POSITION:
            position = _SIZE_POSITION[name]
            arguments[position] = 0
        converted = [self._argument(node, argument) for argument in arguments]
        if name in _SIZE_POSITION:
            converted[position] = self._size(node)
        keywords = tuple(
            (key, self._argument(node, value))
            for key, value in node.kwargs.items()
            if key not in _DROPPED_KEYWORDS and value is not None
        )
        self._no_row_counts(node, name, converted if name not in _SIZE_POSITION else keywords)
        return (f"aten.{name}", tuple(converted)), keywords

    def _no_row_counts(self, node: Node, name: str, arguments: Any) -> None:
        if any(isinstance(item, RowCount) for item in _leaves(arguments)):
            raise refusal(node, f"{short_name('aten.' + name)} {_ARITHMETIC.reason}")

    def _does_nothing(self, node: Node, name: str) -> bool:
        if name == "dropout.default":
            return not node.args[2] or node.args[1] == 0
        if name == "slice.Tensor":
            return len(node.args) < 3 or (node.args[2] in (0, None) and (node.args[3:4] or (_WHOLE_SLICE,))[0] == _WHOLE_SLICE and len(node.args) < 5)  # fmt: skip
        if name == "squeeze.default":
            return not _single(node.args[0])
        if name == "to.dtype":
            return node.args[0].meta["val"].dtype == node.meta["val"].dtype  # type: ignore[union-attr]
        return False

    def _size(self, node: Node) -> tuple[Argument, ...]:
        """The full shape of a node's value, as arguments."""
        kind = self._type(node, node.meta["val"])
        return kind.shape if kind.rows == "none" else (RowCount(), *kind.shape)

    def _argument(self, node: Node, argument: Any) -> Argument:
        if isinstance(argument, Node):
            value = self._values[argument]
            if isinstance(value, _Unusable):
                raise refusal(node, value.reason)
            if isinstance(value, _Several):
                raise refusal(node, f"several results at once are not supported; {_INSTEAD_OF_SEVERAL}")
            return value  # type: ignore[no-any-return]
        if isinstance(argument, list | tuple):
            return tuple(self._argument(node, item) for item in argument)
        if isinstance(argument, torch.dtype):
            return str(argument)
        if argument is None or isinstance(argument, bool | int | float | str):
            return argument
        raise refusal(node, f"an argument of type {type(argument).__name__} is not supported")

    # Values

    def _type(self, node: Node, value: torch.Tensor) -> ValueType:
        dtype = str(value.dtype).removeprefix("torch.")
        shape = tuple(value.shape)
        rows = self._symbols.rows(shape[0]) if shape else ("none", None)
        if rows is None or not all(isinstance(size, int) for size in shape[1:]):
            raise refusal(
                node,
                f"{short_name(str(node.target))} moves the rows out of the first dimension or changes their number; "
                "keep one row per vertex (or edge), first",
            )
        kind, edges = rows
        return ValueType(kind, tuple(shape if kind == "none" else shape[1:]), dtype, edges)

    def _require(self, node: Node, argument: Any, rows: Rows, edges: EdgeSet | None, text: str) -> None:
        ref = self._argument(node, argument)
        kind = self._types[ref.name] if isinstance(ref, Ref) else None
        if kind is None or kind.rows != rows or kind.edges != edges:
            raise refusal(node, f"{text}, but got {_describe(kind) if kind else ref}")

    def _append(
        self,
        node: Node,
        op: str,
        arguments: tuple[Argument, ...],
        keywords: tuple[tuple[str, Argument], ...] = (),
        name: str = "",
    ) -> None:
        kind = self._probe(node, op, arguments, keywords)
        self._values[node] = self._call(node, name or node.name, op, arguments, kind, keywords)

    def _probe(self, node: Node, op: str, arguments: Any, keywords: Any) -> ValueType:
        """The type of a node's value; the check for mixed rows comes first, for it gives the better reason."""
        self._check(node, Call(node.name, op, arguments, ValueType("none", ()), keywords))
        return self._type(node, node.meta["val"])

    def _call(self, node: Node, name: str, op: str, arguments: Any, kind: ValueType, keywords: Any = ()) -> Ref:
        while name in self._types:
            name += "_"
        call = Call(name, op, arguments, kind, keywords, _layer(node), where(node))
        self._check(node, call)
        self._types[name] = kind
        self._calls.append(call)
        return Ref(name)

    def _check(self, node: Node, call: Call) -> None:
        if call.op.startswith("lotan."):
            return
        reason = why_not_row_wise(call, self._types)
        if reason is None and call.op == "aten.dropout.default":
            drawn = call.arguments[0]
            if isinstance(drawn, Ref) and self._types[drawn.name].rows == "none":
                reason = "dropout on a parameter is not supported: random numbers belong to rows; apply it to vertex or edge rows"
        if reason is not None:
            raise refusal(node, reason)


_INSTEAD_OF_SEVERAL = "use operators with one result, such as amax for max"


def refusal(node: Node, reason: str) -> ModelError:
    """The error for a node: layer, line, reason."""
    return located(_layer(node), where(node), reason)


def located(layer: str, line: str, reason: str) -> ModelError:
    """The error for a place in the model."""
    place = ", ".join(part for part in (f"layer {layer!r}" if layer else "the model", line) if part)
    return ModelError(f"{place}: {reason}")


def where(node: Node) -> str:
    """The user's line that made a node, as "file.py:12"."""
    return _noted(node, "where")


def user_line(frames: list[tuple[str, int]]) -> str:
    """Of frames, outermost first, the innermost that is neither torch's nor this package's, else of this package's layers."""
    theirs = [frame for frame in frames if not frame[0].startswith((_TORCH, _LOTAN))]
    layers = [frame for frame in frames if frame[0].startswith(_LAYERS) and not frame[0].endswith(_SCAFFOLDING)]
    for path, line in reversed(theirs or layers):
        return f"{os.path.basename(path)}:{line}"
    return ""


def _layer(node: Node) -> str:
    return _noted(node, "layer")


def _noted(node: Node, what: str) -> str:
    """What `lotan.tracing` noted beside a node when it was made."""
    return (node.meta.get("custom") or {}).get(what, "")  # type: ignore[no-any-return]


def _single(node: Any) -> tuple[int, ...]:
    """The dimensions of a node's value whose size is 1 for any number of rows."""
    return tuple(dim for dim, size in enumerate(node.meta["val"].shape) if isinstance(size, int) and size == 1)


def _describe(kind: ValueType) -> str:
    rows = {"vertex": ["num_vertices"], "edge": ["num_edges"], "none": []}[kind.rows]
    return f"{kind.dtype} of shape [{', '.join([*rows, *map(str, kind.shape)])}]"


def _leaves(argument: Any) -> list[Any]:
    if isinstance(argument, tuple | list):
        return [leaf for item in argument for leaf in _leaves(item)]
    return [argument]


def _refs(argument: Any) -> list[Ref]:
    return [leaf for leaf in _leaves(argument) if isinstance(leaf, Ref)]


def _alive(calls: list[Call], output: str) -> tuple[Call, ...]:
    """The calls on which `output` depends."""
    needed = {output}
    kept: list[Call] = []
    for call in reversed(calls):
        if call.output in needed:
            kept.append(call)
            needed.update(ref.name for ref in _refs((call.arguments, tuple(value for _, value in call.keywords))))
    return tuple(reversed(kept))
