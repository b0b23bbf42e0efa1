"""The page of a search, parsed as a browser would: all trials are in each of its parts, and it fetches nothing."""

from __future__ import annotations

import math
import re

import pytest

from lotan.tuning.grid_file import read_grid
from lotan.tuning.result import Trial, Tuned
from lotan.tuning.scales import scale_of
from tests.planner.explain.test_page import parsed

GRID = {
    "epochs": 12,
    "model": {"kind": ["gcn", "gat"], "heads": [1, 4], "act": "<b>&relu"},
    "optimizer": {"lr": [0.0001, 0.01, 0.1]},
}
BATCH = {"graph": {"vertices": 60, "edges": 240, "width": 8, "classes": 3}, "engine": "local"}


def tuned(values, grid=GRID, monitor="accuracy") -> Tuned:
    """As if trials had these values; None diverged."""
    settings = read_grid(grid).combinations()[0]
    trials = []
    for number, (value, one) in enumerate(zip(values, settings, strict=False)):
        history = [
            {"epoch": epoch, "loss": 1 / epoch, "metrics": {"val": {monitor: (value or 0) * epoch / 12}}}
            for epoch in range(1, 13)
        ]
        metrics = {} if value is None else {"val": {monitor: value}, "test": {monitor: value - 0.01}}
        state, reason = ("diverged", "the loss is nan <here>") if value is None else ("done", "")
        trials.append(Trial(number, one, state, reason, 12, 12, value, metrics, history))
    return Tuned(trials, monitor, {"search": "grid", "eta": 3}, ("a <note> on it",), BATCH, None)


FULL = tuned([0.9, 0.8, 0.8, 0.7, 0.5, 0.4, 0.3, 0.2, None])


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (FULL, 9),
        (tuned([0.5], {"seed": 1}), 1),
        (tuned([None, None], {"seed": [1, 2]}), 2),
        (tuned([0.5, 0.5], {"seed": [1, 2]}), 2),
        (tuned([0.1, 0.5], {"seed": [1, 2]}, "mse"), 2),
    ],
)
def test_every_trial_is_in_every_part(found, count):
    page = parsed(found.html())
    numbers = {str(number) for number in range(count)}
    for name in ("coordinates", "curves"):
        for picture in page.all(tag="svg", has=name):
            assert {line.attributes["data-trial"] for line in picture.all(tag="polyline")} == numbers
    assert {row.attributes["data-trial"] for row in page.all(tag="tr") if "data-trial" in row.attributes} == numbers
    assert len(page.all(tag="svg", has="curves")) == 2


def test_nothing_is_fetched_and_what_was_given_is_text():
    html = FULL.html()
    assert re.findall(r"(?:https?:|src=|@import|url\((?!#))", html) == []
    assert "<b>&relu" not in html
    assert "<here>" not in html
    assert "<note>" not in html
    assert "a &lt;note&gt; on it" in html


def test_the_table_is_in_the_order_of_the_scores():
    (table,) = parsed(FULL.html()).all(tag="table")
    rows = [[cell.text for cell in row.children] for row in table.all(tag="tr")]
    assert rows[0] == [
        "trial",
        "model",
        "heads",
        "lr",
        "val accuracy",
        "test accuracy",
        "best epoch",
        "epochs",
        "state",
    ]
    assert [row[0] for row in rows[1:]] == [str(number) for number in range(9)]
    assert rows[1][1:6] == ["gcn", "-", "0.0001", "0.9000", "0.8900"]
    assert rows[9][4:6] + rows[9][8:] == ["-", "-", "diverged: the loss is nan <here>"]


def test_lines_pass_the_axes_where_their_values_are():
    (picture,) = parsed(FULL.html()).all(tag="svg", has="coordinates")
    axes = picture.all(tag="g", has="axis")
    assert [axis.attributes["data-name"] for axis in axes] == ["model", "heads", "lr", "val accuracy"]
    ticks = [dict(tick.split("=")[::-1] for tick in axis.attributes["data-ticks"].split("|")) for axis in axes]
    for trial in FULL.trials:
        (line,) = picture.all(tag="polyline", data_trial=str(trial.number))
        at = line.attributes["data-at"].split()
        values = trial.settings.values
        assert at[0] == ticks[0][values["model.kind"]]
        assert at[1] == ticks[1][str(values.get("model.heads", "none"))]
        assert at[2] == ticks[2][f"{values['optimizer.lr']:g}"]
        drawn = [float(pair.split(",")[1]) for pair in line.attributes["points"].split()]
        assert all(math.isclose(one, float(other), abs_tol=9.1) for one, other in zip(drawn, at, strict=True))
    assert picture.all(tag="polyline", data_trial="8")[0].attributes["class"] == "none"
    assert picture.all(tag="polyline", data_trial="8")[0].attributes["data-at"].split()[-1] == ticks[3]["none"]


def test_colours_go_by_rank():
    (picture,) = parsed(FULL.html()).all(tag="svg", has="coordinates")
    shares = {line.attributes["data-trial"]: line.attributes.get("style") for line in picture.all(tag="polyline")}
    assert (shares["0"], shares["7"], shares["8"]) == ("--share: 1.000", "--share: 0.000", None)


def test_scales():
    assert scale_of(["gcn", "gat", None]).places == {None: 0.0, "gcn": 0.5, "gat": 1.0}
    assert scale_of([3, 1, 2]).places == {1: 0.0, 2: 0.5, 3: 1.0}
    many = [0.0001, 0.001, 0.01, 0.1, 0.02, 0.03, 0.04]
    scale = scale_of(many)
    assert scale.kind == "log"
    assert math.isclose(scale.place(0.01), 2 / 3)
    assert scale_of(many, numbers=True).kind == "linear"
    assert scale_of([0.02, 0.1, 0.25, 0.3, 0.45, 0.5, 0.62, 0.7, 0.8]).kind == "linear"  # drawn evenly, one near 0
    assert scale_of([0.5, 0.5], numbers=True).place(0.5) == 0.5


def test_in_a_notebook_it_is_a_frame_of_its_own():
    shown = FULL._repr_html_()
    assert shown.startswith('<iframe title="models of a search" sandbox="allow-scripts"')
    assert repr(FULL).splitlines()[1].split() == ["0", "gcn", "-", "0.0001", "0.9000", "0.8900", "12", "12", "done"]
