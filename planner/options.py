"""The options of the planner: what a user may ask of it, and the engine that will run the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from planner.cost import Pricing
from planner.traits import EngineTraits


@dataclass(frozen=True)
class Options:
    """Options that a user has, with what was decided for the user before the plan is made."""

    plan: Literal["auto", "general"] = "auto"  # "general": the paper's plan without pushdown
    disabled: tuple[str, ...] = ()  # rules by name
    rgb: bool = True  # Reverse Graph Backpropagation; False is the naive way
    eval_every: int = 1  # epochs between evaluations; 0: at the end only
    engine_reason: str = ""  # why the engine that `pricing` names
    free_bytes: int | None = None  # memory that was free when the engine was chosen, if that decided
    memory: str = ""  # what it is estimated to take, in words
    peak_bytes: int | None = None  # the same of all processes on this host; None: as without a limit
    memory_limit: int | None = None  # bytes that all processes may take; None: no limit
    pricing: Pricing = field(default_factory=Pricing)  # the engine that will run the plan, and its seconds
    choices: tuple[str, ...] = ()  # what choose_physical took beside the plan, otherwise than usual

    @property
    def traits(self) -> EngineTraits:
        """The traits of the engine that will run the plan."""
        return self.pricing.traits
