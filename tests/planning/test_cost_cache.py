"""What a machine has shown: it comes back as it was written, corrects estimates, and damage costs a warning."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lotan
from lotan.cli import main
from lotan.engines.choice import ENGINES
from lotan.exploring import calibration
from lotan.planning import cost_cache
from lotan.planning.cost_cache import RUNS, Known, PastRun, corrections, load, remember_rates, remember_run
from lotan.training import trainer
from planner import Options
from planner.cost.seconds import Corrections, PassCost, Pricing, epoch_seconds
from planner.layout import Layout
from planner.physical import Plan
from planner.rates import DEFAULT_RATES
from planner.shares import Crew
from planner.statistics import Statistics
from tests.planner.specs import attention, gcn, planned

SLOW_EDGES = replace(DEFAULT_RATES["local"], edges=1.5)
RUN = '{"estimated": {"fixed": 0, "graph": %r, "neural": 0}, "measured": %r}'
SLOW = PastRun({"fixed": 0.0, "graph": 1.0, "neural": 0.0}, 2.0)  # took twice as long as estimated


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOTAN_COSTS", str(tmp_path / "costs"))
    return tmp_path / "costs"


def test_nothing_is_known_of_a_new_machine():
    assert load() == Known()
    assert "blocks" not in load().rates
    assert load().corrections("blocks") == Corrections()


def test_rates_and_runs_come_back(folder):
    remember_run("blocks", SLOW)
    assert remember_rates({"local": SLOW_EDGES}) == next(folder.glob("*.json"))
    known = load()
    assert known.rates["local"] == SLOW_EDGES
    assert "rows" not in known.rates
    assert list(known.runs["blocks"]) == [SLOW]
    assert sorted(place.suffix for place in folder.iterdir()) == [".json", ".lock"]


def test_new_rates_forget_the_runs_before_them():
    remember_run("local", SLOW)
    remember_rates({"local": SLOW_EDGES})
    assert "local" not in load().runs


def test_only_the_last_runs_are_kept():
    for number in range(RUNS + 5):
        remember_run("rows", PastRun(SLOW.estimated, 1.0 + number))
    assert [run.measured for run in load().runs["rows"]] == [1.0 + number for number in range(5, RUNS + 5)]


@pytest.mark.parametrize("measured", [0.0, float("nan"), float("inf")])
def test_what_is_no_measurement_is_not_remembered(folder, measured):
    remember_run("local", PastRun(SLOW.estimated, measured))
    assert not folder.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "format": 0}),
        lambda text: json.dumps({**json.loads(text), "machine": {"cores": 1}}),
        lambda text: text.replace("1.5", "-1.5"),
        lambda text: text.replace("1.5", '"fast"'),
        lambda text: text.replace('"edges": ', '"hedges": '),  # a rate, and no unit of the machine's
        lambda text: text.replace("1.5", "0"),
        lambda text: json.dumps({**json.loads(text), "rates": {"local": {}}}),
        lambda text: text.replace('"runs": {}', '"runs": {"local": [{"estimated": {}, "measured": 1}]}'),
        lambda text: text.replace("1.5", "1" + 400 * "0"),
        lambda text: "[" * 100_000,
        lambda text: text.replace("1.5", "1e308"),
        lambda text: text.replace("1.5", "1e-320"),
        lambda text: text.replace('"runs": {}', '"runs": {"local": [' + RUN % (1.0, 1e-320) + "]}"),
        lambda text: text.replace('"runs": {}', '"runs": {"local": [' + RUN % (1.0, 1e-160) + "]}"),
        lambda text: text.replace('"runs": {}', '"runs": {"local": [' + RUN % (1e300, 1.0) + "]}"),
    ],
)
def test_a_damaged_or_foreign_file_is_left_out_with_a_warning(folder, damage, caplog):
    place = remember_rates({"local": SLOW_EDGES})
    place.write_text(damage(place.read_text()))
    assert load() == load() == Known()
    assert caplog.text.count(str(place)) == 1
    remember_rates({"local": SLOW_EDGES})
    assert load().rates["local"] == SLOW_EDGES


def test_a_pipe_in_its_place_is_left_out_and_not_waited_for(folder, caplog):
    place = remember_rates({"local": SLOW_EDGES})
    place.unlink()
    os.mkfifo(place)
    assert load() == Known()
    assert "it is not an ordinary file" in caplog.text


def test_a_run_as_it_is_written_is_read(folder):
    place = remember_rates({"local": SLOW_EDGES})
    place.write_text(place.read_text().replace('"runs": {}', '"runs": {"local": [' + RUN % (1.0, 2.0) + "]}"))
    assert load().runs["local"] == [SLOW]


def _remember_some(number):
    for turn in range(5):
        remember_run("local", PastRun(SLOW.estimated, 1.0 + 5 * number + turn))


@pytest.mark.processes
def test_runs_that_end_at_once_are_all_remembered():
    workers = [get_context("fork").Process(target=_remember_some, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert sorted(run.measured for run in load().runs["local"]) == [1.0 + number for number in range(20)]


def test_a_lock_that_another_holds_stops_no_run(folder, monkeypatch):
    monkeypatch.setattr(cost_cache, "LOCK_DEADLINE", 0.05)
    remember_run("local", SLOW)
    with next(folder.glob("*.lock")).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remember_run("local", SLOW)
    assert len(load().runs["local"]) == 2


def test_a_folder_that_cannot_be_written_costs_no_run(folder):
    folder.write_text("no folder")
    remember_run("local", SLOW)
    assert remember_rates({"local": DEFAULT_RATES["local"]}) is None


@pytest.mark.parametrize("word", ["off", "OFF"])
def test_off_means_neither_read_nor_written(word, folder, monkeypatch):
    remember_rates({"local": SLOW_EDGES})
    monkeypatch.setenv("LOTAN_COSTS", word)
    assert load() == Known()
    assert remember_rates({"local": DEFAULT_RATES["local"]}) is None


def test_the_users_cache_is_the_default_place(tmp_path, monkeypatch):
    monkeypatch.delenv("LOTAN_COSTS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = remember_rates({"local": DEFAULT_RATES["local"]})
    assert place.parent == tmp_path / "lotan"


@pytest.fixture
def quiet(monkeypatch):
    """Says that nobody else runs on this machine, whatever else does."""
    monkeypatch.setattr(trainer, "LoadWatch", lambda: SimpleNamespace(quiet=True))


@pytest.mark.usefixtures("quiet")
def test_a_run_is_remembered_and_corrects_the_next_estimate():
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)

    def trainer() -> lotan.Trainer:
        return lotan.Trainer(lotan.nn.GCN(8, 4, 2, 3), graph, engine="local", epochs=4, progress=False)

    report = trainer().fit().report["plan"]
    (run,) = load().runs["local"]
    assert run.measured == report["measured_epoch_seconds"] > 0
    assert sum(run.estimated.values()) == pytest.approx(report["estimated_epoch_seconds"])
    planned = trainer().plan.planned  # explain rounds: an estimate that was right to three digits may seem to get worse
    again = planned.cost(planned.plan.training(evaluates=True)).seconds
    before, after = (abs(value - run.measured) for value in (report["estimated_epoch_seconds"], again))
    assert after <= before


@pytest.mark.usefixtures("quiet")
def test_a_run_of_few_epochs_says_nothing_of_the_next():
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    lotan.Trainer(lotan.nn.GCN(8, 4, 2, 3), graph, engine="local", epochs=2, progress=False).fit()
    assert load() == Known()


def test_the_probe_is_run_when_asked_for_and_its_rates_are_used(monkeypatch, capsys):
    monkeypatch.setitem(calibration.PROBES, "local", [calibration.Case(200, 800, 8, "gcn", 4, 2)])
    assert main(["doctor", "--calibrate", "local"]) == 0
    assert "seconds a unit of" in capsys.readouterr().out
    assert load().rates["local"] != DEFAULT_RATES["local"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [("off", "$LOTAN_COSTS is off"), ("/dev/null/costs", "/dev/null/costs cannot be written (Not a")],
)
def test_a_probe_that_cannot_be_remembered_is_not_run_and_says_why(monkeypatch, capsys, place, reason):
    monkeypatch.setenv("LOTAN_COSTS", place)
    monkeypatch.setattr(calibration, "calibrate", lambda engine: pytest.fail("measured for nothing"))
    assert main(["doctor", "--calibrate", "rows"]) == 1
    assert reason in capsys.readouterr().out


def test_rates_that_could_be_remembered_when_asked_and_cannot_in_the_end_are_said_to_be_lost(monkeypatch, capsys):
    monkeypatch.setattr(calibration, "calibrate", DEFAULT_RATES.__getitem__)
    monkeypatch.setattr(cost_cache, "remember_rates", lambda found: None)
    assert main(["doctor", "--calibrate", "rows"]) == 1
    assert "not stored" in capsys.readouterr().out


GRAPH_WORK = {"fixed": 0.0, "graph": 1.0, "neural": 0.0}  # estimated seconds


def test_corrections_approach_what_runs_have_shown():
    runs = [PastRun(GRAPH_WORK, 1.5)]
    one, many = corrections(runs), corrections(runs * 30)
    assert 1 < one.graph < many.graph < 1.5
    assert many.graph == pytest.approx(1.5, rel=0.1)
    assert (many.fixed, many.neural) == (1, 1)  # of which these runs say nothing


def test_slow_runs_say_as_much_as_fast_ones():
    for count, least in ((1, 1.41), (4, 1.68), (30, 1.87)):
        slow, fast = ([PastRun(GRAPH_WORK, seconds)] * count for seconds in (2.0, 0.5))
        assert least < corrections(slow).graph < 2
        assert corrections(slow).graph == pytest.approx(1 / corrections(fast).graph)
        in_turn = [run for pair in zip(slow, fast, strict=True) for run in pair]
        assert corrections(in_turn).graph == pytest.approx(1, abs=0.06)  # the last one counts a little more


def test_a_run_counts_less_the_more_runs_there_have_been_since():
    quiet, slow = [PastRun(GRAPH_WORK, 1.0)], [PastRun(GRAPH_WORK, 2.0)]
    fading = [corrections([*slow * 8, *quiet * count]).graph for count in (0, 8, 16, 24)]
    assert fading == sorted(fading, reverse=True)
    assert fading[0] > 1.75
    assert fading[-1] < 1.15


def test_corrections_tell_groups_apart():
    fixed, graph = ({"fixed": 1.0, "graph": 0.0, "neural": 0.0}, {"fixed": 0.5, "graph": 0.5, "neural": 0.0})
    found = corrections([PastRun(fixed, 1.0), PastRun(graph, 1.0)] * 20)
    assert found.fixed == pytest.approx(1, abs=0.05)
    assert found.graph == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("measured", [1e-8, 1e9])
def test_no_run_counts_as_further_off_than_a_correction_may_be(measured):
    """One that the machine had slept through, and one of a clock that was set."""
    clipped = corrections([PastRun(GRAPH_WORK, 2.0 if measured > 1 else 0.5)])
    assert corrections([PastRun(GRAPH_WORK, measured)]) == clipped
    assert corrections([PastRun(GRAPH_WORK, measured)] * 30).graph == pytest.approx(clipped.graph**2, rel=0.15)


GROUP_SECONDS = st.floats(0, 1e3)
RUNS_OF_ANY_KIND = st.lists(
    st.builds(
        PastRun,
        st.fixed_dictionaries({"fixed": GROUP_SECONDS, "graph": GROUP_SECONDS, "neural": GROUP_SECONDS}),
        st.floats(1e-9, 1e9),
    ),
    min_size=1,
    max_size=RUNS,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(runs=RUNS_OF_ANY_KIND, engine=st.sampled_from(sorted(ENGINES)))
def test_no_runs_move_an_estimate_by_more_than_a_factor_of_two(runs: list[PastRun], engine: str) -> None:
    pricing = Pricing(ENGINES[engine])
    size = Statistics(1000, 10_000, 8)
    for plan in PLANS[engine]:
        plain = epoch_seconds(plan, size, pricing).seconds
        corrected = epoch_seconds(plan, size, replace(pricing, corrections=corrections(runs))).seconds
        assert 0.499 < corrected / plain < 2.001


def small_plans(engine: str) -> list[Plan]:
    """Of work on the graph and in stages in several proportions."""
    options = Options(pricing=Pricing(ENGINES[engine]))
    models = [(gcn(hidden=hidden), gcn(training=False, hidden=hidden)) for hidden in (4, 256)]
    return [planned(*specs, options).plan for specs in (*models, (attention(), attention()))]


PLANS = {engine: small_plans(engine) for engine in ENGINES}
COUNTS = st.integers(1, 16)
LAYOUTS = st.builds(
    Layout, st.builds(Crew, st.integers(0, 16), COUNTS), st.integers(1, 64), cores=COUNTS, shuffled=st.booleans()
)
SIZES = st.builds(Statistics, st.integers(10, 10**7), st.integers(0, 10**9), st.just(8))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(engine=st.sampled_from(sorted(PLANS)), layouts=st.lists(LAYOUTS, min_size=1, max_size=4), size=SIZES)
def test_runs_that_took_what_was_estimated_correct_nothing(
    engine: str, layouts: list[Layout], size: Statistics
) -> None:
    """However work is spread: an estimate that comes true says so of all groups, and stays."""

    def estimates(corrected: Corrections) -> list[PassCost]:
        prices = [Pricing(ENGINES[engine], layout, corrections=corrected) for layout in layouts]
        return [epoch_seconds(plan, size, pricing) for plan in PLANS[engine] for pricing in prices]

    plain = estimates(Corrections())
    learnt = corrections([PastRun(one.groups, one.seconds) for one in plain])
    assert (learnt.fixed, learnt.graph, learnt.neural) == pytest.approx((1, 1, 1))
    assert [one.seconds for one in estimates(learnt)] == pytest.approx([one.seconds for one in plain])
