from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lotan
from lotan.engines.blocks import facade
from lotan.errors import EngineError
from lotan.hosts import jar

JVM = Path(__file__).parents[3] / "jvm"


def called() -> set[str]:
    """The names of the facade that the engine calls."""
    sources = [path.read_text() for path in Path(facade.__file__).parent.glob("*.py")]
    return {"version", *(name for source in sources for name in re.findall(r"\b_?(?:facade|scala)\.(\w+)\(", source))}


def test_python_calls_what_scala_defines() -> None:
    source = (JVM / "src/main/scala/lotan/Facade.scala").read_text()
    assert set(re.findall(r"^  def (\w+)", source, re.MULTILINE)) == called()


def test_jar_and_package_have_one_version() -> None:
    assert f"<version>{lotan.__version__}</version>" in (JVM / "pom.xml").read_text()


def test_a_missing_jar_names_the_command_that_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    with pytest.raises(EngineError, match=re.escape(jar.BUILD)):
        jar.require_jar()


class Session:
    """Of a Spark session, what the check looks at."""

    def __init__(self, version: object) -> None:
        self._jvm = self
        self.lotan = self
        self.Facade = self
        self.version = version


def test_a_foreign_jar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    jar.JAR.touch()
    line = re.escape(f".config('spark.jars', '{jar.JAR}')")
    with pytest.raises(EngineError, match=rf"version 0\.0\.1.*{line}"):
        facade.facade(Session(lambda: "0.0.1"))
    with pytest.raises(EngineError, match=rf"has no lotan jar.*{line}"):
        facade.facade(Session("a package is not callable"))
    good = Session(lambda: lotan.__version__)
    assert facade.facade(good) is good


@pytest.mark.spark
@pytest.mark.skipif(not jar.JAR.is_file(), reason=f"the jar is not built: {jar.BUILD}")
def test_a_session_with_the_jar_has_the_facade_and_all_its_names(spark: SparkSession) -> None:
    found = facade.facade(spark)
    assert set(dir(found)) >= called()
