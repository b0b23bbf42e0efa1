"""Learned rows that lie in Spark, with the state of their optimizer: the numbers of torch, and nothing here that grows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines.blocks.facade import facade
from lotan.engines.blocks.learned import RowsByPlace
from lotan.errors import DivergedError, EngineError
from lotan.hosts.jar import JAR
from lotan.planning import learned
from lotan.training.learner import Learner
from tests.engines.blocks.faults import _compile
from tests.training.test_learned_rows import Around, Drawn, Embedded, assert_alike, drawn, in_torch
from tests.training.test_learned_rows_on_blocks import in_spark, of_seed, on_blocks
from tests.training.test_trainer import assert_same_checkpoint

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "LEAST_IN_SPARK", 1)


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What comes to this process or goes to Spark, in order."""
    found: list[str] = []
    for name in ("column", "rows"):
        real = getattr(RowsByPlace, name)

        def counted(self: RowsByPlace, *given: Any, real: Any = real, name: str = name) -> Any:
            found.append(name)
            return real(self, *given)

        monkeypatch.setattr(RowsByPlace, name, counted)
    return found


OPTIMIZERS: list[tuple[lotan.Optimizer, Callable[[Any], torch.optim.Optimizer]]] = [
    (lotan.Adam(lr=0.02, weight_decay=0.01), lambda given: torch.optim.Adam(given, 0.02, weight_decay=0.01)),
    (lotan.AdamW(lr=0.02), lambda given: torch.optim.AdamW(given, 0.02)),
    (lotan.Adagrad(lr=0.1, lr_decay=0.1), lambda given: torch.optim.Adagrad(given, 0.1, lr_decay=0.1)),
    (
        lotan.SGD(lr=0.3, momentum=0.9, dampening=0.1, weight_decay=0.01),
        lambda given: torch.optim.SGD(given, 0.3, 0.9, 0.1, 0.01),
    ),
    (
        lotan.SGD(lr=0.3, momentum=0.9, nesterov=True),
        lambda given: torch.optim.SGD(given, 0.3, 0.9, nesterov=True),
    ),
    (lotan.SGD(lr=0.3), lambda given: torch.optim.SGD(given, 0.3)),
]


@pytest.mark.parametrize(
    ("optimizer", "of_torch"),
    [pytest.param(*one, marks=[pytest.mark.nightly] * bool(number)) for number, one in enumerate(OPTIMIZERS)],
)
def test_rows_in_spark_train_as_in_torch(
    spark: SparkSession, optimizer: lotan.Optimizer, of_torch: Any, brought: list[str], tmp_path: Path
) -> None:
    """Texts as ids, and levels: vertices beyond them have rows too, which their optimizer may move."""
    found = drawn(2, share=0.06)
    graph = in_spark(spark, found)
    torch.manual_seed(0)
    model = Embedded()
    trainer = on_blocks(model, graph, optimizer=optimizer, disable=("reuse_evaluation",), eval_every=3)
    assert any(step.within is not None for step in trainer.job.plan.train)
    assert "learned, in Spark, with the state of their optimizer" in trainer.explain()
    other = deepcopy(model)
    run = trainer.fit()
    assert brought == ["column", "rows"], "rows go to Spark before the first epoch, and come back after the last"
    expected = in_torch(other, found, of_torch(other.parameters()), 3)
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected, rel=1e-5)
    assert_alike(model, other)
    run.save(tmp_path / "model")
    predicted = lotan.load(tmp_path / "model").predict(graph, engine="blocks", partitions=2, workers=1)
    rows = predicted.toPandas().set_index("id").sort_index()
    predicted.unpersist()
    with torch.no_grad():
        expected_classes = model(found.x, lotan.nn.EdgeIndex(found.index, num_vertices=len(rows))).argmax(1)
    assert rows["prediction"].tolist() == expected_classes.tolist()


@pytest.mark.nightly
def test_clipped_gradients_and_two_readers_equal_rows_in_this_process(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learning rate that falls, gradients that are clipped together with the others, and the best of all epochs."""
    given = {"optimizer": lotan.Adam(lr=0.05), "clip_grad_norm": 0.05, "lr_scheduler": "ExponentialLR(gamma=0.5)"}
    runs = []
    for least in (1, 1 << 40):
        monkeypatch.setattr(learned, "LEAST_IN_SPARK", least)
        torch.manual_seed(1)
        runs.append(on_blocks(Around("norms and two readers"), drawn(10).graph, eval_every=1, **given).fit())
    there, here = runs
    assert [entry["loss"] for entry in there.history] == pytest.approx(
        [entry["loss"] for entry in here.history], rel=1e-6
    )
    assert there.best_epoch == here.best_epoch
    for name, weights in there.model.weights.items():
        torch.testing.assert_close(weights, here.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)


class FailingUpdates:
    """A facade of which the first task that updates rows fails, after its work."""

    def __init__(self, spark: SparkSession, marks: Path) -> None:
        self._facade, self._jvm, self.mark = facade(spark), spark._jvm, marks / "failed"
        _compile(self._jvm, marks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facade, name)

    def updateRows(self, *given: Any) -> Any:  # noqa: N802  Scala's name
        return self._facade.updateRows(*given).toJavaRDD().map(self._jvm.lotan.tests.FailOnce(str(self.mark))).rdd()


@pytest.mark.chaos
@pytest.mark.nightly
def test_a_step_that_is_tried_again_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, given = drawn(8).graph, {"optimizer": lotan.Adam(lr=0.02)}
    whole = on_blocks(of_seed(0), graph, **given).fit().model.weights
    failing = FailingUpdates(spark, tmp_path)
    monkeypatch.setattr("lotan.engines.blocks.engine.facade", lambda _: failing)
    disturbed = on_blocks(of_seed(0), graph, **given).fit().model.weights
    assert failing.mark.exists()
    for name, one in whole.items():
        assert torch.equal(disturbed[name], one), name


@pytest.mark.nightly
def test_a_resumed_run_has_the_same_bits(spark: SparkSession, tmp_path: Path) -> None:
    graph, given = in_spark(spark, drawn(8)), {"optimizer": lotan.Adam(lr=0.02), "eval_every": 1}
    on_blocks(of_seed(0), graph, **given, checkpoint_dir=tmp_path / "whole").fit()
    on_blocks(of_seed(0), graph, **given | {"epochs": 2}, checkpoint_dir=tmp_path / "halves").fit()
    on_blocks(of_seed(0), graph, **given, checkpoint_dir=tmp_path / "halves", resume=True).fit()
    for name in ("last.pt", "best.pt"):
        assert_same_checkpoint(tmp_path / "halves" / name, tmp_path / "whole" / name)
    state = torch.load(tmp_path / "whole" / "last.pt", weights_only=True)["optimizer"]["state"]
    assert len({int(one["step"]) for one in state.values()}) == 1, "rows have a state as all parameters have"


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", [lotan.SGD(lr=0.1, momentum=0.9), lotan.SGD(lr=0.1), lotan.Adagrad(lr=0.1)])
def test_other_optimizers_resume_to_the_same_bits(
    spark: SparkSession, tmp_path: Path, optimizer: lotan.Optimizer
) -> None:
    graph, given = drawn(8).graph, {"optimizer": optimizer, "eval_every": 1}
    whole = on_blocks(of_seed(0), graph, **given).fit().model.weights
    on_blocks(of_seed(0), graph, **given | {"epochs": 1}, checkpoint_dir=tmp_path).fit()
    resumed = on_blocks(of_seed(0), graph, **given, checkpoint_dir=tmp_path, resume=True).fit().model.weights
    for name, one in whole.items():
        assert torch.equal(resumed[name], one), name


@pytest.mark.nightly
def test_an_explanation_measures_passes_whose_rows_are_there(spark: SparkSession, brought: list[str]) -> None:
    shown = on_blocks(of_seed(0), drawn(8).graph, optimizer=lotan.Adam(lr=0.02)).explain(analyze=1)
    assert "LearnedRowsGradient" in shown
    assert brought == ["column"]


@pytest.mark.nightly
def test_two_runs_on_a_persisted_graph_are_alike(spark: SparkSession) -> None:
    graph, given = in_spark(spark, drawn(8)), {"optimizer": lotan.Adam(lr=0.02)}
    alone = on_blocks(of_seed(0), graph, **given).fit().model.weights
    with lotan.persisted(graph):
        for _ in range(2):
            weights = on_blocks(of_seed(0), graph, **given).fit().model.weights
            for name, one in alone.items():
                assert torch.equal(weights[name], one), name


@pytest.mark.nightly
def test_after_an_error_the_model_has_the_rows_of_its_last_step(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, model, given = drawn(8).graph, of_seed(0), {"optimizer": lotan.SGD(lr=0.3)}
    expected = on_blocks(of_seed(0), graph, **given | {"epochs": 1}).fit().model.weights
    end, ended = Learner.end_epoch, []

    def failing(self: Learner) -> None:
        end(self)
        ended.append(self)
        raise DivergedError("after the first step")

    monkeypatch.setattr(Learner, "end_epoch", failing)
    with pytest.raises(DivergedError, match="after the first step"):
        on_blocks(model, graph, **given).fit()
    assert len(ended) == 1
    for name, one in model.named_parameters():
        assert torch.equal(one, expected[name]), name


@pytest.mark.nightly
def test_rows_that_are_gone_end_the_run_which_resumes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, given = drawn(8).graph, {"optimizer": lotan.Adam(lr=0.02), "eval_every": 1}
    whole = on_blocks(of_seed(0), graph, **given).fit().model.weights
    keep = Learner.keep

    def losing(self: Any, best: bool) -> None:
        keep(self, best)
        for kept in self._rows._kept.values():
            self._rows._facade.release(kept)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "keep", losing)
        with pytest.raises(EngineError, match="learned rows are gone with the executors that had them"):
            on_blocks(of_seed(0), graph, **given, checkpoint_dir=tmp_path).fit()
    resumed = on_blocks(of_seed(0), graph, **given, checkpoint_dir=tmp_path, resume=True).fit().model.weights
    for name, one in whole.items():
        assert torch.equal(resumed[name], one), name


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": lotan.RMSprop(lr=0.01)},
        {"optimizer": lotan.Adam(lr=0.01, amsgrad=True)},
        {"penalty": lambda parameters: 0.1 * parameters["rows.weight"].square().sum()},
        {"regime": lotan.MiniBatch(4, (2, 2))},
    ],
)
def test_what_this_process_must_read_stays_here(options: dict[str, Any]) -> None:
    trainer = on_blocks(of_seed(0), drawn(8).graph, **options)
    assert not trainer.job.rows_in_spark
    assert "learned, in this process" in trainer.explain()


def test_few_rows_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Drawn = drawn(8)
    assert on_blocks(of_seed(0), found.graph).job.rows_in_spark
    monkeypatch.undo()
    assert not on_blocks(of_seed(0), found.graph).job.rows_in_spark
