"""The state of a running pass on blocks: the RDDs that it has made, which of them are persisted, and what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lotan.engines.blocks.edges import EdgeSteps
from lotan.engines.blocks.pipe import Column, Contributions
from lotan.engines.blocks.reading import Reading
from planner.steps.learned_rows import LearnedRowsGradientStep
from planner.steps.pipe import PipeStep


@dataclass
class RunningPass:
    """The state of a running pass."""

    facade: Any  # the Scala object, see `lotan.engines.blocks.facade`
    in_one_heap: bool  # True if all partitions are in one JVM
    reading: Reading
    passing: frozenset[str]  # edge columns that their only reader computes as it goes
    parameters: Mapping[str, Tensor]
    edges: EdgeSteps = field(init=False)  # runs steps on edges, and holds what they make through this pass
    held: list[Any] = field(default_factory=list)  # RDDs that are persisted until the end of the pass
    # pipes by the number of the persisted RDD that they read, see Reading.readers
    read_by_pipes: dict[int, list[PipeStep]] = field(default_factory=dict)
    ends: dict[int, Any] = field(default_factory=dict)  # RDDs that no step has read yet, by identity
    files_of: dict[int, Any] = field(default_factory=dict)  # RDDs of columns' files, by the number of the column's RDD
    # the gradients of learned rows that are handed in at the end, by parameter
    handed_in: dict[str, tuple[LearnedRowsGradientStep, Column]] = field(default_factory=dict)

    def keep(self, made: Any, names: Sequence[str]) -> None:
        """Note a step's result: an end of the lineage until it is read, and persisted if several tasks may read it.

        A propagate reads a column from several tasks at once, and so does a collection. So a column that they may read
        is persisted. Edge columns that one task alone reads are not.

        Args:
            made: The RDD of the result.
            names: The names of the columns that it holds.
        """
        self.end(made)
        if any(self.reading.reads[name] and name not in self.passing for name in names):
            self.hold(made)
            pipes = self.reading.readers(names)
            if pipes:
                self.read_by_pipes[made.id()] = pipes

    def end(self, made: Any) -> None:
        """Note an RDD as an end of the lineage, until it is read."""
        self.ends[id(made)] = made

    def hold(self, made: Any) -> None:
        """Persist an RDD until the end of the pass."""
        self.facade.persist(made)
        self.held.append(made)

    def read(self, column: Column | Contributions) -> Any:
        """Return the rows of a column, which is no end of the lineage any more."""
        self.ends.pop(id(column.made if column.made is not None else column.rows), None)
        return column.rows

    def files(self, column: Column) -> Any:
        """Return the files of a column, which all sums of the pass read in turn."""
        number = column.rows.id()
        files = self.files_of.get(number)
        if files is None:
            files = self.files_of[number] = self.facade.files(column.rows)
            self.hold(files)
        return files

    def spent(self, step: PipeStep) -> list[dict[str, int]]:
        """Return the persisted RDDs that this pipe reads and no step but pipes, each with the number of its pipes."""
        if not self.in_one_heap:
            return []
        return [
            {"rdd": number, "readers": len(pipes)}
            for number, pipes in self.read_by_pipes.items()
            if any(pipe is step for pipe in pipes)
        ]

    def release(self) -> None:
        """Free the RDDs that are persisted."""
        for made in self.held:
            self.facade.release(made)
