"""Model batches: each model has, bit for bit, the weights and the history that it has alone, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.batch import model_batch
from lotan.batch import plan as batch_plan
from lotan.batch.members import Member
from lotan.batch.model_batch import ModelBatch
from lotan.engines.local.engine import LocalEngine
from lotan.hosts.jar import JAR
from lotan.planning.job import Job
from lotan.worker.fork_server import WORKER_TITLE
from planner.footprint import Footprint
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from tests.night import at_night
from tests.refused_models import BranchOnValues

pytestmark = pytest.mark.thorough

WIDTH, CLASSES = 6, 3


def graph(seed: int = 0, vertices: int = 70, edges: int = 160) -> lotan.Graph:
    random = np.random.default_rng(seed)
    split = random.choice(3, vertices, p=[0.3, 0.4, 0.3])
    split[:3] = 0, 1, 2
    return lotan.Graph.from_arrays(
        random.standard_normal((vertices, WIDTH)).astype(np.float32),
        random.integers(0, vertices, edges),
        random.integers(0, vertices, edges),
        np.arange(vertices) % CLASSES,
        split,
    )


def drawn(random: np.random.Generator) -> Member:
    """A model of any kind and shape, and how it is trained."""
    kind = random.choice(["GCN", "GCN", "GraphSAGE", "GIN", "GAT"])
    hidden, layers = int(random.choice([3, 8])), int(random.integers(1, 4))
    seed = int(random.integers(100))
    torch.manual_seed(seed)
    dropout = float(random.choice([0.0, 0.5]))
    model = getattr(lotan.nn, kind)(WIDTH, hidden, layers, CLASSES, dropout=dropout)
    rate = float(random.choice([0.01, 0.1]))
    optimizer = [lotan.Adam(lr=rate), lotan.SGD(lr=rate, momentum=0.9), lotan.AdamW(lr=rate)][random.integers(3)]
    return Member(
        model, optimizer, seed=seed, epochs=int(random.integers(1, 5)), patience=[None, 1, 2][random.integers(3)]
    )


def diverging() -> Member:
    torch.manual_seed(1)
    return Member(lotan.nn.GCN(WIDTH, 4, 2, CLASSES), lotan.SGD(lr=1e30), epochs=6, name="too fast")


def fit_alone(member: Member, on: lotan.Graph, **options: Any) -> tuple[lotan.Trainer, Any]:
    model = deepcopy(member.model)
    trainer = lotan.Trainer(
        model, on, optimizer=member.optimizer, seed=member.seed, epochs=member.epochs, patience=member.patience,
        progress=False, **options,
    )  # fmt: skip
    return model, trainer.fit()


def figures(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if not key.endswith("_seconds")} for entry in history]


def assert_as_alone(batch: ModelBatch, number: int, alone: tuple[torch.nn.Module, Any], model: torch.nn.Module) -> None:
    run = batch.run_of(number)
    assert figures(run.history) == figures(alone[1].history)
    assert (run.best_epoch, run.metrics) == (alone[1].best_epoch, alone[1].metrics)
    for name, tensor in alone[0].state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


@pytest.mark.parametrize("seed", at_night([(seed,) for seed in range(40)], unless=[(0,)]))
def test_each_is_as_alone(seed):
    """Random grids of mixed families and shapes, early stops at different epochs, and in every fourth a model that diverges."""
    random = np.random.default_rng(seed)
    on, members = graph(seed), [drawn(random) for _ in range(random.integers(2, 5))]
    if seed % 4 == 0:
        members.insert(int(random.integers(len(members))), diverging())
    alone = [None if member.name else fit_alone(member, on, engine="local") for member in members]
    with ModelBatch(on, members, engine="local", progress=False) as batch:
        batch.train()
        for number, (member, expected) in enumerate(zip(members, alone, strict=True)):
            if expected is None:
                assert batch.states[number].state == "diverged"
                assert "lower the learning rate" in batch.states[number].reason.lower()
            else:
                assert batch.states[number].state in ("done", "stopped early")
                assert_as_alone(batch, number, expected, member.model)


@pytest.mark.nightly
def test_so_it_is_where_the_features_are_held_sparse():
    """All models of a batch read the same sparse rows, and each as it would alone."""
    random, dense = np.random.default_rng(7), graph(7).arrays()
    features = dense.features * (random.random(dense.features.shape) < 0.05)
    on = lotan.Graph.from_arrays(features, dense.src, dense.dst, dense.label, dense.split)
    norms = [{"norm": None}, {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}]  # autograd runs the second
    mixed = [Member(lotan.nn.MLP([WIDTH, 8, CLASSES], **norm), epochs=2) for norm in norms]
    members = [*(drawn(random) for _ in range(6)), *mixed]
    alone = [fit_alone(member, on, engine="local", disable=["hoist_invariant"]) for member in members]
    assert any("hold_sparse" in run.report["plan"]["rules_fired"] for _, run in alone)
    with ModelBatch(on, members, engine="local", progress=False, disable=["hoist_invariant"]) as batch:
        batch.train()
        for number, (member, expected) in enumerate(zip(members, alone, strict=True)):
            assert_as_alone(batch, number, expected, member.model)


class DroppingFirst(torch.nn.Module):
    """Dropout on the features: what stands before the first parameter differs by model in training, not in evaluation."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.dropout, self.last = torch.nn.Dropout(0.5), lotan.nn.GCNConv(4 if layers == 2 else WIDTH, CLASSES)
        self.first = lotan.nn.GCNConv(WIDTH, 4) if layers == 2 else None

    def forward(self, x, graph):
        x = self.dropout(x)
        return self.last(x if self.first is None else self.first(x, graph).relu(), graph)


@pytest.mark.parametrize("off", [[], pytest.param(["reuse_evaluation"], marks=pytest.mark.nightly)], ids=str)
@pytest.mark.parametrize("layers", [1, 2])
def test_so_it_is_where_only_evaluation_begins_alike(layers, off):
    torch.manual_seed(0)
    model = DroppingFirst(layers)
    on, members = graph(), [Member(deepcopy(model), seed=seed, epochs=3) for seed in (1, 2)]
    alone = [fit_alone(member, on, engine="local", disable=off) for member in members]
    with ModelBatch(on, members, engine="local", progress=False, disable=off) as batch:
        batch.train()
        for number, (member, expected) in enumerate(zip(members, alone, strict=True)):
            assert_as_alone(batch, number, expected, member.model)


OTHERS = [{"disable": ["share_models"]}, {"plan": "general"}, {"disable": ["hoist_invariant", "prune_vertices"]},
          {"disable": ["drop_dead_gradients"]}, {"eval_every": 2}, {"eval_every": 0}, {"chunk_rows": 16},
          {"max_models": 2}]  # fmt: skip


@pytest.mark.parametrize(
    "options", at_night([(one,) for one in OTHERS], unless=[(OTHERS[0],), (OTHERS[2],), (OTHERS[-2],)]), ids=str
)
def test_so_it_is_with_other_options(options):
    random = np.random.default_rng(5)
    on, members = graph(5), [drawn(random) for _ in range(5)]
    if options == {"eval_every": 0}:
        members = [Member(m.model, m.optimizer, m.seed, m.epochs) for m in members]
    same = {name: value for name, value in options.items() if name != "max_models"}
    alone = [fit_alone(member, on, engine="local", **same) for member in members]
    with ModelBatch(on, members, engine="local", progress=False, **options) as batch:
        batch.train()
        for number, (member, expected) in enumerate(zip(members, alone, strict=True)):
            assert_as_alone(batch, number, expected, member.model)


def alike(count: int) -> list[Member]:
    """Models that differ in nothing that a plan shows."""
    found = []
    for number in range(count):
        torch.manual_seed(number)
        model = lotan.nn.GCN(WIDTH, 2 + number, 2, CLASSES, dropout=0.1 * number + 0.1)
        found.append(Member(model, lotan.Adam(lr=0.01 * (number + 1)), seed=number, epochs=3))
    return found


def steps_of(monkeypatch: pytest.MonkeyPatch, members: list[Member], **options: Any) -> tuple[int, int]:
    """Propagates and pipes that a batch runs."""
    counts = [0, 0]
    propagate, pipe = LocalEngine.propagate, LocalEngine.pipe

    def propagated(engine: LocalEngine, step: PropagateStep, column: Any) -> Any:
        counts[0] += 1
        return propagate(engine, step, column)

    def piped(engine: LocalEngine, step: PipeStep, values: Any) -> Any:
        counts[1] += 1
        return pipe(engine, step, values)

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "propagate", propagated)
        patch.setattr(LocalEngine, "pipe", piped)
        with ModelBatch(graph(), members, engine="local", progress=False, **options) as batch:
            batch.train()
    return counts[0], counts[1]


@pytest.mark.nightly
def test_models_of_any_width_share_all_steps_on_the_graph(monkeypatch):
    assert steps_of(monkeypatch, alike(5)) == steps_of(monkeypatch, alike(1))
    one, many = (steps_of(monkeypatch, alike(n), disable=["share_models"]) for n in (1, 5))
    assert many[0] > one[0]
    assert many[1] > one[1]


def test_what_models_of_other_kinds_hoist_alike_is_computed_once():
    members = [Member(lotan.nn.GCN(WIDTH, 4, layers, CLASSES)) for layers in (2, 3)]
    with ModelBatch(graph(), members, engine="local") as batch:
        text = batch.explain()
    assert text.count("-> hoisted_1#") == 1
    assert "2 models, 2 plans side by side" in text


def test_a_pause_changes_nothing_and_who_is_stopped_leaves():
    random = np.random.default_rng(3)
    on, members = graph(3), [drawn(random) for _ in range(4)]
    members = [Member(m.model, m.optimizer, m.seed, 5) for m in members]
    alone = [fit_alone(member, on, engine="local") for member in members]
    with ModelBatch(on, members, engine="local", progress=False) as batch:
        batch.train(upto=2)
        assert [state.epoch for state in batch.states] == [2] * 4
        batch.stop(1, "not among the best half")
        batch.train(upto=3, only=[3])
        batch.train()
        assert [state.epoch for state in batch.states] == [5, 2, 5, 5]
        assert (batch.states[1].state, batch.states[1].reason) == ("stopped", "not among the best half")
        for number in (0, 2, 3):
            assert_as_alone(batch, number, alone[number], members[number].model)


def test_looking_at_a_paused_model_changes_nothing():
    """Its best weights are not its last ones, from which it goes on."""
    on, members = graph(), alike(3)
    members = [Member(m.model, lotan.SGD(lr=3.0), m.seed, 6) for m in members]
    alone = [fit_alone(member, on, engine="local") for member in members]
    with ModelBatch(on, members, engine="local", progress=False) as batch:
        for epoch in range(1, 6):
            batch.train(upto=epoch)
            batch.runs()
        assert any(state.best_epoch < 5 for state in batch.states)
        batch.train()
        for number, expected in enumerate(alone):
            assert_as_alone(batch, number, expected, members[number].model)


def test_models_of_other_outputs_train_apart_and_as_alone():
    """More outputs than classes are legal; their figures have other widths."""
    on = graph()
    members = [Member(lotan.nn.GCN(WIDTH, 4, 2, outputs), epochs=2) for outputs in (CLASSES, 5, CLASSES)]
    alone = [fit_alone(member, on, engine="local") for member in members]
    with ModelBatch(on, members, engine="local", progress=False) as batch:
        batch.train()
        assert batch.batches == [[0, 2], [1]]
        for number, expected in enumerate(alone):
            assert_as_alone(batch, number, expected, members[number].model)


def test_a_heap_that_is_too_small_for_all_divides_them(monkeypatch):
    """The heap of Spark does not grow once Spark runs."""
    on, members, asked = graph(), alike(4), []

    def needs(job: Any, config: Any, plan: Any = None) -> Footprint:
        asked.append(plan)
        return Footprint("local", 0, 0, least_heap=100 * (1 if plan is None else plan.models))

    monkeypatch.setattr(Job, "needs", needs)
    monkeypatch.setattr(batch_plan, "_heap", lambda job, config: 250)
    with ModelBatch(on, members, engine="local", progress=False) as batch:
        batch.train()
    assert batch.batches == [[0, 1], [2, 3]]
    assert asked


def test_a_load_that_fails_stops_what_was_started_and_says_why(monkeypatch):
    closed = []

    def load(engine: LocalEngine, on: Any, plan: Any) -> None:
        raise lotan.EngineError("no room for the graph")

    def close(engine: LocalEngine) -> None:
        closed.append(engine)

    monkeypatch.setattr(LocalEngine, "load", load)
    monkeypatch.setattr(LocalEngine, "close", close)
    monkeypatch.setattr(LocalEngine, "bytes_moved", lambda engine: pytest.fail("nothing is loaded"))
    with pytest.raises(lotan.EngineError, match="no room"), ModelBatch(graph(), alike(2), engine="local") as batch:
        batch.train()
    assert len(closed) == 1


def test_a_router_that_auto_does_not_need_is_no_fault(monkeypatch):
    """As for a model alone: a small graph stays here, whatever could be elsewhere."""
    monkeypatch.setattr(model_batch, "check_engine", lambda *given: None)
    options = {"router": "tcp://127.0.0.1:1", "progress": False}
    with ModelBatch(graph(), alike(2), **options) as batch:
        batch.train()
        assert batch.report()["engine"] == "local"


def test_metrics_that_come_late_are_told_of(tmp_path: Path):
    """Of a run that is resumed with fewer epochs, whose last one was not evaluated."""
    told: list[tuple[int, bool]] = []

    def tell(number: int, entry: dict[str, Any]) -> None:
        told.append((entry["epoch"], "metrics" in entry))
        if entry["epoch"] == 2 and len(told) == 2:
            raise KeyboardInterrupt

    options = {"engine": "local", "progress": False, "checkpoint_dir": tmp_path, "eval_every": 0, "on_epoch": tell}
    model = lotan.nn.GCN(WIDTH, 4, 2, CLASSES)
    with pytest.raises(KeyboardInterrupt), ModelBatch(graph(), [Member(model, epochs=4)], **options) as batch:
        batch.train()
    done = 2 if (tmp_path / "model-0000").exists() else 0
    with ModelBatch(graph(), [Member(model, epochs=done)], resume=True, **options) as batch:
        batch.train()
        assert batch.run_of(0).best_epoch == done
    for name in ("last.pt", "best.pt"):
        kept = torch.load(tmp_path / "model-0000" / name, weights_only=True)
        assert "metrics" in kept["history"][-1]
    assert told == [(1, False), (2, False), (2, True)]


def test_members_that_come_later(monkeypatch):
    told: list[tuple[int, int]] = []
    on, members = graph(), alike(3)
    alone = [fit_alone(member, on, engine="local") for member in members]
    with ModelBatch(
        on, members[:1], engine="local", progress=False, on_epoch=lambda n, entry: told.append((n, entry["epoch"]))
    ) as batch:
        batch.train()
        assert batch.add(members[1:]) == [1, 2]
        batch.train()
        for number, expected in enumerate(alone):
            assert_as_alone(batch, number, expected, members[number].model)
    assert told == [(0, 1), (0, 2), (0, 3), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)]


def test_interrupted_and_resumed_is_as_straight(tmp_path: Path):
    on, members = graph(), [*alike(3), diverging()]
    fresh = deepcopy(members)
    alone = [fit_alone(member, on, engine="local") for member in members[:3]]

    def interrupt(number: int, entry: dict[str, Any]) -> None:
        if (number, entry["epoch"]) == (1, 2):  # model 2 has done one epoch less then
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        ModelBatch(on, members, engine="local", progress=False, checkpoint_dir=tmp_path, on_epoch=interrupt) as batch,
    ):
        batch.train()
    with ModelBatch(on, fresh, engine="local", progress=False, checkpoint_dir=tmp_path, resume=True) as batch:
        batch.train()
        for number, expected in enumerate(alone):
            assert_as_alone(batch, number, expected, fresh[number].model)
        assert batch.states[3].state == "diverged"


def test_report():
    with ModelBatch(graph(), [*alike(2), diverging()], engine="local", progress=False) as batch:
        batch.train()
        report = batch.report()
    assert [member["state"] for member in report["members"]] == ["done", "done", "diverged"]
    assert report["batches"][0]["side_by_side"] == [[0, 1], [2]]  # without dropout, training evaluates as well
    assert "share_models" in report["batches"][0]["rules_fired"]
    assert report["peak_memory_bytes"]["driver"] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"optimizer": lotan.Adam()}, "give it to lotan.Member"),
        ({"max_models": 0}, "max_models is 0"),
        ({"epoch": 3}, "unknown setting epoch"),
        ({"members": [torch.nn.Linear(1, 1)]}, "lotan.Member"),
        ({"members": [Member(torch.nn.Linear(1, 1), epochs=0)]}, "epochs is 0"),
        ({"members": [Member(torch.nn.Linear(1, 1), seed="x")]}, "seed is 'x'"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_starts(given, said):
    members = given.pop("members", [])
    with pytest.raises(lotan.ConfigurationError, match=said):
        ModelBatch(graph(), members, **given)


@pytest.mark.parametrize("whole", [True, False])
def test_weights_that_two_members_share_are_refused(whole):
    first, second = lotan.nn.GCN(WIDTH, 4, 2, CLASSES), lotan.nn.GCN(WIDTH, 4, 2, CLASSES)
    if not whole:
        second.convs[0] = first.convs[0]
    with pytest.raises(lotan.ConfigurationError, match=r"model 1: its weight convs.0.* of the first, .*deepcopy"):
        ModelBatch(graph(), [Member(first, name="the first"), Member(first if whole else second)])


def test_a_model_that_cannot_be_trained_is_named():
    members = [*alike(1), Member(BranchOnValues(), name="the wide one")]
    with (
        pytest.raises(lotan.ModelError, match=r"\(in the wide one\)"),
        ModelBatch(graph(), members, engine="local") as batch,
    ):
        batch.train()


def test_a_run_of_a_model_without_evaluation_is_refused():
    with ModelBatch(graph(), [*alike(1), diverging()], engine="local", progress=False) as batch:
        with pytest.raises(lotan.ConfigurationError, match="train it first"):
            batch.run_of(0)
        batch.train()
        assert batch.run_of(0).best_epoch >= 1


# --- on Spark ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def few() -> Iterator[list[Member]]:
    torch.manual_seed(0)
    kinds = [(lotan.nn.GCN, 4, 0.5), (lotan.nn.GCN, 8, 0.5), (lotan.nn.GAT, 4, 0.5), (lotan.nn.GraphSAGE, 4, 0.0)]
    models = [kind(WIDTH, hidden, 2, CLASSES, dropout=dropout) for kind, hidden, dropout in kinds]
    return [Member(model, seed=number, epochs=2 + number % 2) for number, model in enumerate(models)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("rows", marks=pytest.mark.nightly),
        pytest.param("blocks", marks=pytest.mark.skipif(not JAR.is_file(), reason="no jar: make jar")),
    ],
)
def test_so_it_is_on_spark(spark: SparkSession, engine, few):
    """The same partitions, some of fewer vertices than others: the same bits."""
    on, few = graph(), few if engine == "blocks" else few[:2]
    options = {"engine": engine, "partitions": 3, "workers": 2}
    with lotan.persisted(on):  # one set of workers for all
        alone = [fit_alone(member, on, **options) for member in few]
    with ModelBatch(on, few, progress=False, **options) as batch:
        batch.train()
        for number, (member, expected) in enumerate(zip(few, alone, strict=True)):
            assert_as_alone(batch, number, expected, member.model)
        assert batch.report()["bytes"]["messenger_sent"] > 0


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.skipif(not JAR.is_file(), reason="no jar: make jar")
def test_a_worker_killed_in_the_middle_costs_no_bit(spark: SparkSession, few):
    """The first of two workers dies while the second model takes its first step."""
    on, straight, killed = graph(), deepcopy(few[:3]), []
    others = psutil.Process().children(recursive=True)  # workers of other tests may be among them

    def kill(number: int, entry: dict[str, Any]) -> None:
        if (number, entry["epoch"]) == (0, 1):
            started = [p for p in psutil.Process().children(recursive=True) if p not in others]
            worker = next(p for p in started if p.name() == WORKER_TITLE)
            worker.kill()
            worker.wait(10)
            killed.append(worker.pid)

    options = {"engine": "blocks", "partitions": 3, "workers": 2, "progress": False}
    for members, told in ((straight, None), (few[:3], kill)):
        with ModelBatch(on, members, on_epoch=told, **options) as batch:
            batch.train()
    assert len(killed) == 1
    for one, other in zip(straight, few, strict=False):
        for name, tensor in one.model.state_dict().items():
            assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_what_an_epoch_came_to_is_said(capsys):
    with ModelBatch(graph(), alike(2), engine="local") as batch:
        batch.train()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("  ")[0] for line in lines] == [f"epoch {n}: 2 models" for n in (1, 2, 3)]
    assert "best val accuracy" in lines[-1]
