"""The settings of a training run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from lotan.arguments import described, nearest, require_count, require_number
from lotan.errors import ConfigurationError
from lotan.files import expanded, why_unusable
from lotan.settings.byte_sizes import byte_count
from lotan.settings.changes import check_changes
from lotan.settings.class_weights import by_class
from lotan.settings.losses import LossSetting, named_loss
from lotan.settings.metric_names import check_metrics
from lotan.settings.optimizers import Adam, Optimizer
from lotan.settings.plan_names import named_plan
from lotan.settings.regimes import FullBatch, MiniBatch, Regime, check_regime
from lotan.settings.row_tables import Asynchrony, check_row_tables
from lotan.settings.schedulers import SchedulerSetting, check_scheduler, needs_metric
from lotan.settings.storage import check_storage
from lotan.settings.tasks import LinkPrediction, as_link_task
from planner.loss import Task

EngineName = Literal["auto", "blocks", "rows", "local"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
PLANS = ("auto", "general")
PROPAGATES = ("join", "messages")
TASKS: tuple[Task, ...] = get_args(Task)
MEMBER_SETTINGS = ("optimizer", "lr_scheduler", "clip_grad_norm", "seed", "epochs", "patience")
"""The settings that may differ between the members of a model batch."""
_TEXTS: dict[str, tuple[type, ...]] = {
    "monitor": (str,),
    "master": (str,),
    "router": (str,),
    "keys": (str, Path),
    "checkpoint_dir": (str, Path),
    "storage_dir": (str, Path),
    "log_dir": (str, Path),
}
_PATHS = ("keys", "checkpoint_dir", "storage_dir", "log_dir")


@dataclass(frozen=True)
class TrainerConfig:
    """The settings of a training run. Each field is also a keyword argument of `Trainer`."""

    # the optimizer and its arguments, see lotan.settings.optimizers
    optimizer: Optimizer = field(default_factory=lambda: Adam(lr=0.01))
    # a scheduler of torch's, such as "StepLR(step_size=30)", or a function that makes one of an optimizer; None: none
    lr_scheduler: SchedulerSetting | None = None
    clip_grad_norm: float | None = None  # the largest norm of the gradients of all parameters; None: any
    epochs: int = 200  # the largest number of epochs; training may stop earlier through patience
    # the examples of a step: lotan.FullBatch(), or lotan.MiniBatch(...) for steps on sampled batches, on "local" or "blocks"
    regime: Regime = field(default_factory=FullBatch)
    # None: the task that the labels suggest; or lotan.LinkPrediction(...), "link" for its defaults, on "local" alone
    task: Task | LinkPrediction | None = None
    # the loss: a name such as "cross_entropy(label_smoothing=0.1)", a loss of torch.nn, or a function of output and label
    # that returns a loss for each vertex; None: the task's own
    loss: LossSetting | None = None
    # weights of classes or labels in the loss: one for each in order, a mapping from classes to weights, or "balanced"
    class_weights: Sequence[float] | Mapping[int, float] | Mapping[str, float] | Literal["balanced"] | None = None
    # a term of the loss that depends on parameters alone: a function of a mapping from their names to them that returns
    # one number, such as lambda parameters: 5e-4 * parameters["convs.0.lin.weight"].square().sum(); None: none
    penalty: Callable[[Mapping[str, Tensor]], Tensor] | None = None
    # for a forward that takes labels as input, with a mask: the share of training labels that it sees in an epoch, drawn anew
    # in each. The loss is the mean over the others
    label_rate: float = 0.65
    # for aggregations that take neighbours in an order, such as an LSTM: the number of the attribute of edges by which they
    # are taken, the smallest first; None: they are in the order of their ids
    neighbour_order: int | None = None
    metrics: Sequence[str] = ()  # further metrics: "roc_auc", "average_precision", "f1" (of each class)
    # the probability above which a label counts as predicted, or one for each label; also for two classes with one output
    threshold: float | Sequence[float] | None = None  # None: 0.5
    eval_every: int = 1  # epochs between evaluations; 0: evaluate after the last epoch only
    monitor: str | None = None  # the validation metric that picks the best epoch; None: the task's main metric
    patience: int | None = None  # evaluations without improvement after which training stops; None: never
    seed: int = 0  # seed of dropout; the model brings its own initial weights

    engine: EngineName = "auto"  # "local": one process; "blocks", "rows": Spark and workers; "auto": see engines.choice
    # "auto": the planner's own plan. "general": neighbourhoods are shipped, as without a planner. The name of a plan
    # stands for values of `engine` and `disable`, see lotan.settings.plan_names.
    plan: str = "auto"
    disable: Sequence[str] = ()  # names of the planner's rules that are not to be applied
    rgb: bool = True  # Reverse Graph Backpropagation; False ships a gradient per edge, for comparison (not on blocks)
    chunk_rows: int | None = None  # vertices that a stage processes at a time; None: 1024, or 16384 to 32768 on "local"
    # The form of propagation on rows. "messages" uses GraphFrames' aggregateMessages, if GraphFrames' core is there.
    propagate: Literal["join", "messages"] = "join"

    master: str | None = None  # Spark master; None: the active session's, or else local[*]
    # partitions of the graph in Spark, and so of its sums; None: as many as Spark runs tasks at once
    partitions: int | None = None
    workers: int | None = None  # DL worker processes to start; None: one per core
    router: str | None = None  # address of a running router, tcp://host:port; None: start one
    keys: str | Path | None = None  # directory of CurveZMQ keys, for a router on another host
    # The bytes that all processes of the job may use together on this host, such as "2g"; None: no limit. See
    # lotan.memory.limit.
    memory_limit: int | str | None = None
    # The bytes, such as "512m", that a worker may hold in memory between forward and backward; None: 1 GiB, or the
    # worker's share of memory_limit.
    worker_memory: int | str | None = None
    # The bytes, such as "512m", of the rows of mini-batches on "blocks" that a worker keeps, which are not sent to it again;
    # 0: none. None: it keeps rows that would come through sockets, in half of its memory for what is sent once.
    worker_rows: int | str | None = None

    # Processes that hold learned rows in mini-batches on "local", or addresses of `lotan table`, with commas between
    tables: int | str | None = None  # None: the rows are in this process
    # Rows of batches in flight: "optimistic" gives the results of "none", "plain" may read old rows, "none" waits for each
    asynchrony: Asynchrony = "optimistic"
    # The bytes, such as "512m", of the rows in each table that the run starts; None: its share of the free memory
    table_memory: int | str | None = None

    checkpoint_dir: str | Path | None = None  # directory for a checkpoint after every epoch; None: no checkpoints
    # Mini-batches after which a checkpoint is written within an epoch too; None: checkpoints are written after epochs alone
    checkpoint_batches: int | None = None
    # Folder of partitions for orders that train from a disk; None: in checkpoint_dir, or else a temporary one
    storage_dir: str | Path | None = None
    resume: bool = False  # continue from the checkpoint in checkpoint_dir, if there is one
    # settings that the run goes on with, such as {"lr": 0.001, "patience": 20}; the others stay as they were given at first
    resume_with: Mapping[str, float | None] | None = None
    # Folder for the run's files, see lotan.tracking.folder, and for TensorBoard's events where TensorBoard is
    # installed.
    log_dir: str | Path | None = None
    mlflow: bool = False  # log to MLflow, at the place that MLflow's own variables name, see lotan.tracking.mlflow
    progress: bool = True  # print a line per epoch on standard error

    def __post_init__(self) -> None:
        """Refuse unusable settings.

        Raises:
            ConfigurationError: If a setting is unusable; the message has the setting, its value and what is expected.
        """
        if self.settled() is not self:
            return  # the settled configuration was checked when it was made
        _check_choices(self)
        _check_numbers(self)
        _check_kinds(self)
        _check_rules(self.disable)
        _check_together(self)

    @property
    def reads_graph_here(self) -> bool:
        """True for mini-batches and links, for which engine "local" reads the graph into this process, wherever it is."""
        return isinstance(self.regime, MiniBatch) or as_link_task(self.task) is not None

    def settled(self) -> TrainerConfig:
        """Return this configuration with a plan's name replaced by the `engine`, `disable` and `plan` that it stands for.

        Mini-batches and links run on the local engine unless blocks are asked for, so engine "auto" becomes "local" for
        them. `lotan.engines.choice.settled_for` knows a graph that is too large for that.

        >>> settled = TrainerConfig(plan="blocks-push_down").settled()
        >>> settled.engine, settled.disable, settled.plan
        ('blocks', ('push_down',), 'auto')

        Raises:
            ConfigurationError: If no plan has this name, or if the plan is for another engine than `engine`.
        """
        if self.task == "link":
            return replace(self, task=LinkPrediction()).settled()
        if self.reads_graph_here and self.engine == "auto" and self.plan in PLANS:
            return replace(self, engine="local")
        if not isinstance(self.plan, str) or self.plan in PLANS:
            return self
        forced = named_plan(self.plan)
        if self.engine not in ("auto", forced.engine):
            raise ConfigurationError(
                f"plan {self.plan!r} is for engine {forced.engine!r}, but engine is {self.engine!r}: leave engine out"
            )
        _check_rules(self.disable)
        disable = tuple(dict.fromkeys([*self.disable, *forced.disable]))
        return replace(self, engine=forced.engine, disable=disable, plan=forced.plan)  # type: ignore[arg-type]


def make_config(options: dict[str, Any]) -> TrainerConfig:
    """Return the settled configuration that keyword arguments describe, see `TrainerConfig.settled`.

    Raises:
        ConfigurationError: If an argument is unknown or unusable.
    """
    return given_config(options).settled()


def given_config(options: dict[str, Any]) -> TrainerConfig:
    """Return the configuration that keyword arguments describe, as they were given.

    Raises:
        ConfigurationError: If an argument is unknown or unusable.
    """
    known = [item.name for item in fields(TrainerConfig)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigurationError(f"unknown setting {', '.join(unknown)}; {_meant(unknown[0], known)}")
    for name in _PATHS:
        given = options.get(name)
        if isinstance(given, str | Path) and (why := why_unusable(given)):
            shown = repr(str(given)) if len(str(given)) <= 60 else f"{str(given)[:60]!r} and so on"
            raise ConfigurationError(f"{name} is {shown}, which {why}; name another place")
    paths = {name: expanded(options[name]) for name in _PATHS if str(options.get(name)).startswith("~")}
    plain = {name: value.item() for name, value in options.items() if isinstance(value, np.generic)}
    return TrainerConfig(**{**options, **plain, **paths})


_MEANT: Mapping[str, str] = {
    **dict.fromkeys(
        ("lr", "learning_rate", "weight_decay", "momentum"),
        "it belongs to the optimizer, such as optimizer=lotan.Adam(lr=0.01)",
    ),
    **dict.fromkeys(
        ("batch_size", "fanouts", "num_neighbors"),
        "it belongs to the regime, such as regime=lotan.MiniBatch(batch_size=1024)",
    ),
    **dict.fromkeys(("criterion", "loss_function"), "did you mean loss?"),
    **dict.fromkeys(("device", "accelerator", "devices", "gpus"), "leave it out, because workers compute on the CPU"),
    **dict.fromkeys(("precision", "dtype"), "leave it out, because workers compute in float32"),
    **dict.fromkeys(("verbose", "quiet"), "did you mean progress?"),
    "early_stopping": "did you mean patience, the evaluations without improvement after which training stops?",
    "num_workers": "did you mean workers?",
}
"""The words for settings of other libraries, or of what a setting is made of."""


def _meant(unknown: str, known: list[str]) -> str:
    """Return what somebody may have meant by a setting that is not there, or else all settings."""
    if unknown in _MEANT:
        return _MEANT[unknown]
    near = nearest(unknown, known)
    return f"did you mean {near}?" if near else f"there are {', '.join(known)}"


def _check_choices(config: TrainerConfig) -> None:
    _one_of("engine", config.engine, ENGINES)
    _one_of("plan", config.plan, PLANS)  # the name of a plan has been settled before; other types are refused here
    _one_of("propagate", config.propagate, PROPAGATES)
    if config.task is not None and as_link_task(config.task) is None:
        _one_of("task", config.task, TASKS)


def _check_numbers(config: TrainerConfig) -> None:
    for name, least in (("epochs", 1), ("eval_every", 0)):
        _at_least(name, getattr(config, name), least)
    for name in ("patience", "partitions", "workers", "chunk_rows", "checkpoint_batches"):
        if getattr(config, name) is not None:
            _at_least(name, getattr(config, name), 1)
    for name, least in (("memory_limit", 1), ("worker_memory", 0), ("worker_rows", 0)):
        if getattr(config, name) is not None:
            byte_count(name, getattr(config, name), least)
    if not isinstance(config.seed, int):
        raise ConfigurationError(f"seed is {config.seed!r}; expected an integer")
    if config.clip_grad_norm is not None:
        require_number("Trainer", "clip_grad_norm", config.clip_grad_norm, 0.0)
    if config.loss is not None:
        named_loss(config.loss)
    if config.penalty is not None and (isinstance(config.penalty, type) or not callable(config.penalty)):
        raise ConfigurationError(
            f"penalty is {described(config.penalty)}; expected a function of the parameters by name that returns one number"
        )
    if config.class_weights is not None:
        _check_weights(config.class_weights)
    require_number("Trainer", "label_rate", config.label_rate, 0.0, 1.0)
    if config.label_rate == 1:
        raise ConfigurationError("label_rate is 1, which leaves no vertex for the loss; expected a number below 1")
    if config.neighbour_order is not None:
        require_count("Trainer", "neighbour_order", config.neighbour_order, 0)
    if config.threshold is not None:
        _check_threshold(config.threshold)
    check_metrics(config.metrics)


def _check_kinds(config: TrainerConfig) -> None:
    for name in ("rgb", "resume", "mlflow", "progress"):
        if not isinstance(getattr(config, name), bool):
            raise ConfigurationError(f"{name} is {described(getattr(config, name))}; expected True or False")
    for name, kinds in _TEXTS.items():
        value = getattr(config, name)
        if value is not None and not isinstance(value, kinds):
            raise ConfigurationError(f"{name} is {described(value)}; expected a string")
    check_regime(config.regime)
    if not isinstance(config.optimizer, Optimizer):
        raise ConfigurationError(f"optimizer is {described(config.optimizer)}; give one such as lotan.Adam(lr=0.01)")


def _check_rules(disable: object) -> None:
    if isinstance(disable, str):
        raise ConfigurationError(f"disable is {disable!r}; give a list of rule names, such as [{disable!r}]")
    mapped = isinstance(disable, Mapping)  # which disables a rule, {"push_down": True} or False?
    if mapped or not isinstance(disable, Collection) or not all(isinstance(name, str) for name in disable):
        raise ConfigurationError(f"disable is {described(disable)}; give a list of rule names")


def _check_together(config: TrainerConfig) -> None:
    """Refuse settings that are usable alone but not together."""
    if config.engine == "local" and config.router is not None:
        raise ConfigurationError(
            f"router is {config.router!r}, but engine 'local' uses none: leave router out, or take engine 'blocks'"
        )
    if config.engine == "blocks" and not config.rgb:
        raise ConfigurationError(
            "rgb is False, but engine 'blocks' always sums gradients before they cross partitions: take engine 'rows'"
        )
    if isinstance(config.regime, MiniBatch) and config.engine not in ("local", "blocks"):
        raise ConfigurationError(
            f"regime MiniBatch runs on the engines 'local' and 'blocks', but engine is {config.engine!r}: leave engine out for "
            "'local', take 'blocks', or train on the full batch with regime=lotan.FullBatch()"
        )
    if isinstance(config.regime, MiniBatch) and config.regime.is_fixed and config.eval_every == 0:
        raise ConfigurationError(
            f"regime MiniBatch has order {config.regime.order!r}, which needs evaluations; set eval_every to 1 or more"
        )
    check_row_tables(config)
    if isinstance(config.task, LinkPrediction):
        _check_links(config, config.task)
    check_storage(config.regime, config.task, config)
    if config.lr_scheduler is not None:
        check_scheduler(config.lr_scheduler, config.optimizer)
    if needs_metric(config.lr_scheduler) and config.eval_every == 0:
        raise ConfigurationError(
            "lr_scheduler ReduceLROnPlateau needs evaluations; set eval_every to 1 or more, or take another scheduler"
        )
    if config.patience is not None and config.eval_every == 0:
        raise ConfigurationError("patience needs evaluations; set eval_every to 1 or more, or leave patience out")
    if config.resume and config.checkpoint_dir is None:
        raise ConfigurationError("resume needs checkpoint_dir: the directory that holds the checkpoint")
    check_changes(config)
    _check_checkpoints(config)


def _check_checkpoints(config: TrainerConfig) -> None:
    if config.checkpoint_batches is None:
        return
    if config.checkpoint_dir is None:
        raise ConfigurationError("checkpoint_batches needs checkpoint_dir: the directory for the checkpoints")
    if not isinstance(config.regime, MiniBatch):
        raise ConfigurationError(
            "checkpoint_batches counts mini-batches, and an epoch in full batch has one step: leave it out, or train with "
            "regime=lotan.MiniBatch(...)"
        )
    if config.tables is not None:
        raise ConfigurationError(
            "checkpoint_batches does not go with learned rows in row tables, whose runs are saved after epochs alone: leave it "
            "out"
        )


def _check_links(config: TrainerConfig, task: LinkPrediction) -> None:
    if config.engine not in ("local", "blocks"):
        raise ConfigurationError(
            f"task LinkPrediction runs on the engines 'local' and 'blocks', but engine is {config.engine!r}: take 'blocks', or "
            "leave engine out for 'local', which collects a graph in Spark"
        )
    for name in ("loss", "class_weights", "threshold"):
        if getattr(config, name) is not None:
            mend = "give lotan.LinkPrediction(loss=...)" if name == "loss" else "leave it out"
            raise ConfigurationError(f"{name} is for labels of vertices, and the task is LinkPrediction: {mend}")
    if config.metrics:
        raise ConfigurationError("metrics has further metrics of labels, and the task is LinkPrediction: leave it out")
    if not isinstance(task.decoder, str) and (config.log_dir is not None or config.mlflow):
        raise ConfigurationError(
            "log_dir and mlflow keep the trained model, and the decoder is a module of your own, which is code and is not saved: "
            "leave them out, or take a decoder by its name"
        )
    if isinstance(config.regime, MiniBatch) and config.regime.is_fixed:
        raise ConfigurationError(
            f"regime MiniBatch has order {config.regime.order!r}, and a link task draws other negatives in each epoch: leave "
            "order out"
        )
    if task.exclude_targets and not isinstance(config.regime, MiniBatch):
        raise ConfigurationError(
            "exclude_targets is True, but in full batch the links of the batch are all training links, and no messages would "
            "be left: leave it out, or train with regime=lotan.MiniBatch(...)"
        )


def _one_of(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigurationError(f"unknown {name} {described(value)}; there are {', '.join(choices)}")


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} is {value!r}; expected an integer of at least {least}")


def _check_threshold(given: Any) -> None:
    """Refuse thresholds that are no probabilities between 0 and 1."""
    try:
        numbers = [float(one) for one in ([given] if isinstance(given, Real) else given)]
    except (TypeError, ValueError):
        numbers = []
    if isinstance(given, bool | str | Set | Mapping) or not numbers or not all(0 < one < 1 for one in numbers):
        raise ConfigurationError(
            f"threshold is {described(given)}; expected a number above 0 and below 1, or a list of one for each label"
        )


def _check_weights(given: Any) -> None:
    """Refuse class weights that are not numbers. A list, an array, a tensor or a mapping by class may hold them.

    The number of weights is checked later, when the model is known.
    """
    if isinstance(given, str) and given == "balanced":
        return
    given = by_class(given)
    expected = 'a list of finite numbers of at least 0, one per output; a mapping from classes to them; or "balanced"'
    if isinstance(given, str | Set):
        why = ", a set, which has no order" if isinstance(given, Set) else ""
        raise ConfigurationError(f"class_weights is {described(given)}{why}; expected {expected}")
    if isinstance(given, Mapping):
        strange = [key for key in given if isinstance(key, bool) or not isinstance(key, Integral | str)]
        if strange:
            raise ConfigurationError(f"class_weights has the key {described(strange[0])}; expected a class")
    try:
        numbers = [float(weight) for weight in (given.values() if isinstance(given, Mapping) else given)]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or not all(0 <= number < float("inf") for number in numbers):
        raise ConfigurationError(f"class_weights is {described(given)}; expected {expected}")
