"""The stage program for known calls: a flat list of kernels, over memory that is used again for the next chunk.

A chunk of some hundred rows stays in the processor's cache from the first kernel to the last. No autograd graph is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages.chunk import NOWHERE, Places
from lotan.stages.kernels import Kernel
from lotan.stages.known import Translation
from lotan.stages.randomness import Mask
from lotan.stages.saved_values import Memory, SavedValues
from lotan.stages.sparse_rows import SparseRows
from lotan.stages.stage_run import StageResult, StageRun
from planner.physical import Stage

Rows = dict[str, Tensor]

_NOTHING = torch.empty(0)


class FlatStage:
    """A stage whose calls are all known.

    Args:
        stage: the stage.
        memory: memory for the values that are kept for backward and for those that only a run needs, or None for memory
            of its own.

    Raises:
        Unknown: the stage has a call that no kernel does.
    """

    def __init__(self, stage: Stage, memory: Memory | None = None) -> None:
        translated = Translation(stage)
        slot = translated.slot
        self.name = stage.name
        self.kernels, self.widths = translated.kernels, translated.widths
        self.shifts = translated.shifts
        self.inputs = [(slot[i.value], i.value, i.shape, i.needs_gradient) for i in stage.inputs]
        self.totals = {slot[i.value] for i in stage.inputs if i.role == "total"}  # of one row each
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
        self.memory = memory or Memory()

    def _wanted(self) -> list[bool]:
        """Return the slots whose gradients backward needs."""
        wanted = [False] * len(self.widths)
        for number, _, _, gradient in self.inputs:
            wanted[number] = gradient
        for number, _, trainable in self.parameters:
            wanted[number] = trainable
        for kernel in self.kernels:
            wanted[kernel.out] = any(wanted[number] for number in (*kernel.inputs, *kernel.parameters))
        return wanted

    def _regions(self, fixed: set[int]) -> dict[int, int]:
        """Return the slots that share memory. A kernel writes over its first input if nothing reads that afterwards."""
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

    def forward(self, run: StageRun) -> StageResult:
        """Return the outputs, and with `run.keep` the values of this run that `backward` reads."""
        saved = None
        if run.keep:
            rows = run.chunk.rows
            values = {region: self.memory.take(rows, self.widths[slot]) for region, slot in self.kept.items()}
            saved = SavedValues(rows, self.memory, values)
        with torch.no_grad():
            return StageResult(_KernelRun(self, run, saved).forward(run.into), saved)

    def backward(self, run: StageRun) -> StageResult:
        """Return the vector-Jacobian product. Forward runs first if nothing was saved."""
        saved = run.saved if isinstance(run.saved, SavedValues) else None
        with torch.no_grad():
            kernels = _KernelRun(self, run, saved)
            if saved is None:
                kernels.prepare()
            found = kernels.backward(run.output_gradients)
        if saved:
            self.memory.give(saved.values)
        return found

    def turn(self, run: StageRun, loss: Callable[[Tensor], Tensor]) -> StageResult:
        """Run forward, `loss`, which maps the one output to its gradient, and backward."""
        with torch.no_grad():
            kernels = _KernelRun(self, run)
            ((name, rows),) = kernels.forward(NOWHERE).items()
            return kernels.backward({name: loss(rows)})


class _KernelRun:
    """The run of the kernels on one chunk: a `lotan.stages.kernels.Running`."""

    def __init__(self, stage: FlatStage, run: StageRun, saved: SavedValues | None = None) -> None:
        chunk = run.chunk
        self._stage, self._run = stage, run
        self._rows = chunk.rows
        self._memory: dict[int, Tensor] = {}  # by region
        self._into: Places = NOWHERE
        self._gradients: dict[int, tuple[Tensor, bool]] = {}
        self._sums: Mapping[int, Tensor] = {}
        self._taken: Counter[int] = Counter()  # number of pieces of scratch memory in use, by width
        self.values: list[Tensor] = [_NOTHING] * len(stage.widths)
        self.sparse: dict[int, SparseRows] = {}
        for number, name, _ in stage.parameters:
            self.values[number] = _find(run.parameters, name, stage)
        for number, name, *_ in stage.inputs:
            if name in chunk.sparse:
                self.sparse[number] = chunk.sparse[name]
            elif saved is None or name in chunk.values:
                rows = self._rows_of(number)
                self.values[number] = _find(chunk.values, name, stage).reshape(rows, stage.widths[number])
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
        """Run the kernels that lead to the values which backward reads."""
        for kernel in self._stage.recomputed:
            kernel.forward(self)

    def _put_out(self, number: int, name: str, shape: tuple[int, ...]) -> Tensor:
        value = self.values[number]
        if self._stage.put_out.get(self._stage.region.get(number, -1)) == name:
            return value.view(self._rows, *shape)
        if name in self._into:  # the value is saved for backward or is an input, and must be copied
            return self._into[name].copy_(value.view(self._rows, *shape))
        return value.clone().view(self._rows, *shape)

    def backward(self, gradients: Mapping[str, Tensor]) -> StageResult:
        """Run the adjoints of all kernels, beginning with the last kernel."""
        stage, into, sums = self._stage, self._run.into, self._run.sums
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
        return StageResult(input_gradients=inputs, parameter_gradients=totals)

    def _total(self, number: int, name: str, sums: Places | None) -> Tensor:
        return torch.zeros(self.values[number].shape) if sums is None else sums[name]

    def _gradient(self, number: int, name: str, shape: tuple[int, ...], into: Places) -> Tensor:
        found = self._gradients.get(number)
        to = into[name] if name in into else torch.empty(self._rows_of(number), *shape)
        return to.zero_() if found is None else to.copy_(found[0].reshape(to.shape))

    def _rows_of(self, slot: int) -> int:
        """Return the number of rows of an input."""
        return 1 if slot in self._stage.totals else self._rows

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
        """Return the gradient of a slot, and whether it may be overwritten."""
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
        return self._stage.memory.scratch.get(self._taken[width], self._rows, width)

    def wants(self, slot: int) -> bool:
        """Return True if the gradient of a slot is needed."""
        return self._stage.wanted[slot]

    def sum_of(self, slot: int) -> Tensor:
        """Return the memory in which the gradient of a parameter is summed."""
        return self._sums[slot]

    def mask(self, key: int | str, threshold: int) -> Mask:
        """Return the mask of the numbers that a dropout keeps."""
        return Mask(self._run.randomness.operator(key), threshold, self._run.chunk.keys)


def _find(values: Mapping[str, Tensor], name: str, stage: FlatStage) -> Tensor:
    try:
        return values[name]
    except KeyError as missing:
        raise StageError(f"stage {stage.name}: the chunk came without {missing}") from None


def _first(memory: Tensor, rows: int) -> Tensor:
    return memory if memory.shape[0] == rows else memory[:rows]
