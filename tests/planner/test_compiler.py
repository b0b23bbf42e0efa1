"""The loop over phases: what each leaves, what it refuses, and whom it tells."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from planner import Options, PlanError, compile_plan, compile_until
from planner.compiler import PIPELINE
from planner.draft import NO_PLAN, NO_STEPS, Draft
from planner.loss import LossSpec
from planner.nodes import topological
from planner.rule import DraftRule, Phase
from planner.rules import RULES
from tests.planner.engines import ON_BLOCKS, able
from tests.planner.specs import STATISTICS, gcn

GIVEN = gcn(), gcn(training=False), LossSpec("classification", 3, 10.0), STATISTICS


def test_phases_are_those_of_the_pipeline_between_what_is_written_and_what_is_chosen():
    assert get_args(Phase) == ("logical", *PIPELINE, "choices", "models")


def test_each_phase_adds_to_the_draft_of_the_one_before():
    drafts = {phase: compile_until(phase, *GIVEN) for phase in ("logical", *PIPELINE)}
    assert drafts["logical"].train is drafts["logical"].logical
    assert drafts["nodes"].train is not drafts["logical"].train
    assert drafts["nodes"].firings
    assert drafts["rewritten"].held
    assert not drafts["rewritten"].cuts
    assert drafts["stages"].cuts
    assert drafts["stages"].forward == NO_STEPS
    assert drafts["steps"].forward.steps
    assert not drafts["steps"].epoch.steps
    assert drafts["epoch"].epoch.steps
    assert drafts["plan"].plan.train == drafts["epoch"].epoch.steps
    assert drafts["epoch"].plan == NO_PLAN
    assert not drafts["plan"].plan.prepare
    assert replace(drafts["physical"].plan, fired=()) == replace(compile_plan(*GIVEN).plan, fired=())


def test_the_hook_is_called_after_every_firing():
    told: list[str] = []
    planned = compile_plan(*GIVEN, hook=lambda rule, before, after: told.append(rule))
    on_graphs = [firing.rule for firing in planned.rewritten.firings if firing.rule != "hoist_invariant"]
    assert told[: len(on_graphs)] == on_graphs
    assert {*told} == {rule for rule, count in planned.firings.items() if count}


@pytest.mark.parametrize("phase", ["rewritten", "steps", "plan"])
def test_a_rule_that_changes_what_the_plan_yields_is_named(phase, monkeypatch):
    def spoil(draft: Draft) -> Draft:
        if phase == "rewritten":
            return replace(draft, train=topological(draft.train)[0])
        if phase == "steps":
            *others, last = draft.forward.stages
            return replace(draft, forward=replace(draft.forward, stages=(*others, replace(last, outputs=()))))
        return replace(draft, plan=replace(draft.plan, trainable=()))

    rule = DraftRule(name="spoil", phase=phase, apply=spoil, idle="")
    monkeypatch.setattr("planner.compiler.enabled", lambda *_: (*RULES, rule))
    with pytest.raises(PlanError, match="rule spoil changed what the plan yields"):
        compile_plan(*GIVEN)


@pytest.mark.parametrize(
    "options",
    [
        Options(disabled=("fuse_apply",)),
        Options(pricing=ON_BLOCKS),
        Options(rgb=False),
        Options(pricing=able("edge_columns")),
        Options(plan="general"),
    ],
    ids=repr,
)
def test_a_plan_that_goes_on_from_the_drafts_of_another_is_the_plan_it_would_be_alone(options):
    first, alone = compile_plan(*GIVEN), compile_plan(*GIVEN, options)
    again = first.with_options(options)
    assert (again.plan, again.firings, again.rewritten) == (alone.plan, alone.firings, alone.rewritten)
    assert first.with_options(Options()).draft.naive is first.draft.naive, "made anew without need"
