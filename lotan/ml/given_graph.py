"""The graph around a dataset, which a user gives to an estimator or to a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from pyspark.sql import DataFrame

from lotan.ml.params import GraphParams
from lotan.ml.tables import Given, require_frame


class HasGraph(GraphParams):
    """The base class of estimators and models, which take edges and vertices as tables or by name.

    A model has its estimator's tables until it is given others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._given = Given()

    def setEdges(self, edges: DataFrame | str) -> Self:
        """Set the edges.

        Args:
            edges: a DataFrame, which is not saved with the estimator or model, or the name of a table or view.
        """
        return self._give("edges", edges)

    def setVertices(self, vertices: DataFrame | str) -> Self:
        """Set all vertices, with their features. A dataset is then a part of them.

        Args:
            vertices: a DataFrame, which is not saved with the estimator or model, or the name of a table or view.
        """
        return self._give("vertices", vertices)

    def setGraph(self, graph: Any) -> Self:
        """Set all vertices and the edges.

        Args:
            graph: a GraphFrame, or another object with the DataFrames `vertices` and `edges`.
        """
        return self.setVertices(graph.vertices).setEdges(graph.edges)

    def _set(self, **params: Any) -> Self:
        """Set Params. The name of a table replaces a DataFrame that was given before."""
        named = {name: None for name in ("edges", "vertices") if params.get(name) is not None}
        if named:
            self._given = replace(self._given, **named, made={})
        return super()._set(**params)

    def _around(self, dataset: Any) -> tuple[Self, Any]:
        """Return the estimator or model that takes a dataset's rows, and these rows.

        For a GraphFrame these are its vertices, and a copy that has the GraphFrame's edges takes them.
        """
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
