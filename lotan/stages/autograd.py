"""Runs a stage through autograd: any allowed calls, including those on edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages.chunk import Chunk, Parameters, Places, Saved, StageGradients
from lotan.stages.operators import Frame, compile_call, names_read
from lotan.stages.randomness import Randomness
from planner.physical import Stage, StageInput


@dataclass(eq=False)
class SavedGraph(Saved):
    """The autograd graph of a forward run."""

    leaves: Mapping[str, Tensor]  # inputs and parameters that receive gradients
    outputs: Mapping[str, Tensor]


class AutogradStage:
    """A stage whose backward is autograd's.

    Args:
        stage: The stage to run.
        source_gradients: "summed" or "per_edge", see `StageProgram`.

    Raises:
        StageError: If a call is not allowed, or reads a value that no call made.
    """

    rereads: frozenset[str] = frozenset()

    def __init__(self, stage: Stage, source_gradients: Literal["summed", "per_edge"] = "summed") -> None:
        self.stage = stage
        self._sources = tuple(i for i in stage.inputs if i.role == "source") if source_gradients == "per_edge" else ()
        per_edge = {i.value: i.edges for i in self._sources if i.edges is not None}
        self._calls = tuple(
            (call.output, compile_call(call, per_edge), dead)
            for call, dead in zip(stage.calls, _last_reads(stage), strict=True)
        )
        self._differentiable = tuple(i for i in stage.inputs if i.needs_gradient)
        self._trainable = tuple(p.name for p in stage.parameters if p.trainable)

    def run(self, chunk: Chunk, parameters: Parameters, randomness: Randomness, into: Places) -> dict[str, Tensor]:
        """Return the outputs, [rows, *shape]."""
        with torch.no_grad():
            return _placed(self._run(self._values(chunk, parameters), chunk, randomness), into)

    def record(
        self, chunk: Chunk, parameters: Parameters, randomness: Randomness, into: Places
    ) -> tuple[dict[str, Tensor], Saved]:
        """Return the outputs, and the autograd graph behind them."""
        saved = self._record(chunk, parameters, randomness)
        return _placed({name: value.detach() for name, value in saved.outputs.items()}, into), saved

    def vjp(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        gradients: Mapping[str, Tensor],
        saved: Saved | None,
        into: Places,
        sums: Places | None,
    ) -> StageGradients:
        """Return the vector-Jacobian product. If nothing was saved, the stage runs forward first."""
        saved = saved if isinstance(saved, SavedGraph) else self._record(chunk, parameters, randomness)
        found = self._vjp(saved, gradients)
        if sums is None:
            return StageGradients(_placed(found.inputs, into), found.parameters)
        for name, gradient in found.parameters.items():
            sums[name].add_(gradient)
        return StageGradients(_placed(found.inputs, into), sums)

    def turn(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        loss: Callable[[Tensor], Tensor],
        into: Places,
        sums: Places | None,
    ) -> StageGradients:
        """Run forward, apply `loss`, which maps the one output to its gradient, and run backward."""
        saved = self._record(chunk, parameters, randomness)
        ((name, rows),) = saved.outputs.items()
        return self.vjp(chunk, parameters, randomness, {name: loss(rows.detach())}, saved, into, sums)

    def _values(self, chunk: Chunk, parameters: Parameters) -> dict[str, Tensor]:
        """Return the chunk's inputs and the parameters, by name."""
        try:
            values = {i.value: chunk.values[i.value] for i in self.stage.inputs}
            values.update((p.name, parameters[p.name]) for p in self.stage.parameters)
        except KeyError as missing:
            raise StageError(f"stage {self.stage.name}: the chunk came without {missing}") from None
        for source in self._sources:
            values[source.value] = self._per_edge(source, values[source.value], chunk)
        return values

    def _per_edge(self, source: StageInput, rows: Tensor, chunk: Chunk) -> Tensor:
        if source.edges not in chunk.edges:
            raise StageError(f"stage {self.stage.name}: the chunk came without edges {source.edges!r}")
        return rows.index_select(0, chunk.edges[source.edges].positions)

    def _record(self, chunk: Chunk, parameters: Parameters, randomness: Randomness) -> SavedGraph:
        values = self._values(chunk, parameters)
        leaves = {}
        for name in (*(i.value for i in self._differentiable), *self._trainable):
            leaves[name] = values[name] = values[name].detach().requires_grad_()
        with torch.enable_grad():
            return SavedGraph(leaves, self._run(values, chunk, randomness))

    def _run(self, values: dict[str, Tensor], chunk: Chunk, randomness: Randomness) -> dict[str, Tensor]:
        frame = Frame(values, chunk, randomness)
        for output, evaluate, dead in self._calls:
            values[output] = evaluate(frame)
            for name in dead:
                del values[name]
        return {output.value: values[output.value] for output in self.stage.outputs}

    def _vjp(self, saved: SavedGraph, output_gradients: Mapping[str, Tensor]) -> StageGradients:
        """Return the vector-Jacobian product of a recorded run."""
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
        return StageGradients(inputs, gradients)


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
