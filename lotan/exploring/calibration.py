"""The calibration of the cost model on this machine: run small epochs on an engine, and fit the rates to them.

The graphs and models of a probe stress different kinds of work, so that rates can be told apart. A rate that they do
not determine stays near the one measured elsewhere. The fit minimises squared relative errors with a pull towards those
rates, and no rate falls below a share of its old value.
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
from lotan.graph.graph import Graph
from lotan.nn import GAT, GCN, GIN, GraphSAGE
from lotan.planning.job import Job
from lotan.planning.prepare import prepare
from lotan.settings.config import TrainerConfig
from planner.cost.seconds import PASS, Pricing, epoch_seconds
from planner.footprint import Footprint
from planner.rates import Rates
from planner.spec import SPLITS
from planner.work import GROUPS, UNITS, Work, total

WARM_UP = {"local": 2, "blocks": 3, "rows": 2}  # epochs that do not count, because of fresh memory and Java's compilers
LEAST = 0.1  # the least share of a given rate: no work is free, even if the measurements would allow it
PULL = 0.03  # weight of each given rate, as a number of measurements, because there are few cases for many rates
HEAP = 4 << 30  # bytes of Spark's heap in a probe
HEADS = 4  # attention heads of GAT
ROUNDS = 2000  # rounds of the fit over all rates

MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "gcn": GCN,
    "sage": GraphSAGE,
    "gin": GIN,
    "gat": lambda *channels, **options: GAT(*channels, heads=HEADS, **options),
}


@dataclass(frozen=True)
class Case:
    """A training case: a generated graph, and a stock model with dropout."""

    vertices: int
    edges: int
    width: int  # number of features
    kind: str  # a key of MODELS
    hidden: int
    layers: int
    classes: int = 8
    training: float | None = None  # share of training vertices; None: as drawn
    jump: str | None = None  # jumping knowledge, "cat" or "max"; None: the last layer's rows are the output
    density: float = 1.0  # share of the features that are not zero
    plan: str = "auto"  # see `TrainerConfig.plan`

    @property
    def words(self) -> str:
        """The model in words, for tables.

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
        """The share of training vertices, for tables.

        >>> Case(4, 4, 1, "gcn", 16, 2, training=0.02).share
        '2 %'
        """
        return f"{100 * (SPLIT_SHARES[0] if self.training is None else self.training):.0f} %"

    def graph(self) -> Graph:
        """Return the graph, which is the same at every call."""
        graph = generate(self.vertices, self.edges, self.width, self.classes)
        graph = thinned(graph, self.density) if self.density < 1 else graph
        return graph if self.training is None else trained_on(graph, round(self.training * self.vertices))

    def model(self) -> torch.nn.Module:
        """Return the model with new weights."""
        return MODELS[self.kind](self.width, self.hidden, self.layers, self.classes, dropout=0.5, jk=self.jump)


def thinned(graph: Graph, density: float) -> Graph:
    """Return the graph with a random share of its features; the others become zero, as in bags of words.

    >>> round(thinned(generate(100, 300), 0.1).profile.density, 1)
    0.1
    """
    arrays = graph.arrays()
    features = arrays.features * (np.random.default_rng(0).random(arrays.features.shape) < density)
    return Graph.from_arrays(features, arrays.src, arrays.dst, arrays.label, arrays.split, ids=arrays.ids)


def trained_on(graph: Graph, training: int) -> Graph:
    """Return the graph with a number of random training vertices. Former training vertices are in no split.

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
    """The work of an epoch per processor, and its measured seconds."""

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
    """Return the rates of an engine on this machine. This takes seconds on "local", and a minute with Spark and workers.

    Raises:
        LotanError: If the engine cannot be started or run here.
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
        engine: The name of the engine.
        cases: The cases to run.
        epochs: The number of measured epochs of each case.
        config: The settings of the engine.
        typical: The function that reduces the seconds of a case's epochs; `min` suits a machine with other work.
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
    """Open an engine for graphs of this process."""
    with closing(open_engine(Footprint(engine, 0, 0, HEAP), Case(4, 4, 1, "gcn", 1, 1, 1).graph(), config)) as running:
        yield running


def observation(job: Job, seconds: float) -> Observation:
    """Return the counted work of a job's epoch, with its measured seconds."""
    pricing = job.planned.options.pricing
    cost = epoch_seconds(job.plan, job.statistics, pricing)
    return Observation(_by_processor(total((*cost.works, PASS)), pricing), seconds)


def _by_processor(work: Work, pricing: Pricing) -> Work:
    shared = {name: getattr(work, name) / pricing.layout.cores for name in UNITS if name not in GROUPS["fixed"]}
    return replace(work, **shared)


def epochs_of(engine: Engine, job: Job, model: torch.nn.Module, epochs: int, evaluates: bool = False) -> list[float]:
    """Return the seconds of each epoch, with the optimizer's step and, if wanted, its evaluation."""
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
    """Return the rates that minimise the sum of squared relative errors.

    Args:
        observations: The measured epochs, at least one.
        given: The rates to stay near to, as far as the observations allow.
        pull: The weight of each given rate, as a number of observations.
    """
    named = [name for name in UNITS if getattr(given, name) > 0]
    before = np.array([getattr(given, name) for name in named])
    amounts = np.array([[getattr(one.work, name) / one.seconds for name in named] for one in observations])
    parts = amounts * before  # seconds of each part of an epoch at the given rates, [observations, rates]
    rows = np.concatenate([parts, np.sqrt(pull) * np.eye(len(named))])
    wanted = np.concatenate([np.ones(len(parts)), np.full(len(named), np.sqrt(pull))])
    factors = bounded_least_squares(rows, wanted, LEAST)
    return replace(given, **dict(zip(named, (factors * before).tolist(), strict=True)))


def bounded_least_squares(rows: np.ndarray, wanted: np.ndarray, least: float) -> np.ndarray:
    """Return the x >= least that minimises |rows x - wanted|^2, by coordinate descent. [columns]."""
    square, product = rows.T @ rows, rows.T @ wanted
    x = np.ones(len(product))
    for _ in range(ROUNDS):
        for place, diagonal in enumerate(np.diag(square)):
            x[place] = max(least, x[place] + (product[place] - square[place] @ x) / diagonal)
    return x
