"""The arguments of a model for several types of vertices: dictionaries with a tensor for each type, or for each relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.tracing.pyg.edge_tensors import EdgeTensors
from lotan.tracing.pyg.importing import Importer
from lotan.tracing.pyg.meanings import Index
from lotan.tracing.signature import BY_TYPE, Wanted
from planner.edge_sets import edge_set
from planner.vertex_types import VertexTypes


class ByType(dict[Any, Tensor]):
    """A tensor for each type of vertices or each relation. Asking for one that the graph lacks is an error that names it.

    Args:
        tensors: the tensors that there are.
        lacking: returns the reason why a key has no tensor, or None for a key of another kind.
        refuse: returns the error for a reason.
        asks: if True, `key in tensors` is an error as well where the graph lacks the key (default: False).
    """

    def __init__(
        self,
        tensors: Mapping[Any, Tensor],
        lacking: Callable[[Any], str | None],
        refuse: Callable[[str], ModelError],
        asks: bool = False,
    ) -> None:
        super().__init__(tensors)
        self._lacking, self._refuse, self._asks = lacking, refuse, asks

    def _require(self, key: Any) -> None:
        reason = None if super().__contains__(key) else self._lacking(key)
        if reason is not None:
            raise self._refuse(reason)

    def __getitem__(self, key: Any) -> Tensor:
        self._require(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the tensor of a key, or the default for a key of another kind."""
        self._require(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        if self._asks:
            self._require(key)
        return super().__contains__(key)


class ImporterByType(Importer):
    """Calls a model with the dictionaries that its forward asks for.

    Args:
        wanted: the arguments that forward takes.
        types: the types of vertices and the relations of the graph.
        weighted: if True, the edges have weights.
        model: the model. Its dictionaries have the relations in the order in which a layer of it was given them, because
            PyG's HGTConv takes no other.
    """

    def __init__(self, wanted: Wanted, types: VertexTypes, weighted: bool, model: torch.nn.Module) -> None:
        super().__init__(wanted, weighted)
        self._types = types
        given = (getattr(module, "edge_types", None) for module in model.modules())
        first: Any = next((one for one in given if isinstance(one, list | tuple)), ())
        known = {relation: number for number, relation in enumerate(types.relations)}
        self._order = list(dict.fromkeys([known[one] for one in map(tuple, first) if one in known] + [*known.values()]))
        self._counts: dict[str, Any] = {}  # the numbers of vertices of each type in a trace

    def plain(self, features: Tensor, graph: EdgeIndex) -> dict[str, Any]:
        """Return the arguments for a run on plain tensors, given the rows of all types and the edges of all relations."""
        numbers = features[:, self._types.type_column]
        places = torch.zeros(len(features), dtype=torch.int64)  # of a vertex among those of its type
        rows: dict[str, Tensor] = {}
        for number, name in enumerate(self._types.names):
            here = (numbers == number).nonzero().view(-1)
            places[here] = torch.arange(len(here))
            rows[name] = features[here]
        edges = [graph.edges(edge_set("graph", number)) for number in range(len(self._types.relations))]
        return self._dictionaries(
            {name: rows[name][:, :width] for name, width in self._with_features()},
            [places[one.index] for one in edges],
            lambda name, number: edges[number].weight if name == "edge_weight" else edges[number].columns[name],
            {name: len(of_type) for name, of_type in rows.items()},
            ModelError,
        )

    def rows(self, features: Tensor) -> Tensor:
        """Return the positions of the rows that the model returns, int64 [rows]."""
        return (features[:, self._types.type_column] == self._types.target).nonzero().view(-1)

    def output(self, result: Any, refuse: Callable[[str], ModelError]) -> Tensor:
        """Return the rows of the type that has labels, of what forward returns."""
        if isinstance(result, dict):
            if not isinstance(result.get(self._types.task), Tensor):
                found = ", ".join(str(name) for name, rows in result.items() if isinstance(rows, Tensor)) or "no type"
                raise refuse(
                    f"forward returns rows of {found}, and none of {self._types.task!r}, whose vertices have the labels"
                )
            result = result[self._types.task]
        rows = super().output(result, refuse)
        of = self._type_of(rows)
        if of not in (None, self._types.task):
            raise refuse(f"forward returns rows of {of!r}, but the labels are those of {self._types.task!r}")
        return rows

    def _type_of(self, rows: Tensor) -> str | None:
        """Return the type of the vertices that rows of a trace belong to, or None if it is not known."""
        size: Any = rows.shape[0] if rows.dim() else None
        for name, count in self._counts.items():
            if isinstance(size, torch.SymInt) and size.node.expr == count.node.expr:
                return name
        return None

    def _given(self, tensors: EdgeTensors, features: Any, graph: EdgeIndex, model: torch.nn.Module) -> dict[str, Any]:
        sets = [edge_set("graph", number) for number in range(len(self._types.relations))]
        self._counts = {name: rows.shape[0] for name, rows in features.items()}
        for name, (source, _, destination) in zip(sets, self._types.relations, strict=True):
            of = graph.edges(name)
            self._counts |= {source: of.num_sources, destination: of.num_vertices}
        index = [tensors.index(Index(name)) for name in sets]

        def column(name: str, number: int) -> Tensor:
            edges = sets[number]
            return tensors.weight(edges) if name == "edge_weight" else tensors.column(name, edges)

        return self._dictionaries(features, index, column, self._counts, tensors.refuse)

    def _with_features(self) -> list[tuple[str, int]]:
        return [pair for pair in zip(self._types.names, self._types.widths, strict=True) if pair[1]]

    def _dictionaries(
        self,
        rows: Mapping[str, Tensor],
        index: list[Tensor],
        column: Callable[[str, int], Tensor],
        counts: Mapping[str, Any],
        refuse: Callable[[str], ModelError],
    ) -> dict[str, Any]:
        relations = self._types.relations
        edges = ByType({relations[at]: index[at] for at in self._order}, self._no_relation, refuse, asks=True)
        given: dict[str, Any] = {}
        if self._wanted.features:
            given[self._wanted.features] = ByType(rows, self._no_features, refuse)
        if self._wanted.numbers:
            given[self._wanted.numbers] = {name: torch.arange(count) for name, count in counts.items()}
        given |= dict.fromkeys(self._wanted.index, edges)
        for name in self._wanted.of_edges:
            plain = name.removesuffix(BY_TYPE)
            if plain == "edge_attr":
                given[name] = ByType(self._attributes(column), self._no_attributes, refuse)
            else:
                of_all = {relations[number]: column(plain, number) for number in self._order}
                given[name] = ByType(of_all, self._no_relation, refuse)
        return given

    def _attributes(self, column: Callable[[str, int], Tensor]) -> dict[Any, Tensor]:
        """Return the attributes of the edges of each relation that has any, [num_edges, width], or [num_edges] as given."""
        found = {}
        widest = max(self._types.edge_widths)
        for number, relation in enumerate(self._types.relations):
            if width := self._types.attributes(number):
                whole = column("edge_attr", number)
                own = whole if width == widest else whole[:, :width]
                found[relation] = own.squeeze(-1) if relation in self._types.flat else own
        return found

    def _no_attributes(self, relation: Any) -> str | None:
        if relation not in self._types.relations:
            return self._no_relation(relation)
        return f"reads attributes of edges {' -> '.join(relation)}, which have none; give them some as edge_features"

    def _no_features(self, name: Any) -> str | None:
        if name in self._types.names:
            return f"reads features of vertices of type {name!r}, which have none; give them some, such as a 1 or their degree"
        there = ", ".join(self._types.names)
        return f"asks for vertices of type {name!r}; the graph has {there}" if isinstance(name, str) else None

    def _no_relation(self, relation: Any) -> str | None:
        if not isinstance(relation, tuple):
            return None
        there = "; ".join(self._types.said(number) for number in range(len(self._types.relations)))
        return f"asks for edges {' -> '.join(map(str, relation))}, which the graph lacks; it has {there}"
