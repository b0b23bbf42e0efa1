"""The plans that could have been, in order, each as its options would have it."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace

import pytest

import lotan
from lotan.cli import main
from lotan.errors import ConfigurationError
from lotan.exploring.alternatives import Alternative, Asked, _differences, alternative_lines
from planner.steps.propagate import PropagateStep


def trainer(**options) -> lotan.Trainer:
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    return lotan.Trainer(lotan.nn.GCN(8, 4, 2, 3, dropout=0.5), graph, epochs=2, progress=False, **options)


def found(**options) -> list[dict]:
    return json.loads(trainer(**options).explain("json", alternatives=True))["alternatives"]


def test_plans_are_sorted_and_one_is_chosen():
    listed = found()
    assert [one["seconds"] for one in listed] == sorted(one["seconds"] for one in listed)
    assert [one["options"] for one in listed if one["chosen"]] == ["--engine local"]
    assert {one["options"].split()[1] for one in listed} == {"local", "blocks", "rows"}
    assert len({one["options"] for one in listed}) == len(listed)


@pytest.mark.parametrize(
    "words", ["--engine local", "--engine local --disable push_down", "--engine local --plan general"]
)
def test_the_options_ask_for_the_plan(words):
    (listed,) = [one for one in found() if one["options"] == words]
    given = dict(zip(*[iter(word.lstrip("-") for word in shlex.split(words))] * 2, strict=True))
    given |= {"disable": [given["disable"]]} if "disable" in given else {}
    for options in (given, {"plan": listed["name"]}):
        asked = json.loads(trainer(**options).explain("json"))
        training, evaluation, both = (
            asked[f"estimated_{name}_seconds"] for name in ("epoch", "evaluation", "epoch_and_evaluation")
        )
        reused = any(rule["name"] == "reuse_evaluation" and rule["fired"] for rule in asked["rules"])
        walked = asked["epoch_and_evaluation"] or asked["epoch"] + asked["evaluation"] * (not reused)
        assert listed["steps"] == len(walked)
        assert listed["bytes"] == sum(step["bytes"] for step in walked)
        assert listed["seconds"] == pytest.approx(both or training + evaluation * (not reused), rel=0.01)


def test_a_plan_that_was_forced_is_the_chosen_one():
    listed = found(plan="local-push_down")
    assert [one["name"] for one in listed if one["chosen"]] == ["local-push_down"]
    assert {one["name"] for one in listed} >= {"local-push_down", "local-general-push_down", "blocks-push_down"}


def test_work_that_is_spread_otherwise_is_the_same_plan(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    listed = {one["options"]: one for one in found(workers=2, master="local[2]")}
    plain, more = listed["--engine blocks"], listed["--engine blocks --partitions 8"]
    assert more["name"] == plain["name"] == "blocks"
    assert more["seconds"] > plain["seconds"], "four waves of tasks, and nothing spared"
    assert not any("--workers" in options for options in listed), "they were asked for"
    assert "--engine rows --workers 1" in {one["options"] for one in found() if one["name"] == "rows"}


def test_what_a_limit_rules_out_is_marked():
    listed = {one["options"]: one["fits"] for one in found(memory_limit="1g")}
    assert listed["--engine local"]
    assert not listed["--engine rows"]


def test_blocks_are_left_out_where_they_cannot_run():
    assert not any("blocks" in one["options"] for one in found(rgb=False))


def test_text_and_command(capsys):
    assert main(["explain", "--graph", "digits", "--alternatives", "--stage", "logical"]) == 0
    lines = capsys.readouterr().out.split("== alternatives ==")[1].splitlines()
    assert [line.split()[1] for line in lines if line.startswith(">")] == ["local"]
    assert max(map(len, lines)) <= 100
    (collecting,) = (line for line in lines if line.startswith("  local-push_down "))
    assert "+2 Collect, +2 Gather" in collecting, "what differs from the plan that runs"


def test_without_a_stage_the_head_and_the_list_stand_alone(capsys):
    assert main(["explain", "--graph", "digits", "--alternatives"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("==")]
    assert titles == ["== alternatives =="]
    shown = trainer().explain(alternatives=True, stage="all")
    assert "== rules ==" in shown
    assert "== rules that fired ==" in trainer().explain()


def plan(engine: str, without: str | None = None, seconds: float = 0.02, **others) -> Alternative:
    asked = Asked(engine, without, partitions=others.pop("partitions", None))
    told = {"chosen": False, "steps": 8, "bytes": 1000, "differs": "", "peak_bytes": 2000, "fits": True}
    name = "-".join(filter(None, [engine, without]))
    return Alternative(name=name, asked=asked, seconds=seconds, **{**told, **others})


def test_rules_that_make_no_difference_are_in_one_line_of_their_engine():
    first, other = plan("local", chosen=True), plan("blocks", seconds=0.03)
    less = [plan("local", rule) for rule in ("share_subplans", "drop_unit_weight")]
    spread = plan("blocks", seconds=0.03, partitions=4)
    slower = plan("local", "push_down", 0.04)
    lines = alternative_lines([first, *less, other, spread, slower])
    named = [line[2:].split("  ")[0] for line in lines[2:6]]
    assert named == ["local", "blocks", "blocks --partitions 4", "local-push_down"]
    assert lines[6] == "  as local: without share_subplans, drop_unit_weight"
    assert "does not run in place of" not in " ".join(lines)


@pytest.mark.parametrize(
    ("faster", "reason"),
    [
        (plan("local", "prune_vertices", 0.0185), "it would save less than 10% of an epoch"),
        (plan("local", "push_down", 0.01), "this choice does not rest on estimates; --plan asks for it"),
        (plan("local", "push_down", 0.01, fits=False), "it takes more memory than the limit"),
    ],
)
def test_why_the_fastest_plan_of_the_engine_does_not_run(faster, reason):
    said = " ".join(" ".join(alternative_lines([faster, plan("local", chosen=True)])).split())
    assert f"{faster.name} does not run in place of >: {reason}" in said
    assert all(len(line) <= 100 for line in alternative_lines([faster, plan("local", chosen=True)]))


def test_every_other_plan_says_what_differs():
    """Also one that trains with the same steps: it evaluates otherwise, or its stages keep other values."""
    listed = {one["options"]: one["differs"] for one in found()}
    assert listed["--engine local"] == ""
    assert listed["--engine local --disable reuse_evaluation"].startswith("evaluation in a pass of its own")
    assert listed["--engine blocks"] == "the same steps, but for what is kept beyond memory"
    assert "--engine local --disable keep_or_recompute" not in listed, "all is kept there"
    assert all(listed[options] for options in listed if "--disable" in options)


def test_plans_of_the_same_kinds_of_steps_differ_in_columns():
    listed = {one["options"]: one["differs"] for one in found(engine="local")}
    assert listed["--engine local --disable drop_dead_gradients"] == "+1 column"
    assert {one["differs"] for one in found(engine="rows") if "--partitions" in one["options"]} >= {"the same steps"}


def test_plans_with_as_many_columns_may_differ_in_their_widths():
    plan = trainer().plan.planned.plan
    at, sums = next((at, step) for at, step in enumerate(plan.train) if isinstance(step, PropagateStep))
    wider = replace(sums, output=replace(sums.output, shape=(64,)))
    other = replace(plan, train=(*plan.train[:at], wider, *plan.train[at + 1 :]), train_and_evaluate=())
    assert _differences(other, replace(plan, train_and_evaluate=())) == "columns of other widths"


def test_stages_that_keep_elsewhere_are_the_same_but_for_that():
    plan = trainer().plan.planned.plan
    elsewhere = replace(plan, stages=tuple(replace(stage, overflow="recompute", worth=1.0) for stage in plan.stages))
    file = replace(plan, stages=tuple(replace(stage, overflow="file") for stage in plan.stages))
    assert _differences(elsewhere, file) == "the same steps, but for what is kept beyond memory"
    first, *others = plan.stages
    other = replace(plan, stages=(replace(first, calls=first.calls[:-1]), *others))
    assert _differences(other, plan) == "the same steps, with other stages"


def test_not_beside_another_plan(capsys):
    assert main(["explain", "--graph", "digits", "--alternatives", "--diff", "--disable push_down"]) == 2
    assert "--diff shows two" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="not 'mermaid'"):
        trainer().explain("mermaid", alternatives=True)
