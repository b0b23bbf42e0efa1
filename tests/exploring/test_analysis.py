"""What a plan costs in fact, beside its estimates; measuring changes nothing."""

from __future__ import annotations

import json
import re
from math import inf
from types import SimpleNamespace

import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines.choice import ENGINES
from lotan.errors import ConfigurationError
from lotan.exploring import analysis
from lotan.exploring.analysis import Measure, total_lines
from lotan.planning import stored_links
from lotan.training import stored
from planner.explain.text import passes
from planner.orders.disk import Disk
from planner.steps.pipe import PipeStep
from tests.conftest import needs_jar

PASSES = ["training pass", "evaluation", "both in one"]


def trainer() -> lotan.Trainer:
    torch.manual_seed(0)
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    model = lotan.nn.GAT(8, 4, 2, 3, dropout=0.5)  # evaluation has its first layer in common with training
    return lotan.Trainer(model, graph, engine="local", epochs=2, progress=False)


def test_passes_are_measured_beside_their_estimates_and_no_weight_changes():
    found = trainer()
    before = {name: tensor.clone() for name, tensor in found.model.state_dict().items()}
    plain = found.explain()
    shown = found.explain(analyze=True)
    assert shown.startswith(plain)
    assert found.explain(stage="all", analyze=1).startswith(found.explain(stage="all"))
    totals, *by_step = shown.removeprefix(plain).strip().split("\n\n")
    assert [line.split("  ")[0] for line in totals.splitlines()] == ["== measured ==", "", *PASSES, "peak memory"]
    assert [section.splitlines()[0] for section in by_step] == [
        f"== measured: {one}, step by step ==" for one in PASSES
    ]
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.model.state_dict().items())


def test_the_same_as_data():
    shown = trainer().explain("json", analyze=True)
    data = json.loads(shown)
    assert [one["what"] for one in data["measured"]] == [*PASSES, "peak memory"]
    assert data["measured"][0]["estimated"] == pytest.approx(data["estimated_epoch_seconds"], rel=0.01)
    assert all(one["measured"] > 0 for one in data["measured"])


def test_steps_come_to_the_rows_and_bytes_that_were_estimated_and_take_their_time():
    data = json.loads(trainer().explain("json", analyze=True))
    for step in [step for name in ("epoch", "evaluation", "epoch_and_evaluation") for step in data[name]]:
        found, pruned = step["measured"], "within" in step["operator"]  # whose edges are estimated of degrees
        assert found["rows"] == pytest.approx(step["rows"], rel=0.25 if pruned else 0)
        assert found["bytes"] == pytest.approx(step["bytes"], rel=0.25 if pruned else 0)
        assert found["seconds"] > 0


def test_what_a_pass_takes_beside_its_steps_has_a_line_and_no_step_has_it():
    found = trainer()
    shown = found.explain(stage="all", analyze=True)
    assert len(re.findall(r"^   beside its steps: the pass itself  .*s$", shown, re.MULTILINE)) == 2 * len(PASSES)
    data = json.loads(found.explain("json", analyze=True))
    for name in analysis.TITLES:
        both = data["own_seconds"][name]
        assert both["measured"] > 0
        assert both["estimated"] == pytest.approx(found.job.planned.cost(passes(found.job.plan)[name]).own, rel=0.01)


class Ticking:
    """A clock that goes on by what is done: 100 seconds to begin, 10 for a step, 1,000 to end, and none to look."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def run(self, engine, plan, steps, a_pass, watch) -> None:
        self.now += 100
        watch(None, {})
        for step in steps:
            self.now += 10
            watch(step, dict.fromkeys(step.makes))
        self.now += 1000


def test_what_a_pass_takes_to_begin_and_to_end_is_no_steps(monkeypatch):
    clock, job = Ticking(), trainer().job
    monkeypatch.setattr(analysis, "time", clock)
    monkeypatch.setattr(analysis, "run", clock.run)
    engine = SimpleNamespace(do_one_by_one=lambda: True, extent=lambda *_: None, piped=list)
    steps, own = analysis._Bench(engine, job, {}, 0).steps(job.plan.train, 3)
    assert {one.measured for of in steps for one in of} == {10}
    assert own == 1100


def test_as_many_epochs_run_as_are_asked_for(monkeypatch):
    lengths: list[int] = []
    plain = analysis.run

    def counted(engine, plan, steps, a_pass, **more):
        lengths.append(len(steps))
        return plain(engine, plan, steps, a_pass, **more)

    monkeypatch.setattr(analysis, "run", counted)
    runs = []
    for epochs in (1, 4):
        lengths.clear()
        trainer().explain("json", analyze=epochs)
        runs.append(len(lengths))
    assert runs[1] - runs[0] == 3 * 2 * 3  # more, of three passes, whole and step by step


def test_a_page_tells_what_was_measured_of_every_step_and_is_else_the_same():
    found = trainer()
    plain, page = found.explain("html"), found.explain("html", analyze=1)
    steps = sum(map(len, (found.job.plan.train, found.job.plan.evaluate, found.job.plan.train_and_evaluate)))
    told = [re.findall(rf"\n{name}: [^;\n]+; measured ", page) for name in ("rows", "bytes", "seconds")]
    assert [len(found) for found in told] == [steps] * 3
    assert "<dt>Measured</dt><dd>training pass " in page
    assert "easured" not in plain
    assert page.count('role="switch"') == plain.count('role="switch"') > 0
    assert page.count("<svg") == plain.count("<svg")


def test_what_is_off_is_marked():
    near, far = Measure("a", "seconds", 1.0, 1.9), Measure("b", "bytes", 1e6, 4e5)
    lines = total_lines([near, far, Measure("c", "bytes", None, 5e3)])
    assert "!" not in lines[2]
    assert lines[3].endswith("1.0 MB    400.0 kB  ! 2.5 times")
    assert lines[4].endswith("  -      5.0 kB")
    assert (Measure("", "bytes", 0, 0).times, Measure("", "bytes", 0, 1).times) == (1.0, inf)


def test_a_step_is_marked_where_it_matters_to_its_pass():
    ran = analysis.Ran(1.0, ())
    long, short = Measure("seconds", "seconds", 0.1, 0.3), Measure("seconds", "seconds", 1e-6, 3e-5)
    rows = Measure("rows", "rows", 100, 300)
    assert analysis._off([rows, long, short], ran) == [rows, long]


@pytest.mark.parametrize(("known", "said"), [(False, True), (True, False)])
def test_steps_on_spark_of_which_nothing_is_known_are_accounted_for(known, said):
    planned = trainer().job.plan
    rows = (Measure("rows", "rows", 300, 300), Measure("piped_bytes", "bytes", 100, 100))
    steps = tuple(rows if known or isinstance(step, PipeStep) else () for step in planned.train)
    job = SimpleNamespace(traits=ENGINES["blocks"])
    shown = " ".join(analysis._step_lines(job, planned.train, analysis.Ran(1.0, steps)))
    assert analysis.ONE_JOB in " ".join(shown.split())
    assert ("steps that are not listed stay inside Spark and are not counted" in shown) is said


def test_what_cannot_be_shown_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(analysis, "open_engine", lambda *_: pytest.fail("an engine was started"))
    with pytest.raises(ConfigurationError, match="analyze goes with format 'text', 'json' or 'html', not 'mermaid'"):
        trainer().explain("mermaid", analyze=True)
    with pytest.raises(lotan.PlanError, match="explain knows no format 'yaml'"):
        trainer().explain("yaml", analyze=True)
    with pytest.raises(ConfigurationError, match="alternatives goes with format 'text' or 'json', not 'html'"):
        trainer().explain("html", analyze=True, alternatives=True)
    for epochs in (0, -1, "3", 2.5, None):
        with pytest.raises(
            ConfigurationError, match=f"analyze is {epochs!r}; expected True, or a number of epochs of at"
        ):
            trainer().explain(analyze=epochs)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("engine", [pytest.param("blocks", marks=needs_jar), "rows"])
def test_on_spark_bytes_are_measured_too(spark: SparkSession, engine: str) -> None:
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    both = (0.5, 0.0)  # with a pass that trains and evaluates, and without one
    for dropout in both if engine == "blocks" else both[:1]:
        model = lotan.nn.GCN(8, 4, 2, 3, dropout=dropout)
        trainer = lotan.Trainer(model, graph, engine=engine, workers=1, partitions=2, progress=False)
        data = json.loads(trainer.explain("json", analyze=True))
        measured = {one["what"]: one for one in data["measured"]}
        for step in data["epoch"]:
            found = step["measured"]
            assert "seconds" not in found  # a pass is one job
            if step["engine"] == "dl":
                assert found["rows"] == step["rows"]
                assert found["piped_bytes"] > 0
        assert ("both in one" in measured) == bool(trainer.job.plan.train_and_evaluate)
        assert all(one["measured"] > 0 for name, one in measured.items() if "shuffle" not in name), measured


IN_PARTS = {"order": "each_once(partitions=4, buffer=2)"}


@pytest.mark.parametrize("order", [{}, IN_PARTS], ids=["in memory", "from a disk"])
def test_epochs_of_batches_are_measured_on_a_copy_of_the_model(order):
    torch.manual_seed(0)
    graph, model = lotan.datasets.generate(300, 900, width=8, classes=3), lotan.nn.GraphSAGE(8, 4, 2, 3)
    found = lotan.Trainer(model, graph, regime=lotan.MiniBatch(60, (5, 5), **order), epochs=4, progress=False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain, shown = found.explain(), found.explain(analyze=1)
    assert shown.startswith(plain)
    assert "training of an epoch" in shown
    assert "\nevaluation  " in shown
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    data = json.loads(found.explain("json", analyze=1))
    measured = {one["what"]: one["measured"] for one in data["measured"]}
    shares = {one["what"]: one["share"] for one in data["measured"] if one["share"] is not None}
    assert list(shares) == [f"batches: {what}" for what in ("drawing", "copying", "waiting for one", "computing")]
    assert 0 < shares["batches: computing"] <= 1
    assert shown.count("% of training") == 4
    assert measured["vertices of a batch"] > 1
    assert ("storage" in data) == ("read from the disk" in measured) == bool(order)
    if order:
        assert measured["swaps of a partition"] == data["storage"]["swaps"] == 2
        assert measured["edges read from the disk"] == pytest.approx(data["storage"]["estimated_edge_bytes"], rel=0.3)
    with pytest.raises(ConfigurationError, match="goes with format 'text' or 'json', not 'html'"):
        found.explain("html", analyze=1)
    with pytest.raises(ConfigurationError, match="alternatives compares passes over the whole graph"):
        found.explain(alternatives=True)


@pytest.mark.parametrize("order", ["each_once(partitions=6, buffer=4)", "cached_nodes(partitions=6, buffer=5)"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_bytes_of_epochs_that_count_are_those_of_their_schedules(order, epochs):
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    regime = lotan.MiniBatch(60, (5, 5), order=order)
    found = lotan.Trainer(lotan.nn.GraphSAGE(8, 4, 2, 3), graph, regime=regime, epochs=4, progress=False)
    data = json.loads(found.explain("json", analyze=epochs))
    of_disk = {one["what"]: one for one in data["measured"]}["read from the disk"]
    # the first epoch, which does not count, reads all of its partitions; the others find some in memory
    division, held, read = found.job.stored_vertices.division, (), []
    for epoch in range(1, epochs + 2):
        read.append(0)
        for of_set in division.of_epoch(found.job.stored_vertices.seed, epoch).sets:
            read[-1] += len(set(of_set) - set(held))
            held = of_set
    wanted = sum(read[1:]) / epochs * 50 * 8 * 4
    assert of_disk["measured"] == of_disk["estimated"] == pytest.approx(wanted)
    assert data["storage"]["estimated_read_bytes"] == read[0] * 50 * 8 * 4 > wanted


ROWS = 300 * 4 * 4 * 2
"""The bytes of the rows of 300 vertices, with Adagrad's sums."""


def links_from_a_disk(**settings):
    links = lotan.datasets.generate(300, 900, width=8, classes=3)
    order = "comet(partitions=8, buffer=4, groups=4)"
    given = {"regime": lotan.MiniBatch(100, (), order=order), "optimizer": lotan.Adagrad(), "epochs": 2} | settings
    task = lotan.LinkPrediction(decoder="dot", negatives=20, fractions=(0.05, 0.1))
    return lotan.Trainer(lotan.nn.LearnedRows(4), links, task=task, progress=False, **given)


def test_a_schedule_is_data_with_what_links_move():
    found = links_from_a_disk()
    data = json.loads(found.explain("json", analyze=1))
    storage, measured = data["storage"], {one["what"]: one["measured"] for one in data["measured"]}
    assert all(len(held) == 4 for held in storage["sets"])
    assert storage["swaps"] >= storage["least_swaps"] > 0
    turned = 4 + storage["swaps"]  # partitions, of 37 or 38 vertices
    assert storage["estimated_written_bytes"] == pytest.approx(turned * ROWS / 8, abs=turned * ROWS / 300)
    assert measured["written to the disk"] == pytest.approx(storage["estimated_written_bytes"], rel=0.1)
    assert measured["swaps of a partition"] == storage["swaps"]
    assert measured["edges read from the disk"] == storage["estimated_edge_bytes"] > 0
    assert measured["reading and writing"] > 0
    assert measured["waiting for the disk"] > 0


def test_a_measured_run_leaves_the_storage_as_it_was(tmp_path):
    found = links_from_a_disk(storage_dir=tmp_path / "parts", checkpoint_dir=tmp_path / "checkpoints")
    found.fit()

    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before, used = contents(), []
    open_partitioned = stored.open_partitioned

    def opened(folder, *given):
        used.append(folder)
        return open_partitioned(folder, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "open_partitioned", opened)
        text = found.explain(analyze=1)
    assert "swaps of a partition" in text
    assert contents() == before
    assert [folder.parent for folder in used] == [tmp_path / "parts"]
    assert not used[0].exists()


def test_a_measured_run_has_the_partitions_that_are_shown(monkeypatch):
    least = links_from_a_disk(memory_limit="4g").job.needs(lotan.TrainerConfig()).least
    regime = lotan.MiniBatch(100, (), order="beta")
    disks = [Disk(1e12, 1e-12, 4096)] * 2 + [Disk(1e6, 0.5, 4096)]  # the run that is measured finds another one
    monkeypatch.setattr(stored_links, "disk_of", lambda folder: disks.pop(0) if len(disks) > 1 else disks[0])
    data = json.loads(links_from_a_disk(regime=regime, memory_limit=least + 10_000).explain("json", analyze=1))
    measured = {one["what"]: one["measured"] for one in data["measured"]}
    assert measured["swaps of a partition"] == data["storage"]["swaps"] > 0
