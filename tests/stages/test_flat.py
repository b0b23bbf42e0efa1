"""Known calls as kernels: the same numbers as autograd over the same calls, and no memory shared by mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lotan import nn
from lotan.engines.choice import ENGINES
from lotan.stages.chunk import Chunk
from lotan.stages.program import StageProgram
from lotan.tracing.trace import trace_modes
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.kernels import run_by_autograd
from planner.loss import LossSpec
from planner.physical import Stage, StageInput, StageOutput
from planner.spec import Argument, Call, ParameterSpec, Ref, ValueType
from planner.statistics import Statistics
from tests.stages.runs import backward, forward, turn

WIDTH, OUT = 12, 5
SIZES = {"in_channels": WIDTH, "hidden_channels": 8, "num_layers": 3, "out_channels": OUT, "dropout": 0.5}
LOSS = LossSpec("classification", OUT, normalizer=10.0)

MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCN": lambda: nn.GCN(**SIZES),
    "GCN, jumping": lambda: nn.GCN(**SIZES, jk="cat"),
    "GCN, elu": lambda: nn.GCN(**SIZES, act="elu"),
    "GraphSAGE": lambda: nn.GraphSAGE(**SIZES),
    "GraphSAGE, projected": lambda: nn.GraphSAGE(**SIZES, project=True, act="leaky_relu"),
    "GIN": lambda: nn.GIN(**SIZES, train_eps=True),
    "GAT": lambda: nn.GAT(**SIZES, heads=2),
    "GAT of one head, elu": lambda: nn.GAT(**SIZES, act="elu"),
    "GCN, normalised": lambda: nn.GCN(**SIZES, norm="batch_norm"),
    "MLP, normalised": lambda: nn.MLP([WIDTH, 8, 8, OUT], norm="batch_norm", norm_kwargs={"affine": False}),
    "MLP": lambda: nn.MLP([WIDTH, 8, 8, OUT], norm=None, dropout=0.3, act="tanh"),
}


def stages_of(name: str) -> tuple[Stage, ...]:
    model = MODELS[name]()
    specs = trace_modes(model, WIDTH)
    # whose workers may have no memory for what is kept
    options = Options(pricing=Pricing(ENGINES["blocks"]))
    return compile_plan(*specs, LOSS, Statistics(vertices=100, edges=300, width=WIDTH), options).plan.stages


def drawn(stage: Stage, rows: int, seed: int = 0) -> tuple[Chunk, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A chunk, parameters, and gradients of the outputs."""
    torch.manual_seed(seed)
    values = {
        i.value: torch.rand(1, *i.shape) if i.role == "total" else torch.randn(rows, *i.shape) for i in stage.inputs
    }
    label, split = torch.randint(0, OUT, (rows,)), torch.randint(-1, 3, (rows,)).to(torch.int8)
    chunk = Chunk(torch.randint(-(2**62), 2**62, (rows,)), values, label=label, split=split)
    parameters = {
        p.name: torch.rand(p.shape) if p.name.endswith("var") else torch.randn(p.shape) for p in stage.parameters
    }
    return chunk, parameters, {o.value: torch.randn(rows, *o.shape) for o in stage.outputs}


def both(stage: Stage) -> tuple[StageProgram, StageProgram]:
    flat, recorded = StageProgram(stage), StageProgram(stage, flat=False)
    assert (flat.flat, recorded.flat) == (True, False)
    return flat, recorded


def assert_same(stage: Stage, rows: int, keep: bool = True) -> None:
    chunk, parameters, gradients = drawn(stage, rows)
    before = {name: value.clone() for name, value in {**chunk.values, **parameters, **gradients}.items()}
    results = []
    for program in both(stage):
        outputs, saved = forward(program, chunk, parameters, keep=keep)
        found = backward(program, chunk, parameters, gradients, saved)
        results.append((outputs, found.input_gradients, found.parameter_gradients))
    for ours, theirs in zip(*results, strict=True):
        assert set(ours) == set(theirs)
        for name in theirs:
            assert ours[name].shape == theirs[name].shape
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-5)
    for name, value in {**chunk.values, **parameters, **gradients}.items():
        assert torch.equal(value, before[name]), f"{name} was overwritten"


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "run again"])
@pytest.mark.parametrize("name", MODELS)
def test_models_run_flat_and_equal_autograd(name: str, keep: bool) -> None:
    for stage in stages_of(name):
        for rows in (33, 0, 1):
            assert_same(stage, rows, keep)


@pytest.mark.parametrize("name", MODELS)
def test_the_last_stage_turns_alike(name: str) -> None:
    stage = next(stage for stage in stages_of(name) if stage.loss is not None and stage.name.startswith("train"))
    chunk, parameters, _ = drawn(stage, 40)
    (ours, found), (theirs, expected) = (turn(program, chunk, parameters) for program in both(stage))
    torch.testing.assert_close(torch.from_numpy(ours), torch.from_numpy(theirs))
    torch.testing.assert_close(dict(found.input_gradients), dict(expected.input_gradients))
    torch.testing.assert_close(dict(found.parameter_gradients), dict(expected.parameter_gradients))


def vertex(*shape: int) -> ValueType:
    return ValueType("vertex", shape)


def stage_of(*calls: tuple[str, tuple[Argument, ...], int], outputs: tuple[str, ...] = ("y",)) -> Stage:
    """A stage on x, y0 [6] (both with gradients) and the static columns s [] and t [1]; results are named a, b, ... y."""
    names = [*"abcdefgh"[: len(calls) - 1], "y"]
    inputs = (
        *(StageInput(name, name, (6,), needs_gradient=True) for name in ("x", "x2")),
        *(StageInput(name, name, shape, static=True) for name, shape in (("s", ()), ("t", (1,)))),
    )
    parameters = (ParameterSpec("w", (6, 6)), ParameterSpec("v", (6,)), ParameterSpec("g", (1,)))
    made = tuple(
        Call(name, op, arguments, vertex(width)) for name, (op, arguments, width) in zip(names, calls, strict=True)
    )
    widths = {"x": 6} | {call.output: call.type.width for call in made}
    return Stage(
        "hand", inputs, parameters, made, tuple(StageOutput(o, o, (widths[o],), needs_gradient=True) for o in outputs)
    )


def a(name: str) -> Ref:
    return Ref(name)


HAND = {
    "an input that is read twice": stage_of(
        ("aten.relu.default", (a("x"),), 6), ("aten.add.Tensor", (a("a"), a("x")), 6)
    ),
    "a value that three calls read": stage_of(
        ("aten.mul.Tensor", (a("x"), a("t")), 6),
        ("aten.relu.default", (a("a"),), 6),
        ("aten.sigmoid.default", (a("a"),), 6),
        ("aten.add.Tensor", (a("b"), a("c")), 6),
        ("aten.add.Tensor", (a("d"), a("a")), 6),
    ),
    "twice the same": stage_of(("aten.tanh.default", (a("x"),), 6), ("aten.add.Tensor", (a("a"), a("a")), 6)),
    "outputs that are kept, too": stage_of(
        ("aten.relu.default", (a("x"),), 6), ("aten.linear.default", (a("a"), a("w"), a("v")), 6), outputs=("a", "y")
    ),
    "an output in the middle": stage_of(
        ("aten.mul.Tensor", (a("x"), 3.0), 6), ("aten.mul.Tensor", (a("a"), a("t")), 6), outputs=("a", "y")
    ),
    "an input that is put out": stage_of(("aten.relu.default", (a("x"),), 6), outputs=("x", "y")),
    "a weight that is used twice": stage_of(
        ("aten.linear.default", (a("x"), a("w")), 6),
        ("aten.elu.default", (a("a"), 1.5), 6),
        ("aten.linear.default", (a("b"), a("w")), 6),
    ),
    "columns side by side, one of them twice": stage_of(
        ("aten.leaky_relu.default", (a("x"), 0.2), 6),
        ("lotan.dropout", (a("a"), 0.25, 3), 6),
        ("aten.cat.default", ((a("b"), a("x2"), a("b")), -1), 18),
    ),
    "a gain, and division by a column": stage_of(
        ("aten.relu.default", (a("x"),), 6),
        ("aten.mul.Tensor", (a("g"), a("a")), 6),
        ("aten.div.Tensor", (a("b"), a("t")), 6),
        ("aten.add.Tensor", (a("c"), a("v")), 6),
    ),
    "a relu that is put out before dropout": stage_of(
        ("aten.relu.default", (a("x"),), 6), ("lotan.dropout", (a("a"), 0.5, "k"), 6), outputs=("a", "y")
    ),
    "dropout of an input": stage_of(
        ("lotan.dropout", (a("x"), 0.1, 3), 6), ("aten.linear.default", (a("a"), a("w")), 6)
    ),
}  # fmt: skip


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "run again"])
@pytest.mark.parametrize("name", HAND)
def test_chains_equal_autograd(name: str, keep: bool) -> None:
    assert_same(HAND[name], 37, keep)


@pytest.mark.parametrize(
    "call",
    [
        ("aten.mul.Tensor", (a("x"), a("x2")), 6),
        ("aten.add.Tensor", (a("x"), 1.0), 6),
        ("aten.leaky_relu.default", (a("x"), -0.1), 6),
        ("lotan.dropout", (a("x"), 1.0, 3), 6),
        ("aten.exp.default", (a("x"),), 6),
    ],
)
def test_what_is_not_known_goes_through_autograd(call: tuple[str, tuple[Argument, ...], int]) -> None:
    program = StageProgram(stage_of(call))
    assert not program.flat
    chunk, parameters, gradients = drawn(program.stage, 9)
    assert backward(program, chunk, parameters, gradients).input_gradients["x"].shape == (9, 6)


def of_heads(vectors: tuple[int, ...], dims: tuple[int, ...], *more: str) -> Stage:
    """(x * p).sum(dims) of rows [2, 3], its values `more` being put out as well."""
    product = Call("m", "aten.mul.Tensor", (a("p"), a("x")), vertex(2, 3))
    total = Call("y", "aten.sum.dim_IntList", (a("m"), dims), vertex(2 if dims == (-1,) else 3))
    outputs = [StageOutput("y", "y", total.type.shape), *(StageOutput(name, name, (2, 3)) for name in more)]
    inputs = (StageInput("x", "x", (2, 3), needs_gradient=True),)
    return Stage("heads", inputs, (ParameterSpec("p", vectors),), (product, total), tuple(outputs))


@pytest.mark.parametrize("vectors", [(1, 2, 3), (2, 3)])
def test_dots_of_heads_equal_autograd(vectors: tuple[int, ...]) -> None:
    assert_same(of_heads(vectors, (-1,)), 9)


@pytest.mark.parametrize(
    "stage",
    [of_heads((3,), (-1,)), of_heads((2, 1), (-1,)), of_heads((2, 3), (1,)), of_heads((2, 3), (-1,), "m")],
    ids=["one vector for all", "a number for each", "over heads", "the product is put out"],
)
def test_what_is_like_dots_of_heads_goes_through_autograd(stage: Stage) -> None:
    program = StageProgram(stage)
    assert run_by_autograd(stage)
    assert not program.flat
    chunk, parameters, gradients = drawn(stage, 9)
    x, p = chunk.values["x"].requires_grad_(), parameters["p"].requires_grad_()
    expected = {"m": x * p, "y": (x * p).sum(stage.calls[1].arguments[1])}
    found = backward(program, chunk, parameters, gradients)
    to_x, to_p = torch.autograd.grad([expected[name] for name in gradients], (x, p), list(gradients.values()))
    torch.testing.assert_close(found.input_gradients["x"], to_x)
    torch.testing.assert_close(found.parameter_gradients["p"], to_p)


@pytest.mark.parametrize("flat", [True, False], ids=["flat", "autograd"])
def test_memory_that_is_handed_in_is_written_to(flat: bool) -> None:
    stage = HAND["outputs that are kept, too"]
    program = StageProgram(stage, flat=flat)
    chunk, parameters, gradients = drawn(stage, 20)
    plain, saved = forward(program, chunk, parameters, keep=True)
    expected = backward(program, chunk, parameters, gradients, saved)

    columns = {name: torch.full((50, 6), 7.0) for name in ("a", "y", "x", "x2")}
    into = {name: column[10:30] for name, column in columns.items()}
    sums = {name: torch.ones_like(value) for name, value in parameters.items()}
    outputs, saved = forward(program, chunk, parameters, keep=True, into=into)
    found = backward(program, chunk, parameters, gradients, saved, into=into, sums=sums)
    for name, rows in {**plain, **expected.input_gradients}.items():
        assert torch.equal(columns[name][10:30], rows)
        assert (columns[name][:10] == 7).all()
        assert (columns[name][30:] == 7).all()
    assert outputs["y"].data_ptr() == into["y"].data_ptr()
    for name, total in expected.parameter_gradients.items():
        torch.testing.assert_close(sums[name], total + 1)
        assert found.parameter_gradients[name] is sums[name]


def test_results_outlive_the_next_chunk() -> None:
    """Scratch memory and that of kept values is used again; nothing of it is handed out."""
    stage = HAND["outputs that are kept, too"]
    program = StageProgram(stage)
    first, second = drawn(stage, 20, seed=1), drawn(stage, 20, seed=2)

    def once(chunk: Chunk, parameters: dict[str, torch.Tensor], gradients: dict[str, torch.Tensor]):
        outputs, saved = forward(program, chunk, parameters, keep=True)
        return outputs, backward(program, chunk, parameters, gradients, saved)

    outputs, found = once(*first)
    copies = [{name: value.clone() for name, value in part.items()} for part in (outputs, found.input_gradients)]
    once(*second)
    assert all(torch.equal(outputs[name], value) for name, value in copies[0].items())
    assert all(torch.equal(found.input_gradients[name], value) for name, value in copies[1].items())
    again, _ = once(*first)
    assert all(torch.equal(again[name], value) for name, value in copies[0].items())


def test_several_chunks_wait_for_their_backward() -> None:
    stage = HAND["a weight that is used twice"]
    program = StageProgram(stage)
    chunks = [drawn(stage, rows, seed=rows) for rows in (20, 5, 20)]
    for _ in range(2):
        kept = [forward(program, chunk, parameters, keep=True)[1] for chunk, parameters, _ in chunks]
        for (chunk, parameters, gradients), saved in zip(chunks, kept, strict=True):
            found = backward(program, chunk, parameters, gradients, saved)
            again = backward(program, chunk, parameters, gradients)
            assert torch.equal(found.input_gradients["x"], again.input_gradients["x"])
            assert torch.equal(found.parameter_gradients["w"], again.parameter_gradients["w"])


def test_every_number_of_a_chunk_is_that_of_its_row() -> None:
    """Rows alone, in other chunks, have the same outputs."""
    stage = stages_of("GCN")[1]
    program = StageProgram(stage)
    chunk, parameters, _ = drawn(stage, 30)
    whole = forward(program, chunk, parameters)[0]
    for rows in (slice(0, 7), slice(7, 30)):
        part = Chunk(chunk.keys[rows], {name: value[rows] for name, value in chunk.values.items()})
        for name, value in forward(program, part, parameters)[0].items():
            torch.testing.assert_close(value, whole[name][rows])
