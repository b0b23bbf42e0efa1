"""Options that several commands share, and what they make."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any

from planner.rules import RULE_NAMES

if TYPE_CHECKING:
    from lotan.graph import Graph

OPTIMIZERS = ("adam", "adamw", "sgd", "adagrad")
AGGREGATES = ("mean", "max", "sum")


def number(kind: type[int] | type[float], least: float, below: float | None = None) -> Callable[[str], float]:
    """An argparse type: a number from `least` on, under `below` (None: whole numbers stay under 2**63)."""
    end = below if below is not None else 2**63 if kind is int else float("inf")

    def parse(text: str) -> float:
        value = kind(text)
        if isinstance(value, float) and not isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number")
        if not least <= value < end:
            limit = f" and less than {end:g}" if below is not None or value >= end else ""
            raise argparse.ArgumentTypeError(f"{text[:40]} is not at least {least:g}{limit}")
        return value

    parse.__name__ = "whole number" if kind is int else "number"  # argparse: "invalid whole number value: 'x'"
    return parse


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """--graph and what says how to read it."""
    group = parser.add_argument_group("graph")
    group.add_argument(
        "--graph",
        required=True,
        metavar="PATH|NAME",
        help="a directory with vertices.parquet and edges.parquet, an .npz file, or a name that `lotan datasets` lists",
    )
    group.add_argument("--undirected", action="store_true", help="add the reverse of every edge once (default: no)")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What the model is."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        default="gcn",
        metavar="gcn|sage|gin|gat|mlp|MODULE:FACTORY",
        help="a stock model, or your own: FACTORY in the Python module MODULE is called with those of in_channels,\n"
        "out_channels, hidden_channels, num_layers, dropout, heads, aggr that it has parameters for (default: gcn)",
    )
    group.add_argument("--layers", type=number(int, 1), default=2, metavar="N", help="number of layers (default: 2)")
    group.add_argument("--hidden", type=number(int, 1), default=64, metavar="N", help="hidden channels (default: 64)")
    group.add_argument(
        "--dropout", type=number(float, 0, 1), default=0.5, metavar="P", help="dropout probability (default: 0.5)"
    )
    group.add_argument("--heads", type=number(int, 1), metavar="N", help="attention heads, gat only (default: 1)")
    group.add_argument("--aggr", choices=AGGREGATES, help="aggregation, sage only (default: mean)")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Where and how it runs."""
    group = parser.add_argument_group("plan and engine")
    group.add_argument(
        "--engine",
        default="auto",
        metavar="auto|blocks|rows|local",
        help="blocks: Spark and DL workers, on dense blocks (needs our jar); rows: the same on Spark's rows, slower;\n"
        "local: this process, no Spark; auto: a graph in Spark stays there: blocks, or rows where the session lacks the\n"
        "jar; any other is local's, unless that does not fit in memory, or all epochs together are estimated to take over\n"
        "15 s less on blocks (default: auto)",
    )
    group.add_argument(
        "--plan",
        default="auto",
        metavar="auto|general|NAME",
        help="general: collect neighbourhoods and run all of the model in the DL Engine;\n"
        "auto: push what it can down into the Graph Engine; NAME: one of `lotan explain --alternatives`, such as\n"
        "blocks-hoist_invariant, for blocks without that rule (default: auto)",
    )
    group.add_argument(
        "--disable",
        action="append",
        default=[],
        metavar="RULE",
        help=f"switch a rewrite rule off by name; may be repeated: {', '.join(RULE_NAMES[:4])},\n{', '.join(RULE_NAMES[4:])}",
    )
    group.add_argument(
        "--no-rgb",
        action="store_true",
        help="do without Reverse Graph Backpropagation: one gradient per edge crosses partitions (an ablation,\n"
        "on local and rows)",
    )
    group.add_argument(
        "--propagate",
        choices=("join", "messages"),
        default="join",
        help="on rows; messages: by GraphFrames' aggregateMessages, where its JVM core is on the classpath (default: join)",
    )
    _add_cluster_options(group)


def _add_cluster_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers", type=number(int, 1), metavar="N", help="DL worker processes, not on local (default: one per core)"
    )
    group.add_argument(
        "--partitions",
        type=number(int, 1),
        metavar="N",
        help="partitions of the graph, not on local (default: as many as Spark runs tasks at once)",
    )
    group.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="of all processes of the job on this host together, such as 3g; what does not fit goes to the disk, and\n"
        "a plan that cannot fit is refused before it starts (default: none)",
    )
    group.add_argument(
        "--worker-memory",
        metavar="SIZE",
        help="that a DL worker keeps between forward and backward, such as 512m, not on local\n"
        "(default: 1g, or its share of the limit)",
    )
    group.add_argument(
        "--seed", type=number(int, 0, 2**63), default=0, metavar="N", help="of weights and dropout (default: 0)"
    )
    group.add_argument(
        "--router",
        metavar="URL",
        help="use the Router that `lotan router` started there, and its workers (default: start a Router and workers)",
    )
    group.add_argument("--keys", metavar="DIR", help="CurveZMQ keys for --router (default: none)")
    group.add_argument(
        "--master",
        metavar="URL",
        help="Spark master, such as local[4] or spark://host:7077 (default: spark-submit's, or local[*])",
    )


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """How it is trained."""
    group = parser.add_argument_group("training")
    add_epochs(group, 200)
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="adam", help="with torch's semantics (default: adam)")
    group.add_argument("--lr", type=number(float, 0), default=0.01, metavar="X", help="learning rate (default: 0.01)")
    group.add_argument(
        "--weight-decay", type=number(float, 0), default=5e-4, metavar="X", help="on all parameters (default: 5e-4)"
    )
    add_evaluation_options(group)


def add_epochs(group: argparse._ArgumentGroup, default: int | None) -> None:
    """--epochs; a default of None is said to be 200 as well, but can be told from 200."""
    group.add_argument("--epochs", type=number(int, 1), default=default, metavar="N", help="at most (default: 200)")


def add_evaluation_options(group: argparse._ArgumentGroup) -> None:
    """When it is evaluated, and what comes of that."""
    group.add_argument(
        "--patience",
        type=number(int, 1),
        metavar="N",
        help="stop after N evaluations without a better validation metric, and restore the best weights\n(default: do not)",
    )
    add_eval_every(group)
    group.add_argument(
        "--monitor",
        metavar="METRIC",
        help="on the validation vertices: what picks the best epoch, and among several models the best one, such as loss\n"
        "(default: the task's main one)",
    )


def add_eval_every(group: argparse._ArgumentGroup) -> None:
    """--eval-every."""
    group.add_argument(
        "--eval-every",
        type=number(int, 0),
        default=1,
        metavar="N",
        help="evaluate every N epochs; 0: only at the end (default: 1)",
    )


def read_graph(options: argparse.Namespace) -> Graph:
    """The graph that --graph names."""
    from lotan.graph import Graph

    return Graph.read(options.graph, undirected=options.undirected)


def plan_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The plan options as settings of a Trainer."""
    return {
        "engine": options.engine,
        "plan": options.plan,
        "disable": tuple(options.disable),
        "rgb": not options.no_rgb,
        "propagate": options.propagate,
        "workers": options.workers,
        "partitions": options.partitions,
        "memory_limit": options.memory_limit,
        "worker_memory": options.worker_memory,
        "router": options.router,
        "keys": options.keys,
        "seed": options.seed,
        "master": options.master,
    }
