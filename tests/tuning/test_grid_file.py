"""Grid files: what they may say, and what is refused before anything is read or trained."""

from __future__ import annotations

import pytest
import torch

from lotan.errors import ConfigurationError
from lotan.tuning.grid_file import read_grid
from lotan.tuning.keys import KEYS, MODEL
from lotan.tuning.trial_settings import varied
from tests.conftest import ROOT

WRITTEN = """
seed = [0, 1]
epochs = 50

[model]
kind = ["gcn", "sage"]
hidden = [16, 64]
dropout = 0.5

[optimizer]
lr = { low = 0.0001, high = 0.1, log = true }
weight_decay = 0
"""


def test_a_file_becomes_axes_in_the_order_of_the_settings(tmp_path):
    (tmp_path / "grid.toml").write_text(WRITTEN)
    space = read_grid(tmp_path / "grid.toml")
    found = {axis.key.path: axis.values for axis in space.axes if axis.range is None}
    assert found == {
        "model.kind": ("gcn", "sage"),
        "model.hidden": (16, 64),
        "model.dropout": (0.5,),
        "optimizer.weight_decay": (0.0,),
        "seed": (0, 1),
        "epochs": (50,),
    }
    assert [path for path in KEYS if path in found] == list(found)
    assert space.ranges == ["optimizer.lr"]
    range_ = next(axis.range for axis in space.axes if axis.range)
    assert (range_.low, range_.high, range_.log) == (0.0001, 0.1, True)
    assert type(found["optimizer.weight_decay"][0]) is float


def test_a_dictionary_is_read_as_a_file(tmp_path):
    (tmp_path / "grid.toml").write_text("[model]\nhidden = [4, 8]\n[optimizer]\nlr = 0.1\n")
    assert (
        read_grid(tmp_path / "grid.toml").axes
        == read_grid({"model": {"hidden": [4, 8]}, "optimizer": {"lr": 0.1}}).axes
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "grid is empty"),
        ({"model": {}}, "grid is empty"),
        ({"model": {"hiden": [16]}}, "did you mean hidden?"),
        ({"model": {"num_layers": [2]}}, "did you mean layers?"),
        ({"model": {"wibble": [2]}}, "[model] has kind, hidden, layers"),
        ({"model": {"lr": [0.1]}}, "lr stands in the table [optimizer]"),
        ({"model": {"learning_rate": [0.1]}}, "lr stands in the table [optimizer]"),
        ({"optimizer": {"seed": [1]}}, "seed stands at the top of the file"),
        ({"hidden": [1]}, "hidden stands in the table [model]"),
        ({"modle": {"hidden": [1]}}, "unknown setting modle; did you mean model?"),
        ({"model": ["gcn"]}, "expected a table, [model]"),
        ({"model": {"hidden": []}}, "model.hidden = [] has no values"),
        ({"model": {"hidden": ["wide"]}}, "model.hidden = 'wide'; expected a whole number of at least 1"),
        ({"model": {"hidden": [0]}}, "model.hidden = 0;"),
        ({"model": {"hidden": [16.5]}}, "model.hidden = 16.5;"),
        ({"model": {"hidden": [True]}}, "model.hidden = True;"),
        ({"model": {"dropout": [1.0]}}, "model.dropout = 1.0; expected a number from 0 to less than 1"),
        ({"model": {"kind": ["gnc"]}}, "grid: model.kind: unknown model 'gnc'"),
        ({"model": {"kind": ["no_such_module:make"]}}, "no_such_module"),
        ({"model": {"aggr": ["median"]}, "seed": 1}, "expected one of mean, max, sum"),
        ({"model": {"heads": [1, 2]}}, "model.heads is of gat, and none of them is in the grid, which has gcn"),
        ({"optimizer": {"momentum": [0.9]}}, "optimizer.momentum is of sgd"),
        ({"optimizer": {"name": ["adam", "lion"]}}, "expected one of adam, adamw, sgd, adagrad"),
        ({"optimizer": {"lr": [float("nan")]}}, "optimizer.lr = nan; expected a number"),
        ({"optimizer": {"lr": [-1.0]}}, "grid: Adam(lr=-1.0"),
        ({"optimizer": {"lr": [-1.0]}}, "Invalid learning rate: -1.0"),
        ({"optimizer": {"lr": ["fast"]}}, "optimizer.lr = 'fast'"),
        ({"seed": [-1]}, "seed = -1; expected a whole number of at least 0"),
        ({"optimizer": {"lr": {"low": 0.1}}}, "lacks 'high'"),
        ({"optimizer": {"lr": {"low": 0.1, "high": 0.1}}}, "has no low below its high"),
        ({"optimizer": {"lr": {"low": 0.0, "high": 0.1, "log": True}}}, "its low is not above 0"),
        ({"optimizer": {"lr": {"low": 0.1, "high": 0.2, "step": 2}}}, "has 'step'"),
        ({"optimizer": {"lr": {"low": 0.1, "high": 0.2, "log": "yes"}}}, "has log = 'yes'"),
        ({"model": {"kind": {"low": 1, "high": 2}}}, "model.kind is no number"),
        ({"model": {"dropout": {"low": 0.0, "high": 1.0}}}, "model.dropout = 1.0"),
    ],
)
def test_what_cannot_be_used_is_refused(given, expected):
    with pytest.raises(ConfigurationError) as raised:
        read_grid(given)
    assert expected in str(raised.value)


def test_files_that_are_none(tmp_path):
    (tmp_path / "bad.toml").write_text("lr = [0.1")
    for path, expected in ((tmp_path / "bad.toml", "is no TOML"), (tmp_path / "none.toml", "No such file")):
        with pytest.raises(ConfigurationError, match=rf"^the grid \S*{path.name} .*{expected}"):
            read_grid(path)
    with pytest.raises(ConfigurationError, match="expected the path of a TOML file"):
        read_grid(3)


def own_model(in_channels, out_channels, hidden_channels, gain):
    raise AssertionError("no model is made when a grid is read")


def test_a_factory_of_ones_own_has_its_own_settings():
    kind = f"{__name__}:own_model"
    space = read_grid({"model": {"kind": ["gcn", kind], "hidden": [4, 8], "dropout": [0.0, 0.5], "gain": [1.5, 2]}})
    trials, notes = space.combinations()
    own = [one.values for one in trials if one.values["model.kind"] == kind]
    assert [(one["model.hidden"], one["model.gain"]) for one in own] == [(4, 1.5), (4, 2), (8, 1.5), (8, 2)]
    assert all("model.dropout" not in one for one in own)
    assert len(trials) == 4 + 4
    assert notes == ("8 of 16 combinations are the same model as another, and not trained again",)
    with pytest.raises(ConfigurationError, match=r"unknown setting model\.gian"):
        read_grid({"model": {"kind": [kind], "gian": [1]}})


def pooled(in_channels, out_channels, pooling="mean", norm="layer_norm", act="relu", gain=1):
    model = torch.nn.Linear(in_channels, out_channels)
    model.given = pooling, norm, act, gain
    return model


@pytest.mark.parametrize(
    ("setting", "values", "expected"),
    [
        ("pooling", ["none", "absent", "max"], ["none", "absent", "max"]),
        ("act", ["none", "absent"], ["none", "absent"]),
        ("norm", ["none", "layer_norm"], [None, "layer_norm"]),
        ("gain", [1, 1.0, True, 1], [1, 1.0, True]),
    ],
)
def test_a_factory_is_given_each_value_as_it_stands(setting, values, expected):
    """Also a text that means nothing elsewhere, and numbers that Python takes to be equal."""
    place = ("pooling", "norm", "act", "gain").index(setting)
    trials, notes = read_grid({"model": {"kind": pooled, setting: values}}).combinations()
    found = [one.model(2, 3).given[place] for one in trials]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in expected]
    assert varied(trials) == [f"model.{setting}"]
    assert notes == ()


def test_none_is_what_a_stock_model_does_by_default():
    trials, _ = read_grid({"model": {"kind": ["gcn", "mlp"], "norm": ["none", "layer_norm"]}}).combinations()
    plain, _ = read_grid({"model": {"kind": ["gcn", "mlp"]}}).combinations()
    assert [one for one in trials if "model.norm" not in one.values] == plain
    assert len(trials) == 4


def test_the_documentation_has_every_setting():
    text = (ROOT / "docs" / "reference" / "grid-file.md").read_text()
    assert [key.path for key in KEYS.values() if f"`{key.name}`" not in text] == []
    assert all(key.table == "model" for key in MODEL)
