"""Columns and saved values in files: the same bits as in memory, within a limit, and nothing left of them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import lotan
import planner.chunks
from lotan.engines.base import Outcome, Pass, run
from lotan.engines.choice import ENGINES, choose_engine
from lotan.engines.local import columns
from lotan.engines.local.engine import LocalEngine
from lotan.errors import EngineError
from lotan.memory import mapped
from lotan.memory.mapped import MappedMemory, check_room
from lotan.planning.job import Job
from lotan.tracing.trace import trace_modes
from lotan.training.learner import weights_of
from planner import Options, Planned, compile_plan
from planner.cost.seconds import Pricing
from planner.explain.brief import brief_text
from planner.explain.sizes import size
from planner.explain.text import as_data, step_lines
from planner.holding.budget import SAVED, Budget, pass_uses
from planner.holding.memory_use import Uses
from planner.holding.order_steps import peak_of
from planner.layout import Layout
from planner.loss import LossSpec
from planner.physical import Plan
from planner.shares import Crew
from planner.statistics import Statistics
from tests.exactness.norms import model_of, sample
from tests.exactness.steps import tensors, train
from tests.exactness.test_random_models import drawn_model, graph_of, plan_of
from tests.night import at_night

pytestmark = pytest.mark.thorough


class Embedded(torch.nn.Module):
    """A GCN on features and learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.encoder = lotan.nn.LearnedFeatures(4), lotan.nn.GCN(12, 20, 2, 3)

    def forward(self, x: torch.Tensor, graph: lotan.nn.EdgeIndex) -> torch.Tensor:
        return self.encoder(torch.cat([x, self.rows(graph)], dim=1), graph)


MODELS = {
    "learned rows": Embedded,
    "GCN": lambda: lotan.nn.GCN(8, 20, 3, 3, dropout=0.5),
    "GraphSAGE, max": lambda: lotan.nn.GraphSAGE(8, 20, 2, 3, aggr="max"),
    "GAT": lambda: lotan.nn.GAT(8, 6, 2, 3, heads=3, dropout=0.5),
    "GIN": lambda: lotan.nn.GIN(8, 20, 2, 3),
}


def job_of(model: torch.nn.Module, graph: lotan.Graph | None = None, **options: object) -> Job:
    graph = graph or lotan.datasets.generate(300, 1500, width=8, classes=3, seed=2)
    return lotan.Trainer(model, graph, engine="local", progress=False, **options).job


def passes(
    job: Job, model: torch.nn.Module, on_disk: bool, chunk_rows: int = 32, budget: Budget | None = None
) -> list[Outcome]:
    """Two training passes that also evaluate."""
    with closing(LocalEngine(chunk_rows, on_disk=on_disk, budget=budget)) as engine:
        engine.load(job.graph, job.plan)
        steps = job.plan.training(True)
        return [run(engine, job.plan, steps, Pass(epoch, weights_of(model), seed=0)) for epoch in range(2)]


def assert_same_bits(found: list[Outcome], expected: list[Outcome]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.gradients.keys() == other.gradients.keys()
        assert all(torch.equal(value, other.gradients[name]) for name, value in one.gradients.items())
        assert np.array_equal(one.statistics, other.statistics)


@pytest.mark.parametrize("in_slices", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_same_bits_as_in_memory(name: str, in_slices: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_slices:
        monkeypatch.setattr(planner.chunks, "SLICE_BYTES", 1)  # 16 numbers of a row at a time
    torch.manual_seed(0)
    model = MODELS[name]()
    job = job_of(model)
    assert_same_bits(passes(job, model, on_disk=True), passes(job, model, on_disk=False))


class Share(Budget):
    """A budget of a share of all columns of the plan."""

    def of_columns(self, plan: Plan, statistics: Statistics) -> int:
        uses = pass_uses(plan, plan.training(True), statistics, self.layout)
        least = max(uses.needed(number, ()) for number in range(len(uses.uses)))
        return least + self.limit * sum(uses.sizes.values()) // 100


@pytest.mark.parametrize("percent", [0, 15, pytest.param(35, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", MODELS)
def test_same_bits_if_some_columns_stay_in_memory(name: str, percent: int) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    job = job_of(model)
    budget = Share(percent, Layout(Crew(1, 1), 1))
    found = budget.holding(job.plan, job.plan.training(True), job.graph.statistics)
    assert found is not None
    kept = frozenset[str]().union(*found.kept)
    assert kept if percent else True
    assert_same_bits(passes(job, model, on_disk=True, budget=budget), passes(job, model, on_disk=False))


def test_same_bits_in_another_order_of_the_steps() -> None:
    torch.manual_seed(0)
    model = lotan.nn.GraphSAGE(8, 20, 2, 3, dropout=0.5)
    job = job_of(model)
    budget, steps = Share(30, Layout(Crew(1, 1), 1)), job.plan.training(True)
    given = pass_uses(job.plan, steps, job.graph.statistics, budget.layout)
    order, uses = [], Uses(given.uses, given.sizes, fixed=False)
    done = uses.every
    while done:  # the last steps are those of the smallest numbers that may be the last
        order.append(uses.last_of(done)[0])
        done ^= 1 << order[-1]
    other = tuple(steps[number] for number in reversed(order))
    assert other != steps
    ordered = replace(job, planned=job.planned.with_plan(replace(job.plan, train_and_evaluate=other)))
    assert_same_bits(passes(ordered, model, on_disk=True, budget=budget), passes(job, model, on_disk=False))


LARGE = Statistics(vertices=1_000_000, edges=10_000_000, width=128, training=540_000, evaluated=900_000, in_files=True)


def planned_for_a_large_graph(kind: type[torch.nn.Module], layers: int) -> Planned:
    model = kind(128, 256, layers, 40, dropout=0.5)
    traced = trace_modes(model, 128)
    options = Options(pricing=Pricing(ENGINES["local"]))
    return compile_plan(*traced, LossSpec("classification", 40, 1.0), LARGE, options)


def test_the_order_of_least_peak_is_taken_where_there_is_one() -> None:
    plan, budget = planned_for_a_large_graph(lotan.nn.GraphSAGE, 2).plan, Budget(1 << 40, Layout(Crew(1, 1), 1))

    def peak(found: Plan) -> int:
        uses = pass_uses(found, found.train_and_evaluate, LARGE, budget.layout)
        return peak_of(uses, tuple(range(len(uses.uses))))

    ordered = budget.ordered(plan, LARGE)
    assert sorted(map(str, ordered.train_and_evaluate)) == sorted(map(str, plan.train_and_evaluate))
    assert peak(ordered) < peak(plan)
    assert ordered.train == plan.train


def test_explain_shows_and_prices_what_goes_to_files() -> None:
    free = planned_for_a_large_graph(lotan.nn.GCN, 3)
    layout = replace(free.options.pricing.layout, within=3 << 30)
    limited = free.described(pricing=replace(free.options.pricing, layout=layout))
    steps, budget = free.plan.train, Budget.of(ENGINES["local"], layout)
    holding = budget.holding(free.plan, steps, LARGE)
    cost = limited.cost(steps)
    assert 2 * cost.moved("spilled") == holding.moved_bytes
    assert cost.seconds > free.cost(steps).seconds
    shown = "\n".join(step_lines(limited, steps))
    for what, moved in (("Load", holding.loads), ("Store", holding.stores)):
        assert shown.count(f"   {what}(") == sum(map(len, moved)) > 0
    assert shown.count("   Read(") == sum(map(len, holding.reads)) - sum(map(len, holding.loads))
    assert "Store(" not in "\n".join(step_lines(free, steps))
    files = as_data(limited)["files"]
    assert (files["read_bytes"], files["stored_bytes"]) == (holding.read_bytes, holding.stored_bytes)
    assert files["seconds"] == pytest.approx(cost.seconds - free.cost(steps).seconds, rel=0.01)
    brief = brief_text(limited)
    assert f"{size(holding.read_bytes)} of columns read and {size(holding.stored_bytes)} stored" in " ".join(
        brief.split()
    )
    assert len(brief.splitlines()) <= 40
    assert "Files" not in brief_text(free)
    assert 0.75 * layout.within < budget.peak(free.plan, LARGE) <= layout.within


def test_columns_are_where_the_plan_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["GCN"]()
    job = job_of(model)
    budget, steps = Share(25, Layout(Crew(1, 1), 1)), job.plan.training(True)
    holding = budget.holding(job.plan, steps, job.graph.statistics)
    sizes = pass_uses(job.plan, steps, job.graph.statistics, budget.layout).sizes
    moved = sum(len(loads) for loads in holding.loads) + sum(len(stores) for stores in holding.stores)
    assert moved
    seen = []
    with closing(LocalEngine(32, on_disk=True, budget=budget)) as engine:
        engine.load(job.graph, job.plan)
        stored = engine.store_columns

        def look(number: int, held: dict[str, torch.Tensor]) -> None:
            stored(number, held)
            in_memory = {name for name in sizes.keys() & held.keys() if not engine._columns.in_file(held[name])}
            seen.append((in_memory, holding.kept[number] - {n for n in holding.kept[number] if n.startswith(SAVED)}))

        monkeypatch.setattr(engine, "store_columns", look)
        run(engine, job.plan, steps, Pass(0, weights_of(model), seed=0))
        assert engine._moves._files == {}
    assert len(seen) == len(steps)
    for found, planned in seen:
        assert found == planned
    assert any(planned for _, planned in seen)


@pytest.mark.parametrize("name", ["BatchNorm1d", "PairNorm", "products"])
def test_same_bits_of_statistics_over_all_vertices(name: str) -> None:
    model, graph = model_of(name), sample(seed=3, share=0.3).graph
    job = job_of(model, graph)
    assert_same_bits(passes(job, model, on_disk=True), passes(job, model, on_disk=False))


@pytest.mark.parametrize("seed", at_night([(seed,) for seed in range(12)], unless=[(seed,) for seed in range(5)]))
def test_same_bits_of_random_models(seed: int) -> None:
    drawn, found = graph_of(seed + 40), []
    planned = plan_of(seed, True, drawn, set(), general=seed % 4 == 0)
    for on_disk in (False, True):
        with closing(LocalEngine(chunk_rows=5, on_disk=on_disk)) as engine:
            found.append(tensors(train(engine, planned, drawn_model(seed, True, False), drawn, evaluates=True)))
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def test_a_disk_that_is_full_of_saved_values_has_them_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["GCN"]()
    job = job_of(model)
    expected = passes(job, model, on_disk=False)
    monkeypatch.setattr("lotan.stages.spill_file.os.posix_fallocate", only_columns)
    assert_same_bits(passes(job, model, on_disk=True), expected)


def only_columns(file: int, offset: int, size: int, _reserve=os.posix_fallocate) -> None:
    """Stands in place of the system's call: there is room for files of columns, and none for saved values."""
    if "lotan-spill" in os.readlink(f"/proc/self/fd/{file}"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _reserve(file, offset, size)


def test_a_disk_that_is_full_of_columns_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model = MODELS["GCN"]()
    job = job_of(model)
    monkeypatch.setattr(mapped.os, "posix_fallocate", full)
    with pytest.raises(EngineError, match=r"no room for a column of .* bytes in .*No space left.*set TMPDIR"):
        passes(job, model, on_disk=True)
    with pytest.raises(EngineError, match=r"bytes of columns lie in files in .* bytes left; free some there"):
        check_room(1 << 62)


def test_pages_that_were_given_back_keep_their_numbers_and_leave_the_process() -> None:
    process, memory = psutil.Process(), MappedMemory()
    column = memory.new(16 << 20).view(-1, 64).fill_(1.0)
    held = process.memory_info().rss
    memory.give_back(column[1:])
    assert held - process.memory_info().rss > 60 << 20
    assert float(column[5].sum()) == 64.0
    memory.give_back(torch.ones(3))  # other memory
    memory.give_all_back()
    assert float(column.sum()) == 16 << 20
    assert memory.new(0).numel() == 0


def test_rows_that_are_set_to_zero_leave_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PART_BYTES", 1 << 20)
    process, found = psutil.Process(), columns.Columns(MappedMemory())
    column = found.new(1 << 18, (64,))
    column[:5] = 1.0
    held = process.memory_info().rss
    found.clear(column, 5)
    assert process.memory_info().rss - held < 16 << 20, "of 64 MB"
    assert float(column.sum()) == 5 * 64


def test_a_file_goes_with_its_last_tensor() -> None:
    memory = MappedMemory()
    column = memory.new(1000)
    part, place = column[10:20], column.untyped_storage().data_ptr()
    del column
    assert place in memory._maps
    del part
    assert place not in memory._maps


def test_columns_that_a_graph_has_kept_are_made_anew_in_files() -> None:
    graph = lotan.datasets.generate(300, 1500, width=8, classes=3, seed=2)
    job = job_of(MODELS["GraphSAGE, max"](), graph)
    with closing(LocalEngine()) as engine:
        engine.load(graph, job.plan)
    with closing(LocalEngine(on_disk=True)) as engine:
        engine.load(graph, job.plan)
        (hoisted,) = job.plan.hoisted
        assert engine.static(hoisted.name).untyped_storage().data_ptr() in engine._mapped._maps


@pytest.mark.skipif(not Path("/dev/shm").is_mount(), reason="this system has no folder in memory at /dev/shm")
def test_a_folder_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/shm")
    with pytest.raises(EngineError, match="in files in /dev/shm, which is itself in memory; set TMPDIR"):
        check_room(1)


def test_no_file_outlives_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened, model = psutil.Process().num_fds(), MODELS["GAT"]()
    passes(job_of(model), model, on_disk=True)
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().num_fds() <= opened + 1


def train_within(folder: str, limit: str) -> None:
    """Train on a graph in files in this process; prints its peak, the least limit and whether columns lay in files."""
    graph = lotan.Graph.read(f"{folder}-graph")
    torch.manual_seed(0)
    options = {"engine": "local", "epochs": 2, "progress": False}
    trainer = lotan.Trainer(lotan.nn.GCN(64, 256, 3, 8, dropout=0.5), graph, **options, memory_limit=limit or None)
    needs = trainer.job.needs(trainer.config)
    if limit == "least":
        trainer = lotan.Trainer(trainer.model, graph, **options, memory_limit=needs.least)
    found = trainer.fit()
    found.save(folder)
    peak = sum(found.report["peak_memory_bytes"].values())
    graph_in_files = trainer.job.graph.statistics.in_files
    sizes = {"peak": peak, "least": needs.least, "in_memory": needs.in_memory, "graph_in_files": graph_in_files}
    print(json.dumps({**sizes, "text": trainer.explain()}))


def within(folder: Path, limit: str) -> dict[str, object]:
    lotan.datasets.generate(30_000, 150_000, width=64, classes=8).save(f"{folder}-graph")
    program = f"from tests.engines.local.test_on_disk import train_within; train_within({str(folder)!r}, {limit!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_stays_within_the_least_limit_and_comes_to_the_same_bits(tmp_path: Path) -> None:
    free = within(tmp_path / "free", "")
    least = int(free["least"])
    assert least < free["in_memory"]
    limited = within(tmp_path / "limited", f"{-(-least >> 20) + 1}m")
    assert limited["peak"] <= least + (1 << 20)
    assert limited["peak"] < free["peak"]
    assert limited["graph_in_files"]
    assert not free["graph_in_files"]
    assert "of columns and saved values lie in files" in " ".join(str(limited["text"]).split())  # whose lines are short
    ours, theirs = (lotan.load(tmp_path / name).weights for name in ("limited", "free"))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_auto_takes_files_only_where_no_engine_on_spark_fits() -> None:
    graph = lotan.datasets.generate(300, 1500, width=8, classes=3)
    trainer, big = lotan.Trainer(MODELS["GCN"](), graph, epochs=1), 1 << 40
    job = trainer.job
    needs = {name: replace(job.needs(trainer.config), engine=name, least=big) for name in ENGINES}
    needs["local"] = replace(needs["local"], least=1 << 30, in_memory=big)
    limited = replace(trainer.config, memory_limit="2g")
    seconds = dict.fromkeys(ENGINES, 1.0)
    found = choose_engine(limited, graph, needs, seconds)
    assert found.name == "local"
    assert "unless its columns lie in files" in found.reason
    needs["blocks"] = replace(needs["blocks"], least=1 << 30)
    assert choose_engine(limited, graph, needs, seconds).name != "local"
    needs["blocks"] = replace(needs["blocks"], in_turn=True)
    found = choose_engine(limited, graph, needs, seconds)
    assert found.name == "local"
    assert "one at a time" in found.reason
