"""`lotan doctor`: each check finds what it is for, and says how to mend it."""

from __future__ import annotations

import json
import socket
import sys
from importlib import metadata
from pathlib import Path

import pytest

from lotan.cli import checks as doctor
from lotan.cli import main
from lotan.engines.blocks import facade

ROOT = Path(__file__).resolve().parents[2]


def only(findings):
    (finding,) = findings
    return finding


def fake_java(folder, version):
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.spark
def test_this_machine_can_train(spark, capsys):
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    names = [finding["name"] for finding in findings]
    assert {"Python", "Java", "pyspark", "torch", "CURVE", "loopback", "built-in graph", "jar"} <= set(names)
    assert not [finding for finding in findings if finding["status"] == "error"]


def test_an_error_is_in_the_table_and_in_the_exit_status(monkeypatch, capsys):
    wrong = doctor.Finding("Java", "error", "none", "17 or newer", "Install it.")
    fine = doctor.Finding("Python", "ok", "3.11")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [fine], lambda: [wrong]))
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "ERROR    Java              none  (expected: 17 or newer)" in printed
    assert "-> Install it." in printed
    assert "1 error, 0 warnings. Training cannot run here" in printed


def test_a_check_that_breaks_is_an_error_of_its_own(monkeypatch):
    def check_the_moon():
        raise OSError("no moon")

    monkeypatch.setattr(doctor, "CHECKS", (check_the_moon,))
    finding = only(doctor.examine())
    assert (finding.name, finding.status, finding.found) == ("the moon", "error", "OSError: no moon")


@pytest.mark.parametrize(
    ("version", "status"), [("17.0.15", "ok"), ("21-ea", "ok"), ("11.0.2", "error"), ("x", "error")]
)
def test_java_is_the_one_of_java_home(tmp_path, monkeypatch, version, status):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    finding = only(doctor.check_java())
    assert finding.status == status
    assert bool(finding.mend) == (status == "error")


def test_java_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "no bin/java" in only(doctor.check_java()).found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no java on the PATH" in only(doctor.check_java()).found


def test_packages_are_missing_old_or_too_new(monkeypatch):
    versions = {**doctor.MEASURED, "torch": "2.6.1+cu124", "pandas": "3.0.1"}

    def version(name):
        if name in ("msgpack", "graphframes-py"):
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    found = {finding.name: finding for finding in doctor.check_packages()}
    assert (found["torch"].status, found["torch"].expected) == ("error", "2.7 or newer")
    assert found["pandas"].status == "warning"
    assert (found["msgpack"].status, found["msgpack"].found) == ("error", "not installed")
    assert "pip install msgpack==" in found["msgpack"].mend
    assert found["graphframes-py"].status == "warning"
    assert found["numpy"].status == "ok"


def test_a_package_that_does_not_import_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    found = {finding.name: finding for finding in doctor.check_packages()}
    assert found["xxhash"].status == "error"
    assert "does not import" in found["xxhash"].found


def test_measured_versions_are_those_of_the_constraints():
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    assert {name: pinned.get(name) for name in doctor.MEASURED} == doctor.MEASURED


def test_foreign_rooms_are_an_error(monkeypatch):
    def foreign():
        raise ImportError("another one at /somewhere")

    monkeypatch.setattr(doctor, "check_rooms", foreign)
    finding = only(doctor.check_rooms_on_path())
    assert (finding.status, finding.found) == ("error", "another one at /somewhere")


def test_a_temporary_folder_that_is_not_there_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    finding = only(doctor.check_temporary_folder())
    assert finding.status == "error"
    assert "TMPDIR" in finding.mend


def test_full_disks_and_little_memory_are_warnings(monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_DISK", 1 << 60)
    monkeypatch.setattr(doctor, "LEAST_SHARED_MEMORY", 1 << 60)
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 1 << 60)
    for check in (doctor.check_temporary_folder, doctor.check_shared_memory, doctor.check_machine):
        finding = only(check())
        assert finding.status == "warning" or finding.found.startswith("no /dev/shm")


def test_no_loopback_is_an_error(monkeypatch):
    def refused(*_):
        raise OSError("not permitted")

    monkeypatch.setattr(socket.socket, "bind", refused)
    finding = only(doctor.check_network())
    assert (finding.status, finding.found) == ("error", "not permitted")


def test_an_unknown_host_name_is_a_warning(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.host.invalid")
    finding = only(doctor.check_network())
    assert finding.status == "warning"
    assert "SPARK_LOCAL_IP" in finding.mend


def test_the_graphframes_core_is_found_where_configuration_names_it(monkeypatch, tmp_path):
    monkeypatch.delenv("LOTAN_GRAPHFRAMES_JAR", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    before = doctor.find_graphframes_jars()
    jar = tmp_path / "graphframes.jar"
    jar.touch()
    monkeypatch.setenv("LOTAN_GRAPHFRAMES_JAR", str(jar))
    line = "spark.jars.packages io.graphframes:graphframes-spark4_2.13:0.12.3"
    (tmp_path / "spark-defaults.conf").write_text(f"# graphframes\n\n{line}\n")
    assert doctor.find_graphframes_jars() == [str(jar), line, *before]
    assert only(doctor.check_graphframes_core()).status == "ok"


def test_a_missing_jar_is_a_warning_with_the_command_that_builds_it(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "JAR", tmp_path / "lotan.hosts.jar")
    finding = only(doctor.check_jar())
    assert finding.status == "warning"
    assert "make jar" in finding.mend


@pytest.mark.spark
@pytest.mark.skipif(not doctor.JAR.is_file(), reason="the jar is not built: make jar")
def test_the_jar_does_a_tiny_job(spark, monkeypatch):
    finding = only(doctor.check_jar())
    assert finding.status == "ok", finding.found
    monkeypatch.setattr(facade, "__version__", "9.9.9")
    finding = only(doctor.check_jar())
    assert finding.status == "warning"
    assert "the package is 9.9.9" in finding.found


def test_a_jar_is_not_tried_without_java(tmp_path, monkeypatch):
    jar = tmp_path / "lotan.hosts.jar"
    jar.touch()
    monkeypatch.setattr(doctor, "JAR", jar)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "not tried" in only(doctor.check_jar()).found
