"""Freed memory that is kept while somebody wants it, and given back at the end."""

from __future__ import annotations

import platform
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch

import lotan
from lotan.engines.local.engine import LocalEngine
from lotan.memory import trim
from lotan.memory.trim import freed_memory_kept

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


CODE = """
import psutil, torch
from lotan.memory.trim import freed_memory_kept
resident = lambda: psutil.Process().memory_info().rss
before = resident()
with freed_memory_kept():
    with freed_memory_kept():
        torch.ones(50 << 20)
    kept = resident() - before
print(kept >> 20, resident() - before >> 20)
"""


@needs_glibc
def test_a_large_piece_that_was_freed_stays_until_nobody_wants_it() -> None:
    """In a process of its own, where nothing else takes or gives memory."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 150
    assert left < 100


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim.ctypes, "CDLL", mock.Mock(side_effect=OSError))
    with freed_memory_kept():
        torch.ones(10)


@pytest.mark.parametrize(("limit", "free", "kept"), [(None, 1 << 50, 1), (None, 1 << 20, 0), ("8g", 1 << 50, 0)])
def test_a_run_keeps_it_if_there_is_room_and_no_limit(
    limit: str | None, free: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lotan.memory.free.free_memory", lambda: free)
    graph = lotan.Graph.from_arrays(
        np.ones((3, 2)), *np.array([[0, 1], [1, 2]]), label=np.arange(3), split=np.zeros(3, int)
    )
    seen = []
    began = LocalEngine.begin
    monkeypatch.setattr(
        LocalEngine, "begin", lambda *given, **more: (seen.append(trim._keeping), began(*given, **more))[1]
    )
    model = lotan.nn.GCN(2, 4, 2, 3)
    run = lotan.Trainer(model, graph, epochs=1, engine="local", memory_limit=limit, progress=False).fit()
    assert run.history
    assert set(seen) == {kept}
    assert trim._keeping == 0
