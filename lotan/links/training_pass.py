"""A training pass over pairs of vertices: in this process, on blocks, or in a worker for one mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from lotan.engines.base import Engine, Outcome
from lotan.links.decoders import PREFIX
from lotan.links.pairs import Scored
from lotan.stages.metrics import statistics_of_pairs


def train_on_pairs(engine: Engine, pass_of: Callable[[], Outcome], scored: Callable[[Tensor], Scored]) -> Outcome:
    """Run a training pass whose output rows are scored, and return its gradients with those of the decoder.

    Args:
        engine: The engine, with a graph loaded.
        pass_of: A function that runs the pass on the engine. It may run it again if it was lost.
        scored: A function from the output rows to their loss and gradients.
    """
    found: list[Scored] = []

    def scoring(rows: Tensor) -> Tensor:
        found[:] = [scored(rows)]
        return found[0].rows

    engine.scoring = scoring
    outcome = pass_of()
    of_decoder = {f"{PREFIX}{name}": gradient for name, gradient in found[0].decoder.items()}
    return replace(
        outcome,
        gradients={**outcome.gradients, **of_decoder},
        statistics=statistics_of_pairs(found[0].loss, found[0].terms),
    )
