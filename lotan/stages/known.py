"""The translation of a stage's calls to kernels, which is possible if all of them are known.

Calls that only change the shape of a row vanish, because rows are flat and a value shares a slot with its views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lotan.stages.kernels import (
    Activation,
    Add,
    Bias,
    Cat,
    Dropout,
    Gain,
    HeadDots,
    HeadMean,
    Kernel,
    Linear,
    Normalise,
    ReluDropout,
    Scale,
)
from lotan.stages.randomness import threshold_of
from planner.kernels import IN_ORDER, Normalisation, drops_some, head_dots, is_head_mean, never_made
from planner.physical import Stage
from planner.spec import Argument, Call, Ref, ValueType

_SLOPE = 0.01  # default slope of leaky_relu
_ELU = (1.0, 1.0, 1.0)  # alpha, scale, input_scale


class Unknown(Exception):  # noqa: N818 -- says that a stage goes the general way; no error
    """No kernel does a call of the stage."""


@dataclass(frozen=True)
class Shift:
    """The sum p + c of a parameter and a number. It is computed once in a run, and its gradient is the parameter's."""

    out: int
    parameter: int
    number: float


class Translation:
    """The slots and kernels of a stage.

    Args:
        stage: The stage to translate.

    Raises:
        Unknown: If a call, a shape or a dtype is not known.
    """

    def __init__(self, stage: Stage) -> None:
        self.slot: dict[str, int] = {}  # by name of the value
        self.widths: list[int] = []  # by slot
        self.kernels: list[Kernel] = []
        self.shifts: list[Shift] = []
        self._types: dict[str, ValueType] = {}
        self._own_shape: dict[int, tuple[int, ...]] = {}  # shapes of parameters, by slot
        self._gradient_to: dict[int, int] = {}  # by a derived parameter's slot, the slot of the parameter itself
        self._static = {i.value for i in stage.inputs if not i.needs_gradient}
        self._reads = Counter(name for call in stage.calls for name in call.reads)
        self._reads.update(output.value for output in stage.outputs)
        self._relu: dict[str, str] = {}  # by the output of a relu that only a dropout reads, the relu's input
        self._dots = head_dots(stage)  # by the output of a sum, the product that only this sum reads
        self._never_made = never_made(stage)
        self._normalisations = stage.normalisations  # by their results
        self._alike = stage.alike
        if stage.edge_sets or any(i.role == "source" for i in stage.inputs):
            raise Unknown("edges")
        if any(output.value in self._alike for output in stage.outputs):
            raise Unknown("a total is put out")
        for i in stage.inputs:
            self._make(i.value, ValueType("vertex", i.shape, i.dtype))
        for parameter in stage.parameters:
            slot = self._make(parameter.name, ValueType("none", parameter.shape, parameter.dtype))
            self._own_shape[slot] = parameter.shape
        following = {name: call for call in stage.calls for name in call.reads}
        for call in stage.calls:
            self._translate(call, following.get(call.output))

    def _make(self, name: str, kind: ValueType) -> int:
        if kind.dtype != "float32" or kind.rows == "edge":
            raise Unknown(f"{name}: {kind}")
        self.slot[name] = len(self.widths)
        self._types[name] = kind
        self.widths.append(kind.width)
        return self.slot[name]

    def _translate(self, call: Call, reader: Call | None) -> None:
        if call.op in IN_ORDER:
            self._view(call)
            return
        if call.output in self._never_made:
            return
        relu = call.op == "aten.relu.default" and self._reads[call.output] == 1
        if relu and reader is not None and reader.op == "lotan.dropout" and drops_some(reader):
            self._relu[call.output] = self._row(call.arguments[0])
            self._types[call.output] = call.type
            return
        if call.output not in self._normalisations and not self._alike.isdisjoint((call.output, *call.reads)):
            raise Unknown(f"{call.op} reads a total")
        out = len(self.widths)
        if not self._shift(out, call):
            self.kernels.append(self._kernel(call, out))
        self._make(call.output, call.type)

    def _shift(self, out: int, call: Call) -> bool:
        match call.op, call.arguments:
            case "aten.add.Tensor", (Ref(name), int() | float() as number) if self._types[name].rows == "none":
                parameter = self._slot(call.arguments[0])
                self._gradient_to[out] = self._gradient_to.get(parameter, parameter)
                self.shifts.append(Shift(out, parameter, number))
                return not call.keywords
        return False

    def _view(self, call: Call) -> None:
        """Translate a view: the same numbers in the same order. Parameters may be viewed in any shape."""
        name = self._name(call.arguments[0])
        seen = self._types[name]
        if (seen.rows, seen.width) != (call.type.rows, call.type.width) or name in self._relu:
            raise Unknown(call.op)
        self.slot[call.output] = self.slot[name]
        self._types[call.output] = call.type
        if name in self._static:
            self._static.add(call.output)

    def _kernel(self, call: Call, out: int) -> Kernel:
        normalisation = self._normalisations.get(call.output)
        if normalisation is not None:
            return self._normalise(out, normalisation)
        match call.op, call.arguments:
            case "aten.linear.default", (Ref() as x, Ref() as weight, *rest):
                return self._linear(out, x, weight, rest)
            case "aten.add.Tensor", (first, second) if not call.keywords:
                return self._sum(out, call, first, second)
            case "aten.mul.Tensor", (first, second):
                return self._product(out, call, first, second)
            case "aten.div.Tensor", (Ref() as x, by):
                return self._scale(out, call, x, by, divides=True)
            case _, (Ref(), *_) if call.output in self._dots:
                dots = self._dots[call.output]
                return HeadDots(out, self._slot(Ref(dots.x)), self.slot[dots.vectors], dots.heads)
            case _, (Ref() as x, *_) if is_head_mean(call):
                return HeadMean(out, self._slot(Ref(self._row(x))), *self._shape(x))
            case "aten.cat.default", ((*parts,), 1 | -1) if len(call.type.shape) == 1:
                return self._cat(out, parts)
            case "lotan.dropout", (Ref(), float() | int() as p, int() | str() as key) if drops_some(call):
                return self._dropout(out, call, float(p), key)
        return self._activation(out, call)

    def _normalise(self, out: int, found: Normalisation) -> Normalise:
        shift, weight, bias = (
            None if name is None else self.slot[name] for name in (found.shift, found.weight, found.bias)
        )
        tracked = tuple(self.slot[name] for name in found.tracked)
        x, given = self._slot(Ref(self._row(Ref(found.x)))), tuple(self.slot[name] for name in found.given)
        moments = None if found.moments is None else self.slot[found.moments]
        return Normalise(out, x, moments, given, found.epsilon, shift, weight, bias, tracked)

    def _linear(self, out: int, x: Ref, weight: Ref, rest: Sequence[Argument]) -> Kernel:
        bias = rest[0] if rest else None
        if len(self._types[self._row(x)].shape) != 1 or not (bias is None or isinstance(bias, Ref)):
            raise Unknown("linear")
        matrix = self._parameter(weight, 2)
        return Linear(out, self._slot(x), matrix, None if bias is None else self._parameter(bias, 1))

    def _sum(self, out: int, call: Call, first: Argument, second: Argument) -> Kernel:
        """Translate the sum of rows and a bias, or of rows and rows."""
        match self._rows(first), self._rows(second):
            case "vertex", "vertex" if self._shape(first) == self._shape(second) == call.type.shape:
                return Add(out, self._slot(first), self._slot(second))
            case "vertex", "none" if self._shape(first) == call.type.shape:
                return Bias(out, self._slot(first), self._bias(second, call.type))
        raise Unknown(call.op)

    def _bias(self, argument: Argument, kind: ValueType) -> int:
        shape = self._shape(argument)
        while shape[:1] == (1,) and len(shape) > len(kind.shape):
            shape = shape[1:]
        if shape != kind.shape or self._slot(argument) in self._gradient_to:
            raise Unknown("bias")
        return self._slot(argument)

    def _product(self, out: int, call: Call, first: Argument, second: Argument) -> Kernel:
        if self._rows(first) != "vertex":
            first, second = second, first
        if self._rows(first) == "vertex" and self._rows(second) == "none" and self._width(second) == 1:
            if self._shape(first) != call.type.shape:
                raise Unknown(call.op)
            gain = self._slot(second)
            return Gain(out, self._slot(first), gain, self._gradient_to.get(gain, gain))
        if self._is_column(first) and not self._is_column(second):
            first, second = second, first
        return self._scale(out, call, first, second, divides=False)

    def _scale(self, out: int, call: Call, x: Argument, by: Argument, divides: bool) -> Kernel:
        if self._rows(x) != "vertex" or self._shape(x) != call.type.shape:
            raise Unknown(call.op)
        if isinstance(by, int | float):
            return Scale(out, self._slot(x), None, by, divides)
        if not self._is_column(by) or len(self._shape(by)) != len(call.type.shape):
            raise Unknown(call.op)
        return Scale(out, self._slot(x), self._slot(by), 1.0, divides)

    def _cat(self, out: int, parts: Sequence[Argument]) -> Kernel:
        if any(self._rows(part) != "vertex" for part in parts):
            raise Unknown("cat")
        return Cat(out, tuple(map(self._slot, parts)), tuple(map(self._width, parts)))

    def _dropout(self, out: int, call: Call, p: float, key: int | str) -> Kernel:
        name = self._name(call.arguments[0])
        if name in self._relu:
            return ReluDropout(out, self.slot[self._relu[name]], key, threshold_of(p))
        return Dropout(out, self._slot(Ref(self._row(call.arguments[0]))), key, threshold_of(p))

    def _activation(self, out: int, call: Call) -> Kernel:
        numbers = tuple(n for n in call.arguments[1:] if isinstance(n, int | float))
        if call.keywords or len(numbers) != len(call.arguments) - 1:
            raise Unknown(call.op)
        kind = call.op.removeprefix("aten.").removesuffix(".default")
        match kind, numbers:
            case "relu" | "sigmoid" | "tanh", ():
                pass
            case "leaky_relu", _ if not numbers or numbers[0] > 0:
                numbers = numbers or (_SLOPE,)
            case "elu", _ if all(number > 0 for number in numbers):  # otherwise an output does not tell its branch
                numbers += _ELU[len(numbers) :]
            case _:
                raise Unknown(call.op)
        return Activation(out, self._slot(Ref(self._row(call.arguments[0]))), kind, numbers)

    def _name(self, argument: Argument) -> str:
        if not isinstance(argument, Ref):
            raise Unknown(f"{argument!r}")
        return argument.name

    def _slot(self, argument: Argument) -> int:
        name = self._name(argument)
        if name in self._relu:
            raise Unknown(f"{name} was left out")
        return self.slot[name]

    def _row(self, argument: Argument) -> str:
        name = self._name(argument)
        if self._types[name].rows != "vertex":
            raise Unknown(f"{name} is not rows")
        return name

    def _parameter(self, argument: Ref, rank: int) -> int:
        kind = self._types[argument.name]
        slot = self._slot(argument)
        seen_otherwise = slot in self._gradient_to or kind.shape != self._own_shape.get(slot)
        if kind.rows != "none" or len(kind.shape) != rank or seen_otherwise:
            raise Unknown(f"{argument.name} is no parameter of rank {rank}")
        return slot

    def _rows(self, argument: Argument) -> str:
        return self._types[argument.name].rows if isinstance(argument, Ref) else "number"

    def _shape(self, argument: Argument) -> tuple[int, ...]:
        return self._types[self._name(argument)].shape

    def _width(self, argument: Argument) -> int:
        return self._types[self._name(argument)].width

    def _is_column(self, argument: Argument) -> bool:
        """Return True if a value is one static number for each row."""
        return isinstance(argument, Ref) and argument.name in self._static and self._width(argument) == 1
