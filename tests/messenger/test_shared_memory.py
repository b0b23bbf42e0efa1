"""Regions and their parts, without sockets: extents, who can map what, and when memory is free again."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messenger.errors import FrameError, UnmappedError
from messenger.extents import Extents
from messenger.fields import REGION, Kind
from messenger.frames import Message, decode, encode
from messenger.settings import Limits
from messenger.shared_memory import FIRST_BYTES, MappedRegions, Region
from messenger.spaces import space_bytes

LIMITS = Limits()
MESSAGE = Message(
    Kind.RESULT,
    {"ticket": 1, "chunk": 2, "digest": 3},
    {"a": np.arange(10.0), "b": np.zeros((0, 3), np.float32), "c": np.array(2.5, np.float32), "d": np.eye(3)[:, 1:]},
)
SIZE = space_bytes(MESSAGE.tensors.values())


@pytest.fixture
def region() -> Iterator[Region]:
    region = Region("/dev/shm", 8 << 20)
    yield region
    region.close()


class TestExtents:
    @settings(deadline=None)
    @given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
    def test_nothing_is_had_twice_and_all_comes_back(self, steps: list[tuple[bool, int]]):
        extents, had = Extents(10, 100), {}
        for take, number in steps:
            if take:
                start = extents.take(number)
                if start is not None:
                    taken = range(start, start + number)
                    assert taken.start >= 10
                    assert taken.stop <= extents.end
                    assert not any(set(taken) & set(other) for other in had.values())
                    had[start] = taken
            elif had:
                start = sorted(had)[number % len(had)]
                extents.give(start, len(had.pop(start)))
            assert extents.free == 90 - sum(map(len, had.values()))
        for start, taken in had.items():
            extents.give(start, len(taken))
        assert extents.take(90) == 10

    def test_what_is_full_says_so_until_it_grows(self):
        extents = Extents(0, 10)
        assert (extents.take(11), extents.take(10), extents.take(1)) == (None, 0, None)
        extents.extend(20)
        assert extents.take(10) == 10


class TestRegion:
    def test_a_message_goes_through(self, region: Region):
        frames = encode(MESSAGE, LIMITS, region.take(SIZE))
        assert len(frames) == 1
        message = decode(frames, LIMITS, MappedRegions(True))
        assert message.checksum == decode(encode(MESSAGE, LIMITS), LIMITS).checksum, "the same as inline"
        assert message.shared == sum(tensor.nbytes for tensor in MESSAGE.tensors.values())
        for name, tensor in MESSAGE.tensors.items():
            np.testing.assert_array_equal(message.tensors[name], tensor)
            assert message.tensors[name].ctypes.data % 64 == 0
            assert not message.tensors[name].flags.writeable

    def test_what_does_not_fit_travels_inline(self, region: Region):
        space = region.take(SIZE - 64)
        assert len(encode(MESSAGE, LIMITS, space)) == 1 + len(MESSAGE.tensors)

    def test_it_has_no_name_and_only_its_user_may_open_it(self, region: Region):
        assert REGION.fullmatch(region.name)
        status = os.stat(f"/proc/self/fd/{region.name.split('-')[2]}")
        assert (status.st_nlink, status.st_mode & 0o777) == (0, 0o600)

    def test_it_grows_when_needed_up_to_its_limit(self, region: Region):
        assert region.bytes == FIRST_BYTES
        mapped, small, large = MappedRegions(True), region.take(64), None
        assert small is not None
        small.memory[:5] = b"early"
        assert bytes(mapped.view(region.name, small.offset, 5)) == b"early"
        large = region.take(5 << 20)
        assert large is not None
        large.memory[-4:] = b"late"
        assert region.bytes == 6 << 20
        assert bytes(mapped.view(region.name, large.offset + (5 << 20) - 4, 4)) == b"late"
        small.memory[:5] = b"again"
        assert bytes(mapped.view(region.name, small.offset, 5)) == b"again"
        assert region.take(8 << 20) is None
        assert region.bytes == 6 << 20, "it does not grow for what can never fit"
        assert region.take(2 << 20) is not None
        assert region.bytes == 8 << 20
        assert region.take(2 << 20) is None

    def test_a_result_is_free_when_nobody_reads_it(self, region: Region):
        before, space = region.free, region.take(4096)
        assert space is not None
        tensor = np.frombuffer(region.give_when_unread(space), np.float32).reshape(4, -1)
        part = tensor[1:3, ::2]
        del tensor
        gc.collect()
        assert region.free == before - 4096
        del part
        assert region.free == before

    def test_results_outlive_their_region(self):
        region = Region("/dev/shm", 1 << 20)
        space = region.take(64)
        assert space is not None
        space.memory[:4] = b"kept"
        result = np.frombuffer(region.give_when_unread(space), np.uint8)
        region.close()
        del region, space
        gc.collect()
        assert bytes(result[:4]) == b"kept"

    def test_a_full_file_system_is_an_error_when_space_is_reserved(
        self, region: Region, monkeypatch: pytest.MonkeyPatch
    ):
        def full(descriptor: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space"):
            region.take(2 << 20)
        assert region.take(64) is not None, "what there is stays good"
        with pytest.raises(OSError, match="No space"):
            Region("/dev/shm", 1 << 20)

    def test_no_directory(self):
        with pytest.raises(OSError, match="nowhere"):
            Region("/nowhere", 1 << 20)


class TestMappedRegions:
    @pytest.mark.processes
    def test_another_process_reads_and_writes(self, region: Region):
        space = region.take(64)
        assert space is not None
        program = (
            "from messenger.shared_memory import MappedRegions\n"
            f"space = MappedRegions(True).space(({region.name!r}, {space.offset}, 64))\n"
            "space.memory[:3] = bytes(reversed(space.memory[:3]))"
        )
        space.memory[:3] = b"abc"
        subprocess.run([sys.executable, "-c", program], check=True)
        assert bytes(space.memory[:3]) == b"cba"

    @pytest.mark.parametrize(("offset", "size"), [(FIRST_BYTES, 1), (64, FIRST_BYTES), (1 << 47, 64)])
    def test_beyond_the_region(self, region: Region, offset: int, size: int):
        with pytest.raises(FrameError, match="beyond its 1048576 bytes"):
            MappedRegions(True).view(region.name, offset, size)
        with pytest.raises(FrameError, match="beyond its 1048576 bytes"):
            MappedRegions(True).space((region.name, offset, size))

    def test_other_hosts_and_users_share_nothing(self, region: Region, monkeypatch: pytest.MonkeyPatch):
        """The same process and descriptor numbers on another host, no such process, nothing open, no regular file."""
        lotan, pid, descriptor, nonce = region.name.split("-")
        read, write = os.pipe()
        others = [
            f"{lotan}-{pid}-{descriptor}-{'0' * 16}",
            f"{lotan}-4194305-{descriptor}-{nonce}",
            f"{lotan}-{pid}-999999-{nonce}",
            f"{lotan}-{pid}-{read}-{nonce}",
        ]
        for name in others:
            with pytest.raises(UnmappedError):
                MappedRegions(True).view(name, 64, 64)
        os.close(read)
        os.close(write)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(UnmappedError, match="not a file of this user"):
            MappedRegions(True).view(region.name, 64, 64)

    def test_a_file_with_a_name_is_never_mapped(self, tmp_path: Path):
        """Whoever makes up a region's name must not make a worker write to the user's files."""
        path = tmp_path / "precious"
        path.write_bytes(b"0123456789abcdef" + bytes(4096))
        with path.open("r+b") as file, pytest.raises(UnmappedError, match="without a name"):
            MappedRegions(True).view(f"lotan-{os.getpid()}-{file.fileno()}-0123456789abcdef", 64, 64)

    def test_a_result_that_cannot_be_shared_travels_inline(self, region: Region):
        assert MappedRegions(True).space(None) is None
        assert MappedRegions(True).space(("lotan-4194305-3-0000000000000000", 64, 64)) is None
        assert MappedRegions(False).space((region.name, 64, 64)) is None

    def test_told_to_map_nothing(self, region: Region):
        with pytest.raises(UnmappedError, match="shared_bytes"):
            MappedRegions(False).view(region.name, 64, 64)

    def test_what_its_owner_closed_is_unmapped(self):
        first, second = Region("/dev/shm", 1 << 20), Region("/dev/shm", 1 << 20)
        mapped = MappedRegions(True)
        view = mapped.view(first.name, 64, 64)
        mapped.view(second.name, 64, 64)
        mapped.prune()
        assert len(mapped) == 2
        first.close()
        mapped.prune()
        assert len(mapped) == 1
        assert bytes(view) == bytes(64), "a view keeps its memory"
        with pytest.raises(UnmappedError):
            mapped.view(first.name, 64, 64)
        second.close()
        mapped.close()

    @pytest.mark.processes
    def test_a_killed_owner_leaves_nothing(self):
        """Its region has no file, and whoever had it mapped lets go."""
        program = (
            "import sys; from messenger.shared_memory import Region\n"
            "region = Region('/dev/shm', 1 << 20); print(region.name, flush=True); sys.stdin.read()"
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as process:  # type: ignore[call-overload]
            name = process.stdout.readline().strip()
            mapped = MappedRegions(True)
            mapped.view(name, 64, 64)
            process.kill()
        mapped.prune()
        assert len(mapped) == 0
        assert not [file for file in os.listdir("/dev/shm") if "lotan" in file]
