"""The common part of engines on Spark: publish stages to workers, begin passes, and take what partitions commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from lotan.borders import translated
from lotan.engines.base import Outcome, Pass
from lotan.engines.observed import Extent
from lotan.errors import EngineError
from lotan.stages.codec import encode_program
from messenger.coordinator import CoordinatorLink
from messenger.errors import MessengerError
from messenger.jobs import EVALUATION, GRADIENT, STATISTICS, PipeJob
from planner.physical import Plan
from planner.steps.learned_rows import learned_parameters
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

PURPOSES = {"turn": "training", "evaluate": "evaluation", "predict": "prediction"}
"""The purpose of a pass, by the first of these modes that one of its pipes has."""
LONGEST = 24  # operators in the description of a pass


class Commits:
    """One run of a plan, as its coordinator sees it.

    Args:
        link: The link to the Router and its workers.
        plan: The plan whose stages workers will run.
        chunk_rows: The rows, of those sent together, that a worker runs a stage on at a time; None: all.
    """

    def __init__(self, link: CoordinatorLink, plan: Plan, chunk_rows: int | None = None) -> None:
        self.sent = self.received = 0  # bytes of all passes
        self.shared = 0  # the part of both that went through shared memory
        self._link, self._chunk_rows = link, chunk_rows
        self._publish(plan)

    @translated()
    def _publish(self, plan: Plan) -> None:
        self.run = uuid4().hex
        self.number = 0  # number of the running pass; an evaluation is another pass of the same epoch
        self._learned = learned_parameters(plan)
        self._jobs: list[tuple[str, str, Sequence[int]]] = []
        self._said = ""
        for stage in plan.stages:
            program = encode_program(stage, plan.source_gradients, self._chunk_rows)
            self._link.publish(self.run, stage.name, program)

    def renew(self, plan: Plan) -> None:
        """Switch to another plan. It becomes a new run; workers and coordinator forget the old one."""
        self.close()
        self._publish(plan)

    @translated()
    def begin(self, steps: Sequence[Step], a_pass: Pass) -> None:
        """Begin a pass: offer its parameters to the workers."""
        self.number += 1
        self._jobs = []
        self._said = described_pass(steps, a_pass.epoch)
        backward = [step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"]
        given = {name: one for name, one in a_pass.parameters.items() if name not in self._learned}
        parameters, drawn = offered(replace(a_pass, parameters=given))  # no stage reads learned rows: they are columns
        self._link.begin(self.run, self.number, parameters, drawn | {"backward": backward})

    def expect(self, step: PipeStep, partitions: Sequence[int]) -> None:
        """Note a pipe, in the order in which its sums are to be added, and the partitions that it runs on."""
        self._jobs.append((step.stage, step.mode, partitions))

    def __str__(self) -> str:
        return self._said

    def take(self) -> Outcome:
        """Return the results of all pipes. Each partition counts once, in the order of partitions.

        Raises:
            EngineError: If a partition did not commit, or if two attempts at it differ.
        """
        try:
            totals = self._link.wait([job for jobs in self._pipes() for job in jobs])
        except MessengerError as error:
            raise EngineError(f"{self}: {error}") from error
        self.sent += totals.bytes_sent
        self.received += totals.bytes_received
        self.shared += totals.bytes_shared
        sums = totals.tensors
        return Outcome(gradients_of(sums), sums.get(STATISTICS), sums.get(EVALUATION))

    def piped(self) -> list[Extent]:
        """Return, for each pipe that has been taken, its rows and its bytes in both directions."""
        found = [self._link.wait(jobs) for jobs in self._pipes()]
        return [Extent(one.rows, one.bytes_sent + one.bytes_received) for one in found]

    def _pipes(self) -> list[list[PipeJob]]:
        """Return the jobs of each pipe's partitions."""
        return [
            [PipeJob(self.run, self.number, stage, mode, part) for part in parts] for stage, mode, parts in self._jobs
        ]

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes that the messenger has moved in all passes, by the report's keys."""
        return {"messenger_sent": self.sent, "messenger_received": self.received, "messenger_shared": self.shared}

    def close(self) -> None:
        """Let workers and coordinator forget the run."""
        self._link.forget(self.run)


def occupied(nearest: Mapping[int, int], level: int | None = None) -> tuple[int, ...]:
    """Return the partitions with vertices within a level, in ascending order.

    Args:
        nearest: The lowest level of vertices, for each partition that has vertices.
        level: The level; None: all vertices.

    >>> occupied({3: 0, 1: 2}), occupied({3: 0, 1: 2}, 1)
    ((1, 3), (3,))
    """
    return tuple(part for part, lowest in sorted(nearest.items()) if level is None or lowest <= level)


def described_pass(steps: Sequence[Step], epoch: int) -> str:
    """Return the description of a pass: its epoch, its purpose, and its first operators in order."""
    modes = {step.mode for step in steps if isinstance(step, PipeStep)}
    purpose = next((words for mode, words in PURPOSES.items() if mode in modes), "computed once")
    operators = [_described(step) for step in steps]
    left_out = len(operators) - LONGEST
    shown = operators if left_out <= 0 else [*operators[:LONGEST], f"{left_out} more"]
    when = f"epoch {epoch}, {purpose}" if epoch else purpose
    return f"{when}: {' > '.join(shown)}"


def _described(step: Step) -> str:
    if isinstance(step, PipeStep):
        return f"{step.stage} {step.mode}"
    return type(step).__name__.removesuffix("Step")


def offered(a_pass: Pass) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the parameters of a pass as arrays, and as plain data what its random numbers depend on."""
    parameters = {name: tensor.detach().cpu().numpy() for name, tensor in a_pass.parameters.items()}
    return parameters, {"seed": a_pass.seed, "epoch": a_pass.epoch, "seeds": list(a_pass.seeds)}


def gradients_of(tensors: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return the gradients among committed sums, by the names of parameters."""
    return {
        name.removeprefix(GRADIENT): torch.from_numpy(np.array(total, dtype=np.float32))
        for name, total in tensors.items()
        if name.startswith(GRADIENT)
    }
