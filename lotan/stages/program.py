"""Runs a stage on chunks: forward, backward, and the last stage's turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.metrics import loss_gradient, statistics
from lotan.randomness import Randomness
from lotan.stages.chunk import Chunk, Saved, StageGradients
from lotan.stages.operators import Frame, compile_call
from planner.physical import Stage, StageInput
from planner.spec import Call, LossSpec

Parameters = Mapping[str, Tensor]

_NO_DRAWS = Randomness(seed=0, epoch=0)
"""For evaluation, whose stages have no random operator."""


class StageProgram:
    """A stage, compiled once, run on any number of chunks. Holds no state between runs.

    Args:
        stage: the stage.
        source_gradients: "summed" returns one gradient row for each source row of a chunk, "per_edge" one per edge.

    Raises:
        StageError: a call is not allowed or reads a value that nothing made.
    """

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

    def forward(
        self, chunk: Chunk, parameters: Parameters, randomness: Randomness, keep: bool = False
    ) -> tuple[dict[str, Tensor], Saved | None]:
        """The stage's outputs by StageOutput.value, [rows, *shape]; with `keep`, also what spares backward a rerun."""
        if not keep:
            with torch.no_grad():
                return self._run(self._values(chunk, parameters), chunk, randomness), None
        saved = self._record(chunk, parameters, randomness)
        return {name: value.detach() for name, value in saved.outputs.items()}, saved

    def backward(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        output_gradients: Mapping[str, Tensor],
        saved: Saved | None = None,
    ) -> StageGradients:
        """Gradients of inputs and parameters, given those of the outputs; runs forward again if nothing was saved."""
        saved = self._record(chunk, parameters, randomness) if saved is None else saved
        return self._pull(saved, output_gradients)

    def turn(self, chunk: Chunk, parameters: Parameters, randomness: Randomness) -> tuple[np.ndarray, StageGradients]:
        """The last stage forward, its loss over the training rows, and at once all gradients.

        Returns:
            Statistics of the training rows (float64 [splits, k], other splits zero) and the gradients.
        """
        label, split, loss = self._targets(chunk)
        saved = self._record(chunk, parameters, randomness)
        (name,) = saved.outputs
        logits = saved.outputs[name].detach()
        gradient = loss_gradient(loss, logits, label, split)
        return statistics(loss, logits, label, split, only="train"), self._pull(saved, {name: gradient})

    def evaluate(self, chunk: Chunk, parameters: Parameters) -> np.ndarray:
        """The last stage to its statistics. float64 [splits, k], see lotan.metrics."""
        label, split, loss = self._targets(chunk)
        (logits,) = self.predict(chunk, parameters).values()
        return statistics(loss, logits, label, split)

    def predict(self, chunk: Chunk, parameters: Parameters) -> dict[str, Tensor]:
        """The stage's outputs, without random numbers or gradients."""
        return self.forward(chunk, parameters, _NO_DRAWS)[0]

    def _values(self, chunk: Chunk, parameters: Parameters) -> dict[str, Tensor]:
        """The chunk's inputs and the parameters, by name."""
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

    def _record(self, chunk: Chunk, parameters: Parameters, randomness: Randomness) -> Saved:
        values = self._values(chunk, parameters)
        leaves = {}
        for name in (*(i.value for i in self._differentiable), *self._trainable):
            leaves[name] = values[name] = values[name].detach().requires_grad_()
        with torch.enable_grad():
            return Saved(leaves, self._run(values, chunk, randomness))

    def _run(self, values: dict[str, Tensor], chunk: Chunk, randomness: Randomness) -> dict[str, Tensor]:
        frame = Frame(values, chunk, randomness)
        for output, evaluate, dead in self._calls:
            values[output] = evaluate(frame)
            for name in dead:
                del values[name]
        return {output.value: values[output.value] for output in self.stage.outputs}

    def _pull(self, saved: Saved, output_gradients: Mapping[str, Tensor]) -> StageGradients:
        """The vector-Jacobian product of a recorded run."""
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

    def _targets(self, chunk: Chunk) -> tuple[Tensor, Tensor, LossSpec]:
        if self.stage.loss is None or chunk.label is None or chunk.split is None:
            raise StageError(f"stage {self.stage.name}: has no loss, or the chunk came without label or split")
        return chunk.label, chunk.split, self.stage.loss


def names_read(call: Call) -> set[str]:
    """Names of the values a call reads."""
    return {ref.name for ref in call.references}


def _last_reads(stage: Stage) -> list[tuple[str, ...]]:
    """For each call, the values that nothing reads after it, so that memory is free as soon as it can be."""
    alive = {output.value for output in stage.outputs}
    dead: list[tuple[str, ...]] = []
    for call in reversed(stage.calls):
        last = (names_read(call) | {call.output}) - alive
        dead.append(tuple(sorted(last)))
        alive |= last
    return dead[::-1]
