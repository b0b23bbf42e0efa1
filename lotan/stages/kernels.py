"""The known calls of a stage as kernels. Forward calls torch's out-variants, and the adjoints are written by hand.

A kernel reads and writes *slots* of a run (`Running`). Their values are float32 [rows, width], whatever shape a row has in
the stage. Forward writes into a buffer that the run provides, which may be the buffer of its input. Backward takes the
gradient of its output and gives gradients to its inputs, in place if the run may overwrite the gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lotan.stages.randomness import Mask
from lotan.stages.sparse_rows import SparseRows

_aten = torch.ops.aten


class Running(Protocol):
    """A run over one chunk, as a kernel sees it."""

    values: list[Tensor]  # by slot; rows' values [rows, width], parameters as they are
    sparse: Mapping[int, SparseRows]  # by slot, those that are not among the values; linear maps alone read them

    def target(self, slot: int) -> Tensor:
        """Where the value of a slot is to be written."""

    def taken(self, slot: int) -> tuple[Tensor, bool]:
        """The gradient of a slot, and whether it may be overwritten. Asked for once."""

    def give(self, slot: int, gradient: Tensor, own: bool) -> None:
        """Add to the gradient of a slot; `own`: nobody else reads this tensor."""

    def scratch(self, width: int) -> Tensor:
        """Memory for a gradient, [rows, width]."""

    def wants(self, slot: int) -> bool:
        """Whether the gradient of a slot is asked for."""

    def sum_of(self, slot: int) -> Tensor:
        """Where the gradient of a parameter is summed."""

    def mask(self, key: int | str, threshold: int) -> Mask:
        """What a dropout keeps of the chunk's rows."""


class Kernel(ABC):
    """The base class of kernels, which do one known call each."""

    out: int
    inputs: tuple[int, ...]  # slots of rows that it reads
    parameters: tuple[int, ...] = ()  # slots that gradients of parameters belong to
    in_place = True  # whether the output may lie where the first input does

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """The values that backward reads, given of which slots a gradient is asked for."""
        return set()

    @abstractmethod
    def forward(self, run: Running) -> None:
        """Compute the output."""

    @abstractmethod
    def backward(self, run: Running) -> None:
        """Hand the output's gradient on."""


def _writable(run: Running, gradient: Tensor, own: bool) -> Tensor:
    """Where to write what is made of a gradient of the same width."""
    return gradient if own else run.scratch(gradient.shape[1])


@dataclass(eq=False)
class Linear(Kernel):
    """The linear map x W^T + b, as in torch.nn.functional.linear."""

    out: int
    x: int
    weight: int
    bias: int | None
    in_place = False

    def __post_init__(self) -> None:
        self.inputs = (self.x,)
        self.parameters = (self.weight,) if self.bias is None else (self.weight, self.bias)

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """The input, for the weight's gradient."""
        return {self.x} if wanted[self.weight] else set()

    def forward(self, run: Running) -> None:
        """[rows, k] -> [rows, width]."""
        values, out = run.values, run.target(self.out)
        if self.x in run.sparse:
            out.copy_(run.sparse[self.x].product(values[self.weight]))
            if self.bias is not None:
                out.add_(values[self.bias])
        elif self.bias is None:
            torch.mm(values[self.x], values[self.weight].t(), out=out)
        else:
            torch.addmm(values[self.bias], values[self.x], values[self.weight].t(), out=out)

    def backward(self, run: Running) -> None:
        """To the input, the weight and the bias."""
        gradient, _ = run.taken(self.out)
        if run.wants(self.weight) and self.x in run.sparse:
            run.sparse[self.x].add_gradient(run.sum_of(self.weight), gradient)
        elif run.wants(self.weight):
            run.sum_of(self.weight).addmm_(gradient.t(), run.values[self.x])
        if self.bias is not None and run.wants(self.bias):
            run.sum_of(self.bias).add_(gradient.sum(0))
        if run.wants(self.x):
            weight = run.values[self.weight]
            run.give(self.x, torch.mm(gradient, weight, out=run.scratch(weight.shape[1])), True)


@dataclass(eq=False)
class Bias(Kernel):
    """The sum x + b, where b has one number for each column."""

    out: int
    x: int
    bias: int

    def __post_init__(self) -> None:
        self.inputs, self.parameters = (self.x,), (self.bias,)

    def forward(self, run: Running) -> None:
        """[rows, width] -> [rows, width]."""
        torch.add(run.values[self.x], run.values[self.bias].reshape(-1), out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """To the input and the bias."""
        gradient, own = run.taken(self.out)
        if run.wants(self.bias):
            total = run.sum_of(self.bias)
            total.add_(gradient.sum(0).view_as(total))
        run.give(self.x, gradient, own)


@dataclass(eq=False)
class Scale(Kernel):
    """The product x * c or the quotient x / c, where c is a static column with a number for each row, or one number."""

    out: int
    x: int
    column: int | None
    number: float
    divides: bool

    def __post_init__(self) -> None:
        self.inputs = (self.x,) if self.column is None else (self.x, self.column)

    def _scaled(self, run: Running, x: Tensor, out: Tensor) -> Tensor:
        by = self.number if self.column is None else run.values[self.column]
        return torch.div(x, by, out=out) if self.divides else torch.mul(x, by, out=out)

    def forward(self, run: Running) -> None:
        """[rows, width] -> [rows, width]."""
        self._scaled(run, run.values[self.x], run.target(self.out))

    def backward(self, run: Running) -> None:
        """To the input."""
        gradient, own = run.taken(self.out)
        if run.wants(self.x):
            run.give(self.x, self._scaled(run, gradient, _writable(run, gradient, own)), True)


@dataclass(eq=False)
class Gain(Kernel):
    """The product g x, where g is one number that is trained."""

    out: int
    x: int
    gain: int  # the slot of its value
    parameter: int  # the slot that its gradient belongs to: the value may be the parameter plus a constant

    def __post_init__(self) -> None:
        self.inputs, self.parameters = (self.x,), (self.parameter,)

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """The input, for the gain's gradient."""
        return {self.x} if wanted[self.parameter] else set()

    def forward(self, run: Running) -> None:
        """[rows, width] -> [rows, width]."""
        torch.mul(run.values[self.x], run.values[self.gain].reshape(1), out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """To the input and the gain."""
        gradient, own = run.taken(self.out)
        if run.wants(self.parameter):
            total = run.sum_of(self.parameter)
            total.add_((gradient * run.values[self.x]).sum())
        if run.wants(self.x):
            gain = run.values[self.gain].reshape(1)
            run.give(self.x, torch.mul(gradient, gain, out=_writable(run, gradient, own)), True)


@dataclass(eq=False)
class HeadDots(Kernel):
    """The dot products (x * p).sum(-1) of each head's row with that head's vector in the parameter p.

    They are the two halves of an attention score in Velickovic et al., "Graph Attention Networks" (ICLR 2018). One matrix
    product computes them for all heads, and multiplies with zeros for that.
    """

    out: int
    x: int
    vectors: int  # the slot of p, with heads * channels numbers
    heads: int
    in_place = False

    def __post_init__(self) -> None:
        self.inputs, self.parameters = (self.x,), (self.vectors,)

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """The input, for the vectors' gradient."""
        return {self.x} if wanted[self.vectors] else set()

    def forward(self, run: Running) -> None:
        """[rows, heads * channels] -> [rows, heads]."""
        torch.mm(run.values[self.x], self._spread(run.values[self.vectors]), out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """To the input and the vectors."""
        gradient, _ = run.taken(self.out)
        if run.wants(self.vectors):
            total = run.sum_of(self.vectors)
            products = torch.mm(run.values[self.x].t(), gradient)  # [heads * channels, heads]
            total.add_(self._own(products).reshape(total.shape))
        if run.wants(self.x):
            spread = self._spread(run.values[self.vectors])
            run.give(self.x, torch.mm(gradient, spread.t(), out=run.scratch(len(spread))), True)

    def _spread(self, vectors: Tensor) -> Tensor:
        """Column h has the vector of head h in the rows of that head, and zeros. [heads * channels, heads]."""
        matrix = vectors.new_zeros(vectors.numel(), self.heads)
        self._own(matrix).copy_(vectors.reshape(self.heads, -1))
        return matrix

    def _own(self, matrix: Tensor) -> Tensor:
        """The numbers of each head's own rows and column: a view. [heads * channels, heads] -> [heads, channels]."""
        return matrix.view(self.heads, -1, self.heads).diagonal(dim1=0, dim2=2).t()


@dataclass(eq=False)
class HeadMean(Kernel):
    """The mean of the heads' rows."""

    out: int
    x: int
    heads: int
    channels: int
    in_place = False

    def __post_init__(self) -> None:
        self.inputs = (self.x,)

    def forward(self, run: Running) -> None:
        """[rows, heads * channels] -> [rows, channels]."""
        x = run.values[self.x]
        torch.mean(x.view(len(x), self.heads, self.channels), 1, out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """To the input, each head its share."""
        gradient, _ = run.taken(self.out)
        if run.wants(self.x):
            to, shares = run.scratch(self.heads * self.channels), gradient[:, None].expand(-1, self.heads, -1)
            torch.div(shares, self.heads, out=to.view(len(to), self.heads, self.channels))
            run.give(self.x, to, True)


@dataclass(eq=False)
class Add(Kernel):
    """The sum x + y of rows with equal widths."""

    out: int
    x: int
    y: int

    def __post_init__(self) -> None:
        self.inputs = (self.x, self.y)

    def forward(self, run: Running) -> None:
        """[rows, width] twice -> [rows, width]."""
        torch.add(run.values[self.x], run.values[self.y], out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """To both; only one of them may have it to itself."""
        gradient, own = run.taken(self.out)
        both = run.wants(self.x) and run.wants(self.y)
        for slot in (self.x, self.y):
            if run.wants(slot):
                run.give(slot, gradient, own and not both)


@dataclass(eq=False)
class Cat(Kernel):
    """The concatenation of rows."""

    out: int
    parts: tuple[int, ...]
    widths: tuple[int, ...]
    in_place = False

    def __post_init__(self) -> None:
        self.inputs = self.parts

    def forward(self, run: Running) -> None:
        """[rows, width] each -> [rows, sum of widths]."""
        torch.cat([run.values[part] for part in self.parts], 1, out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """To each its columns."""
        gradient, own = run.taken(self.out)
        for part, columns in zip(self.parts, gradient.split(self.widths, 1), strict=True):
            run.give(part, columns, own)


@dataclass(eq=False)
class Activation(Kernel):
    """The functions relu, leaky_relu, elu, sigmoid and tanh, whose gradients follow from their outputs."""

    out: int
    x: int
    kind: str
    numbers: tuple[float, ...] = ()  # leaky_relu: slope; elu: alpha, scale, input_scale

    def __post_init__(self) -> None:
        self.inputs = (self.x,)

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """The output."""
        return {self.out} if wanted[self.x] else set()

    def forward(self, run: Running) -> None:
        """[rows, width] -> [rows, width]."""
        x, out = run.values[self.x], run.target(self.out)
        match self.kind:
            case "relu":
                torch.clamp_min(x, 0, out=out)
            case "leaky_relu":
                _aten.leaky_relu.out(x, *self.numbers, out=out)
            case "elu":
                _aten.elu.out(x, *self.numbers, out=out)
            case "sigmoid":
                torch.sigmoid(x, out=out)
            case "tanh":
                torch.tanh(x, out=out)

    def backward(self, run: Running) -> None:
        """To the input."""
        gradient, own = run.taken(self.out)
        if not run.wants(self.x):
            return
        y, to = run.values[self.out], _writable(run, gradient, own)
        match self.kind:
            case "relu":
                _aten.threshold_backward.grad_input(gradient, y, 0, grad_input=to)
            case "leaky_relu":
                _aten.leaky_relu_backward.grad_input(gradient, y, *self.numbers, True, grad_input=to)
            case "elu":
                _aten.elu_backward.grad_input(gradient, *self.numbers, True, y, grad_input=to)
            case "sigmoid":
                _aten.sigmoid_backward.grad_input(gradient, y, grad_input=to)
            case "tanh":
                _aten.tanh_backward.grad_input(gradient, y, grad_input=to)
        run.give(self.x, to, True)


@dataclass(eq=False)
class Dropout(Kernel):
    """Dropout with the random numbers of `lotan.stages.randomness`, which backward draws again."""

    out: int
    x: int
    key: int | str
    threshold: int

    def __post_init__(self) -> None:
        self.inputs = (self.x,)

    def forward(self, run: Running) -> None:
        """[rows, width] -> [rows, width]."""
        run.mask(self.key, self.threshold).apply(run.values[self.x], run.target(self.out))

    def backward(self, run: Running) -> None:
        """To the input."""
        gradient, own = run.taken(self.out)
        if run.wants(self.x):
            mask = run.mask(self.key, self.threshold)
            run.give(self.x, mask.apply(gradient, _writable(run, gradient, own)), True)


@dataclass(eq=False)
class ReluDropout(Dropout):
    """The dropout of a ReLU. Its output is positive exactly where both let the gradient pass."""

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """The output."""
        return {self.out} if wanted[self.x] else set()

    def forward(self, run: Running) -> None:
        """[rows, width] -> [rows, width]."""
        out = run.target(self.out)
        torch.clamp_min(run.values[self.x], 0, out=out)
        run.mask(self.key, self.threshold).apply(out, out)

    def backward(self, run: Running) -> None:
        """To the input."""
        gradient, own = run.taken(self.out)
        if run.wants(self.x):
            to = _writable(run, gradient, own)
            _aten.threshold_backward.grad_input(gradient, run.values[self.out], 0, grad_input=to)
            run.give(self.x, to.mul_(run.mask(self.key, self.threshold).scale), True)
