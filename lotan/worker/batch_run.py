"""A whole mini-batch in a worker: it runs the plan of a batch through the local engine, and returns gradients and statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lotan.engines.base import Pass, run
from lotan.engines.local.batch_graph import batch_columns, load_batch, only_targets, sampled_edges
from lotan.engines.local.engine import LocalEngine
from lotan.engines.local.loaded_graph import FromGraph
from lotan.errors import StageError
from lotan.graph.arrays import GraphArrays
from lotan.links.training_pass import train_on_pairs
from lotan.links.wire import PairScorer, of_model
from lotan.stages import tensor_names
from lotan.stages.programs import make_program
from lotan.stages.randomness import Randomness
from lotan.stages.saved_values import Memory
from messenger.jobs import GRADIENT, STATISTICS
from planner.physical import Plan
from planner.steps.learned_rows import learned_parameters
from planner.steps.score import ScoreStep

ToTensor = Callable[[np.ndarray], Tensor]


class BatchRun:
    """Runs the mini-batches of one plan, one after the other.

    Args:
        plan: The plan of a batch.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        to_tensor: A function that makes a tensor of an array from the wire.
        scorer: The scorer of the pairs of a link task; None for other tasks.

    Raises:
        StageError: If the plan scores pairs and there is no scorer, or if it scores none and there is one.
    """

    def __init__(
        self, plan: Plan, chunk_rows: int | None, to_tensor: ToTensor, scorer: PairScorer | None = None
    ) -> None:
        if any(isinstance(step, ScoreStep) for step in plan.train) != (scorer is not None):
            raise StageError("a plan that scores pairs comes with what scores them, and no other plan does")
        self._plan, self._chunk_rows, self._to_tensor, self._scorer = plan, chunk_rows, to_tensor, scorer
        memory = Memory()
        self._learned = learned_parameters(plan)
        self._programs = {stage.name: make_program(stage, plan.source_gradients, memory) for stage in plan.stages}

    def run(
        self, tensors: Mapping[str, np.ndarray], parameters: Mapping[str, Tensor], of: Randomness
    ) -> dict[str, np.ndarray]:
        """Return the gradients and the statistics of a batch, by their names on the wire.

        Args:
            tensors: The batch, as `lotan.stages.tensor_names` describes it.
            parameters: The parameters and buffers of the pass, by name. Of learned rows, those of the batch in its order, and
                the rows of types that `lotan.stages.tensor_names` describes.
            of: The seeds, the epoch and the batch.

        Raises:
            StageError: If a tensor is missing, or if the tensors do not fit together.
        """
        engine, plan = LocalEngine(self._chunk_rows), self._plan
        edges, given = self._edges(tensors), self._given(tensors)
        given = replace(given, of_types=self._rows_of_types(parameters, len(given.keys)))
        a_pass = Pass(of.epoch, of_model(parameters), of.seed, of.seeds, of.batch)
        with closing(engine):
            engine.turn_to(load_batch(edges, plan, self._chunk_rows, given))
            if self._scorer is None:
                found = run(engine, plan, plan.train, a_pass)
            else:
                scorer, targets = self._scorer, given.counts[0]
                found = train_on_pairs(
                    engine,
                    lambda: run(engine, plan, plan.train, a_pass),
                    lambda rows: scorer.score(rows, parameters, targets),
                )
        assert found.statistics is not None  # a training pass always has them
        gradients = {f"{GRADIENT}{name}": _rows(one).contiguous().numpy() for name, one in found.gradients.items()}
        return {**gradients, STATISTICS: found.statistics}

    def _rows_of_types(self, parameters: Mapping[str, Tensor], vertices: int) -> dict[int, Tensor]:
        """Return the rows of vertices among those of their type, by its number. All learned rows are checked."""
        found: dict[int, Tensor] = {}
        for name, step in self._learned.items():
            rows = torch.arange(vertices)
            if step.of_type is not None:
                given = parameters.get(tensor_names.rows_of_type(step.of_type.number), rows[:0])
                rows = given[given >= 0]
                found[step.of_type.number] = given
                if len(given) != vertices or not torch.equal(rows, torch.arange(len(rows))):
                    raise StageError(f"a batch of {vertices} vertices came without those of type {step.of_type.number}")
            if name not in parameters or len(parameters[name]) != len(rows):
                raise StageError(f"a batch of {vertices} vertices came without their rows of {name!r}")
        return found

    def _given(self, tensors: Mapping[str, np.ndarray]) -> FromGraph:
        counts = tuple(_of(tensors, tensor_names.LEVELS).tolist())
        keys = self._to_tensor(_of(tensors, tensor_names.KEYS))
        rows = len(keys)
        if not counts or list(counts) != sorted(counts) or counts[-1] != rows or counts[0] < 0:
            raise StageError(f"a batch of {rows} vertices has levels of {counts}")
        static = {"split": only_targets(rows, counts[0])}
        for column in batch_columns(self._plan):
            if column.name != "split":
                sent = self._to_tensor(_of(tensors, tensor_names.column(column.name)))
                if len(sent) != rows:
                    raise StageError(f"a batch of {rows} vertices has {len(sent)} rows of {column.name!r}")
                static[column.name] = sent
        return FromGraph(counts, torch.arange(rows), keys, static, self._programs, {})

    def _edges(self, tensors: Mapping[str, np.ndarray]) -> GraphArrays:
        rows = len(_of(tensors, tensor_names.KEYS))
        src, dst = (_of(tensors, name) for name in (tensor_names.SOURCES, tensor_names.DESTINATIONS))
        ends = np.concatenate([src, dst])
        if len(src) != len(dst) or (len(ends) and not 0 <= ends.min() <= ends.max() < rows) or (np.diff(dst) < 0).any():
            raise StageError(f"the edges of a batch of {rows} vertices are no edges among them, by destination")
        columns = (tensors.get(tensor_names.batch_edges(name)) for name in tensor_names.OF_EDGES)
        return sampled_edges(np.arange(rows), src, dst, *columns)


def _rows(gradient: Tensor) -> Tensor:
    """Return a gradient, or the rows of one that is sparse: those of the first vertices of the batch, in its order."""
    return gradient.values() if gradient.is_sparse else gradient


def _of(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in tensors:
        raise StageError(f"a batch came without {name!r}")
    return tensors[name]
