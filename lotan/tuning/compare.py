"""One model trained in several ways, such as full batch beside mini-batches: the seconds until each is as good as a target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lotan.arguments import require_kind, require_number
from lotan.errors import ConfigurationError, GraphError
from lotan.files import expanded, write_atomically
from lotan.graph.graph import Graph
from lotan.results.report import write_report
from lotan.results.run import Run
from lotan.settings.metric_names import LOWER_IS_BETTER, main_metric
from lotan.training.trainer import Trainer
from lotan.tuning.table import aligned
from planner.explain.view import framed

if TYPE_CHECKING:
    import pandas as pd

HEADS = ("way", "seconds", "epochs", "best val", "test", "best epoch", "seconds an epoch")


@dataclass(frozen=True)
class Way:
    """The training of the model in one way."""

    name: str
    run: Run = field(repr=False)
    points: tuple[tuple[int, float, float], ...]  # of evaluated epochs: epoch, training seconds so far, value on "val"

    def reached(self, target: float, sign: int) -> tuple[int, float] | None:
        """Return the first epoch as good as the target, and the training seconds until its end; None if there is none.

        Args:
            target: The value of the metric.
            sign: 1 if higher values are better, and -1 if lower ones are.
        """
        return next(((epoch, at) for epoch, at, value in self.points if sign * value >= sign * target), None)


@dataclass(frozen=True, repr=False)
class Compared:
    """One model trained in several ways. It shows itself as a table, and as a page in a notebook."""

    ways: tuple[Way, ...]
    monitor: str  # the metric, on the split "val"
    target: float

    def rows(self) -> list[dict[str, Any]]:
        """Return what the table shows, a dictionary for each way. Seconds and epochs are None if the target is not reached."""
        sign, found = self.sign, []
        for way in self.ways:
            epoch, seconds = way.reached(self.target, sign) or (None, None)
            metrics = way.run.metrics
            best = metrics.get("val", {}).get(self.monitor)
            test, history = metrics.get("test", {}).get(self.monitor), way.run.history
            each = sum(entry["train_seconds"] for entry in history) / len(history)
            values = (way.name, seconds, epoch, best, test, way.run.best_epoch, each)
            found.append(dict(zip(HEADS, values, strict=True)))
        return found

    @property
    def sign(self) -> int:
        """1 if higher values of the metric are better, and -1 if lower ones are."""
        return -1 if self.monitor in LOWER_IS_BETTER else 1

    def frame(self) -> pd.DataFrame:
        """Return the table as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def lines(self) -> list[str]:
        """Return the table as lines of text."""
        head = f"training seconds and epochs until val {self.monitor} is {self.target:.4f}"
        return [head, *aligned([HEADS, *([shown(value) for value in row.values()] for row in self.rows())])]

    def report(self) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the history of each way."""
        histories = {way.name: way.run.history for way in self.ways}
        return {"monitor": self.monitor, "target": self.target, "ways": self.rows(), "epochs": histories}

    def write_report(self, path: str | Path) -> None:
        """Write the report as JSON."""
        write_report(path, self.report())

    def html(self) -> str:
        """Return a page with the table and the curves by seconds and by epoch. It needs no network."""
        from lotan.tuning.compare_page import page

        return page(self)

    def write_html(self, path: str | Path) -> None:
        """Write the page that `html` returns to a file."""
        place, content = expanded(path), self.html().encode()
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, lambda stream: stream.write(content))

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return framed(self.html(), "one model trained in several ways")


def compare(
    model: torch.nn.Module,
    graph: Graph,
    ways: Mapping[str, Mapping[str, Any]],
    target: float | None = None,
    **options: Any,
) -> Compared:
    """Train one model in several ways, one after the other, and measure how soon each is as good as a target.

    Each way begins with the same weights. The model itself is not changed.

    Args:
        model: The model, as for `Trainer`.
        graph: The graph, with vertices or links of the split "val".
        ways: By name, the options of a `Trainer` in which the ways differ, such as
            `{"full batch": {}, "mini-batch": {"regime": lotan.MiniBatch(64, (10, 5))}}`.
        target: The value of the monitored metric on "val" to reach; None: the best one that all ways reach.
        options: The options of a `Trainer` that all ways have.

    Returns:
        The ways with their runs. Seconds are those of training passes and steps. Where the plan of a full batch reuses
        evaluation, its passes evaluate too.

    Raises:
        ConfigurationError: If there are no ways, or an option is unusable.
        GraphError: If nothing is in the split "val", or the graph cannot be trained on.
        ModelError, PlanError, EngineError: If `Trainer` raises it.
    """
    require_kind("compare", "ways", ways, Mapping, 'a dictionary such as {"full batch": {}, "other": {"regime": ...}}')
    if not ways:
        raise ConfigurationError("compare got no ways; give at least one, with the options of a Trainer")
    if target is not None:
        require_number("compare", "target", target)
    trainers = {name: Trainer(deepcopy(model), graph, **{**options, **dict(own)}) for name, own in ways.items()}
    for name, trainer in trainers.items():
        if not trainer.job.validation:
            raise GraphError(
                f"compare measures a metric of the split 'val', and nothing with a label is there (of {name!r}); set split to "
                "'val' for some"
            )
    monitor = _monitor(trainers)
    runs = {name: trainer.fit() for name, trainer in trainers.items()}
    found = tuple(Way(name, run, _points(run, monitor)) for name, run in runs.items())
    return Compared(found, monitor, _common(found, monitor) if target is None else float(target))


def _monitor(trainers: Mapping[str, Trainer]) -> str:
    names = {main_metric(one.config.monitor, one.job.loss.task) for one in trainers.values()}
    if len(names) > 1:
        raise ConfigurationError(f"the ways monitor several metrics, {', '.join(sorted(names))}; give all of them one")
    return names.pop()


def _points(run: Run, monitor: str) -> tuple[tuple[int, float, float], ...]:
    seconds, found = 0.0, []
    for entry in run.history:
        seconds += entry["train_seconds"]
        value = entry.get("metrics", {}).get("val", {}).get(monitor)
        if value is not None and math.isfinite(value):
            found.append((entry["epoch"], seconds, value))
    return tuple(found)


def _common(ways: tuple[Way, ...], monitor: str) -> float:
    """Return the best value that all ways reach."""
    if monitor in LOWER_IS_BETTER:
        return max(min(value for _, _, value in way.points) for way in ways)
    return min(max(value for _, _, value in way.points) for way in ways)


def shown(value: Any) -> str:
    """Return a value as the table shows it.

    >>> shown(None), shown(0.12345), shown(12)
    ('not reached', '0.1235', '12')
    """
    if value is None:
        return "not reached"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
