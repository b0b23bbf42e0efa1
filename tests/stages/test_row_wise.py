"""The table of row-wise operators, compared with brute force: all rows at once against rows in two chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lotan.stages.row_wise import ALLOWED, ALONG, FACTORIES, POINTWISE, RANDOM, overload, why_not_row_wise
from planner.spec import Ref, ValueType

ROWS, WIDTH = 6, 6  # equal, so that nothing is refused for its shape alone
X, Y, CUBE, OTHER_CUBE, NUMBERS, MATRIX, WEIGHT, VECTOR = map(
    Ref, ["x", "y", "cube", "other_cube", "numbers", "matrix", "weight", "vector"]
)
VALUES = {
    "x": torch.randn(ROWS, WIDTH),
    "y": torch.randn(ROWS, WIDTH),
    "cube": torch.randn(ROWS, ROWS, WIDTH),
    "other_cube": torch.randn(ROWS, WIDTH, ROWS),
    "numbers": torch.randn(ROWS),
    "matrix": torch.randn(WIDTH, WIDTH),
    "weight": torch.randn(2, WIDTH, WIDTH),
    "vector": torch.randn(WIDTH),
}
TYPES = {
    name: ValueType("none", tuple(value.shape))
    if name in ("matrix", "weight", "vector")
    else ValueType("vertex", tuple(value.shape[1:]))
    for name, value in VALUES.items()
}
# (operator, arguments, whether it is row-wise). What is refused although it would be row-wise has None.
CASES: list[tuple[str, tuple, bool | None]] = [
    ("softmax.int", (X, 1), True),
    ("softmax.int", (X, -1), True),
    ("softmax.int", (X, 0), False),
    ("softmax.int", (X, -2), False),
    ("softmax.int", (NUMBERS, -1), False),
    ("log_softmax.int", (CUBE, -3), False),
    ("log_softmax.int", (CUBE, -2), True),
    ("sum.dim_IntList", (CUBE, (1, 2)), True),
    ("sum.dim_IntList", (CUBE, (-1, 0)), False),
    ("mean.dim", (X, (0,), True), False),
    ("mean.dim", (X, (1,), True), True),
    ("cumsum.default", (X, 0), False),
    ("cumsum.default", (X, 1), True),
    ("flip.default", (X, (0,)), False),
    ("flip.default", (X, (1,)), True),
    ("roll.default", (X, (1,), (0,)), False),
    ("roll.default", (X, (1,), (1,)), True),
    ("roll.default", (X, (1,)), False),
    ("permute.default", (CUBE, (0, 2, 1)), True),
    ("permute.default", (CUBE, (1, 0, 2)), False),
    ("transpose.int", (CUBE, 1, 2), True),
    ("transpose.int", (CUBE, -1, 0), False),
    ("t.default", (X,), False),
    ("numpy_T.default", (X,), False),
    ("mT.default", (CUBE,), True),
    ("mT.default", (X,), False),
    ("linear.default", (X, MATRIX, VECTOR), True),
    ("linear.default", (CUBE, MATRIX), True),
    ("linear.default", (X, Y), False),
    ("linear.default", (NUMBERS, MATRIX), False),
    ("matmul.default", (X, MATRIX), True),
    ("matmul.default", (X, VECTOR), True),
    ("matmul.default", (X, Y), False),
    ("matmul.default", (MATRIX, X), False),
    ("matmul.default", (MATRIX, CUBE), True),
    ("matmul.default", (CUBE, OTHER_CUBE), True),
    ("matmul.default", (X, CUBE), False),
    ("matmul.default", (NUMBERS, MATRIX), False),
    ("bmm.default", (CUBE, OTHER_CUBE), True),
    ("mm.default", (X, MATRIX), True),
    ("mm.default", (MATRIX, X), False),
    ("mv.default", (X, VECTOR), True),
    ("mv.default", (MATRIX, NUMBERS), False),
    ("addmm.default", (X, Y, MATRIX), True),
    ("addmm.default", (X, MATRIX, Y), False),
    ("einsum.default", ("nk,kj->nj", (X, MATRIX)), True),
    ("einsum.default", ("nk,nj->nkj", (X, Y)), True),
    ("einsum.default", ("nk,mk->nm", (X, Y)), False),
    ("einsum.default", ("nk,nk->k", (X, Y)), False),
    ("einsum.default", ("nk,kj->jn", (X, MATRIX)), False),
    ("einsum.default", ("nn->n", (X,)), False),
    ("einsum.default", ("nk,nj->nj", (X, MATRIX)), False),
    ("bilinear.default", (X, Y, WEIGHT), True),
    ("layer_norm.default", (X, (WIDTH,)), True),
    ("layer_norm.default", (X, (ROWS, WIDTH)), False),
    ("rms_norm.default", (X, (WIDTH,)), True),
    ("group_norm.default", (X, 2), True),
    ("prelu.default", (X, VECTOR), True),
    ("cat.default", ((X, Y), 1), True),
    ("cat.default", ((X, Y), 0), False),
    ("cat.default", ((X, Y),), False),
    ("cat.default", ((NUMBERS, NUMBERS), -1), False),
    ("stack.default", ((X, Y), -1), True),
    ("stack.default", ((X, Y), -3), False),
    ("unsqueeze.default", (X, -1), True),
    ("unsqueeze.default", (X, 0), False),
    ("select.int", (X, 1, 2), True),
    ("select.int", (X, 0, 0), False),
    ("slice.Tensor", (X, 1, 0, 3), True),
    ("slice.Tensor", (X, 0, 0, 3), False),
    ("slice.Tensor", (X,), None),
    ("glu.default", (X,), True),
    ("glu.default", (X, 0), False),
    ("amax.default", (X, (1,)), True),
    ("amax.default", (X,), False),
    ("argmax.default", (X, 1), True),
    ("argmax.default", (X,), False),
    ("max.default", (X,), False),
    ("sum.default", (X,), False),
    ("std.correction", (X, (1,)), True),
    ("std.correction", (X,), False),
    ("logsumexp.default", (X, (0,)), False),
    ("linalg_vector_norm.default", (X, 2, (1,)), True),
    ("linalg_vector_norm.default", (X,), False),
    ("cosine_similarity.default", (X, Y), True),
    ("cosine_similarity.default", (X, Y, 0), False),
    ("mul.Tensor", (X, Y), True),
    ("add.Tensor", (X, VECTOR), True),
    ("where.self", (X, X, Y), True),
]


def run(op: str, arguments: tuple, rows: slice) -> Tensor:
    def value(argument: Any) -> Any:
        if isinstance(argument, Ref):
            whole = VALUES[argument.name]
            return whole if TYPES[argument.name].rows == "none" else whole[rows]
        return [value(item) for item in argument] if isinstance(argument, tuple) else argument

    if op == "where.self":
        condition, *others = arguments
        return torch.where(value(condition) > 0, *map(value, others))
    return overload(f"aten.{op}")(*map(value, arguments))


def chunks_equal_the_whole(op: str, arguments: tuple) -> bool:
    whole = run(op, arguments, slice(None))
    try:
        parts = torch.cat([run(op, arguments, slice(0, 2)), run(op, arguments, slice(2, None))])
    except RuntimeError:  # shapes that fit only the whole
        return False
    return parts.shape == whole.shape and torch.allclose(parts, whole, atol=1e-5)


@pytest.mark.parametrize(("op", "arguments", "expected"), CASES, ids=str)
def test_the_table_agrees_with_running_chunk_by_chunk(op: str, arguments: tuple, expected: bool | None) -> None:
    reason = why_not_row_wise(f"aten.{op}", arguments, (), TYPES)
    assert chunks_equal_the_whole(op, arguments) == (expected is not False)
    assert (reason is None) == (expected is True), reason


@pytest.mark.parametrize(("op", "arguments", "expected"), [case for case in CASES if case[2] is False], ids=str)
def test_parameters_may_do_anything(op: str, arguments: tuple, expected: bool) -> None:
    parameters = {name: ValueType("none", tuple(value.shape)) for name, value in VALUES.items()}
    assert why_not_row_wise(f"aten.{op}", arguments, (), parameters) is None


@pytest.mark.parametrize("op", sorted(ALLOWED))
def test_every_allowed_operator_returns_one_new_tensor_and_writes_to_none(op: str) -> None:
    schema = overload(op)._schema
    assert not schema.is_mutable
    assert [str(result.type) for result in schema.returns] == ["Tensor"]


def test_operators_along_a_dimension_name_their_argument() -> None:
    whole = {
        "sum",
        "mean",
        "prod",
        "max",
        "min",
        "any",
        "all",
        "var",
        "std",
    }  # their "default" overloads have no dimension
    for op, argument in ALONG.items():
        names = [given.name for given in overload(op)._schema.arguments]
        assert argument in names or (op.split(".")[1] in whole and op.endswith(".default")), op


def test_operators_that_draw_random_numbers_are_known() -> None:
    random = {op for op in ALLOWED if torch.Tag.nondeterministic_seeded in overload(op).tags}
    assert random <= RANDOM


def test_pointwise_operators_are_tagged_so_by_torch_or_known() -> None:
    known = [
        "absolute",
        "contiguous",
        "detach",
        "divide",
        "dropout",
        "full_like",
        "hardswish",
        "log_sigmoid",
        "masked_fill",
        "multiply",
        "negative",
        "ones_like",
        "prelu",
        "rsub",
        "special_expit",
        "subtract",
        "to",
        "type_as",
        "where",
        "zeros_like",
    ]
    untagged = {op for op in POINTWISE if torch.Tag.pointwise not in overload(op).tags}
    assert {op.split(".")[1] for op in untagged} <= set(known)
    assert not FACTORIES & POINTWISE


def test_what_is_not_in_the_table_is_refused_and_cannot_be_looked_up() -> None:
    reason = why_not_row_wise("aten.sort.default", (X,), (), TYPES)
    assert reason is not None
    assert "sort" in reason
    for name in ("aten.system.default", "aten.sort.default", "os.system", "aten.add_.Tensor"):
        with pytest.raises(KeyError):
            overload(name)
