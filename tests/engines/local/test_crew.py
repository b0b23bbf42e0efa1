"""Threads that share work, sums that do not depend on who was first, and memory that is lent again."""

from __future__ import annotations

from threading import Event, current_thread

import pytest
import torch

from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.group_sums import GroupSums
from planner.chunks import CHUNKS_A_THREAD

SECONDS = 30


@pytest.fixture(params=[1, 2, 4])
def crew(request: pytest.FixtureRequest):
    crew = Crew(request.param)
    yield crew
    crew.close()


def test_results_are_in_the_order_of_numbers(crew: Crew) -> None:
    assert crew.run(50, lambda number: number * number) == [number * number for number in range(50)]
    assert crew.run(0, lambda number: number) == []


def test_threads_work_at_the_same_time() -> None:
    crew, met = Crew(2), [Event(), Event()]

    def meet(number: int) -> str:
        if number < 2:
            met[number].set()
            assert met[1 - number].wait(SECONDS)
        return current_thread().name

    assert len(set(crew.run(2 * CHUNKS_A_THREAD, meet)[:2])) == 2
    crew.close()


def test_operators_run_on_one_thread_and_the_setting_comes_back(crew: Crew) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert set(crew.run(20, lambda number: torch.get_num_threads())) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_few_tasks_are_left_to_torchs_threads(crew: Crew) -> None:
    found = crew.run(CHUNKS_A_THREAD * crew.threads - 1, lambda _: (current_thread(), torch.get_num_threads()))
    assert set(found) == {(current_thread(), crew.threads)}


def test_a_failure_is_raised_and_the_crew_goes_on(crew: Crew) -> None:
    def work(number: int) -> int:
        if number >= 3:
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match=r"[3-6]"):
        crew.run(20, work)
    assert crew.run(3, work) == [0, 1, 2]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_sums_of_groups_are_added_in_their_order(order: tuple[int, ...]) -> None:
    parts = [torch.tensor([1.0]), torch.tensor([-1.0]), torch.tensor([1e-20])]  # 0 if the last comes before
    total = GroupSums({"w": (1,)})
    sums = [total.new() for _ in parts]
    for group in order:
        sums[group]["w"].add_(parts[group])
        total.take(group, sums[group])
    assert torch.equal(total.result()["w"], parts[2])
    assert not total.new()["w"].any()


def test_sums_of_groups_are_float64() -> None:
    total = GroupSums({"w": ()})
    for group, value in enumerate((2.0**25, 1.0, 1.0, -(2.0**25))):
        sums = total.new()
        sums["w"].fill_(value)
        total.take(group, sums)
    assert total.result()["w"].item() == 2.0


def test_memory_is_lent_again_when_the_last_user_is_done() -> None:
    columns = Columns()
    first = columns.new(4, (2, 3))
    assert columns.share(first) is first
    columns.release(first)
    second = columns.new(4, (6,))
    assert second.data_ptr() != first.data_ptr()
    columns.release(first)
    third = columns.new(8, (3,))
    assert third.data_ptr() == first.data_ptr()
    assert third.shape == (8, 3)


def test_what_is_handed_over_is_not_lent_again() -> None:
    columns = Columns()
    column = columns.hand_over(columns.new(4, (2,)))
    columns.release(column)
    columns.release(torch.zeros(4, 2))  # of another owner
    assert columns.new(4, (2,)).data_ptr() != column.data_ptr()
