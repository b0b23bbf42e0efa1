"""The benchmarks are run by hand; what they import from the rest has to be there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def test_every_benchmark_can_be_imported():
    names = [path.stem for path in (ROOT / "benchmarks").glob("*.py")]
    assert names
    code = f"import importlib\nfor name in {sorted(names)}:\n    importlib.import_module(name)"
    paths = ":".join([str(ROOT / "benchmarks"), str(ROOT)])
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
