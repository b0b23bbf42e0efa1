"""The names of a graph's columns, as a user gives them and as the tables have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from inspect import signature
from typing import Any, TypeGuard

from lotan.arguments import unknown
from lotan.errors import GraphError
from lotan.graph.splits import by_split
from planner.loss import Task
from planner.spec import SPLITS

OPTIONAL_EDGES = {"weight": "weight", "edge_features": "edge_attr", "edge_type": "edge_type"}
"""The arguments for columns of edges that a graph in files may have, each with the column's name there."""
MASKS = tuple(f"{name}_mask" for name in SPLITS)
"""The columns of masks, as PyG calls them, that are read if there is no column `split`. The first must be there."""
EDGE_SPLIT, RELATION = "split", "relation"
"""The columns of edges that link tasks read: the split of each edge, and its relation."""
ENDS = ("src", "dst")
"""The default names of the ends of edges."""
OTHER_ENDS = ("source", "target")
"""The names that networkx gives the ends of edges. They are read if the columns `src` and `dst` are absent."""


@dataclass(frozen=True)
class ColumnNames:
    """The names of a graph's columns."""

    # one array column, several columns of numbers, or a pattern of names; () for no features
    features: str | tuple[str, ...] = "features"
    label: str | None = "label"  # a column of this default name may be absent
    split: str | tuple[str, ...] | None = "split"  # as label; or the names of three masks, "" for one that is absent
    weight: str | None = None
    edge_features: str | tuple[str, ...] | None = None  # as features; None for no attributes
    edge_type: str | None = None
    id: str = "id"
    src: str = "src"
    dst: str = "dst"
    batch: str | None = None  # the numbers of the groups of vertices
    # The columns of edges that only link tasks read, see `with_links`. They may be absent.
    edge_split: str | None = None
    relation: str | None = None
    vertex_weight: str | None = "vertex_weight"  # a column of this default name may be absent
    # The reading of labels in Spark, which `lotan.graph.frames.settled` finds: as classes (True) or as numbers (False).
    as_classes: bool | None = None
    as_missing: int | None = None  # the number among targets that stands for no label
    classes: tuple[str, ...] = ()  # the texts that stand for classes 0, 1, ...; empty if labels are numbers

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        return (self.features,) if isinstance(self.features, str) else self.features

    @property
    def edge_feature_columns(self) -> tuple[str, ...]:
        """The names of the columns of edges' attributes."""
        return (self.edge_features,) if isinstance(self.edge_features, str) else self.edge_features or ()

    def as_given(self, table: str, column: str) -> str:
        """Return what the user calls a column that Lotan knows under a name of its own.

        >>> ColumnNames(label="segment").as_given("vertices", "label")
        'segment'
        """
        given: dict[str, str | tuple[str, ...] | None]
        if table == "edges":
            given = {ours: getattr(self, argument) for argument, ours in OPTIONAL_EDGES.items()}
            given["src, dst"] = f"{self.src}, {self.dst}"
        else:
            given = {ours: getattr(self, ours) for ours in ("id", "features", "label", "split", "vertex_weight")}
        name = given.get(column)
        if isinstance(name, tuple) and len(name) == 1:
            return name[0]
        return name if isinstance(name, str) else column  # there is none, or there are several

    @property
    def split_columns(self) -> tuple[str, ...]:
        """The name of the column of splits, or of the masks that there are."""
        return (self.split,) if isinstance(self.split, str) else tuple(filter(None, self.split or ()))

    @property
    def task(self) -> Task:
        """A task under which labels are read again as they were read before: as classes, or as numbers."""
        return "classification" if self.as_classes else "regression"

    def weight_words(self, weighted: bool) -> str:
        """Return the place of the edges' weights in words, for explain and for a run's first line.

        Args:
            weighted: if True, the edges have weights, perhaps from an array instead of a column.

        >>> ColumnNames(weight="w").weight_words(True), ColumnNames().weight_words(True), ColumnNames().weight_words(False)
        ('column w', 'array', 'none')
        """
        return f"column {self.weight}" if self.weight is not None else "array" if weighted else "none"

    def standard_edges(self) -> ColumnNames:
        """Return the names that the same columns of edges have in a graph's own tables; the other names are the defaults."""
        return ColumnNames(
            batch=self.batch,
            weight=None if self.weight is None else "weight",
            edge_features=None if self.edge_features is None else "edge_attr",
            edge_type=None if self.edge_type is None else "edge_type",
            edge_split=None if self.edge_split is None else EDGE_SPLIT,
            relation=None if self.relation is None else RELATION,
        )

    def with_links(self) -> ColumnNames:
        """Return the names with those of the edges' splits and relations, which link tasks read if they are there."""
        return replace(self, edge_split=EDGE_SPLIT, relation=RELATION)

    def present(self, columns: Sequence[str]) -> ColumnNames:
        """Return the names as a table of vertices has them. Calling it twice changes nothing.

        Features, label, split and weights are left out if they have their default names and are not there. Three masks stand in
        for the split, and a pattern of features becomes the columns that it matches.

        >>> names = ColumnNames(features="f_*").present(["id", "f_a", "f_b", "train_mask", "val_mask", "test_mask"])
        >>> names.features, names.label, names.split
        (('f_a', 'f_b'), None, ('train_mask', 'val_mask', 'test_mask'))
        """
        label = None if self.label == "label" and "label" not in columns else self.label
        weight, split = self.vertex_weight, self.split
        weight = None if weight == "vertex_weight" and weight not in columns else weight
        if split == "split" and "split" not in columns:
            masks = tuple(mask if mask in columns else "" for mask in MASKS)
            split = masks if masks[0] else None
        splits = (split,) if isinstance(split, str) else split or ()
        taken = {name for name in (self.id, self.batch, label, weight, *splits) if name}
        absent = self.features == "features" and "features" not in columns
        features = () if absent else _matched(self.features, columns, taken)
        return replace(self, label=label, split=split, features=features, vertex_weight=weight)

    def present_edges(self, columns: Sequence[str]) -> ColumnNames:
        """Return the names as a table of edges has them. Calling it twice changes nothing.

        >>> names = ColumnNames().present_edges(["source", "target"])
        >>> names.src, names.dst
        ('source', 'target')
        """
        src, dst = self.src, self.dst
        absent = not any(name in columns for name in ENDS)
        if (src, dst) == ENDS and absent and all(name in columns for name in OTHER_ENDS):
            src, dst = OTHER_ENDS
        taken = {src, dst, *(name for name in (self.weight, self.edge_type) if name)}
        features = None if self.edge_features is None else _matched(self.edge_features, columns, taken)
        split, relation = (name if name in columns else None for name in (self.edge_split, self.relation))
        return replace(self, src=src, dst=dst, edge_features=features, edge_split=split, relation=relation)

    @property
    def has_pattern(self) -> bool:
        """True if the name of the features may be a pattern of several columns."""
        return _may_match(self.features)

    def with_matched_features(self, columns: Sequence[str]) -> ColumnNames:
        """Return the names with the columns that a pattern of features matches, in place of the pattern.

        >>> ColumnNames(features="f_*").with_matched_features(["id", "f_b", "f_a"]).features
        ('f_b', 'f_a')
        """
        return replace(self, features=self.present(columns).features or self.features)

    def with_own_attributes(self, columns: Sequence[str]) -> ColumnNames:
        """Return the names for a relation's table of edges, which may have no attributes where others have some.

        >>> names = ColumnNames(edge_features="e_*")
        >>> [names.with_own_attributes(columns).edge_features for columns in (["src", "e_1"], ["src"])]
        ['e_*', None]
        """
        known = [name for name in columns if isinstance(name, str)]
        here = any(fnmatchcase(name, given) for given in self.edge_feature_columns for name in known)
        return self if here else replace(self, edge_features=None)

    def with_optional(self, columns: Sequence[str], given: Iterable[str] = ()) -> ColumnNames:
        """Return the names with the columns of edges that files may have, if they are there.

        Args:
            columns: the columns of the edges.
            given: the arguments that the user gave, which stay as they are.
        """
        found: dict[str, Any] = {argument: name for argument, name in OPTIONAL_EDGES.items() if name in columns}
        return replace(self, **{argument: name for argument, name in found.items() if argument not in given})

    def with_present_weight(self, columns: Sequence[str]) -> ColumnNames:
        """Return the names without that of the weights if it is the default name, and the edges have no such column."""
        absent = self.weight == OPTIONAL_EDGES["weight"] and self.weight not in columns
        return replace(self, weight=None) if absent else self

    def of_vertices(self) -> list[str]:
        """Return the columns that are read from the vertices."""
        others = [name for name in (self.label, self.batch, *self.split_columns, self.vertex_weight) if name]
        return list(dict.fromkeys([self.id, *self.feature_columns, *others]))

    def of_features(self) -> list[str]:
        """Return the columns of the vertices of which their features are made."""
        return list(dict.fromkeys([*self.feature_columns, *([self.batch] if self.batch else [])]))

    def of_edges(self) -> list[str]:
        """Return the columns that are read from the edges."""
        more = [name for name in (self.weight, self.edge_type, self.edge_split, self.relation) if name]
        return list(dict.fromkeys([self.src, self.dst, *more, *self.edge_feature_columns]))


BARE = ColumnNames(features=(), label=None, split=None, vertex_weight=None)
"""The names in tables that have nothing but ids, and edges."""


def column_names(
    features: Any = "features",
    label: Any = "label",
    split: Any = "split",
    weight: Any = None,
    edge_features: Any = None,
    edge_type: Any = None,
    id: Any = "id",
    src: Any = "src",
    dst: Any = "dst",
    vertex_weight: Any = "vertex_weight",
    batch: Any = None,
) -> ColumnNames:
    """Return the names that a user gives, see `lotan.Graph` for the arguments.

    Raises:
        GraphError: a name is no string.
    """
    optional = {
        "label": label,
        "weight": weight,
        "edge_type": edge_type,
        "vertex_weight": vertex_weight,
        "batch": batch,
    }
    for name, column in optional.items():
        if column is not None and not isinstance(column, str):
            raise GraphError(f"{name} is {column!r}; expected the name of a column, or None.")
    for name, column in (("id", id), ("src", src), ("dst", dst)):
        if not isinstance(column, str):
            raise GraphError(f"{name} is {column!r}; expected the name of a column.")
    attributes = None if edge_features is None else _one_or_several("edge_features", edge_features)
    splits = _split_names(split)
    return ColumnNames(
        () if features is None else _one_or_several("features", features),
        label,
        splits,
        weight,
        attributes,
        edge_type,
        id,
        src,
        dst,
        vertex_weight=vertex_weight,
        batch=batch,
    )


_MEANT = {
    "x": "name its column by features",
    "y": "name its column by label",
    "edge_attr": "name its columns by edge_features",
    "edge_weight": "name its column by weight",
    "edge_index": "use Graph.from_arrays(features, edge_index=...)",
    "task": "pass it to the Trainer, as task=",
    "train_mask": 'name the three columns by split=["train_mask", "val_mask", "test_mask"]',
}
_MEANT_BY_TYPE = _MEANT | {
    "undirected": "give the reverses as relations of their own",
    "edge_type": "each relation is a type of edges; give it as a table of its own",
    "batch": "a graph of several types has no groups of vertices",
}


def refuse_unknown(owner: str, others: Iterable[str], takes: Iterable[str], by_type: bool = False) -> None:
    """Raise a GraphError if a class of graphs was given arguments that it does not take.

    Args:
        owner: the name of the class.
        others: the names of the arguments.
        takes: the names of those that it takes.
        by_type: if True, it is the class of graphs with several types of vertices (default: False).
    """
    if others := list(others):
        raise unknown(owner, others, takes, _MEANT_BY_TYPE if by_type else _MEANT, GraphError)


NAME_ARGUMENTS = tuple(signature(column_names).parameters)
"""The arguments that name a graph's columns."""


def _split_names(split: Any) -> str | tuple[str, ...] | None:
    if split is None or isinstance(split, str):
        return split
    if isinstance(split, Mapping):
        return _by_split(split)
    several = _one_or_several("split", split)
    if len(several) != len(SPLITS):
        raise GraphError(f"split is {split!r}; expected the name of a column, or of three masks: train, val and test.")
    return tuple(several)


def _by_split(masks: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the names of three masks, which a mapping has by the names of their splits.

    >>> _by_split({"train": "is_train", "valid": "is_val"})
    ('is_train', 'is_val', '')
    """
    found = by_split(masks)
    if found is None or not all(isinstance(column, str) for column in found.values()):
        raise GraphError(f"split is {masks!r}; expected the columns of masks by 'train', 'val' and 'test'.")
    return tuple(found.get(code, "") for code in range(len(SPLITS)))


def _one_or_several(argument: str, given: Any) -> str | tuple[str, ...]:
    if isinstance(given, Set | Mapping):
        raise GraphError(f"{argument} is {given!r}, which has no order of columns; expected a list of their names.")
    several = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if not several or not all(isinstance(name, str) for name in several):
        raise GraphError(f"{argument} is {given!r}; expected the name of a column, or a list of such names.")
    return given if isinstance(given, str) else tuple(several)


def _may_match(given: str | tuple[str, ...]) -> TypeGuard[str]:
    return isinstance(given, str) and any(mark in given for mark in "*?[")


def _matched(given: str | tuple[str, ...], columns: Sequence[str], taken: set[str]) -> str | tuple[str, ...]:
    """Return the columns that a pattern such as "f_*" matches, in the table's order, without those in `taken`."""
    if not _may_match(given) or given in columns:
        return given
    found = tuple(name for name in columns if isinstance(name, str) and fnmatchcase(name, given) and name not in taken)
    if not found:
        shown = ", ".join(map(str, columns)) or "none"
        raise GraphError(f"No column matches {given!r}; the columns are {shown}. Give another pattern, or their names.")
    return found
