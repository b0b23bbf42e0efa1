"""Link training from a disk with an encoder: the same bits as in memory, over the same parts of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.batches.loader import BatchLoader, Elsewhere
from lotan.batches.sampler import Sampler
from lotan.engines.base import Outcome, Pass, run
from lotan.engines.local.engine import LocalEngine
from lotan.errors import GraphError
from lotan.graph.arrays import GraphArrays, edge_order
from lotan.links.decoders import LinkedModel, make_decoder
from lotan.links.examples import link_graph
from lotan.links.pairs import Pairs, score
from lotan.links.ranks import rank
from lotan.links.training_pass import train_on_pairs
from lotan.planning.learned import draw_rows
from lotan.stages.randomness import Randomness
from lotan.storage.edge_readers import LinkReader
from lotan.storage.link_batches import pairs_of, sets_of_epoch
from lotan.storage.partitioned_graph import open_partitioned
from lotan.storage.set_graph import InMemory
from lotan.training.learner import weights_of
from lotan.training.running import update_running
from tests.links.graphs import WIDTH, columns
from tests.training.test_stored_links import BETA, COMET, Killed, dying

EPOCHS, SIZE, ROWS = 2, 16, 6
TASK = lotan.LinkPrediction("distmult", negatives=20)


class Encoder(torch.nn.Module):
    """A layer over learned rows, or over features, or over both."""

    def __init__(
        self, conv: type[torch.nn.Module] = lotan.nn.SAGEConv, rows: bool = True, features: bool = True
    ) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.rows = lotan.nn.LearnedFeatures(WIDTH) if rows else None
        self.features, self.conv = features, conv(WIDTH, ROWS)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        given = [*([] if self.rows is None else [self.rows(graph)]), *([x] if self.features else [])]
        return self.conv(sum(given[1:], given[0]), graph)


class WithNorm(Encoder):
    """A layer with running statistics of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(ROWS)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        return self.norm(super().forward(x, graph))


class WithAttributes(torch.nn.Module):
    """A layer of PyG's over learned rows, which reads attributes of edges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.rows = lotan.nn.LearnedFeatures(WIDTH)
        self.conv = pyg.GINEConv(torch.nn.Linear(WIDTH, ROWS), edge_dim=2)

    def forward(self, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        return self.conv(self.rows(edge_index), edge_index, edge_attr)


def graph(undirected: bool = False, numbers: bool = False) -> lotan.Graph:
    held = columns(4, vertices=45, edges=300)
    if numbers:
        random = np.random.default_rng(5)
        held["weight"] = random.uniform(0.1, 2.0, 300).astype(np.float32)
        held["edge_attr"] = random.normal(size=(300, 2)).astype(np.float32)
    if undirected:  # one of the links between two vertices
        kept = np.unique(np.sort([held["src"], held["dst"]], axis=0), axis=1, return_index=True)[1]
        held = {name: one if name == "features" else one[kept] for name, one in held.items()}
    return lotan.Graph.from_arrays(**held, undirected=undirected)


def trainer(order: str = COMET, model: torch.nn.Module | None = None, **settings: Any) -> lotan.Trainer:
    """A Trainer whose learned rows and features lie on a disk."""
    given = {
        "task": TASK,
        "regime": lotan.MiniBatch(SIZE, settings.pop("fanouts", (3,)), seed=2, order=order),
        "optimizer": lotan.Adam(lr=0.05),
        "epochs": EPOCHS,
        "progress": False,
    }
    on = settings.pop("graph", None) or graph()
    return lotan.Trainer(model or Encoder(), on, **{**given, **settings})


class Batch:
    """A batch as a run in memory sees it."""

    def __init__(self, epoch: int, number: int, links: int, pairs: Pairs, without: np.ndarray) -> None:
        self.epoch, self.number, self.links, self.pairs, self.without = epoch, number, links, pairs, without


def batches(asked: lotan.Trainer, folder: Path) -> Iterator[tuple[GraphArrays, np.ndarray, InMemory, list[Batch]]]:
    """The part of the graph of messages that each set has, the rows of its vertices, and its batches."""
    job, regime = asked.job, asked.config.regime
    assert job.stored is not None
    assert isinstance(regime, lotan.MiniBatch)
    whole, division = link_graph(asked.graph, TASK).graph.arrays(), job.stored.division
    reader = LinkReader(asked.graph, TASK)
    stored, _ = open_partitioned(folder, reader, reader.summary(), division.partitions, 2)
    for epoch in range(1, EPOCHS + 1):
        for of_set in sets_of_epoch(stored, division.of_epoch(2, epoch), SIZE, Randomness(2, epoch)):
            memory = InMemory(stored.placement, of_set.held)
            positions = stored.placement.positions(np.arange(len(whole.ids)))
            rows = np.flatnonzero(np.isin(stored.placement.partition_of(positions), of_set.held))
            rows = rows[np.argsort(positions[rows])]
            place = np.full(len(whole.ids), -1)
            place[rows] = np.arange(len(rows))
            kept = np.flatnonzero((place[whole.src] >= 0) & (place[whole.dst] >= 0))
            types = np.zeros(len(whole.src), dtype=np.int64) if whole.edge_type is None else whole.edge_type
            columns = [None if one is None else one[kept] for one in (whole.weight, whole.edge_attr)]
            turn = np.lexsort((*edge_order(*columns, types[kept]), place[whole.src[kept]], place[whole.dst[kept]]))
            kept, (weight, attributes) = kept[turn], [None if one is None else one[turn] for one in columns]
            src, dst, nothing = place[whole.src[kept]], place[whole.dst[kept]], np.zeros(len(rows), dtype=np.int8)
            empty, types = np.empty((len(rows), 0), dtype=np.float32), types[kept]
            given = whole.ids[rows], empty, np.full(len(rows), -1), nothing, src, dst, weight
            arrays = GraphArrays(*given, edge_attr=attributes, edge_type=types)
            found = []
            for number, start in enumerate(range(0, len(of_set.records), SIZE), of_set.first):
                records = of_set.records[start : start + SIZE]
                of = Randomness(TASK.seed, epoch, batch=number)
                pairs = pairs_of(records, of_set.records, memory, TASK, of, True)
                ends = [memory.numbers(records[:, column].astype(np.int64)).tolist() for column in (0, 1)]
                links = set(zip(*ends, records[:, 2].tolist(), strict=True))
                links |= {(b, a, relation) for a, b, relation in links} if asked.graph.undirected else set()
                triples = zip(src.tolist(), dst.tolist(), types.tolist(), strict=True)
                without = [edge for edge, triple in enumerate(triples) if triple in links]
                found.append(Batch(epoch, number, len(records), pairs, np.array(without, dtype=np.int64)))
            yield arrays, rows, memory, found


def in_memory(asked: lotan.Trainer, folder: Path) -> dict[str, torch.Tensor]:
    """Train in the order of the sets with all rows and features in memory, and return the weights."""
    job, config, engine, model = asked.job, asked.config, LocalEngine(), deepcopy(asked.model)
    assert job.batch is not None
    assert isinstance(config.regime, lotan.MiniBatch)
    plan, features = job.batch.plan, torch.from_numpy(asked.graph.arrays().features)
    draw_rows(model, asked.graph, lotan.TrainerConfig())
    decoder = make_decoder(TASK, ROWS, 3, 0)
    linked = LinkedModel(model, decoder)
    learned = ["rows.weight"] if job.stored is not None and job.stored.learned else []
    optimizer = config.optimizer.build(dict(linked.named_parameters()), learned)
    reads = any(column.name == "features" for column in plan.static_columns)
    for arrays, rows, memory, of_set in batches(asked, folder):
        elsewhere = Elsewhere(torch.from_numpy(rows), {"features": features} if reads else {})
        sampler, loader = Sampler(arrays), BatchLoader(lotan.Graph.of_arrays(arrays), plan, None, elsewhere)
        for batch in of_set:
            ends = batch.pairs.ends
            of = Randomness(2, batch.epoch, batch=batch.number)
            sample = sampler.sample(memory.numbers(ends), config.regime.fanouts, of, batch.without)
            loaded = loader.load(sample)
            engine.turn_to(loaded)
            placed, links = batch.pairs.among(ends), batch.links

            def scored(out: torch.Tensor, placed: Pairs = placed, links: int = links) -> Any:
                return score(decoder, out, [placed], links, TASK.loss)

            a_pass = Pass(batch.epoch, weights_of(linked), config.seed, batch=batch.number)

            def pass_of(a_pass: Pass = a_pass) -> Outcome:
                return run(engine, plan, plan.train, a_pass)

            found = train_on_pairs(engine, pass_of, scored).gradients
            for name, parameter in linked.named_parameters():
                gradient = found.get(name)
                if gradient is not None and not gradient.is_sparse:
                    gradient = gradient.view_as(parameter)
                parameter.grad = gradient
            optimizer.step()
            update_running(weights_of(linked), job.train.tracked, found, loaded.chunks.rows)
    engine.close()
    return weights_of(linked)


@pytest.mark.parametrize(
    ("order", "model", "undirected"),
    [
        (COMET, lambda: Encoder(), False),
        (BETA, lambda: Encoder(lotan.nn.GATConv, features=False), True),
        (COMET, lambda: Encoder(lotan.nn.GCNConv, rows=False), True),
        (COMET, WithNorm, False),
    ],
    ids=["SAGE, comet", "GAT on rows, beta", "GCN on features", "BatchNorm"],
)
def test_rows_and_weights_have_the_bits_of_a_run_in_memory(
    tmp_path: Path, order: str, model: Any, undirected: bool
) -> None:
    asked = trainer(order, model(), graph=graph(undirected), eval_every=0)
    wanted = in_memory(asked, tmp_path)
    run = asked.fit()
    for name, weight in weights_of(asked.model).items():
        assert torch.equal(weight, wanted[name]), name
    assert torch.equal(run.model.weights["link_decoder.relation"], wanted["link_decoder.relation"])
    assert run.report["mini_batches"]["edges"] > 0
    assert_ranked_on_the_whole_graph(asked, run)


@pytest.mark.parametrize(
    ("model", "undirected"),
    [(lambda: Encoder(lotan.nn.GCNConv), True), (WithAttributes, False)],
    ids=["weights of GCN, undirected", "attributes of GINE"],
)
def test_weights_and_attributes_of_links_lie_on_the_disk_too(tmp_path: Path, model: Any, undirected: bool) -> None:
    asked = trainer(COMET, model(), graph=graph(undirected, numbers=True), eval_every=0)
    wanted = in_memory(asked, tmp_path)
    asked.fit()
    for name, weight in weights_of(asked.model).items():
        assert torch.equal(weight, wanted[name]), name
    size = (tmp_path / "edges.bin").stat().st_size
    assert size == (12 + 4 * 3) * LinkReader(asked.graph, TASK).summary().training


def assert_ranked_on_the_whole_graph(asked: lotan.Trainer, run: Any) -> None:
    """The metrics are those of the model's output for the whole graph, as a run in memory ranks it."""
    linked = link_graph(asked.graph, TASK)
    rows = plain(asked.model, linked.graph.arrays(), asked.graph.arrays().features)
    decoder = make_decoder(TASK, ROWS, 3, 0)
    decoder.load_state_dict({"relation": run.model.weights["link_decoder.relation"]})
    wanted = rank(decoder.eval(), rows, linked.links.of("test"), linked.links).metrics()
    assert run.metrics["test"]["mrr"] == pytest.approx(wanted["mrr"], rel=1e-4)


def plain(model: Any, arrays: GraphArrays, features: np.ndarray) -> torch.Tensor:
    """The output of the encoder by PyG's layer of the same weights."""
    kinds = {lotan.nn.SAGEConv: pyg.SAGEConv, lotan.nn.GATConv: pyg.GATConv, lotan.nn.GCNConv: pyg.GCNConv}
    conv = kinds[type(model.conv)](WIDTH, ROWS)
    conv.load_state_dict(model.conv.state_dict())
    given = [
        *([] if model.rows is None else [model.rows.weight.detach()]),
        *([torch.from_numpy(features)] if model.features else []),
    ]
    out: torch.Tensor = conv.eval()(sum(given[1:], given[0]), torch.from_numpy(np.stack([arrays.src, arrays.dst])))
    return getattr(model, "norm", torch.nn.Identity()).eval()(out).detach()


def test_the_steps_are_those_of_autograd_without_the_links_asked_about(tmp_path: Path) -> None:
    asked = trainer(fanouts=("all",), optimizer=lotan.SGD(lr=0.5), eval_every=0)
    model = deepcopy(asked.model)
    draw_rows(model, asked.graph, lotan.TrainerConfig())
    conv, decoder = pyg.SAGEConv(WIDTH, ROWS), make_decoder(TASK, ROWS, 3, 0)
    conv.load_state_dict(model.conv.state_dict())
    table = model.rows.weight
    optimizer = torch.optim.SGD([table, *conv.parameters(), *decoder.parameters()], 0.5)
    features = torch.from_numpy(asked.graph.arrays().features)
    for arrays, rows, memory, of_set in batches(asked, tmp_path):
        for batch in of_set:
            edges = np.delete(np.stack([arrays.src, arrays.dst]), batch.without, axis=1)
            given = table[torch.from_numpy(rows)] + features[torch.from_numpy(rows)]
            out = conv(given, torch.from_numpy(edges))
            found = score(decoder, out, [batch.pairs.among(memory.every)], batch.links, TASK.loss)
            optimizer.zero_grad()
            out.backward(found.rows)
            for name, parameter in decoder.named_parameters():
                parameter.grad = found.decoder[name]
            optimizer.step()
    asked.fit()
    torch.testing.assert_close(asked.model.rows.weight, table, rtol=1e-4, atol=1e-6)
    for name, weight in conv.named_parameters():
        torch.testing.assert_close(asked.model.conv.get_parameter(name), weight, rtol=1e-4, atol=1e-6)


def test_the_estimate_of_an_epoch_counts_the_making_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lotan.planning.job.preparing_seconds", lambda *sizes: 0.0)  # of batches, which differs too

    def extra(order: str) -> float:
        job = trainer(order).job
        assert job.stored is not None
        return job.batches_seconds - replace(job, stored=None).batches_seconds

    job = trainer().job
    assert job.stored is not None
    assert extra(COMET) == pytest.approx(job.stored.making_seconds)
    assert extra("comet(partitions=16, buffer=4, groups=8)") > 3 * extra(COMET)  # it has 28 sets, and COMET 6


@pytest.mark.thorough
def test_a_kill_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trainer(model=WithNorm())
    history = [epoch["metrics"] for epoch in wanted.fit().history]
    for write in (12, 26, 39):  # while features or rows are written, and in both epochs
        place = tmp_path / str(write)
        with monkeypatch.context() as patched:
            dying(patched, write)
            with pytest.raises(Killed):
                trainer(model=WithNorm(), checkpoint_dir=place).fit()
        asked = trainer(model=WithNorm(), checkpoint_dir=place, resume=True)
        assert [epoch["metrics"] for epoch in asked.fit().history] == history, write
        found = weights_of(asked.model)
        for name, weight in weights_of(wanted.model).items():
            assert torch.equal(found[name], weight), (write, name)


@pytest.mark.thorough
def test_files_train_alike_within_a_limit(tmp_path: Path) -> None:
    graph().with_links().save(tmp_path / "graph")
    alike = [trainer(), trainer(graph=lotan.Graph.read(tmp_path / "graph")), trainer(memory_limit="1200m")]
    for one in alike:
        one.fit()
    for other in alike[1:]:
        for name, weight in alike[0].model.named_parameters():
            assert torch.equal(other.model.get_parameter(name), weight), name
    text = alike[2].explain()
    assert all(words in text for words in ("4 of 8 partitions in memory", "of rows and features", "== evaluation"))


def weighted(weight: float) -> lotan.Graph:
    return lotan.Graph.from_arrays(**columns(4, vertices=45, edges=300), weight=np.full(300, weight, dtype=np.float32))


def broken() -> lotan.Graph:
    held = columns(4, vertices=45, edges=300)
    held["features"][3, 1] = np.nan
    return lotan.Graph.from_arrays(**held)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"graph": weighted(np.nan)}, GraphError, "NaN or infinite"),
        ({"graph": weighted(-1.0), "model": Encoder(lotan.nn.GCNConv)}, GraphError, "negative"),
        ({"graph": broken()}, GraphError, "NaN"),
    ],
)
def test_what_is_not_built_is_refused_by_name(settings: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        trainer(**settings).fit()
