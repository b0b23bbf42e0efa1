"""The graph around a dataset, given to an estimator or to a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from pyspark.sql import DataFrame

from lotan.ml.params import GNNParams
from lotan.ml.tables import Given, require_frame


class HasGraph(GNNParams):
    """What takes edges and vertices as tables or by name. A model has its estimator's, until it is given others."""

    def __init__(self) -> None:
        super().__init__()
        self._given = Given()

    def setEdges(self, edges: DataFrame | str) -> Self:
        """Give the edges: a DataFrame, which is not saved, or the name of a table or view."""
        return self._give("edges", edges)

    def setVertices(self, vertices: DataFrame | str) -> Self:
        """Give all vertices, with features: a dataset is then a part of them. A DataFrame, which is not saved, or a name."""
        return self._give("vertices", vertices)

    def setGraph(self, graph: Any) -> Self:
        """Give all vertices and the edges: a GraphFrame, or anything that has these two DataFrames."""
        return self.setVertices(graph.vertices).setEdges(graph.edges)

    def _set(self, **params: Any) -> Self:
        """Set params; a name is in place of a table that was given before."""
        named = {name: None for name in ("edges", "vertices") if params.get(name) is not None}
        if named:
            self._given = replace(self._given, **named, made={})
        return super()._set(**params)

    def _around(self, dataset: Any) -> tuple[Self, Any]:
        """What is to take a dataset's rows, and these: of a GraphFrame its vertices, taken by a copy that has its edges."""
        if isinstance(dataset, DataFrame) or not (hasattr(dataset, "vertices") and hasattr(dataset, "edges")):
            return self, dataset
        whole = self.copy()
        whole.clear(whole.getParam("vertices"))
        whole._given = Given(edges=dataset.edges)
        return whole, dataset.vertices

    def _give(self, what: str, value: DataFrame | str) -> Self:
        if isinstance(value, str):
            return self._set(**{what: value})
        require_frame(what, value)
        self.clear(self.getParam(what))
        self._given = replace(self._given, **{what: value}, made={})
        return self
