"""A graph on a disk: its training links in buckets, one for each pair of partitions, and the links of other splits.

`edges.bin` has the training links, bucket by bucket, and `held.bin` those of validation and test. A record has the
positions of both ends and the number of the relation, as int32. In `held.bin` the split follows, and in `edges.bin` the
weight and the attributes, as float32, where links have some. `manifest.json` is written last. So a graph whose writing was
cut off has no manifest, and is written again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from lotan.errors import GraphError, StorageError
from lotan.graph.arrays import Ids, Positions
from lotan.graph.faults import shown, table_changed
from lotan.links.examples import TRAIN, Links
from lotan.storage.divided import check_division, division_of
from lotan.storage.edge_readers import OTHER, Numbers, Reader, Summary
from lotan.storage.folder import (
    EDGES,
    FORMAT,
    MANIFEST,
    OTHERS,
    check_room,
    mended_words,
    read_manifest,
    write_manifest,
    written,
    written_again,
)
from lotan.storage.placement import ExamplesFirst, Placement
from lotan.storage.row_files import Moved
from planner.explain.sizes import counted
from planner.orders.order import Bucket
from planner.spec import SPLITS

Records = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PartitionedGraph:
    """The links of a graph on a disk.

    Args:
        folder: The folder.
        placement: The partitions of the vertices.
        summary: The sizes and the relations.
        offsets: The first record of each bucket, and the number of all; bucket (a, b) is at a * partitions + b.
        checksums: The checksum of each bucket, and that of the links of other splits.
        mended: The damage that was mended by writing again, in words; "": there was none.
    """

    folder: Path
    placement: Placement
    summary: Summary
    offsets: Positions
    checksums: tuple[str, ...]
    mended: str = ""

    def bucket(self, bucket: Bucket) -> Records:
        """Read the training links of a bucket. int32 [links, 3]: positions of sources and destinations, relations.

        Raises:
            StorageError: If the file is cut short or was changed.
        """
        return self.edges([bucket])[0]

    def edges(self, buckets: Sequence[Bucket], moved: Moved | None = None) -> tuple[Records, Numbers]:
        """Read the training links of buckets, and their weights and attributes.

        Args:
            buckets: The buckets.
            moved: The counts to which bytes and seconds are added; None: they are not counted.

        Returns:
            The links as in `bucket`, and their numbers, float32 [links, numbers].

        Raises:
            StorageError: If the file is cut short or was changed.
        """
        started, width = time.perf_counter(), 3 + self.summary.numbers
        found = [np.zeros((0, width), dtype=np.int32)]
        with _opened(self.folder / EDGES) as file:
            for source, destination in buckets:
                number = source * self.placement.partitions + destination
                start, end = int(self.offsets[number]), int(self.offsets[number + 1])
                file.seek(self.summary.record_bytes * start)
                records = np.fromfile(file, np.int32, width * (end - start))
                if len(records) != width * (end - start) or _checksum(records) != self.checksums[number]:
                    raise StorageError(
                        f"{self.folder / EDGES} was cut short or changed while it was used; run again, which writes it anew"
                    )
                found.append(records.reshape(-1, width))
        records = np.concatenate(found)
        del found
        if moved is not None:
            moved.edge_bytes += records.nbytes
            moved.edge_seconds += time.perf_counter() - started
        if not self.summary.numbers:
            return records, np.zeros((len(records), 0), dtype=np.float32)
        return np.ascontiguousarray(records[:, :3]), np.ascontiguousarray(records[:, 3:]).view(np.float32)

    def size(self, bucket: Bucket) -> int:
        """Return the number of links of a bucket."""
        number = bucket[0] * self.placement.partitions + bucket[1]
        return int(self.offsets[number + 1] - self.offsets[number])

    def others(self) -> Records:
        """Read the links of validation and test. int32 [links, 4]: as in `bucket`, and the split."""
        return np.fromfile(self.folder / OTHERS, np.int32).reshape(-1, 4)

    def links_of(self, records: Records, splits: npt.NDArray[Any]) -> Links:
        """Return records as links between positions."""
        src, dst, numbers = (records[:, column].astype(np.int64) for column in range(3))
        relation = numbers if self.summary.names else None
        named, both = self.summary.names, self.summary.both_ways
        return Links(self.summary.vertices, src, dst, relation, splits.astype(np.int8), named, both)

    def damage(self) -> str | None:
        """Return which file is not as it was written, and what it has, in words; None: all are whole."""
        edges, others = self.folder / EDGES, self.folder / OTHERS
        try:
            files = (
                (edges, self.summary.record_bytes * self.summary.training),
                (others, OTHER * self.summary.others),
            )
            for path, size in files:
                if path.stat().st_size != size:
                    return f"{path} had {path.stat().st_size:,} bytes in the place of {size:,}"
            for number in range(self.placement.partitions**2):
                try:
                    self.bucket(divmod(number, self.placement.partitions))
                except StorageError:
                    return f"{edges} was changed in bucket {divmod(number, self.placement.partitions)}"
            return None if _checksum(self.others()) == self.checksums[-1] else f"{others} was changed"
        except OSError as error:
            return f"{error.filename} could not be read ({error.strerror})"


def _opened(path: Path) -> Any:
    try:
        return open(path, "rb")
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}; run again, which writes it anew") from error


def _checksum(records: Records) -> str:
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(records).data.cast("B") if records.size else b"")


def open_partitioned(
    folder: Path,
    reader: Reader,
    summary: Summary,
    partitions: int,
    seed: int,
    examples: Positions | None = None,
) -> tuple[PartitionedGraph, bool]:
    """Return the graph in a folder, which is written if it is not there or was damaged.

    Args:
        folder: The folder, which the caller has claimed.
        reader: The links.
        summary: The counts that a pass over them has made.
        partitions: The number of partitions.
        seed: The seed of the partition of each vertex.
        examples: The rows of the vertices that fill the first partitions; None: all vertices are drawn alike.

    Returns:
        The graph, and True if it was written now.

    Raises:
        StorageError: If the folder has the storage of another graph, division or version, or cannot be written.
        GraphError: If a link is in two splits.
    """
    placement = Placement(summary.vertices, partitions, seed)
    if examples is not None:
        placement = ExamplesFirst(summary.vertices, partitions, seed, examples)
    known = read_manifest(folder / MANIFEST)
    damage = None
    if known is not None:
        _check_same(folder, known, summary)
        check_division(folder, division_of(placement))
        found = PartitionedGraph(folder, placement, summary, np.array(known["offsets"]), tuple(known["checksums"]))
        damage = found.damage()
        if damage is None:
            return found, False
    elif (folder / MANIFEST).exists():
        damage = f"{folder / MANIFEST} was cut short or changed"
    made = written_again(damage, lambda: _write(folder, reader, summary, placement))
    return replace(made, mended=mended_words(damage)), True


def _check_same(folder: Path, known: dict[str, Any], summary: Summary) -> None:
    if known.get("format") != FORMAT:
        raise StorageError(
            f"{folder} holds storage of another version of lotan (its format is {known.get('format')!r}, not {FORMAT}); name "
            "another folder with storage_dir, or remove this one"
        )
    if known["summary"] != _plain(summary):
        raise StorageError(
            f"{folder} holds storage of another graph ({known['summary']['vertices']:,} vertices, "
            f"{known['summary']['training']:,} training links, digest {known['summary']['digest']}; this graph has "
            f"{summary.vertices:,} vertices, {summary.training:,} training links, digest {summary.digest}); name another folder "
            "with storage_dir, or remove this one"
        )


def _plain(summary: Summary) -> dict[str, Any]:
    """Return what a manifest says of the sizes. What links have beside their ends is left out where they have nothing."""
    beside = ("weighted", "attributes", "flat") if not summary.numbers else ()
    found = {name: value for name, value in asdict(summary).items() if name not in beside}
    return {**found, "names": list(summary.names)}


def _write(folder: Path, reader: Reader, summary: Summary, placement: Placement) -> PartitionedGraph:
    """Write the links in two passes over them: the first counts those of each bucket, the second puts each in its place."""
    partitions = placement.partitions
    check_room(folder, summary.record_bytes * summary.training + OTHER * summary.others, "the links")
    written(folder, lambda: (folder / MANIFEST).unlink(missing_ok=True))
    counts = np.zeros(partitions**2, dtype=np.int64)
    for records, _ in _placed(reader, summary, placement):
        counts += np.bincount(_buckets(records, placement), minlength=partitions**2)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), counts.cumsum()])
    others: list[Records] = [np.zeros((0, 4), dtype=np.int32)]
    edges = folder / EDGES

    def write() -> None:
        with open(edges, "wb") as file:
            if summary.training:
                os.posix_fallocate(file.fileno(), 0, summary.record_bytes * summary.training)
            free = offsets[:-1].copy()  # the place of the next record of each bucket
            for records, rest in _placed(reader, summary, placement):
                others.append(rest)
                numbers = _buckets(records, placement)
                order = np.argsort(numbers, kind="stable")
                ranked, ordered = numbers[order], np.ascontiguousarray(records[order])
                firsts = np.flatnonzero(np.diff(ranked, prepend=-1))
                for first, end in zip(firsts, np.append(firsts, len(ranked))[1:], strict=True):
                    bucket = ranked[first]
                    place = summary.record_bytes * int(free[bucket])
                    os.pwrite(file.fileno(), ordered[first:end].data.cast("B"), place)
                    free[bucket] += end - first
            if not np.array_equal(free, offsets[1:]):
                raise table_changed()

    written(folder, write)
    rest = _in_order(np.concatenate(others))
    val, test = (rest[rest[:, 3] == SPLITS.index(split)] for split in ("val", "test"))
    both = _both_ways(rest) if summary.both_ways else rest  # no link may be the reverse of one in another split
    _refuse_twice(
        _common(val, _both_ways(test) if summary.both_ways else test), placement, reader.ids, "'val' and 'test'"
    )
    unchecked = PartitionedGraph(folder, placement, summary, offsets, ())
    checksums = written(folder, lambda: _sorted_buckets(unchecked, rest, both, reader.ids))
    found = replace(unchecked, checksums=(*checksums, _checksum(rest)))
    write_manifest(
        folder / MANIFEST,
        {
            "format": FORMAT,
            "summary": _plain(summary),
            **division_of(placement),
            "offsets": offsets.tolist(),
            "checksums": list(found.checksums),
        },
    )
    return found


def _placed(reader: Reader, summary: Summary, placement: Placement) -> Iterator[tuple[Records, Records]]:
    """Yield the records of training links and those of other splits, part by part."""
    order = {name: number for number, name in enumerate(summary.names)}
    known: dict[int | str, int] = {}
    for part in reader.parts(known):
        links = part.links
        relations = np.array([order[name] for name in known] or [0])[links.numbers]
        columns = [placement.positions(links.src), placement.positions(links.dst), relations, links.split]
        records, training = np.stack(columns, axis=1).astype(np.int32), links.split == TRAIN
        numbers = np.ascontiguousarray(part.numbers[training]).view(np.int32)
        yield np.concatenate([records[training, :3], numbers], axis=1), records[links.split > TRAIN]


def _buckets(records: Records, placement: Placement) -> Positions:
    src, dst = (placement.partition_of(records[:, column].astype(np.int64)) for column in (0, 1))
    found: Positions = src * placement.partitions + dst
    return found


def _sorted_buckets(graph: PartitionedGraph, rest: Records, both: Records, ids: Ids) -> tuple[str, ...]:
    """Sort the links of each bucket, so that a table in another order makes the same files, and return the checksums.

    Args:
        graph: The graph, whose buckets have their links in any order.
        rest: The links of other splits, which are written too.
        both: These and perhaps their reverses, none of which may be a training link.
        ids: The ids of the vertices, for the error.
    """
    sums, width = [], 3 + graph.summary.numbers
    numbers = _buckets(both, graph.placement)
    both, firsts = both[np.argsort(numbers, kind="stable")], np.zeros(len(graph.offsets), dtype=np.int64)
    firsts[1:] = np.bincount(numbers, minlength=len(firsts) - 1).cumsum()
    with open(graph.folder / EDGES, "r+b") as file:
        for (start, end), (first, stop) in zip(pairwise(graph.offsets.tolist()), pairwise(firsts), strict=True):
            records = np.fromfile(file, np.int32, width * (end - start)).reshape(-1, width)
            twice = _common(records, both[first:stop])
            _refuse_twice(twice, graph.placement, ids, "'train' and another split")
            ordered = _in_order(records)
            os.pwrite(
                file.fileno(), ordered.data.cast("B") if ordered.size else b"", graph.summary.record_bytes * start
            )
            sums.append(_checksum(ordered))
        os.fsync(file.fileno())
    with open(graph.folder / OTHERS, "wb") as file:
        rest.tofile(file)
        os.fsync(file.fileno())
    return tuple(sums)


def _in_order(records: Records) -> Records:
    """Return records in the order of their sources, then of the other columns."""
    return np.ascontiguousarray(records[np.lexsort(records.T[::-1])])


def _both_ways(records: Records) -> Records:
    """Return records, and their reverses."""
    reverses = records.copy()
    reverses[:, :2] = records[:, 1::-1]
    return np.concatenate([records, reverses])


def _refuse_twice(twice: Records, placement: Placement, ids: Ids, splits: str) -> None:
    if len(twice):
        src, dst = (ids[placement.rows(twice[:1, column].astype(np.int64))[0]] for column in (0, 1))
        raise GraphError(
            f"edges.split: {counted(len(twice), 'link')} in {splits} (for example {shown(src)} -> {shown(dst)}). Keep one of "
            "them: the model would be asked what it has seen."
        )


def _common(records: Records, others: Records) -> Records:
    """Return the records that are among others too."""
    if not len(records) or not len(others):
        return records[:0]
    pairs, of_others = (one[:, 0].astype(np.int64) << 32 | one[:, 1] for one in (records, others))
    alike, whole = records[np.isin(pairs, of_others)], np.dtype([("src", "<i4"), ("dst", "<i4"), ("relation", "<i4")])
    ends: Sequence[Any] = [np.ascontiguousarray(one[:, :3]).view(whole)[:, 0] for one in (alike, others)]
    return alike[np.isin(*ends)] if len(alike) else alike
