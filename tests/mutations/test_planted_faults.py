"""Faults planted in a copy of the source: the tests of `make test` that are named beside each must fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutations.faults import JVM, PYTHON, Fault

COPIED = ("lotan", "planner", "messenger", "tests", "tools", "docs", "pyproject.toml")
FAILED = 1  # pytest's status where tests failed; another one says that they could not run


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout, as far as tests of Python need it, with what is compiled already."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def jvm_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Scala side and what runs its tests, compiled, so that each fault compiles little anew."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("jvm", "tools", "tests/wire"):
        shutil.copytree(ROOT / name, folder / name)
    subprocess.run(["tools/maven.sh", "test-compile"], cwd=folder, check=True)
    return folder


def file_of(fault: Fault, folder: Path) -> Path:
    """The one file of the fault's room that has its text, once."""
    endings = ("*.scala", "*.java") if fault.room == "jvm/src/main/scala" else ("*.py",)
    files = [path for ending in endings for path in sorted((folder / fault.room).rglob(ending))]
    found = [path for path in files for _ in range(path.read_text().count(fault.old))]
    assert len(found) == 1, f"{fault.old!r} stands {len(found)} times in {fault.room}: write the fault anew"
    return found[0]


@contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[None]:
    """The folder with the fault in it."""
    path = file_of(fault, folder)
    sound = path.with_name(path.name + ".sound")
    shutil.copy2(path, sound)
    path.write_text(path.read_text().replace(fault.old, fault.new))
    try:
        yield
    finally:
        sound.replace(path)  # with its time of change, so that what is compiled of it is good again


def paths_of(fault: Fault, folder: Path) -> list[str]:
    """The paths of its tests."""
    found, rooms = [], [folder / room for room in COPIED if (folder / room).is_dir()]
    for test in fault.tests:
        end, separator, name = test.partition("::")
        files = [path for room in rooms for path in room.rglob(end.rpartition("/")[2])]
        paths = [path for path in files if path.as_posix().endswith(f"/{end}")]
        assert len(paths) == 1, f"{len(paths)} files end in {end}: {paths}"
        found.append(f"{paths[0]}{separator}{name}")
    return found


def test_each_fault_can_be_planted_and_names_tests_that_exist() -> None:
    """By day, so that whoever changes the text of a fault writes it anew."""
    for fault in (*PYTHON.values(), *JVM.values()):
        file_of(fault, ROOT)
    for fault in PYTHON.values():
        paths_of(fault, ROOT)


@pytest.fixture(scope="module")
def server(copy: Path) -> Iterator[subprocess.Popen[str]]:
    """What runs pytest in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, str(copy / "tests" / "mutations" / "forks.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=copy, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PYTHON)
def test_a_fault_in_python_is_found(name: str, copy: Path, server: subprocess.Popen[str], tmp_path: Path) -> None:
    fault, out = PYTHON[name], tmp_path / "out.txt"
    with planted(fault, copy):
        words = ["--exitfirst", "--quiet", "-p", "no:cacheprovider", "-p", "no:xdist", *paths_of(fault, copy)]
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps([str(out), *words]), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
    assert status == FAILED, f"status {status} of {' '.join(fault.tests)}\n{out.read_text()[-3000:]}"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("jvm")  # one process compiles
@pytest.mark.parametrize("name", JVM)
def test_a_fault_in_scala_is_found(name: str, jvm_copy: Path) -> None:
    fault = JVM[name]
    with planted(fault, jvm_copy):
        command = ["tools/maven.sh", "test", f"-Dsuites={','.join(fault.tests)}"]
        done = subprocess.run(command, cwd=jvm_copy, capture_output=True, text=True, timeout=800)
    assert done.returncode != 0
    assert "TEST FAILED" in done.stdout or "TESTS FAILED" in done.stdout, done.stdout[-3000:]
