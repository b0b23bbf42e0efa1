"""Layers that normalise over all vertices train as in plain torch: losses, weights, running statistics, evaluation."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lotan
from lotan.batch.members import Member
from lotan.batch.model_batch import ModelBatch
from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.results.run import Run
from planner import RULE_NAMES
from planner.steps.propagate import PropagateStep
from planner.steps.total import TotalStep
from tests.exactness.norms import (
    CLASSES,
    FUNCTIONS,
    LR,
    NORMS,
    WIDTH,
    Normalised,
    Sample,
    Truth,
    model_of,
    sample,
    truth,
)
from tests.night import at_night

pytestmark = pytest.mark.thorough

EPOCHS = 3
OPTIMIZER = lotan.SGD(lr=LR)


def trained(model: torch.nn.Module, drawn: Sample, **settings) -> tuple[torch.nn.Module, Run]:
    """A copy of the model after training, and the run, on the local engine unless settings say otherwise."""
    given = {"engine": "local", "epochs": EPOCHS, "optimizer": OPTIMIZER, **settings}
    ours = deepcopy(model)
    return ours, lotan.Trainer(ours, drawn.graph, **given).fit()


def assert_equals_truth(model: torch.nn.Module, run: Run, expected: Truth) -> None:
    """Losses before each step, losses of every split after it, and the best weights and running statistics."""
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected.losses, rel=2e-5)
    for entry, evaluation in zip(run.history, expected.evaluations, strict=True):
        assert {split: entry["metrics"][split]["loss"] for split in evaluation} == pytest.approx(evaluation, rel=5e-5)
    state = expected.states[run.best_epoch - 1]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(
            value.to(state[name]), state[name], rtol=2e-4, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


EVERY = [(name, share) for share in (0.6, 0.05) for name in (*NORMS, *FUNCTIONS)]
"""Each with many and with few vertices that are trained on."""

FEW_BY_DAY = ("BatchNorm1d", "GraphNorm", "variance", "products")


@pytest.mark.parametrize(
    ("name", "share"), at_night(EVERY, unless=[case for case in EVERY if case[1] > 0.5 or case[0] in FEW_BY_DAY])
)
def test_equals_plain_torch(name, share):
    drawn = sample(seed=len(name), share=share)
    model = model_of(name)
    apart = ["reuse_evaluation"] if share < 0.5 else []  # a pass that evaluates as well is not pruned
    ours, run = trained(model, drawn, chunk_rows=16, disable=apart)
    assert_equals_truth(ours, run, truth(model, drawn, EPOCHS))


PLANS = ["general", *(rule for rule in RULE_NAMES if rule not in ("choose_physical", "share_models"))]
PLANS_BY_DAY = [("general",), ("push_down_totals",), ("sum_in_stages",), ("hoist_invariant",), ("prune_vertices",)]
"""The rules that look at statistics, or that decide which rows there are."""


@pytest.mark.parametrize("plan", at_night([(plan,) for plan in PLANS], unless=PLANS_BY_DAY))
def test_every_plan_equals_plain_torch(plan):
    drawn, model = sample(seed=2, share=0.1), model_of("BatchNorm1d")
    how = {"plan": plan} if plan == "general" else {"disable": [plan]}
    ours, run = trained(model, drawn, **how)
    assert_equals_truth(ours, run, truth(model, drawn, EPOCHS))
    assert ("push_down_totals" in run.report["plan"]["rules_fired"]) == (
        plan not in ("general", "push_down", "push_down_totals")
    )


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted({*NORMS, *FUNCTIONS} - {"PairNorm, individually"})),
    seed=st.integers(0, 10_000),
    vertices=st.integers(8, 40),
    edges=st.integers(10, 90),
    weighted=st.booleans(),
    share=st.sampled_from([0.1, 0.5]),
)
def test_equals_plain_torch_on_random_graphs(name, seed, vertices, edges, weighted, share):
    drawn, model = sample(seed, vertices, edges, weighted, share), model_of(name, seed)
    ours, run = trained(model, drawn, epochs=1, chunk_rows=7)
    assert_equals_truth(ours, run, truth(model, drawn, 1))


def test_the_mean_of_large_numbers_is_exact():
    """Sums of squares in float32 would lose all digits of a variance beside a mean a thousand times as large."""
    drawn = sample(seed=5)
    drawn = replace(drawn, x=(drawn.x + 3000).astype(np.float32))
    model = NormalisedFeatures()
    ours, run = trained(model, drawn, chunk_rows=8)
    assert_equals_truth(ours, run, truth(model, drawn, EPOCHS))


@pytest.mark.parametrize("name", ["GraphNorm", "BatchNorm1d"])
def test_only_what_follows_a_statistic_is_pruned(name):
    class Deeper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.norm, self.after = lotan.nn.GCNConv(WIDTH, 6), NORMS[name](6), lotan.nn.GCNConv(6, 3)

        def forward(self, x, graph):
            return self.after(self.norm(self.before(x, graph)), graph)

    drawn = sample(3, share=0.02, edges=40)
    plan = lotan.Trainer(
        Deeper(), drawn.graph, engine="local", disable=["reuse_evaluation", "hoist_invariant"]
    ).job.plan
    levels = {
        step.output.name: step.within for step in plan.train if isinstance(step, PropagateStep) and not step.reverse
    }
    first, last = levels.values()
    assert (first, last) == (None, 0)


class NormalisedFeatures(torch.nn.Module):
    """A norm of the features, which no epoch changes, before the first layer; and dropout, so that evaluation differs."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.dropout = torch.nn.BatchNorm1d(WIDTH), torch.nn.Dropout(dropout)
        self.conv = lotan.nn.GCNConv(WIDTH, CLASSES)

    def forward(self, x, graph):
        return self.conv(self.dropout(self.norm(x)), graph)


def test_statistics_of_features_are_computed_once():
    trainer = lotan.Trainer(NormalisedFeatures(), sample(1).graph, engine="local", epochs=2)
    totals = [[step.input for step in steps if isinstance(step, TotalStep)] for steps in trainer.job.plan.passes]
    assert totals == [["features"], [], [], [], []]


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("momentum", [0.1, None])
def test_resumes_with_the_same_bits(tmp_path, momentum):
    torch.manual_seed(1)
    model = Normalised(lambda width: torch.nn.BatchNorm1d(width, momentum=momentum))
    drawn = sample(seed=8)
    whole, expected = trained(model, drawn, epochs=5, optimizer=lotan.Adam(lr=0.01), patience=None)
    how = {"checkpoint_dir": str(tmp_path), "optimizer": lotan.Adam(lr=0.01)}
    trained(model, drawn, epochs=2, **how)
    fresh = Normalised(lambda width: torch.nn.BatchNorm1d(width, momentum=momentum))
    resumed, run = trained(fresh, drawn, epochs=5, resume=True, **how)
    assert run.best_epoch == expected.best_epoch
    assert [entry["loss"] for entry in run.history] == [entry["loss"] for entry in expected.history]
    assert_same_bits(state_of(resumed), state_of(whole))


def test_threads_and_repetition_change_no_bit():
    model, drawn = model_of("BatchNorm1d"), sample(seed=9, vertices=400, edges=900)
    states = [state_of(trained(model, drawn, chunk_rows=16)[0]) for _ in range(3)]
    assert_same_bits(states[0], states[1])
    assert_same_bits(states[0], states[2])


def test_a_saved_model_predicts_with_its_running_statistics(tmp_path):
    model, drawn = model_of("BatchNorm1d"), sample(seed=10)
    ours, run = trained(model, drawn)
    run.save(tmp_path / "model")
    loaded = lotan.load(tmp_path / "model")
    ours.eval()
    graph = EdgeIndex(
        torch.from_numpy(np.stack([drawn.src, drawn.dst])), torch.from_numpy(drawn.weight), num_vertices=len(drawn.x)
    )
    with torch.no_grad():
        expected = ours(torch.from_numpy(drawn.x), graph).softmax(-1).numpy()
    found = np.stack(list(loaded.predict(drawn.graph, engine="local")["probability"]))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_models_of_a_batch_have_the_bits_that_they_have_alone():
    drawn = sample(seed=11, share=0.3)
    graph = drawn.graph
    models = [
        Normalised(torch.nn.BatchNorm1d),
        Normalised(torch.nn.BatchNorm1d),
        model_of("GraphNorm"),
        NormalisedFeatures(0.5),
    ]
    models.append(Normalised(lambda width: torch.nn.BatchNorm1d(width, momentum=None)))
    alone = [state_of(trained(model, drawn)[0]) for model in models]
    members = [Member(deepcopy(model), OPTIMIZER, seed=0, epochs=EPOCHS) for model in models]
    with ModelBatch(graph, members, engine="local", progress=False) as batch:
        batch.train()
        for number, (member, state) in enumerate(zip(members, alone, strict=True)):
            batch.run_of(number)  # puts the best weights into the model
            assert_same_bits(state_of(member.model), state)


def test_one_vertex_has_no_variance():
    """As in torch, and the layer is named."""
    drawn = sample(seed=0, vertices=1, edges=0, weighted=False)
    with pytest.raises(ModelError, match=r"layer 'norm', layer 'other'.*the graph has 1.*at least 2"):
        trained(model_of("BatchNorm1d"), drawn)
    trained(model_of("GraphNorm"), drawn)  # whose variance of one row is 0


def test_a_norm_of_groups_that_the_graph_lacks_is_refused():
    class Batched(Normalised):
        def forward(self, x, graph):
            return self.last(self.norm(self.first(x, graph), torch.zeros(1)))

    with pytest.raises(ModelError, match=r"layer 'norm'.*batch.*for one graph leave it out"):
        trained(Batched(NORMS["GraphNorm"]), sample(0))
