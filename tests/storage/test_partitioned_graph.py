"""A graph in partitions: every link is in its bucket, whatever is damaged is found, and nothing foreign is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lotan
from lotan.errors import GraphError, StorageError
from lotan.hosts.local_folder import OWNER, STORAGE
from lotan.links.examples import link_graph
from lotan.storage import edge_readers
from lotan.storage import folder as folders
from lotan.storage.edge_readers import LinkReader
from lotan.storage.folder import check_room, claimed_storage
from lotan.storage.partitioned_graph import PartitionedGraph, open_partitioned
from lotan.storage.placement import ExamplesFirst, Placement
from tests.links.graphs import columns

TASK = lotan.LinkPrediction()


def opened(place: Path, graph: lotan.Graph, partitions: int = 4, seed: int = 0) -> tuple[PartitionedGraph, bool]:
    place.mkdir(exist_ok=True)
    reader = LinkReader(graph, TASK)
    return open_partitioned(place, reader, reader.summary(), partitions, seed)


def as_files(place: Path, held: dict[str, Any], names: bool) -> lotan.Graph:
    """The same graph in Parquet, with edges in several row groups and ids that are texts if asked for."""
    ids = np.array([f"v{number:03}" for number in range(len(held["features"]))]) if names else None
    vertices = pd.DataFrame({"id": range(len(held["features"])) if ids is None else ids})
    ends = (held["src"], held["dst"]) if ids is None else (ids[held["src"]], ids[held["dst"]])
    splits = np.array(["train", "val", "test"])[held["edge_split"]]
    edges = pd.DataFrame({"src": ends[0], "dst": ends[1], "split": splits, "relation": held["relation"]})
    edges = edges.assign(weight=held["weight"], e_0=held["edge_attr"][:, 0], e_1=held["edge_attr"][:, 1])
    place.mkdir()
    vertices.sample(frac=1, random_state=1).to_parquet(place / "vertices.parquet")
    edges.to_parquet(place / "edges.parquet", row_group_size=50)
    return lotan.Graph.read(place, edge_features="e_*")


def with_numbers(seed: int, vertices: int, edges: int) -> dict[str, Any]:
    """Arrays of links with weights and attributes."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(edges, 3)).astype(np.float32)
    return columns(seed, vertices, edges) | {"weight": numbers[:, 0], "edge_attr": numbers[:, 1:]}


@pytest.mark.parametrize("names", [False, True])
def test_every_link_is_in_its_bucket_and_the_size_of_parts_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: bool
) -> None:
    held = with_numbers(3, vertices=41, edges=300)
    graph = as_files(tmp_path / "graph", held, names)
    known = link_graph(graph, TASK).links
    found, written = opened(tmp_path / "one", graph)
    assert written
    assert found.summary.names == known.names
    links: set[tuple[int, ...]] = set()
    of_links = {}
    for bucket in ((a, b) for a in range(4) for b in range(4)):
        records, numbers = found.edges([bucket])
        records = records.astype(np.int64)
        assert len(records) == found.size(bucket)
        for column, partition in enumerate(bucket):
            assert (found.placement.partition_of(records[:, column]) == partition).all()
        ends = [found.placement.rows(records[:, column]) for column in (0, 1)]
        triples = list(zip(ends[0].tolist(), ends[1].tolist(), records[:, 2].tolist(), strict=True))
        links |= set(triples)
        of_links |= {one[:2]: tuple(row) for one, row in zip(triples, numbers.tolist(), strict=True)}
    training = known.of("train")
    wanted = set(zip(training.src.tolist(), training.dst.tolist(), training.numbers.tolist(), strict=True))
    assert links == wanted
    assert len(wanted) == len(training) == found.summary.training
    given = np.column_stack([held["weight"], held["edge_attr"]]).tolist()
    of_ends = {(src, dst): tuple(row) for src, dst, row in zip(held["src"], held["dst"], given, strict=True)}
    assert of_links == {ends: of_ends[ends] for ends in of_links}
    others = found.links_of(found.others(), found.others()[:, 3])
    for split in ("val", "test"):
        assert sorted(found.placement.rows(others.of(split).src)) == sorted(known.of(split).src)
    monkeypatch.setattr(edge_readers, "PART_EDGES", 7)
    for again in (graph, lotan.Graph.from_arrays(**held)) if not names else (graph,):
        opened(tmp_path / "two", again)
        for name in ("edges.bin", "held.bin", "manifest.json"):
            assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.spark
@pytest.mark.nightly
def test_tables_in_spark_make_the_same_files(tmp_path: Path, spark) -> None:
    graph = as_files(tmp_path / "graph", with_numbers(3, vertices=41, edges=300), names=True)
    vertices, edges = (
        spark.read.parquet(str(tmp_path / "graph" / f"{name}.parquet")) for name in ("vertices", "edges")
    )
    opened(tmp_path / "files", graph)
    opened(tmp_path / "spark", lotan.Graph(vertices, edges.repartition(3), edge_features="e_*"))
    for name in ("edges.bin", "held.bin", "manifest.json"):
        assert (tmp_path / "spark" / name).read_bytes() == (tmp_path / "files" / name).read_bytes()


@pytest.mark.parametrize("sizes", [(10, 3), (7, 7), (100, 8), (2**16 + 300, 5)])
@pytest.mark.parametrize("first", [False, True])
def test_positions_and_rows_are_inverse(sizes: tuple[int, int], first: bool) -> None:
    examples = np.arange(0, sizes[0], 3)
    placement = ExamplesFirst(*sizes, 1, examples) if first else Placement(*sizes, seed=1)
    if first:
        assert sorted(placement.rows(np.arange(len(examples)))) == examples.tolist()
    rows = np.arange(sizes[0])[:: max(1, sizes[0] // 5000)]
    positions = placement.positions(rows)
    assert np.array_equal(placement.rows(positions), rows)
    counts = [placement.count(one) for one in range(sizes[1])]
    assert sum(counts) == sizes[0]
    assert placement.capacity == max(counts) <= min(counts) + 1
    for partition in range(sizes[1]):
        edges = np.array([placement.first(partition), placement.first(partition + 1) - 1])
        assert (placement.partition_of(edges) == partition).all()
    if sizes[0] == 100:
        assert sorted(placement.positions(np.arange(100))) == list(range(100))
        assert not np.array_equal(placement.positions(np.arange(100)), np.arange(100))


@pytest.mark.parametrize("name", ["edges.bin", "held.bin", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_torn_write_is_found_and_made_again(tmp_path: Path, name: str, damage: str) -> None:
    graph = lotan.Graph.from_arrays(**columns(3))
    opened(tmp_path, graph)
    assert not opened(tmp_path, graph)[1]
    place = tmp_path / name
    whole = place.read_bytes()
    if damage == "gone":
        place.unlink()
    else:
        place.write_bytes(whole[:-9] if damage == "cut" else whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    found, written = opened(tmp_path, graph)
    assert written
    assert (str(place) in found.mended) == (damage != "gone" or name != "manifest.json")
    assert place.read_bytes() == whole
    again, written = opened(tmp_path, graph)
    assert not written
    assert not again.mended


def test_another_division_and_another_graph_are_refused(tmp_path: Path) -> None:
    held = columns(3)
    opened(tmp_path, lotan.Graph.from_arrays(**held), partitions=5)
    for wanted in ({"partitions": 4}, {"partitions": 5, "seed": 1}):
        words = (
            f"holds 5 partitions drawn with seed 0, and this needs {wanted['partitions']} partitions drawn with seed "
        )
        with pytest.raises(StorageError, match=words):
            opened(tmp_path, lotan.Graph.from_arrays(**held), **wanted)
    assert not opened(tmp_path, lotan.Graph.from_arrays(**held), partitions=5)[1]
    before = (tmp_path / "edges.bin").read_bytes()
    shuffled = np.random.default_rng(0).permutation(len(held["src"]))
    same = {name: one[shuffled] if name != "features" else one for name, one in held.items()}
    reader = LinkReader(lotan.Graph.from_arrays(**same), TASK)
    assert reader.summary() == LinkReader(lotan.Graph.from_arrays(**held), TASK).summary()
    opened(tmp_path / "shuffled", lotan.Graph.from_arrays(**same), partitions=5)
    for name in ("edges.bin", "held.bin"):
        assert (tmp_path / "shuffled" / name).read_bytes() == (tmp_path / name).read_bytes()
    for name, changed in (("dst", held["dst"][::-1].copy()), ("edge_split", np.roll(held["edge_split"], 1))):
        other = lotan.Graph.from_arrays(**{**held, name: changed})
        with pytest.raises(StorageError, match="storage of another graph"):
            opened(tmp_path, other, partitions=5)
    assert (tmp_path / "edges.bin").read_bytes() == before
    folders.write_manifest(tmp_path / "manifest.json", {"format": 99})
    with pytest.raises(StorageError, match="another version"):
        opened(tmp_path, lotan.Graph.from_arrays(**held))


def test_a_bucket_that_changes_during_a_run_is_an_error(tmp_path: Path) -> None:
    found, _ = opened(tmp_path, lotan.Graph.from_arrays(**columns(3)))
    place = tmp_path / "edges.bin"
    place.write_bytes(b"\x07" + place.read_bytes()[1:])
    first = next((a, b) for a in range(4) for b in range(4) if found.size((a, b)))
    with pytest.raises(StorageError, match="cut short or changed"):
        found.bucket(first)


def test_two_runs_do_not_share_a_folder_and_temporary_ones_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / "named"
    with claimed_storage(place), pytest.raises(StorageError, match="another run uses"), claimed_storage(place):
        pass
    left = tmp_path / f"{STORAGE}of-a-killed-run"
    left.mkdir()
    (left / OWNER).touch()
    with claimed_storage(place):
        assert not left.exists()
    with claimed_storage(None) as one, claimed_storage(None) as other:
        assert one.is_dir()
        assert other.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["named"]


def test_a_disk_that_cannot_be_used_is_refused_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="take up to"):
        check_room(tmp_path, 1 << 60, "the links")
    with monkeypatch.context() as patch:
        patch.setattr(folders, "file_system", lambda folder: "tmpfs")
        with pytest.raises(StorageError, match="in memory"), claimed_storage(tmp_path / "memory"):
            pass
    assert not (tmp_path / "memory").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"), claimed_storage(tmp_path / "file"):
        pass


def test_links_that_cannot_be_learned_from_are_refused(tmp_path: Path) -> None:
    held = columns(3)
    with pytest.raises(GraphError, match="not among the vertices"):
        LinkReader(lotan.Graph.from_arrays(**{**held, "src": held["src"] + 1}), TASK).summary()
    none = {name: one for name, one in held.items() if name != "edge_split"}
    with pytest.raises(GraphError, match="no such column"):
        LinkReader(lotan.Graph.from_arrays(**none), TASK).summary()
    with pytest.raises(GraphError, match="no link is of split 'train'"):
        LinkReader(lotan.Graph.from_arrays(**{**held, "edge_split": np.ones(240, dtype=np.int8)}), TASK).summary()
    reverse = {name: one if name == "features" else np.append(one, one[:1]) for name, one in held.items()}
    reverse["src"][-1], reverse["dst"][-1] = held["dst"][0], held["src"][0]
    reverse["edge_split"][[0, -1]] = 0, 1
    opened(tmp_path / "directed", lotan.Graph.from_arrays(**reverse))
    with pytest.raises(GraphError, match="'train' and another"):
        opened(tmp_path / "undirected", lotan.Graph.from_arrays(**reverse, undirected=True))
    for split, text in ((1, "'train' and another"), (2, "'val' and 'test'")):
        first = int(np.flatnonzero(held["edge_split"] == (0 if split == 1 else 1))[0])
        twice = {name: one if name == "features" else np.append(one, one[first]) for name, one in held.items()}
        twice["edge_split"][-1] = split
        with pytest.raises(GraphError, match=text):
            opened(tmp_path / str(split), lotan.Graph.from_arrays(**twice))
        others = held["relation"] != held["relation"][first]
        twice["relation"][-1] = held["relation"][others][0]  # and a link of another relation is another link
        opened(tmp_path / str(split), lotan.Graph.from_arrays(**twice))
