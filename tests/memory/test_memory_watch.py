from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from lotan.memory.watch import MemoryWatch, process_groups, shares

pytestmark = pytest.mark.processes


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
    """A mapped file of 64 MiB in two processes, both so small that they share little else with whatever runs beside."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file, ExitStack() as stack:
        file.truncate(64 << 20)
        program = (
            f"import mmap; f = open({file.name!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print('mapped', flush=True);"
            "input(); m.write(bytes(64 << 20)); print('touched', flush=True); input()"
        )
        children = [stack.enter_context(mapping(program)) for _ in range(2)]
        groups = {str(child.pid): {psutil.Process(child.pid)} for child in children}
        empty = shares(groups)
        touch(children[0])
        one = shares(groups)
        touch(children[1])
        both = shares(groups)
    assert sum(one.values()) - sum(empty.values()) >= 64 << 20
    assert abs(sum(both.values()) - sum(one.values())) < 16 << 20
    first = str(children[0].pid)
    assert one[first] - both[first] >= 24 << 20


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="elsewhere the resident set is what there is")
def test_pages_of_libraries_count_once_whatever_other_jobs_share_them() -> None:
    """64 MiB of one, in a process of the job and in one of another job, or in two of the job."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    program = (
        f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 64 << 20, access=mmap.ACCESS_READ);"
        "print('mapped', flush=True); input(); sum(m[::4096]); print('touched', flush=True); input()"
    )
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(mapping(program)) for _ in range(2))
        touch(ours)
        alone = shares({"ours": {psutil.Process(ours.pid)}})["ours"]
        touch(theirs)
        beside = shares({"ours": {psutil.Process(ours.pid)}})["ours"]
        both = shares({str(child.pid): {psutil.Process(child.pid)} for child in (ours, theirs)})
    assert alone >= 64 << 20
    assert abs(beside - alone) < 4 << 20
    assert abs(sum(both.values()) - alone) < 16 << 20
    assert abs(both[str(ours.pid)] - both[str(theirs.pid)]) < 4 << 20


@contextmanager
def mapping(program: str) -> Iterator[subprocess.Popen[str]]:
    """A child that runs a program which says so once it has mapped its file."""
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "mapped\n"
            yield child
        finally:
            child.kill()


def touch(child: subprocess.Popen[str]) -> None:
    """Have the child write its file."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "touched\n"
