from __future__ import annotations

import re
from pathlib import Path

import pytest

import lotan
from lotan.engines.blocks import facade
from lotan.errors import EngineError

JVM = Path(__file__).parents[3] / "jvm"


def test_python_calls_what_scala_defines() -> None:
    source = (JVM / "src/main/scala/lotan/Facade.scala").read_text()
    assert set(re.findall(r"^  def (\w+)", source, re.MULTILINE)) == facade.NAMES


def test_jar_and_package_have_one_version() -> None:
    assert f"<version>{lotan.__version__}</version>" in (JVM / "pom.xml").read_text()


def test_a_missing_jar_names_the_command_that_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "JAR", tmp_path / "lotan.jar")
    with pytest.raises(EngineError, match=re.escape(facade.BUILD)):
        facade.require_jar()


class Session:
    """Of a Spark session, what the check looks at."""

    def __init__(self, version: object) -> None:
        self._jvm = self
        self.lotan = self
        self.Facade = self
        self.version = version


def test_a_foreign_jar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "JAR", tmp_path / "lotan.jar")
    facade.JAR.touch()
    with pytest.raises(EngineError, match=r"version 0\.0\.1.*spark\.jars"):
        facade.facade(Session(lambda: "0.0.1"))
    with pytest.raises(EngineError, match=r"has no lotan jar.*spark\.jars"):
        facade.facade(Session("a package is not callable"))
    good = Session(lambda: lotan.__version__)
    assert facade.facade(good) is good
