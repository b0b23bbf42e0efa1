"""The wheel of this checkout, installed into a fresh environment, trains and predicts without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lotan.hosts.jar import JAR
from tests.conftest import ROOT

PACKED = ("lotan", "planner", "messenger", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
TRAINS = """
import sys
import lotan, messenger, planner

for package in (lotan, messenger, planner):
    assert package.__file__.startswith(sys.prefix), package.__file__
from lotan.hosts.jar import JAR
assert JAR.is_file() and str(JAR).startswith(sys.prefix), JAR

graph = lotan.Graph.read("digits")
run = lotan.Trainer(lotan.nn.GCN(64, 16, 2, 10), graph, epochs=3, engine="local", progress=False).fit()
run.save("model")
print(len(lotan.load("model").predict(graph, engine="local")))
"""


def ran(*words: object, folder: Path, seconds: float = 120) -> str:
    """Standard output of a command that knows nothing of this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of a copy, so that no earlier build in the checkout gets into it and none is left there."""
    assert JAR.is_file(), "the wheel needs the jar: make jar"
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, source)
    # With this environment's setuptools, for an isolated build would download one.
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--wheel-dir", folder)
    ran(sys.executable, "-m", "pip", "wheel", *options, source, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.processes
def test_the_wheel_holds_what_the_licence_and_the_types_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (record,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = packed.read(record).decode()
    packages = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {"lotan", "planner", "messenger"}
    assert {f"lotan/jars/{JAR.name}", "lotan/py.typed", "planner/py.typed", "messenger/py.typed"} <= names
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nAuthor: The Lotan authors\n" in metadata


@pytest.mark.slow
@pytest.mark.processes
def test_the_wheel_trains_and_predicts_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """The libraries are those of this environment, named in a .pth file: torch alone would take minutes and gigabytes.

    A .pth file only adds folders to the path. The .pth file by which this environment knows the checkout is not read.
    """
    ran(sys.executable, "-m", "venv", "--without-pip", "fresh", folder=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    (packages,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    ran(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, folder=tmp_path)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "libraries.pth").write_text("\n".join(libraries))
    vertices = ran(python, "-c", TRAINS, folder=tmp_path).split()[-1]
    assert vertices == "1797"
    assert "usage: lotan" in ran(tmp_path / "fresh" / "bin" / "lotan", "--help", folder=tmp_path)
