"""The options of the planner: the user's wishes, and the engine that will run the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from planner.cost.seconds import Pricing
from planner.regime import Sampling
from planner.traits import EngineTraits


@dataclass(frozen=True)
class EpochSeconds:
    """The estimated seconds of an epoch that does more than the passes of its plan."""

    training: float  # of all batches, with what is scored, drawn, and waited for
    evaluation: float  # of one evaluation
    ranking: float = 0.0  # the part of it in which links are ranked among all vertices


@dataclass(frozen=True)
class Options:
    """The user's options, and the choices that were made for the user before planning."""

    plan: Literal["auto", "general"] = "auto"  # "general": the paper's plan, without pushdown
    disabled: tuple[str, ...] = ()  # names of the rules to leave out
    rgb: bool = True  # Reverse Graph Backpropagation; False: the naive way
    eval_every: int = 1  # epochs between evaluations; 0: at the end only
    engine_reason: str = ""  # the reason, in words, for the engine that `pricing` names
    free_bytes: int | None = None  # memory that was free when the engine was chosen; None: it did not matter
    weights: str = ""  # the column of the edges' weights, in words
    types: str = ""  # the types of vertices and the relations of a graph that has several, in words
    learned_in: str = "in this process"  # the place of learned rows, in words
    memory: str = ""  # the estimated memory of the run, in words
    peak_bytes: int | None = None  # estimated peak of all processes on this host; None: the footprint of the plan
    seconds: EpochSeconds | None = None  # None: an epoch is one pass over the whole graph
    memory_limit: int | None = None  # bytes that all processes together may take; None: no limit
    pricing: Pricing = field(default_factory=Pricing)  # the engine that will run the plan, and its seconds
    choices: tuple[str, ...] = ()  # unusual choices of choose_physical besides the plan, in words
    # how the batches of an epoch are sampled; None: an epoch is one pass over the whole graph
    sampling: Sampling | None = None

    @property
    def traits(self) -> EngineTraits:
        """The traits of the engine that will run the plan."""
        return self.pricing.traits
