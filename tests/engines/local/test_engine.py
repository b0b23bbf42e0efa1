"""The local engine against PyG and plain autograd: loss, gradients, and weights after three steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from lotan.engines.base import Pass, run
from lotan.engines.local.engine import LocalEngine
from lotan.errors import EngineError
from lotan.graph.graph import Graph
from lotan.stages.metrics import metrics
from planner import Options, Planned, compile_plan
from planner.loss import LossSpec
from planner.steps.propagate import PropagateStep
from tests.engines.models import MODELS, OUT, WIDTH, Model, PlainGraph, gcn_forward, gcn_spec

ROWS = 12
SPLIT = np.array([0, 0, 1, 2, -1, 0] * (ROWS // 6), dtype=np.int8)

OPTIONS = {
    "auto": Options(),
    "general": Options(plan="general"),
    "general without RGB": Options(plan="general", rgb=False),
    "no lift_message": Options(disabled=("lift_message",)),
    "no fuse_apply": Options(disabled=("fuse_apply",)),
    "no drop_dead_gradients": Options(disabled=("drop_dead_gradients",)),
    "without RGB": Options(rgb=False),
}


def random_arrays(seed: int, edges: int = 30, weighted: bool = False) -> tuple[Graph, PlainGraph, Tensor]:
    """A graph with self-loops, parallel edges, a hub and vertices without edges; in both forms, with labels."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, ROWS - 2, edges), random.integers(0, ROWS - 2, edges)
    dst[: edges // 2] = 3
    if edges:
        src = np.append(src, [1, 2, 2])
        dst = np.append(dst, [1, 5, 5])
    # PyG keeps one weight of several self-loops of a vertex; a graph with weights has no such thing here.
    weight = random.random(len(src)).astype(np.float32) + 0.5 if weighted else None
    if weighted:
        first = np.unique(np.stack([src, dst]), axis=1, return_index=True)[1]
        keep = (src != dst) | np.isin(np.arange(len(src)), first)
        src, dst, weight = src[keep], dst[keep], weight[keep]
    x = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    label = random.integers(0, OUT, ROWS)
    graph = Graph.from_arrays(x, src, dst, label, SPLIT, weight)
    plain = PlainGraph(
        torch.from_numpy(x),
        torch.from_numpy(src),
        torch.from_numpy(dst),
        None if weight is None else torch.from_numpy(weight),
    )
    return graph, plain, torch.from_numpy(label)


@dataclass
class Setup:
    """A model on a graph, planned and loaded."""

    model: Model
    graph: Graph
    options: Options = field(default_factory=Options)
    loss: LossSpec = field(default_factory=lambda: LossSpec("classification", OUT, float((SPLIT == 0).sum())))
    engine: LocalEngine = field(default_factory=LocalEngine)

    def __post_init__(self) -> None:
        train, evaluate = self.model.spec(True), self.model.spec(False)
        self.planned: Planned = compile_plan(train, evaluate, self.loss, self.graph.statistics, self.options)
        torch.manual_seed(0)
        self.parameters = {p.name: torch.randn(p.shape) * 0.5 for p in train.parameters}
        self.engine.load(self.graph, self.planned.plan)

    def train(self, epoch: int = 0, seed: int = 0):
        return run(self.engine, self.planned.plan, self.planned.plan.train, Pass(epoch, self.parameters, seed))


def autograd(
    model: Model, plain: PlainGraph, parameters: dict[str, Tensor], label: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
    rows = torch.from_numpy(SPLIT == 0)
    loss = functional.cross_entropy(model.forward(plain, leaves)[rows], label[rows])
    found = torch.autograd.grad(loss, list(leaves.values()))
    return loss.detach(), dict(zip(leaves, found, strict=True))


def assert_same_epoch(setup: Setup, plain: PlainGraph, label: Tensor) -> None:
    outcome = setup.train()
    loss, gradients = autograd(setup.model, plain, setup.parameters, label)
    assert metrics(setup.loss, outcome.statistics)["train"]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert set(outcome.gradients) == set(gradients)
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            outcome.gradients[name], gradient, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_an_epoch_equals_autograd(model: Model, options: str, weighted: bool) -> None:
    graph, plain, label = random_arrays(0, weighted=weighted)
    assert_same_epoch(Setup(model, graph, OPTIONS[options]), plain, label)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), edges=st.sampled_from([0, 1, 10, 60]), options=st.sampled_from(sorted(OPTIONS)))
def test_random_graphs(model: Model, seed: int, edges: int, options: str) -> None:
    graph, plain, label = random_arrays(seed, edges)
    assert_same_epoch(Setup(model, graph, OPTIONS[options]), plain, label)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_weights_after_three_steps(model: Model) -> None:
    graph, plain, label = random_arrays(1)
    setup = Setup(model, graph)
    expected = {name: p.clone().requires_grad_() for name, p in setup.parameters.items()}
    setup.parameters = {name: p.clone().requires_grad_() for name, p in setup.parameters.items()}
    # Not Adam: it makes full steps of gradients that are zero but for rounding, as attention's can be.
    ours, theirs = (torch.optim.SGD(p.values(), lr=0.3, momentum=0.9) for p in (setup.parameters, expected))
    rows = torch.from_numpy(SPLIT == 0)
    for epoch in range(3):
        outcome = setup.train(epoch)
        for name, parameter in setup.parameters.items():
            parameter.grad = outcome.gradients[name]
        ours.step()
        theirs.zero_grad()
        functional.cross_entropy(model.forward(plain, expected)[rows], label[rows]).backward()
        theirs.step()
    for name, parameter in expected.items():
        torch.testing.assert_close(setup.parameters[name], parameter, rtol=1e-5, atol=1e-6)


def dropout_gcn(p: float) -> Model:
    return Model("gcn", lambda training: gcn_spec(training, p), gcn_forward)


def test_dropout_belongs_to_seed_and_epoch() -> None:
    graph, _, _ = random_arrays(2)
    setup = Setup(dropout_gcn(0.5), graph)
    first, again, later, other = setup.train(), setup.train(), setup.train(epoch=1), setup.train(seed=1)
    for name, gradient in first.gradients.items():
        assert torch.equal(gradient, again.gradients[name])
    assert not torch.equal(first.gradients["w1"], later.gradients["w1"])
    assert not torch.equal(first.gradients["w1"], other.gradients["w1"])


@pytest.mark.parametrize("options", ["general", "no fuse_apply", "no lift_message"])
def test_dropout_is_the_same_under_every_plan(options: str) -> None:
    graph, _, _ = random_arrays(2)
    one, two = Setup(dropout_gcn(0.5), graph).train(), Setup(dropout_gcn(0.5), graph, OPTIONS[options]).train()
    for name, gradient in one.gradients.items():
        torch.testing.assert_close(two.gradients[name], gradient, rtol=1e-5, atol=1e-6)


def test_evaluation_and_prediction_without_dropout() -> None:
    graph, plain, label = random_arrays(3)
    setup = Setup(dropout_gcn(0.5), graph)
    plan, a_pass = setup.planned.plan, Pass(0, setup.parameters)
    logits = gcn_forward(plain, setup.parameters)
    found = metrics(setup.loss, run(setup.engine, plan, plan.evaluate, a_pass).evaluation)
    for number, split in enumerate(("train", "val", "test")):
        rows = torch.from_numpy(number == SPLIT)
        assert found[split]["loss"] == pytest.approx(
            functional.cross_entropy(logits[rows], label[rows]).item(), rel=1e-5
        )
        assert found[split]["accuracy"] == pytest.approx((logits[rows].argmax(1) == label[rows]).float().mean().item())
    outcome = run(setup.engine, plan, plan.predict, a_pass, keep=("output",))
    frame = setup.engine.read(outcome.columns["output"])
    assert frame["id"].tolist() == list(range(ROWS))
    torch.testing.assert_close(torch.from_numpy(np.stack(frame["values"])), logits, rtol=1e-5, atol=1e-6)


def test_ids_in_any_order_draw_the_same_numbers() -> None:
    graph, plain, label = random_arrays(4)
    order = np.random.default_rng(0).permutation(ROWS)
    place = np.argsort(order)
    shuffled = Graph.from_arrays(
        plain.x.numpy()[order], plain.src.numpy(), plain.dst.numpy(), label.numpy()[order], SPLIT[order], ids=order
    )
    assert len(place) == ROWS
    one, two = Setup(dropout_gcn(0.5), graph).train(), Setup(dropout_gcn(0.5), shuffled).train()
    assert all(torch.equal(gradient, two.gradients[name]) for name, gradient in one.gradients.items())


def test_a_failing_stage_is_named_and_the_engine_goes_on() -> None:
    graph, plain, label = random_arrays(5)
    setup = Setup(MODELS[0], graph)
    good = setup.parameters
    setup.parameters = {**good, "w1": torch.ones(2, 2)}
    with pytest.raises(EngineError, match=r"stage train\.\d"):
        setup.train()
    setup.parameters = good
    assert_same_epoch(setup, plain, label)


def test_close_twice() -> None:
    setup = Setup(MODELS[0], random_arrays(6, edges=60)[0], OPTIONS["general"])
    engine = setup.engine
    for _ in range(2):
        engine.close()
        assert engine._graph is None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_same_bits_at_every_run(model: Model) -> None:
    graph, _, _ = random_arrays(6, edges=60)
    torch.use_deterministic_algorithms(True)
    try:
        one, two = Setup(model, graph, OPTIONS["general"]).train(), Setup(model, graph, OPTIONS["general"]).train()
    finally:
        torch.use_deterministic_algorithms(False)
    assert np.array_equal(one.statistics, two.statistics)
    assert all(torch.equal(gradient, two.gradients[name]) for name, gradient in one.gradients.items())


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks(task: str) -> None:
    _, plain, _ = random_arrays(7)
    torch.manual_seed(2)
    label = torch.randint(0, 2, (ROWS, OUT)).float() if task == "multilabel" else torch.randn(ROWS, OUT)
    graph = Graph.from_arrays(plain.x.numpy(), plain.src.numpy(), plain.dst.numpy(), label.numpy(), SPLIT)
    train = torch.from_numpy(SPLIT == 0)
    setup = Setup(MODELS[0], graph, loss=LossSpec(task, OUT, float(train.sum()) * OUT))
    outcome = setup.train()
    leaves = {name: p.clone().requires_grad_() for name, p in setup.parameters.items()}
    torch_loss = functional.mse_loss if task == "regression" else functional.binary_cross_entropy_with_logits
    loss = torch_loss(MODELS[0].forward(plain, leaves)[train], label[train])
    loss.backward()
    assert metrics(setup.loss, outcome.statistics)["train"]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, leaf in leaves.items():
        torch.testing.assert_close(outcome.gradients[name], leaf.grad, rtol=1e-5, atol=1e-6)


def gcn_with_dropout(seed: int, engine: LocalEngine) -> Setup:
    graph, _, _ = random_arrays(seed, edges=60)
    return Setup(dropout_gcn(0.5), graph, engine=engine)


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    one, several = (gcn_with_dropout(8, LocalEngine(chunk_rows=1, threads=n)) for n in (1, threads))
    for epoch in range(3):
        first, second = one.train(epoch), several.train(epoch)
        assert np.array_equal(first.statistics, second.statistics)
        assert all(torch.equal(gradient, second.gradients[name]) for name, gradient in first.gradients.items())
    several.engine.close()


@pytest.mark.parametrize("chunk_rows", [1, 5, ROWS, 1000])
@pytest.mark.parametrize("options", ["auto", "general"])
def test_the_size_of_chunks_changes_sums_by_rounding_only(chunk_rows: int, options: str) -> None:
    graph, _, _ = random_arrays(9)
    reference = Setup(dropout_gcn(0.5), graph, OPTIONS[options], engine=LocalEngine(chunk_rows=7, threads=1))
    setup = Setup(dropout_gcn(0.5), graph, OPTIONS[options], engine=LocalEngine(chunk_rows=chunk_rows))
    for epoch in range(2):
        expected, found = reference.train(epoch), setup.train(epoch)
        np.testing.assert_allclose(found.statistics, expected.statistics, rtol=1e-5)
        for name, gradient in expected.gradients.items():
            torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-5, atol=1e-6)


def test_columns_handed_out_are_not_written_to_by_later_passes() -> None:
    graph, _, _ = random_arrays(10)
    setup = Setup(MODELS[0], graph)
    plan, a_pass = setup.planned.plan, Pass(0, setup.parameters)
    output = run(setup.engine, plan, plan.predict, a_pass, keep=("output",)).columns["output"]
    before = output.clone()
    setup.parameters = {name: p + 1 for name, p in setup.parameters.items()}
    setup.train()
    run(setup.engine, plan, plan.predict, Pass(0, setup.parameters), keep=("output",))
    assert torch.equal(output, before)


def test_a_propagate_may_be_asked_for_itself() -> None:
    """Its rows are made when they are read; as a column, too."""
    graph, plain, _ = random_arrays(11)
    setup = Setup(MODELS[0], graph)
    plan = setup.planned.plan
    step = next(step for step in plan.predict if isinstance(step, PropagateStep))
    found = run(
        setup.engine, plan, plan.predict, Pass(0, setup.parameters), keep=(step.input, step.output.name)
    ).columns
    matrix = torch.zeros(ROWS, ROWS).index_put_((plain.dst, plain.src), torch.ones(len(plain.src)), accumulate=True)
    if step.edges == "self_loops":
        matrix.fill_diagonal_(1)
    sums, rows = (
        torch.tensor(np.stack(setup.engine.read(found[name])["values"])) for name in (step.output.name, step.input)
    )
    torch.testing.assert_close(sums, matrix @ rows)
