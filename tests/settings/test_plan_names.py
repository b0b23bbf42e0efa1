"""Names of plans: each asks for the plan it was listed with, and a wrong one is an error that names the right ones."""

from __future__ import annotations

import pytest

import lotan
from lotan.cli import main
from lotan.engines import choice
from lotan.errors import ConfigurationError
from lotan.settings.config import make_config
from lotan.settings.plan_names import ENGINES, ForcedPlan, named_plan
from planner.plan_names import plan_name
from planner.rules import RULE_NAMES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("disable", [(), ("push_down",), ("push_down", "keep_or_recompute")])
@pytest.mark.parametrize("plan", ["auto", "general"])
def test_a_name_asks_for_what_it_was_made_of(engine, disable, plan):
    assert named_plan(plan_name(engine, disable, plan)) == ForcedPlan(engine, disable, plan)


def test_rules_are_named_in_their_order():
    assert plan_name("local", RULE_NAMES[2::-1], "auto") == "-".join(["local", *RULE_NAMES[:3]])
    assert set(ENGINES) == set(choice.ENGINES)


def test_a_name_stands_for_settings():
    config = make_config({"plan": "blocks-hoist_invariant", "disable": ["fuse_apply"]})
    assert (config.engine, config.disable, config.plan) == ("blocks", ("fuse_apply", "hoist_invariant"), "auto")
    assert make_config({"plan": "rows-general", "engine": "rows"}).plan == "general"


def test_a_configuration_says_what_was_asked_for():
    given = lotan.TrainerConfig(plan="blocks-hoist_invariant", disable=["fuse_apply"])
    assert (given.engine, given.disable, given.plan) == ("auto", ["fuse_apply"], "blocks-hoist_invariant")
    settled = given.settled()
    assert (settled.engine, settled.disable, settled.plan) == ("blocks", ("fuse_apply", "hoist_invariant"), "auto")
    assert settled.settled() is settled
    trainer = lotan.Trainer(lotan.nn.GCN(64, 16, 2, 10), lotan.Graph.read("digits"), plan="local-push_down")
    assert trainer.config.plan == "local-push_down"
    assert trainer.job.engine.name == "local"
    assert "push_down" not in trainer.job.plan.fired


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"plan": "blocks-hoist"},
            "did you mean 'blocks-hoist_invariant'.*The rules are share_subplans, drop_unit_weight",
        ),
        ({"plan": "spark"}, "an engine .local, rows, blocks."),
        ({"plan": ""}, "there is no plan ''"),
        ({"plan": "local-"}, "there is no plan 'local-'"),
        ({"plan": 3}, "unknown plan 3"),
        ({"plan": "local", "engine": "rows"}, "plan 'local' is for engine 'local', but engine is 'rows'"),
        ({"plan": "blocks", "rgb": False}, "rgb is False, but engine 'blocks'"),
        ({"plan": "local", "disable": "push_down"}, "give a list of rule names"),
    ],
)
def test_what_no_plan_is_called_is_an_error(options, message):
    with pytest.raises(ConfigurationError, match=message):
        make_config(options)


def test_commands_take_names(capsys):
    given = ["explain", "--graph", "digits", "--stage", "physical"]
    assert main([*given, "--plan", "local-push_down"]) == 0
    named = capsys.readouterr().out
    assert main([*given, "--engine", "local", "--disable", "push_down"]) == 0
    assert named == capsys.readouterr().out
    assert main([*given, "--plan", "local-pushdown"]) == 2
    assert "did you mean 'local-push_down'?" in capsys.readouterr().err
