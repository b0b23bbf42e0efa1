from __future__ import annotations

import subprocess
import sys
import tempfile

import numpy as np

from lotan.memory_watch import MemoryWatch, process_groups, shares


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
        assert shares(process_groups())["workers"] < watch.peak["workers"]
    assert watch.peak["workers"] - before >= 64 << 20
    assert watch.peak["driver"] > 1 << 20
    assert set(watch.peak) == {"driver", "jvm", "workers"}


def test_pages_that_processes_share_count_once() -> None:
    """A mapped file of 64 MiB in this process and in a child."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(64 << 20)
        program = (
            f"import mmap; f = open({file.name!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); m.write(bytes(64 << 20));"
            "print('ready', flush=True); input()"
        )
        alone = sum(shares(process_groups()).values())
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            before = shares(process_groups())
            mapped = np.memmap(file.name, np.uint8)
            assert mapped.sum() == 0  # touches every page
            after = shares(process_groups())
            child.communicate("\n", timeout=60)
        finally:
            child.kill()
        child.wait(timeout=60)
    assert sum(before.values()) - alone >= 64 << 20
    assert abs(sum(after.values()) - sum(before.values())) < 16 << 20
    assert before["workers"] - after["workers"] >= 24 << 20
