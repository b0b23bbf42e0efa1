"""Three steps of gradient descent through a plan on an engine, and the comparison with the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TypeVar

import torch
from torch import Tensor

from lotan.engines.base import Engine, Outcome, Pass, run
from lotan.stages.metrics import metrics
from planner import Options, Planned, compile_plan
from planner.loss import LossSpec
from tests.exactness.cases import OUT, RATE, STEPS, Sample, Trained, specs, train_truth
from tests.planner.specs import IN_PLACE

SMALL = 1e-2  # numbers all below this are compared to it: they are what is left of larger ones that cancelled
ROUNDING = 2.0  # float32 runs are off by different amounts
ORDERS = 3  # of edges, in which float32 autograd is run to see by how much

T = TypeVar("T")

OPTIONS = {
    "auto": Options(),
    "general": Options(plan="general"),
    "general, naive backward": Options(plan="general", rgb=False),
    "naive backward": Options(rgb=False),
    **{f"no {rule}": Options(disabled=(rule,)) for rule in ("lift_message", "push_down", "drop_unit_weight")},
    **{f"no {rule}": Options(disabled=(rule,)) for rule in IN_PLACE},
    **{f"no {rule}": Options(disabled=(rule,)) for rule in ("fuse_apply", "drop_dead_gradients")},
}


def spread(names: Iterable[str], options: Iterable[T], each: int) -> list[tuple[str, T]]:
    """Pairs in which every name has `each` of the options, in turn, so that every option has about as many names.

    >>> spread(["GCN", "GAT", "GIN"], ["one", "two", "three"], 2)
    [('GCN', 'one'), ('GCN', 'two'), ('GAT', 'three'), ('GAT', 'one'), ('GIN', 'two'), ('GIN', 'three')]
    """
    turn = cycle(options)
    return [(name, next(turn)) for name in names for _ in range(each)]


def plan_of(name: str, drawn: Sample, options: Options) -> Planned:
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    return compile_plan(*specs(name), loss, drawn.graph.statistics, options)


def train(
    engine: Engine,
    planned: Planned,
    model: torch.nn.Module,
    drawn: Sample,
    evaluates: bool = False,
    steps: int = STEPS,
) -> Trained:
    """As `train_truth`, on an engine; if so said, evaluated "first", of the weights given, and "last", of those trained.

    The first is what a training pass counts, where the plan has one that evaluates as well; the last is evaluation's own pass.
    """
    plan = planned.plan
    loss = plan.stages[-1].loss
    engine.load(drawn.graph, plan)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    losses, gradients, evaluated = [], [], {}
    for epoch in range(steps):
        first = evaluates and not epoch
        passes = plan.epoch(evaluates=first)
        trained, *apart = (run(engine, plan, one, pass_of(epoch, model)) for one in passes)
        losses.append(metrics(loss, trained.statistics)["train"]["loss"])
        gradients.append(dict(trained.gradients))
        if first:
            evaluated["first"] = evaluation_of(apart[0] if apart else trained)
        for name, parameter in model.named_parameters():
            parameter.grad = trained.gradients.get(name)
        optimizer.step()
    if evaluates:
        evaluated["last"] = evaluation_of(run(engine, plan, plan.evaluate, pass_of(steps, model)))
    return Trained(losses, gradients, {key: p.detach().clone() for key, p in model.named_parameters()}, evaluated)


def pass_of(epoch: int, model: torch.nn.Module) -> Pass:
    """With the model's weights and buffers as they are."""
    values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return Pass(epoch, {name: value.detach().clone() for name, value in values.items()}, seed=1)


def evaluation_of(outcome: Outcome) -> Tensor:
    """The sums of losses and the vertices of each split; see `lotan.stages.metrics`."""
    sums = outcome.statistics if outcome.evaluation is None else outcome.evaluation
    return torch.from_numpy(sums[:, [0, 2]])


def assert_equals_truth(found: Trained, name: str, truth: torch.nn.Module, drawn: Sample) -> None:
    """Equal to plain autograd within 1e-5, and beyond that by no more than its float32 runs are from its float64 run.

    Sums over a hub cancel: a gradient may be a thousandth of its terms, and then no order of float32 sums has 1e-5.
    """
    steps = len(found.losses)
    exact = train_truth(name, truth, drawn, torch.float64, steps=steps)
    try:
        assert_equal(found, exact)
    except AssertionError:
        single = [train_truth(name, truth, drawn, order=order, steps=steps) for order in range(ORDERS)]
        assert_equal(found, exact, rounded=single)


def assert_equal(found: Trained, truth: Trained, tolerance: float = 1e-5, rounded: Sequence[Trained] = ()) -> None:
    """Equal within `tolerance` of the largest number of each tensor, and `ROUNDING` times what `rounded` are off by."""
    ours, theirs, others = tensors(found), tensors(truth), [tensors(other) for other in rounded]
    for name, expected in theirs.items():
        close(name, ours.get(name, torch.zeros_like(expected)), expected, [other[name] for other in others], tolerance)


def tensors(trained: Trained) -> dict[str, Tensor]:
    """Losses, gradients, weights and evaluations by name."""
    losses = {f"loss {epoch}": torch.tensor(loss) for epoch, loss in enumerate(trained.losses)}
    gradients = {
        f"gradient {epoch} of {name}": gradient
        for epoch, of_epoch in enumerate(trained.gradients)
        for name, gradient in of_epoch.items()
    }
    evaluated = {
        f"{what} in the {when} evaluation": sums[:, column]
        for when, sums in trained.evaluated.items()
        for column, what in enumerate(("losses", "vertices"))
    }
    return losses | gradients | trained.weights | evaluated


def close(name: str, found: Tensor, expected: Tensor, rounded: Sequence[Tensor], tolerance: float) -> None:
    if not expected.numel():
        return
    scale = max(SMALL, float(expected.abs().max()))
    error, *lost = (float((other - expected).abs().max()) for other in (found, *rounded))
    allowed = tolerance * scale + ROUNDING * max(lost, default=0.0)
    assert error <= allowed, f"{name}: off by {error:.2e} at a scale of {scale:.2e}; {allowed:.2e} is allowed"
