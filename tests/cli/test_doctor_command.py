"""`lotan doctor`: what is here, what is wrong, how to mend it, and the exit status."""

from __future__ import annotations

import pytest

from lotan.cli import main


@pytest.mark.spark
def test_doctor_is_content_where_the_tests_run(spark, capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "Java" in shown
    assert shown.endswith("Training can run.\n")


def test_doctor_ends_with_1_and_a_remedy_without_java(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "ERROR    Java" in shown
    assert "-> Install JDK 17" in shown
