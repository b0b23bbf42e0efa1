"""Spark's Python workers load neither torch nor, for what runs often, the planner: each would take seconds and 500 MB."""

from __future__ import annotations

import subprocess
import sys

import pytest

TASKS = [
    "lotan.batches.spark_tasks",
    "lotan.engines.blocks.part_tasks",
    "lotan.engines.rows.pipe_task",
    "lotan.engines.rows.sums",
    "lotan.engines.rows.topology",
    "lotan.stages.tensor_names",
]
"""The modules of functions that run in Spark's Python workers while models train."""
OTHER_TASKS = [
    "lotan.engines.rows.totals",
    "lotan.graph.given_types",
    "lotan.links.splits",
    "lotan.results.predictions",
]
"""The modules of functions that run there once, or for models with statistics."""


@pytest.mark.parametrize(
    ("modules", "absent"), [(TASKS, ["torch", "planner", "pandas"]), (OTHER_TASKS, ["torch", "pandas"])]
)
def test_tasks_load_no_more_than_they_need(modules: list[str], absent: list[str]) -> None:
    lines = [
        "import sys, importlib",
        f"for module in {modules!r}:",
        "    importlib.import_module(module)",
        f"    found = [name for name in {absent!r} if name in sys.modules]",
        "    assert not found, f'{module} imports {found}'",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
