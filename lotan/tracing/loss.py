"""The tracing of a loss that a user has written: a function of the output and the label, with a loss for each vertex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from lotan.errors import ModelError
from lotan.settings.named_calls import words_of
from lotan.stages.losses import LABEL, OUTPUT, loss_terms, split_rows
from lotan.stages.row_wise import RANDOM
from lotan.tracing.foreign_draws import no_foreign_draws
from lotan.tracing.forms import Form
from lotan.tracing.outputs import Further
from lotan.tracing.recording import record_rows
from lotan.tracing.reductions import Reduction
from lotan.tracing.refusals import FOREIGN_TENSOR, refusal
from lotan.tracing.trace import TRACING
from lotan.tracing.transcript import Transcript, needed_calls
from lotan.tracing.writing import describe
from planner.loss import LossForm, LossSpec, Task
from planner.spec import ParameterSpec, Ref, Spec, ValueType

LossFunction = Callable[..., Tensor]

REDUCED = (
    'takes a sum or mean over all vertices; return a loss for each vertex (in torch\'s functions: reduction="none"), '
    "for the mean over all vertices is taken later"
)
TENSOR_OF_LOSS = (
    "reads a tensor of its own, which cannot go with it; write its numbers as Python's, give weights as class_weights or as the "
    "graph's vertex_weight, or return the tensor from forward, as a further output"
)
ROWS = 13  # rows of the sample on which a trace is checked


class _Rows(torch.nn.Module):
    """A loss as a module, so that it is recorded as models are."""

    def __init__(self, function: LossFunction) -> None:
        super().__init__()
        self._function = function  # registers the loss if it is a module itself

    def forward(self, output: Tensor, label: Tensor, *further: Tensor) -> Tensor:
        return self._function(output, label, *further)


def trace_loss(function: LossFunction, task: Task, outputs: int, further: Further = ()) -> LossForm:
    """Return a user's loss as calls.

    Args:
        function: takes the output, float32 [num_vertices, outputs], and the label, int64 [num_vertices] or float32
            [num_vertices, outputs]. It returns one loss for each vertex, [num_vertices], or several, [num_vertices, k].
        task: the task, which determines the label.
        outputs: width of the model's output.
        further: what forward returns beside its output, which the function takes as further arguments: rows float32
            [num_vertices, *shape], by the names of the arguments.

    Raises:
        ModelError: the function cannot be traced, or mixes rows. The error names the line and what to write instead.

    Example:
        >>> form = trace_loss(lambda output, label: (output - label).abs(), "regression", 3)
        >>> [call.op for call in form.calls]
        ['aten.sub.Tensor', 'aten.abs.default']
    """
    if isinstance(function, torch.nn.Module) and (named := [*function.named_parameters(), *function.named_buffers()]):
        raise ModelError(f"loss {words_of(function)}: has {named[0][0]!r}; a loss has neither parameters nor buffers")
    output, label = sample(task, outputs)
    types = [ParameterSpec(OUTPUT, (outputs,)), ParameterSpec(LABEL, tuple(label.shape[1:]), dtype=_dtype(label))]
    types += [ParameterSpec(name, shape) for name, shape in further]
    generator = torch.Generator().manual_seed(1)
    beside = {name: torch.randn(ROWS, *shape, generator=generator) for name, shape in further}
    try:
        with TRACING:
            recording = record_rows(_Rows(function), {OUTPUT: output, LABEL: label, **beside})
            spec = _LossTranscript(outputs, tuple(types), recording).spec()
        form = LossForm(calls=spec.calls)
        _check(function, LossSpec(task, outputs, 1.0, form=form, further=further), output, label, beside)
    except ModelError as error:
        words = str(error).removeprefix("the model, ").replace(FOREIGN_TENSOR, TENSOR_OF_LOSS)
        raise ModelError(f"loss {words_of(function)}: {words}") from error
    return form


def sample(task: Task, outputs: int) -> tuple[Tensor, Tensor]:
    """Return an output and a label on which a loss is tried."""
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(ROWS, outputs, generator=generator)
    if task == "classification":
        return output, torch.randint(0, max(2, outputs), (ROWS,), generator=generator)
    if task == "multilabel":
        return output, torch.randint(0, 2, (ROWS, outputs), generator=generator).float()
    return output, torch.randn(ROWS, outputs, generator=generator)


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


class _LossTranscript(Transcript):
    """Writes the calls of a loss. Its two inputs have rows, and it may not reduce over them."""

    def __init__(self, width: int, inputs: tuple[ParameterSpec, ...], recording: Any) -> None:
        super().__init__(width, (), recording)
        for given in inputs:
            self._types[given.name] = ValueType("vertex", given.shape, given.dtype)

    def _reduce(self, node: Node, reduction: Reduction, of: Any = None) -> None:
        raise refusal(node, f"{reduction.kind} {REDUCED}")

    def _products(self, node: Node) -> Ref:
        raise refusal(node, f"a product of rows {REDUCED}")

    def _write(self, node: Node, form: Form) -> None:
        if form.op in RANDOM:
            raise refusal(node, "draws random numbers, which a loss cannot; use dropout in the model")
        super()._write(node, form)

    def _finish(self, node: Node) -> Spec:
        result = self._argument(node, node.args[0])
        if not isinstance(result, Ref) or result.name in (OUTPUT, LABEL):
            raise refusal(node, "computes nothing; expected a loss for each vertex, of the output and the label")
        kind = self._types[result.name]
        if kind.rows != "vertex" or len(kind.shape) > 1 or kind.dtype != "float32":
            raise refusal(
                node, f"returns {describe(kind)}; expected float32 of shape [num_vertices] or [num_vertices, k]"
            )
        return Spec(self._width, (), needed_calls(self._calls, result.name), result.name)


def _check(function: LossFunction, loss: LossSpec, output: Tensor, label: Tensor, beside: dict[str, Tensor]) -> None:
    """Check on a small sample that the calls compute what the function computes, and that rows do not mix."""
    columns = [output, *(rows.reshape(len(rows), -1) for rows in beside.values())]
    mine, theirs = (torch.cat(columns, dim=1).requires_grad_() for _ in range(2))
    with torch.enable_grad():
        own, given = split_rows(loss, theirs)

        def run() -> Tensor:
            return function(own, label, *given.values())

        with no_foreign_draws("it", run):
            found, expected = loss_terms(loss, mine, label), run()
        if not expected.requires_grad:
            raise ModelError("does not depend on the output, or only through operators without a gradient")
        cotangent = torch.linspace(0.5, 1.5, expected.numel()).view_as(expected)
        pairs = [(found, expected)]
        pairs.append(
            (torch.autograd.grad(found, mine, cotangent)[0], torch.autograd.grad(expected, theirs, cotangent)[0])
        )
        pairs.append((loss_terms(loss, mine[5:], label[5:]), found[5:]))
    for value, truth in pairs:
        if value.shape != truth.shape or not torch.allclose(value, truth, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ModelError(
                "differs from its trace, or mixes rows; it must do the same each time and depend on its arguments alone"
            )
