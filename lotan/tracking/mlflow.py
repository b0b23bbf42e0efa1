"""The MLflow tracker, which logs a run's settings, figures, plan and model.

MLflow's own environment variables apply: `MLFLOW_TRACKING_URI` is the server or folder, `MLFLOW_EXPERIMENT_NAME` is the
experiment (default: lotan), and `MLFLOW_RUN_NAME` is the run's name. If an MLflow run is active already, it becomes the
parent.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lotan.errors import ConfigurationError, EngineError
from lotan.tracking.tracker import Entry, Start, Tracker, scalars
from lotan.version import __version__
from planner.explain.formats import explain

if TYPE_CHECKING:
    from lotan.results.run import Run

log = logging.getLogger(__name__)

EXPERIMENT = "lotan"
LONGEST = 500  # characters of a parameter that all of MLflow's stores take
TOGETHER = 100  # parameters that MLflow takes at a time


class Mlflow(Tracker):
    """Logs to MLflow. An error after training has begun is logged as a warning and ends the logging, not the training.

    Args:
        name: the run's name (default: the value of `MLFLOW_RUN_NAME`).

    Raises:
        ConfigurationError: MLflow is not installed, or cannot use its store.
        EngineError: the store cannot be reached or refuses the run. `begin` raises this error.
    """

    def __init__(self, name: str = "") -> None:
        if find_spec("mlflow") is None:
            raise ConfigurationError("mlflow is asked for, but not installed: pip install 'lotan[mlflow]'")
        from mlflow.tracking import MlflowClient

        try:
            self._client = MlflowClient()
        except Exception as error:  # its type depends on the store
            raise ConfigurationError(
                f"MLflow cannot use its store at {_address()} (MLFLOW_TRACKING_URI): {_first_line(error)}"
            ) from error
        self._name = name or os.environ.get("MLFLOW_RUN_NAME")
        self._run: str | None = None
        self._status = "FAILED"

    def begin(self, start: Start) -> None:
        """Create a run in MLflow, with the settings as its parameters and the plan as a page."""
        try:
            made = self._client.create_run(self._experiment(), tags=_tags(), run_name=self._name)
            self._run = made.info.run_id
            self._parameters(start.configuration)
            if start.planned is not None:
                self._client.log_text(self._run_id, explain(start.planned), "plan.txt")
                self._client.log_text(self._run_id, explain(start.planned, "html"), "plan.html")
            for entry in start.history:
                self._figures(entry)
        except Exception as error:  # its type depends on the store
            self.close()
            raise EngineError(f"MLflow at {_address()} does not take the run: {_first_line(error)}") from error

    def epoch(self, entry: Entry) -> None:
        """Add a point to each chart."""
        self._try(lambda: self._figures(entry))

    def finish(self, run: Run) -> None:
        """Log the best epoch's figures, the report and the model."""
        self._try(lambda: self._results(run))

    @property
    def _run_id(self) -> str:
        assert self._run is not None, "it has begun, and the store has taken all so far"
        return self._run

    def close(self) -> None:
        """Set the run's final status, FINISHED or FAILED."""
        if self._run is not None:
            self._try(lambda: self._client.set_terminated(self._run_id, self._status))
            self._run = None

    def _try(self, log_it: Callable[[], None]) -> None:
        if self._run is None:
            return
        try:
            log_it()
        except Exception as error:  # its type depends on the store
            log.warning("MLflow is told no more of this run: %s", _first_line(error))
            self._run = None

    def _experiment(self) -> str:
        import mlflow

        active = mlflow.active_run()
        if active is not None:
            return str(active.info.experiment_id)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _parameters(self, configuration: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        found = [Param(name, str(value)[:LONGEST]) for name, value in flat(configuration).items()]
        for first in range(0, len(found), TOGETHER):
            self._client.log_batch(self._run_id, params=found[first : first + TOGETHER])

    def _figures(self, entry: Entry) -> None:
        self._metrics(scalars(entry), entry["epoch"])

    def _metrics(self, figures: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._run_id, [Metric(name, value, now, step) for name, value in figures.items()])

    def _results(self, run: Run) -> None:
        best = scalars({"loss": 0.0, "train_seconds": 0.0, "metrics": run.metrics})
        figures = {f"best/{name}": value for name, value in best.items() if name.partition("/")[2] in run.metrics}
        self._metrics(figures | {"best/epoch": run.best_epoch}, run.best_epoch)
        self._client.log_dict(self._run_id, run.report, "report.json")
        with tempfile.TemporaryDirectory(prefix="lotan-mlflow-") as folder:
            run.save(folder)
            self._client.log_artifacts(self._run_id, folder, "model")
        self._status = "FINISHED"


def flat(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested settings by one name each. Settings that are None are left out.

    >>> flat({"settings": {"epochs": 5, "optimizer": {"name": "Adam", "groups": {}}, "router": None}})
    {'settings.epochs': 5, 'settings.optimizer.name': 'Adam'}
    """
    found: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{above}{key}.")
        elif value is not None:
            found[f"{above}{key}"] = value
    return found


def _tags() -> dict[str, str]:
    import mlflow

    active = mlflow.active_run()
    parent = {} if active is None else {"mlflow.parentRunId": active.info.run_id}
    return {"lotan.version": __version__, **parent}


def _address() -> str:
    import mlflow

    return str(mlflow.get_tracking_uri())


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
