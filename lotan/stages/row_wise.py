"""The table of tensor operators that a model may use, and the check that an operator does not mix rows.

A stage sees a chunk of the vertices and their in-edges, never all of them. An operator is *row-wise* if row v of its
output depends on row v of its inputs alone, whatever other rows are there. Workers run only operators in `ALLOWED`
(`lotan.stages`). An operator that reads parameters and constants alone may be any of them.

Names are PyTorch's own ("aten.softmax.int"). Arguments are checked by their names in PyTorch's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import torch

from planner.spec import DISTRIBUTIONS, DROPOUT, Argument, Ref, ValueType

Types = Mapping[str, ValueType]
"""The types of values, by name."""

Arguments = tuple[Argument, ...]
Keywords = tuple[tuple[str, Argument], ...]


def _names(text: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in text.split())


# Operators that work number by number, with broadcasting. Rows cannot meet in these. Two row values of the same rows
# either line up in their first dimension, or give a value that tracing refuses because its rows are no longer first.
# (All carry torch's tag `pointwise` or make a fresh tensor, except those in the last three lines.)
POINTWISE = _names("""
    abs.default acos.default acosh.default add.Tensor add.Scalar addcdiv.default addcmul.default asin.default asinh.default
    atan.default atan2.default atanh.default bitwise_and.Tensor bitwise_and.Scalar bitwise_not.default bitwise_or.Tensor
    bitwise_or.Scalar bitwise_xor.Tensor bitwise_xor.Scalar ceil.default celu.default clamp.default clamp.Tensor
    clamp_max.default clamp_max.Tensor clamp_min.default clamp_min.Tensor clip.default clip.Tensor clone.default
    copysign.Tensor copysign.Scalar cos.default cosh.default deg2rad.default digamma.default div.Tensor div.Scalar
    div.Tensor_mode div.Scalar_mode elu.default eq.Tensor eq.Scalar erf.default erfc.default erfinv.default exp.default
    exp2.default expm1.default float_power.Tensor_Tensor float_power.Tensor_Scalar float_power.Scalar floor.default
    fmax.default fmin.default fmod.Tensor fmod.Scalar frac.default ge.Tensor ge.Scalar gelu.default gt.Tensor gt.Scalar
    hardshrink.default hardsigmoid.default hardtanh.default heaviside.default hypot.default isfinite.default isinf.default
    isnan.default le.Tensor le.Scalar leaky_relu.default lerp.Scalar lerp.Tensor lgamma.default log.default log10.default
    log1p.default log2.default logaddexp.default logaddexp2.default logical_and.default logical_not.default
    logical_or.default logical_xor.default logit.default lt.Tensor lt.Scalar masked_fill.Scalar max.other maximum.default
    min.other minimum.default mish.default mul.Tensor mul.Scalar nan_to_num.default ne.Tensor ne.Scalar neg.default
    positive.default pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar rad2deg.default reciprocal.default relu.default
    relu6.default remainder.Tensor remainder.Scalar round.default round.decimals rsqrt.default rsub.Scalar selu.default
    sgn.default sigmoid.default sign.default signbit.default silu.default sin.default sinc.default sinh.default
    softplus.default softshrink.default sqrt.default square.default sub.Tensor sub.Scalar tan.default tanh.default
    threshold.default true_divide.Tensor trunc.default where.self xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self
    zeros_like.default ones_like.default full_like.default
    contiguous.default detach.default dropout.default hardswish.default log_sigmoid.default masked_fill.Tensor rsub.Tensor
    subtract.Tensor multiply.Tensor divide.Tensor negative.default absolute.default special_expit.default type_as.default
    to.dtype where.ScalarOther where.ScalarSelf where.Scalar prelu.default
""")

# Operators that make a tensor from nothing but a shape; its rows are all alike.
FACTORIES = _names("""
    zeros.default ones.default full.default new_zeros.default new_ones.default new_full.default scalar_tensor.default
""")

# Operators that only change the shape. The first dimension stays the rows, because tracing refuses any other output.
VIEWS = _names("""
    view.default reshape.default _unsafe_view.default flatten.using_ints expand.default expand_as.default view_as.default
    reshape_as.default repeat.default
""")

# Operators along one or several dimensions, which must not be the rows, with the name of the argument for the
# dimension.
ALONG = {
    **dict.fromkeys(
        _names("""
    softmax.int log_softmax.int _softmax.default _log_softmax.default sum.dim_IntList mean.dim amax.default amin.default
    logsumexp.default var.correction std.correction var.dim std.dim var.default std.default linalg_vector_norm.default
    norm.ScalarOpt_dim
    prod.dim_int argmax.default argmin.default any.dim all.dim cumsum.default cumprod.default cat.default concat.default
    stack.default slice.Tensor select.int squeeze.dim squeeze.dims unsqueeze.default gather.default index_select.default
    glu.default unflatten.int narrow.default cosine_similarity.default sum.default mean.default prod.default max.default
    min.default any.default all.default movedim.int cross.default linalg_cross.default
    """),
        "dim",
    ),
    **dict.fromkeys(_names("flip.default roll.default permute.default"), "dims"),
    "aten.movedim.int": "source",
}
GROWING = _names("unsqueeze.default stack.default")  # their dimension counts in the output

TRANSPOSES = _names("transpose.int swapaxes.default swapdims.default t.default numpy_T.default mT.default")

# Matrix operators, in which the parameters must be on the right.
MATRIX = _names("""
    linear.default matmul.default mm.default bmm.default addmm.default mv.default einsum.default bilinear.default
    layer_norm.default rms_norm.default group_norm.default gru_cell.default rnn_tanh_cell.default rnn_relu_cell.default
""")

# Losses, which must leave their terms as they are: reduction="none".
LOSSES = _names("""
    mse_loss.default l1_loss.default smooth_l1_loss.default huber_loss.default poisson_nll_loss.default
    binary_cross_entropy.default binary_cross_entropy_with_logits.default soft_margin_loss.default kl_div.default
    cross_entropy_loss.default nll_loss_nd.default
""")

# Operators that draw random numbers, which a stage draws by the keys of rows.
RANDOM = frozenset(DISTRIBUTIONS) | {DROPOUT}

ALLOWED: frozenset[str] = POINTWISE | FACTORIES | VIEWS | frozenset(ALONG) | TRANSPOSES | MATRIX | LOSSES | RANDOM
"""All tensor operators that a Spec or a stage may contain."""

DTYPES = {f"torch.{name}": getattr(torch, name) for name in ("float32", "float64", "int64", "int32", "int8", "bool")}
"""The dtypes that values may have, by their spelling in a call's argument."""

INSTEAD = {
    "batch_norm": "use the module torch.nn.BatchNorm1d, or torch.nn.LayerNorm",
    "instance_norm": "use torch.nn.LayerNorm",
    "sort": "rows have no order; aggregate over edges instead",
    "index": "select columns with slices, and rows of a parameter by one integer for each edge, as weight[edge_type]; "
    "vertices meet only along edges, in a lotan.nn.MessagePassing layer",
    "embedding": "look up rows by one integer for each edge, as edge_type, without padding_idx; vertices are not looked up",
    "rand": "draw random numbers with rand_like, randn_like or bernoulli, for rows of vertices or edges",
    "normal": "draw random numbers with randn_like",
    "uniform": "draw random numbers with rand_like",
    "lstm": "use the module torch.nn.LSTM",
}
"""Advice for operators that are not in the table, by the beginning of their names."""


def why_not_row_wise(op: str, arguments: Arguments, keywords: Keywords, types: Types) -> str | None:
    """Return the reason why a call of an aten operator may not be in a Spec or a stage, or None if it may.

    Args:
        op: name of the operator.
        arguments: the arguments, as in `planner.spec.Call`.
        keywords: the keyword arguments, as in `planner.spec.Call`.
        types: the types of all values that the arguments name.
    """
    if op not in ALLOWED:
        return f"{short_name(op)} is not among the operators that keep rows apart; {_instead(op)}"
    bound = bound_arguments(op, arguments, keywords)
    if any(_is_rows(value, types) for value in bound.values()):
        reason = _CHECKS.get(op, _no_objection)(op, bound, types)
        return None if reason is None else f"{short_name(op)} {reason}"
    if op in RANDOM:
        return f"{short_name(op)} on a parameter is not supported: random numbers belong to rows; apply it to vertex or edge rows"
    return None


def bound_arguments(op: str, arguments: Arguments, keywords: Keywords) -> dict[str, Any]:
    """Return the arguments of a call by their names in PyTorch's schema, defaults included."""
    schema = overload(op)._schema
    values = {argument.name: argument.default_value for argument in schema.arguments}
    values.update(zip((argument.name for argument in schema.arguments), arguments, strict=False))
    values.update(keywords)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@cache
def overload(name: str) -> torch._ops.OpOverload[..., Any]:
    """Return the torch operator of an allowed name. Any other name raises a KeyError."""
    if name not in ALLOWED:
        raise KeyError(name)
    _, packet, kind = name.split(".")
    return cast("torch._ops.OpOverload[..., Any]", getattr(getattr(torch.ops.aten, packet), kind))


def short_name(op: str) -> str:
    """Return an operator's name as users know it, such as "softmax" for "aten.softmax.int"."""
    return op.split(".")[1].strip("_")


def _instead(op: str) -> str:
    for start, advice in INSTEAD.items():
        if short_name(op).removeprefix("native_").startswith(start):
            return advice
    return "write it with torch operators that work within a row, or along edges in a lotan.nn.MessagePassing layer"


def _row_type(argument: Argument, types: Types) -> ValueType | None:
    if isinstance(argument, Ref) and types[argument.name].rows != "none":
        return types[argument.name]
    return None


def _is_rows(argument: Any, types: Types) -> bool:
    if isinstance(argument, tuple):
        return any(_is_rows(item, types) for item in argument)
    return _row_type(argument, types) is not None


def _rank(argument: Any, types: Types) -> int:
    """Return the number of dimensions of a value, or of the first of several, its rows included."""
    if isinstance(argument, tuple):
        argument = argument[0]
    value = types[argument.name]
    return len(value.shape) + (value.rows != "none")


def _no_objection(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    return None


def _check_along(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    subject = next(
        value for value in arguments.values() if isinstance(value, Ref | tuple) and _is_rows((value,), types)
    )
    rank = _rank(subject, types) + (op in GROWING)
    dims = arguments.get(ALONG[op])
    if dims is None or dims == ():
        return "without a dimension runs over all rows; pass dim=-1 to stay within a row"
    dims = dims if isinstance(dims, tuple) else (dims,)
    if op == "aten.permute.default":
        return None if dims[0] % rank == 0 else "moves the rows out of the first dimension"
    if any(dim % rank == 0 for dim in dims):
        return "along dimension 0 mixes rows; use another dimension, such as dim=-1"
    return None


def _check_lookup(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    """Check index_select, which may also look up a row of a parameter by an integer of each row."""
    table, index = arguments["self"], arguments["index"]
    if _is_rows(table, types) or not _is_rows(index, types):
        return _check_along(op, arguments, types)
    if types[index.name].rows != "edge":
        return (
            "(or embedding, or table[index]) by a number of each vertex is not supported; write it as a product, "
            "torch.nn.functional.one_hot(number, num_classes).float() @ table"
        )
    if arguments["dim"] != 0 or _rank(index, types) != 1:
        return (
            "takes one integer for each edge, such as edge_type, and looks up a row of a parameter in its dimension 0"
        )
    return None


def _check_transpose(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    rank = _rank(arguments["self"], types)
    given = [value for name, value in arguments.items() if name in ("dim0", "dim1", "axis0", "axis1")]
    touched = [dim % rank for dim in given] if given else ([0] if rank == 2 or op == "aten.numpy_T.default" else [])
    return "moves the rows out of the first dimension; transpose the parameter instead" if 0 in touched else None


def _check_product(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    left, right = list(arguments.values())[:2]
    both = _is_rows(left, types) and _is_rows(right, types)
    if _is_rows(left, types) and _rank(left, types) < 2:
        return "of a single number per row sums over rows"
    if _is_rows(right, types) and _rank(right, types) < 3:
        return "with rows on the right mixes them; put the parameter on the right"
    if both and _rank(left, types) != _rank(right, types):
        return "of rows of different rank mixes them; unsqueeze one of them"
    return None


def _check_linear(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    first, *others = arguments.values()
    if any(_is_rows(other, types) for other in others):
        return "takes rows as its input only; weight and bias must be parameters"
    return "of a single number per row sums over rows; unsqueeze(-1) it first" if _rank(first, types) < 2 else None


def _check_addmm(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    return "with rows on the right mixes them" if _is_rows(arguments["mat2"], types) else None


def _check_pair(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    """Check bilinear and the recurrent cells: two row inputs, then parameters."""
    first, second, *others = arguments.values()
    if any(_is_rows(other, types) for other in others) or _rank(first, types) < 2 or _rank(second, types) < 2:
        return "takes rows [num_rows, width] as its two inputs and parameters as the rest"
    return None if _is_rows(first, types) and _is_rows(second, types) else "takes rows as both of its inputs"


def _check_norm(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    first = next(iter(arguments.values()))
    rank = _rank(first, types)
    shape = arguments.get("normalized_shape")
    if rank < 2 or (shape is not None and len(shape) >= rank):
        return "normalises over the rows; normalise over the last dimension only"
    return None


def _check_loss(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    output, label = list(arguments.values())[:2]
    if arguments["reduction"] != 0:
        return 'reduces over all rows; pass reduction="none", for the mean over rows is taken later'
    if any(_is_rows(arguments.get(name), types) for name in ("weight", "pos_weight")):
        return "takes parameters as its weights"
    of_classes = op in ("aten.cross_entropy_loss.default", "aten.nll_loss_nd.default")
    fits = _is_rows(output, types) and _is_rows(label, types) and not (of_classes and _rank(output, types) < 2)
    return None if fits else "takes rows as its input and as its target"


def _check_prelu(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    # A weight per channel belongs to dimension 1. If there is a single number per row, that would be the row.
    weight_is_rows = _is_rows(arguments["weight"], types)
    return "takes a parameter as its weight" if weight_is_rows or _rank(arguments["self"], types) < 2 else None


def _check_einsum(op: str, arguments: dict[str, Any], types: Types) -> str | None:
    equation, operands = arguments["equation"].replace(" ", ""), arguments["tensors"]
    if "->" not in equation or "." in equation:
        return "needs an equation with '->' and without '...'"
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    rows = {term[0] for term, operand in zip(terms, operands, strict=True) if _is_rows(operand, types)}
    letter = next(iter(rows))
    parameters = [term for term, operand in zip(terms, operands, strict=True) if not _is_rows(operand, types)]
    kept = (
        output[:1] == letter
        and not any(letter in term[1:] for term in terms)
        and not any(letter in p for p in parameters)
    )
    return (
        None if len(rows) == 1 and kept else "must keep one letter for the rows, first in every term and in the result"
    )


_CHECKS: dict[str, Callable[[str, dict[str, Any], Types], str | None]] = {
    **dict.fromkeys(ALONG, _check_along),
    "aten.index_select.default": _check_lookup,
    **dict.fromkeys(TRANSPOSES, _check_transpose),
    **dict.fromkeys(_names("matmul.default mm.default bmm.default mv.default"), _check_product),
    "aten.linear.default": _check_linear,
    "aten.addmm.default": _check_addmm,
    "aten.einsum.default": _check_einsum,
    "aten.prelu.default": _check_prelu,
    **dict.fromkeys(LOSSES, _check_loss),
    **dict.fromkeys(_names("layer_norm.default rms_norm.default group_norm.default"), _check_norm),
    **dict.fromkeys(
        _names("bilinear.default gru_cell.default rnn_tanh_cell.default rnn_relu_cell.default"), _check_pair
    ),
}
