"""The stage program that uses autograd. It runs all calls that are allowed, on edges too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages.chunk import Chunk, Places, Saved
from lotan.stages.operators import Frame, compile_call, names_read
from lotan.stages.stage_run import StageResult, StageRun
from planner.physical import SourceGradients, Stage, StageInput


@dataclass(eq=False)
class SavedGraph(Saved):
    """The autograd graph of a forward run."""

    leaves: Mapping[str, Tensor]  # inputs and parameters that receive gradients
    outputs: Mapping[str, Tensor]


class AutogradStage:
    """A stage whose backward is autograd's.

    Args:
        stage: the stage.
        source_gradients: "summed" or "per_edge", as in `StageProgram`.

    Raises:
        StageError: If a call is not allowed, or reads a value that no call made.
    """

    rereads: frozenset[str] = frozenset()

    def __init__(self, stage: Stage, source_gradients: SourceGradients = "summed") -> None:
        self.stage = stage
        self._sources = tuple(i for i in stage.inputs if i.role == "source") if source_gradients == "per_edge" else ()
        per_edge = {i.value: i.edges for i in self._sources if i.edges is not None}
        self._calls = tuple(
            (call.output, compile_call(call, per_edge), dead)
            for call, dead in zip(stage.calls, _last_reads(stage), strict=True)
        )
        self._differentiable = tuple(i for i in stage.inputs if i.needs_gradient)
        self._trainable = tuple(p.name for p in stage.parameters if p.trainable)
        self._alike = stage.alike
        self._without_rows = frozenset(stage.parameter_shapes)

    def forward(self, run: StageRun) -> StageResult:
        """Return the outputs, [rows, *shape], and with `run.keep` the autograd graph behind them."""
        if run.keep:
            saved = self._record(run)
            return StageResult(_placed({name: row.detach() for name, row in saved.outputs.items()}, run.into), saved)
        with torch.no_grad():
            return StageResult(_placed(self._outputs(self._values(run), run), run.into))

    def backward(self, run: StageRun) -> StageResult:
        """Return the vector-Jacobian product. Forward runs first if nothing was saved."""
        saved = run.saved if isinstance(run.saved, SavedGraph) else self._record(run)
        return self._result(run, *self._vjp(saved, run.output_gradients))

    def turn(self, run: StageRun, loss: Callable[[Tensor], Tensor]) -> StageResult:
        """Run forward, `loss`, which maps the one output to its gradient, and backward."""
        saved = self._record(run)
        ((name, rows),) = saved.outputs.items()
        return self._result(run, *self._vjp(saved, {name: loss(rows.detach())}))

    def _result(self, run: StageRun, inputs: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> StageResult:
        if run.sums is not None:
            for name, gradient in parameters.items():
                run.sums[name].add_(gradient)
            parameters = run.sums
        return StageResult(input_gradients=_placed(inputs, run.into), parameter_gradients=parameters)

    def _values(self, run: StageRun) -> dict[str, Tensor]:
        """Return the chunk's inputs and the parameters, by name."""
        chunk = run.chunk
        try:
            values = {i.value: chunk.values[i.value] for i in self.stage.inputs}
            values.update((p.name, run.parameters[p.name]) for p in self.stage.parameters)
        except KeyError as missing:
            raise StageError(f"stage {self.stage.name}: the chunk came without {missing}") from None
        for source in self._sources:
            values[source.value] = self._per_edge(source, values[source.value], chunk)
        return values

    def _per_edge(self, source: StageInput, rows: Tensor, chunk: Chunk) -> Tensor:
        if source.edges is None or source.edges not in chunk.edges:
            raise StageError(f"stage {self.stage.name}: the chunk came without edges {source.edges!r}")
        return rows.index_select(0, chunk.edges[source.edges].positions)

    def _record(self, run: StageRun) -> SavedGraph:
        values = self._values(run)
        leaves = {}
        for name in (*(i.value for i in self._differentiable), *self._trainable):
            leaves[name] = values[name] = values[name].detach().requires_grad_()
        with torch.enable_grad():
            return SavedGraph(leaves, self._outputs(values, run))

    def _outputs(self, values: dict[str, Tensor], run: StageRun) -> dict[str, Tensor]:
        """Run all calls over values, which are overwritten.

        What all vertices share is computed as one row. The other calls read it as rows that lie in the memory of that one.
        """
        frame = Frame(values, run.chunk, run.randomness, run.chunk.rows, without_rows=self._without_rows)
        ones = replace(frame, values=dict(values), rows=1) if self._alike else frame
        frame.ones = ones.values
        for name in self._alike & values.keys():
            values[name] = _repeated(values[name], run.chunk.rows)
        for output, evaluate, dead in self._calls:
            if output in self._alike:
                ones.values[output] = evaluate(ones)
                values[output] = _repeated(ones.values[output], run.chunk.rows)
            else:
                values[output] = evaluate(frame)
                if output in self._without_rows:
                    ones.values[output] = values[output]
            for name in dead:
                del values[name]
                ones.values.pop(name, None)
        return {output.value: values[output.value] for output in self.stage.outputs}

    def _vjp(
        self, saved: SavedGraph, output_gradients: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the vector-Jacobian product of a recorded run: the gradients of inputs and of parameters."""
        reached = [name for name in output_gradients if saved.outputs[name].requires_grad]
        leaves = saved.leaves
        if reached and leaves:
            found = torch.autograd.grad(
                [saved.outputs[name] for name in reached],
                list(leaves.values()),
                [output_gradients[name].view_as(saved.outputs[name]) for name in reached],
                allow_unused=True,
                materialize_grads=True,
            )
        else:
            found = tuple(torch.zeros_like(leaf) for leaf in leaves.values())
        gradients = dict(zip(leaves, found, strict=True))
        inputs = {i.value: gradients.pop(i.value) for i in self._differentiable}
        return inputs, gradients


def _repeated(row: Tensor, rows: int) -> Tensor:
    """Return a row [1, *shape] as [rows, *shape], without copies of it."""
    return row.expand(rows, *row.shape[1:])


def _placed(rows: Mapping[str, Tensor], into: Places) -> dict[str, Tensor]:
    return {
        name: into[name].copy_(value.view_as(into[name])) if name in into else value for name, value in rows.items()
    }


def _last_reads(stage: Stage) -> list[tuple[str, ...]]:
    """Return, for each call, the values that nothing reads after it, so that their memory is freed early."""
    alive = {output.value for output in stage.outputs}
    dead: list[tuple[str, ...]] = []
    for call in reversed(stage.calls):
        last = (names_read(call) | {call.output}) - alive
        dead.append(tuple(sorted(last)))
        alive |= last
    return dead[::-1]
