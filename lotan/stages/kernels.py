"""The known calls of a stage as kernels. Forward calls torch's out-variants, and the adjoints are written by hand.

A kernel reads and writes *slots* of a run (`Running`). Their values are float32 [rows, width], whatever shape a row has in
the stage. Forward writes into a buffer that the run provides, which may be the buffer of its input. Backward takes the
gradient of its output and gives gradients to its inputs, in place if the run may overwrite the gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lotan.stages.randomness import Mask
from lotan.stages.sparse_rows import SparseRows

_aten = torch.ops.aten


class Running(Protocol):
    """A run over one chunk, as a kernel sees it."""

    values: list[Tensor]  # by slot; rows' values [rows, width], totals [1, width], parameters in their own shape
    sparse: dict[int, SparseRows]  # by slot, sparse inputs that are not among the values; only linear maps read them

    def target(self, slot: int) -> Tensor:
        """Return the memory for the value of a slot."""

    def taken(self, slot: int) -> tuple[Tensor, bool]:
        """Return the gradient of a slot, and whether it may be overwritten. It may be called once for each slot."""

    def give(self, slot: int, gradient: Tensor, own: bool) -> None:
        """Add to the gradient of a slot. `own` is True if nothing else reads the tensor."""

    def scratch(self, width: int) -> Tensor:
        """Return memory for a gradient, [rows, width]."""

    def wants(self, slot: int) -> bool:
        """Return True if the gradient of a slot is needed."""

    def sum_of(self, slot: int) -> Tensor:
        """Return the memory in which the gradient of a parameter is summed."""

    def mask(self, key: int | str, threshold: int) -> Mask:
        """Return the mask of the numbers that a dropout keeps."""


class Kernel(ABC):
    """The base class of kernels, which do one known call each."""

    out: int
    inputs: tuple[int, ...]  # slots of the rows that it reads
    parameters: tuple[int, ...] = ()  # slots to which the gradients of its parameters belong
    in_place = True  # True if the output may overwrite the first input

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """Return the slots whose values backward reads. `wanted[slot]` is True if the gradient of that slot is needed."""
        return set()

    @abstractmethod
    def forward(self, run: Running) -> None:
        """Compute the output."""

    @abstractmethod
    def backward(self, run: Running) -> None:
        """Give the inputs their gradients."""


def _writable(run: Running, gradient: Tensor, own: bool) -> Tensor:
    """Return the memory for a value that is computed from a gradient of the same width."""
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
        """Return the input, which the weight's gradient reads."""
        return {self.x} if wanted[self.weight] else set()

    def forward(self, run: Running) -> None:
        """Map [rows, k] to [rows, width]."""
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
        """Give the input, the weight and the bias their gradients."""
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
        """Map [rows, width] to [rows, width]."""
        torch.add(run.values[self.x], run.values[self.bias].reshape(-1), out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give the input and the bias their gradients."""
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
        """Map [rows, width] to [rows, width]."""
        self._scaled(run, run.values[self.x], run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give the input its gradient."""
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
        """Return the input, which the gain's gradient reads."""
        return {self.x} if wanted[self.parameter] else set()

    def forward(self, run: Running) -> None:
        """Map [rows, width] to [rows, width]."""
        torch.mul(run.values[self.x], run.values[self.gain].reshape(1), out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give the input and the gain their gradients."""
        gradient, own = run.taken(self.out)
        if run.wants(self.parameter):
            total = run.sum_of(self.parameter)
            total.add_((gradient * run.values[self.x]).sum())
        if run.wants(self.x):
            gain = run.values[self.gain].reshape(1)
            run.give(self.x, torch.mul(gradient, gain, out=_writable(run, gradient, own)), True)


@dataclass(eq=False)
class Normalise(Kernel):
    """The normalisation (x - mean) / sqrt(variance + epsilon) * weight + bias.

    Mean and variance are those of all vertices, or parameters without a gradient, such as running statistics.
    Ioffe and Szegedy, "Batch Normalization" (ICML 2015). Let x' = x - mean, r = 1 / sqrt(variance + epsilon), and let g be
    the gradient of the output. The gradients of weight, bias, mean and variance need no more than the sums of g and of g x'
    over the chunk's rows. The gradient that x has through the moments is not the kernel's: it needs the sums of all
    chunks.
    """

    out: int
    x: int
    moments: int | None  # the slot of one row [channels, 2]: mean and variance
    given: tuple[int, ...]  # without a total: the slots of the mean and the variance
    epsilon: float
    shift: int | None  # the slot of a parameter that is added to the mean
    weight: int | None
    bias: int | None
    tracked: tuple[int, ...]  # the slots of the buffers for which mean and variance are handed in, or none

    def __post_init__(self) -> None:
        self.inputs = (self.x,) if self.moments is None else (self.x, self.moments)
        trained = (self.shift, self.weight, self.bias, *self.tracked)
        self.parameters = tuple(slot for slot in trained if slot is not None)

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """Return both inputs, which all gradients are computed from."""
        return {*self.inputs} if wanted[self.out] else set()

    def _row(self, run: Running) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the mean, the variance, r, and r times the weight. Each is [channels]."""
        if self.moments is None:
            mean, variance = (run.values[slot] for slot in self.given)
        else:
            mean, variance = run.values[self.moments].view(-1, 2).t().contiguous()
        if self.shift is not None:
            mean = mean + run.values[self.shift]
        root = torch.rsqrt(variance + self.epsilon)
        return mean, variance, root, root if self.weight is None else root * run.values[self.weight]

    def forward(self, run: Running) -> None:
        """Map [rows, channels] to [rows, channels]."""
        mean, _, _, scale = self._row(run)
        out = torch.sub(run.values[self.x], mean, out=run.target(self.out))
        if self.bias is None:
            out.mul_(scale)
        else:
            torch.addcmul(run.values[self.bias], out, scale, out=out)

    def backward(self, run: Running) -> None:
        """Give the input, the moments and the parameters their gradients."""
        gradient, own = run.taken(self.out)
        mean, variance, root, scale = self._row(run)
        products = torch.sub(run.values[self.x], mean, out=run.scratch(gradient.shape[1])).mul_(gradient)
        summed, by_x = gradient.sum(0), products.sum(0)  # [channels]: of g, and of g x'
        of_mean = -(summed * scale)
        self._add(run, self.shift, of_mean)
        self._add(run, self.weight, by_x * root)
        self._add(run, self.bias, summed)
        for buffer, moment in zip(self.tracked, (mean, variance), strict=False):
            self._add(run, buffer, moment * len(gradient))
        if self.moments is not None and run.wants(self.moments):
            of_variance = by_x * scale * root.square() * -0.5
            run.give(self.moments, torch.stack([of_mean, of_variance], dim=-1).view(1, -1), True)
        if run.wants(self.x):
            run.give(self.x, torch.mul(gradient, scale, out=_writable(run, gradient, own)), True)

    @staticmethod
    def _add(run: Running, slot: int | None, gradient: Tensor) -> None:
        """Add to the gradient of a parameter, if it is needed."""
        if slot is not None and run.wants(slot):
            run.sum_of(slot).add_(gradient)


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
        """Return the input, which the vectors' gradient reads."""
        return {self.x} if wanted[self.vectors] else set()

    def forward(self, run: Running) -> None:
        """Map [rows, heads * channels] to [rows, heads]."""
        torch.mm(run.values[self.x], self._spread(run.values[self.vectors]), out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give the input and the vectors their gradients."""
        gradient, _ = run.taken(self.out)
        if run.wants(self.vectors):
            total = run.sum_of(self.vectors)
            products = torch.mm(run.values[self.x].t(), gradient)  # [heads * channels, heads]
            total.add_(self._own(products).reshape(total.shape))
        if run.wants(self.x):
            spread = self._spread(run.values[self.vectors])
            run.give(self.x, torch.mm(gradient, spread.t(), out=run.scratch(len(spread))), True)

    def _spread(self, vectors: Tensor) -> Tensor:
        """Return a matrix [heads * channels, heads]. Column h has the vector of head h in the rows of that head, and zeros."""
        matrix = vectors.new_zeros(vectors.numel(), self.heads)
        self._own(matrix).copy_(vectors.reshape(self.heads, -1))
        return matrix

    def _own(self, matrix: Tensor) -> Tensor:
        """Return a view of each head's own rows and column: [heads * channels, heads] to [heads, channels]."""
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
        """Map [rows, heads * channels] to [rows, channels]."""
        x = run.values[self.x]
        torch.mean(x.view(len(x), self.heads, self.channels), 1, out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give each head of the input its share of the gradient."""
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
        """Map two inputs [rows, width] to [rows, width]."""
        torch.add(run.values[self.x], run.values[self.y], out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give both inputs the gradient. Only one of them may overwrite it."""
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
        """Map inputs [rows, width] to [rows, sum of widths]."""
        torch.cat([run.values[part] for part in self.parts], 1, out=run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give each input its columns of the gradient."""
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
        """Return the output, from which the gradient is computed."""
        return {self.out} if wanted[self.x] else set()

    def forward(self, run: Running) -> None:
        """Map [rows, width] to [rows, width]."""
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
        """Give the input its gradient."""
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
        """Map [rows, width] to [rows, width]."""
        run.mask(self.key, self.threshold).apply(run.values[self.x], run.target(self.out))

    def backward(self, run: Running) -> None:
        """Give the input its gradient."""
        gradient, own = run.taken(self.out)
        if run.wants(self.x):
            mask = run.mask(self.key, self.threshold)
            run.give(self.x, mask.apply(gradient, _writable(run, gradient, own)), True)


@dataclass(eq=False)
class ReluDropout(Dropout):
    """The dropout of a ReLU. Its output is positive exactly where both let the gradient pass."""

    def needs(self, wanted: Sequence[bool]) -> set[int]:
        """Return the output, from which the gradient is computed."""
        return {self.out} if wanted[self.x] else set()

    def forward(self, run: Running) -> None:
        """Map [rows, width] to [rows, width]."""
        out = run.target(self.out)
        torch.clamp_min(run.values[self.x], 0, out=out)
        run.mask(self.key, self.threshold).apply(out, out)

    def backward(self, run: Running) -> None:
        """Give the input its gradient."""
        gradient, own = run.taken(self.out)
        if run.wants(self.x):
            to = _writable(run, gradient, own)
            _aten.threshold_backward.grad_input(gradient, run.values[self.out], 0, grad_input=to)
            run.give(self.x, to.mul_(run.mask(self.key, self.threshold).scale), True)
