"""What a user may ask of the planner, and what it has to know of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from planner.cost import Pricing
from planner.spec import Ability


@dataclass(frozen=True)
class Options:
    """What a user may ask of the planner."""

    plan: Literal["auto", "general"] = "auto"  # "general": the paper's plan without pushdown
    disabled: tuple[str, ...] = ()  # rules by name
    rgb: bool = True  # Reverse Graph Backpropagation; False is the naive way
    eval_every: int = 1  # epochs between evaluations; 0: at the end only
    abilities: tuple[Ability, ...] = ()  # of the engine, beyond sums of rows and collecting
    engine: str = "local"  # what will run the plan
    engine_reason: str = ""  # why that engine
    memory: str = ""  # what it is estimated to take, in words
    peak_bytes: int | None = None  # the same of all processes on this host; None: as without a limit
    memory_limit: int | None = None  # bytes that all processes may take; None: no limit
    pricing: Pricing = field(default_factory=Pricing)  # of seconds
    choices: tuple[str, ...] = ()  # what choose_physical took beside the plan, otherwise than usual


def in_process(engine: str) -> bool:
    """True if an engine runs plans in this process: it has no workers, and a pass is no job."""
    return engine == "local"
