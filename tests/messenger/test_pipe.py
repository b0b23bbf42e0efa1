"""A partition through the whole messenger, over all transports: order, sums, credits, kept tensors, errors."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from messenger.coordinator import CoordinatorLink
from messenger.dealer import Dealer
from messenger.errors import (
    ConflictError,
    DeadlineError,
    MessengerError,
    NoWorkerError,
    RefusedError,
    RemoteError,
    RouterLostError,
    StaleEpochError,
)
from messenger.jobs import OutgoingChunk, ReturnedChunk
from tests.messenger.network import QUICK, TRANSPORTS, Background, Network, job, started
from tests.messenger.numpy_handler import DEADLINE, chunks, truth, wait_until, weight, who_holds


@pytest.fixture(params=TRANSPORTS)
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    yield from started(request.param)


def check_rows(returned: list[ReturnedChunk], sent: list[OutgoingChunk], epoch: int = 0) -> None:
    assert [chunk.index for chunk in returned] == [chunk.index for chunk in sent]
    for back, out in zip(returned, sent, strict=True):
        assert (back.first_row, back.rows, back.digest) == (out.first_row, out.rows, out.digest)
        np.testing.assert_array_equal(back.tensors["y"], out.tensors["x"] @ weight(epoch))
        assert back.tensors.keys() == {"y"}


class TestPipe:
    """Every test over all transports."""

    def test_rows_and_sums_are_those_of_a_loop(self, network: Network):
        network.begin(0)
        sent = [chunks(partition, 10 + partition) for partition in range(3)]
        dealer = network.dealer()
        for partition in (2, 0, 1):
            check_rows(list(dealer.pipe(job(partition), sent[partition])), sent[partition])
        totals = network.totals(3)
        np.testing.assert_array_equal(totals.tensors["gradient/w"], truth(sent, network.settings.group_chunks))
        assert totals.tensors["statistics"].dtype == np.float64
        assert (totals.chunks, totals.rows) == (33, 33 * 8)
        assert totals.tensors["statistics"][1] == totals.rows
        assert totals.bytes_sent > 33 * 8 * 4 * 4
        assert (totals.bytes_shared > 0) == (network.transport == "shared")

    def test_forward_sums_nothing_and_keeps_nothing_for_a_replay(self, network: Network):
        network.begin(0)
        sent = chunks(0, 9)
        check_rows(list(network.dealer().pipe(job(0, mode="forward"), sent)), sent)
        assert network.totals(1, mode="forward").tensors == {}

    def test_an_empty_partition_commits(self, network: Network):
        network.begin(0)
        assert list(network.dealer().pipe(job(0), [])) == []
        assert network.totals(1).chunks == 0

    def test_credits_bound_what_is_under_way(self, network: Network):
        network.begin(0)
        pulled: list[int] = []

        def source() -> Iterator[OutgoingChunk]:
            for chunk in chunks(0, 30):
                pulled.append(chunk.index)
                yield chunk

        ahead = []
        for returned in network.dealer().pipe(job(0), source()):
            ahead.append(len(pulled) - returned.index)
        assert max(ahead) > 1, "chunks go one at a time: no overlap"
        assert max(ahead) <= 2 * network.settings.credits + 1

    def test_static_tensors_travel_once_and_partitions_stay_where_they_are(self, network: Network):
        sent = [chunks(partition, 8, static=True) for partition in range(4)]
        dealer, homes, bytes_sent = network.dealer(), [], []
        for epoch in range(3):
            network.begin(epoch)
            for handler in network.handlers.values():
                handler.seen.clear()
            for partition in range(4):
                check_rows(list(dealer.pipe(job(partition, epoch), sent[partition])), sent[partition], epoch)
            homes.append({name: {key.partition for key in handler.seen} for name, handler in network.handlers.items()})
            bytes_sent.append(network.totals(4, epoch).bytes_sent)
        assert homes[0] == homes[1] == homes[2]
        assert all(len(partitions) == 2 for partitions in homes[0].values()), homes[0]
        assert bytes_sent[0] - bytes_sent[1] > 4 * 8 * 8 * 4 * 4
        assert bytes_sent[2] == pytest.approx(bytes_sent[1], rel=0.01)  # offsets in a region differ in length

    def test_a_kept_tensor_of_other_content_is_never_used(self, network: Network):
        dealer = network.dealer()
        for epoch in range(2):
            network.begin(epoch)
            sent = chunks(0, 5, static=True, seed=epoch)
            check_rows(list(dealer.pipe(job(0, epoch), sent)), sent, epoch)

    def test_a_tensor_kept_for_the_epoch_serves_its_other_stages(self, network: Network):
        network.begin(0)
        network.link.publish("run", "t", {"calls": [1]})
        sent = [dataclasses.replace(chunk, epoch_kept=frozenset(["x"])) for chunk in chunks(0, 5)]
        dealer = network.dealer()
        check_rows(list(dealer.pipe(job(0), sent)), sent)
        check_rows(list(dealer.pipe(job(0, stage="t"), sent)), sent)
        first = network.totals(1).bytes_sent
        second = network.link.wait([job(0, stage="t")]).bytes_sent
        assert first - second > 5 * 8 * 4 * 4

    def test_a_failing_handler_fails_the_partition_and_nothing_else(self, network: Network):
        network.begin(0, fail=5)
        dealer = network.dealer()
        words = r"stage 's' \(turn\), partition 3.*worker 'w\d'.*ZeroDivisionError: a number too"
        with pytest.raises(RemoteError, match=words) as caught:
            list(dealer.pipe(job(3), chunks(3, 20)))
        assert (caught.value.stage, caught.value.partition) == ("s", 3)
        check_rows(list(dealer.pipe(job(0), chunks(0, 5))), chunks(0, 5))
        with pytest.raises(DeadlineError, match="partition 3"):
            network.link.wait([job(0), job(3)], 0.01)

    def test_a_handler_that_refuses_a_stage_fails_those_who_need_it(self, network: Network):
        network.begin(0)
        network.link.publish("run", "bad", {"forbidden": True})
        with pytest.raises(RemoteError, match="not allowed"):
            list(network.dealer().pipe(job(0, stage="bad"), chunks(0, 5)))

    def test_an_unknown_stage_is_an_error(self, network: Network):
        network.begin(0)
        with pytest.raises(RemoteError, match="no stage 'nowhere'"):
            list(network.dealer().pipe(job(0, stage="nowhere"), chunks(0, 5)))

    def test_an_error_in_the_source_is_raised_as_it_is(self, network: Network):
        network.begin(0)

        def source() -> Iterator[OutgoingChunk]:
            yield from chunks(0, 2)
            raise LookupError("no input")

        dealer = network.dealer()
        with pytest.raises(LookupError, match="no input"):
            list(dealer.pipe(job(0), source()))
        check_rows(list(dealer.pipe(job(0), chunks(0, 5))), chunks(0, 5))

    def test_closing_the_iterator_early_commits_nothing(self, network: Network):
        network.begin(0)
        dealer = network.dealer()
        iterator = dealer.pipe(job(0), chunks(0, 20))
        next(iterator)
        with pytest.raises(MessengerError, match="one partition at a time"):
            next(dealer.pipe(job(1), chunks(1, 5)))
        iterator.close()
        with pytest.raises(DeadlineError):
            network.link.wait([job(0)], 0.01)
        check_rows(list(dealer.pipe(job(0), chunks(0, 20))), chunks(0, 20))
        np.testing.assert_array_equal(network.totals(1).tensors["gradient/w"], truth([chunks(0, 20)], 4))

    def test_work_for_an_epoch_that_is_over_is_refused(self, network: Network):
        network.begin(0)
        zombie = network.dealer()
        late = zombie.pipe(job(0), chunks(0, 20))
        next(late)
        network.begin(1)
        list(network.dealer().pipe(job(0, 1), chunks(0, 20)))
        with pytest.raises(StaleEpochError, match="epoch 0"):
            list(late)
        with pytest.raises(StaleEpochError, match="epoch 0"):
            list(zombie.pipe(job(0), chunks(0, 20)))
        with pytest.raises(StaleEpochError, match="epoch 0"):
            list(zombie.pipe(job(0), []))
        assert network.totals(1, 1).chunks == 20

    def test_an_epoch_not_begun_is_refused(self, network: Network):
        network.begin(0)
        with pytest.raises(StaleEpochError, match="epoch 7"):
            list(network.dealer().pipe(job(0, 7), chunks(0, 5)))

    def test_an_epoch_cannot_begin_twice_with_other_parameters(self, network: Network):
        network.begin(3)
        network.begin(3)
        for epoch in (2, 3):
            with pytest.raises(MessengerError, match=f"cannot begin epoch {epoch}"):
                network.link.begin("run", epoch, {"w": weight(9)})
        with pytest.raises(MessengerError, match="another program"):
            network.link.publish("run", "s", {"calls": [1]})

    def test_two_attempts_at_once_count_once(self, network: Network):
        network.begin(0)
        sent = chunks(0, 30)
        attempts = [network.dealer().pipe(job(0), sent) for _ in range(3)]
        rounds = list(itertools.zip_longest(*attempts))
        for attempt in zip(*rounds, strict=True):
            check_rows(list(attempt), sent)
        np.testing.assert_array_equal(network.totals(1).tensors["gradient/w"], truth([sent], 4))
        assert network.totals(1).chunks == 30

    def test_attempts_that_differ_are_a_conflict(self, network: Network):
        network.begin(0)
        list(network.dealer().pipe(job(0), chunks(0, 5)))
        with pytest.raises(ConflictError, match="two attempts of stage 's'"):
            list(network.dealer().pipe(job(0), chunks(0, 5, seed=1)))
        with pytest.raises(ConflictError, match="two attempts of stage 's'"):
            network.totals(1)
        network.begin(0)  # the epoch runs again
        list(network.dealer().pipe(job(0), chunks(0, 5)))
        assert network.totals(1).chunks == 5

    def test_a_lost_worker_changes_no_bit(self, network: Network, tmp_path: Path):
        network.begin(0, hold=str(tmp_path), chunk=9)
        sent = chunks(0, 20)
        rows = Background(lambda: list(network.dealer().pipe(job(0), sent)))
        network.link.lost(who_holds(tmp_path), "the test says so")
        check_rows(rows.result(), sent)
        np.testing.assert_array_equal(network.totals(1).tensors["gradient/w"], truth([sent], 4))
        (tmp_path / "release").touch()
        assert network.link.wait_for_workers(2) == ["w0", "w1"], "the worker is back when it can"

    def test_work_waits_for_a_worker(self, network: Network):
        network.begin(0)
        for name in ("w0", "w1"):
            network.stop_worker(name)
            network.link.lost(name, "stopped")
        sent = chunks(0, 10)
        rows = Background(lambda: list(network.dealer().pipe(job(0), sent)))
        network.worker("late")
        check_rows(rows.result(), sent)

    def test_a_worker_of_the_same_name_takes_over_for_good(self, network: Network):
        network.begin(0)
        old = network.handlers["w0"]
        network.worker("w0")
        wait_until(lambda: "w0" in network.failures)
        with pytest.raises(RefusedError, match="a newer worker has taken this one's name"):
            raise network.failures["w0"]
        for partition in range(4):
            list(network.dealer().pipe(job(partition), chunks(partition, 5)))
        assert not old.seen
        assert len({key.partition for key in network.handlers["w0"].seen}) == 2
        assert network.totals(4).chunks == 20

    def test_a_second_coordinator_is_refused(self, network: Network):
        with pytest.raises(RefusedError, match="has a coordinator already"):
            CoordinatorLink(network.endpoint, network.settings, network.connect)

    def test_forget_reaches_the_workers(self, network: Network):
        network.begin(0)
        list(network.dealer().pipe(job(0), chunks(0, 5)))
        network.link.forget("run")
        wait_until(lambda: all(handler.forgotten == ["run"] for handler in network.handlers.values()))
        with pytest.raises(RemoteError):
            list(network.dealer().pipe(job(0), chunks(0, 5)))


class TestShared:
    """What only shared memory has: places that are used again, workers that cannot reach them, and its end."""

    @pytest.fixture
    def shared(self) -> Iterator[Network]:
        yield from started("shared", dataclasses.replace(QUICK, shared_bytes=1 << 20), workers=0)

    @staticmethod
    def pipe(network: Network, dealer: Dealer, epoch: int = 0, rows: int = 8, partition: int = 0) -> int:
        """One partition of 20 chunks, checked; the bytes of it that went through shared memory."""
        network.begin(epoch)
        sent = chunks(partition, 20, rows=rows)
        check_rows(list(dealer.pipe(job(partition, epoch), sent)), sent, epoch)
        totals = network.link.wait([job(partition, epoch)], DEADLINE)
        np.testing.assert_array_equal(totals.tensors["gradient/w"], truth([sent], 4))
        assert totals.bytes_shared < totals.bytes_sent + totals.bytes_received
        return totals.bytes_shared

    def test_all_rows_go_through_it_both_ways(self, shared: Network):
        shared.worker("w0")
        assert self.pipe(shared, shared.dealer()) == 2 * 20 * 8 * 4 * 4

    def test_results_that_are_kept_are_never_overwritten(self, shared: Network):
        """20 results of 64 KB and what is in flight do not fit in 1 MB: the rest travels inline."""
        shared.worker("w0")
        dealer, whole = shared.dealer(), 2 * 20 * 4096 * 4 * 4
        assert 0.3 * whole < self.pipe(shared, dealer, rows=4096) < whole
        assert 0.3 * whole < self.pipe(shared, dealer, 1, rows=4096) < whole, "it is free again"

    def test_a_chunk_larger_than_the_region(self, shared: Network):
        shared.worker("w0")
        assert self.pipe(shared, shared.dealer(), rows=1 << 17) == 0

    def test_a_worker_of_another_host_gets_everything_inline(self, shared: Network):
        """Without counting as a loss, and tried once only."""
        shared.worker("remote", shared_bytes=0)
        dealer = shared.dealer(max_replays=0)
        assert self.pipe(shared, dealer) < 20 * 8 * 4 * 4, "what it was sent first, in vain"
        assert self.pipe(shared, dealer, 1) == 0

    def test_workers_of_both_kinds(self, shared: Network):
        shared.worker("near")
        shared.worker("remote", shared_bytes=0)
        shared.link.wait_for_workers(2, DEADLINE)
        dealer = shared.dealer(max_replays=0)
        for epoch in range(2):
            moved = [self.pipe(shared, dealer, 10 * epoch + partition, partition=partition) for partition in range(4)]
            near = [bool(size > 20 * 8 * 4 * 4) for size in moved]
            assert near.count(True) == near.count(False) == 2, moved

    def test_a_partition_that_comes_back_to_this_host_shares_again(self, shared: Network):
        shared.worker("near")
        dealer = shared.dealer()
        assert self.pipe(shared, dealer) > 0
        shared.worker("remote", shared_bytes=0)
        shared.link.wait_for_workers(2, DEADLINE)
        for partition in range(1, 4):
            self.pipe(shared, dealer, partition, partition=partition)
        shared.stop_worker("remote")
        shared.link.lost("remote", "stopped")
        for partition in range(1, 4):
            assert self.pipe(shared, dealer, 10 + partition, partition=partition) > 20 * 8 * 4 * 4

    def test_a_dealer_without_shared_memory(self, shared: Network, caplog: pytest.LogCaptureFixture):
        shared.worker("w0")
        dealers = [shared.dealer(shared_directory="/nowhere") for _ in range(2)]
        assert [self.pipe(shared, dealer, epoch) for epoch, dealer in enumerate(dealers * 2)] == [0] * 4
        [warning] = [record.message for record in caplog.records if "shared_directory" in record.message]
        assert "no shared memory in /nowhere" in warning

    def test_a_full_file_system(self, shared: Network, monkeypatch: pytest.MonkeyPatch):
        shared.worker("w0")
        dealer = shared.dealer()

        def full(descriptor: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        assert self.pipe(shared, dealer) == 0
        monkeypatch.undo()
        assert self.pipe(shared, dealer, 1) > 0, "tried again for the next partition"

    def test_kept_tensors_outlive_the_memory_they_came_in(self, shared: Network):
        shared.worker("w0")
        dealer = shared.dealer()
        sent = [chunks(partition, 8, static=True) for partition in range(2)]
        for epoch in range(3):
            shared.begin(epoch)
            for partition in range(2):
                check_rows(list(dealer.pipe(job(partition, epoch), sent[partition])), sent[partition], epoch)


@pytest.mark.parametrize("transport", TRANSPORTS)
class TestDeadlines:
    """Every wait ends, and says what it waited for."""

    def test_no_worker(self, transport: str):
        for network in started(transport, dataclasses.replace(QUICK, worker_seconds=0.3), workers=0):
            network.begin(0)
            with pytest.raises(NoWorkerError, match=r"none came within 0.3 s.*lotan worker --router"):
                list(network.dealer().pipe(job(0), chunks(0, 5)))
            with pytest.raises(DeadlineError, match="0 of 2 workers"):
                network.link.wait_for_workers(2)

    def test_a_slow_worker(self, transport: str, tmp_path: Path):
        for network in started(transport, dataclasses.replace(QUICK, result_seconds=0.3)):
            network.begin(0, hold=str(tmp_path), chunk=2)
            words = r"worker 'w\d' did not return chunk 2 of stage 's'.*result_seconds"
            with pytest.raises(DeadlineError, match=words):
                list(network.dealer().pipe(job(0), chunks(0, 5)))
            (tmp_path / "release").touch()

    def test_work_for_a_promised_epoch_waits_for_it(self, transport: str):
        """However long it takes. Epochs that were not promised are refused."""
        for network in started(transport, workers=1):
            network.begin(0)
            network.link.promise("run", 2)
            dealers, (loop, _) = [network.dealer(), network.dealer()], network._workers["w0"]
            early = [
                Background(lambda epoch=epoch, dealer=dealer: list(dealer.pipe(job(epoch, epoch), chunks(epoch, 2))))
                for epoch, dealer in enumerate(dealers, start=1)
            ]
            wait_until(lambda asked=loop._supplies._asked: [*asked.values()].count(math.inf) == 2)
            with pytest.raises(StaleEpochError, match="epoch 3"):
                list(network.dealer().pipe(job(0, 3), chunks(0, 2)))
            check_rows(list(network.dealer().pipe(job(0), chunks(0, 2))), chunks(0, 2))
            for epoch, rows in enumerate(early, start=1):
                assert not [key for key in network.handlers["w0"].seen if key.pass_number >= epoch]
                network.begin(epoch)
                check_rows(rows.result(), chunks(epoch, 2), epoch)
                assert network.link.wait([job(epoch, epoch)], DEADLINE).chunks == 2

    def test_the_coordinator_is_gone(self, transport: str):
        for network in started(transport, dataclasses.replace(QUICK, fetch_seconds=0.3)):
            network.begin(0)
            dealer = network.dealer()
            list(dealer.pipe(job(0), chunks(0, 5)))
            network.link.close()
            with pytest.raises(RemoteError, match=r"no answer within|no coordinator"):
                list(dealer.pipe(job(0, 1), chunks(0, 5)))

    def test_the_router_is_gone(self, transport: str, tmp_path: Path):
        for network in started(transport, dataclasses.replace(QUICK, missed_heartbeats=6)):
            network.begin(0, hold=str(tmp_path), chunk=2)
            dealer, failures = network.dealer(), network.failures
            rows = Background(lambda dealer=dealer: list(dealer.pipe(job(0), chunks(0, 5))))
            who_holds(tmp_path)
            network.abandon_router()
            with pytest.raises(RouterLostError, match="silent for"):
                rows.result()
            (tmp_path / "release").touch()
            wait_until(lambda failures=failures: len(failures) == 2)
            assert {type(error) for error in failures.values()} == {RouterLostError}
            with pytest.raises(MessengerError, match="silent for"):
                network.totals(1)

    def test_the_router_was_never_there(self, transport: str):
        if transport == "in_process":
            return
        network = Network(transport, dataclasses.replace(QUICK, connect_seconds=0.3))
        network.close()
        dealer = Dealer(network.endpoint, network.settings)
        with pytest.raises(DeadlineError, match=r"did not answer the dealer .* within 0.3 s"):
            list(dealer.pipe(job(0), chunks(0, 5)))
