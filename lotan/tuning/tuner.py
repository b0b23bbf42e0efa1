"""The training of a search's models: the search chooses them, and a batch trains them over shared passes of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lotan.arguments import A_GRAPH, require_kind
from lotan.batch.members import Member, MemberState
from lotan.batch.model_batch import ModelBatch
from lotan.borders import spark_translated
from lotan.engines.opening import check_engine, placed
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.graph import Graph
from lotan.graph.labels import require_training_labels
from lotan.planning.links import read_links
from lotan.planning.models import GUESSED_OUTPUTS
from lotan.planning.prepare import foreseen_of
from lotan.settings.config import TrainerConfig
from lotan.settings.losses import one_output
from lotan.settings.metric_names import LOWER_IS_BETTER
from lotan.settings.tasks import LinkPrediction, as_link_task, label_task
from lotan.training.early_stopping import make_stopping
from lotan.tuning.config import TuneConfig, make_configs
from lotan.tuning.grid_file import read_grid
from lotan.tuning.live_table import LiveTable
from lotan.tuning.optuna_search import optuna_search, require_optuna
from lotan.tuning.result import Trial, Tuned
from lotan.tuning.search import Round, Scores, Search, all_at_once, halving, rungs_of
from lotan.tuning.space import Space
from lotan.tuning.train_words import words_in_common
from lotan.tuning.trial_settings import Settings, varied
from planner.footprint import Footprint
from planner.spec import SPLITS

TRIALS = 20  # default number of trials of a search that draws
AT_ONCE = 8  # default number of trials that Optuna is asked for at a time


@spark_translated()
def tune(graph: Graph, grid: str | Path | Mapping[str, Any], **options: Any) -> Tuned:
    """Train the models of a grid on one graph, over shared passes, and compare them.

    Each model is equal, bit for bit, to the one that `lotan train` makes with the same settings. With
    `task=lotan.LinkPrediction(...)` models learn links, and are compared by the mean reciprocal rank.

    Args:
        graph: the graph to train on, which needs validation vertices, or links of validation.
        grid: the path of a grid file, or a dictionary with the content of one. docs/reference/grid-file.md explains its form.
        options: the fields of `lotan.tuning.TuneConfig`, and those of `lotan.TrainerConfig` that belong to no single
            model, such as `engine`, `monitor` and `checkpoint_dir`.

    Returns:
        The trials, best first, and the best model.

    Raises:
        ConfigurationError: the grid or an option cannot be used. It is raised before any training.
        GraphError, ModelError, PlanError: the graph or a model cannot be trained. They are raised before any training.
        EngineError: training failed. A model that diverges raises no error, and the others go on.
    """
    require_kind("tune", "graph", graph, Graph, A_GRAPH)
    config, common, shared = make_configs(options)
    space = read_grid(grid, as_link_task(common.task) is not None).with_defaults(
        seed=config.seed, epochs=config.epochs, patience=config.patience
    )
    trials, notes = _trials(space, config)
    if config.search == "optuna":
        require_optuna()
    if config.search == "halving" and common.eval_every == 0:
        raise ConfigurationError("search 'halving' compares models as they train; set eval_every to 1 or more")
    check_engine(common, graph)
    with ExitStack() as stack:
        found, monitor, widths = _ready(graph, common, lambda: _needs(space, trials, graph, common), stack)
        for settings in dict.fromkeys([*trials, *space.samples()]):
            settings.member(*widths, name="", common=common)  # what is refused is an error before any model is trained
        tuning = _Tuning(found, widths, config, shared, common, monitor, _paths(space, trials))
        tuned = tuning.run(_search(space, trials, config, common), (*space.notes, *notes))
    # the tables that Spark opened are closed by now, so the run is given the user's own graph
    return tuned if tuned.best_run is None else replace(tuned, best_run=replace(tuned.best_run, graph=graph))


def _ready(
    graph: Graph, common: TrainerConfig, needs: Callable[[], Footprint | None], stack: ExitStack
) -> tuple[Graph, str, tuple[int, int | None]]:
    """Return the graph where the engine reads it, the metric to compare models by, and the widths of features and outputs.

    Models of a link task have as many outputs as hidden channels, which None stands for.
    """
    if isinstance(common.task, LinkPrediction):
        stays = common.engine == "blocks"
        found = stack.enter_context(placed(graph, common, None)) if stays else graph.with_links()
        return found, _monitor_of_links(found, common, common.task), (found.statistics.width, None)
    task = label_task(common.task)
    found = stack.enter_context(placed(graph, common, needs())).for_task(task)
    monitor, labels = _monitor(found, common), found.labels
    outputs = 1 if one_output(common.loss, task or labels.task, labels.outputs) else labels.outputs
    return found, monitor, (found.statistics.width, outputs)


def _monitor_of_links(graph: Graph, common: TrainerConfig, task: LinkPrediction) -> str:
    """Return the name of the metric by which models of links are compared.

    Raises:
        GraphError: no link is of validation, or the links cannot be read.
        ConfigurationError: there is no metric of the name that the user gave.
    """
    links = read_links(graph, task, common).links.of("val")
    if not len(links):
        raise GraphError(
            "edges.split: no link is of split 'val', and models are compared by those; set it for some, or give fractions"
        )
    return make_stopping(common.monitor, None, "link", len(links)).monitor


def _trials(space: Space, config: TuneConfig) -> tuple[list[Settings], tuple[str, ...]]:
    """Return the trials that are known beforehand, and remarks. Optuna has none, because it chooses by scores."""
    if config.search == "optuna":
        return [], ()
    if config.search == "grid" or (config.search == "halving" and config.trials is None and not space.ranges):
        return space.combinations()
    return space.drawn(config.trials or TRIALS, config.seed)


def _needs(space: Space, trials: Sequence[Settings], graph: Graph, common: TrainerConfig) -> Footprint | None:
    """Estimate the memory that the greatest model needs on a graph in files.

    The labels are not read yet, so the number of outputs is guessed.

    Raises:
        ConfigurationError: a model refuses a setting, or the estimate exceeds the memory limit.
        ModelError: a model cannot be made or traced.
    """
    if graph.origin != "files" or common.engine == "local":
        return None
    width = graph.estimate().width
    models = [settings.model(width, GUESSED_OUTPUTS) for settings in trials or dict.fromkeys(space.samples())]
    greatest = max(models, key=lambda model: sum(parameter.numel() for parameter in model.parameters()))
    return foreseen_of(greatest, graph, common)


def _search(space: Space, trials: Sequence[Settings], config: TuneConfig, common: TrainerConfig) -> Search:
    if config.search == "optuna":
        return optuna_search(space, config.trials or TRIALS, config.max_models or AT_ONCE, config.seed)
    if config.search == "halving":
        longest = max(settings.values["epochs"] for settings in trials)
        return halving(trials, rungs_of(len(trials), longest, config.eta, common.eval_every), config.eta)
    return all_at_once(trials)


def _monitor(graph: Graph, common: TrainerConfig) -> str:
    """Return the name of the metric by which models are compared.

    Raises:
        GraphError: no training vertex or no validation vertex has a label.
        ConfigurationError: the task has no metric of the name that the user gave.
    """
    require_training_labels(graph.labels)
    labelled = graph.labels.labelled[SPLITS.index("val")]
    if not labelled:
        raise GraphError(
            "vertices.split: no labelled vertex is in 'val', and models are compared by those; set split to 'val' for some"
        )
    return make_stopping(common.monitor, None, label_task(common.task) or graph.labels.task, labelled).monitor


def _paths(space: Space, trials: Sequence[Settings]) -> list[str]:
    """Return the paths of the settings by which models are distinguished."""
    return varied(trials) if trials else [axis.key.path for axis in space.axes if len(axis.ends) > 1]


@dataclass
class _Tuning:
    """One search, from its first round to its result."""

    graph: Graph
    widths: tuple[int, int | None]  # widths of the features and of a model's output; None: its hidden channels
    config: TuneConfig
    shared: Mapping[str, Any]  # the settings that models share, as a ModelBatch takes them
    common: TrainerConfig  # the same settings, with defaults
    monitor: str
    paths: Sequence[str]  # the settings by which models are distinguished
    trials: list[Settings] = field(default_factory=list)  # by number

    def run(self, search: Search, notes: tuple[str, ...]) -> Tuned:
        with ExitStack() as stack:
            shown = stack.enter_context(closing(LiveTable(self.monitor, self.config.progress)))
            for note in notes:
                shown.say(note)
            first = next(search)
            batch = stack.enter_context(self._batch(self._members(first, shown), shown))
            one: Round | None = first
            while one is not None:
                for number, reason in one.stop.items():
                    batch.stop(number, reason)
                batch.train(upto=one.upto, only=one.only)
                shown.states(batch.states)
                one = _next(search, {state.number: self._score(state, one.upto) for state in batch.states})
                if one is not None and one.new:
                    batch.add(self._members(one, shown))
            return self._tuned(batch, notes)

    def _batch(self, members: Sequence[Member], shown: LiveTable) -> ModelBatch:
        options = {**self.shared, "max_models": self.config.max_models, "progress": False}
        return ModelBatch(self.graph, members, on_epoch=shown.epoch, **options)

    def _members(self, one: Round, shown: LiveTable) -> list[Member]:
        """Return the members of the trials that a round adds."""
        members = []
        for settings in one.new:
            name = settings.words(self.paths) or f"model {len(self.trials)}"
            members.append(settings.member(*self.widths, name=name, common=self.common))
            shown.add(name, members[-1].epochs)
            self.trials.append(settings)
        return members

    def _score(self, state: MemberState, upto: int | None) -> float:
        """Return the best value of the monitored metric before the epoch `upto`, negated if lower values are better."""
        if state.state == "diverged":
            return -math.inf
        known = [entry for entry in state.history if upto is None or entry["epoch"] < upto]
        values = [entry["metrics"]["val"][self.monitor] for entry in known if "val" in entry.get("metrics", {})]
        sign = -1 if self.monitor in LOWER_IS_BETTER else 1
        return max((sign * value for value in values if math.isfinite(value)), default=-math.inf)

    def _trial(self, state: MemberState, words: Sequence[str] | None) -> Trial:
        """Return the trial of a model. `words` has the options of `lotan train` that all models share, if they exist."""
        diverged = state.state == "diverged"
        metrics = {} if diverged else dict(state.metrics)
        own = self.trials[state.number].command()
        return Trial(
            number=state.number,
            settings=self.trials[state.number],
            state=state.state,
            reason=state.reason,
            epoch=state.epoch,
            best_epoch=0 if diverged else state.best_epoch or 0,
            value=metrics.get("val", {}).get(self.monitor),
            metrics=metrics,
            history=list(state.history),
            train_options=None if words is None or own is None else [*words, *own],
        )

    def _tuned(self, batch: ModelBatch, notes: tuple[str, ...]) -> Tuned:
        sign = 1 if self.monitor in LOWER_IS_BETTER else -1
        report = batch.report()
        words = words_in_common(self.common, report["engine"])
        trials = [self._trial(state, words) for state in batch.states]
        trials.sort(key=lambda trial: (math.inf if trial.value is None else sign * trial.value, trial.number))
        best = trials[0] if trials and trials[0].value is not None else None
        return Tuned(
            trials=trials,
            monitor=self.monitor,
            search=asdict(self.config),
            notes=notes,
            batch=report,
            best_run=None if best is None else batch.run_of(best.number),
        )


def _next(search: Search, scores: Scores) -> Round | None:
    """Send scores to a search, and return its next round or None."""
    try:
        return search.send(scores)
    except StopIteration:
        return None
