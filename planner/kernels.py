"""The operators of stages on vertices: which compute nothing, which are one kernel, and which stages autograd runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from math import prod
from typing import NamedTuple

from planner.physical import Stage
from planner.records import remembered
from planner.spec import Call, Ref, operator_name

PRODUCTS = ("linear", "mm", "addmm", "matmul")
ACTIVATIONS = ("relu", "elu", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "softplus")
VIEWS = ("unsqueeze", "view", "reshape", "flatten", "squeeze", "expand")  # which compute nothing
KERNELS = (*VIEWS[:4], "linear", "add", "cat", "dropout", "relu", "elu", "leaky_relu", "tanh", "sigmoid")
"""Their forward and adjoint are written out (`lotan.stages.kernels`), as are those of products and quotients with one number for
each row or for all, and of the dots and the mean of heads; a stage with any other operator is run by autograd."""


class HeadDots(NamedTuple):
    """A product with a parameter and its sum over channels, (x * vectors).sum(-1), which are one kernel."""

    x: str  # rows [heads, channels]
    vectors: str  # the parameter, [heads, channels], perhaps with ones before them
    product: str  # the value that is never made
    heads: int
    channels: int


@remembered
def head_dots(stage: Stage) -> Mapping[str, HeadDots]:
    """Those of a stage, by the value of the sum."""
    sums = [call for call in stage.on_vertices if call.op == "aten.sum.dim_IntList"]
    if not sums:
        return {}
    shapes = {i.value: i.shape for i in stage.inputs} | {call.output: call.type.shape for call in stage.on_vertices}
    vectors = {parameter.name: parameter.shape for parameter in stage.parameters}
    read = Counter(name for call in stage.calls for name in call.reads)
    read.update(output.value for output in stage.outputs)
    products = {c.output: c for c in stage.on_vertices if c.op == "aten.mul.Tensor" and read[c.output] == 1}
    found = {call.output: _dots(call, products.get(call.reads[0]), shapes, vectors) for call in sums}
    return {name: dots for name, dots in found.items() if dots is not None}


Shapes = Mapping[str, tuple[int, ...]]


def _dots(total: Call, product: Call | None, shapes: Shapes, vectors: Shapes) -> HeadDots | None:
    """What a sum of a product is, if it is over the channels of rows that each head's vector is multiplied with."""
    if product is None or len(product.reads) != 2 or len(product.type.shape) != 2 or total.keywords:
        return None
    heads, channels = product.type.shape
    x, by = sorted(product.reads, key=vectors.__contains__)
    shape = vectors.get(by, ())
    if total.arguments[1:] not in (((-1,),), ((2,),)) or shapes.get(x) != (heads, channels):
        return None
    if shape[-2:] != (heads, channels) or any(size != 1 for size in shape[:-2]):
        return None
    return HeadDots(x, by, product.output, heads, channels)


def never_made(stage: Stage) -> Set[str]:
    """The values inside of a kernel."""
    return {dots.product for dots in head_dots(stage).values()}


def is_product(call: Call) -> bool:
    """Whether it multiplies with a matrix."""
    return operator_name(call.op) in PRODUCTS


def is_head_mean(call: Call) -> bool:
    """Whether it is the mean over heads of rows [heads, channels]."""
    over_heads = call.op == "aten.mean.dim" and call.arguments[1:] == ((1,),) and not call.keywords
    return over_heads and len(call.type.shape) == 1


def numbers_taken(stage: Stage, call: Call) -> int:
    """Of a row, by an operator that is no product with a matrix: as many as it makes, but of all heads where it reduces those."""
    if dots := head_dots(stage).get(call.output):
        return dots.heads * dots.channels
    if is_head_mean(call):
        widths = {i.value: i.width for i in stage.inputs} | {one.output: one.type.width for one in stage.calls}
        return widths.get(call.reads[0], call.type.width)
    return call.type.width


@remembered
def computing(stage: Stage) -> list[Call]:
    """A stage's calls on rows of vertices, but for those that compute nothing or are part of another's kernel."""
    left_out = never_made(stage)
    return [call for call in stage.on_vertices if operator_name(call.op) not in VIEWS and call.output not in left_out]


@remembered
def run_by_autograd(stage: Stage) -> bool:
    """Whether forward and adjoint of some call are not written out; what such a stage keeps lies in no file."""
    left_out = never_made(stage)
    return bool(stage.edge_sets) or not all(
        call.output in left_out or _is_kernel(call, stage) for call in stage.on_vertices
    )


def _is_kernel(call: Call, stage: Stage) -> bool:
    name = operator_name(call.op)
    if name in ("mul", "div"):
        return any(_is_one_number(argument, stage, trained=name == "mul") for argument in call.arguments)
    if name == "add" and not all(isinstance(argument, Ref) for argument in call.arguments):
        return False
    return (name in KERNELS and not call.keywords) or call.output in head_dots(stage) or is_head_mean(call)


def _is_one_number(argument: object, stage: Stage, trained: bool) -> bool:
    """Whether it is a number, for each row or for all, whose gradient nobody asks for, or if `trained` a parameter's for all."""
    if not isinstance(argument, Ref):
        return True
    return argument.name in _static_numbers(stage) or (trained and argument.name in _trained_numbers(stage))


@remembered
def _static_numbers(stage: Stage) -> Set[str]:
    """Inputs that have one number for each row and no gradient, and views of these."""
    found = {i.value for i in stage.inputs if i.width == 1 and not i.needs_gradient}
    found.update(c.output for c in stage.on_vertices if operator_name(c.op) in VIEWS and not found.isdisjoint(c.reads))
    return found


@remembered
def _trained_numbers(stage: Stage) -> Set[str]:
    """Parameters of one number, and what is computed of them alone, such as 1 + eps."""
    widths = {p.name: prod(p.shape) for p in stage.parameters}
    widths |= {call.output: call.type.width for call in stage.calls if call.type.rows == "none"}
    return {name for name, width in widths.items() if width == 1}
