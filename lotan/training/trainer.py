"""Training: an epoch is one run of the plan and one step of the optimizer, or one of each for every mini-batch.

`lotan.planning.prepare` does everything that comes before the first epoch, and `lotan.engines.base` runs the steps of a plan.
docs/developing/architecture.md follows an epoch and names the file to read at each of its stations.
"""

from __future__ import annotations

import copy
import json
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lotan.arguments import A_GRAPH, require_flag, require_kind
from lotan.borders import spark_translated, translated
from lotan.engines.choice import settled_for
from lotan.engines.opening import check_engine
from lotan.errors import ConfigurationError
from lotan.exploring.alternatives import alternative_data, alternative_lines, alternatives
from lotan.exploring.analysis import EPOCHS, Analysis, analysis_data, analysis_lines, analyze, total_lines, totals_data
from lotan.exploring.epochs import NOT_COUNTED, measures_of_epochs
from lotan.graph.graph import Graph
from lotan.links.decoders import Decoder
from lotan.memory.watch import MemoryWatch
from lotan.nn.unwrapping import unwrapped
from lotan.planning.job import Job
from lotan.planning.links import prepare_links
from lotan.planning.prepare import prepare
from lotan.planning.stored_links import prepare_stored
from lotan.results.run import Run
from lotan.settings.config import TrainerConfig, given_config
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction
from lotan.storage.folder import beside_storage
from lotan.tracking import Tracker, open_tracker, start_of
from lotan.training.checkpoint import claimed, known_identity
from lotan.training.epochs import evaluate, run_epoch
from lotan.training.finish import finished, remember_epochs
from lotan.training.learner import Learner, weights_of
from lotan.training.load import LoadWatch
from lotan.training.passes import Passes
from lotan.training.persisted_graph import open_passes
from lotan.training.progress import Progress
from lotan.training.stored import open_stored
from lotan.training.stored_vertices import open_vertices_with_rows
from planner.explain.brief import brief_text, evaluation_text
from planner.explain.formats import Format, check_form, explain
from planner.explain.text import PlanStage, head_text
from planner.explain.view import PlanView

_MEANT = {
    **dict.fromkeys(("train", "run", "learn", "start", "fit_transform", "__call__"), "fit"),
    **dict.fromkeys(("predict", "evaluate", "test", "transform"), "fit().predict"),
    **dict.fromkeys(("history", "metrics", "report", "save"), "fit().history"),
    **dict.fromkeys(("describe", "show_plan"), "explain"),
}
"""The names that other libraries have for what a Trainer does, or for what a finished run has."""


def _trainer(model: torch.nn.Module, graph: Graph, settings: dict[str, Any]) -> Trainer:
    """Return a Trainer that was pickled."""
    return Trainer(model, graph, **settings)


class Trainer:
    """Trains a model on a graph.

    Args:
        model: Any `torch.nn.Module` whose `forward(x, graph)` composes `lotan.nn` layers and row-wise torch operators. Or a
            model as PyG has them, whose forward takes `x`, `edge_index` (or `adj_t`), `edge_weight`, `edge_attr`,
            `edge_type` and `batch` by these names, or one `data`; for a `lotan.HeteroGraph`, `x_dict` and
            `edge_index_dict`. It is trained in place: after `fit` it holds the best weights.
        graph: The `lotan.Graph` or `lotan.HeteroGraph` with features, labels and splits.
        options: The fields of `lotan.TrainerConfig`, such as `optimizer`, `epochs`, `engine`.

    Raises:
        ConfigurationError: If an option is unknown or unusable, `model` is not a model, or `graph` is not a graph.
        ModelError: If `model` was made by torch.jit. A model of torch.compile is trained without it.
    """

    def __init__(self, model: torch.nn.Module, graph: Graph, **options: Any) -> None:
        require_kind("Trainer", "model", model, torch.nn.Module, "a torch.nn.Module, such as lotan.nn.GCN(...)")
        require_kind("Trainer", "graph", graph, Graph, A_GRAPH)
        self.model = unwrapped(model)
        self.graph = graph
        self.config = given_config(options)  # as given
        self._job: Job | None = None
        self._decoder: Decoder | None = None  # of a link task, which a second `fit` trains further
        self._opened = ExitStack()  # closes what `job` has opened
        weakref.finalize(self, self._opened.close)

    def __getattr__(self, name: str) -> Any:
        """Suggest the method that other libraries have under a name that a Trainer lacks."""
        if hasattr(type(self), name):  # a property has failed by an AttributeError, which is raised again as it was
            return object.__getattribute__(self, name)
        meant = _MEANT.get(name)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"'Trainer' object has no attribute {name!r}{hint}", name=name, obj=self)

    def __reduce__(self) -> Any:
        """Pickle the model, the graph and the settings. A plan that was made is made again when it is needed.

        Raises:
            GraphError: The graph is in Spark.
        """
        return _trainer, (self.model, self.graph, self._given)

    @cached_property
    def _settled(self) -> TrainerConfig:
        """The settings that take effect."""
        return settled_for(self.config, self.graph)

    @property
    def _given(self) -> dict[str, Any]:
        """The settings as given, by name."""
        return {item.name: getattr(self.config, item.name) for item in fields(self.config)}

    @property
    def job(self) -> Job:
        """The checked graph, the traced model and the plan, made at first use: `explain` and the next `fit` use the same plan.

        `fit` closes what its job has opened. The next use makes another job, which knows the measurements made since.
        """
        if self._job is None:
            if isinstance(self._settled.task, LinkPrediction):
                given = self.model, self.graph, self._settled
                self._job = (
                    prepare_stored(*given, self._decoder, self._earlier_division)
                    if self._settled.regime.is_stored
                    else prepare_links(*given, self._opened, self._decoder)
                )
                self._decoder = self._job.decoder
            else:
                earlier = self._earlier_division
                self._job = prepare(self.model, self.graph, self._settled, self._opened, earlier=earlier)
        return self._job

    @property
    def _earlier_division(self) -> str | None:
        """The division of the run that goes on, in words; None: there is no such run."""
        directory = self._settled.checkpoint_dir
        if directory is None or not self._settled.resume:
            return None
        return known_identity(Path(directory)).get("storage")

    def explain(
        self,
        format: Format = "text",
        stage: PlanStage | None = None,
        analyze: bool | int = False,
        alternatives: bool = False,
    ) -> str:
        """Return a description of the plan: its steps, their estimated cost, and the rules that fired.

        Args:
            format: The form of the description, see `planner.explain.formats.explain`.
            stage: The stage of the plan to show, see `planner.explain.formats.explain`. None shows the brief text, which has
                at most 40 lines for a model of three layers; with a list of alternatives as text it shows only the plan's
                head. In other formats it shows all stages.
            analyze: The number of epochs to run (True: 3), whose measured cost is shown beside the estimates. They
                change no weight. Not for Mermaid. If the run trains from a disk, their partitions lie in a temporary folder
                on the disk of its storage. The storage stays as it is.
            alternatives: True to list other possible plans too, in order of their estimated seconds. For text and JSON only.

        Raises:
            GraphError, ModelError, PlanError: If the model cannot be trained on the graph, or the format or stage is unknown.
            ConfigurationError: If `analyze` or `alternatives` does not go with the format, or if there are no epochs to run.
            EngineError: If an epoch of `analyze` fails.
        """
        require_flag("explain", "alternatives", alternatives)
        with translated():
            check_form(format, stage or "all")
        runs = analyze is not False
        if (runs and format == "mermaid") or (alternatives and format in ("mermaid", "html")):
            asked, forms = (
                ("alternatives", "'text' or 'json'") if alternatives else ("analyze", "'text', 'json' or 'html'")
            )
            raise ConfigurationError(f"{asked} goes with format {forms}, not {format!r}")
        if runs and not (isinstance(analyze, int) and analyze >= 1):
            raise ConfigurationError(f"analyze is {analyze!r}; expected True, or a number of epochs of at least 1")
        self._refuse_more(runs, alternatives, format)
        epochs = EPOCHS if analyze is True else int(analyze)
        if runs and self.job.batch is not None:
            return self._with_epochs(format, stage, epochs)
        if runs or alternatives:
            return self._with_more(format, stage, epochs, alternatives)
        with translated():
            return self._explained(format, stage)

    def _refuse_more(self, runs: bool, alternatives: bool, format: Format) -> None:
        """Refuse to measure or compare what has no passes over the whole graph, in a form that it has not."""
        if self.job.batch is not None and alternatives:
            raise ConfigurationError(
                "alternatives compares passes over the whole graph, but regime is MiniBatch; leave alternatives out, or use "
                "regime=lotan.FullBatch()"
            )
        if self.job.batch is not None and runs and format not in ("text", "json"):
            raise ConfigurationError(
                f"analyze of a regime MiniBatch goes with format 'text' or 'json', not {format!r}; leave one of both out"
            )
        if self.job.batch is None and self.job.decoder is not None and (runs or alternatives):
            raise ConfigurationError(
                f"{'analyze' if runs else 'alternatives'} measures or compares passes of models that predict labels, and the "
                "task is LinkPrediction: leave it out"
            )

    def _explained(self, format: Format, stage: PlanStage | None) -> str:
        """Return the plan that trains. As text, a mini-batch is followed by the evaluation on the whole graph."""
        shown = self.plan.explain(format, stage)
        if format == "json":
            schedule = self.job.schedule
            return shown if schedule is None else json.dumps(json.loads(shown) | {"storage": schedule.data()}, indent=2)
        if self.job.batch is None or format != "text" or stage in ("logical", "rewritten"):
            return shown
        stored = self.job.stored
        if stored is None or stored.sizes.messages:  # the evaluation of learned rows alone is ranks of these rows
            shown = f"{shown}\n{evaluation_text(self.job.planned)}"
        schedule = self.job.schedule
        return shown if schedule is None else "\n".join([shown, *schedule.lines(whole=stage is not None), ""])

    @spark_translated()
    def _with_epochs(self, format: Format, stage: PlanStage | None, epochs: int) -> str:
        """Return the plan of mini-batches beside what epochs of a copy of the model have taken."""
        alone: dict[str, Any] = {"checkpoint_dir": None, "resume": False, "resume_with": None, "log_dir": None}
        alone |= {"mlflow": False, "checkpoint_batches": None, "patience": None}
        alone |= {"epochs": NOT_COUNTED + epochs, "progress": False}
        figures: list[dict[str, float]] = []  # after each epoch
        in_parts = self.job.in_parts
        regime = self._settled.regime
        if in_parts is not None and isinstance(regime, MiniBatch):  # with the partitions that are shown
            alone["regime"] = replace(regime, order=in_parts.division.call)
        with beside_storage(None if in_parts is None else in_parts.folder) as folder:
            copied = Trainer(copy.deepcopy(self.model), self.graph, **{**self._given, **alone, "storage_dir": folder})
            run = copied._fit(Tracker(), lambda passes: figures.append(dict(passes.figures() or {})))
        peak = sum(run.report["peak_memory_bytes"].values())
        found = measures_of_epochs(self.job, self._settled, run.history, figures, peak)
        shown = self._explained(format, stage)
        if format == "json":
            return json.dumps(json.loads(shown) | {"measured": totals_data(found)}, indent=2)
        return "\n".join([shown, *total_lines(found), ""])

    @spark_translated()
    def _with_more(self, format: Format, stage: PlanStage | None, epochs: int, compared: bool) -> str:
        planned = self.job.planned
        others = alternatives(self.job, self._settled) if compared else []
        found = self._analyzed(epochs) if epochs else None
        if format == "text" and stage is None and compared:
            shown = head_text(planned)
        elif format == "text" and stage is None:
            shown = brief_text(planned)
        else:
            shown = explain(planned, format, stage or "all", analysis_data(found) if found else None)
        if format == "json" and others:
            return json.dumps(json.loads(shown) | {"alternatives": alternative_data(others)}, indent=2)
        if format != "text":
            return shown
        sections = [*([alternative_lines(others)] if others else []), *([analysis_lines(found)] if found else [])]
        return "\n".join([shown, *("\n".join([*lines, ""]) for lines in sections)])

    def _analyzed(self, epochs: int) -> Analysis:
        check_engine(self._settled, self.graph)
        return analyze(self.job, self._settled, weights_of(self.model), epochs)

    @property
    def plan(self) -> PlanView:
        """The plan as an object that shows itself: as a page in a notebook, and as the text of `explain` elsewhere.

        Raises:
            GraphError, ModelError, PlanError: If the model cannot be trained on the graph.
        """
        with translated():
            return PlanView(self.job.shown, self._storage_section)

    def _storage_section(self) -> str:
        """Return the schedule of a run from a disk as a section of a page; "" for other runs."""
        schedule = self.job.schedule
        return "" if schedule is None else schedule.section()

    @spark_translated()
    def fit(self) -> Run:
        """Train the model, and return the finished run. All processes that were started are stopped, even after an error.

        Raises:
            GraphError, ModelError, PlanError: Before the first epoch, if the model cannot be trained on the graph.
            EngineError: If an engine or a worker fails, or if the loss is no longer finite.
            CheckpointError: If a checkpoint cannot be written or belongs to a different run.
        """
        with open_tracker(self._settled.log_dir, self._settled.mlflow, self._settled.resume) as tracker:
            done = self._fit(tracker)
            tracker.finish(done)
            return done

    def _fit(self, tracker: Tracker, after_epoch: Callable[[Passes], None] = lambda passes: None) -> Run:
        with ExitStack() as stack:
            started = time.perf_counter()
            memory = stack.enter_context(MemoryWatch())
            stack.callback(self._forget_job)
            check_engine(self._settled, self.graph)
            job = self.job
            if self._settled.checkpoint_dir is not None:
                stack.enter_context(claimed(Path(self._settled.checkpoint_dir)))
            learner, passes = stack.enter_context(self._opened_passes(job))
            setup_seconds = time.perf_counter() - started
            load = LoadWatch()
            self._train(learner, passes, tracker, after_epoch)
            quiet = load.quiet
            bytes_moved = passes.bytes_moved()
            batches: Mapping[str, Any] | None = passes.figures()
            if (in_parts := job.in_parts) is not None:
                batches = {**(batches or {}), "partitions": str(in_parts.division)}
        learner.restore_best()
        if quiet and job.planned.options.seconds is None:  # else the plan's passes are not all that an epoch does
            remember_epochs(job, self._settled, learner.state.history[learner.resumed_after :])
        return finished(learner, self.graph, setup_seconds, memory.peak, bytes_moved, alone=True, batches=batches)

    @contextmanager
    def _opened_passes(self, job: Job) -> Iterator[tuple[Learner, Passes]]:
        """Yield the learner and its passes. With rows on a disk or in Spark, the model has those of the best epoch at the end."""
        if job.stored is not None:
            with open_stored(self.model, job, self._settled) as opened:
                yield opened
            return
        if job.rows_in_spark:
            from lotan.training.rows_in_spark import SparkRowsLearner  # here, because the local engine needs no Spark

            rows_learner = SparkRowsLearner(job.learned(self.model), job, self._settled)
            with open_passes(job, self.graph, self._settled, rows_learner) as passes, rows_learner.on(passes.engine):
                yield rows_learner, passes
            return
        if job.stored_vertices is not None and job.stored_vertices.learned:
            with open_vertices_with_rows(self.model, job, self._settled) as opened:
                yield opened
            return
        learner = Learner(job.learned(self.model), job, self._settled)
        with open_passes(job, self.graph, self._settled, learner) as passes:
            yield learner, passes

    def _forget_job(self) -> None:
        self._job = None
        self._opened.close()

    def _train(self, learner: Learner, passes: Passes, tracker: Tracker, after_epoch: Callable[[Passes], None]) -> None:
        state, stopping, epochs = learner.state, learner.state.stopping, self._settled.epochs
        start = start_of(learner)
        tracker.begin(start)
        with closing(Progress(epochs, len(start.history), self._settled.progress, listener=tracker.epoch)) as progress:
            options, time_words = learner.job.planned.options, learner.job.time_words(epochs)
            progress.say(f"memory: {options.memory}; time: {time_words}; weights: {options.weights}")
            for line in (*passes.notes, *learner.job.warnings):
                progress.say(line)
            if state.epoch or state.part.batches:
                changes = [f"{name} {value}" for name, value in (self._settled.resume_with or {}).items()]
                within = f" and {state.part.batches} mini-batches of the next" if state.part.batches else ""
                progress.say(
                    f"resumed after epoch {state.epoch}{within}" + (f", with {', '.join(changes)}" if changes else "")
                )
            while not learner.done:
                run_epoch(passes, lambda learner: progress.epoch(learner.state.history[-1]))
                after_epoch(passes)
            if learner.lacks_metrics:  # the resumed run ends with an epoch that was not meant to be the last
                improved = evaluate(passes, [learner])
                learner.keep(improved[learner])
                tracker.epoch(state.history[-1])
            passes.end([learner])
            if learner.exhausted:
                progress.say(f"stopped early: {stopping.monitor} was best in epoch {stopping.best_epoch}")
