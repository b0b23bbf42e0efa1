"""Three steps of gradient descent through a plan on an engine, and the comparison with the truth."""

from __future__ import annotations

import torch

from lotan.engines.base import Engine, Pass, run
from lotan.metrics import metrics
from planner import Options, Planned, compile_plan
from planner.spec import LossSpec
from tests.exactness.cases import OUT, RATE, STEPS, Sample, Trained, specs

SMALL = 1e-2  # numbers all below this are compared to it: they are what is left of larger ones that cancelled

OPTIONS = {
    "auto": Options(),
    "general": Options(plan="general"),
    "general, naive backward": Options(plan="general", rgb=False),
    "naive backward": Options(rgb=False),
    **{f"no {rule}": Options(disabled=(rule,)) for rule in ("lift_message", "push_down", "drop_unit_weight")},
    **{f"no {rule}": Options(disabled=(rule,)) for rule in ("fuse_apply", "drop_dead_gradients")},
}


def plan_of(name: str, drawn: Sample, options: Options) -> Planned:
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    return compile_plan(*specs(name), loss, drawn.graph.statistics, options)


def train(engine: Engine, planned: Planned, model: torch.nn.Module, drawn: Sample) -> Trained:
    """As `train_truth`, on an engine."""
    plan = planned.plan
    loss = plan.stages[-1].loss
    engine.load(drawn.graph, plan)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    losses, gradients = [], []
    for epoch in range(STEPS):
        values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        parameters = {name: value.detach().clone() for name, value in values.items()}
        outcome = run(engine, plan, plan.train, Pass(epoch, parameters, seed=1))
        losses.append(metrics(loss, outcome.statistics)["train"]["loss"])
        gradients.append(dict(outcome.gradients))
        for name, parameter in model.named_parameters():
            parameter.grad = outcome.gradients.get(name)
        optimizer.step()
    return Trained(losses, gradients, {key: p.detach().clone() for key, p in model.named_parameters()})


def assert_equal(found: Trained, truth: Trained, tolerance: float = 1e-5) -> None:
    """Equal within `tolerance`, relative to the largest number of each tensor."""
    torch.testing.assert_close(torch.tensor(found.losses), torch.tensor(truth.losses), rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(found.gradients, truth.gradients, strict=True):
        for name, expected in theirs.items():
            close(name, ours.get(name, torch.zeros_like(expected)), expected, tolerance)
    for name, expected in truth.weights.items():
        close(name, found.weights[name], expected, tolerance)


def close(name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    scale = max(SMALL, float(expected.abs().max())) if expected.numel() else SMALL
    error = float((found - expected).abs().max()) if expected.numel() else 0.0
    assert error <= tolerance * scale, f"{name}: off by {error:.2e} at a scale of {scale:.2e}"
