"""A training pass over pairs of vertices, on the local engine: in this process, or in a worker for one mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from lotan.engines.base import Outcome, Pass, run
from lotan.engines.local import LocalEngine
from lotan.links.decoders import PREFIX
from lotan.links.pairs import Scored
from lotan.stages.metrics import statistics_of_pairs
from planner.physical import Plan


def train_on_pairs(engine: LocalEngine, plan: Plan, a_pass: Pass, scored: Callable[[Tensor], Scored]) -> Outcome:
    """Run a training pass whose output rows are scored, and return its gradients with those of the decoder.

    Args:
        engine: The engine, with a graph loaded.
        plan: The plan.
        a_pass: The pass.
        scored: A function from the output rows to their loss and gradients.
    """
    found: list[Scored] = []

    def scoring(rows: Tensor) -> Tensor:
        found.append(scored(rows))
        return found[0].rows

    engine.scoring = scoring
    outcome = run(engine, plan, plan.train, a_pass)
    of_decoder = {f"{PREFIX}{name}": gradient for name, gradient in found[0].decoder.items()}
    return replace(
        outcome,
        gradients={**outcome.gradients, **of_decoder},
        statistics=statistics_of_pairs(found[0].loss, found[0].terms),
    )
