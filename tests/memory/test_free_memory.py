"""What is free is what the machine has left, or the container, as the kernel's files say in either of its versions."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lotan.memory.free import free_memory

MIB = 1 << 20


def group(folder: Path, first: bool, limit: object, used: int = 0, cache: int = 0) -> None:
    """A control group with these figures."""
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else ("memory.max", "memory.current")
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{'total_' if first else ''}inactive_file {cache}\n")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


@pytest.mark.parametrize("first", [False, True])
def test_a_container_has_what_its_limit_leaves(first: bool, tmp_path: Path, own: Path) -> None:
    """The cache of files counts as free."""
    group(tmp_path / "memory" if first else tmp_path, first, 100 * MIB, 70 * MIB, 30 * MIB)
    own.write_text("5:cpu,cpuacct:/\n4:memory:/\n" if first else "0::/\n")
    assert free_memory(tmp_path, own) == 60 * MIB


@pytest.mark.parametrize("first", [False, True])
def test_the_narrowest_of_nested_groups_counts(first: bool, tmp_path: Path, own: Path) -> None:
    root = tmp_path / "memory" if first else tmp_path
    group(root / "pod" / "container", first, 90 * MIB, 10 * MIB)
    group(root / "pod", first, 50 * MIB, 20 * MIB)
    own.write_text(f"{'4:memory' if first else '0:'}:/pod/container\n")
    assert free_memory(tmp_path, own) == 30 * MIB


def test_more_used_than_allowed_leaves_nothing(tmp_path: Path, own: Path) -> None:
    group(tmp_path, False, 100 * MIB, 120 * MIB)
    own.write_text("0::/\n")
    assert free_memory(tmp_path, own) == 0


@pytest.mark.parametrize("limit", ["max", 1 << 62, "nonsense", None])
def test_without_a_limit_it_is_what_the_machine_has(
    limit: object, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = psutil.virtual_memory()
    monkeypatch.setattr("lotan.memory.free.psutil.virtual_memory", lambda: memory)
    if limit is not None:
        group(tmp_path, False, limit)
        own.write_text("0::/\n")
    assert free_memory(tmp_path, own) == memory.available
