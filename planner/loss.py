"""The loss of a model: its task, its terms, and what it reads beside the model's output."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

from planner.spec import Argument, Call, width_of

Task = Literal["classification", "multilabel", "regression", "link"]
"""The kinds of tasks. The first three predict labels of vertices, and "link" scores pairs of vertices."""


TARGETS = ("label", "split", "vertex_weight")
"""The columns that a loss may read beside the model's output. The last one is there for graphs with weights of vertices."""


@dataclass(frozen=True)
class LossForm:
    """A loss other than the task's own.

    A loss of a name in `lotan.stages.losses` has arguments. A traced one has calls, which read the values "output" and
    "label" and make its terms.
    """

    name: str = ""  # "" for a traced loss
    arguments: tuple[tuple[str, Argument], ...] = ()
    calls: tuple[Call, ...] = ()

    @property
    def traced(self) -> bool:
        """True for a loss that is a user's function."""
        return bool(self.calls)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.name or 'traced'}({given})" if given else self.name or "traced"


@dataclass(frozen=True)
class LossSpec:
    """The loss over the training vertices: a sum of weighted terms divided by `normalizer` (torch's reduction="mean").

    Classification with one output is binary: the output is the logit of class 1. The loss of a link task is not part of
    the plan, see `planner.steps.score`.
    """

    task: Task
    outputs: int  # width of the model's output: number of classes, labels or targets
    normalizer: float  # the number of terms of all training vertices, or the sum of their class weights
    class_weights: tuple[float, ...] | None = None
    form: LossForm | None = None  # None: cross-entropy, binary cross-entropy or the squared error
    metrics: tuple[str, ...] = ()  # further metrics to count for, see `lotan.settings.metric_names`
    # the probabilities above which labels count as predicted, or for two classes with one output class 1; None: 0.5
    thresholds: tuple[float, ...] | None = None
    # what the output rows hold behind the output, for a traced loss to read: by name, with the shape of a row
    further: tuple[tuple[str, tuple[int, ...]], ...] = ()
    # the share of training vertices that are left out, because the model sees their labels: drawn anew in each epoch
    shown: float | None = None
    vertex_weights: bool = False  # True if the terms of a vertex are multiplied by the graph's column "vertex_weight"

    @property
    def row_width(self) -> int:
        """The numbers of a row that the model returns: its output, and what the loss reads beside it."""
        return self.outputs + width_of(self.further)

    @property
    def targets(self) -> tuple[str, ...]:
        """The graph's columns that the loss reads, in the order of `TARGETS`."""
        return TARGETS if self.vertex_weights else TARGETS[:2]

    @property
    def cuts(self) -> tuple[float, ...] | None:
        """The outputs that have the probabilities of `thresholds`, or None for 0."""
        return None if self.thresholds is None else tuple(log(one / (1 - one)) for one in self.thresholds)

    @property
    def of_pairs(self) -> bool:
        """True if pairs of output rows are scored, and not each row by itself."""
        return self.task == "link"

    @property
    def binary(self) -> bool:
        """True for two classes with one output."""
        return self.task == "classification" and self.outputs == 1

    @property
    def classes(self) -> int:
        """The number of classes, labels or targets."""
        return 2 if self.binary else self.outputs

    @property
    def terms(self) -> int:
        """The number of terms of the loss that a vertex has."""
        if self.form is not None and self.form.traced:
            return self.form.calls[-1].type.width
        return 1 if self.task == "classification" else self.outputs
