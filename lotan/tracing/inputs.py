"""The calls that read what a model is given: features, learned rows, numbers of groups, and constants."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.fx import Node

from lotan.tracing.moved_rows import MovedRowsWriter
from lotan.tracing.recording import Recording
from lotan.tracing.refusals import FOREIGN_TENSOR, NO_FEATURES, READS_EDGE_INDEX
from lotan.tracing.writing import Unusable
from planner.spec import LEARNED_ROWS, Argument, ParameterSpec, Ref, ValueType


class InputsWriter(MovedRowsWriter):
    """Writes the calls that read a model's inputs.

    Args:
        width: The width of the features.
        parameters: All parameters and buffers of the model, in the model's order.
        recording: The model's recording.
    """

    def __init__(self, width: int, parameters: tuple[ParameterSpec, ...], recording: Recording) -> None:
        super().__init__(parameters, recording)
        self._width = width
        self._module = recording.module
        self._inputs = list(recording.inputs)
        self._learned: set[str] = set()  # rows of parameters that have one for each vertex
        self._number_of_groups = recording.groups
        self._sees_labels = recording.label_rate is not None

    def _placeholder(self, node: Node) -> None:
        name = self._inputs.pop(0)
        if name is None:
            self._values[node] = Unusable(READS_EDGE_INDEX)
        elif name == "features":
            self._values[node] = self._own_features(node)
        elif name.startswith("learned:"):
            self._values[node] = self._learned_rows(node, name.removeprefix("learned:"))
        elif name.startswith("features:"):
            self._values[node] = self._features_of(node, int(name.removeprefix("features:")))
        else:
            self._values[node] = Ref(name)

    def _learned_rows(self, node: Node, name: str) -> Ref:
        kind, number = (
            ValueType("vertex", self._parameters[name].shape[1:]),
            self._symbols.number_of(node.meta["val"].shape[0]),
        )
        given = (Ref(name),) if self._vertex_types is None else (Ref(name), number)
        rows = self._call(node, LEARNED_ROWS, given, kind=kind, name=f"{name}.rows")
        self._calls[-1] = replace(self._calls[-1], layer=name.rpartition(".")[0])
        self._learned.add(rows.name)
        return rows

    def _own_features(self, node: Node) -> Ref | Unusable:
        """Return the features that the model sees, which are all but the number of the group or the label."""
        width = self._width - (self._number_of_groups is not None or self._sees_labels)
        features = self._features(node, self._width)
        if width == self._width or isinstance(features, Unusable):
            return features
        if not width:
            return Unusable(NO_FEATURES)
        return self._call(node, "aten.slice.Tensor", (features, 1, 0, width), kind=ValueType("vertex", (width,)))

    def _features(self, node: Node, width: int) -> Ref | Unusable:
        if "features" in self._types:
            return Ref("features")
        if not width:
            return Unusable(NO_FEATURES)
        kind = ValueType("vertex", (width,))
        return self._call(node, "lotan.vertex_input", ("features",), kind=kind, name="features")

    def _features_of(self, node: Node, number: int) -> Argument | Unusable:
        """Return the features of a type of vertices: the first columns of the features of all."""
        assert self._vertex_types is not None
        width = self._vertex_types.widths[number]
        if not width:
            return Unusable(FOREIGN_TENSOR)
        features = self._features(node, self._vertex_types.width)
        if isinstance(features, Unusable):
            return features
        return self._call(node, "aten.slice.Tensor", (features, 1, 0, width), kind=ValueType("vertex", (width,)))

    def _groups(self, node: Node) -> Ref:
        """Return the numbers of the vertices' groups, the last of their features."""
        found = self._last_feature(node)
        return self._call(node, "aten.to.dtype", (found, "torch.int64"), kind=ValueType("vertex", (), "int64"))

    def _last_feature(self, node: Node) -> Ref:
        features = self._features(node, self._width)
        assert isinstance(features, Ref)  # there is one at least
        return self._call(node, "aten.select.int", (features, 1, self._width - 1), kind=ValueType("vertex", ()))

    def _constant(self, node: Node) -> None:
        """Translate a constant. Only a Python number is allowed, because other constants do not travel with the model."""
        value = getattr(self._module, str(node.target))
        self._values[node] = Unusable(FOREIGN_TENSOR)
        if value.dim() == 0 and value.dtype == torch.float32:
            kind = ValueType("none", ())
            self._values[node] = self._call(node, "aten.scalar_tensor.default", (float(value),), kind=kind)
