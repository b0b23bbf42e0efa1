"""`lotan partition` writes once what training from a disk reads."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import lotan
from lotan.cli import main


def saved(folder: Path) -> Path:
    """A graph in Parquet, with weights of edges."""
    graph = lotan.datasets.generate(120, 500, width=6, classes=3)
    arrays = graph.arrays()
    edges = pd.DataFrame({"src": arrays.src, "dst": arrays.dst, "weight": 2.0})
    splits = pd.Series(["train", "val", "test"] * 40)
    vertices = pd.DataFrame(
        {"id": range(120), "features": list(arrays.features), "label": arrays.label, "split": splits}
    )
    lotan.Graph(vertices, edges).save(str(folder / "graph"))
    return folder / "graph"


@pytest.mark.parametrize("order", ["cached_nodes", "each_once"])
def test_a_graph_with_labels_is_written_once_and_trained_on(
    order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, parts = saved(tmp_path), tmp_path / "parts"
    words = ["partition", "--graph", str(place), "--order", order, "--partitions", "4", "--out", str(parts)]
    assert main(words) == 0
    written = "4 partitions of 30 vertices at most, 16 buckets of "
    assert capsys.readouterr().out.startswith(written)
    assert main(words) == 0
    assert "already whole in" in capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in parts.rglob("*.bin")}
    sized = f"{order}(partitions=4, buffer=3)"
    regime = lotan.MiniBatch(20, (4,), order=sized)
    model = lotan.nn.GraphSAGE(6, 4, 1, 3)
    options = {"regime": regime, "storage_dir": str(parts), "epochs": 1, "progress": False}
    lotan.Trainer(model, lotan.Graph.read(str(place)), **options).fit()
    assert before
    assert {path: path.stat().st_mtime_ns for path in parts.rglob("*.bin")} == before


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--partitions", "121"], "--partitions is 121, and the graph has 120 vertices"),
        (["--link-fractions", "0.1,0.1"], "--link-fractions is about link tasks"),
    ],
    ids=["partitions", "fractions"],
)
def test_what_cannot_be_written_is_refused(
    more: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = saved(tmp_path)
    words = ["partition", "--graph", str(place), "--order", "each_once", "--out", str(tmp_path / "parts"), *more]
    assert main(words) != 0
    assert error in capsys.readouterr().err
    assert not (tmp_path / "parts").exists()


def test_damage_is_said_by_the_command_and_by_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, parts = saved(tmp_path), tmp_path / "parts"
    words = ["partition", "--graph", str(place), "--order", "each_once", "--partitions", "4", "--out", str(parts)]
    assert main(words) == 0
    for name in ("edges.bin", "features/1.0.bin"):
        whole = (parts / name).read_bytes()
        (parts / name).write_bytes(whole[:-4])
        assert main(words) == 0
        printed = capsys.readouterr().out
        assert f"storage: {parts / name} " in printed
        assert printed.count("it was written again from the graph") == 1
        (parts / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        regime = lotan.MiniBatch(20, (4,), order="each_once(partitions=4, buffer=3)")
        graph = lotan.Graph.read(str(place))
        lotan.Trainer(lotan.nn.GraphSAGE(6, 4, 1, 3), graph, regime=regime, storage_dir=parts, epochs=1).fit()
        printed = capsys.readouterr().err
        assert f"storage: {parts / name} was " in printed
        assert printed.count("it was written again from the graph") == 1
        assert (parts / name).read_bytes() == whole
