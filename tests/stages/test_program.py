"""Stages against the same computation in plain torch autograd."""

from __future__ import annotations

import pytest
import torch

from lotan.errors import StageError
from lotan.stages.chunk import Chunk, EdgeBlock, prefix_sum
from lotan.stages.pieces import Pieces
from lotan.stages.program import StageProgram
from lotan.stages.randomness import dropout
from lotan.stages.stage_run import StageRun
from planner.loss import LossSpec
from planner.physical import Stage, StageInput, StageOutput
from planner.spec import Call, ParameterSpec, Ref, RowCount, ValueType
from tests.stages.runs import DRAWS, backward, evaluate, forward, predict, turn

ROWS, SOURCES, EDGES = 7, 9, 30


def vertex(*shape: int) -> ValueType:
    return ValueType("vertex", shape)


def edge(*shape: int) -> ValueType:
    return ValueType("edge", shape, edges="graph")


def random_block(rows: int = ROWS, sources: int = SOURCES, edges: int = EDGES) -> EdgeBlock:
    """In-edges of all rows but the first, with parallel edges."""
    generator = torch.Generator().manual_seed(3)
    counts = torch.bincount(torch.randint(1, max(rows, 2), (edges,), generator=generator), minlength=rows)
    return EdgeBlock(
        prefix_sum(counts[:rows]),
        torch.randint(0, sources, (edges,), generator=generator),
        torch.rand(edges, generator=generator),
        torch.arange(edges) * 77,
    )


def dense_stage() -> Stage:
    """Dropout, linear, skip connection: relu(drop(x) W + b) * s + x[:, :4], as two heads of two."""
    calls = (
        Call("d", "lotan.dropout", (Ref("x"), 0.5, 11), vertex(6)),
        Call("l", "aten.linear.default", (Ref("d"), Ref("w"), Ref("b")), vertex(4)),
        Call("r", "aten.relu.default", (Ref("l"),), vertex(4)),
        Call("u", "aten.unsqueeze.default", (Ref("s"), 1), vertex(1)),
        Call("m", "aten.mul.Tensor", (Ref("r"), Ref("u")), vertex(4)),
        Call("c", "aten.slice.Tensor", (Ref("x"), 1, 0, 4), vertex(4)),
        Call("a", "aten.add.Tensor", (Ref("m"), Ref("c")), vertex(4)),
        Call("y", "aten.view.default", (Ref("a"), (RowCount(), 2, 2)), vertex(2, 2)),
    )
    return Stage(
        "dense",
        (StageInput("x", "cx", (6,), needs_gradient=True), StageInput("s", "cs", (), static=True)),
        (ParameterSpec("w", (4, 6)), ParameterSpec("b", (4,), trainable=False)),
        calls,
        (StageOutput("y", "cy", (2, 2), needs_gradient=True),),
    )


def dense_by_hand(x, s, w, b, keys):
    return (torch.relu(dropout(x, 0.5, DRAWS, 11, keys) @ w.T + b) * s[:, None] + x[:, :4]).view(-1, 2, 2)


def dense_values(rows: int = ROWS):
    torch.manual_seed(0)
    values = {"x": torch.randn(rows, 6), "s": torch.rand(rows)}
    parameters = {"w": torch.randn(4, 6), "b": torch.randn(4)}
    return Chunk(torch.arange(rows) * 13, values), parameters, torch.randn(rows, 2, 2)


@pytest.mark.parametrize("keep", [True, False])
def test_a_stage_equals_autograd(keep: bool) -> None:
    chunk, parameters, gradient = dense_values()
    program = StageProgram(dense_stage())
    outputs, saved = forward(program, chunk, parameters, keep=keep)
    assert (saved is not None) == keep
    assert not outputs["y"].requires_grad
    found = backward(program, chunk, parameters, {"y": gradient}, saved)

    x, w = chunk.values["x"].clone().requires_grad_(), parameters["w"].clone().requires_grad_()
    expected = dense_by_hand(x, chunk.values["s"], w, parameters["b"], chunk.keys)
    wanted = torch.autograd.grad(expected, [x, w], gradient)
    torch.testing.assert_close(outputs["y"], expected.detach())
    torch.testing.assert_close(found.input_gradients["x"], wanted[0])
    torch.testing.assert_close(found.parameter_gradients["w"], wanted[1])
    assert set(found.parameter_gradients) == {"w"}
    assert set(found.input_gradients) == {"x"}


def test_rows_that_are_not_contiguous() -> None:
    chunk, parameters, gradient = dense_values()
    strided = Chunk(
        chunk.keys, {"x": chunk.values["x"].T.contiguous().T, "s": chunk.values["s"].repeat_interleave(2)[::2]}
    )
    program = StageProgram(dense_stage())
    one = backward(program, chunk, parameters, {"y": gradient})
    two = backward(program, strided, parameters, {"y": gradient.transpose(1, 2).contiguous().transpose(1, 2)})
    torch.testing.assert_close(one.input_gradients["x"], two.input_gradients["x"])


def test_a_chunk_without_rows() -> None:
    chunk, parameters, gradient = dense_values(0)
    program = StageProgram(dense_stage())
    assert forward(program, chunk, parameters)[0]["y"].shape == (0, 2, 2)
    found = backward(program, chunk, parameters, {"y": gradient})
    assert found.input_gradients["x"].shape == (0, 6)
    assert torch.equal(found.parameter_gradients["w"], torch.zeros(4, 6))


def test_chunks_add_up_to_the_whole() -> None:
    chunk, parameters, gradient = dense_values()
    program = StageProgram(dense_stage())
    whole = backward(program, chunk, parameters, {"y": gradient})
    parts = []
    for rows in (slice(0, 3), slice(3, ROWS)):
        part = Chunk(chunk.keys[rows], {name: value[rows] for name, value in chunk.values.items()})
        parts.append(backward(program, part, parameters, {"y": gradient[rows]}))
    torch.testing.assert_close(torch.cat([p.input_gradients["x"] for p in parts]), whole.input_gradients["x"])
    torch.testing.assert_close(
        parts[0].parameter_gradients["w"] + parts[1].parameter_gradients["w"], whole.parameter_gradients["w"]
    )


def neighbour_stage(kind: str) -> Stage:
    """Like attention: softmax over in-edges of (score of source + score of destination), dropout, aggregate."""
    calls = (
        Call("j", "lotan.scatter", (Ref("x"), "source", "graph"), edge(2, 3)),
        Call("ai", "lotan.scatter", (Ref("a"), "destination", "graph"), edge(2)),
        Call("n", "aten.sum.dim_IntList", (Ref("j"), (2,)), edge(2)),
        Call("z", "aten.add.Tensor", (Ref("n"), Ref("ai")), edge(2)),
        Call("p", "lotan.edge_softmax", (Ref("z"), "graph"), edge(2)),
        Call("q", "lotan.dropout", (Ref("p"), 0.25, "attention"), edge(2)),
        Call("e", "lotan.edge_weight", ("graph",), edge()),
        Call("v", "aten.view.default", (Ref("e"), (RowCount(), 1)), edge(1)),
        Call("qe", "aten.mul.Tensor", (Ref("q"), Ref("v")), edge(2)),
        Call("qu", "aten.unsqueeze.default", (Ref("qe"), 2), edge(2, 1)),
        Call("m", "aten.mul.Tensor", (Ref("j"), Ref("qu")), edge(2, 3)),
        Call("y", "lotan.aggregate", (Ref("m"), kind, "graph"), vertex(2, 3)),
    )
    inputs = (
        StageInput("x", "cx", (2, 3), role="source", edges="graph", needs_gradient=True),
        StageInput("a", "ca", (2,), needs_gradient=True),
    )
    return Stage("attend", inputs, (), calls, (StageOutput("y", "cy", (2, 3), True),), edge_sets=("graph",))


def neighbour_by_hand(x, a, block: EdgeBlock, kind: str):
    """The same with one Python loop over destination rows."""
    out = []
    for row in range(block.rows):
        ids = torch.arange(int(block.indptr[row]), int(block.indptr[row + 1]))
        j = x[block.positions[ids]]
        p = torch.softmax(j.sum(2) + a[row], 0)
        q = dropout(p, 0.25, DRAWS, "attention", block.keys[ids]) * block.weight[ids, None]
        m = j * q[:, :, None]
        if not len(ids):
            out.append(m.sum(0))
        elif kind in ("max", "min"):
            out.append(getattr(torch, f"a{kind}")(m, 0))
        else:
            out.append(getattr(torch, kind)(m, 0))
    return torch.stack(out)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("per_edge", [False, True])
def test_neighbourhoods_equal_a_loop(kind: str, per_edge: bool) -> None:
    torch.manual_seed(0)
    block = random_block()
    x, a, gradient = torch.randn(SOURCES, 2, 3), torch.randn(ROWS, 2), torch.randn(ROWS, 2, 3)
    chunk = Chunk(torch.arange(ROWS), {"x": x, "a": a}, {"graph": block})
    program = StageProgram(neighbour_stage(kind), "per_edge" if per_edge else "summed")
    outputs, saved = forward(program, chunk, {}, keep=True)
    found = backward(program, chunk, {}, {"y": gradient}, saved)

    x, a = x.requires_grad_(), a.requires_grad_()
    expected = neighbour_by_hand(x, a, block, kind)
    wanted = torch.autograd.grad(expected, [x, a], gradient)
    torch.testing.assert_close(outputs["y"], expected.detach())
    assert torch.equal(outputs["y"][0], torch.zeros(2, 3))  # the first row has no in-edges
    torch.testing.assert_close(found.input_gradients["a"], wanted[1])
    of_x = found.input_gradients["x"]
    if per_edge:
        assert of_x.shape == (EDGES, 2, 3)
        of_x = torch.zeros(SOURCES, 2, 3).index_add_(0, block.positions, of_x)
    torch.testing.assert_close(of_x, wanted[0])


def test_ties_share_the_gradient_evenly() -> None:
    block = EdgeBlock(torch.tensor([0, 3]), torch.tensor([0, 1, 2]))
    stage = Stage(
        "max",
        (StageInput("x", "cx", (1,), "source", "graph", needs_gradient=True),),
        (),
        (
            Call("j", "lotan.scatter", (Ref("x"), "source", "graph"), edge(1)),
            Call("y", "lotan.aggregate", (Ref("j"), "max", "graph"), vertex(1)),
        ),
        (StageOutput("y", "cy", (1,), True),),
    )
    chunk = Chunk(torch.zeros(1, dtype=torch.int64), {"x": torch.tensor([[2.0], [1.0], [2.0]])}, {"graph": block})
    found = backward(StageProgram(stage), chunk, {}, {"y": torch.ones(1, 1)})
    assert found.input_gradients["x"].view(-1).tolist() == [0.5, 0.0, 0.5]


def test_neighbourhoods_without_rows_or_edges() -> None:
    for rows, sources in ((0, 0), (4, 0)):
        empty = EdgeBlock(torch.zeros(rows + 1, dtype=torch.int64), *[torch.zeros(0, dtype=torch.int64)] * 1)
        empty.keys, empty.weight = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
        values = {"x": torch.zeros(sources, 2, 3), "a": torch.zeros(rows, 2)}
        chunk = Chunk(torch.arange(rows), values, {"graph": empty})
        for kind in ("sum", "mean", "max"):
            program = StageProgram(neighbour_stage(kind))
            assert torch.equal(forward(program, chunk, {})[0]["y"], torch.zeros(rows, 2, 3))
            found = backward(program, chunk, {}, {"y": torch.zeros(rows, 2, 3)})
            assert found.input_gradients["x"].shape == (sources, 2, 3)


def test_reruns_give_the_same_bits_in_deterministic_mode() -> None:
    torch.manual_seed(0)
    block = random_block(400, 300, 5000)
    chunk = Chunk(torch.arange(400), {"x": torch.randn(300, 2, 3), "a": torch.randn(400, 2)}, {"graph": block})
    program = StageProgram(neighbour_stage("mean"))
    gradient = torch.randn(400, 2, 3)
    torch.use_deterministic_algorithms(True)
    try:
        runs = [backward(program, chunk, {}, {"y": gradient}).input_gradients for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(run["x"], runs[0]["x"]) and torch.equal(run["a"], runs[0]["a"]) for run in runs)


def last_stage() -> Stage:
    call = Call("y", "aten.linear.default", (Ref("x"), Ref("w")), vertex(3))
    return Stage(
        "last",
        (StageInput("x", "cx", (6,), needs_gradient=True),),
        (ParameterSpec("w", (3, 6)),),
        (call,),
        (StageOutput("y", "logits", (3,)),),
        loss=LossSpec("classification", 3, normalizer=4.0, class_weights=(1.0, 2.0, 0.5)),
    )


def test_turn_yields_the_loss_and_all_gradients() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(ROWS, 6), torch.randn(3, 6)
    label, split = torch.tensor([0, 1, 2, 0, 1, 2, -1]), torch.tensor([0, 0, 1, 0, -1, 0, 0], dtype=torch.int8)
    chunk = Chunk(torch.arange(ROWS), {"x": x}, label=label, split=split)
    sums, found = turn(StageProgram(last_stage()), chunk, {"w": w})

    x, w, rows = x.requires_grad_(), w.requires_grad_(), [0, 1, 3, 5]
    weights = torch.tensor([1.0, 2.0, 0.5])
    loss = torch.nn.functional.cross_entropy((x @ w.T)[rows], label[rows], weights, reduction="sum")
    wanted = torch.autograd.grad(loss / 4, [x, w])
    assert sums[0, 0] == pytest.approx(loss.item(), rel=1e-6)
    assert sums[0, 1] == 4.5
    assert not sums[1:].any()
    torch.testing.assert_close(found.input_gradients["x"], wanted[0])
    torch.testing.assert_close(found.parameter_gradients["w"], wanted[1])


def test_evaluate_counts_every_split_and_predict_yields_rows() -> None:
    chunk = Chunk(
        torch.arange(3),
        {"x": torch.eye(3, 6)},
        label=torch.tensor([0, 1, 0]),
        split=torch.tensor([0, 1, 2], dtype=torch.int8),
    )
    program, w = StageProgram(last_stage()), {"w": torch.eye(3, 6)}
    assert evaluate(program, chunk, w)[:, 2:4].tolist() == [[1, 1], [1, 1], [1, 0]]
    assert torch.equal(predict(program, chunk, w)["y"], torch.eye(3))


@pytest.mark.parametrize(
    "op", ["aten.bernoulli.default", "aten.nothing.default", "os.system", "lotan.vertex_input", "aten.dropout.default"]
)
def test_only_listed_operators_run(op: str) -> None:
    stage = Stage("bad", (StageInput("x", "x", (1,)),), (), (Call("y", op, (Ref("x"),), vertex(1)),), ())
    with pytest.raises(StageError, match=op):
        StageProgram(stage)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(StageError, match=r"dense.*'s'"):
        forward(StageProgram(dense_stage()), Chunk(torch.arange(1), {"x": torch.ones(1, 6)}), {"w": 0, "b": 0})


def test_a_mode_that_there_is_not_is_an_error() -> None:
    chunk, parameters, _ = dense_values()
    program = StageProgram(dense_stage())
    for body in (program, Pieces(program, 2)):
        with pytest.raises(StageError, match="there is no mode 'sideways'"):
            body.run(StageRun("sideways", chunk, parameters))  # type: ignore[arg-type]


def test_a_dtype_is_a_name() -> None:
    def stage(dtype: str) -> Stage:
        call = Call("y", "aten.to.dtype", (Ref("x"), dtype), vertex(1))
        return Stage("cast", (StageInput("x", "x", (1,)),), (), (call,), (StageOutput("y", "y", (1,)),))

    chunk = Chunk(torch.arange(1), {"x": torch.ones(1, 1)})
    assert predict(StageProgram(stage("torch.float64")), chunk, {})["y"].dtype == torch.float64
    with pytest.raises(StageError, match=r"torch\.load"):
        StageProgram(stage("torch.load"))
