"""Properties of the operators in stages on vertices.

They tell which operators compute nothing, which are one kernel together, and which stages autograd has to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from planner.patterns import RESHAPES
from planner.spec import PRODUCTS, RECURRENT, Argument, Call, Ref, operator_name

if TYPE_CHECKING:
    from planner.physical import Stage  # a stage knows its kernels, so it imports this module

ACTIVATIONS = ("relu", "elu", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "softplus")
IN_ORDER = RESHAPES | {"aten.flatten.using_ints"}
"""Operators that do not move the numbers of a row. Kernels read the numbers of their input instead."""
VIEWS = (*map(operator_name, IN_ORDER), "squeeze", "expand")  # operators that compute nothing
SUM = "aten.sum.dim_IntList"
LEAST_DROPOUT = 2**-17  # dropout draws 16-bit numbers, so it cannot tell smaller probabilities from 0


class HeadDots(NamedTuple):
    """A product with a parameter and its sum over channels, (x * vectors).sum(-1), which are one kernel."""

    x: str  # rows [heads, channels]
    vectors: str  # the parameter, [heads, channels], perhaps with leading dimensions of 1
    product: str  # the value that the kernel never stores
    heads: int
    channels: int


def head_dots(stage: Stage) -> Mapping[str, HeadDots]:
    """Return the HeadDots of a stage, by the value that holds the sum."""
    sums = [call for call in stage.on_vertices if call.op == SUM]
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
    """Return the HeadDots of a sum, or None if it is not the sum over channels of rows times a vector for each head."""
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


class Normalisation(NamedTuple):
    """Rows less their mean, divided by the root of their variance, times a weight, plus a bias. They are one kernel.

    The mean and the variance are those of all vertices, read from one total of moments, or are two parameters.
    """

    x: str  # rows [channels]
    moments: str | None  # the stage's input with the total, [channels, 2]
    given: tuple[str, ...]  # without a total: the parameters that are mean and variance, [channels] each
    epsilon: float  # what is added to the variance
    shift: str | None  # a parameter that is added to the mean, [channels]
    weight: str | None  # a parameter, [channels]
    bias: str | None  # a parameter, [channels]
    tracked: tuple[str, ...]  # the buffers for which mean and variance are handed in, or none
    inside: Set[str]  # the values that the kernel never stores


def normalisations(stage: Stage) -> Mapping[str, Normalisation]:
    """Return the normalisations of a stage, by the value that holds the result."""
    if not any(call.op == "aten.rsqrt.default" for call in stage.calls):
        return {}
    search = _Normalising(stage, {i.value for i in stage.inputs if i.role == "total" and i.shape[1:] == (2,)})
    found = [search.of(call) for call in stage.on_vertices if call.op == "aten.mul.Tensor" and len(call.reads) == 2]
    return dict(one for one in found if one is not None)


class _Moment(NamedTuple):
    """A mean or a variance as it reaches a normalisation."""

    moments: str | None  # the input that it is selected from; None if it is a parameter
    place: object  # 0 for the mean and 1 for the variance, or the name of the parameter
    shift: str | None = None  # a parameter that is added to it
    buffer: str | None = None  # the buffer for which it is handed in
    inside: tuple[str, ...] = ()  # the values on the way


class _Normalising:
    """The search for normalisations in a stage."""

    def __init__(self, stage: Stage, totals: Set[str]) -> None:
        self._stage, self._totals = stage, totals
        self._made = {call.output: call for call in stage.calls}
        self._readers: dict[str, list[Call]] = {}
        for call in stage.calls:
            for name in call.reads:
                self._readers.setdefault(name, []).append(call)
        self._outputs = {output.value for output in stage.outputs}
        self._vectors = {one.name: one.shape for one in stage.parameters if len(one.shape) == 1}
        self._fixed = {one.name for one in stage.parameters if len(one.shape) == 1 and not one.trainable}

    def of(self, product: Call) -> tuple[str, Normalisation] | None:
        """Return the normalisation whose (x - mean) * rsqrt(variance + epsilon) is this product, by its result."""
        first, second = (self._made.get(name) for name in product.reads)
        apart, root = (first, second) if _is(first, "aten.sub.Tensor", 2) else (second, first)
        if (
            apart is None
            or root is None
            or not _is(apart, "aten.sub.Tensor", 2)
            or not _is(root, "aten.rsqrt.default", 1)
        ):
            return None
        added = self._made.get(root.reads[0])
        if added is None or not _is(added, "aten.add.Tensor", 1) or product.keywords:
            return None
        epsilon = added.arguments[1]
        mean, variance = (self._moment(name) for name in (apart.reads[1], added.reads[0]))
        if mean is None or variance is None or not isinstance(epsilon, int | float):
            return None
        given = () if mean.moments is not None else (str(mean.place), str(variance.place))
        fits = variance.shift is None and variance.moments == mean.moments
        fits = fits and (bool(given) or (mean.place, variance.place) == (0, 1))
        alike = self._stage.row_shapes.get(apart.reads[0]) == apart.type.shape == product.type.shape
        tracked = tuple(one.buffer for one in (mean, variance) if one.buffer is not None)
        if not (fits and alike and apart.reads[0] not in self._stage.alike and len(tracked) in (0, 2)):
            return None
        inside = {*mean.inside, *variance.inside, apart.output, added.output, root.output}
        last, weight = self._then(product, "aten.mul.Tensor")
        inside |= {product.output} if last is not product else set()
        end, bias = self._then(last, "aten.add.Tensor")
        inside |= {last.output} if end is not last else set()
        if not self._only_inside(inside, {*inside, end.output}):
            return None
        read = apart.reads[0], mean.moments, given, float(epsilon), mean.shift, weight, bias, tracked
        return end.output, Normalisation(*read, frozenset(inside))

    def _moment(self, name: str) -> _Moment | None:
        """Return the mean or the variance that a value is, or None."""
        inside, buffer, shift = [name], None, None
        call = self._made.get(name)
        if name in self._fixed:
            return _Moment(None, name)
        if call is not None and call.op == "lotan.track" and len(call.reads) == 2:
            name, buffer = call.reads
            inside.append(name)
            call = self._made.get(name)
        if call is not None and _is(call, "aten.add.Tensor", 2) and self._is_vector(call.reads[1], call):
            name, shift = call.reads
            inside.append(name)
            call = self._made.get(name)
        if call is None or call.op != "aten.select.int" or call.reads[0] not in self._totals:
            return None
        if call.arguments[1] not in (2, -1):
            return None
        return _Moment(call.reads[0], call.arguments[2], shift, buffer, tuple(inside))

    def _then(self, call: Call, op: str) -> tuple[Call, str | None]:
        """Return the one reader of a call if it is this operator with a parameter, and the parameter; else the call itself."""
        readers = self._readers.get(call.output, [])
        if len(readers) != 1 or call.output in self._outputs or not _is(readers[0], op, 2):
            return call, None
        (reader,) = readers
        other = reader.reads[1 - reader.reads.index(call.output)]
        return (reader, other) if self._is_vector(other, call) else (call, None)

    def _is_vector(self, name: str, like: Call) -> bool:
        """Return True if a value is a parameter with a number for each number of a row."""
        return self._vectors.get(name) == like.type.shape

    def _only_inside(self, inside: Set[str], readers: Set[str]) -> bool:
        """Return True if the values are read by calls among the readers alone."""
        read = (call.output for name in inside for call in self._readers.get(name, ()))
        return self._outputs.isdisjoint(inside) and set(read) <= readers


def _is(call: Call | None, op: str, reads: int) -> bool:
    """Return True if a call is of an operator without keywords, and reads so many values."""
    return call is not None and call.op == op and len(call.reads) == reads and not call.keywords


def never_made(stage: Stage) -> Set[str]:
    """Return the values that exist only inside a kernel."""
    found = {dots.product for dots in stage.head_dots.values()}
    return found.union(*(one.inside for one in stage.normalisations.values()))


def is_product(call: Call) -> bool:
    """Return True if a call multiplies by a matrix, or in each step of a sequence by two."""
    return operator_name(call.op) in PRODUCTS or call.op == RECURRENT


def contracted(stage: Stage, call: Call) -> int:
    """Return the numbers that a product multiplies and sums for each number of its output.

    This is the last dimension of its left factor. A recurrent layer has several gates for each number of its state.
    """
    if call.op == RECURRENT:
        read = [stage.parameter_shapes.get(name, ()) for name in call.reads]
        return sum(prod(one) for one in read if len(one) == 2) // call.type.shape[-1]
    left = call.arguments[operator_name(call.op) == "addmm"]  # addmm adds its first argument
    shape = stage.shapes.get(left.name) if isinstance(left, Ref) else None
    return shape[-1] if shape else 1


def is_head_mean(call: Call) -> bool:
    """Return True if a call is the mean over heads of rows [heads, channels]."""
    over_heads = call.op == "aten.mean.dim" and call.arguments[1:] == ((1,),) and not call.keywords
    return over_heads and len(call.type.shape) == 1


def numbers_taken(stage: Stage, call: Call) -> int:
    """Return the numbers that an operator other than a matrix product processes for each row.

    This is the width of its output, or of its input if it reduces over channels or heads.
    """
    dots = stage.head_dots.get(call.output) if call.op == SUM else None
    if dots is not None:
        return dots.heads * dots.channels
    if is_head_mean(call):
        return prod(stage.shapes.get(call.reads[0], call.type.shape))
    return call.type.width


def multiplicands(stage: Stage) -> Set[str]:
    """Return the values that are multiplied or divided number by number, if the gradient of the other factor reads them.

    Parameters may be among them. Inputs without a gradient, and views of those, are left out.
    """
    static = {i.value for i in stage.inputs if not i.needs_gradient}
    trained = {i.value for i in stage.inputs if i.needs_gradient} | {p.name for p in stage.parameters if p.trainable}
    found: set[str] = set()
    for call in stage.calls:
        if operator_name(call.op) in VIEWS and static.issuperset(call.reads):
            static.add(call.output)
        if trained.isdisjoint(call.reads):
            continue
        trained.add(call.output)
        if operator_name(call.op) in ("mul", "div"):
            refs = [argument.name for argument in call.arguments[:2] if isinstance(argument, Ref)]
            found.update(
                one for one, other in zip(refs, refs[::-1], strict=True) if len(refs) == 2 and other in trained
            )
    return found - static


def computing(stage: Stage) -> list[Call]:
    """Return a stage's calls that compute something for each vertex, and do not lie inside another call's kernel."""
    left_out = never_made(stage) | stage.alike
    return [call for call in stage.on_vertices if operator_name(call.op) not in VIEWS and call.output not in left_out]


def run_by_autograd(stage: Stage) -> bool:
    """Return True if autograd has to run a stage, because some call has no hand-written kernel and adjoint.

    The saved values of such a stage cannot go to a file. There are kernels (`lotan.stages.kernels`) for:
    - linear maps of flat rows, sums of rows of one shape, and sums with a bias;
    - concatenations, dropout and some activations;
    - products and quotients with one number for each row, or for all rows;
    - the dots of heads, and the mean over heads;
    - normalisations by the mean and variance of all vertices.
    """
    if stage.edge_sets or not _all_float32(stage):
        return True
    left_out, facts = never_made(stage), _Facts(stage)
    if not stage.alike.isdisjoint(_read_by_rows(stage, left_out)):
        return True
    return not all(call.output in left_out or _is_kernel(call, facts) for call in stage.calls)


def _read_by_rows(stage: Stage, left_out: Set[str]) -> Set[str]:
    """Return the values that something other than a normalisation reads, or that calls outside kernels make."""
    outputs = {output.value for output in stage.outputs}
    others = [call for call in stage.calls if call.output not in left_out and call.output not in stage.normalisations]
    return outputs.union({call.output for call in others}, *(call.reads for call in others))


def _all_float32(stage: Stage) -> bool:
    dtypes = {call.type.dtype for call in stage.calls}
    return dtypes | {i.dtype for i in stage.inputs} | {p.dtype for p in stage.parameters} <= {"float32"}


def _is_kernel(call: Call, facts: _Facts) -> bool:
    if call.output in facts.stage.normalisations:
        return True
    if call.keywords:
        return False
    if call.op in IN_ORDER:
        return True
    if call.type.rows == "none":
        return call.op == "aten.add.Tensor" and [isinstance(one, Ref) for one in call.arguments] == [True, False]
    match call.op:
        case "aten.linear.default":
            return _is_flat_product(call, facts)
        case "aten.add.Tensor":
            return _is_sum(call, facts)
        case "aten.mul.Tensor" | "aten.div.Tensor":
            return _is_scale(call, facts, trained=call.op == "aten.mul.Tensor")
        case "aten.cat.default":
            return len(call.type.shape) == 1 and facts.stage.parameter_shapes.keys().isdisjoint(call.reads)
        case "lotan.dropout":
            return drops_some(call)
        case "aten.relu.default" | "aten.tanh.default" | "aten.sigmoid.default":
            return len(call.arguments) == 1
        case "aten.elu.default" | "aten.leaky_relu.default":
            numbers = call.arguments[1:]
            return all(isinstance(number, int | float) and number > 0 for number in numbers)
    return (call.op == SUM and call.output in facts.stage.head_dots) or is_head_mean(call)


def drops_some(call: Call) -> bool:
    """Return True if a dropout drops some numbers and keeps some."""
    p = call.arguments[1]
    return isinstance(p, int | float) and LEAST_DROPOUT < p < 1 - LEAST_DROPOUT


def _is_flat_product(call: Call, facts: _Facts) -> bool:
    """Return True if a call maps flat rows by parameters that keep their own shapes."""
    names = [argument.name for argument in call.arguments[1:] if isinstance(argument, Ref)]
    own, given = (
        [shapes.get(name, ()) for name in names] for shapes in (facts.own_shapes, facts.stage.parameter_shapes)
    )
    return len(call.type.shape) == 1 and own == given and [*map(len, own)] in ([2], [2, 1])


def _is_sum(call: Call, facts: _Facts) -> bool:
    """Return True if a call adds rows of one shape, or adds a parameter of that shape to all rows."""
    first, second = call.arguments
    rows = call.type.shape
    return _shape(first, facts) == rows and rows in (_shape(second, facts), _bias_shape(second, rows, facts))


def _is_scale(call: Call, facts: _Facts, trained: bool) -> bool:
    """Return True if a call scales rows by a number for each row, or for all rows, for which there is a kernel.

    The number has no gradient, or with `trained` it may be a parameter.
    """
    orders = [call.arguments, call.arguments[::-1]] if trained else [call.arguments]
    return any(_shape(x, facts) == call.type.shape and _scales(by, call, facts, trained) for x, by in orders)


def _scales(by: Argument, call: Call, facts: _Facts, trained: bool) -> bool:
    if not isinstance(by, Ref):
        return isinstance(by, int | float)
    rank = facts.static_numbers.get(by.name)
    return rank == len(call.type.shape) or (trained and prod(facts.stage.parameter_shapes.get(by.name, (0,))) == 1)


def _shape(argument: Argument, facts: _Facts) -> tuple[int, ...] | None:
    """Return the shape of an argument's rows, or None if it has no rows."""
    return facts.stage.row_shapes.get(argument.name) if isinstance(argument, Ref) else None


def _bias_shape(argument: Argument, rows: tuple[int, ...], facts: _Facts) -> tuple[int, ...] | None:
    """Return the shape of a parameter that is added to rows, without leading dimensions of 1, or None."""
    if not isinstance(argument, Ref) or argument.name not in facts.own_shapes:
        return None
    shape = facts.stage.parameter_shapes[argument.name]
    while shape[:1] == (1,) and len(shape) > len(rows):
        shape = shape[1:]
    return shape


@dataclass(frozen=True)
class _Facts:
    """A stage, with facts about it that many of its calls need."""

    stage: Stage

    @cached_property
    def own_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The original shapes of parameters, by their names and by the names of views of them."""
        found = {parameter.name: parameter.shape for parameter in self.stage.parameters}
        for call in self.stage.calls:
            if call.op in IN_ORDER and call.reads[0] in found:
                found[call.output] = found[call.reads[0]]
        return found

    @cached_property
    def static_numbers(self) -> Mapping[str, int]:
        """The ranks of inputs with one number for each row and no gradient, and of views of these, by name."""
        found = {i.value: len(i.shape) for i in self.stage.inputs if i.width == 1 and not i.needs_gradient}
        for call in self.stage.on_vertices:
            if call.op in IN_ORDER and not found.keys().isdisjoint(call.reads):
                found[call.output] = len(call.type.shape)
        return found
