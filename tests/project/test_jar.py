"""The jar is built once, again when jvm/ changes, put in place whole, and travels in the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import lotan
from lotan.hosts import jar
from tests.conftest import ROOT
from tests.project.test_set_up import fake_maven

pytestmark = pytest.mark.processes

JAR = f"lotan/jars/lotan-{lotan.__version__}.jar"
BUILDS = f"""
echo "$@" >> calls
mkdir -p jvm/target/shaded
echo built > jvm/target/shaded/lotan-{lotan.__version__}.jar"""


@pytest.fixture
def checkout(tmp_path):
    """What building the jar needs of a checkout, with a Maven that only counts its calls."""
    for name in (
        "Makefile",
        "tools/maven.sh",
        "tools/build_jar.sh",
        "lotan/version.py",
        "jvm/pom.xml",
        "pyproject.toml",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    sources = tmp_path / "jvm" / "src" / "main" / "scala"
    sources.mkdir(parents=True)
    (sources / "One.scala").touch()
    (sources / "Other.scala").touch()
    fake_maven(tmp_path, BUILDS)
    return tmp_path


def run(checkout, *words):
    path = os.pathsep.join([str(checkout / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    return subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)


def make_jar(checkout, *settings):
    """Runs `make jar`; returns how often Maven has run so far."""
    done = run(checkout, "make", "jar", *settings)
    assert done.returncode == 0, done.stderr
    return len((checkout / "calls").read_text().splitlines())


def age(*paths):
    for path in paths:
        os.utime(path, (0, 0))


def test_built_once_and_again_when_a_source_changes_or_goes(checkout):
    age(*checkout.rglob("*"))
    assert make_jar(checkout) == 1
    assert (checkout / JAR).read_text() == "built\n"
    assert make_jar(checkout) == 1
    assert make_jar(checkout, "VENV=/elsewhere") == 1  # the environment has no say in it
    sources = checkout / "jvm" / "src" / "main" / "scala"
    age(checkout / JAR)
    age(*(checkout / "jvm").rglob("*"))
    os.utime(sources / "One.scala", (9, 9))
    assert make_jar(checkout) == 2
    (sources / "Other.scala").unlink()
    age(checkout / JAR)
    age(sources / "One.scala")
    assert make_jar(checkout) == 3


def test_jars_of_other_versions_go(checkout):
    (checkout / "lotan" / "jars").mkdir()
    (checkout / "lotan" / "jars" / "lotan-0.0.1.jar").touch()
    make_jar(checkout)
    assert [path.name for path in (checkout / "lotan" / "jars").iterdir()] == [jar.JAR.name]


def test_a_build_that_fails_leaves_the_jar_that_was_there(checkout):
    make_jar(checkout)
    age(checkout / JAR)
    fake_maven(checkout, "echo 'error: not found: value x'; exit 1")
    done = run(checkout, "make", "jar")
    assert done.returncode != 0
    assert "not found: value x" in done.stdout
    assert "~/.m2/settings.xml" not in done.stderr
    assert (checkout / JAR).read_text() == "built\n"


def test_versions_that_differ_are_named(checkout):
    pom = checkout / "jvm" / "pom.xml"
    pom.write_text(pom.read_text().replace(lotan.__version__, "9.9.9", 1))
    fake_maven(checkout, "mkdir -p jvm/target/shaded; touch jvm/target/shaded/lotan-9.9.9.jar")
    done = run(checkout, "make", "jar")
    assert done.returncode != 0
    assert "versions in jvm/pom.xml and lotan/version.py differ" in done.stderr


def test_maven_without_a_network_says_what_it_needs(checkout):
    said = "Could not transfer artifact org.scala-lang:scala-library:pom:2.13.17 from/to central: Unknown host"
    fake_maven(checkout, f"echo '[ERROR] {said}'; exit 1")
    done = run(checkout, "tools/maven.sh", "test")
    assert done.returncode == 1
    assert said in done.stdout
    assert "Maven Central, or a mirror or proxy that ~/.m2/settings.xml names" in done.stderr


def test_the_wheel_takes_the_jar_and_the_markers_of_types(checkout):
    (checkout / "lotan" / "jars").mkdir()
    (checkout / JAR).touch()
    (checkout / "lotan" / "py.typed").touch()
    (checkout / "README.md").touch()
    build = "from setuptools import setup; setup()"  # what a wheel is packed of
    done = run(checkout, sys.executable, "-c", build, "--quiet", "build_py", "--build-lib", "built")
    assert done.returncode == 0, done.stderr
    built = {str(path.relative_to(checkout / "built")) for path in (checkout / "built").rglob("*") if path.is_file()}
    assert built == {JAR, "lotan/version.py", "lotan/py.typed"}


def test_the_jar_that_python_looks_for_is_the_one_that_make_builds():
    done = subprocess.run(["make", "-pn", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert f"JAR := {jar.JAR.relative_to(ROOT)}" in done.stdout.splitlines()
