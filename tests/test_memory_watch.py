from __future__ import annotations

import subprocess
import sys

from lotan.memory_watch import MemoryWatch, resident_memory


def test_memory_of_children_counts_as_workers_and_is_kept_as_peak() -> None:
    with MemoryWatch(interval=60) as watch:
        before = watch.peak["workers"]
        program = "block = bytearray(64 << 20); print('ready', flush=True); input()"
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            watch.sample()
            child.communicate("\n", timeout=60)
        finally:
            child.kill()
        child.wait(timeout=60)
        assert resident_memory()["workers"] < watch.peak["workers"]
    assert watch.peak["workers"] - before >= 64 << 20
    assert watch.peak["driver"] > 1 << 20
    assert set(watch.peak) == {"driver", "jvm", "workers"}
