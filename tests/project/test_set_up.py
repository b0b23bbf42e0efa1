"""Set-up says what is missing; what it installs is pinned; the commands that people and machines use are one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from lotan.cli.checks import MEASURED
from tests.conftest import ROOT

pytestmark = pytest.mark.processes

CHECK = "tools/check_prerequisites.sh"


def check_prerequisites(root, *arguments, **environment):
    return subprocess.run(
        [str(root / CHECK), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def fake_tool(folder, name, prints):
    (folder / "bin").mkdir(exist_ok=True)
    tool = folder / "bin" / name
    tool.write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    tool.chmod(0o755)


def fake_maven(folder, script):
    (folder / "bin").mkdir(exist_ok=True)
    tool = folder / "bin" / "mvn"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def test_prints_the_python_to_use():
    done = check_prerequisites(ROOT)
    assert done.returncode == 0, done.stderr
    version = subprocess.run([done.stdout.strip(), "--version"], capture_output=True, text=True, timeout=60).stdout
    assert int(version.split(".")[1]) >= 11


def test_missing_java_is_named_with_a_way_to_get_it(tmp_path):
    done = check_prerequisites(ROOT, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"JDK 17 or newer: '{tmp_path}/bin/java' does not run" in done.stderr
    assert "apt-get install openjdk-17-jdk-headless" in done.stderr


@pytest.mark.parametrize(
    ("printed", "status"),
    [('java version "1.8.0_392"', 1), ('openjdk version "11.0.22" 2024-01-16', 1), ('openjdk version "21" 2023', 0)],
)
def test_version_of_java_counts(printed, status, tmp_path):
    fake_tool(tmp_path, "java", printed)
    fake_tool(tmp_path, "javac", "javac 17.0.9")
    fake_maven(tmp_path, "echo Apache Maven 3.9.9")
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    assert check_prerequisites(ROOT, JAVA_HOME=str(tmp_path), PATH=path).returncode == status


def test_python_that_is_none_is_named():
    done = check_prerequisites(ROOT, "/bin/false")
    assert done.returncode == 1
    assert "Python 3.11 or newer: /bin/false" in done.stderr


@pytest.mark.parametrize(
    ("printed", "complaint"),
    [
        (None, "'mvn' does not run"),
        ("Apache Maven 3.6.3", "'mvn' is version 3.6"),
        ("Apache Maven 3.8.7", None),
        ("\x1b[1mApache Maven 3.10.0 (abc)\x1b[m", None),
        ("Apache Maven 4.0.0-rc-5", None),
    ],
)
def test_version_of_maven_counts(printed, complaint, tmp_path):
    fake_tool(tmp_path, "java", 'openjdk version "17.0.9"')
    fake_tool(tmp_path, "javac", "javac 17.0.9")
    for name in ("bash", "sed", "head", "sort", "env"):  # all but Maven
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    if printed is not None:
        fake_maven(tmp_path, f"printf '%s\\n' '{printed}'")
    done = check_prerequisites(ROOT, JAVA_HOME=str(tmp_path), PATH=str(tmp_path / "bin"))
    assert done.returncode == (complaint is not None)
    assert complaint is None or f"Maven 3.8 or newer, which builds jvm/: {complaint}" in done.stderr
    assert complaint is None or "apt-get install maven" in done.stderr


def test_every_dependency_is_pinned_without_an_address():
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin)] == []
    pinned = {pin.partition("==")[0].lower() for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.match(r"[A-Za-z0-9._-]+", one).group().lower() for one in wanted} - {"lotan"}
    assert names - pinned == set()


def test_help_lists_every_target():
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    for target in ("setup", "jar", "run", "test", "quick", "nightly", "check", "bench", "clean"):
        assert re.search(rf"make {target} +\S", shown), target


def test_make_run_trains_on_the_engine_that_users_get():
    shown = subprocess.run(["make", "--dry-run", "run"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    assert "lotan train --graph digits --model gcn --layers 2 --engine blocks" in shown


def test_ci_runs_the_commands_of_a_contributor():
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "make" in line]
    assert commands == ["make check", "exec make test"]
    assert "\nmake test " in (ROOT / "README.md").read_text()


SUITES = {"passes": ("exit 0", 0), "fails": ("echo '*** 1 TEST FAILED ***'; exit 1", 1)}


@pytest.mark.parametrize(("ours", "status"), [("true", 0), ("exit 3", 3)])
@pytest.mark.parametrize("scala", SUITES)
def test_scalas_tests_run_beside_pytest_and_count(scala, ours, status, tmp_path):
    (tmp_path / "tools").mkdir()
    for name in ("beside_scala.sh", "maven.sh"):
        shutil.copy2(ROOT / "tools" / name, tmp_path / "tools" / name)
    script, theirs = SUITES[scala]
    fake_maven(tmp_path, script)
    done = subprocess.run(
        [str(tmp_path / "tools" / "beside_scala.sh"), "sh", "-c", ours],
        env={**os.environ, "PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == (status or theirs)
    assert ("1 TEST FAILED" in done.stderr) == (scala == "fails")


def test_doctor_knows_the_pinned_versions():
    pins = dict(re.findall(r"^([\w.-]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert {name: pins[name] for name in MEASURED} == MEASURED


def test_hooks_before_a_commit_are_a_part_of_make_check():
    """All but that of the commit's subject, which `tools/check_prose.py` reads once the commit is there."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repository["repo"] for repository in hooks} == {"local"}  # nothing is downloaded
    entries = {hook["id"]: hook["entry"] for repository in hooks for hook in repository["hooks"]}
    assert (ROOT / entries.pop("commit-subject")).is_file()
    checked = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    assert len(entries) >= 4
    assert [name for name, entry in entries.items() if entry.removesuffix(" --force-exclude") not in checked] == []
