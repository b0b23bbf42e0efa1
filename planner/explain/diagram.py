"""A plan as boxes and arrows, which every picture of it draws. They are made of the plain data alone.

There is one diagram for the logical graph, one for the rewritten graph, and one for each pass of the physical plan.
Columns of the graph, and results of another pass, have no box. Their names stand where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.explain.sizes import duration, size

ROWS = {"vertex": "V", "edge": "E", "none": "-"}


@dataclass(frozen=True)
class Box:
    """An operator, or a step of a pass."""

    key: str  # its number in the plain data
    title: str  # the operator, such as `Propagate(mul_1, self_loops)`
    makes: str  # its output in short, such as "propagate_1" or "[V, 16]"
    engine: str  # "graph" or "dl"
    backward: bool
    bytes: int  # all bytes that it hands on
    facts: tuple[tuple[str, str], ...]  # everything else that is known of it, as names and values
    measured: tuple[tuple[str, str], ...] = field(
        default=(), compare=False
    )  # measured facts; a plan is equal with and without them


@dataclass(frozen=True)
class Arrow:
    """The columns that a box reads: from another box, or without a source from before the pass."""

    source: str | None  # key of a box, or None
    target: str
    names: tuple[str, ...]  # names of the columns
    bytes: int
    backward: bool = False  # True if they are gradients


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows, where each box comes after all boxes that it reads."""

    key: str  # "logical", "rewritten", or the name of a pass
    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    own: str = field(default="", compare=False)  # seconds of a pass without its steps, as text

    @property
    def is_graph(self) -> bool:
        """True if its boxes are operators, and not steps."""
        return self.key in ("logical", "rewritten")

    @property
    def most_bytes(self) -> int:
        """The bytes of its widest arrow, or 0 without arrows."""
        return max((arrow.bytes for arrow in self.arrows), default=0)


def diagrams(data: Mapping[str, Any]) -> tuple[Diagram, ...]:
    """Return the diagrams of the data of `planner.explain.text.as_data`.

    Those of passes come last, and an empty pass has none.
    """
    graphs = [_of_graph(name, data[name]) for name in ("logical", "rewritten") if name in data]
    stages = {stage["name"]: stage for stage in data.get("stages", ())}
    titles = data.get("passes", {})
    own = {name: _own(seconds) for name, seconds in data.get("own_seconds", {}).items()}
    return (*graphs, *(_of_pass(name, titles[name], data[name], stages, own[name]) for name in titles if data[name]))


# --- operator graphs ------------------------------------------------------------------------------------------------


def _of_graph(name: str, nodes: Sequence[Mapping[str, Any]]) -> Diagram:
    by_id = {node["id"]: node for node in nodes}
    boxes = tuple(_operator_box(node) for node in nodes if not node["static"])
    arrows = tuple(
        Arrow(None if by_id[child]["static"] else str(child), str(node["id"]), (_read_name(by_id[child]),),
              by_id[child]["bytes"])
        for node in nodes if not node["static"] for child in node["inputs"]
    )  # fmt: skip
    return Diagram(name, name, boxes, arrows)


def _operator_box(node: Mapping[str, Any]) -> Box:
    shape = "[" + ", ".join([ROWS[node["rows"]], *map(str, node["shape"])]) + "]"
    facts = {
        "engine": node["engine"],
        "layer": node["layer"],
        "a row for each": node["rows"],
        "shape": shape,
        "bytes": size(node["bytes"]),
    }
    return Box(str(node["id"]), node["operator"], shape, node["engine"], False, node["bytes"], _known(facts))


def _read_name(node: Mapping[str, Any]) -> str:
    """Return the name of a value where it is read. For a column this is its name, and for others a number and operator."""
    operator: str = node["operator"]
    if node["static"]:
        of_edges = (
            operator.removesuffix(")").replace("EdgeWeight(edges=", "weight of ", 1).replace(", edges=", " of ", 1)
        )
        return of_edges.removeprefix("Column(").removeprefix("EdgeColumn(")
    return f"#{node['id']} {operator.partition('(')[0]}"


# --- passes ---------------------------------------------------------------------------------------------------------


def _own(seconds: Mapping[str, float]) -> str:
    return "; measured ".join(duration(seconds[how]) for how in ("estimated", "measured") if how in seconds)


def _of_pass(name: str, title: str, steps: Sequence[Mapping[str, Any]], stages: Mapping[str, Any], own: str) -> Diagram:
    boxes = tuple(_step_box(number, step, stages) for number, step in enumerate(steps))
    maker = {column: number for number, step in enumerate(steps) for column in step["makes"]}
    arrows = [arrow for number, step in enumerate(steps) for arrow in _arrows_into(number, step, maker, steps)]
    return Diagram(name, f"physical: {title}", boxes, tuple(arrows), own)


def _arrows_into(
    number: int, step: Mapping[str, Any], maker: Mapping[str, int], steps: Sequence[Mapping[str, Any]]
) -> list[Arrow]:
    """Return an arrow from each step that this one reads, and one from each column from before the pass."""
    reads: Mapping[str, int] = step["reads"]
    sources = dict.fromkeys(maker[column] for column in reads if column in maker)
    arrows = [Arrow(None, str(number), (column,), bytes) for column, bytes in reads.items() if column not in maker]
    for source in sources:
        names = tuple(column for column in reads if maker.get(column) == source)
        backward = step["backward"] and (steps[source]["backward"] or steps[source]["turn"])
        arrows.append(Arrow(str(source), str(number), names, sum(reads[column] for column in names), backward))
    return arrows


def _step_box(number: int, step: Mapping[str, Any], stages: Mapping[str, Any]) -> Box:
    title, _, makes = step["operator"].partition(" -> ")
    calls = [] if step["backward"] or step["stage"] is None else stages[step["stage"]]["calls"]
    facts = {
        "engine": step["engine"],
        "direction": "backward" if step["backward"] else "forward, and at once back" if step["turn"] else "forward",
        "rows": f"{step['rows']:,}",
        "bytes": size(step["bytes"]),
        "seconds": duration(step["seconds"]),
        "columns there": size(step["alive_bytes"]),
        "reads": ", ".join(f"{name} ({size(bytes)})" for name, bytes in step["reads"].items()),
        "makes": ", ".join(f"{name} ({size(bytes)})" for name, bytes in step["makes"].items()),
        "calls": "\n".join(calls),
    }
    told = str(number), title, makes, step["engine"], step["backward"], step["bytes"], _known(facts)
    return Box(*told, _measured(step.get("measured", {})))


def _measured(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the measured figures of a step, by the names of the estimates that they belong to."""
    words: dict[str, Callable[[Any], str]] = {
        "rows": "{:,}".format,
        "bytes": size,
        "piped_bytes": size,
        "seconds": duration,
    }
    return tuple(
        (name.replace("_", " "), say(found[name]) + " (!)" * (name in found.get("off", ())))
        for name, say in words.items()
        if name in found
    )


def _known(facts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in facts.items() if value)
