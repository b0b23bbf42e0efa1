"""Which engine runs which step on edges: each its own by a `case`, and all that its abilities promise."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module

import pytest

import planner.steps
from lotan.engines.blocks import edges as blocks
from lotan.engines.choice import ENGINES
from lotan.engines.local import edge_columns as local
from planner.steps.edge_step import EdgeStep
from planner.steps.step import Step

for file in pkgutil.iter_modules(planner.steps.__path__):
    import_module(f"planner.steps.{file.name}")
RUN_BY = {"local": inspect.getsource(local), "blocks": inspect.getsource(blocks)}
"""The source of what runs steps on edges, by engine; any other runs none."""


def kinds(of: type) -> set[type]:
    """The planner's classes below one, without those that are only a part of others."""
    below = {kind for one in of.__subclasses__() for kind in kinds(one) | {one}}
    return {kind for kind in below if kind.__module__.startswith("planner.") and not inspect.isabstract(kind)}


STEPS = sorted(kinds(Step), key=lambda kind: kind.__name__)
ON_EDGES = [step for step in STEPS if issubclass(step, EdgeStep)]


def lacking(engine: str) -> set[str]:
    """The steps on edges that an engine has no case for."""
    cases = set(re.findall(r"^            case (\w+)\(", RUN_BY.get(engine, ""), re.MULTILINE))
    return {step.__name__ for step in ON_EDGES} - cases


def test_all_steps_are_found():
    """There are those of every plan, and at least one on edges."""
    assert {"PipeStep", "PropagateStep", "CollectStep", "GatherStep"} < {step.__name__ for step in STEPS}
    assert ON_EDGES


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_lacks_the_steps_that_need_abilities_it_has_not(engine):
    """A step that fails here has no case in the engine's file; or the engine's traits keep quiet about an ability."""
    needing = {step.__name__ for step in ON_EDGES if step.NEEDS not in ENGINES[engine].abilities}
    assert lacking(engine) == needing
