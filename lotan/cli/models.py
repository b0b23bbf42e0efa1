"""The model that --model names, as a module."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from lotan.errors import ConfigurationError, GraphError
from lotan.graph.graph import Graph
from lotan.nn.named_models import OWN, STOCK, factory_of, made
from lotan.planning.models import GUESSED_OUTPUTS
from lotan.planning.prepare import foreseen_of
from lotan.settings.config import TrainerConfig
from lotan.settings.losses import one_output
from planner.footprint import Footprint
from planner.vertex_types import VertexTypes

MOST_CLASSES = 10_000
"""More classes than this and than vertices are a mistake. A model would run out of memory before anybody noticed."""


def make_model(
    options: argparse.Namespace, in_channels: int | dict[str, int], out_channels: int, types: VertexTypes | None = None
) -> torch.nn.Module:
    """Return the model that the command line asks for, with weights drawn by --seed.

    Args:
        options: The options of the command.
        in_channels: The number of features of a vertex, or of the vertices of each type.
        out_channels: The number of outputs.
        types: The types of vertices of the graph; None: it has one.

    Raises:
        ConfigurationError: If the model, module or factory is unknown, or if the model does not have an option.
        ModelError: If the factory fails, or returns something other than a module.
    """
    if types is not None and options.model in STOCK:
        raise ConfigurationError(
            f"--model {options.model} is for one type of vertices, but the graph has {', '.join(types.names)}; give one of your "
            "own, MODULE:FACTORY, whose forward takes x_dict and edge_index_dict"
        )
    factory = factory_of(options.model, "--model")
    arguments = _arguments(options, in_channels, out_channels)
    if types is not None:
        arguments["metadata"] = list(types.names), list(types.relations)
    return made(factory, arguments, options.seed, f"--model {options.model}")


def model_for(options: argparse.Namespace, graph: Graph) -> torch.nn.Module:
    """Return the model that the command line asks for, with the widths of the graph's features and labels.

    Raises:
        GraphError: If the graph has no features or labels, or if class numbers go far beyond the number of vertices.
        ConfigurationError, ModelError: If `make_model` raises it.
    """
    task = getattr(options, "task", None)
    if task == "link":
        return _encoder(options, graph)
    graph = graph.for_task(task)
    width, outputs, vertices = graph.statistics.width, graph.labels.outputs, graph.statistics.vertices
    if not width and options.model in STOCK:
        raise GraphError(
            "vertices.features: they have no numbers. Give each vertex at least one, or a model of your own with "
            "lotan.nn.LearnedFeatures (--model MODULE:FACTORY)."
        )
    if not outputs:
        raise GraphError("vertices.label: no vertex has one. Name the column of labels (--label).")
    if outputs > max(MOST_CLASSES, vertices):
        problem = (
            f"classes are numbered up to {outputs - 1:,} on {vertices:,} vertices, and a model has an output for each"
        )
        raise GraphError(f"vertices.label: {problem}. Number them from 0 on, without gaps.")
    loss = getattr(options, "loss", None)
    outputs = 1 if one_output(loss, task or graph.labels.task, outputs) else outputs
    types = graph.vertex_types
    if types is None:
        return make_model(options, width, outputs)
    return make_model(options, dict(zip(types.names, types.widths, strict=True)), outputs, types)


def _encoder(options: argparse.Namespace, graph: Graph) -> torch.nn.Module:
    """Return the model of a link task, whose rows have --hidden numbers."""
    width = graph.statistics.width
    if not width and options.model in STOCK:
        raise GraphError(
            f"vertices.features: they have no numbers, and --model {options.model} reads them. Give each vertex at least one, or "
            "learn rows in their place: --model lotan.nn:LearnedRows --fanouts none."
        )
    if graph.vertex_types is not None:
        raise GraphError(
            "The graph has several types of vertices, and links are predicted on graphs of one type so far."
        )
    return make_model(options, width, options.hidden)


def needs_of(options: argparse.Namespace, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """Return the estimated footprint of the model on a graph in files, before labels are read: its outputs are guessed.

    Raises:
        ConfigurationError: If `make_model` raises it, or if the estimate exceeds the memory limit.
        ModelError: If `make_model` raises it, or if the model cannot be traced.
    """
    if getattr(options, "task", None) == "link":  # the graph is read into this process in any case
        return None
    width = graph.estimate().width if graph.origin == "files" else 0
    return foreseen_of(make_model(options, width, GUESSED_OUTPUTS), graph, config) if width else None


def _arguments(options: argparse.Namespace, in_channels: int | dict[str, int], out_channels: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "in_channels": in_channels,
        "hidden_channels": options.hidden,
        "num_layers": options.layers,
        "out_channels": out_channels,
        "dropout": options.dropout,
    }
    for name, owners in OWN.items():
        value = getattr(options, name)
        if value is None:
            continue
        if options.model in STOCK and options.model not in owners:
            raise ConfigurationError(f"--{name} {value} is for --model {owners[0]}; {options.model} has no such option")
        arguments[name] = value
    return arguments
