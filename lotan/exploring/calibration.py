"""Measures on this machine what the cost model's units of work take: small epochs on an engine, and the rates that fit them.

The graphs and models of a probe differ in what they are heavy in, so that rates can be told apart. What they cannot tell
stays near the rates that were measured elsewhere: least squares of relative errors, drawn towards those, none below zero.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from lotan.datasets import generate
from lotan.datasets.planted import SPLIT_SHARES
from lotan.engines.base import Engine, Pass, run
from lotan.engines.choice import ENGINES
from lotan.engines.opening import open_engine
from lotan.graph import Graph
from lotan.nn import GAT, GCN, GIN, GraphSAGE
from lotan.planning.job import Job, prepare
from lotan.settings.config import TrainerConfig
from planner.cost import GROUPS, PASS, UNITS, Pricing, Rates, Work, epoch_seconds, total
from planner.footprint import Footprint
from planner.spec import SPLITS

WARM_UP = {"local": 2, "blocks": 3, "rows": 2}  # epochs that do not count: fresh memory, Java's compilers
LEAST = 0.1  # of a rate given: no work is free, though what was measured could be told without it
PULL = 0.03  # of the rates given, each as much as so many measurements: cases are few for so many rates
HEAP = 4 << 30  # bytes of a probe's Spark
HEADS = 4  # of GAT
ROUNDS = 2000  # over all rates, of the fit

MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "gcn": GCN,
    "sage": GraphSAGE,
    "gin": GIN,
    "gat": lambda *channels, **options: GAT(*channels, heads=HEADS, **options),
}


@dataclass(frozen=True)
class Case:
    """What is trained: a generated graph, and a stock model with dropout on it."""

    vertices: int
    edges: int
    width: int  # of the features
    kind: str  # of MODELS
    hidden: int
    layers: int
    classes: int = 8
    training: float | None = None  # share of the vertices that are trained on; None: as drawn
    jump: str | None = None  # of JumpingKnowledge, "cat" or "max"; None: the last layer's rows are the output
    density: float = 1.0  # share of the features that is not zero
    plan: str = "auto"  # see `TrainerConfig`

    @property
    def words(self) -> str:
        """The model, for tables.

        >>> Case(4, 4, 1, "gcn", 16, 2, jump="cat").words
        'gcn, 2 x 16, cat'
        >>> Case(4, 4, 1, "gcn", 16, 2, density=0.01, plan="general").words
        'gcn, 2 x 16, 1% of the features, general plan'
        """
        more = [self.jump] if self.jump else []
        more += [f"{self.density:.0%} of the features"] if self.density < 1 else []
        more += [f"{self.plan} plan"] if self.plan != "auto" else []
        return ", ".join([self.kind, f"{self.layers} x {self.hidden}", *more])

    @property
    def share(self) -> str:
        """Of the vertices that are trained on, for tables.

        >>> Case(4, 4, 1, "gcn", 16, 2, training=0.02).share
        '2 %'
        """
        return f"{100 * (SPLIT_SHARES[0] if self.training is None else self.training):.0f} %"

    def graph(self) -> Graph:
        """The same whenever it is drawn."""
        graph = generate(self.vertices, self.edges, self.width, self.classes)
        graph = thinned(graph, self.density) if self.density < 1 else graph
        return graph if self.training is None else trained_on(graph, round(self.training * self.vertices))

    def model(self) -> torch.nn.Module:
        """With new weights."""
        return MODELS[self.kind](self.width, self.hidden, self.layers, self.classes, dropout=0.5, jk=self.jump)


def thinned(graph: Graph, density: float) -> Graph:
    """The graph with that share of its features, drawn; the others are zero, as most are in bags of words.

    >>> round(thinned(generate(100, 300), 0.1).profile.density, 1)
    0.1
    """
    arrays = graph.arrays()
    features = arrays.features * (np.random.default_rng(0).random(arrays.features.shape) < density)
    return Graph.from_arrays(features, arrays.src, arrays.dst, arrays.label, arrays.split, ids=arrays.ids)


def trained_on(graph: Graph, training: int) -> Graph:
    """The graph with so many training vertices, drawn; those that no longer are one are in no split.

    >>> graph = trained_on(generate(100, 300), 7)
    >>> graph.statistics.training
    7
    """
    arrays, train = graph.arrays(), SPLITS.index("train")
    split = np.where(arrays.split == train, -1, arrays.split)
    split[np.random.default_rng(0).choice(len(split), training, replace=False)] = train
    return graph.relabelled(arrays.label, split)


@dataclass(frozen=True)
class Observation:
    """An epoch's work, by processor, and what it took."""

    work: Work
    seconds: float


SMALL, MIDDLE, LARGE = (2_000, 20_000), (20_000, 200_000), (80_000, 1_000_000)  # vertices and edges

PROBES = {
    "local": (
        Case(*SMALL, 32, "gcn", 32, 2),
        Case(*SMALL, 32, "gcn", 32, 8),
        Case(*SMALL, 32, "gat", 32, 2),
        Case(*MIDDLE, 64, "gin", 64, 2),
        Case(*MIDDLE, 256, "sage", 256, 2),
        Case(*LARGE, 16, "gcn", 16, 3),
        Case(*LARGE, 16, "gcn", 128, 3),
        Case(*LARGE, 16, "gat", 32, 2),
    ),
    "blocks": (
        Case(*SMALL, 32, "gcn", 32, 2),
        Case(*SMALL, 32, "gcn", 32, 6),
        Case(*MIDDLE, 256, "sage", 256, 2),
        Case(*MIDDLE, 32, "gat", 32, 2),
        Case(*LARGE, 16, "gcn", 16, 3),
        Case(*LARGE, 16, "gcn", 128, 3),
    ),
    "rows": (
        Case(*SMALL, 32, "gcn", 32, 2),
        Case(*SMALL, 32, "gcn", 32, 4),
        Case(*MIDDLE, 64, "gin", 64, 2),
        Case(*MIDDLE, 32, "gcn", 32, 3),
    ),
}


def calibrate(engine: str, epochs: int = 3) -> Rates:
    """The rates of an engine on this machine. On "local", some seconds; on the others, with Spark and workers, a minute.

    Raises:
        LotanError: the engine cannot be started or run here.
    """
    return fit(list(observe(engine, PROBES[engine], epochs)), ENGINES[engine].rates)


def observe(
    engine: str,
    cases: Iterable[Case],
    epochs: int,
    config: TrainerConfig | None = None,
    typical: Callable[[Sequence[float]], float] = statistics.median,
) -> Iterator[Observation]:
    """Run cases one after the other on an engine that is started once.

    Args:
        engine: by name.
        cases: to run.
        epochs: of each that count.
        config: settings of the engine.
        typical: what to take of a case's epochs; `min` on a machine that has other work.
    """
    config = replace(config or TrainerConfig(), engine=engine)  # type: ignore[arg-type]
    with opened(engine, config) as running:
        for case in cases:
            with ExitStack() as stack:
                job = prepare(case.model(), case.graph(), replace(config, plan=case.plan), stack)
                seconds = epochs_of(running, job, case.model(), WARM_UP[engine] + epochs)[WARM_UP[engine] :]
            yield observation(job, typical(seconds))


@contextmanager
def opened(engine: str, config: TrainerConfig) -> Iterator[Engine]:
    """An engine for graphs of this process."""
    with closing(open_engine(Footprint(engine, 0, 0, HEAP), Case(4, 4, 1, "gcn", 1, 1, 1).graph(), config)) as running:
        yield running


def observation(job: Job, seconds: float) -> Observation:
    """What an epoch of a job took, with the work that is counted in it."""
    pricing = job.planned.options.pricing
    cost = epoch_seconds(job.plan, job.statistics, pricing)
    return Observation(_by_processor(total((*cost.works, PASS)), pricing), seconds)


def _by_processor(work: Work, pricing: Pricing) -> Work:
    shared = {name: getattr(work, name) / pricing.layout.cores for name in UNITS if name not in GROUPS["fixed"]}
    return replace(work, **shared)


def epochs_of(engine: Engine, job: Job, model: torch.nn.Module, epochs: int, evaluates: bool = False) -> list[float]:
    """Seconds of each epoch, the optimizer's step with it, and where it evaluates what that takes beside."""
    engine.load(job.graph, job.plan)
    named = dict(model.named_parameters())
    weights = {name: tensor.detach() for name, tensor in (*named.items(), *model.named_buffers())}
    optimizer, found = torch.optim.Adam(named.values(), lr=1e-3), []
    train, *evaluation = job.plan.epoch(evaluates)
    for epoch in range(1, epochs + 1):
        started = time.perf_counter()
        outcome = run(engine, job.plan, train, Pass(epoch, weights))
        for name, gradient in outcome.gradients.items():
            named[name].grad = gradient.view_as(named[name])
        optimizer.step()
        for steps in evaluation:
            run(engine, job.plan, steps, Pass(epoch, weights))
        found.append(time.perf_counter() - started)
    return found


def fit(observations: Sequence[Observation], given: Rates, pull: float = PULL) -> Rates:
    """The rates that make the sum of squares of relative errors least.

    Args:
        observations: at least one.
        given: to stay near of, where observations do not say otherwise.
        pull: how many observations `given` counts for in each rate.
    """
    named = [name for name in UNITS if getattr(given, name) > 0]
    before = np.array([getattr(given, name) for name in named])
    amounts = np.array([[getattr(one.work, name) / one.seconds for name in named] for one in observations])
    parts = amounts * before  # of each epoch, what it would take at the given rates: [observations, rates]
    rows = np.concatenate([parts, np.sqrt(pull) * np.eye(len(named))])
    wanted = np.concatenate([np.ones(len(parts)), np.full(len(named), np.sqrt(pull))])
    factors = bounded_least_squares(rows, wanted, LEAST)
    return replace(given, **dict(zip(named, (factors * before).tolist(), strict=True)))


def bounded_least_squares(rows: np.ndarray, wanted: np.ndarray, least: float) -> np.ndarray:
    """The x >= least with the least |rows x - wanted|^2, by descent along one coordinate after the other. [columns]."""
    square, product = rows.T @ rows, rows.T @ wanted
    x = np.ones(len(product))
    for _ in range(ROUNDS):
        for place, diagonal in enumerate(np.diag(square)):
            x[place] = max(least, x[place] + (product[place] - square[place] @ x) / diagonal)
    return x
