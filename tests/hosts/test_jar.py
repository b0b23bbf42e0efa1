"""Which jars a session of our own starts with."""

from __future__ import annotations

import pytest

from lotan.hosts import jar


@pytest.fixture(autouse=True)
def defaults(tmp_path, monkeypatch):
    """A spark-defaults.conf with the lines given, and a jar of ours that is there."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    jar.JAR.touch()
    return lambda *lines: (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))


def test_ours_alone_where_spark_has_no_defaults():
    assert jar.spark_jars() == str(jar.JAR)


@pytest.mark.parametrize("line", ["spark.jars  a.jar,b.jar", "  spark.jars=a.jar,b.jar", "spark.jars: a.jar,b.jar"])
def test_jars_of_the_defaults_are_kept(defaults, line):
    defaults("# spark.jars no.jar", "", "spark.jars.packages some:package:1", line, "spark.driver.memory 2g")
    assert jar.spark_jars() == f"a.jar,b.jar,{jar.JAR}"


def test_spark_decides_alone_where_ours_is_not_built(defaults):
    defaults("spark.jars a.jar")
    jar.JAR.unlink()
    assert jar.spark_jars() is None
