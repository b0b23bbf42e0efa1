"""Two processes that each start, stop and restart Spark sessions, beside each other and with the same temporary folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
import numpy as np
import lotan

generator = np.random.default_rng(0)
graph = lotan.Graph.from_arrays(
    generator.normal(size=(30, 4)), generator.integers(0, 30, 90), generator.integers(0, 30, 90),
    generator.integers(0, 2, 30), np.zeros(30, dtype=np.int8),
)
end, losses = time.monotonic() + float(sys.argv[1]), []
while len(losses) < 2 or time.monotonic() < end:  # each run starts a session, and stops it
    import torch
    torch.manual_seed(0)
    model = lotan.nn.GCN(4, 4, 1, 2, dropout=0.0)
    run = lotan.Trainer(model, graph, engine="rows", epochs=1, workers=1, master="local[1]", progress=False).fit()
    losses.append(run.history[-1]["loss"])
print(len(losses), len(set(losses)))
"""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.parametrize("seconds", [60])
def test_sessions_of_two_processes_leave_each_other_alone(tmp_path: Path, seconds: float) -> None:
    words = [sys.executable, "-c", PROGRAM, str(seconds)]
    both = [
        subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        found = [process.communicate(timeout=seconds + 300) for process in both]
    finally:
        for process in both:
            process.kill()
    for process, (out, err) in zip(both, found, strict=True):
        assert process.returncode == 0, err
        runs, different = map(int, out.split())
        assert runs >= 2
        assert different == 1, "each run has the same loss"
