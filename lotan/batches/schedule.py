"""The batches of a run, one after the other, prepared ahead by a thread while the batch before is computed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Protocol, TypeVar

import torch

from lotan.batches.draws import Positions
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.loader import BatchLoader
from lotan.batches.sampler import Sample, Sampler
from lotan.engines.base import Outcome, Pass, run
from lotan.engines.local.engine import LocalEngine
from lotan.engines.local.loaded_graph import LoadedGraph
from lotan.graph.graph import Graph
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.stages.draws import Randomness
from lotan.tables.pipeline import RowPipeline
from planner.physical import Plan
from planner.regime import hops_of_plan

T = TypeVar("T")

PassOf = Callable[[int], Pass]
"""A function from the number of a mini-batch in its epoch to its pass."""


@dataclass
class Prepared:
    """The batches that were prepared so far, their sizes, and the seconds that they took.

    On blocks, all batches of an epoch are drawn before the first of them trains. The seconds of drawing are those until it
    has, and the computation is that of the workers.
    """

    batches: int = 0
    vertices: int = 0
    edges: int = 0
    sample_seconds: float = 0.0  # drawing edges
    load_seconds: float = 0.0  # copying rows and making matrices
    wait_seconds: float = 0.0  # the computation waited for a batch; on blocks, the driver for its result

    def counted(self, sample: Sample) -> None:
        """Count a batch by its sample."""
        self.batches += 1
        self.vertices += len(sample.rows)
        self.edges += len(sample.edges)

    def drawn(self, draw: Callable[[], Sample]) -> Sample:
        """Draw a batch, and count it and the seconds that it takes."""
        started = time.perf_counter()
        sample = draw()
        self.counted(sample)
        self.sample_seconds += time.perf_counter() - started
        return sample

    def loaded(self, load: Callable[[], LoadedGraph]) -> LoadedGraph:
        """Load a batch, and count the seconds that it takes."""
        started = time.perf_counter()
        found = load()
        self.load_seconds += time.perf_counter() - started
        return found

    def ahead(self, thread: ThreadPoolExecutor, prepare: Callable[[int], T], numbers: Sequence[int]) -> Iterator[T]:
        """Yield what a function returns for some numbers in order, and count the seconds of waiting for it.

        Args:
            thread: The thread that calls it, for some numbers ahead.
            prepare: The function.
            numbers: The numbers.
        """
        waiting: deque[Future[T]] = deque()
        for number in numbers:
            waiting.append(thread.submit(prepare, number))
            if len(waiting) > BATCHES_AHEAD:
                yield self._waited_for(waiting.popleft())
        while waiting:
            yield self._waited_for(waiting.popleft())

    def _waited_for(self, future: Future[T]) -> T:
        started = time.perf_counter()
        found = future.result()
        self.wait_seconds += time.perf_counter() - started
        return found


def preparing_thread() -> ThreadPoolExecutor:
    """Return the thread that prepares batches. It computes on one core, beside the batch that is trained on."""
    return ThreadPoolExecutor(1, "lotan-batches", initializer=torch.set_num_threads, initargs=(1,))


class TrainingBatches(Protocol):
    """The mini-batches of a run, as training passes use them."""

    plan: Plan

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user on how they were opened."""

    def outcomes(self, epoch: int, a_pass: PassOf, drawn_as: int | None = None, first: int = 0) -> Iterator[Outcome]:
        """Train on the batches of an epoch in order, and yield the result of each, see `Batches.outcomes`."""

    def figures(self) -> dict[str, float]:
        """Return what was prepared and what it took, as plain data for the report."""

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes that batches have moved, by the report's keys."""

    def close(self) -> None:
        """Stop the preparation and free all batches. This may be called twice."""


class Batches:
    """The batches of a run on the local engine, with an engine of their own.

    Batches are numbered through all epochs. Their order is fixed, and none depends on the weights. So two runs have the
    same batches, whichever thread prepares them.

    Args:
        graph: The graph, which is read into this process.
        plan: The plan of a batch.
        regime: The sampling of batches.
        epochs: The last epoch for which batches are prepared.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        examples: The numbers of the examples; None: the rows of the training vertices that have labels. [examples]
        keys: The row keys by which examples are put in order, by their numbers; None: those of the vertices.
        both: True to draw out-edges too.
        in_files: True if columns that are computed once lie in files, see `BatchLoader`.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        regime: MiniBatch,
        epochs: int,
        chunk_rows: int | None = None,
        examples: Positions | None = None,
        keys: Positions | None = None,
        both: bool = False,
        in_files: bool = False,
    ) -> None:
        self.plan, self.engine, self.prepared = plan, LocalEngine(chunk_rows), Prepared()
        arrays = graph.arrays()
        self._regime, self._keys = regime, arrays.keys if keys is None else keys
        self._fanouts = regime.fanouts[: hops_of_plan(plan)]
        self._examples = examples_of(arrays) if examples is None else examples
        self._sampler = Sampler(arrays, both, graph.vertex_types is not None)
        self._loader = BatchLoader(graph, plan, chunk_rows, in_files=in_files)
        self._of_epoch: tuple[int, list[Positions]] = (0, [])  # an epoch and the targets of its batches
        self.count = -(-len(self._examples) // regime.batch_size)
        self._end = (epochs + 1) * self.count  # epochs begin at 1
        self._waiting: dict[tuple[int, int], Future[LoadedGraph]] = {}  # by number, and the epoch whose draws it has
        self._kept: dict[int, Sample] = {}  # the batches of the first epoch, if later ones may have them again
        self.rows: RowPipeline | None = None  # the learned rows of batches, if they lie in tables
        self._opened = ExitStack()
        self._thread = self._opened.enter_context(preparing_thread())

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user on how they were opened."""
        return () if self.rows is None else (self.rows.words,)

    def of_epoch(self, epoch: int, drawn_as: int | None = None, first: int = 0) -> Iterator[LoadedGraph]:
        """Yield the batches of an epoch in order.

        Args:
            epoch: The number of the epoch, from 1.
            drawn_as: The epoch whose draws its batches have; None: its own.
            first: The number of the first batch, if those before it are done.

        Raises:
            Exception: The preparation of a batch raised it.
        """
        if drawn_as == epoch > 1:
            self._kept.clear()  # the elbow has passed, and no later epoch has these batches
        draws = None if drawn_as == epoch else drawn_as
        numbers = range(epoch * self.count + first, (epoch + 1) * self.count)
        yield from self._with_rows(self._take(number, draws) for number in numbers)

    def outcomes(self, epoch: int, a_pass: PassOf, drawn_as: int | None = None, first: int = 0) -> Iterator[Outcome]:
        """Train on the batches of an epoch in order, and yield the result of each. The caller takes a step after each.

        Args:
            epoch: The epoch.
            a_pass: A function from the number of a batch to its pass, with the parameters of that moment.
            drawn_as: The epoch whose draws its batches have; None: its own.
            first: The number of the first batch, if those before it are done.

        Raises:
            Exception: The preparation of a batch raised it.
        """
        for number, graph in enumerate(self.of_epoch(epoch, drawn_as, first), first):
            self.engine.turn_to(graph)
            outcome = run(self.engine, self.plan, self.plan.train, a_pass(number))
            yield replace(outcome, rows=graph.chunks.rows)

    def close(self) -> None:
        """Stop the preparation and free all batches. This may be called twice."""
        if self.rows is not None:
            self.rows.stop()
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()
        self._opened.close()  # waits for the batch that is being prepared
        self.engine.close()

    def figures(self) -> dict[str, float]:
        """Return what was prepared and what it took, as plain data for the report."""
        return asdict(self.prepared) | ({} if self.rows is None else self.rows.figures())

    def bytes_moved(self) -> dict[str, int]:
        """Return nothing: batches are in this process."""
        return {}

    def _with_rows(self, graphs: Iterator[LoadedGraph]) -> Iterator[LoadedGraph]:
        """Return batches with the rows of each lent to the model, if learned rows lie in tables."""
        return graphs if self.rows is None else self.rows.lent(graphs)

    def _take(self, number: int, drawn_as: int | None = None) -> LoadedGraph:
        """Return a batch, and have those after it prepared meanwhile, as if nothing changed the epoch of their draws."""
        started = time.perf_counter()
        fixed = drawn_as if drawn_as is not None or not self._regime.is_fixed else self._first_draws(number)
        wanted = [(one, fixed or 0) for one in range(number, min(number + BATCHES_AHEAD + 1, self._end))]
        for other in [other for other in self._waiting if other not in wanted]:
            self._waiting.pop(other).cancel()
        for one in wanted:
            if one not in self._waiting:
                self._waiting[one] = self._thread.submit(self._prepare, *one)
        found = self._waiting.pop(wanted[0]).result()
        self.prepared.wait_seconds += time.perf_counter() - started
        return found

    def _first_draws(self, number: int) -> int | None:
        """Return 1 for a batch of the first epoch, whose draws the next one may have too, and else None."""
        return 1 if number // self.count == 1 else None

    def _prepare(self, number: int, drawn_as: int = 0) -> LoadedGraph:
        """Sample a batch and load it.

        Args:
            number: The number of the batch, through all epochs.
            drawn_as: The epoch whose draws it has; 0: its own.
        """
        epoch, batch = divmod(number, self.count)
        if not drawn_as:
            return self._loaded(self._sampled(epoch, batch), self._loader)
        if batch not in self._kept:
            self._kept[batch] = self._sampled(drawn_as, batch)
        else:
            self.prepared.counted(self._kept[batch])
        return self._loaded(self._kept[batch], self._loader)

    def _sampled(self, epoch: int, batch: int) -> Sample:
        targets = self._targets(epoch)[batch]
        return self._drawn(epoch, batch, lambda of: self._sampler.sample(targets, self._fanouts, of))

    def _drawn(self, epoch: int, batch: int, draw: Callable[[Randomness], Sample]) -> Sample:
        """Draw a batch, and measure it."""
        return self.prepared.drawn(lambda: draw(Randomness(self._regime.seed, epoch, batch=batch)))

    def _loaded(self, sample: Sample, loader: BatchLoader) -> LoadedGraph:
        """Load a batch for the plan of a loader, and measure it."""
        return self.prepared.loaded(lambda: loader.load(sample))

    def _targets(self, epoch: int) -> list[Positions]:
        """Return the targets of each batch of an epoch. They are put in order once an epoch."""
        if self._of_epoch[0] != epoch:
            of = Randomness(self._regime.seed, epoch)
            targets = batches_of_epoch(self._examples, self._keys, self._regime.batch_size, of)
            self._of_epoch = epoch, targets
        return self._of_epoch[1]
