"""The interface of a Graph Engine, and the loop that runs a plan's steps on any of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lotan.graph import Graph
from planner.physical import CollectStep, GatherStep, PipeStep, Plan, PropagateStep, Step

Handle = Any
"""An engine's own way to hold a column or a collection: a tensor, a DataFrame and a field name, a block RDD."""


@dataclass(frozen=True)
class Pass:
    """One walk over a plan's steps."""

    epoch: int
    parameters: Mapping[str, torch.Tensor]  # every parameter and buffer, by name; the same throughout the pass
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a pass leaves behind beside columns."""

    gradients: Mapping[str, torch.Tensor] = field(default_factory=dict)  # by parameter name, summed in partition order
    statistics: np.ndarray | None = None  # float64 [splits, k], see lotan.metrics
    columns: Mapping[str, Handle] = field(default_factory=dict)  # those asked for by `keep`


class Engine(ABC):
    """Runs plans over one loaded graph. Engines differ in where columns live and in nothing a user can see in the numbers."""

    name: str

    @abstractmethod
    def load(self, graph: Graph, plan: Plan) -> None:
        """Make the graph's static columns and edge sets that `plan` reads available."""

    @abstractmethod
    def static(self, name: str) -> Handle:
        """A static column of the loaded graph."""

    @abstractmethod
    def propagate(self, step: PropagateStep, column: Handle) -> Handle:
        """Sum along edges."""

    @abstractmethod
    def collect(self, step: CollectStep, columns: Sequence[Handle]) -> Handle:
        """Neighbourhoods, for a pipe."""

    @abstractmethod
    def gather(self, step: GatherStep, contributions: Handle) -> Handle:
        """The adjoint of collect."""

    @abstractmethod
    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage; `values` holds all columns and collections the step names, the result its outputs by name."""

    @abstractmethod
    def release(self, handle: Handle) -> None:
        """Called once for every column and collection that is not static, after its last use."""

    @abstractmethod
    def begin(self, plan: Plan, a_pass: Pass) -> None:
        """Called before the first step of a pass."""

    @abstractmethod
    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """Called after the last step: force whatever is still lazy, and return what the stages committed."""

    @abstractmethod
    def close(self) -> None:
        """Free everything the engine holds. May be called twice."""
