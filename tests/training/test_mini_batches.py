"""Training on mini-batches, on the local engine: exact where every edge is taken, repeatable, and refused where it cannot be."""

from __future__ import annotations

import json
import threading
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import functional
from torch_geometric.utils import k_hop_subgraph

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.loader import BatchLoader
from lotan.batches.sampler import Sampler
from lotan.cli import main
from lotan.engines.base import run
from lotan.errors import ConfigurationError, ModelError
from lotan.planning.batches import sampling_of
from lotan.stages.randomness import Randomness
from lotan.training.checkpoint import CheckpointError
from planner.regime import hops
from tests.exactness.cases import EVERY, OUT, WIDTH, models, sample, specs
from tests.night import at_night

pytestmark = pytest.mark.thorough

RATE = 0.05
TRAINED = [name for name in EVERY if name != "MLP"]  # which sums over no neighbours


def fit(model: torch.nn.Module, graph: lotan.Graph, regime: Any = None, **options: Any) -> lotan.results.run.Run:
    given = {} if regime is None else {"regime": regime}
    settings = {"engine": "local", "progress": False, "optimizer": lotan.SGD(lr=RATE), "epochs": 2, **given, **options}
    return lotan.Trainer(model, graph, **settings).fit()


def figures(run: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if not key.endswith("_seconds")} for entry in run.history]


def assert_alike(
    model: torch.nn.Module, other: torch.nn.Module, before: torch.nn.Module, tolerance: float = 1e-5
) -> None:
    """The steps of both models are equal, relative to the largest number of a step."""
    start = {name: one.detach() for name, one in before.named_parameters()}
    for name, one in other.named_parameters():
        moved, expected = (found.detach() - start[name] for found in (dict(model.named_parameters())[name], one))
        scale = max(float(expected.abs().max()), 1e-3)
        assert float((moved - expected).abs().max()) <= tolerance * scale, name


BY_DAY = [*((name, 1_000) for name in ("GCN", "residual", "hops", "GAT", "GraphSAGE, max", "own layer")),
          *((name, "all") for name in ("GCN, three layers, jumping", "GraphSAGE", "arithmetic on edges"))]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "most"), at_night([(name, most) for name in TRAINED for most in (1_000, "all")], BY_DAY)
)
def test_one_batch_of_all_edges_is_the_full_batch(name: str, most: Any) -> None:
    """Losses and weights after each of two epochs. The full batch equals autograd, see tests/exactness/test_local.py."""
    drawn = sample(seed=4, weighted=EVERY[name].weights)
    ours, _ = models(name, seed=4)
    full, before = deepcopy(ours), deepcopy(ours)
    regime = lotan.MiniBatch(1_000, (most,) * hops(specs(name)[0]))
    found, expected = (fit(model, drawn.graph, one) for model, one in ((ours, regime), (full, None)))
    for one, other in zip(found.history, expected.history, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["metrics"]["test"]["loss"] == pytest.approx(other["metrics"]["test"]["loss"], rel=1e-5)
    assert_alike(ours, full, before)


RULES = [("GCN", (2, 3), ("push_down", "commute_linear")), ("GraphSAGE, max", (2, 2), ("prune_vertices",)),
         ("GAT", ("all", "all"), ("prune_vertices",)), ("GCN", ("all", "all"), ("hoist_invariant",))]  # fmt: skip


@pytest.mark.parametrize(("name", "fanouts", "disable"), RULES)
def test_no_rule_changes_a_batch(name: str, fanouts: tuple, disable: tuple) -> None:
    drawn = sample(seed=5, vertices=30, edges=150, weighted=EVERY[name].weights)
    ours, _ = models(name, seed=5)
    other, before = deepcopy(ours), deepcopy(ours)
    regime = lotan.MiniBatch(3, fanouts)
    fit(ours, drawn.graph, regime)
    fit(other, drawn.graph, regime, disable=disable)
    assert_alike(ours, other, before)


def test_the_general_plan_trains_on_the_same_batches() -> None:
    drawn, (ours, _) = sample(seed=5, vertices=30, edges=150), models("GraphSAGE", seed=5)
    other, before, regime = deepcopy(ours), deepcopy(ours), lotan.MiniBatch(3, (2, 2))
    fit(ours, drawn.graph, regime)
    fit(other, drawn.graph, regime, plan="general")
    assert_alike(ours, other, before)


def batches_in_pyg(drawn, regime: lotan.MiniBatch, epoch: int):
    arrays = drawn.graph.arrays()
    of = Randomness(regime.seed, epoch)
    return batches_of_epoch(examples_of(arrays), arrays.keys, regime.batch_size, of)


@pytest.mark.parametrize("imported", [False, True], ids=["of lotan.nn", "of PyG"])
def test_batches_of_all_edges_equal_subgraphs_in_pyg(imported: bool) -> None:
    """Several steps an epoch, the last on fewer targets, against PyG on the k-hop subgraph of each batch."""
    drawn = sample(seed=6, vertices=40, edges=120)
    torch.manual_seed(0)
    theirs = pyg.GraphSAGE(WIDTH, 6, 2, OUT)
    ours = deepcopy(theirs) if imported else lotan.nn.GraphSAGE(WIDTH, 6, 2, OUT)
    ours.load_state_dict(theirs.state_dict())
    before, regime = deepcopy(theirs), lotan.MiniBatch(4, ("all", "all"))
    trained = fit(ours, drawn.graph, regime, eval_every=0)  # the model then holds its last weights, and not its best
    optimizer = torch.optim.SGD(theirs.parameters(), RATE)
    for epoch in (1, 2):
        losses, count = 0.0, 0
        for targets in batches_in_pyg(drawn, regime, epoch):
            rows = torch.from_numpy(targets)
            subset, edges, mapping, _ = k_hop_subgraph(rows, 2, drawn.edge_index, relabel_nodes=True, num_nodes=40)
            optimizer.zero_grad()
            loss = functional.cross_entropy(theirs(drawn.x[subset], edges)[mapping], drawn.label[rows])
            loss.backward()
            optimizer.step()
            losses, count = losses + loss.item() * len(rows), count + len(rows)
        assert trained.history[epoch - 1]["loss"] == pytest.approx(losses / count, rel=1e-5)
    assert_alike(ours, theirs, before)


def test_sampled_batches_equal_pyg_on_the_sampled_edges() -> None:
    drawn = sample(seed=7, vertices=40, edges=200)
    torch.manual_seed(0)
    theirs, ours = pyg.GraphSAGE(WIDTH, 6, 2, OUT), lotan.nn.GraphSAGE(WIDTH, 6, 2, OUT)
    ours.load_state_dict(theirs.state_dict())
    before, regime = deepcopy(theirs), lotan.MiniBatch(4, (2, 3), seed=9)
    fit(ours, drawn.graph, regime, epochs=1)
    arrays, optimizer = drawn.graph.arrays(), torch.optim.SGD(theirs.parameters(), RATE)
    sampler = Sampler(arrays)
    for number, targets in enumerate(batches_in_pyg(drawn, regime, 1)):
        found = sampler.sample(targets, regime.fanouts, Randomness(9, 1, batch=number))
        edges = torch.from_numpy(np.stack([found.src, found.dst]))
        x = torch.from_numpy(arrays.features[found.rows])
        optimizer.zero_grad()
        out = theirs(x, edges)[: len(targets)]
        functional.cross_entropy(out, torch.from_numpy(arrays.label[targets])).backward()
        optimizer.step()
    assert_alike(ours, theirs, before)


def test_sparse_features_are_sampled_as_their_nonzero_numbers() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 400)).astype(np.float32) * (random.random((60, 400)) < 0.01)
    edges, split = random.integers(0, 60, (2, 300)), random.integers(-1, 2, 60).astype(np.int8)
    graph = lotan.Graph.from_arrays(x, *edges, label=random.integers(0, OUT, 60), split=split)
    model = lotan.nn.GraphSAGE(400, 8, 2, OUT)
    other, before, regime = deepcopy(model), deepcopy(model), lotan.MiniBatch(5, (2, 2))
    job = lotan.Trainer(model, graph, regime=regime).job
    assert job.batch is not None
    assert BatchLoader(graph, job.batch.plan)._sparse.keys() == {"features"}
    fit(model, graph, regime)
    fit(other, graph, regime, disable=("hold_sparse",))
    assert_alike(model, other, before)


def test_the_normalisation_of_gcn_is_that_of_the_graph() -> None:
    """One layer: the sum over drawn neighbours of 1 / sqrt(d_i d_j) x_j, with the degrees of the whole graph."""
    drawn = sample(seed=8, vertices=30, edges=200)
    model = lotan.nn.GCNConv(WIDTH, OUT)
    before, regime = deepcopy(model), lotan.MiniBatch(1_000, (2,))
    fit(model, drawn.graph, regime, epochs=1)
    arrays = drawn.graph.arrays()
    targets = examples_of(arrays)
    found = Sampler(arrays).sample(targets, (2,), Randomness(0, 1))
    loops = np.ones(len(arrays.ids)) + np.bincount(arrays.dst[arrays.src != arrays.dst], minlength=len(arrays.ids))
    matrix = np.zeros((len(targets), len(found.rows)))
    scale = loops[found.rows] ** -0.5
    for src, dst in zip(found.src, found.dst, strict=True):
        matrix[dst, src] += (src != dst) * scale[src] * scale[dst]
    matrix[np.arange(len(targets)), np.arange(len(targets))] += scale[: len(targets)] ** 2
    theirs = deepcopy(before)
    optimizer = torch.optim.SGD(theirs.parameters(), RATE)
    x = torch.from_numpy(matrix).float() @ torch.from_numpy(arrays.features[found.rows])
    out = x @ theirs.lin.weight.T + theirs.bias
    functional.cross_entropy(out, torch.from_numpy(arrays.label[targets])).backward()
    optimizer.step()
    assert_alike(model, theirs, before)


@pytest.mark.parametrize("label", ["classes", "weighted classes", "labels", "targets"])
def test_the_loss_of_a_batch_is_the_mean_over_its_own_targets(label: str) -> None:
    """With class weights and unknown entries, the terms of batches add up to other numbers than their share."""
    random = np.random.default_rng(3)
    x, edges = random.normal(size=(30, WIDTH)).astype(np.float32), random.integers(0, 30, (2, 90))
    split = random.integers(-1, 2, 30).astype(np.int8)
    classes, entries = random.integers(0, OUT, 30), random.normal(size=(30, OUT)).astype(np.float32)
    if label in ("labels", "targets"):
        entries = (entries > 0).astype(np.float32) if label == "labels" else entries
        if label == "labels":
            entries[:, 1:][random.random((30, OUT - 1)) < 0.3] = np.nan
    given = entries if label in ("labels", "targets") else classes
    graph = lotan.Graph.from_arrays(x, *edges, label=given, split=split)
    weights = [0.5, 1.0, 3.0] if label == "weighted classes" else None
    torch.manual_seed(1)
    theirs, ours = pyg.GraphSAGE(WIDTH, 4, 1, OUT), lotan.nn.GraphSAGE(WIDTH, 4, 1, OUT)
    ours.load_state_dict(theirs.state_dict())
    before, regime = deepcopy(theirs), lotan.MiniBatch(3, ("all",))
    fit(ours, graph, regime, epochs=1, class_weights=weights)
    arrays, optimizer = graph.arrays(), torch.optim.SGD(theirs.parameters(), RATE)
    for targets in batches_of_epoch(examples_of(arrays), arrays.keys, 3, Randomness(0, 1)):
        out, wanted = (
            theirs(torch.from_numpy(x), torch.from_numpy(edges))[targets],
            torch.from_numpy(arrays.label[targets]),
        )
        known = torch.ones(1, dtype=torch.bool) if given is classes else ~wanted.isnan()
        optimizer.zero_grad()
        if given is classes:
            loss = functional.cross_entropy(out, wanted, None if weights is None else torch.tensor(weights))
        elif label == "labels":
            loss = functional.binary_cross_entropy_with_logits(out[known], wanted[known])
        else:
            loss = functional.mse_loss(out, wanted)
        loss.backward()
        optimizer.step()
    assert_alike(ours, theirs, before)


def test_two_runs_are_bit_identical_and_dropout_differs_between_batches() -> None:
    drawn, regime = sample(seed=5, vertices=40, edges=200), lotan.MiniBatch(4, (2, 2))
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT, dropout=0.5)
        runs.append((fit(model, drawn.graph, regime, epochs=3), model))
    assert figures(runs[0][0]) == figures(runs[1][0])
    for one, two in zip(runs[0][1].parameters(), runs[1][1].parameters(), strict=True):
        assert torch.equal(one, two)
    keys = torch.arange(64)
    from lotan.stages.randomness import draws

    first, second = (draws(Randomness(0, 1, batch=batch), 3, keys, 4) for batch in (0, 1))
    assert (first != second).any()
    assert (first == draws(Randomness(0, 1), 3, keys, 4)).all()


def test_each_batch_of_each_epoch_draws_its_own_dropout(monkeypatch) -> None:
    drawn, seen = sample(seed=5, vertices=40, edges=200), []

    def watched(engine, plan, steps, a_pass, **more):
        if steps is plan.train:
            seen.append(a_pass.randomness.operator("layer"))
        return run(engine, plan, steps, a_pass, **more)

    monkeypatch.setattr("lotan.batches.schedule.run", watched)
    fit(lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT, dropout=0.5), drawn.graph, lotan.MiniBatch(4, (2, 2)))
    examples = len(examples_of(drawn.graph.arrays()))
    assert len(seen) == len(set(seen)) == 2 * -(-examples // 4)


def test_one_batch_draws_the_dropout_of_the_full_batch() -> None:
    drawn = sample(seed=5, vertices=40, edges=200)
    found = []
    for regime in (None, lotan.MiniBatch(1_000, ("all", "all"))):
        torch.manual_seed(0)
        found.append(fit(lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT, dropout=0.5), drawn.graph, regime).history)
    for one, two in zip(*found, strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)


@pytest.mark.parametrize("at", [1, 2])
def test_a_resumed_run_equals_the_uninterrupted_one(at: int, tmp_path) -> None:
    drawn, regime = sample(seed=5, vertices=40, edges=200), lotan.MiniBatch(4, (2, 2))

    def trained(epochs: int, **options: Any):
        torch.manual_seed(0)
        model = lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT, dropout=0.5)
        return fit(model, drawn.graph, regime, optimizer=lotan.Adam(lr=0.01), epochs=epochs, **options)

    whole = trained(4)
    trained(at, checkpoint_dir=tmp_path)
    assert figures(trained(4, checkpoint_dir=tmp_path, resume=True)) == figures(whole)
    with pytest.raises(CheckpointError, match="regime"):
        fit(lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT, dropout=0.5), drawn.graph, lotan.MiniBatch(5, (2, 2)), epochs=4,
            optimizer=lotan.Adam(lr=0.01), checkpoint_dir=tmp_path, resume=True)  # fmt: skip


def test_members_of_a_batch_share_samples_and_are_what_they_are_alone() -> None:
    drawn, regime = sample(seed=5, vertices=40, edges=200), lotan.MiniBatch(4, (2, 2))

    def member(kind: str, seed: int, epochs: int) -> lotan.Member:
        torch.manual_seed(seed)
        model = getattr(lotan.nn, kind)(WIDTH, 8, 2, OUT, dropout=0.5)
        return lotan.Member(model, lotan.Adam(lr=0.01), seed=seed, epochs=epochs)

    made = [("GraphSAGE", 0, 2), ("GraphSAGE", 1, 2), ("GCN", 2, 3)]
    with lotan.ModelBatch(drawn.graph, [member(*one) for one in made], regime=regime, progress=False) as batch:
        batch.train()
        runs = batch.runs()
        assert "Propagate" in batch.explain()
        json.dumps(batch.report())
    for number, (kind, seed, epochs) in enumerate(made):
        alone = member(kind, seed, epochs)
        trained = fit(alone.model, drawn.graph, regime, optimizer=alone.optimizer, seed=seed, epochs=epochs)
        assert figures(runs[number]) == figures(trained)


def test_a_batch_is_explained() -> None:
    trainer = lotan.Trainer(
        lotan.nn.GraphSAGE(64, 16, 2, 10), lotan.Graph.read("digits"), regime=lotan.MiniBatch(128, (5, 5))
    )
    said = trainer.explain()
    assert "batch size 128, fanouts 5, 5" in said
    assert "== one batch ==" in said
    assert "== evaluation, on all 1,797 vertices" in said
    assert json.loads(trainer.explain("json"))["batch"]["levels"][0] == 128
    assert "one batch" in trainer.explain(stage="all")
    assert "<html" in trainer.explain("html")


def test_the_command_line_trains_on_mini_batches(tmp_path, capsys) -> None:
    report, log = tmp_path / "report.json", tmp_path / "log"
    words = ["--graph", "digits", "--model", "sage", "--epochs", "3", "--batch-size", "256", "--fanouts", "5,all"]
    assert main(["train", *words, "--report", str(report), "--log-dir", str(log)]) == 0
    assert "regime: mini-batches of batch size 256, fanouts 5, all" in capsys.readouterr().out
    found = json.loads(report.read_text())
    assert found["mini_batches"]["batches"] >= 3
    assert found["epochs"][-1]["loss"] < found["epochs"][0]["loss"]
    assert main(["rerun", str(log), "--quiet"]) == 0
    assert "the same to the last bit" in capsys.readouterr().out
    assert main(["explain", *words]) == 0
    assert "one batch" in capsys.readouterr().out


def test_a_grid_trains_on_mini_batches() -> None:
    grid = {"epochs": 2, "seed": [0, 1], "model": {"kind": "sage", "hidden": [4, 8]}}
    graph = lotan.Graph.read("digits")
    tuned = lotan.tune(graph, grid, regime=lotan.MiniBatch(256, (3, 3)), progress=False)
    assert len(tuned.trials) == 4
    words = tuned.trials[0].train_options
    assert words is not None
    assert "--batch-size" in words
    assert main(["train", "--graph", "digits", "--quiet", *words]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"batch_size": 0}, "batch_size=0; expected a whole number of at least 1"),
        ({"batch_size": 10.5}, "batch_size=10.5"),
        ({"fanouts": (10, 0)}, r"fanouts=\(10, 0\); expected at most 16 whole numbers of at least 1"),
        ({"fanouts": (-1,)}, "fanouts"),
        ({"fanouts": ("some",)}, "fanouts"),
        ({"fanouts": 10}, "fanouts=10"),
        ({"fanouts": (True,)}, "fanouts"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_unusable_batches_are_refused(arguments: dict, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        lotan.MiniBatch(**arguments)


def test_a_model_without_neighbours_needs_no_fanouts() -> None:
    drawn = sample(seed=4)
    ours = lotan.nn.MLP([WIDTH, 4, OUT], norm=None)
    full, before = deepcopy(ours), deepcopy(ours)
    fit(ours, drawn.graph, lotan.MiniBatch(1_000, ()))
    fit(full, drawn.graph)
    assert_alike(ours, full, before)


def test_the_rows_engine_refuses_mini_batches() -> None:
    with pytest.raises(ConfigurationError, match="runs on the engines 'local' and 'blocks', but engine is 'rows'"):
        lotan.TrainerConfig(engine="rows", regime=lotan.MiniBatch())


def test_batches_on_blocks_are_explained() -> None:
    """A worker runs a batch as the local engine does. Spark's part is estimated beside it."""
    model, regime = lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT), lotan.MiniBatch(4, ("all", "all"))
    job = lotan.Trainer(model, sample(seed=5).graph, regime=regime, engine="blocks").job
    shown = lotan.Trainer(model, sample(seed=5).graph, regime=regime, engine="blocks").explain()
    assert "Engine  local (in workers, to which Spark sends whole batches; engine blocks: asked for)" in shown
    words = " ".join(shown.split())
    assert "to draw and send batches" in words
    assert "1 hop fewer, because first sums are computed once" in words
    assert "hoist_invariant 1x" in words
    assert "evaluation, on all" in shown
    assert job.batch is not None
    assert [len(one.plan.hoisted) for one in (job.batch, job.planned)] == [1, 1]
    assert len(job.batch.statistics.sampled) == 2
    sampling = job.batch.options.sampling
    assert sampling is not None
    assert job.epoch_seconds > sampling.drawing_seconds > 0


def test_first_sums_that_evaluation_does_not_compute_once_are_summed_in_each_batch_on_blocks() -> None:
    """Learned rows are looked up ahead, so their batches are not drawn again; drawn edges have other sums in each."""
    graph = sample(seed=5).graph

    def hoisted(regime: lotan.MiniBatch, model: torch.nn.Module) -> int:
        batch = lotan.Trainer(model, graph, regime=regime, engine="blocks").job.batch
        assert batch is not None
        return len(batch.plan.hoisted)

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.conv = lotan.nn.LearnedFeatures(4), lotan.nn.GCNConv(WIDTH, 4)
            self.out = torch.nn.Linear(8, OUT)

        def forward(self, x, graph):
            return self.out(torch.cat([self.conv(x, graph), self.rows(graph)], dim=1))

    assert hoisted(lotan.MiniBatch(4, ("all",)), lotan.nn.GraphSAGE(WIDTH, 4, 1, OUT)) == 1
    assert hoisted(lotan.MiniBatch(4, (2,)), lotan.nn.GraphSAGE(WIDTH, 4, 1, OUT)) == 0
    assert hoisted(lotan.MiniBatch(4, ("all",)), Both()) == 0


def test_batches_that_spark_does_not_draw_are_refused() -> None:
    model, regime = pyg.GraphSAGE(WIDTH, 4, 2, OUT, aggr="lstm"), lotan.MiniBatch(4, (2, 2))
    trainer = lotan.Trainer(model, sample(seed=5).graph, regime=regime, engine="blocks", eval_every=1)
    said = "the model takes neighbours in the order of their ids"
    with pytest.raises(ConfigurationError, match=f"regime MiniBatch on engine 'blocks' .*{said}"):
        trainer.job  # noqa: B018 - making the job is what is refused


def test_a_regime_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="regime is 'mini'"):
        lotan.TrainerConfig(regime="mini")


def test_models_that_do_not_fit_are_refused_before_the_first_batch() -> None:
    graph = sample(seed=5).graph
    cases = [
        (
            lotan.nn.GraphSAGE(WIDTH, 4, 3, OUT),
            ConfigurationError,
            "got 2 fanouts .* but the model sums over neighbours 3",
        ),
        (lotan.nn.MLP([WIDTH, 4, OUT], norm=None), ConfigurationError, "the model reads no neighbours"),
        (pyg.GCN(WIDTH, 4, 2, OUT, norm="pair_norm"), ModelError, "reads the rows of all vertices"),
    ]
    for model, error, said in cases:
        with pytest.raises(error, match=said):
            fit(model, graph, lotan.MiniBatch(4, (2, 2)))


def test_the_memory_of_batches_counts_in_the_limit() -> None:
    graph = lotan.datasets.generate(3000, 60_000, 64, 4)

    def needed(regime: Any, **options: Any) -> int:
        trainer = lotan.Trainer(lotan.nn.GraphSAGE(64, 64, 2, 4), graph, regime=regime, **options)
        return trainer.job.needs(trainer.config).least

    small, large = (needed(lotan.MiniBatch(size, (20, 20))) for size in (16, 1024))
    assert small < large
    with pytest.raises(ConfigurationError, match="memory_limit"):
        needed(lotan.MiniBatch(1024, (20, 20)), memory_limit=(small + large) // 2)
    assert needed(lotan.MiniBatch(16, (20, 20)), memory_limit=(small + large) // 2) == small


def test_a_batch_larger_than_the_examples_is_said_once(capsys) -> None:
    fit(lotan.nn.GraphSAGE(WIDTH, 4, 2, OUT), sample(seed=5).graph, lotan.MiniBatch(4_000, (2, 2)), progress=True)
    assert capsys.readouterr().err.count("batch_size is 4,000, but only") == 1


def test_no_thread_outlives_a_run_that_fails(monkeypatch) -> None:
    def fails(self, sample):
        raise MemoryError("no room")

    monkeypatch.setattr(BatchLoader, "load", fails)
    with pytest.raises(MemoryError, match="no room"):
        fit(lotan.nn.GraphSAGE(WIDTH, 4, 2, OUT), sample(seed=5).graph, lotan.MiniBatch(4, (2, 2)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lotan-batches")]


def test_full_batch_has_no_sampling() -> None:
    graph = sample(seed=5).graph
    config = lotan.TrainerConfig(regime=lotan.FullBatch())
    assert sampling_of(specs("GCN")[0], graph, config) is None


def test_a_batch_whose_targets_weigh_nothing_is_no_divergence():
    graph = lotan.datasets.generate(60, 200, width=4, classes=3, seed=1)
    run = lotan.Trainer(
        lotan.nn.GCN(4, 4, 1, 3),
        graph,
        regime=lotan.MiniBatch(1, (2,)),
        class_weights={0: 0.0},
        epochs=1,
        progress=False,
    ).fit()
    assert np.isfinite(run.history[0]["loss"])
