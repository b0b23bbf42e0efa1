"""The loss of a run: what its settings say, on the labels of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from lotan.errors import ConfigurationError
from lotan.graph.graph import Graph
from lotan.settings.config import TrainerConfig
from lotan.settings.losses import LossSetting, form_of_name, loss_words, named_loss
from lotan.settings.metric_names import further_metrics
from lotan.tracing.loss import LossFunction, trace_loss
from lotan.tracing.outputs import Further
from planner.loss import LossForm, LossSpec, Task


def loss_of(graph: Graph, task: Task, outputs: int, config: TrainerConfig, further: Further = ()) -> LossSpec:
    """Return the loss over a graph's training vertices, with the further metrics that the settings ask for.

    Args:
        graph: The graph.
        task: The task.
        outputs: The width of the model's output.
        config: The settings of the run.
        further: The values that the model returns beside its output, which the loss reads.

    Raises:
        ConfigurationError: If the loss, the class weights or a metric does not fit the task or the outputs.
        ModelError: If the loss is a function that cannot be traced.
        GraphError: If no training vertex has a label.
    """
    form = None if config.loss is None else form_of(config.loss, task, outputs, further)
    classes = LossSpec(task, outputs, 1.0).classes
    metrics = further_metrics(config.metrics, config.monitor, task, classes)
    loss = replace(graph.loss_spec(task, outputs, config.class_weights, form, metrics), further=further)
    if loss.class_weights is not None and task == "multilabel" and loss.terms != outputs:
        raise ConfigurationError(
            f"class_weights weigh labels, but the loss {loss_words(config.loss or '')} has one number for each vertex; "
            "return one for each label, or leave class_weights out"
        )
    return loss if config.threshold is None else replace(loss, thresholds=_thresholds(config.threshold, loss))


def _thresholds(given: float | Sequence[float], loss: LossSpec) -> tuple[float, ...]:
    """Return a threshold for each output.

    Raises:
        ConfigurationError: If the task takes none, or their number is not that of the outputs.
    """
    if loss.task != "multilabel" and not loss.binary:
        raise ConfigurationError(
            f"threshold is for several labels, or for two classes with one output; the task is {loss.task} with {loss.outputs} "
            "outputs: leave threshold out"
        )
    numbers = tuple(map(float, [given] if isinstance(given, int | float | np.number) else given))
    if len(numbers) not in (1, loss.outputs):
        raise ConfigurationError(
            f"threshold has {len(numbers)} numbers, but there are {loss.outputs} labels; give one for each, or one for all"
        )
    return numbers * (loss.outputs // len(numbers))


def form_of(given: LossSetting, task: Task, outputs: int, further: Further = ()) -> LossForm | None:
    """Return the form of a loss; None if it is the task's own.

    Raises:
        ConfigurationError: If the loss is unknown or is for other tasks.
        ModelError: If the loss is a function that cannot be traced.
    """
    named = named_loss(given)
    if named is not None:
        return form_of_name(named, task, outputs)
    assert not isinstance(given, str)  # a text is a name
    return _traced(given, task, outputs, further)


@lru_cache(maxsize=16)  # the members of a batch have one loss
def _traced(function: LossFunction, task: Task, outputs: int, further: Further) -> LossForm:
    return trace_loss(function, task, outputs, further)
