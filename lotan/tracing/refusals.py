"""The errors for models that cannot be traced, and the layer and line in the user's program that they name."""

from __future__ import annotations

import os
from typing import cast

import torch
from torch.fx import Node

from lotan.errors import ModelError

DEPENDS_ON_VALUES = (
    "forward depends on values (an if, a loop, .item() or indexing by a mask), so that it cannot be written down once for all "
    "chunks; use torch.where, or masks as factors"
)
FOREIGN_TENSOR = (
    "reads a tensor that is neither a parameter nor a buffer; make it one with register_buffer or torch.nn.Parameter"
)
MIXED_ROWS = (
    "depends on the number of rows, or combines rows of different kinds (vertices, edges, parameters). Keep to operators that "
    "work within a row, and let vertices meet along edges, in a lotan.nn.MessagePassing layer"
)
COUNT_AS_VALUE = (
    "uses the number of rows as a value; only tensor operators that work within a row may decide the result "
    "(for a mean over neighbours use aggr='mean')"
)
VERTEX_NUMBERS = (
    "uses the numbers of the vertices as values; only learned rows may be looked up by them, as in "
    "rows(torch.arange(num_vertices))"
)
NO_FEATURES = (
    "reads the features of vertices, and the graph has none; name their columns, Graph(..., features=...), or learn a row for "
    "each vertex with lotan.nn.LearnedFeatures"
)
READS_EDGE_INDEX = "reads edge_index itself; vertices meet only along edges, in a lotan.nn.MessagePassing layer"
ON_EDGES = "messages must be float32, one row per edge of this layer"
SEVERAL_RESULTS = "has several results, which is not supported; use operators with one result, such as amax for max"
MOVED_ROWS = (
    "moves the rows out of the first dimension or changes their number; keep one row per vertex (or edge), first"
)
PRODUCT_OF_ROWS = (
    "multiplies turned rows by something else than rows; x.t() @ y needs float32 rows of vertices, [num_vertices, k] and "
    "[num_vertices, n]"
)
STATISTIC_ALONE = (
    "a statistic over all vertices, which only element-wise operators may read; combine it with the rows of vertices, as in "
    "x - x.mean(0)"
)
STATISTIC_DIVISOR = (
    "over all vertices is supported with correction=0, and with correction=1 over the vertices alone; write it as a mean of "
    "squares"
)

_TORCH = os.path.dirname(torch.__file__) + os.sep
_LOTAN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LAYERS = os.path.join(_LOTAN, "nn") + os.sep
_PYG = f"{os.sep}torch_geometric{os.sep}"
_SCAFFOLDING = (
    "message_passing.py",
    "edge_index.py",
    "linear.py",
)  # parts of layers, which say less than the layer itself


def refusal(node: Node, reason: str) -> ModelError:
    """Return the error for a node, which names its layer, its line and the reason."""
    return located(layer_of(node), line_of(node), reason, _noted(node, "kind"))


def located(layer: str, line: str, reason: str, kind: str = "") -> ModelError:
    """Return the error for a place in the model. `kind` describes the class of the layer."""
    named = (f"layer {layer!r}" if layer else "the model") + (f" ({kind})" if kind else "")
    place = ", ".join(part for part in (named, line) if part)
    return ModelError(f"{place}: {reason}")


def described(module: torch.nn.Module) -> str:
    """Return the class of a layer of PyG, such as "torch_geometric GCNConv", or "" for any other module."""
    kind = type(module)
    return f"torch_geometric {kind.__name__}" if kind.__module__.startswith("torch_geometric.") else ""


def layer_of(node: Node) -> str:
    """Return the qualified name of the module whose forward made a node."""
    return _noted(node, "layer")


def line_of(node: Node) -> str:
    """Return the user's line that made a node, such as "file.py:12"."""
    return _noted(node, "line")


def _noted(node: Node, what: str) -> str:
    """Return a note that `lotan.tracing.scope` added to a node when it was made."""
    return cast(str, (node.meta.get("custom") or {}).get(what, ""))


def _is_pyg(path: str) -> bool:
    return _PYG in path or os.path.basename(path).startswith("torch_geometric.")  # PyG also writes files of its own


def user_line(frames: list[tuple[str, int]]) -> str:
    """Return the line of the innermost frame in the user's files, else of that in this package's layers.

    Args:
        frames: file and line of each frame, outermost first.
    """
    theirs = [frame for frame in frames if not frame[0].startswith((_TORCH, _LOTAN)) and not _is_pyg(frame[0])]
    layers = [frame for frame in frames if frame[0].startswith(_LAYERS) and not frame[0].endswith(_SCAFFOLDING)]
    pyg = [frame for frame in frames if _PYG in frame[0]]
    for path, line in reversed(theirs or layers or pyg):
        return f"{os.path.basename(path)}:{line}"
    return ""
