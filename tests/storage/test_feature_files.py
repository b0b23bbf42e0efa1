"""Tests of the features of a graph on a disk: they are written once, and again if a file of them is damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lotan.errors import StorageError
from lotan.storage.feature_files import StoredFeatures, open_features
from lotan.storage.placement import Placement

PLACEMENT = Placement(12, 4, seed=0)


@pytest.mark.parametrize("name", ["features/2.0.bin", "features.json"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "changed", "gone"])
def test_damaged_features_are_written_again(tmp_path: Path, name: str, damage: str) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    features = StoredFeatures(rows, None, "digest")
    assert open_features(tmp_path, features, PLACEMENT)[1]
    assert not open_features(tmp_path, features, PLACEMENT)[1]
    place = tmp_path / name
    whole = place.read_bytes()
    damaged = {"cut": whole[:-4], "emptied": b"", "changed": whole[:9] + bytes([whole[9] ^ 1]) + whole[10:]}
    if damage == "gone":
        place.unlink()
    else:
        place.write_bytes(damaged[damage])
    files, written = open_features(tmp_path, features, PLACEMENT)
    assert written
    assert (str(place) in files.mended) == (damage != "gone" or name != "features.json")
    assert place.read_bytes() == whole
    assert not open_features(tmp_path, features, PLACEMENT)[1]


def test_features_of_another_graph_are_refused_and_stay(tmp_path: Path) -> None:
    features = StoredFeatures(np.ones((12, 3), dtype=np.float32), None, "digest")
    open_features(tmp_path, features, PLACEMENT)
    for other, placement in (
        (StoredFeatures(features.rows, None, "another"), PLACEMENT),
        (features, Placement(12, 4, seed=1)),
    ):
        with pytest.raises(StorageError, match="holds the features of another graph, or of other partitions"):
            open_features(tmp_path, other, placement)
    assert not open_features(tmp_path, features, PLACEMENT)[1]


def test_features_that_change_during_a_run_are_an_error_that_the_next_run_mends(tmp_path: Path) -> None:
    features = StoredFeatures(np.ones((12, 3), dtype=np.float32), None, "digest")
    files, _ = open_features(tmp_path, features, PLACEMENT)
    files.path(1, 0).write_bytes(b"")
    with pytest.raises(StorageError, match="run again, which writes it anew"):
        files.read(1, [torch.empty(3, 3)])
    assert open_features(tmp_path, features, PLACEMENT)[1]
