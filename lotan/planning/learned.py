"""Learned rows of a model: they are drawn for the vertices of a graph, and checked against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from lotan.errors import ConfigurationError, GraphError
from lotan.graph import Graph
from lotan.graph.arrays import Ids, positions_of
from lotan.graph.faults import shown
from lotan.nn.learned_features import LearnedFeatures
from lotan.settings.config import TrainerConfig
from lotan.settings.row_tables import addresses_of
from lotan.stages.randomness import Randomness, random_rows
from lotan.tracing import may_have_rows
from planner.spec import Spec

SHOWN = 3
"""The ids that an error names."""


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
    check_engine_of_rows(config.engine, next(iter(found)))
    ids, keys = graph.arrays().ids, torch.from_numpy(graph.arrays().keys)
    for name, module in found.items():
        if not module.has_rows:
            like = torch.empty(len(ids), module.width)
            rows = random_rows(like, "normal", 0.0, Randomness(config.seed, 0), f"{name}.weight", keys)
            module.set_rows(ids, rows * module.std)
        elif module.ids is None and len(module.weight) == len(ids):
            module.ids = ids  # the rows were loaded from a state_dict, which has no ids
        else:
            check_ids(name, module.ids, len(module.weight), ids)


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


def check_engine_of_rows(engine: str, name: str) -> None:
    """Check that an engine that was asked for has learned rows.

    Raises:
        ConfigurationError: If it has not.
    """
    if engine not in ("auto", "local"):
        raise ConfigurationError(
            f"engine {engine} has no learned rows so far, and the model learns {name or 'rows'!r}; use engine='local', "
            "which reads the graph into this process"
        )


def for_learned_rows(config: TrainerConfig, spec: Spec) -> TrainerConfig:
    """Return the settings of a traced model: learned rows run on local.

    Raises:
        ConfigurationError: If another engine was asked for.
    """
    if not spec.learned:
        return config
    check_engine_of_rows(config.engine, next(iter(spec.learned)))
    return replace(config, engine="local")


def place_of_rows(config: TrainerConfig, spec: Spec) -> dict[str, str]:
    """Return the place of learned rows in words, as an option of a plan; nothing if they are in this process.

    Raises:
        ConfigurationError: If there are row tables, and the model has no learned rows.
    """
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


def vertices_of(model: torch.nn.Module, graph: Graph) -> int | None:
    """Return the number of vertices, if a model may have a row for each; else None, which reads nothing of the graph."""
    return graph.num_vertices if may_have_rows(model) and graph.vertex_types is None else None


Unseen = Literal["error", "mean"]
"""The ways to treat a vertex without a learned row in a prediction: raise an error, or give it the mean of all rows."""


def by_id(
    weights: Mapping[str, torch.Tensor], learned: Iterable[str], known: Ids, ids: Ids, unseen: Unseen = "error"
) -> dict[str, torch.Tensor]:
    """Return a model's weights with its learned rows in the order of a graph's vertices.

    Args:
        weights: The parameters and buffers, by name.
        learned: The names of those with a row for each vertex.
        known: The ids of the rows, ascending.
        ids: The ids of the graph's vertices, ascending.
        unseen: The way to treat a vertex without a row.

    Raises:
        GraphError: If vertices have no row and `unseen` is "error". It names how many there are, and some of them.
    """
    names = list(learned)
    if not names or (len(known) == len(ids) and np.array_equal(known, ids)):
        return dict(weights)
    if (known.dtype == object) != (ids.dtype == object):
        raise GraphError(f"{names[0]}: {difference(known, ids)}. Give a graph whose vertices have the ids of training.")
    places = torch.from_numpy(positions_of(known, ids))
    missing = places < 0
    if bool(missing.any()) and unseen == "error":
        without = ids[missing.numpy()]
        raise GraphError(
            f"{names[0]}: {len(without):,} of {len(ids):,} vertices have no learned row ({examples(without)}), because the graph "
            'of training did not have them. Leave them out, or give them the mean of all rows, predict(..., unseen="mean").'
        )
    found = dict(weights)
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
