"""A plan in words: trees of operators for the logical and the rewritten graph, and lists of steps for the physical plan.

Text fits 100 columns and is deterministic, as golden files check. The JSON form has the same facts as plain data.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from planner.chunks import chunk_rows
from planner.compiler import Planned
from planner.cost.seconds import WAYS, PassCost, Pricing, StepCost
from planner.estimate import node_bytes, sizes_of_pass
from planner.explain.rules import rule_facts, rule_lines
from planner.explain.sizes import counted, duration, memory, quantity, size
from planner.holding.budget import Budget, pass_uses
from planner.holding.hold_columns import Holding
from planner.keeping import saved_row_bytes
from planner.lifetimes import alive_bytes
from planner.local_memory import local_bytes
from planner.nodes import EdgeColumn, EdgeWeight, Node, StaticColumn, topological
from planner.options import Options
from planner.physical import Plan, Stage
from planner.printer import WIDTH, aligned, constants, engine, has_line, label, row_inputs, tree, wrapped
from planner.regime import Sampling
from planner.spec import Call
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from planner.traits import EngineTraits
from planner.work import GROUPS

PlanStage = Literal["all", "logical", "rewritten", "physical"]
OWN = "beside its steps: the pass itself"
BESIDE = 42  # columns of a line for the estimates of a step
PASSES = {
    "once": "once, before the first epoch",
    "epoch": "one epoch",
    "epoch_and_evaluation": "one epoch, with the evaluation after the one before",
    "evaluation": "evaluation",
}
"""The passes of a plan, each by the name of its data, with its title."""
ESTIMATED = ("epoch", "evaluation", "epoch_and_evaluation")
"""The passes whose seconds stand in the head of the text."""
MOVED = {"piped": "piped", "shuffled": "shuffled", "driver": "between driver and Spark", "spilled": "spilled"}
"""The kinds of bytes of a pass that leave a process on Spark, each in words."""


@dataclass(frozen=True)
class Measured:
    """The measured figures of a plan's passes, as plain data."""

    totals: Sequence[Mapping[str, Any]]  # each with "what", "unit", "estimated" or None, "measured" and "off"
    steps: Mapping[str, Sequence[Mapping[str, Any]]]
    """For each step of a pass, by the pass's name: "rows", "bytes", "piped_bytes", "seconds" as far as known, and the
    names of those that are "off"."""
    own: Mapping[str, float]  # known seconds of a pass without its steps, by the pass's name


def as_text(planned: Planned, stage: PlanStage = "all") -> str:
    """Return the plan, or one stage of it, in lines of at most 100 columns."""
    sections = [_head(planned)]
    if stage in ("all", "logical"):
        sections.append(_section("logical", tree(planned.logical)))
    if stage in ("all", "rewritten"):
        sections.append(_section("rewritten", tree(planned.rewritten.root)))
        sections.append(_section("rules", rule_lines(planned)))
    if stage in ("all", "physical"):
        for name, steps in passes(planned.plan).items():
            if steps:
                sections.append(_section(f"physical: {titles(planned.plan)[name]}", step_lines(planned, steps)))
    return "\n".join(sections)


def head_text(planned: Planned) -> str:
    """Return the lines above a plan: its graph, its engine and its estimates."""
    return _head(planned)


def passes(plan: Plan) -> dict[str, tuple[Step, ...]]:
    """Return the passes that explain shows, in order, by their names in PASSES."""
    walks = plan.prepare, plan.train, plan.train_and_evaluate, plan.evaluate
    return dict(zip(PASSES, walks, strict=True))


def titles(plan: Plan) -> dict[str, str]:
    """Return the titles of a plan's passes, by name."""
    if not plan.evaluate:
        return PASSES | {"epoch": "one batch"}
    return PASSES | ({"evaluation": "evaluation, after the last epoch"} if plan.reuses_evaluation else {})


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"== {title} ==", *lines, ""])


def _head(planned: Planned) -> str:
    words = head_words(_head_data(planned), planned.options.traits)
    wrap = partial(textwrap.wrap, width=WIDTH, subsequent_indent=" " * 8)
    lines = [  # a path stays in one piece, so that it can be copied
        wrap(f"{name:<8}{said}", break_long_words=False, break_on_hyphens=False) for name, said in words.items()
    ]
    return "\n".join([*(piece for line in lines for piece in line), ""])


def head_words(data: Mapping[str, Any], traits: EngineTraits) -> dict[str, str]:
    """Return the lines above a plan, by their names: its graph, its engine and its estimates.

    Args:
        data: The plan's plain data.
        traits: The traits of its engine.
    """
    graph = data["graph"]
    reason = f" ({data['engine_reason']})" if data["engine_reason"] else ""
    weights = f"; weights: {data['weights']}" if "weights" in data else ""
    sizes = f"{graph['vertices']:,} vertices, {graph['edges']:,} edges"
    features = f"{graph['width']:,} features{weights}"
    batch = data.get("batch")
    what, said = ("Batch", f"{_batch(batch)}; {sizes} estimated") if batch else ("Graph", sizes)
    return {
        what: f"{said}, {features}",
        **({"Types": data["types"]} if "types" in data else {}),
        **({"Rows": f"{_learned(data)}; {_changed(batch)}"} if "learned" in data else {}),
        "Engine": f"{data['engine']}{reason}",
        "Spread": _spread(traits, data["layout"]),
        "Memory": data["memory"]
        or f"{memory(data['estimated_peak_bytes'])} estimated, all processes of this host together",
        "Time": _time(data),
        "Rates": _rates(data["rates"]),
        **({"Bytes": _bytes(data["estimated_epoch_bytes"])} if not traits.in_process else {}),
        **({"Disk": _disk(data["disk"])} if "disk" in data else {}),
        **({"Files": _files(data["files"])} if "files" in data else {}),
        **({"Measured": _measured(data["measured"])} if "measured" in data else {}),
    }


def _batch(batch: Mapping[str, Any]) -> str:
    """Return the sampling of a batch, and the vertices that its levels are expected to have."""
    levels = " + ".join(f"{count:,}" for count in batch["levels"])
    spared = batch["hops_spared"]
    fewer = f", {counted(spared, 'hop')} fewer, because first sums are computed once" if spared else ""
    return (
        f"{batch['said']}; {batch['examples']:,} examples, batches an epoch: {batch['batches']:,}; levels of {levels}"
        f"{fewer}"
    )


def _learned(data: Mapping[str, Any]) -> str:
    """Return the sizes of learned rows, and their place."""
    tables: Sequence[Mapping[str, Any]] = data["learned"]
    sizes = (f"{one['rows']:,} rows of {counted(one['width'], 'number')} ({size(one['bytes'])})" for one in tables)
    named = zip(tables, sizes, strict=True)
    return f"learned, {data['learned_in']}: " + ", ".join(f"{one['parameter']} {said}" for one, said in named)


def _changed(batch: Mapping[str, Any] | None) -> str:
    """Return which learned rows a step changes."""
    return "a step changes the rows that its batch reads" if batch else "a step changes all"


def _time(data: Mapping[str, Any]) -> str:
    """Return the estimated seconds of training and of an evaluation, each alone, and of both in one pass if there is one."""
    of_pass, evaluation, both = (data[f"estimated_{name}_seconds"] for name in ESTIMATED)
    training, ranking = data["estimated_training_seconds"], data.get("estimated_ranking_seconds", 0.0)
    evaluates = "" if evaluation is None else f", {duration(evaluation)} for an evaluation"
    evaluates += f", {duration(ranking)} of them to rank links" if ranking else ""
    if "batch" in data:
        drawing = data["batch"].get("drawing_seconds", 0.0)
        drawn = f", {duration(drawing)} of them to draw and send batches" if drawing else ""
        return (
            f"{duration(of_pass)} estimated for a batch, {duration(training)} for an epoch's training{drawn}{evaluates}"
        )
    both_in_one = f", {duration(both)} for both" if both else ""
    what = "training pass" if training == of_pass else "training"
    return f"{duration(training)} estimated for an epoch's {what}{evaluates}{both_in_one}"


def _rates(rates: Mapping[str, Any]) -> str:
    """Return where the rates come from, and how to measure them again."""
    source = "measured on this machine" if rates["measured"] else "as shipped, of another machine"
    anew = f"`lotan doctor --calibrate` measures {'anew' if rates['measured'] else 'this one'}"
    if not rates["runs"]:
        return f"{source}; {anew}"
    factors = ", ".join(f"{name} x{factor:.2f}" for name, factor in rates["corrections"].items())
    return f"{source}, corrected by {counted(rates['runs'], 'run')} ({factors}); {anew}; LOTAN_COSTS=off leaves corrections out"


def _bytes(moved: Mapping[str, int]) -> str:
    counts = [f"{size(count)} {MOVED[name]}" for name, count in moved.items() if count or name == "piped"]
    return f"{', '.join(counts)}, estimated for an epoch's training pass"


def _disk(disk: Mapping[str, Any]) -> str:
    """Return the bytes and seconds of columns on Spark's local disk, with the reason, and a note if its room is not checked."""
    unseen = "the disks of executors cannot be seen from here, and are not checked"
    if not disk["bytes"]:
        return unseen
    reason = "its heap has room for few rows at a time"
    if disk["storage"] is not None:
        reason = f"its storage in memory has room for {memory(disk['storage'])}"
    return (
        f"{size(disk['bytes'])} to Spark's local disk or from there, {duration(disk['seconds'])}, estimated for an epoch's "
        f"training pass; {reason}{f'; {unseen}' if disk['unseen'] else ''}"
    )


def _measured(totals: Sequence[Mapping[str, Any]]) -> str:
    """Return the measured totals of passes. An estimate stands beside a total that is far from it."""
    said = [
        [quantity(one["what"], one["unit"], one[which] or 0.0) for which in ("measured", "estimated")] for one in totals
    ]
    return "; ".join(
        f"{one['what']} {measured}{f' (! {estimated} estimated)' * one['off']}"
        for one, (measured, estimated) in zip(totals, said, strict=True)
    )


def _files(files: Mapping[str, Any]) -> str:
    """Return the bytes and seconds of columns in files of the process."""
    return (
        f"{size(files['read_bytes'])} of columns read and {size(files['stored_bytes'])} stored, {duration(files['seconds'])}, "
        "estimated for a training pass; --verbose shows the columns of each step"
    )


def _spread(traits: EngineTraits, layout: Mapping[str, int]) -> str:
    """Return the processes or threads over which an engine spreads its work, as far as this host knows them."""
    chunks = f"chunks of {counted(layout['chunk_rows'], 'row')} at most"
    if traits.in_process:
        return f"{counted(layout['cores'], 'thread')}; {chunks}"
    tasks = f"{counted(layout['partitions'], 'partition')}, {counted(layout['tasks'], 'task')} at a time"
    return f"{tasks}, {counted(layout['workers'], 'worker')}; {chunks}"


# --- steps ----------------------------------------------------------------------------------------------------------


def step_lines(planned: Planned, steps: Sequence[Step]) -> list[str]:
    """Return the steps in order, each with its engine, rows, bytes and seconds.

    The calls of a stage stand below its pipe.
    """
    cost = planned.cost(steps)
    lines, costs, moves = [], cost.steps, _move_lines(planned, steps, cost)
    backward = {step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"}
    for number, step in enumerate(steps):
        rows, moved = step.rows(planned.statistics), step.bytes(planned.statistics, planned.plan)
        where = "dl" if isinstance(step, PipeStep) else "graph"
        said = f"{rows:>11,} rows", f"{size(moved):>8}", f"{duration(costs[number].seconds):>8}"
        lines += moves[number][0]
        lines += aligned(f"{number:>2} {step.label}", where, *said, beside=BESIDE)
        if isinstance(step, PipeStep) and step.mode != "backward":
            lines += [
                line
                for call in planned.plan.stage(step.stage).calls
                for line in wrapped("     " + call_label(call), WIDTH)
            ]
            lines += _kept_line(planned, planned.plan.stage(step.stage)) if step.stage in backward else []
        lines += moves[number][1]
    return [*lines, *own_line(duration(cost.own))]


def _move_lines(planned: Planned, steps: Sequence[Step], cost: PassCost) -> list[tuple[list[str], list[str]]]:
    """Return the lines before and after each step on the columns that it reads from files, loads, and stores there."""
    budget, holding = _held(planned, steps)
    if budget is None or holding is None:
        return [([], [])] * len(steps)
    sizes = pass_uses(planned.plan, steps, planned.statistics, budget.layout).sizes
    seconds = _file_seconds(cost)

    def lines(what: str, names: Collection[str]) -> list[str]:
        moved = ((f"   {what}({name})", sizes[name]) for name in sorted(names))
        return [
            line
            for text, count in moved
            for line in aligned(
                text, "disk", f"{'':>16}", f"{size(count):>8}", f"{duration(count * seconds):>8}", beside=BESIDE
            )
        ]

    return [
        ([*lines("Load", loads), *lines("Read", reads - loads)], lines("Store", stores))
        for reads, loads, stores in zip(holding.reads, holding.loads, holding.stores, strict=True)
    ]


def _held(planned: Planned, steps: Sequence[Step]) -> tuple[Budget | None, Holding | None]:
    """Return the memory of a pass some of whose columns lie in files, and its columns in memory; None if none lie there."""
    pricing = planned.options.pricing
    budget = Budget.of(pricing.traits, pricing.layout)
    return budget, None if budget is None else budget.holding(planned.plan, steps, planned.statistics)


def _file_seconds(cost: PassCost) -> float:
    """Return the seconds that a byte takes to a file or from one."""
    return cost.prices["neural"][GROUPS["neural"].index("spilled_bytes")] / WAYS


def own_line(seconds: str) -> list[str]:
    """Return the line with the seconds that a pass takes without its steps."""
    return aligned(f"   {OWN}", "", f"{'':>16}", f"{'':>8}", f"{seconds:>8}", beside=BESIDE)


def _kept_line(planned: Planned, stage: Stage) -> list[str]:
    """Return the line on values that a forward run saves for the stage's backward, if there are any."""
    kept = saved_row_bytes(stage)
    if not kept:
        return []
    line = f"     keeps {size(kept)} a row for backward"
    if planned.options.traits.memory == "process":
        return [line]
    beyond = {"file": "in a file", "recompute": "computed again"}[stage.overflow]
    return [f"{line}, worth {stage.worth * 1e9:.2g} s a GB; beyond a worker's memory: {beyond}"]


def call_label(call: Call) -> str:
    """Return `name = operator(inputs)` for one call of a stage."""
    operator = call.op.removeprefix("aten.").removeprefix("lotan.").removesuffix(".default")
    numbers = constants(call.arguments, call.keywords)
    if call.op == "lotan.dropout":
        numbers = [f"p={call.arguments[1]:g}", f"key={call.arguments[2]}"]
    if call.op == "lotan.random":
        _, kind, p, key = call.arguments
        numbers = [str(kind), *[f"p={p:g}"] * (kind == "chance"), f"key={key}"]
    given = [*call.reads, *numbers]
    return f"{call.output} = {operator}({', '.join(given)})"


# --- data -----------------------------------------------------------------------------------------------------------


def as_data(
    planned: Planned,
    stage: PlanStage = "all",
    less: Mapping[str, Planned] | None = None,
    measured: Measured | None = None,
) -> dict[str, Any]:
    """Return the plan as plain data for JSON. `less` is handed on to `rule_facts`."""
    data = {**_head_data(planned), "rules": rule_facts(planned, less), **graphs_data(planned, stage)}
    if measured is None:
        return data
    for name, steps in measured.steps.items():
        for step, found in zip(data.get(name, ()), steps, strict=False):  # none, if no physical plans are shown
            step["measured"] = dict(found)
    for name, seconds in measured.own.items():
        data.get("own_seconds", {}).get(name, {})["measured"] = seconds
    return data | {"measured": [dict(one) for one in measured.totals]}


def _head_data(planned: Planned) -> dict[str, Any]:
    statistics, options, plan = planned.statistics, planned.options, planned.plan
    walks = zip(ESTIMATED, (plan.train, plan.evaluate, plan.train_and_evaluate), strict=True)
    costs = {name: planned.cost(steps) for name, steps in walks if steps}
    return {
        "graph": {"vertices": statistics.vertices, "edges": statistics.edges, "width": statistics.width},
        **({"weights": options.weights} if options.weights else {}),
        **({"types": options.types} if options.types else {}),
        **({"learned": _learned_data(planned), "learned_in": options.learned_in} if planned.given[0].learned else {}),
        **({"batch": _batch_data(options.sampling, statistics)} if options.sampling and statistics.sampled else {}),
        "engine": options.traits.name,
        "engine_reason": options.engine_reason,
        "free_bytes": options.free_bytes,
        "layout": _layout_data(planned),
        "estimated_peak_bytes": planned.peak_bytes,
        "estimated_peak_bytes_local": local_bytes(plan, statistics, options.pricing.layout),
        "memory": options.memory,
        "rates": _rates_data(options.pricing),
        "estimated_epoch_bytes": {how: round(costs["epoch"].moved(how)) if "epoch" in costs else 0 for how in MOVED},
        **_disk_data(planned, costs.get("epoch")),
        **_files_data(planned, costs.get("epoch")),
        **{f"estimated_{name}_seconds": _rounded(costs[name].seconds) if name in costs else None for name in ESTIMATED},
        **_seconds_data(options, costs.get("epoch")),
    }  # fmt: skip


def _seconds_data(options: Options, epoch: PassCost | None) -> dict[str, float]:
    """Return the seconds of an epoch's training; with batches or links those of an evaluation too, which replace its pass's."""
    found, sampling = options.seconds, options.sampling
    if found is not None:
        ranked = {"estimated_ranking_seconds": _rounded(found.ranking)} if found.ranking else {}
        parts = {"training": found.training, "evaluation": found.evaluation}
        return {f"estimated_{name}_seconds": _rounded(seconds) for name, seconds in parts.items()} | ranked
    times, drawing = (1, 0.0) if sampling is None else (sampling.batches, sampling.drawing_seconds)
    return {"estimated_training_seconds": _rounded(0.0 if epoch is None else times * epoch.seconds + drawing)}


def _disk_data(planned: Planned, epoch: PassCost | None) -> dict[str, Any]:
    """Return the bytes and seconds of columns on Spark's local disk in an epoch's training pass; nothing if there are none.

    With executors elsewhere and a memory limit, it says at least that their disks are not seen.
    """
    count, seconds = (0.0, 0.0) if epoch is None else epoch.filed
    options, layout = planned.options, planned.options.pricing.layout
    unseen = layout.shuffled and not options.traits.in_process
    if not count and not (unseen and options.memory_limit is not None):
        return {}
    storage = None if layout.in_turn else layout.storage
    return {"disk": {"bytes": round(count), "seconds": _rounded(seconds), "storage": storage, "unseen": unseen}}


def _files_data(planned: Planned, epoch: PassCost | None) -> dict[str, Any]:
    """Return the bytes and seconds of columns that a training pass on "local" has in files; nothing if there are none."""
    _, holding = _held(planned, planned.plan.train)
    if epoch is None or holding is None or not holding.moved_bytes:
        return {}
    moved = {"read_bytes": holding.read_bytes, "stored_bytes": holding.stored_bytes}
    return {"files": moved | {"seconds": _rounded(holding.moved_bytes * _file_seconds(epoch))}}


def _batch_data(sampling: Sampling, statistics: Statistics) -> dict[str, Any]:
    within = [rows for rows, _ in statistics.sampled]
    levels = [now - before for now, before in zip(within, [0, *within], strict=False)]
    drawn = {"drawing_seconds": sampling.drawing_seconds} if sampling.drawing_seconds else {}
    said = {"said": str(sampling), "examples": sampling.examples, "batches": sampling.batches, "levels": levels}
    return said | drawn | {"hops_spared": len(sampling.fanouts) + 1 - len(levels)}


def _learned_data(planned: Planned) -> list[dict[str, Any]]:
    """Return the parameters that have a row for each vertex of the graph, of which a batch reads some."""
    train, *_ = planned.given
    rows = {parameter.name: parameter.shape[0] for parameter in train.parameters}
    return [
        {"parameter": name, "rows": rows[name], "width": width, "bytes": 4 * rows[name] * width}
        for name, width in train.learned.items()
    ]


def _rates_data(pricing: Pricing) -> dict[str, Any]:
    return {"measured": pricing.measured is not None, "runs": pricing.runs, "corrections": asdict(pricing.corrections)}


def _layout_data(planned: Planned) -> dict[str, int]:
    """Return the partitions, the tasks at one time, the workers, the cores, and the most vertices in a chunk."""
    layout, traits = planned.options.pricing.layout, planned.options.traits
    return {"partitions": layout.partitions, "tasks": layout.crew.tasks, "workers": layout.crew.workers,
            "cores": layout.cores, "chunk_rows": chunk_rows(planned.statistics.vertices, traits, layout)}  # fmt: skip


def graphs_data(planned: Planned, stage: PlanStage = "all") -> dict[str, Any]:
    """Return the data that can be drawn: the operator graphs, and the steps of each pass."""
    statistics, plan = planned.statistics, planned.plan
    data: dict[str, Any] = {}
    if stage in ("all", "logical"):
        data["logical"] = _graph_data(planned.logical, statistics)
    if stage in ("all", "rewritten"):
        data["rewritten"] = _graph_data(planned.rewritten.root, statistics)
    if stage in ("all", "physical"):
        data["stages"] = [_stage_data(value) for value in plan.stages]
        data["passes"], data["own_seconds"] = titles(plan), {}
        for name, steps in passes(plan).items():
            sizes = sizes_of_pass(plan, steps, statistics)
            turn = [step.turns for step in steps]
            cost, alive = planned.cost(steps), alive_bytes(plan, steps, statistics)
            data["own_seconds"][name] = {"estimated": _rounded(cost.own)}
            data[name] = [_step_data(planned, step, cost.steps[at], sizes)
                          | {"alive_bytes": alive[at], "turn": turn[at], "backward": any(turn[:at])}
                          for at, step in enumerate(steps)]  # fmt: skip
    return data


def _graph_data(root: Node, statistics: Statistics) -> list[dict[str, Any]]:
    """Return the nodes of an operator graph. Columns come first, so that the drawn operators have consecutive numbers."""
    order = sorted(filter(has_line, topological(root)), key=lambda node: not isinstance(node, _STATIC))
    number = {node: index for index, node in enumerate(order)}
    return [
        {"id": number[node], "operator": label(node), "engine": engine(node), "rows": node.output.rows,
         "shape": list(node.output.shape), "bytes": node_bytes(node.output, statistics),
         "static": isinstance(node, _STATIC), "layer": getattr(node, "layer", ""),
         "inputs": [number[child] for child in row_inputs(node)]}
        for node in order
    ]  # fmt: skip


_STATIC = StaticColumn, EdgeWeight, EdgeColumn


def _stage_data(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "inputs": [value.column for value in stage.inputs],
            "parameters": [parameter.name for parameter in stage.parameters],
            "kept_row_bytes": saved_row_bytes(stage), "overflow": stage.overflow, "worth": stage.worth,
            "calls": [call_label(call) for call in stage.calls]}  # fmt: skip


def _step_data(planned: Planned, step: Step, cost: StepCost, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {"operator": step.label, "engine": "dl" if isinstance(step, PipeStep) else "graph",
            "stage": step.stage if isinstance(step, PipeStep) else None,
            "rows": step.rows(planned.statistics),
            "bytes": step.bytes(planned.statistics, planned.plan),
            "seconds": _rounded(cost.seconds), **{f"{how}_bytes": round(getattr(cost, f"{how}_bytes")) for how in MOVED},
            "reads": {name: sizes[name] for name in step.reads},
            "makes": {name: sizes[name] for name in step.makes}}  # fmt: skip


def _rounded(seconds: float) -> float:
    """Return seconds with three digits, which is more than an estimate is worth."""
    return float(f"{seconds:.3g}")
