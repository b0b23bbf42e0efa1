"""Learned rows of a model: they are drawn for the vertices of a graph, and checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from lotan.errors import ConfigurationError, GraphError
from lotan.graph.arrays import Ids, positions_of
from lotan.graph.faults import shown
from lotan.graph.graph import Graph
from lotan.graph.row_keys import vertex_keys
from lotan.nn.learned_features import LearnedFeatures
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.row_steps import has_row_step
from lotan.settings.row_tables import addresses_of
from lotan.settings.tasks import LinkPrediction
from lotan.stages.randomness import Randomness, random_rows
from lotan.tracing.learned import may_have_rows, type_of
from planner.spec import Spec

SHOWN = 3
"""The ids that an error names."""

LEAST_IN_SPARK = 64 << 20
"""The bytes of learned rows from which on they lie in Spark. For fewer, the jobs of a step take longer than the way here."""


def draw_rows(model: torch.nn.Module, graph: Graph, config: TrainerConfig) -> None:
    """Give each module of learned rows in a model a row for each vertex of a graph, if it has none yet.

    The numbers depend on the seed, the name of the parameter and the vertex's id alone.

    Raises:
        ConfigurationError: If the engine that was asked for has no learned rows.
        GraphError: If the rows are those of other vertices.
    """
    found = {name: one for name, one in model.named_modules() if isinstance(one, LearnedFeatures)}
    if not found:
        return
    check_engine_of_rows(config, next(iter(found)))
    for name, module in found.items():
        ids = _ids_of(graph, type_of(name, module, graph.vertex_types))
        if not module.has_rows:
            like, keys = torch.empty(len(ids), module.width), torch.from_numpy(vertex_keys(ids))
            rows = random_rows(like, "normal", 0.0, Randomness(config.seed, 0), f"{name}.weight", keys)
            module.set_rows(ids, rows * module.std)
        elif module.ids is None and len(module.weight) == len(ids):
            module.ids = ids  # the rows were loaded from a state_dict, which has no ids
        else:
            check_ids(name, module.ids, len(module.weight), ids)


def _ids_of(graph: Graph, number: int) -> Ids:
    """Return the ids of the vertices of a type as they were given, ascending."""
    joint, types = graph.ids, graph.given_types
    return joint if types is None else types.rows_of_type(number, joint)[1]


def ids_by_type(graph: Graph, spec: Spec) -> dict[str, Ids]:
    """Return the ids of the vertices with learned rows, ascending, by the name of their type; "" in a graph of one type."""
    names = () if graph.vertex_types is None else graph.vertex_types.names
    kinds = sorted(set(spec.types_of_rows.values()))
    return {kind: _ids_of(graph, names.index(kind) if names else 0) for kind in kinds}


def check_ids(name: str, known: Ids | None, rows: int, ids: Ids) -> None:
    """Check that learned rows are those of a graph's vertices.

    Args:
        name: The name of the rows, for the error.
        known: The ids of the rows, ascending; None: not known.
        rows: The number of rows.
        ids: The ids of the graph's vertices, ascending.

    Raises:
        GraphError: If they are not. It names how many ids differ, and some of them.
    """
    if known is None:
        raise GraphError(
            f"{name} has {rows:,} learned rows, and the graph has {len(ids):,} vertices; give the model the graph that the rows "
            "were made for"
        )
    if len(known) == len(ids) and np.array_equal(known, ids):
        return
    raise GraphError(
        f"{name} has learned rows for other vertices: {difference(known, ids)}. Train a new model on this graph, or give this "
        "model the graph that its rows were made for"
    )


def difference(known: Ids, ids: Ids) -> str:
    """Return in words how the vertices of a graph differ from those with learned rows."""
    if (known.dtype == object) != (ids.dtype == object):
        kinds = ("strings", "integers") if known.dtype == object else ("integers", "strings")
        return f"the ids of the rows are {kinds[0]}, and those of the graph are {kinds[1]}"
    unseen, gone = np.setdiff1d(ids, known), np.setdiff1d(known, ids)
    parts = [f"{len(unseen):,} of {len(ids):,} vertices have no row ({examples(unseen)})"] * bool(len(unseen))
    parts += [f"{len(gone):,} of {len(known):,} rows have no vertex ({examples(gone)})"] * bool(len(gone))
    return ", and ".join(parts)


def examples(ids: Ids) -> str:
    """Return some ids as text."""
    named = ", ".join(str(shown(one)) for one in ids[:SHOWN].tolist())
    return f"such as {named}" if len(ids) > SHOWN else named


def check_engine_of_rows(config: TrainerConfig, name: str) -> None:
    """Check that an engine that was asked for has learned rows.

    Args:
        config: The settings, with the engine.
        name: The name of the rows, for the error.

    Raises:
        ConfigurationError: If it has not.
    """
    if config.engine == "rows":
        raise ConfigurationError(
            f"engine rows has no learned rows, and the model learns {name or 'rows'!r}; use engine='blocks', or engine='local', "
            "which reads the graph into this process"
        )


def check_learned_rows(config: TrainerConfig, spec: Spec) -> None:
    """Check that an engine that was asked for has learned rows, if a traced model has some.

    Raises:
        ConfigurationError: If it has not.
    """
    if spec.learned:
        check_engine_of_rows(config, next(iter(spec.learned)))


def rows_in_spark(config: TrainerConfig, spec: Spec, vertices: int) -> bool:
    """Return True if learned rows lie in Spark on the blocks engine, with the state of their optimizer.

    They lie in this process if they are few, in mini-batches, in graphs of several types, where this process scores links
    or computes a penalty, and where their optimizer is not among those of `lotan.settings.row_steps`.

    Args:
        config: The settings of the run.
        spec: The traced model.
        vertices: The number of vertices.
    """
    few = 4 * vertices * sum(spec.learned.values()) < LEAST_IN_SPARK
    read_here = isinstance(config.regime, MiniBatch) or isinstance(config.task, LinkPrediction)
    if not spec.learned or few or read_here or spec.vertex_types is not None or config.penalty is not None:
        return False
    return has_row_step(config.optimizer)


def place_of_rows(config: TrainerConfig, spec: Spec, in_spark: bool = False) -> dict[str, str]:
    """Return the place of learned rows in words, as an option of a plan; nothing if they are in this process.

    Args:
        config: The settings of the run.
        spec: The traced model.
        in_spark: True if they lie in Spark.

    Raises:
        ConfigurationError: If there are row tables, and the model has no learned rows.
    """
    if in_spark:
        return {"learned_in": "in Spark, with the state of their optimizer"}
    if config.regime.is_stored:
        return {"learned_in": "in partitions on a disk, with the state of their optimizer"}
    if config.tables is None:
        return {}
    if not spec.learned:
        raise ConfigurationError(
            f"tables is {config.tables!r}, but the model has no learned rows, such as those of lotan.nn.LearnedFeatures: leave "
            "tables out"
        )
    count = len(addresses_of(config.tables)) or config.tables
    return {
        "learned_in": f"in {count} row {'table' if count == 1 else 'tables'}, with asynchrony {config.asynchrony!r}"
    }


def vertices_of(model: torch.nn.Module, graph: Graph) -> tuple[int, ...]:
    """Return the numbers of vertices by type, if a model may have a row for each; else (), which reads nothing of the graph."""
    if not may_have_rows(model):
        return ()
    types = graph.vertex_types
    return (graph.num_vertices,) if types is None else tuple(map(graph.vertices_of_type, range(len(types.names))))


Unseen = Literal["error", "mean"]
"""The ways to treat a vertex without a learned row in a prediction: raise an error, or give it the mean of all rows."""


def by_id(
    weights: Mapping[str, torch.Tensor],
    learned: Mapping[str, str],
    known: Mapping[str, Ids],
    ids: Mapping[str, Ids],
    unseen: Unseen = "error",
) -> dict[str, torch.Tensor]:
    """Return a model's weights with its learned rows in the order of a graph's vertices.

    Args:
        weights: The parameters and buffers, by name.
        learned: The names of those with a row for each vertex, each with the type of these vertices.
        known: The ids of the rows, ascending, by the type of their vertices.
        ids: The ids of the graph's vertices, ascending, by type.
        unseen: The way to treat a vertex without a row.

    Raises:
        GraphError: If vertices have no row and `unseen` is "error". It names how many there are, and some of them.
    """
    found = dict(weights)
    for kind in sorted(set(learned.values())):
        names = [name for name in learned if learned[name] == kind]
        found |= _by_id(weights, names, kind, known[kind], ids[kind], unseen)
    return found


def _by_id(
    weights: Mapping[str, torch.Tensor], names: Sequence[str], kind: str, known: Ids, ids: Ids, unseen: Unseen
) -> dict[str, torch.Tensor]:
    """Return the learned rows of the vertices of one type, in the order of a graph's vertices."""
    if len(known) == len(ids) and np.array_equal(known, ids):
        return {}
    if (known.dtype == object) != (ids.dtype == object):
        raise GraphError(f"{names[0]}: {difference(known, ids)}. Give a graph whose vertices have the ids of training.")
    places = torch.from_numpy(positions_of(known, ids))
    missing = places < 0
    if bool(missing.any()) and unseen == "error":
        without = ids[missing.numpy()]
        raise GraphError(
            f"{names[0]}: {len(without):,} of {len(ids):,} vertices{f' of type {kind!r}' * bool(kind)} have no learned row "
            f"({examples(without)}), because the graph "
            'of training did not have them. Leave them out, or give them the mean of all rows, predict(..., unseen="mean").'
        )
    found = {}
    for name in names:
        rows = weights[name][places.clamp(min=0)]
        rows[missing] = weights[name].mean(0)
        found[name] = rows
    return found


def check_unseen(unseen: Any) -> None:
    """Check the value of the option `unseen`.

    Raises:
        ConfigurationError: If it is none of its values.
    """
    if unseen not in get_args(Unseen):
        raise ConfigurationError(f"unseen is {unseen!r}; expected {' or '.join(map(repr, get_args(Unseen)))}")
