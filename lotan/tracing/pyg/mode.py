"""The mode that turns indexing by edges into graph operators while a model is traced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lotan.tracing.pyg.attention import ONE_GROUP
from lotan.tracing.pyg.edge_tensors import EdgeTensors
from lotan.tracing.pyg.leaves import NO_NUMBER
from lotan.tracing.pyg.meanings import End, Identities, beside, with_rows_first
from lotan.tracing.pyg.recipes import draws, writes_to_input

_SAME_INDEX = ("to", "long", "contiguous", "clone", "detach", "cpu", "cuda", "requires_grad_")
_EQUAL = ("eq", "__eq__")
_COMPARES = (*_EQUAL, "ne", "__ne__")
_SAME_END = (*_SAME_INDEX, "view", "expand", "expand_as", "unsqueeze", "reshape", "view_as", "flatten", "squeeze")
_SCATTERS = {
    "scatter_add": ("dim", "index", "src"),
    "index_add": ("dim", "index", "source"),
    "scatter_reduce": ("dim", "index", "src", "reduce"),
    "index_reduce": ("dim", "index", "source", "reduce"),
}
_KINDS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}
_ASKS = frozenset(
    {
        "__get__",
        "__len__",
        "__repr__",
        "dim",
        "element_size",
        "get_device",
        "is_complex",
        "is_contiguous",
        "is_cuda",
        "is_floating_point",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "numel",
        "ones_like",
        "size",
        "stride",
        "zeros_like",
    }
)
_MAKES_ZEROS = ("zeros", "new_zeros", "zeros_like")
_REARRANGES = ("flip", "roll", "index_select", "stack", "cat", "sort", "argsort")
_COUNTS = ("max", "min", "amax", "amin", "unique", "unique_consecutive", "bincount")

NUMBER_OF_VERTICES = (
    "reads the numbers of vertices out of edge_index; pass num_nodes=x.size(0), and write no vertex's number"
)
ROWS_FIRST = "indexes by edges in another dimension than the first; keep one row per vertex, first, or use index_select"
REARRANGED = (
    "rearranges the edges; turn them round by edge_index.flip(0), add self-loops by torch_geometric.utils.add_self_loops, and "
    "give the graph further edges where it is made, such as undirected=True for both directions"
)
AGAIN = "indexes edge_index by itself; vertices meet only along the graph's own edges"
MATRIX = "it is no sparse matrix, but a tensor of two rows; aggregate with a layer of PyG, or with torch_geometric.utils.scatter"
COMPARES_ENDS = "compares an end of edges with something else than the other end of the same edges"


class EdgeMode(TorchFunctionMode):
    """Watches the torch functions that a model calls, and replaces those that read edges.

    Args:
        tensors: the edges of this trace.
    """

    def __init__(self, tensors: EdgeTensors) -> None:
        super().__init__()
        self._tensors = tensors
        self._zeros: Identities[bool] = Identities()
        self._written: Identities[Tensor] = Identities()  # a tensor that was written to, and its new value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._written:
            args, kwargs = self._as_written(args), self._as_written(kwargs)
        name = getattr(func, "__name__", "")
        if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return func(*args, **kwargs)
        result = self._replaced(func, name, args, kwargs)
        if result is not NotImplemented:
            return result
        recipe = self._tensors.remember(func, args, kwargs)
        out = func(*args, **kwargs)
        self._tensors.keep(out, recipe, draws(func, args, kwargs))
        if name in _MAKES_ZEROS:
            self._zeros[out] = True
        elif writes_to_input(name) and args:
            self._zeros.forget(args[0])
        return out

    def _replaced(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Return the result of a function that reads edges, or NotImplemented for any other function."""
        first = args[0] if args else None
        if name in ("__getitem__", "index_select", "select", "gather"):
            return self._indexed(func, name, args, kwargs)
        if isinstance(first, Tensor) and self._tensors.indices.get(first) is not None:
            return self._of_index(func, name, first, args, kwargs)
        if (end := self._tensors.ends.get(first)) is not None:
            return self._of_end(func, name, end, args, kwargs)
        if isinstance(first, Tensor) and self._is_group(first):
            return self._of_group(func, name, first, args, kwargs)
        if name == "__len__" and self._tensors.chooses_all(first):
            return 1  # of an order that only `arange` and other orders are made from, which choose all vertices too
        if name == "__setitem__" and self._tensors.chooses_all(args[1]):
            self._tensors.mark_all(args[0])  # the inverse of the order
            return None
        if name == "__setitem__":
            return self._set_item(*args)
        if name == "one_hot":
            return self._one_hot(*args, **kwargs)
        if name.removesuffix("_") in _SCATTERS:
            return self._scattered(name, args, kwargs)
        read = [t for t in _tensors((args, kwargs)) if self._is_edges(t)]
        if not read or name in _ASKS or name in ("expand_as", "view_as", "type_as", "reshape_as"):
            return NotImplemented
        if name == "stack":
            return self._stacked(read, args, kwargs)
        raise self._tensors.refuse(f"{name} of edge_index: {self._advice(name)}")

    def _is_edges(self, tensor: Tensor) -> bool:
        return self._tensors.indices.get(tensor) is not None or self._tensors.ends.get(tensor) is not None

    def _of_index(self, func: Any, name: str, index: Tensor, args: Any, kwargs: Any) -> Any:
        """Replace a function of a whole edge_index."""
        if name == "unbind" and not (kwargs.get("dim") or (args[1:] and args[1])):
            return self._tensors.end(index, 0), self._tensors.end(index, 1)
        if name in _SAME_INDEX:
            return index
        if name == "flipud" or (name == "flip" and _dims(args[1:], kwargs) in ([0], [-2])):
            return self._tensors.turned(index)
        if name in _ASKS:
            return func(self._tensors.plain(index), *args[1:], **kwargs)
        raise self._tensors.refuse(f"{name} of edge_index: {self._advice(name)}")

    def _of_end(self, func: Any, name: str, end: End, args: Any, kwargs: Any) -> Any:
        """Replace a function of one end of the edges.

        A model may ask for its length, change its shape, and compare it with the other end.
        """
        if name in _SAME_END:
            return self._tensors.mark(func(*args, **kwargs), end)
        if name in _COMPARES and self._is_other_end(end, args[1]):
            return self._tensors.have_equal_ends(end) if name in _EQUAL else self._tensors.have_different_ends(end)
        if name in _ASKS:
            same_size_and_dtype = torch.ones(self._tensors.edge_count(end.index.edges), dtype=torch.int64)
            return func(same_size_and_dtype, *args[1:], **kwargs)
        raise self._tensors.refuse(f"{name} of one end of edge_index: {self._advice(name)}")

    def _is_group(self, value: object) -> bool:
        return self._tensors.groups.get(value) is not None

    def _of_group(self, func: Any, name: str, group: Tensor, args: Any, kwargs: Any) -> Any:
        """Replace a function of the numbers of groups: their greatest, which is known, and views."""
        groups = self._tensors.number_of_groups
        assert groups is not None  # else there is no such tensor
        if name == "embedding":
            return self._tensors.group_rows(args[1], group)
        if name == "one_hot":
            return NotImplemented
        if name in ("max", "amax") and len(args) == 1 and not kwargs:
            return KnownNumber(groups - 1)
        if name == "__getitem__" and args[1] == -1:
            return KnownNumber(groups - 1)  # of the last vertex, in a column that is sorted
        if name in _SAME_END:
            return self._tensors.mark_group(func(*args, **kwargs))
        if name == "sort" and groups == 1:  # all numbers are 0, so that the order stays
            return group, self._tensors.mark_all(torch.zeros_like(group))
        if name in ("sort", "argsort"):
            raise self._tensors.refuse(ONE_GROUP)
        if name in ("unique", "bincount", "unique_consecutive"):
            raise self._tensors.refuse(f"{name} of batch: use the functions of torch_geometric that take batch")
        return NotImplemented

    def _advice(self, name: str) -> str:
        if name in ("matmul", "mm", "__matmul__", "__rmatmul__", "spmm") or "sparse" in name:
            return MATRIX
        if name in _COUNTS:
            return NUMBER_OF_VERTICES
        if name in _REARRANGES:
            return REARRANGED
        if name in _COMPARES:
            return COMPARES_ENDS
        return "only indexing and aggregating by edge_index[0] and edge_index[1] is supported"

    def _is_other_end(self, end: End, other: Any) -> bool:
        found = self._tensors.ends.get(other)
        return found is not None and found.index.same(end.index) and found.end != end.end

    def _one_hot(self, index: Tensor, num_classes: int = -1) -> Any:
        """Replace torch's one_hot, which compares the greatest number with `num_classes`."""
        if num_classes < 0:
            raise self._tensors.refuse(NO_NUMBER)
        numbers = self._tensors.bounded(index, num_classes)
        return torch.stack([numbers == number for number in range(num_classes)], dim=-1).to(torch.int64)

    # Indexing

    def _indexed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        x = args[0]
        is_index = self._tensors.indices.get(x) is not None
        if name == "__getitem__" and self._is_group(x) and isinstance(args[1], int) and args[1] == -1:
            return self._of_group(func, name, x, args, kwargs)
        if name == "__getitem__":
            return self._row(x, args[1]) if is_index else self._item(x, args[1])
        dim, index = (*args[1:], *kwargs.values())[:2]
        if self._is_group(index):
            if name == "gather":
                raise self._tensors.refuse("gather by batch takes an index as wide as the rows; write x[batch] instead")
            if dim % x.dim():
                raise self._tensors.refuse(ROWS_FIRST)
            return self._tensors.group_rows(x, index)
        if name == "select" and is_index and not dim:
            return self._tensors.end(x, index)
        end = self._tensors.ends.get(index)
        if end is None or name == "select":
            return self._of_index(func, name, x, args, kwargs) if is_index else NotImplemented
        if is_index or self._tensors.ends.get(x) is not None:
            raise self._tensors.refuse(AGAIN)
        if dim % x.dim() and name == "gather":
            raise self._tensors.refuse(ROWS_FIRST)
        if name == "gather" and (index.dim() != x.dim() or index.shape[1:] != x.shape[1:]):
            raise self._tensors.refuse("gather by edges takes an index as wide as the rows; write x[index] instead")
        return with_rows_first(lambda rows: self._tensors.scatter(rows, end), x, dim)

    def _row(self, index: Tensor, item: Any) -> Any:
        """Replace `edge_index[item]` by one end of the edges, by some of the edges, or by the edges turned round."""
        whole = slice(None)
        if isinstance(item, tuple) and len(item) == 2 and item[1] == whole and isinstance(item[0], int):
            item = item[0]
        if isinstance(item, int):
            return self._tensors.end(index, item)
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], slice) and item[0] == whole:
            if isinstance(item[1], Tensor) and item[1].dtype == torch.bool:
                return self._tensors.choose(index, item[1])
            if isinstance(item[1], slice) and item[1] == whole:
                return index
        if item == [1, 0]:
            return self._tensors.turned(index)
        if isinstance(item, list):
            raise self._tensors.refuse(REARRANGED)
        raise self._tensors.refuse(
            "chooses edges by their position; choose them by a mask of booleans, edge_index[:, mask]"
        )

    def _item(self, x: Tensor, item: Any) -> Any:
        """Replace `x[end]`, `x[end, 0]`, and `x[:x.size(0)]`."""
        place, *others = item if isinstance(item, tuple) else (item,)
        if (
            others
            and isinstance(place, slice)
            and place == slice(None)
            and self._tensors.ends.get(others[-1]) is not None
        ):
            *others, place = others
            if all(isinstance(one, slice) and one == slice(None) for one in others):
                return self._indexed(torch.index_select, "index_select", (x, len(others) + 1, place), {})
            raise self._tensors.refuse(ROWS_FIRST)
        end = self._tensors.ends.get(place)
        if self._tensors.chooses_all(place) and not others:
            return x
        if self._is_group(place):
            rows = self._tensors.group_rows(x, place)
            return rows[(slice(None), *others)] if others else rows
        if end is not None:
            if self._tensors.ends.get(x) is not None:
                raise self._tensors.refuse(AGAIN)
            rows = self._tensors.scatter(x, end)
            return rows[(slice(None), *others)] if others else rows
        if isinstance(place, slice) and not others and x.dim() and place.start in (None, 0) and place.step is None:
            size = x.size(0)
            if isinstance(size, torch.SymInt) and isinstance(place.stop, torch.SymInt) and _same(size, place.stop):
                return x
        if self._is_mask_of(item, x):  # all edges stay; those that it does not choose count as nothing in aggregates
            return x if self._tensors.ends.get(x) is None else self._tensors.choose_end(x, item)
        if isinstance(item, Tensor) and item.dtype == torch.int64 and item.dim() == 1:
            return x.index_select(0, item)  # the same, and allowed where `x` is a parameter
        return NotImplemented

    def _is_mask_of(self, item: Any, x: Tensor) -> bool:
        """Return True if `item` is a mask of edges, and `x` has a row for each of the same edges."""
        return isinstance(item, Tensor) and item.dtype == torch.bool and self._tensors.edges_of(x, item) is not None

    def _stacked(self, read: list[Tensor], args: Any, kwargs: Any) -> Any:
        """Replace `torch.stack([row, col])` by the edge_index that both are of, and `[col, row]` by it turned round."""
        ends = [self._tensors.ends.get(tensor) for tensor in read]
        if len(ends) == 2 and None not in ends and not (kwargs.get("dim") or (args[1:] and args[1])):
            first, second = ends
            assert first is not None
            assert second is not None
            if first.index.same(second.index) and first.end != second.end:
                return self._tensors.index(replace(first.index, turned=first.end == "destination"))
        raise self._tensors.refuse(REARRANGED)

    # Writing

    def _set_item(self, x: Tensor, item: Any, value: Any) -> Any:
        """Replace `x[mask] = value`, for a mask of edges and a value with a row for each edge or for none."""
        rows = isinstance(value, Tensor) and value.dim() > 0
        if not self._is_mask_of(item, x) or (rows and self._tensors.edges_of(x, value) is None):
            return NotImplemented
        self._written[x] = torch.where(beside(item, x), value, x)
        return None

    def _scattered(self, name: str, args: Any, kwargs: Any) -> Any:
        """Replace an operator that adds edge rows to the vertices at one end."""
        start, *values = args
        given = dict(zip(_SCATTERS[name.removesuffix("_")], values, strict=False)) | kwargs
        end = self._tensors.ends.get(given.get("index"))
        if end is None and not self._is_group(given.get("index")):
            return NotImplemented
        rows = given["src"] if "src" in given else given["source"]
        kind = _KINDS.get(given.get("reduce", "sum"))
        if kind is None:
            raise self._tensors.refuse(f"reduces by {given['reduce']!r}; use sum, mean, amax or amin")
        if not isinstance(rows, Tensor) or (end is None and given["dim"] % rows.dim()):
            raise self._tensors.refuse(ROWS_FIRST)
        if kind != "sum" and given.get("include_self", True):
            raise self._tensors.refuse("reduces edges together with what is there already; pass include_self=False")
        if given.get("alpha", 1) != 1:
            rows = rows * given["alpha"]
        if end is None:
            total = self._tensors.group_total(rows, given["index"], start.shape[0], kind)
        else:
            total = with_rows_first(lambda one: self._tensors.aggregate(one, end, kind), rows, given["dim"])
        if self._zeros.get(start) is None:
            if kind != "sum":
                raise self._tensors.refuse("reduces edges into a tensor that is not new; start from zeros")
            total = start + total
        if name.endswith("_"):
            self._written[start] = total
        return total

    def _as_written(self, value: Any) -> Any:
        """Return a value in which tensors that were written to are replaced by their new values."""
        if isinstance(value, Tensor):
            found = self._written.get(value)
            return value if found is None else self._as_written(found)
        if type(value) in (tuple, list):
            return type(value)(self._as_written(item) for item in value)
        if type(value) is dict:
            return {name: self._as_written(item) for name, item in value.items()}
        return value


class KnownNumber(int):
    """A number that is known while a model is traced, in place of a tensor that holds it."""

    def item(self) -> int:
        """Return the number, as a tensor's method does."""
        return int(self)


def _dims(args: Any, kwargs: Any) -> list[Any]:
    """Return the dimensions that a call of `flip` names: flip(0), flip([0]) or flip(dims=[0])."""
    given = args or (kwargs.get("dims", ()),)
    return list(given[0]) if isinstance(given[0], list | tuple) else list(given)


def _same(size: torch.SymInt, other: torch.SymInt) -> bool:
    return bool(size.node.expr == other.node.expr)  # `==` of the numbers themselves would be a condition of the trace


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
