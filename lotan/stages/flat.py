"""Runs a stage of known calls as a flat list of kernels, in memory that the next chunk uses again.

A chunk of some hundred rows stays in the processor's cache from the first kernel to the last, and no autograd graph is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from threading import local

import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages.chunk import NOWHERE, Chunk, Parameters, Places, Saved, StageGradients
from lotan.stages.kernels import Kernel
from lotan.stages.known import Translation
from lotan.stages.randomness import Mask, Randomness
from lotan.stages.saved_values import Memory, SavedValues
from lotan.stages.sparse_rows import SparseRows
from planner.physical import Stage

Rows = dict[str, Tensor]

_NOTHING = torch.empty(0)


class _Scratch(local):
    """The buffers of one thread by width, with as many rows as the largest chunk so far."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def get(self, number: int, rows: int, width: int) -> Tensor:
        """Return memory [rows, width]. The next caller with the same number and width gets the same memory."""
        key = number, width
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape[0] < rows:
            buffer = self._buffers[key] = torch.empty(rows, width)
        return buffer if buffer.shape[0] == rows else buffer[:rows]


_scratch = _Scratch()


class FlatStage:
    """A stage whose calls are all known.

    Args:
        stage: The stage to run.
        memory: The memory for saved values; None: memory of its own.

    Raises:
        Unknown: If the stage has a call that is not known.
    """

    def __init__(self, stage: Stage, memory: Memory | None = None) -> None:
        translated = Translation(stage)
        slot = translated.slot
        self.name = stage.name
        self.kernels, self.widths = translated.kernels, translated.widths
        self.shifts = translated.shifts
        self.inputs = [(slot[i.value], i.value, i.shape, i.needs_gradient) for i in stage.inputs]
        self.parameters = [(slot[p.name], p.name, p.trainable) for p in stage.parameters]
        self.outputs = [(slot[o.value], o.value, o.shape) for o in stage.outputs]
        self.wanted = self._wanted()  # by slot, True if backward needs its gradient
        needed = {slot for kernel in self.kernels for slot in kernel.needs(self.wanted)}
        given = {number for number, *_ in self.inputs}
        # The inputs that a chunk must bring again for backward.
        self.rereads = frozenset(
            name for number, name, *_ in self.inputs if number in needed or not self.wanted[number]
        )
        # by the slot of a kernel's output: the region of memory that it lies in
        self.region = self._regions(needed | given)
        # only the last slot of a region is saved or put out
        last = {region: slot for slot, region in self.region.items()}
        # By region, the content that outlives the run: the slot that backward reads, or the name of the output.
        self.kept = {region: slot for region, slot in last.items() if slot in needed}
        outputs = {number: name for number, name, _ in self.outputs}
        self.put_out = {
            region: outputs[slot] for region, slot in last.items() if slot in outputs and region not in self.kept
        }
        self.recomputed = self._leading_to(needed)  # the kernels that a backward without saved values runs again
        self._memory = memory or Memory()

    def _wanted(self) -> list[bool]:
        """Return for each slot True if backward needs its gradient."""
        wanted = [False] * len(self.widths)
        for number, _, _, gradient in self.inputs:
            wanted[number] = gradient
        for number, _, trainable in self.parameters:
            wanted[number] = trainable
        for kernel in self.kernels:
            wanted[kernel.out] = any(wanted[number] for number in (*kernel.inputs, *kernel.parameters))
        return wanted

    def _regions(self, fixed: set[int]) -> dict[int, int]:
        """Assign slots to regions of memory: a kernel overwrites its first input if nothing reads the input afterwards."""
        fixed = fixed | {number for number, *_ in self.outputs}
        last = {number: position for position, kernel in enumerate(self.kernels) for number in kernel.inputs}
        region: dict[int, int] = {}
        for position, kernel in enumerate(self.kernels):
            x = kernel.inputs[0] if kernel.in_place else -1
            over = x in region and x not in fixed and last[x] == position and self.widths[x] == self.widths[kernel.out]
            region[kernel.out] = region[x] if over else len(region)
        return region

    def _leading_to(self, needed: set[int]) -> list[Kernel]:
        """Return the kernels that a rerun for backward must run."""
        read, found = set(needed), []
        for kernel in reversed(self.kernels):
            if kernel.out in read:
                read.update(kernel.inputs)
                found.append(kernel)
        return found[::-1]

    def run(self, chunk: Chunk, parameters: Parameters, randomness: Randomness, into: Places) -> Rows:
        """Return the outputs, [rows, *shape]."""
        with torch.no_grad():
            return _Run(self, chunk, parameters, randomness).forward(into)

    def record(
        self, chunk: Chunk, parameters: Parameters, randomness: Randomness, into: Places
    ) -> tuple[Rows, SavedValues]:
        """Return the outputs, and the values of this run that `vjp` reads."""
        values = {region: self._memory.take(chunk.rows, self.widths[slot]) for region, slot in self.kept.items()}
        saved = SavedValues(chunk.rows, self._memory, values)
        with torch.no_grad():
            return _Run(self, chunk, parameters, randomness, saved).forward(into), saved

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
        saved = saved if isinstance(saved, SavedValues) else None
        with torch.no_grad():
            run = _Run(self, chunk, parameters, randomness, saved)
            if saved is None:
                run.prepare()
            found = run.backward(gradients, into, sums)
        if saved:
            self._memory.give(saved.values)
        return found

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
        with torch.no_grad():
            run = _Run(self, chunk, parameters, randomness)
            ((name, rows),) = run.forward(NOWHERE).items()
            return run.backward({name: loss(rows)}, into, sums)


class _Run:
    """The run of the kernels over one chunk, see `lotan.stages.kernels.Running`."""

    def __init__(
        self,
        stage: FlatStage,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        saved: SavedValues | None = None,
    ) -> None:
        self._stage, self._chunk, self._randomness = stage, chunk, randomness
        self._rows = chunk.rows
        self._memory: dict[int, Tensor] = {}  # by region
        self._into: Places = NOWHERE
        self._gradients: dict[int, tuple[Tensor, bool]] = {}
        self._sums: Mapping[int, Tensor] = {}
        self._taken: Counter[int] = Counter()  # number of pieces of scratch memory in use, by width
        self.values: list[Tensor] = [_NOTHING] * len(stage.widths)
        self.sparse: dict[int, SparseRows] = {}
        for number, name, _ in stage.parameters:
            self.values[number] = _find(parameters, name, stage)
        for number, name, *_ in stage.inputs:
            if name in chunk.sparse:
                self.sparse[number] = chunk.sparse[name]
            elif saved is None or name in chunk.values:
                self.values[number] = _find(chunk.values, name, stage).reshape(self._rows, stage.widths[number])
        for shift in stage.shifts:
            self.values[shift.out] = self.values[shift.parameter] + shift.number
        for region, memory in saved.values.items() if saved else ():
            self._memory[region] = self.values[stage.kept[region]] = _first(memory, self._rows)

    def forward(self, into: Places) -> Rows:
        """Run all kernels, and return the outputs."""
        self._into = into
        for kernel in self._stage.kernels:
            kernel.forward(self)
        return {name: self._put_out(number, name, shape) for number, name, shape in self._stage.outputs}

    def prepare(self) -> None:
        """Run the kernels that lead to the values that backward reads."""
        for kernel in self._stage.recomputed:
            kernel.forward(self)

    def _put_out(self, number: int, name: str, shape: tuple[int, ...]) -> Tensor:
        value = self.values[number]
        if self._stage.put_out.get(self._stage.region.get(number, -1)) == name:
            return value.view(self._rows, *shape)
        if name in self._into:  # the value is saved for backward or is an input, and must be copied
            return self._into[name].copy_(value.view(self._rows, *shape))
        return value.clone().view(self._rows, *shape)

    def backward(self, gradients: Mapping[str, Tensor], into: Places, sums: Places | None) -> StageGradients:
        """Run all adjoints, the last kernel's first."""
        stage = self._stage
        totals = {name: self._total(number, name, sums) for number, name, wanted in stage.parameters if wanted}
        self._sums = {number: totals[name] for number, name, wanted in stage.parameters if wanted}
        for number, name, _ in stage.outputs:
            if name in gradients:
                self.give(number, gradients[name].reshape(self._rows, stage.widths[number]), False)
        for kernel in reversed(stage.kernels):
            if kernel.out in self._gradients:
                kernel.backward(self)
        inputs = {
            name: self._gradient(number, name, shape, into) for number, name, shape, wanted in stage.inputs if wanted
        }
        return StageGradients(inputs, totals)

    def _total(self, number: int, name: str, sums: Places | None) -> Tensor:
        return torch.zeros(self.values[number].shape) if sums is None else sums[name]

    def _gradient(self, number: int, name: str, shape: tuple[int, ...], into: Places) -> Tensor:
        found = self._gradients.get(number)
        to = into[name] if name in into else torch.empty(self._rows, *shape)
        return to.zero_() if found is None else to.copy_(found[0].reshape(to.shape))

    def target(self, slot: int) -> Tensor:
        """Return the memory for the value of a slot."""
        stage = self._stage
        region, width = stage.region[slot], stage.widths[slot]
        memory = self._memory.get(region)
        if memory is None:
            name = stage.put_out.get(region)
            if name is None:
                memory = self.scratch(width)
            elif name in self._into:
                memory = self._into[name].view(self._rows, width)
            else:
                memory = torch.empty(self._rows, width)
            self._memory[region] = memory
        self.values[slot] = memory
        return memory

    def taken(self, slot: int) -> tuple[Tensor, bool]:
        """Return the gradient of a slot, and True if it may be overwritten."""
        return self._gradients[slot]

    def give(self, slot: int, gradient: Tensor, own: bool) -> None:
        """Add to the gradient of a slot."""
        if not self._stage.wanted[slot]:
            return
        before = self._gradients.get(slot)
        if before is None:
            self._gradients[slot] = gradient, own
        elif before[1]:
            before[0].add_(gradient)
        else:
            to = gradient if own else self.scratch(gradient.shape[1])
            self._gradients[slot] = torch.add(before[0], gradient, out=to), True

    def scratch(self, width: int) -> Tensor:
        """Return memory for a value or a gradient, [rows, width]."""
        self._taken[width] += 1
        return _scratch.get(self._taken[width], self._rows, width)

    def wants(self, slot: int) -> bool:
        """Return True if the gradient of a slot is needed."""
        return self._stage.wanted[slot]

    def sum_of(self, slot: int) -> Tensor:
        """Return the memory in which the gradient of a parameter is summed."""
        return self._sums[slot]

    def mask(self, key: int | str, threshold: int) -> Mask:
        """Return the mask of a dropout for the chunk's rows."""
        return Mask(self._randomness.operator(key), threshold, self._chunk.keys)


def _find(values: Mapping[str, Tensor], name: str, stage: FlatStage) -> Tensor:
    try:
        return values[name]
    except KeyError as missing:
        raise StageError(f"stage {stage.name}: the chunk came without {missing}") from None


def _first(memory: Tensor, rows: int) -> Tensor:
    return memory if memory.shape[0] == rows else memory[:rows]
