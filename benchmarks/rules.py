"""What each rule of the planner is worth by itself: an epoch with it and without it; and where it should not fire.

    python benchmarks/rules.py                                             writes benchmarks/results/rules.md
    python benchmarks/rules.py --rules hoist_invariant --engines local     fewer
    python benchmarks/rules.py --vertices 2000 --edges 20000 --epochs 3    smaller

Graphs: *medium*, generated, 20,000 vertices with 200,000 edges, 128 features and 40 classes, 54 % of them in training;
*coauthor_cs* (6,805 features, of which 1 % are not zero) and *cora* (140 training vertices) as published or, where they are not
on this machine, generated with their sizes; *few labels* and *trained*, medium with 2 % and with all of its vertices in training.
Each line is processes with the rule and as many without, in turns, all other rules on but those under `also off`; medians over
all their epochs. An epoch is its training pass, for reuse_evaluation with its evaluation; the first ones do not count. `handed
on` is what the steps of an epoch are estimated to make, `moved` what went through sockets, shared memory and shuffles in fact,
`peak` all processes together.

drop_unit_weight is worth nothing by itself where sums are the Graph Engine's, for engines know there that a graph has no
weights. It spares a product for each edge where messages run in the DL Engine (plan=general), and lets push_down_extremes take
a greatest message that would be weighted (the greatest of weighted rows). drop_dead_gradients has no line where it should not
fire: every model reads features, and nobody trains these.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apart import run_apart, write_table
from epoch import MEBI, STAND_INS, machine

if TYPE_CHECKING:
    import torch

    import lotan

RESULTS = Path(__file__).parent / "results" / "rules.md"
WARM_UP = 2
EPOCHS = {"local": 10, "blocks": 4, "rows": 3}
ROUNDS = {"local": 3, "blocks": 1, "rows": 1}  # processes with the rule, and as many without
ENGINES: dict[str, dict[str, Any]] = {  # settings of the Trainer
    "local": {"engine": "local"},
    "blocks": {"engine": "blocks", "master": "local[2]", "workers": 2},
    "rows": {"engine": "rows", "master": "local[2]", "workers": 2},
}
WIDTH, CLASSES = 128, 40  # of the medium graph
TRAINED = {"few labels": 0.02, "trained": 1.0}  # of its vertices, where not as drawn
CORA_TRAINING = 140  # vertices


@dataclass(frozen=True)
class Case:
    """A model on a graph, to be trained with a rule and without it."""

    rule: str
    graph: str
    model: str
    engines: tuple[str, ...] = ()  # to measure on; none: there the rule shall not fire, and both plans are one
    off: tuple[str, ...] = ()  # rules that both sides do without
    settings: dict[str, Any] = field(default_factory=dict)
    models: int = 1  # trained together


EVERY, BOTH, LOCAL, BLOCKS = ("local", "blocks", "rows"), ("local", "blocks"), ("local",), ("blocks",)
CASES = (
    Case("share_subplans", "medium", "two heads", LOCAL),
    Case("share_subplans", "medium", "mlp"),
    Case("drop_unit_weight", "medium", "gcn", LOCAL, settings={"plan": "general"}),
    Case("drop_unit_weight", "medium", "greatest of weighted rows", BOTH),
    Case("drop_unit_weight", "medium", "gin"),
    Case("lift_message", "medium", "gat", LOCAL),
    Case("lift_message", "medium", "gin"),
    Case("push_down", "medium", "gcn", BOTH),
    Case("push_down", "medium", "gat"),
    Case("push_down_edges", "medium", "gat", BOTH),
    Case("push_down_edges", "medium", "gcn"),
    Case("push_down_extremes", "medium", "sage of maxima", BOTH),
    Case("push_down_extremes", "medium", "gcn"),
    Case("commute_linear", "coauthor_cs", "sage", LOCAL, ("hoist_invariant", "prune_vertices")),
    Case("commute_linear", "medium", "wide sage", BLOCKS),
    Case("commute_linear", "coauthor_cs", "gcn of two layers"),
    Case("hoist_invariant", "medium", "gcn", BOTH),
    Case("hoist_invariant", "medium", "gcn behind dropout"),
    Case("reuse_evaluation", "medium", "gcn without dropout", BOTH, settings={"eval_every": 1}),
    Case("reuse_evaluation", "medium", "gcn", BOTH, settings={"eval_every": 1}),
    Case("reuse_evaluation", "coauthor_cs", "gcn of two layers", LOCAL, settings={"eval_every": 1}),
    Case("reuse_evaluation", "medium", "gcn behind dropout"),
    Case("fuse_apply", "medium", "gcn", BOTH),
    Case("fuse_apply", "medium", "one linear map"),
    Case("prune_vertices", "cora", "gcn of two layers", LOCAL),
    Case("prune_vertices", "few labels", "gcn", EVERY),
    Case("prune_vertices", "few labels", "gat", BOTH),
    Case("prune_vertices", "trained", "gcn"),
    Case("drop_dead_gradients", "medium", "gcn", LOCAL, ("hoist_invariant",)),
    Case("keep_or_recompute", "medium", "gcn", ("blocks",), settings={"worker_memory": "4m"}),
    Case("keep_or_recompute", "medium", "one linear map"),
    Case("hold_sparse", "coauthor_cs", "gcn of two layers", LOCAL),
    Case("hold_sparse", "medium", "gat"),
    Case("choose_physical", "cora", "gcn of two layers", LOCAL, settings={"eval_every": 1}),
    Case("choose_physical", "coauthor_cs", "gcn of 128", LOCAL, settings={"eval_every": 1}),
    Case("choose_physical", "medium", "gcn"),
    Case("share_models", "cora", "gcn of two layers", LOCAL, models=4),
    Case("share_models", "medium", "gcn", BLOCKS, models=4),
    Case("share_models", "medium", "gcn"),
)


# --- graphs and models ----------------------------------------------------------------------------------------------


@cache
def read_graph(name: str, vertices: int, edges: int) -> lotan.Graph:
    """One of the graphs above, with so many vertices and edges if it is generated."""
    import lotan
    from lotan.exploring.calibration import thinned, trained_on

    if name not in STAND_INS:
        graph = lotan.datasets.generate(vertices, edges, WIDTH, CLASSES, seed=0)
        return trained_on(graph, round(TRAINED[name] * vertices)) if name in TRAINED else graph
    try:
        return lotan.Graph.read(name)
    except lotan.GraphError:
        graph = thinned(lotan.datasets.generate(*STAND_INS[name], seed=0), density=0.01)
        return trained_on(graph, CORA_TRAINING) if name == "cora" else graph


def make_model(name: str, width: int, classes: int) -> torch.nn.Module:
    """A model by its name in the table, always with the same weights."""
    import torch

    torch.manual_seed(0)
    return models(width, classes)[name]()


def models(width: int, classes: int) -> dict[str, Callable[[], torch.nn.Module]]:
    import torch

    from lotan import nn

    class TwoHeads(torch.nn.Module):
        """Two layers over one sum of hidden rows, which are narrower than what the layers yield."""

        def __init__(self) -> None:
            super().__init__()
            self.enter = torch.nn.Linear(width, 32)
            self.value, self.gate = nn.SAGEConv(32, classes), nn.SAGEConv(32, classes)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            hidden = self.enter(x).tanh()
            return self.value(hidden, graph) * torch.sigmoid(self.gate(hidden, graph))

    class OneMap(torch.nn.Module):
        """No edges, and nothing that a stage could keep or join."""

        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(width, classes)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            return self.map(x)

    class Dropped(torch.nn.Module):
        """Random numbers before the first sum."""

        def __init__(self) -> None:
            super().__init__()
            self.drop, self.rest = torch.nn.Dropout(0.5), nn.GCN(width, 256, 3, classes, dropout=0.5)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            return self.rest(self.drop(x), graph)

    class WeightedMax(nn.MessagePassing):
        """A linear map, and the greatest of what comes along in-edges, each times its weight."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__("max")
            self.map = torch.nn.Linear(inputs, outputs)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            return self.propagate(graph, self.map(x))

        def message(self, x_j: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
            return x_j * edge_weight.unsqueeze(-1)

    class Greatest(torch.nn.Module):
        """Two such layers."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = WeightedMax(width, 256), WeightedMax(256, classes)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            return self.second(self.first(x, graph).relu(), graph)

    return {
        "gcn": lambda: nn.GCN(width, 256, 3, classes, dropout=0.5),
        "gcn without dropout": lambda: nn.GCN(width, 256, 3, classes),
        "gcn of two layers": lambda: nn.GCN(width, 64, 2, classes, dropout=0.5),
        "gcn of 128": lambda: nn.GCN(width, 128, 2, classes, dropout=0.5),
        "gcn behind dropout": Dropped,
        "sage": lambda: nn.GraphSAGE(width, 64, 2, classes, dropout=0.5),
        "wide sage": lambda: nn.GraphSAGE(width, 256, 2, classes, dropout=0.5),
        "sage of maxima": lambda: nn.GraphSAGE(width, 256, 3, classes, dropout=0.5, aggr="max"),
        "gin": lambda: nn.GIN(width, 64, 2, classes, dropout=0.5),
        "gat": lambda: nn.GAT(width, 64, 2, classes, dropout=0.5, heads=4),
        "mlp": lambda: nn.MLP([width, 64, classes], dropout=0.5, norm=None),
        "two heads": TwoHeads,
        "greatest of weighted rows": Greatest,
        "one linear map": OneMap,
    }


# --- measuring ------------------------------------------------------------------------------------------------------


def trainer_of(case: Case, engine: str, given: bool, options: argparse.Namespace) -> lotan.Trainer:
    """Of a case, with its rule or without it."""
    import lotan

    graph = read_graph(case.graph, options.vertices, options.edges)
    model = make_model(case.model, graph.statistics.width, graph.labels.outputs)
    epochs = (
        WARM_UP + (options.epochs or EPOCHS[engine]) + 1
    )  # the last one is evaluated in any case: it does not count
    settings = {"eval_every": 0, **ENGINES[engine], **case.settings}
    disable = case.off if given else (*case.off, case.rule)
    return lotan.Trainer(
        model, graph, optimizer=lotan.Adam(lr=0.01), epochs=epochs, disable=disable, progress=False, **settings
    )


def measure(case: Case, engine: str, given: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Train in this process."""
    if case.models > 1:
        return measure_batch(case, engine, given, options)
    trainer = trainer_of(case, engine, given, options)
    planned, run = trainer.plan.planned, trainer.fit()
    plan, evaluates = planned.plan, bool(trainer.config.eval_every)
    if given and not planned.firings[case.rule]:
        raise SystemExit(f"{case.rule} does not fire in {case.model} on {case.graph}, where it should pay")
    return {
        "seconds": [entry["train_seconds"] + entry["eval_seconds"] for entry in run.history][WARM_UP:-1],
        "setup": run.report["setup_seconds"],
        "handed": sum(step.bytes(planned.statistics, plan) for steps in plan.epoch(evaluates) for step in steps),
        "moved": sum(run.report["bytes"].values()) / len(run.history),
        "peak": sum(run.report["peak_memory_bytes"].values()),
    }


def measure_batch(case: Case, engine: str, given: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Train some models together in this process."""
    import lotan

    alone = trainer_of(case, engine, given, options)
    graph, epochs = alone.graph, alone.config.epochs
    members = [
        lotan.Member(
            make_model(case.model, graph.statistics.width, graph.labels.outputs), lotan.Adam(lr=0.01), epochs=epochs
        )
        for _ in range(case.models)
    ]
    common = {"eval_every": 0, "progress": False, **ENGINES[engine], **case.settings}
    with lotan.ModelBatch(graph, members, disable=alone.config.disable, **common) as batch:
        batch.train()
        report, history = batch.report(), batch.states[0].history
    return {
        "seconds": [entry["train_seconds"] for entry in history][WARM_UP:-1],
        "setup": report["setup_seconds"],
        "handed": 0,
        "moved": sum(report["bytes"].values()) / len(history),
        "peak": sum(report["peak_memory_bytes"].values()),
    }


def idle_reason(case: Case, options: argparse.Namespace) -> str:
    """What stopped a rule where it should not fire; nothing is trained, for both plans are one."""
    from planner.explain.text import as_data

    planned, without = (trainer_of(case, "local", given, options).plan.planned for given in (True, False))
    (fact,) = [fact for fact in as_data(planned)["rules"] if fact["name"] == case.rule]
    if planned.firings[case.rule] or planned.plan != without.plan:
        raise SystemExit(f"{case.rule} fires in {case.model} on {case.graph}, where it should not")
    return "; ".join(fact["declined"])


# --- the table ------------------------------------------------------------------------------------------------------


def pays_table(found: list[tuple[Case, str, dict[str, Any], dict[str, Any]]]) -> list[str]:
    lines = [
        "| rule | model, graph | engine | s / epoch with | without | without ÷ with | setup, s | handed on, MiB | moved, MiB "
        "| peak, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case, engine, given, without in found:
        seconds = [statistics.median(one["seconds"]) for one in (given, without)]
        off = f"; also off: {', '.join(case.off)}" if case.off else ""
        more = "".join(f"; {name}={value}" for name, value in case.settings.items())
        amounts = [
            f"{mebibytes(given[name])} / {mebibytes(without[name])}" if given[name] or without[name] else ""
            for name in ("handed", "moved", "peak")
        ]
        figures = f"{seconds[0]:.4f} | {seconds[1]:.4f} | {seconds[1] / seconds[0]:.2f}"
        setup = f"{given['setup']:.1f} / {without['setup']:.1f}"
        together = f"{case.models} x " if case.models > 1 else ""
        what = f"{together}{case.model}, {case.graph}{off}{more}"
        lines.append(f"| {case.rule} | {what} | {engine} | {figures} | {setup} | {' | '.join(amounts)} |")
    return lines


def mebibytes(count: float) -> str:
    return f"{count / MEBI:,.0f}" if count >= 10 * MEBI else f"{count / MEBI:.1f}"


def idle_table(found: list[tuple[Case, str]]) -> list[str]:
    lines = ["| rule | model, graph | what stops it |", "|---|---|---|"]
    return [*lines, *(f"| {case.rule} | {case.model}, {case.graph} | {reason} |" for case, reason in found)]


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    rules = list(dict.fromkeys(case.rule for case in CASES))
    parser.add_argument("--rules", nargs="+", choices=rules, default=rules)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--epochs", type=int, help="measured epochs of a process (default: 10 on local, 4 on blocks)")
    parser.add_argument("--rounds", type=int, help="processes on each side (default: 3 on local, 1 on blocks)")
    parser.add_argument("--vertices", type=int, default=20_000, help="of medium (default: 20000)")
    parser.add_argument("--edges", type=int, default=200_000, help="of medium (default: 200000)")
    parser.add_argument("--graphs", nargs="+", help="leave out cases on other graphs (default: none is left out)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/rules.md)")
    parser.add_argument("--one", nargs=3, metavar=("CASE", "ENGINE", "GIVEN"), help=argparse.SUPPRESS)
    return parser.parse_args(words)


def measured(case: Case, engine: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """With the rule and without it, each in fresh processes that take turns."""
    sizes = ["--vertices", str(options.vertices), "--edges", str(options.edges)]
    more = [*sizes, *(["--epochs", str(options.epochs)] if options.epochs else [])]
    what = f"{case.rule}: {case.model} on {engine}"
    found: dict[str, list[dict[str, Any]]] = {"True": [], "False": []}
    for _ in range(options.rounds or ROUNDS[engine]):
        for given, runs in found.items():
            runs.append(run_apart(__file__, ["--one", str(CASES.index(case)), engine, given, *more], what))
    return [{**runs[0], "seconds": [seconds for run in runs for seconds in run["seconds"]]} for runs in found.values()]


def main() -> None:
    options = options_of()
    if options.one:
        number, engine, given = options.one
        print(json.dumps(measure(CASES[int(number)], engine, given == "True", options)))
        return
    cases = [case for case in CASES if case.rule in options.rules and case.graph in (options.graphs or [case.graph])]
    idle = [(case, idle_reason(case, options)) for case in cases if not case.engines]
    read_graph.cache_clear()  # what follows is measured in processes of its own
    paying = []
    for case in cases:
        for engine in case.engines:
            if engine in options.engines:
                paying.append((case, engine, *measured(case, engine, options)))
                print(pays_table(paying[-1:])[-1], flush=True)
    command = shlex.join(["python", "benchmarks/rules.py", *sys.argv[1:]])
    head = ["# Rules", "", f"`{command}` on {machine()}.", "", "\n\n".join(__doc__.split("\n\n")[2:])]
    pays = ["## Where a rule should pay", "", "Pairs are with the rule / without it.", "", *pays_table(paying), ""]
    stopped = ["## Where it should not fire", "", "There, the plan is the same without it.", "", *idle_table(idle), ""]
    write_table(options.out, [*head, *pays, *stopped])


if __name__ == "__main__":
    main()
