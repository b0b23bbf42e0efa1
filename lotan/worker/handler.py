"""The handler of a worker process: it runs stages on the chunks that arrive.

It stores what was sent to it (stages, an epoch's parameters, kept columns), and values that a forward run saves for its
backward. These are in memory within a budget. Beyond it they are in a file, if that costs less than computing them
again. Missing data is asked for again or recomputed: losing a worker loses nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.links.wire import PairScorer
from lotan.stages import tensor_names
from lotan.stages.chunk import NOWHERE, Chunk, EdgeBlock, Places, Terms
from lotan.stages.codec import decode_stage
from lotan.stages.pieces import Pieces
from lotan.stages.plan_codec import decode_plan
from lotan.stages.programs import Program, make_program
from lotan.stages.randomness import Randomness
from lotan.stages.saved_values import Memory
from lotan.stages.spill_file import SpillFile
from lotan.stages.stage_run import StageResult, StageRun
from lotan.worker.batch_run import BatchRun
from lotan.worker.saved_runs import SavedRuns
from messenger.fields import ALIGNMENT
from messenger.jobs import EVALUATION, GRADIENT, STATISTICS, ChunkKey
from messenger.room import Room
from planner.chunks import SAVED_BYTES
from planner.loss import TARGETS
from planner.physical import Mode
from planner.spec import EdgeSet

Tensors = dict[str, np.ndarray]


@dataclass
class _Run:
    """The data that the worker has of one training run."""

    programs: dict[str, Program] = field(default_factory=dict)
    pieces: dict[str, Pieces] = field(default_factory=dict)  # for stages whose chunks may be cut into pieces
    memory: Memory = field(default_factory=Memory)  # memory that the run's programs share
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    randomness: Randomness = field(default_factory=lambda: Randomness(0, 0))
    backward: frozenset[str] = frozenset()  # stages that run backward in this pass
    batches: BatchRun | None = None  # the plan of whole mini-batches, if the run has them


class StageHandler:
    """Runs stages with torch, as the `messenger.jobs.Handler` of a worker.

    The names of tensors are listed in `lotan.stages.tensor_names`.

    Args:
        memory: The bytes that forward runs may save in memory for their backward.
        spill: A folder on a local disk for what exceeds them; None: it is computed again.
    """

    def __init__(self, memory: int = SAVED_BYTES, spill: str | None = None) -> None:
        # arrays from the wire are read-only, and `_tensor` copies them
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._runs: dict[str, _Run] = {}
        self._saved = SavedRuns(memory, None if spill is None else SpillFile(spill))

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """Compile a stage of a run, or the plan of its mini-batches."""
        rows = program.get("rows")
        if rows is not None and not (type(rows) is int and rows > 0):
            raise StageError(f"stage {name}: rows is {rows!r}, expected a positive number")
        of_run = self._run(run)
        if name == tensor_names.BATCH:
            scorer = PairScorer(program["scorer"]) if "scorer" in program else None
            of_run.batches = BatchRun(decode_plan(program.get("plan")), rows, _tensor, scorer)
            return
        source_gradients = program.get("source_gradients")
        if source_gradients not in ("summed", "per_edge"):
            raise StageError(f"stage {name}: source_gradients is {source_gradients!r}, expected 'summed' or 'per_edge'")
        of_run.programs[name] = make_program(decode_stage(program.get("stage")), source_gradients, of_run.memory)
        if rows is not None:
            of_run.pieces[name] = Pieces(of_run.programs[name], rows)

    def parameters(self, run: str, pass_number: int, tensors: Tensors, settings: dict[str, Any]) -> None:
        """Store a pass's parameters and seed, and forget saved values of earlier passes."""
        self._saved.forget(run)
        of_run = self._run(run)
        of_run.parameters = {name: _tensor(tensor) for name, tensor in tensors.items()}
        drawn = int(settings["seed"]), int(settings["epoch"]), tuple(settings["seeds"]), int(settings.get("batch", 0))
        of_run.randomness = Randomness(*drawn)
        of_run.backward = frozenset(settings["backward"])

    def chunk(self, key: ChunkKey, tensors: Tensors, room: Room) -> Tensors:
        """Run a chunk in the mode that its key names."""
        of_run = self._run(key.run)
        if key.mode == tensor_names.BATCH and of_run.batches is not None:
            return of_run.batches.run(tensors, of_run.parameters, of_run.randomness)
        program = of_run.programs[key.stage]
        backward = key.mode == "backward"
        chunk = make_chunk(program, tensors, spared=backward and not self.lacks(key))
        keep = key.mode == "forward" and key.stage in of_run.backward and self._saved.takes(program.terms)
        if keep and not program.flat:  # an autograd graph holds on to what it was made of
            chunk = _own(chunk)
        run = StageRun(
            cast(Mode, key.mode),
            chunk,
            of_run.parameters,
            of_run.randomness,
            {value: _tensor(one) for value, one in tensor_names.output_gradients(tensors).items()},
            keep,
            self._saved.take(key) if backward else None,
        )
        run = replace(run, into=_places(program, run, room))
        return _tensors(run.mode, self._kept(key, of_run.pieces.get(key.stage, program), program.terms, run))

    def lacks(self, key: ChunkKey) -> bool:
        """Return True if nothing is saved of a chunk's forward run."""
        return not self._saved.has(key)

    def forget(self, run: str) -> None:
        """Forget all data of a run."""
        self._runs.pop(run, None)
        self._saved.forget(run)
        self._saved.clear()

    def _run(self, run: str) -> _Run:
        return self._runs.setdefault(run, _Run())

    def _kept(self, key: ChunkKey, body: Program | Pieces, terms: Terms, run: StageRun) -> StageResult:
        """Run the stage, and hold on to what its backward will read, if anything is to be kept."""
        if not run.keep:
            return body.run(run)
        with self._saved.measured() as size:
            found = body.run(run)
        if found.saved is not None:
            self._saved.put(key, found.saved, size.bytes + found.saved.bytes, terms)
        return found


def make_chunk(program: Program, tensors: Mapping[str, np.ndarray], spared: bool = False) -> Chunk:
    """Make a chunk from the tensors that came over the wire.

    Args:
        program: The program of the chunk's stage.
        tensors: The tensors by name, see `StageHandler`.
        spared: True if inputs may be missing that a backward needs only without a saved forward run.

    Raises:
        StageError: If a tensor is missing.
    """
    stage = program.stage
    try:
        values = {}
        for i in stage.inputs:
            name = (
                tensor_names.column(i.column)
                if i.role != "source"
                else tensor_names.source(cast(EdgeSet, i.edges), i.column)
            )
            if name in tensors or not spared or i.value in program.rereads:
                values[i.value] = _tensor(tensors[name]).view(-1, *i.shape)
        edges = {name: _edge_block(name, tensors, stage.edge_columns(name)) for name in stage.edge_sets}
        keys = _tensor(tensors[tensor_names.KEYS])
    except KeyError as missing:
        raise StageError(f"stage {stage.name}: the chunk came without {missing}") from None
    given = {name: tensors.get(tensor_names.column(name)) for name in TARGETS}
    targets: dict[str, Any] = {name: _tensor(one) for name, one in given.items() if one is not None}
    return Chunk(keys, values, edges, **targets)


def _edge_block(edges: EdgeSet, tensors: Mapping[str, np.ndarray], columns: Sequence[str]) -> EdgeBlock:
    weight, keys = tensors.get(tensor_names.weight(edges)), tensors.get(tensor_names.edge_keys(edges))
    return EdgeBlock(
        _tensor(tensors[tensor_names.indptr(edges)]),
        _tensor(tensors[tensor_names.positions(edges)]),
        None if weight is None else _tensor(weight),
        None if keys is None else _tensor(keys),
        {name: _tensor(tensors[tensor_names.edge_column(edges, name)]) for name in columns},
    )


def _tensor(array: np.ndarray) -> Tensor:
    """Return the array as a tensor, or a copy in torch's own memory if the array is not aligned.

    Arrays in inline frames may begin anywhere, and the last bit of a matrix product can depend on the alignment of its
    operands (Intel, "Conditional Numerical Reproducibility"; seen here between two loads of one graph). Attempts must
    not differ.
    """
    found = torch.from_numpy(np.require(array, requirements="C"))
    return found.clone() if found.data_ptr() % ALIGNMENT else found


def _own(chunk: Chunk) -> Chunk:
    """Return a copy of a chunk that outlives the memory it came in."""
    values = {name: value.clone() for name, value in chunk.values.items()}
    edges = {name: _own_edges(block) for name, block in chunk.edges.items()}
    return replace(chunk, keys=chunk.keys.clone(), values=values, edges=edges)


def _own_edges(block: EdgeBlock) -> EdgeBlock:
    return EdgeBlock(
        block.indptr.clone(),
        block.positions.clone(),
        None if block.weight is None else block.weight.clone(),
        None if block.keys is None else block.keys.clone(),
        {name: column.clone() for name, column in block.columns.items()},
    )


def _places(program: Program, run: StageRun, room: Room) -> Places:
    """Return the memory for the rows that come back, unless they belong to sources."""
    stage, rows = program.stage, run.chunk.rows
    if run.emits:
        return {o.value: _place(room, 1 if o.few else rows, o.shape) for o in stage.outputs}
    if run.differentiates:
        wanted = [i for i in stage.inputs if i.needs_gradient and i.role != "source"]
        return {i.value: _place(room, 1 if i.role == "total" else rows, i.shape) for i in wanted}
    return NOWHERE


def _place(room: Room, rows: int, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(room.array((rows, *shape)))


def _tensors(mode: Mode, found: StageResult) -> Tensors:
    """Return the tensors that go back, by their names on the wire."""
    tensors = {tensor_names.output(name): _flat(rows) for name, rows in found.outputs.items()}
    tensors |= {tensor_names.input_gradient(name): _flat(rows) for name, rows in found.input_gradients.items()}
    tensors |= {f"{GRADIENT}{name}": sums.contiguous().numpy() for name, sums in found.parameter_gradients.items()}
    if found.statistics is not None:
        tensors[STATISTICS if mode == "turn" else EVALUATION] = found.statistics
    return tensors


def _flat(rows: Tensor) -> np.ndarray:
    """Reshape [rows, *shape] to [rows, width]."""
    width = rows[:1].numel() if rows.shape[0] else int(np.prod(rows.shape[1:], dtype=np.int64))
    return rows.detach().reshape(rows.shape[0], width).contiguous().numpy()
