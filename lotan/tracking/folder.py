"""A run's folder. It has everything that is needed to inspect the run and to repeat it.

| file | content |
|---|---|
| `configuration.json` | settings, model and graph |
| `environment.json` | Python, every installed package with its version, the machine |
| `command.json` | the options of `lotan train`, for `lotan rerun` (where that started the run) |
| `initial.pt` | the weights that training started from |
| `plan.txt`, `plan.html` | the plan, as `lotan explain` prints and draws it |
| `epochs.jsonl` | a line of JSON an epoch, as the epochs come |
| `report.json`, `model/` | at the end: the report, and the trained model for `lotan.load` |
"""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

from lotan.errors import ConfigurationError
from lotan.files import write_atomically
from lotan.results.report import finite, versions, write_report
from lotan.tracking.tracker import Entry, Start, Tracker
from planner.explain.formats import explain

if TYPE_CHECKING:
    from lotan.results.run import Run

EPOCHS = "epochs.jsonl"
VARIABLES = ("OMP_NUM_THREADS", "MKL_CBWR", "SPARK_HOME", "SPARK_CONF_DIR", "JAVA_HOME", "LOTAN_DATA", "LOTAN_COSTS")
"""The environment variables that may matter to a run. All others are left out, because they may be secrets."""


class RunFolder(Tracker):
    """Writes a run's folder.

    Args:
        folder: the folder, which is made if it does not exist.
        resumed: if True, the folder may have a run already, which goes on (default: False).

    Raises:
        ConfigurationError: the folder has another run, or is a file.
    """

    def __init__(self, folder: Path, resumed: bool = False) -> None:
        epochs = folder / EPOCHS
        if epochs.exists() and epochs.stat().st_size and not resumed:
            raise ConfigurationError(
                f"log_dir {folder} holds a run already: name another folder, or go on with that run by resume"
            )
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(f"log_dir {folder} is a file; name a folder")
        self._folder = folder

    def begin(self, start: Start) -> None:
        """Write the files that are known before the first epoch."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_report(self._folder / "configuration.json", start.configuration)
        write_report(self._folder / "environment.json", environment())
        if start.planned is not None:
            self._write("plan.txt", explain(start.planned))
            self._write("plan.html", explain(start.planned, "html"))
        if start.weights and not start.history:
            weights = dict(start.weights)
            write_atomically(self._folder / "initial.pt", lambda stream: torch.save(weights, stream))
        # a killed run may have written epochs after its last checkpoint, which are trained and recorded once more
        self._write(EPOCHS, "".join(map(_line, start.history)))

    def epoch(self, entry: Entry) -> None:
        """Append the epoch's line."""
        with open(self._folder / EPOCHS, "a") as lines:
            lines.write(_line(entry))

    def finish(self, run: Run) -> None:
        """Write the report and the model, and all lines again, because an epoch may have been evaluated after its line."""
        self._write(EPOCHS, "".join(map(_line, run.history)))
        run.save(self._folder / "model", overwrite=True)
        run.write_report(self._folder / "report.json")

    def _write(self, name: str, content: str) -> None:
        write_atomically(self._folder / name, lambda stream: stream.write(content.encode()))


def environment() -> dict[str, Any]:
    """Return the versions, packages, machine and variables of this process, as plain data."""
    packages = sorted((found.name, found.version) for found in metadata.distributions() if found.name)
    return {
        "versions": versions(),
        "packages": dict(packages),
        "machine": {
            "system": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "threads": torch.get_num_threads(),
        },
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _line(entry: Entry) -> str:
    return json.dumps(finite(entry), allow_nan=False) + "\n"
