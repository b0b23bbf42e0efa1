"""Options that several commands share, and the settings made from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any

from lotan.cli.table_options import add_table_options, table_settings
from planner.rules import RULE_NAMES

if TYPE_CHECKING:
    from lotan.settings.regimes import Regime

OPTIMIZERS = (
    *("adam", "adamw", "sgd", "adagrad", "adadelta", "adamax", "nadam", "radam"),
    *("rmsprop", "rprop", "asgd"),
)
TASKS = ("classification", "multilabel", "regression", "link")
LINK_OPTIONS = (
    *("decoder", "negatives", "link_loss", "negative_sampling", "filtered"),
    *("exclude_targets", "link_fractions", "link_seed"),
)
"""The options of a link task, by their names in the parsed options."""
AGGREGATES = ("mean", "max", "sum")


def number(kind: type[int] | type[float], least: float, below: float | None = None) -> Callable[[str], float]:
    """Return an argparse type: a number of at least `least` and less than `below` (None: whole numbers are below 2**63)."""
    end = below if below is not None else 2**63 if kind is int else float("inf")

    def parse(text: str) -> float:
        value = kind(text)
        if isinstance(value, float) and not isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number")
        if not least <= value < end:
            limit = f" and less than {end:g}" if below is not None or value >= end else ""
            raise argparse.ArgumentTypeError(f"{text[:40]} is not at least {least:g}{limit}")
        return value

    # argparse prints it: "invalid whole number value: 'x'"
    parse.__name__ = "whole number" if kind is int else "number"
    return parse


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a training run, but for those of the graph and of its results."""
    add_model_options(parser)
    add_training_options(parser)
    add_link_options(parser)
    add_plan_options(parser)
    add_table_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the model."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        default="gcn",
        metavar="gcn|sage|gin|gat|mlp|MODULE:FACTORY|FILE.py:FACTORY",
        help="a stock model, or your own: FACTORY in a Python module or file is called with in_channels, out_channels,\n"
        "hidden_channels, num_layers, dropout, heads and aggr, as far as it has such parameters (default: gcn)",
    )
    group.add_argument("--layers", type=number(int, 1), default=2, metavar="N", help="number of layers (default: 2)")
    group.add_argument("--hidden", type=number(int, 1), default=64, metavar="N", help="hidden channels (default: 64)")
    group.add_argument(
        "--dropout", type=number(float, 0, 1), default=0.5, metavar="P", help="dropout probability (default: 0.5)"
    )
    group.add_argument("--heads", type=number(int, 1), metavar="N", help="attention heads, gat only (default: 1)")
    group.add_argument("--aggr", choices=AGGREGATES, help="aggregation, sage only (default: mean)")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the plan, the engine and its processes."""
    group = parser.add_argument_group("plan and engine")
    group.add_argument(
        "--engine",
        default="auto",
        metavar="auto|blocks|rows|local",
        help="blocks: Spark and DL workers, on dense blocks (needs Lotan's jar); rows: the same on Spark's rows, slower;\n"
        "local: this process, without Spark; auto: a graph in Spark is trained on blocks, or on rows if the session lacks\n"
        "the jar. Any other graph is trained on local, unless it does not fit in memory, or all epochs together are\n"
        "estimated to take over 15 s less on blocks (default: auto)",
    )
    group.add_argument(
        "--plan",
        default="auto",
        metavar="auto|general|NAME",
        help="general: collect neighbourhoods and run the whole model in the DL Engine;\n"
        "auto: the Planner rewrites the plan, and pushes work down into the Graph Engine; NAME: a plan that\n"
        "`lotan explain --alternatives` lists, such as blocks-hoist_invariant (blocks without that rule) (default: auto)",
    )
    group.add_argument(
        "--disable",
        action="append",
        default=[],
        metavar="RULE",
        help=f"switch off a rewrite rule; may be repeated. Rules: {', '.join(RULE_NAMES[:4])},\n{', '.join(RULE_NAMES[4:])}",
    )
    group.add_argument(
        "--no-rgb",
        action="store_true",
        help="switch off Reverse Graph Backpropagation, so that one gradient per edge crosses partitions (for\n"
        "comparison, on local and rows)",
    )
    group.add_argument(
        "--propagate",
        choices=("join", "messages"),
        default="join",
        help="form of propagation on rows; messages uses GraphFrames' aggregateMessages, whose JVM core must be on the\n"
        "classpath (default: join)",
    )
    _add_cluster_options(group)


def _add_cluster_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers", type=number(int, 1), metavar="N", help="number of DL workers, not on local (default: one per core)"
    )
    group.add_argument(
        "--partitions",
        type=number(int, 1),
        metavar="N",
        help="number of partitions of the graph in Spark, not on local; those on a disk are sizes of --order (default: as many\n"
        "as Spark runs tasks at once, or on blocks more, if --memory-limit needs them)",
    )
    group.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="limit for all processes of the job on this host together, such as 512m or 3g, in powers of 1024. What does not\n"
        "fit goes to files in $TMPDIR or Spark's local folders, and a run that cannot fit is refused before it starts, with\n"
        "the least limit that would do (default: none)",
    )
    group.add_argument(
        "--worker-memory",
        metavar="SIZE",
        help="memory that a DL worker may hold between forward and backward, such as 512m, not on local (default: 1g, or its\n"
        "share of --memory-limit)",
    )
    group.add_argument(
        "--worker-rows",
        metavar="SIZE",
        help="memory for rows of mini-batches that a DL worker keeps, so that they are not sent again, such as 512m, on\n"
        "blocks; 0 for none (default: rows that would come through sockets, within half of what a worker keeps)",
    )
    group.add_argument(
        "--seed",
        type=number(int, 0, 2**63),
        default=0,
        metavar="N",
        help="seed of initial weights, learned rows and dropout (default: 0)",
    )
    group.add_argument(
        "--router",
        metavar="URL",
        help="use the Router that `lotan router` has started at URL, and its workers (default: start them)",
    )
    group.add_argument(
        "--keys", metavar="DIR", help="directory of CurveZMQ keys for --router and --tables (default: none)"
    )
    group.add_argument(
        "--master",
        metavar="URL",
        help="Spark master, such as local[4] or spark://host:7077 (default: that of spark-submit, or local[*])",
    )


def add_optimizer(group: argparse._ArgumentGroup) -> None:
    """Add the optimizer and its numbers."""
    group.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        metavar="NAME",
        default="adam",
        help=f"optimizer, as in torch: {', '.join(OPTIMIZERS[:6])},\n{', '.join(OPTIMIZERS[6:])} (default: adam)",
    )
    group.add_argument("--lr", type=number(float, 0), default=0.01, metavar="X", help="learning rate (default: 0.01)")
    group.add_argument(
        "--weight-decay",
        type=number(float, 0),
        metavar="X",
        help="weight decay, for optimizers that have it (default: 5e-4)",
    )


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the optimizer, the epochs and evaluation."""
    group = parser.add_argument_group("training")
    add_epochs(group, 200)
    add_regime_options(group)
    add_optimizer(group)
    group.add_argument(
        "--lr-scheduler",
        metavar="NAME(ARGUMENTS)",
        help="scheduler of torch's that changes the learning rate after each epoch, such as 'StepLR(step_size=30)'\n"
        "(default: none)",
    )
    group.add_argument(
        "--clip-grad-norm",
        type=number(float, 0),
        metavar="X",
        help="scale the gradients of all parameters down to this norm, if theirs is greater (default: do not)",
    )
    add_loss_options(group)
    add_evaluation_options(group)


def add_epochs(group: argparse._ArgumentGroup, default: int | None) -> None:
    """Add --epochs. A default of None stands for 200 too, but shows that no number was given."""
    group.add_argument(
        "--epochs", type=number(int, 1), default=default, metavar="N", help="epochs at most (default: 200)"
    )


def add_regime_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of mini-batches. Without them, an epoch is one pass over the whole graph."""
    group.add_argument(
        "--batch-size",
        type=number(int, 1),
        metavar="N",
        help="train on mini-batches of N training vertices or links, on local or blocks, with a step of the optimizer after\n"
        "each; needs --fanouts (default: an epoch is one exact pass over the whole graph)",
    )
    group.add_argument(
        "--fanouts",
        metavar="N,N,...",
        help="in-edges that are drawn for a vertex at most, for each layer, such as 10,10; the first is for the vertices\n"
        "that the batch trains on; all takes every in-edge; none is for a model that reads no neighbours",
    )
    group.add_argument(
        "--sampling-seed",
        type=number(int, 0, 2**63),
        metavar="N",
        help="seed of the order of training vertices or links, of the drawn edges, and of the partitions of --order (default: 0)",
    )

    group.add_argument(
        "--fixed-batches",
        action="store_true",
        help="use the batches of the first epoch again, until three evaluations in a row have not bettered the metric of the\n"
        "validation vertices (default: draw others in each epoch)",
    )
    group.add_argument(
        "--order",
        metavar="ORDER",
        help="train mini-batches from a disk, on local: features, learned rows and edges lie there in partitions of the\n"
        "vertices, of which some are in memory at one time. For links: comet, which mixes batches better, or beta; for\n"
        "vertices: cached_nodes, which keeps the training vertices in memory, or each_once. Needs --memory-limit, which\n"
        "decides on the partitions, or their sizes, such as 'each_once(partitions=16, buffer=4)' and\n"
        "'comet(partitions=16, buffer=4, groups=8)' (default: all in memory)",
    )


def regime_of(options: argparse.Namespace) -> Regime:
    """Return the regime that the options describe.

    Raises:
        ConfigurationError: If options of mini-batches are incomplete, or cannot be used.
    """
    from lotan.errors import ConfigurationError
    from lotan.settings.regimes import FIXED, SHUFFLED, FullBatch, MiniBatch, read_fanouts

    size, fanouts, seed = (getattr(options, name, None) for name in ("batch_size", "fanouts", "sampling_seed"))
    order = FIXED if getattr(options, "fixed_batches", False) else SHUFFLED
    stored = getattr(options, "order", None)
    if stored is not None and order == FIXED:
        raise ConfigurationError("--order and --fixed-batches are both orders of batches; give one of them")
    order = stored or order
    if size is None and fanouts is None and seed is None and order == SHUFFLED:
        return FullBatch()
    if size is None or fanouts is None:
        missing, example = ("--batch-size", "1024") if size is None else ("--fanouts", "10,10")
        raise ConfigurationError(f"mini-batches need {missing} too, such as {missing} {example}")
    return MiniBatch(size, read_fanouts(fanouts), seed or 0, order)


def add_loss_options(group: argparse._ArgumentGroup) -> None:
    """Add the options for the task, the loss and its class weights."""
    add_task(group)
    group.add_argument(
        "--loss",
        metavar="NAME(ARGUMENTS)",
        help="loss, such as 'cross_entropy(label_smoothing=0.1)', focal, huber or bce_with_logits, which for two classes\n"
        "gives the model one output (default: cross_entropy, bce_with_logits or mse, by the labels)",
    )
    group.add_argument(
        "--class-weights",
        metavar="W,W,...",
        help="weights of the classes in the loss: one for each in order, CLASS=WEIGHT for some, or balanced (default: 1)",
    )


def add_task(group: argparse._ArgumentGroup) -> None:
    """Add the option of the task."""
    group.add_argument(
        "--task",
        choices=TASKS,
        help="what the labels are: classes, several of them at once, or numbers (default: as the labels suggest); or link, to\n"
        "learn which pairs of vertices have an edge (see the link task)",
    )


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a link task, which are arguments of `lotan.LinkPrediction`."""
    group = parser.add_argument_group("link task", "with --task link; edges have a column split, and perhaps relation")
    group.add_argument(
        "--decoder", metavar="dot|distmult|complex|transe", help="what scores two rows and a relation (default: dot)"
    )
    group.add_argument(
        "--negatives",
        metavar="N|all",
        help="vertices that are drawn against the links of a batch, at each end (default: 500)",
    )
    group.add_argument("--negative-sampling", metavar="uniform|degree", help="how they are drawn (default: uniform)")
    group.add_argument(
        "--filtered", action="store_true", help="leave out negatives of a link that make another training link of it"
    )
    group.add_argument("--link-loss", metavar="softmax|bce", help="loss of a link and its negatives (default: softmax)")
    group.add_argument(
        "--exclude-targets",
        choices=("yes", "no"),
        help="pass no messages along the links of the batch itself (default: yes in mini-batches, no in full batch)",
    )
    group.add_argument(
        "--link-fractions",
        metavar="V,T",
        help="shares of validation and test, such as 0.05,0.1, drawn by a hash if edges have no column split (default: none)",
    )
    group.add_argument(
        "--link-seed", type=number(int, 0), metavar="N", help="seed of negatives and of the shares (default: 0)"
    )


def task_of(options: argparse.Namespace) -> Any:
    """Return the task that the options describe: a name, a link task, or None.

    Raises:
        ConfigurationError: If there are options of a link task without --task link, or they cannot be used.
    """
    from lotan.errors import ConfigurationError
    from lotan.settings.tasks import LinkPrediction

    given: dict[str, Any] = {name: getattr(options, name, None) for name in LINK_OPTIONS}
    given = {name: value for name, value in given.items() if value not in (None, False)}
    if options.task != "link":
        if given:
            raise ConfigurationError(f"--{next(iter(given)).replace('_', '-')} is for a link task: add --task link")
        return options.task
    arguments = {name.removeprefix("link_"): value for name, value in given.items()}
    if arguments.get("negatives", "").isdecimal():
        arguments["negatives"] = int(arguments["negatives"])
    if "exclude_targets" in arguments:
        arguments["exclude_targets"] = arguments["exclude_targets"] == "yes"
    if "fractions" in arguments:
        arguments["fractions"] = _shares(arguments["fractions"])
    return LinkPrediction(**arguments)


def _shares(text: str) -> Any:
    """Return the numbers of a text, or the text itself, which the task refuses."""
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError:
        return text


def loss_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the task, the loss and the metrics as settings of a Trainer."""
    from lotan.settings.class_weights import read_weights

    return {
        "task": task_of(options),
        "loss": options.loss,
        "class_weights": None if options.class_weights is None else read_weights(options.class_weights),
        "metrics": tuple(options.metrics.split(",")) if options.metrics else (),
        "threshold": _threshold(options.threshold),
        "label_rate": options.label_rate,
        "neighbour_order": options.neighbour_order,
    }


def _threshold(text: str | None) -> Any:
    """Return one number, or several, or a text that is neither, which the settings refuse."""
    if text is None:
        return None
    try:
        numbers = [float(one) for one in text.split(",")]
    except ValueError:
        return text
    return numbers if len(numbers) > 1 else numbers[0]


def add_evaluation_options(group: argparse._ArgumentGroup) -> None:
    """Add the options for evaluation, and for early stopping by it."""
    group.add_argument(
        "--metrics",
        metavar="NAME,NAME,...",
        help="further metrics to report: roc_auc, average_precision, f1 (of each class) (default: none)",
    )
    group.add_argument(
        "--threshold",
        metavar="P,P,...",
        help="probability above which a label counts as predicted, for several labels or two classes with one output:\n"
        "one number, or one for each label (default: 0.5)",
    )
    group.add_argument(
        "--label-rate",
        type=number(float, 0.0, 1.0),
        default=0.65,
        metavar="P",
        help="for models that take labels as input: share of training labels that the model sees in an epoch\n"
        "(default: %(default)s)",
    )
    group.add_argument(
        "--neighbour-order",
        type=number(int, 0),
        metavar="N",
        help="for aggregations that take neighbours in an order, such as an LSTM: number of the attribute of edges that\n"
        "says it, from 0, the smallest first (default: the order of ids)",
    )
    group.add_argument(
        "--patience",
        type=number(int, 1),
        metavar="N",
        help="stop after N evaluations without a better validation metric, and restore the best weights\n(default: never)",
    )
    add_eval_every(group)
    group.add_argument(
        "--monitor",
        metavar="METRIC",
        help="metric of the validation vertices that picks the best epoch and the best of several models, such as loss\n"
        "(default: the task's main metric)",
    )


def add_eval_every(group: argparse._ArgumentGroup) -> None:
    """Add --eval-every, the number of epochs between evaluations."""
    group.add_argument(
        "--eval-every",
        type=number(int, 0),
        default=1,
        metavar="N",
        help="evaluate every N epochs; 0: only after the last epoch (default: 1)",
    )


def plan_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the plan options as settings of a Trainer."""
    return {
        "regime": regime_of(options),
        "engine": options.engine,
        "plan": options.plan,
        "disable": tuple(options.disable),
        "rgb": not options.no_rgb,
        "propagate": options.propagate,
        "workers": options.workers,
        "partitions": options.partitions,
        "memory_limit": options.memory_limit,
        "worker_memory": options.worker_memory,
        "worker_rows": options.worker_rows,
        "router": options.router,
        "keys": options.keys,
        "seed": options.seed,
        "master": options.master,
        **table_settings(options),
    }
