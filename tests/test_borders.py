"""Whatever a user of lotan sees is a LotanError, whichever room it came from; a Router that was named is greeted first."""

from __future__ import annotations

import subprocess
import tempfile
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

import lotan
import messenger.errors
import planner
from lotan.borders import spark_translated, translated
from lotan.cli import main
from lotan.engines import opening
from lotan.engines.choice import idle_settings
from lotan.errors import ConfigurationError, EngineError, GraphError, LotanError
from lotan.hosts import session

NOBODY = "tcp://127.0.0.1:1"


def _trainer(**options: object) -> lotan.Trainer:
    graph = lotan.Graph.read("digits")
    return lotan.Trainer(lotan.nn.GCN(64, 4, 1, 10), graph, epochs=1, progress=False, **options)


def test_errors_of_the_planner() -> None:
    for fails in (
        lambda: _trainer(disable=["push_up"]).explain(),
        lambda: _trainer(disable=["push_up"]).fit(),
        lambda: _trainer().explain(stage="dreamt"),
        lambda: _trainer().explain(format="xml"),
    ):
        with pytest.raises(LotanError) as caught:
            fails()
        assert isinstance(caught.value, lotan.PlanError)
        assert isinstance(caught.value, planner.PlanError)
        assert isinstance(caught.value.__cause__, planner.PlanError)


def test_errors_of_the_messenger() -> None:
    with pytest.raises(LotanError, match="tcp://host:port") as caught:
        session.Session(session.SessionSettings(router="nowhere"))
    assert isinstance(caught.value, lotan.MessengerError)
    assert isinstance(caught.value, EngineError)
    assert isinstance(caught.value, messenger.errors.MessengerError)


def test_words_and_cause_stay_and_no_border_translates_twice() -> None:
    def fails() -> None:
        raise messenger.errors.DeadlineError("too late")

    with pytest.raises(lotan.MessengerError, match=r"^too late$") as caught:
        translated()(translated()(fails))()
    assert type(caught.value.__cause__) is messenger.errors.DeadlineError


class TestSpark:
    def fails(self, error: Exception, *arguments: object) -> LotanError:
        with pytest.raises(LotanError) as caught, spark_translated(*arguments):
            raise error
        assert "\n" not in str(caught.value)
        return caught.value

    def test_errors_leave_as_one_line(self) -> None:
        error = PySparkException("[FAILED] no such file\n\nJVM stacktrace:\n\tat java.io")
        assert str(self.fails(error)) == "Spark failed: [FAILED] no such file"
        assert str(self.fails(PySparkException("calling o9.\n: a.SomeException: full"))).endswith(
            "d: a.SomeException: full"
        )
        assert isinstance(self.fails(error), EngineError)
        assert isinstance(self.fails(error, GraphError, "the tables cannot be read"), GraphError)

    @pytest.mark.parametrize(
        "before", ["An exception was thrown from the Python worker:\n", "Job aborted: SomeException: "]
    )
    def test_what_python_raised_in_a_task_is_told(self, before: str) -> None:
        trace = (
            "Traceback (most recent call last):\n  File 'a.py', line 9\nModuleNotFoundError: No module named 'numpy'\n"
        )
        found = str(self.fails(PySparkException(f"\n  {before}{trace}\n\tat org.apache")))
        assert found == f"Spark failed: {before.strip()} ModuleNotFoundError: No module named 'numpy'"

    def test_a_full_disk_is_named(self) -> None:
        found = str(self.fails(PySparkException("Job aborted: java.io.IOException: No space left on device")))
        assert f"TMPDIR (now {tempfile.gettempdir()})" in found

    @pytest.mark.processes
    def test_an_ended_java_process_explains_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = subprocess.Popen(["false"])
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        for error in (Py4JNetworkError("gone"), ConnectionRefusedError(111, "refused"), EngineError("attempt 1 of 2")):
            found = self.fails(error, GraphError, "the tables cannot be read")
            assert isinstance(found, EngineError)
            assert "Spark's Java process has ended with status 1" in str(found)

    def test_other_errors_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SparkContext, "_gateway", None)
        for error in (ValueError("of the user"), ConnectionRefusedError(111, "refused"), EngineError("of ours")):
            with pytest.raises(type(error)) as caught, spark_translated():
                raise error
            assert caught.value is error


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ROUTER_SECONDS", 0.3)
    monkeypatch.setattr("lotan.hosts.spark_session.open_spark", lambda *_: pytest.fail("Spark was started"))


@pytest.mark.usefixtures("no_spark")
def test_a_named_router_is_greeted_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(lotan.MessengerError, match=f"{NOBODY} did not answer"):
        _trainer(engine="rows", router=NOBODY).fit()
    for command in (["train"], ["explain", "--analyze"]):
        assert main([*command, "--graph", "no such graph", "--engine", "rows", "--router", NOBODY]) == 1
        assert f"the Router at {NOBODY} did not answer" in capsys.readouterr().err
    run = _trainer(engine="local").fit()
    with pytest.raises(lotan.MessengerError, match=f"{NOBODY} did not answer"):
        run.model.predict(run.graph, engine="rows", router=NOBODY)


@pytest.mark.usefixtures("no_spark")
def test_explain_greets_nobody() -> None:
    assert "rows" in _trainer(engine="rows", router=NOBODY).explain()


@pytest.mark.processes
def test_a_router_that_answers_lets_the_run_go_on() -> None:
    with session.Session(session.SessionSettings(workers=1)) as started:
        opening.check_named_router("rows", started.endpoint.address, None)
        opening.check_named_router("auto", started.endpoint.address, None)
    opening.check_named_router("local", NOBODY, None)  # which uses none


def test_settings_that_change_nothing_are_named() -> None:
    job = _trainer(engine="local", workers=2, partitions=3, master="local[2]", propagate="messages").job
    named = [line for line in job.warnings if line.startswith("settings:")]
    assert named == [
        "settings: workers, partitions, master, propagate change nothing on the local engine; leave them out, or ask "
        "for engine blocks or rows"
    ]
    assert "settings: workers changes nothing" in "".join(_trainer(engine="local", workers=2).job.warnings)
    blocks = _trainer(engine="blocks", propagate="messages").job
    assert [line for line in blocks.warnings if line.startswith("settings:")] == [
        "settings: propagate messages changes nothing on the blocks engine; ask for engine rows"
    ]
    (rows,) = [
        line for line in _trainer(engine="blocks", worker_rows="1g").job.warnings if line.startswith("settings:")
    ]
    assert rows.startswith("settings: worker_rows changes nothing without mini-batches")
    assert "settings: worker_rows changes" in "".join(_trainer(engine="local", worker_rows="1g").job.warnings)
    assert not [line for line in _trainer(engine="local").job.warnings if line.startswith("settings:")]


def test_a_master_other_than_the_graphs_own_is_named() -> None:
    running = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]")))
    graph = SimpleNamespace(origin="spark", tables=lambda: (running, running))
    (line,) = idle_settings("rows", lotan.TrainerConfig(master="local[8]"), graph)
    assert "master local[8] changes nothing" in line
    assert idle_settings("rows", lotan.TrainerConfig(master="local[2]", workers=1), graph) == ()


def test_a_router_beside_the_local_engine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="engine 'local' uses none"):
        _trainer(engine="local", router=NOBODY)
