"""Link training from a disk: the same bits as in memory in the same order, also after a kill at any write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.errors import ConfigurationError, GraphError, ModelError, StorageError
from lotan.links.decoders import make_decoder
from lotan.links.pairs import score
from lotan.planning import stored_links
from lotan.planning.learned import draw_rows
from lotan.settings.optimizers import Optimizer
from lotan.stages.randomness import Randomness
from lotan.storage import disk_schedule, edge_readers, row_files
from lotan.storage.edge_readers import LinkReader
from lotan.storage.link_batches import pairs_of, sets_of_epoch
from lotan.storage.partitioned_graph import open_partitioned
from lotan.storage.set_graph import InMemory
from lotan.training import checkpoint
from planner.orders.disk import Disk
from tests.links.graphs import columns
from tests.training.test_checkpoints_within_epochs import dying_after

EPOCHS = 3
COMET, BETA = "comet(partitions=8, buffer=4, groups=4)", "beta(partitions=7, buffer=3)"
TASK = lotan.LinkPrediction("distmult", negatives=20)
WIDTH = 6


def graph() -> lotan.Graph:
    return lotan.Graph.from_arrays(**columns(4, vertices=45, edges=300))


def trainer(order: str = COMET, model: torch.nn.Module | None = None, **settings: Any) -> lotan.Trainer:
    """A Trainer whose rows lie on a disk."""
    given = {
        "task": TASK,
        "regime": lotan.MiniBatch(16, (), seed=2, order=order),
        "optimizer": lotan.Adam(lr=0.05),
        "epochs": EPOCHS,
        "progress": False,
    }
    return lotan.Trainer(
        model or lotan.nn.LearnedRows(WIDTH), settings.pop("graph", None) or graph(), **{**given, **settings}
    )


def in_memory(folder: Path, order: str, optimizer: Optimizer, task: lotan.LinkPrediction) -> dict[str, torch.Tensor]:
    """Train on the whole table in the order of the epochs' batches, by torch's autograd, and return the weights."""
    regime = lotan.MiniBatch(16, (), seed=2, order=order)
    reader = LinkReader(graph(), task)
    division = regime.division
    assert division is not None
    stored, _ = open_partitioned(folder, reader, reader.summary(), division.partitions, regime.seed)
    model = lotan.nn.LearnedRows(WIDTH)
    draw_rows(model, graph(), lotan.TrainerConfig())
    decoder = make_decoder(task, WIDTH, 3, 0)
    parameters = {"rows.weight": model.rows.weight, **dict(decoder.named_parameters())}
    steps = optimizer.build(parameters, ["rows.weight"])
    for epoch in range(1, EPOCHS + 1):
        number = 0
        for of_set in sets_of_epoch(stored, division.of_epoch(regime.seed, epoch), 16, Randomness(regime.seed, epoch)):
            memory = InMemory(stored.placement, of_set.held)
            for start in range(0, len(of_set.records), 16):
                records = of_set.records[start : start + 16]
                of = Randomness(task.seed, epoch, batch=number)
                pairs = pairs_of(records, of_set.records, memory, task, of, True)
                places = torch.from_numpy(stored.placement.rows(pairs.ends))
                rows = model.rows.weight.detach()[places]
                found = score(decoder, rows, [pairs.among(pairs.ends)], len(records), task.loss)
                shape = model.rows.weight.shape
                gradient = torch.sparse_coo_tensor(places[None], found.rows, shape, check_invariants=True)
                model.rows.weight.grad = gradient
                for name, parameter in decoder.named_parameters():
                    parameter.grad = found.decoder[name]
                steps.step()
                number += 1
    return {name: parameter.detach() for name, parameter in parameters.items()}


@pytest.mark.parametrize(
    ("order", "optimizer", "task"),
    [
        (COMET, lotan.Adam(lr=0.05), TASK),
        (BETA, lotan.Adagrad(lr=0.1, initial_accumulator_value=0.1), lotan.LinkPrediction("complex", 20, "bce")),
        (COMET, lotan.SGD(lr=0.5), lotan.LinkPrediction("transe", "all")),
        (BETA, lotan.Adam(lr=0.05), lotan.LinkPrediction("distmult", 20, negative_sampling="degree")),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_the_table_has_the_bits_of_a_run_in_memory(
    tmp_path: Path, order: str, optimizer: Optimizer, task: lotan.LinkPrediction
) -> None:
    wanted = in_memory(tmp_path, order, optimizer, task)
    asked = trainer(order, optimizer=optimizer, task=task, eval_every=0)
    run = asked.fit()
    assert torch.equal(asked.model.rows.weight, wanted["rows.weight"])
    assert torch.equal(run.model.weights["link_decoder.relation"], wanted["relation"])
    assert set(run.metrics) == {"val", "test"}
    moved = run.report["mini_batches"]
    assert moved["read_bytes"] > 0
    assert moved["written_bytes"] > 0


class NormedRows(lotan.nn.LearnedRows):
    """Learned rows with running statistics."""

    def __init__(self) -> None:
        super().__init__(WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        return self.norm(super().forward(x, graph))


def test_running_statistics_are_those_of_autograd_over_the_rows_of_batches(tmp_path: Path) -> None:
    asked = trainer(model=NormedRows(), optimizer=lotan.SGD(lr=0.3), eval_every=0)
    division = asked.config.regime.division
    reader = LinkReader(graph(), TASK)
    stored, _ = open_partitioned(tmp_path, reader, reader.summary(), division.partitions, 2)
    wanted = NormedRows()
    draw_rows(wanted, graph(), lotan.TrainerConfig())
    decoder = make_decoder(TASK, WIDTH, 3, 0)
    steps = torch.optim.SGD([*wanted.parameters(), *decoder.parameters()], 0.3)
    for epoch in range(1, EPOCHS + 1):
        for of_set in sets_of_epoch(stored, division.of_epoch(2, epoch), 16, Randomness(2, epoch)):
            memory = InMemory(stored.placement, of_set.held)
            for number, start in enumerate(range(0, len(of_set.records), 16), of_set.first):
                records = of_set.records[start : start + 16]
                of = Randomness(TASK.seed, epoch, batch=number)
                pairs = pairs_of(records, of_set.records, memory, TASK, of, True)
                out = wanted.norm(wanted.rows.weight[torch.from_numpy(stored.placement.rows(pairs.ends))])
                found = score(decoder, out.detach(), [pairs.among(pairs.ends)], len(records), TASK.loss)
                steps.zero_grad()
                out.backward(found.rows)
                for name, parameter in decoder.named_parameters():
                    parameter.grad = found.decoder[name]
                steps.step()
    asked.fit()
    found = asked.model.state_dict()
    assert found["norm.num_batches_tracked"] > EPOCHS
    for name, weight in wanted.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5)


def test_the_best_epoch_is_kept_and_the_model_predicts(tmp_path: Path) -> None:
    asked = trainer(epochs=6, optimizer=lotan.Adam(lr=0.5), storage_dir=tmp_path)
    run = asked.fit()
    assert run.best_epoch < 6
    again = trainer(epochs=run.best_epoch, optimizer=lotan.Adam(lr=0.5))
    again.fit()
    assert torch.equal(asked.model.rows.weight, again.model.rows.weight)
    assert len(run.rank({"src": [0, 1], "relation": ["a", "b"]}, k=2)) == 4
    run.save(tmp_path / "model")
    loaded = lotan.load(tmp_path / "model")
    assert torch.equal(loaded.weights["rows.weight"], asked.model.rows.weight)
    asked.fit()  # it goes on from its rows


class Killed(BaseException):
    """Stands for the end of the process: nothing that comes after it in the run may write."""


def dying(monkeypatch: pytest.MonkeyPatch, write: int) -> list[int]:
    """Let the given write to a file of rows or of a checkpoint be cut off in its middle."""
    count, rows, whole = [0], row_files.RowFiles.write, checkpoint.write_atomically

    def of_rows(self: row_files.RowFiles, partition: int, epoch: int, columns: Any) -> int:
        count[0] += 1
        found = rows(self, partition, epoch, columns)
        if count[0] == write:
            path = self.path(partition, epoch)
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            raise Killed
        assert count[0] < write or not write
        return found

    def of_checkpoint(path: Path, content: Any) -> None:
        count[0] += 1
        if count[0] == write:
            path.with_name(path.name + ".unfinished").write_bytes(b"PK")
            raise Killed
        whole(path, content)

    monkeypatch.setattr(row_files.RowFiles, "write", of_rows)
    monkeypatch.setattr(checkpoint, "write_atomically", of_checkpoint)
    return count


def writes_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> int:
    with monkeypatch.context() as patched:
        count = dying(patched, 0)
        trainer(checkpoint_dir=tmp_path / "whole", **settings).fit()
    return count[0]


@pytest.mark.parametrize(
    ("step", "every"),
    [
        (19, None),
        (67, 2),
        pytest.param(1, None, marks=pytest.mark.nightly),
        pytest.param(5, 2, marks=pytest.mark.nightly),
    ],
)
def test_a_kill_at_any_write_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, every: int | None
) -> None:
    wanted = trainer()
    history = [epoch["metrics"] for epoch in wanted.fit().history]
    total = writes_of_a_run(tmp_path, monkeypatch, checkpoint_batches=every)
    assert total > 40
    for write in sorted({3, total, *range(9, total + 1, step)}):  # 8 writes are the first rows
        place = tmp_path / str(write)
        with monkeypatch.context() as patched:
            dying(patched, write)
            with pytest.raises(Killed):
                trainer(checkpoint_dir=place, checkpoint_batches=every).fit()
        asked = trainer(checkpoint_dir=place, checkpoint_batches=every, resume=True)
        run = asked.fit()
        assert [epoch["metrics"] for epoch in run.history] == history, write
        assert torch.equal(asked.model.rows.weight, wanted.model.rows.weight), write


def test_mini_batches_that_a_checkpoint_has_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"checkpoint_dir": tmp_path, "checkpoint_batches": 4, "epochs": 1}
    batches = trainer(epochs=1).fit().report["mini_batches"]["batches"]
    with dying_after(monkeypatch, 10):
        trainer(**options).fit()
    part = torch.load(tmp_path / "last.pt", weights_only=True)["part"]
    assert part["batches"] == 8
    assert len(list((tmp_path / "storage" / "rows").glob("0.*.bin"))) <= 2  # the checkpoint's, and the one after it
    assert trainer(**options, resume=True).fit().report["mini_batches"]["batches"] == batches - 8


KILLED = """
import sys
from pathlib import Path
from tests.training.test_stored_links import trainer
trainer(checkpoint_dir=Path(sys.argv[1]), epochs=400, eval_every=0).fit()
"""


@pytest.mark.nightly
def test_a_killed_process_resumes_bit_for_bit(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=Path(__file__).parents[2])
    last = tmp_path / "last.pt"
    while process.poll() is None and not (last.exists() and list((tmp_path / "storage" / "rows").glob("*.5.bin"))):
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    asked, wanted = (
        trainer(epochs=12, eval_every=0, **given) for given in ({"checkpoint_dir": tmp_path, "resume": True}, {})
    )
    done = checkpoint.load_checkpoint(tmp_path, torch.load(last)["identity"])
    assert done is not None
    assert done.epoch < 12, "the process was too fast for this test"
    asked.fit()
    wanted.fit()
    assert torch.equal(asked.model.rows.weight, wanted.model.rows.weight)


def test_damaged_rows_of_a_checkpoint_are_an_error(tmp_path: Path) -> None:
    trainer(checkpoint_dir=tmp_path).fit()
    with pytest.raises(StorageError, match="holds the checkpoint of an earlier run"):
        trainer(checkpoint_dir=tmp_path).fit()
    place = next((tmp_path / "storage" / "rows").glob(f"*.{EPOCHS}.bin"))
    place.write_bytes(place.read_bytes()[:-1])
    asked = trainer(checkpoint_dir=tmp_path, resume=True, epochs=5)
    with pytest.raises(StorageError, match="cut short or changed"):
        asked.fit()
    assert not asked.model.rows.has_rows  # the model is as it was
    with pytest.raises(lotan.LotanError, match="different run"):
        trainer(BETA, checkpoint_dir=tmp_path, resume=True).fit()


def test_rows_of_the_checkpoint_of_another_run_are_not_overwritten(tmp_path: Path) -> None:
    checkpoints, parts = tmp_path / "checkpoints", tmp_path / "parts"
    trainer(storage_dir=parts, epochs=1).fit()
    trainer(storage_dir=parts, epochs=1, checkpoint_dir=checkpoints).fit()
    for other in (tmp_path / "others", None):
        with pytest.raises(StorageError, match=f"has the learned rows of the checkpoint in {checkpoints}, which"):
            trainer(storage_dir=parts, checkpoint_dir=other).fit()
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(StorageError, match=r"cannot be read: .*; name the storage_dir that the run had"):
        trainer(storage_dir=elsewhere, checkpoint_dir=checkpoints, resume=True).fit()
    trainer(storage_dir=elsewhere, epochs=1).fit()  # the checkpoint's rows are not there
    assert len(trainer(storage_dir=parts, checkpoint_dir=checkpoints, resume=True).fit().history) == EPOCHS
    link = tmp_path / "link"
    link.symlink_to(checkpoints)
    assert len(trainer(storage_dir=parts, checkpoint_dir=link, resume=True).fit().history) == EPOCHS
    moved = checkpoints.rename(tmp_path / "moved")
    assert len(trainer(storage_dir=parts, checkpoint_dir=moved, resume=True, epochs=5).fit().history) == 5
    shutil.rmtree(moved)
    trainer(storage_dir=parts, epochs=1).fit()


def test_the_memory_limit_decides_the_partitions() -> None:
    def with_limit(limit: str | int) -> Any:
        return trainer("comet", memory_limit=limit).job.stored

    plenty = with_limit("4g")
    assert plenty.division.capacity == plenty.division.partitions
    least = plenty.footprint.least
    scarce = with_limit(least)
    assert scarce.footprint.peak <= least
    assert scarce.division.groups > plenty.division.groups
    with pytest.raises(ConfigurationError, match="memory_limit"):
        with_limit(least - 1)
    with pytest.raises(ConfigurationError, match="needs memory_limit"):
        trainer("comet").explain()


FAST, SLOW = Disk(1e12, 1e-12, 4096), Disk(1e6, 0.5, 4096)


def on(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    monkeypatch.setattr(stored_links, "disk_of", lambda folder: disk)


def test_the_disk_decides_the_partitions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = trainer("beta", memory_limit="4g").job.needs(lotan.TrainerConfig()).least + 2000
    found = {}
    for name, disk in (("fast", FAST), ("slow", SLOW)):
        on(monkeypatch, disk)
        asked = trainer("beta", memory_limit=limit)
        found[name] = asked.job.stored
        assert found[name].footprint.peak <= limit
        assert "divisions that fit into the limit, by the estimated seconds of an epoch" in asked.explain()
        assert json.loads(asked.explain("json"))["storage"]["reason"] == found[name].reason
    fast, slow = found["fast"].division, found["slow"].division
    assert fast.accesses(found["fast"].sizes) > slow.accesses(found["slow"].sizes)
    assert "chosen" not in trainer().explain(), "the order says the sizes"


@pytest.mark.parametrize("order", ["beta", "comet"])
def test_partitions_that_are_on_the_disk_are_taken(order: str, tmp_path: Path) -> None:
    regime = lotan.MiniBatch(16, (), seed=2, order=order)
    given = {"regime": regime, "memory_limit": "4g", "storage_dir": tmp_path / "parts", "epochs": 1}
    usual = trainer(**given).job.stored
    reader = LinkReader(graph(), TASK)
    (tmp_path / "parts").mkdir()
    open_partitioned(tmp_path / "parts", reader, reader.summary(), 9, 2)
    asked = trainer(**given)
    assert usual.division.partitions != asked.job.stored.division.partitions == 9
    assert "of the 9 partitions on the disk that fit into the limit" in asked.explain()
    before = (tmp_path / "parts" / "edges.bin").stat().st_mtime_ns
    asked.fit()
    assert (tmp_path / "parts" / "edges.bin").stat().st_mtime_ns == before
    low = trainer(**(given | {"memory_limit": usual.footprint.least})).job.stored.division
    assert low.partitions != 9, "nine partitions do not fit"
    regime = lotan.MiniBatch(16, (), seed=3, order=order)
    assert trainer(**(given | {"regime": regime})).job.stored.division == usual.division, "another seed"


def test_a_run_goes_on_with_its_partitions_on_a_disk_that_is_measured_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = trainer("beta", memory_limit="4g").job.needs(lotan.TrainerConfig()).least + 2000
    given = {"memory_limit": limit, "checkpoint_dir": tmp_path, "eval_every": 0}
    on(monkeypatch, FAST)
    first = trainer("beta", epochs=1, **given)
    wanted = first.job.stored.division
    first.fit()
    on(monkeypatch, SLOW)
    again = trainer("beta", epochs=2, resume=True, **given)
    assert again.job.stored is not None
    assert again.job.stored.division == wanted
    assert trainer("beta", **(given | {"checkpoint_dir": None})).job.stored.division != wanted
    assert "chosen by the run that goes on" in again.explain()
    assert len(again.fit().history) == 2
    other = trainer("beta", epochs=2, resume=True, **(given | {"memory_limit": limit - 1500}))
    with pytest.raises(checkpoint.CheckpointError, match="storage was"):
        other.fit()


def test_the_estimate_of_an_epoch_counts_what_training_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    job = trainer().job
    monkeypatch.setattr(disk_schedule, "disk_of", lambda folder: SLOW)
    waited = job.schedule.wait_seconds
    assert waited > 0.5 * job.stored.division.accesses(job.stored.sizes) - 1
    evaluation = job.planned.seconds + job.link_seconds.ranking
    assert job.evaluation_seconds == pytest.approx(evaluation)
    assert job.epoch_seconds == pytest.approx(job.batches_seconds + waited + evaluation)
    monkeypatch.setattr(disk_schedule, "disk_of", lambda folder: FAST)
    assert job.epoch_seconds == pytest.approx(job.batches_seconds + evaluation)


def test_explain_prints_the_schedule() -> None:
    text = trainer().explain()
    assert "Rows    learned, in partitions on a disk, with the state of their optimizer: rows.weight 45 rows" in text
    for part in (
        "comet, 4 of 8 partitions in memory, in 4 groups; 2 more are read ahead",
        "an epoch has 6 sets and 10 swaps of a partition (at least 10)",
        "S1  ",
        "that training waits for",
    ):
        assert part in text
    whole = trainer("comet(partitions=16, buffer=4, groups=8)").explain(stage="physical")
    assert "S28  " in whole


def test_the_page_of_a_plan_shows_the_schedule() -> None:
    asked = trainer()
    page, schedule = asked.explain("html"), asked.job.schedule
    assert schedule is not None
    words = asked.explain()
    section = page[page.index("<h2>Storage</h2>") :]
    assert unescape(section).splitlines()[1].strip() in words
    assert section.count("<title>partition ") == len(schedule.sets[0]) + schedule.swaps, (
        "a bar for each time it is read"
    )
    assert section.split("</section>")[0] in unescape(asked.plan._repr_html_())
    in_memory = lotan.nn.GraphSAGE(64, 8, 2, 10), lotan.Graph.read("digits")
    assert "Storage" not in lotan.Trainer(*in_memory, engine="local").explain("html")


@pytest.mark.parametrize("order", ["comet(partitions=7, buffer=2, groups=7)", "beta(partitions=7, buffer=3)"])
def test_the_first_epoch_moves_the_bytes_of_the_schedule(order: str) -> None:
    asked = trainer(order, epochs=1)  # its partitions are not equal
    schedule, moved = asked.job.schedule, asked.fit().report["mini_batches"]
    assert schedule is not None
    assert (moved["read_bytes"], moved["written_bytes"]) == (schedule.read_bytes, schedule.written_bytes)


class WithFeatures(torch.nn.Module):
    """Learned rows beside features."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(4)
        self.lin = torch.nn.Linear(5, 4)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        return self.rows(graph) + self.lin(x)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"task": None}, ConfigurationError, "trains links from a disk"),
        ({"regime": lotan.MiniBatch(8, (5,), order="comet")}, ConfigurationError, "fanouts=()"),
        ({"clip_grad_norm": 1.0}, ConfigurationError, "clip_grad_norm"),
        ({"penalty": lambda parameters: parameters["rows.weight"].sum()}, ConfigurationError, "penalty"),
        ({"task": lotan.LinkPrediction(filtered=True)}, ConfigurationError, "filtered"),
        ({"tables": 1}, ConfigurationError, "tables"),
        ({"monitor": "auc"}, ConfigurationError, "auc"),
        ({"regime": lotan.MiniBatch(8, ()), "storage_dir": "x"}, ConfigurationError, "storage_dir"),
        ({"optimizer": lotan.RMSprop()}, ConfigurationError, "RMSprop has no form"),
        ({"optimizer": lotan.Adam(weight_decay=0.1)}, ConfigurationError, "weight_decay"),
        ({"model": torch.nn.Sequential(torch.nn.Linear(5, 3))}, ModelError, "no learned rows"),
        ({"model": WithFeatures()}, ModelError, "reads features"),
        ({"order": "comet(partitions=80, buffer=40, groups=4)"}, ConfigurationError, "more partitions than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # others may print where they lie in memory
)
def test_what_is_not_built_is_refused_by_name(settings: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(").replace(")", r"\)")):
        trainer(**settings).fit()


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("comets", "order"),
        ("comet(partitions=8)", "give all of"),
        ("comet(partitions=8, buffer=4, groups=3)", "groups of the same size"),
        (
            "beta(partitions=4, buffer=1)",
            r"at least two partitions and at most all, as in 'beta\(partitions=16, buffer=4\)'",
        ),
        ("beta(partitions=4, buffer=5)", "at most all"),
        ("comet(partitions=8, buffer=0, groups=4)", "buffer"),
        (3, "order"),
    ],
)
def test_orders_that_make_no_sense_are_refused(order: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        lotan.MiniBatch(8, (), order=order)


class TwoTables(torch.nn.Module):
    """The sum of two learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = lotan.nn.LearnedFeatures(WIDTH), lotan.nn.LearnedFeatures(WIDTH)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        return self.one(graph) + self.other(graph)


def test_a_note_says_that_no_epoch_calls_forward_hooks() -> None:
    model = lotan.nn.LearnedRows(WIDTH)
    model.register_forward_hook(lambda module, given, out: None)
    assert any("forward hooks of the model" in note for note in trainer(model=model).job.warnings)


def test_more_vertices_than_records_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_readers, "MOST_VERTICES", 44)  # records hold positions of vertices as int32
    with pytest.raises(GraphError, match="has 45 vertices; expected at most 44"):
        trainer().explain()


def test_several_tables_move_together(tmp_path: Path) -> None:
    whole, parts = TwoTables(), TwoTables()
    trainer(model=whole).fit()
    trainer(model=parts, epochs=1, checkpoint_dir=tmp_path, eval_every=0).fit()
    trainer(model=parts, checkpoint_dir=tmp_path, resume=True, eval_every=0).fit()
    last = TwoTables()
    trainer(model=last, eval_every=0).fit()
    for name, rows in last.named_parameters():
        assert torch.equal(rows, parts.get_parameter(name))
    assert not torch.equal(whole.one.weight, whole.other.weight)


def test_without_links_of_validation_the_last_epoch_stays() -> None:
    held = columns(4, vertices=45, edges=300)
    run = trainer(graph=lotan.Graph.from_arrays(**{**held, "edge_split": np.zeros(300, dtype=np.int8)})).fit()
    assert run.best_epoch == EPOCHS
    assert run.metrics == {}


def test_a_grid_has_no_rows_on_a_disk() -> None:
    members = [lotan.Member(lotan.nn.LearnedRows(4)) for _ in range(2)]
    with pytest.raises(ConfigurationError, match="train each with a Trainer"):
        lotan.ModelBatch(graph(), members, task=TASK, regime=lotan.MiniBatch(8, (), order=COMET)).train()


def test_rows_given_before_are_those_that_training_begins_with() -> None:
    model = lotan.nn.LearnedRows(WIDTH)
    drawn = lotan.nn.LearnedRows(WIDTH)
    draw_rows(drawn, graph(), lotan.TrainerConfig())
    model.rows.set_rows(np.arange(45), drawn.rows.weight.detach().clone())
    trainer(model=model).fit()
    other = trainer()
    other.fit()
    assert torch.equal(model.rows.weight, other.model.rows.weight)
