"""Memory of chunks on the local engine: rows as the engine cuts and shares them, numbers as its stages take them."""

from __future__ import annotations

from contextlib import closing

import pytest
from torch import Tensor

from lotan.engines.local.engine import LocalEngine
from lotan.engines.local.loaded_graph import LazySums
from lotan.engines.local.products import Chunks
from lotan.stages.saved_values import Scratch
from planner.chunks import CHUNKS_A_THREAD, local_chunk_rows
from planner.compiler import Options
from planner.cost.seconds import Pricing
from planner.scratch import LOSS_COPIES, NUMBER_BYTES, numbers_in_hand, rows_in_hand, scratch_bytes
from planner.statistics import Statistics
from tests.exactness.cases import EVERY, OUT, models, sample
from tests.exactness.steps import plan_of, train
from tests.planner.engines import LOCAL
from tests.planner.test_footprint import plans


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize("vertices", [1, 1000, 32_768, 32_769, 100_000, 150_001, 300_000, 2_000_000])
def test_rows_in_hand_are_those_of_chunks_that_threads_have(vertices: int, cores: int) -> None:
    chunks = Chunks(vertices, local_chunk_rows(vertices))
    threads = cores if len(chunks) >= CHUNKS_A_THREAD * cores else 1
    rows = min(vertices, threads * (chunks[0].stop - chunks[0].start))
    assert rows == rows_in_hand(vertices, cores)


def test_chunks_that_were_asked_for_are_what_is_in_hand() -> None:
    plan = plans()["GCN"]
    large = Statistics(1_000_000, 10_000_000, 128)
    assert rows_in_hand(1_000_000, 2, 1000) == 2000
    assert scratch_bytes(plan, large, 2, 1000) == NUMBER_BYTES * 2000 * numbers_in_hand(plan)
    assert scratch_bytes(plan, large, 1) < scratch_bytes(plan, large, 2)


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "residual", "MLP", "GAT", "GAT, four heads, averaged"])
def test_numbers_in_hand_are_those_that_stages_take(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least what there is memory for that is used again; what a loss makes comes and goes beside it, and sums over edges."""
    taken: dict[tuple[int, int], int] = {}
    get = Scratch.get

    def noted(self: Scratch, number: int, rows: int, width: int) -> Tensor:
        taken[number, width] = width
        return get(self, number, rows, width)

    widest = 0  # of the sums that are made as a stage comes to them
    rows_of = LazySums.rows

    def summed(self: LazySums, number: int) -> Tensor:
        nonlocal widest
        found = rows_of(self, number)
        widest = max(widest, found[0].numel())
        return found

    monkeypatch.setattr(Scratch, "get", noted)
    monkeypatch.setattr(LazySums, "rows", summed)
    drawn = sample(3, weighted=EVERY[name].weights)
    planned = plan_of(name, drawn, Options(pricing=Pricing(LOCAL)))
    with closing(LocalEngine()) as engine:
        train(engine, planned, models(name, seed=3)[0], drawn)
    again, loss = sum(taken.values()), (LOSS_COPIES + 1) * OUT
    assert again <= numbers_in_hand(planned.plan) <= 2 * (again + widest) + loss
